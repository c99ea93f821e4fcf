"""The options of `dc-inject plan --footprint`: what has to be assumed because no menu says it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import click

from dc_inject.analysis.footprint import Assumptions
from dc_inject.cli import params
from dc_inject.model import units
from dc_inject.model.errors import UsageError
from dc_inject.model.transfers import LIMITS_OF

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT = Assumptions()
NAMES = tuple(part.name for part in fields(Assumptions))


_OPTIONS = (
    click.option(
        "--footprint", "whole", is_flag=True, help="Show what whole menus require of each site; works offline."
    ),
    click.option(
        "--mean-file",
        type=params.SIZE,
        help="For --footprint: mean file size [default: from the inventory or list, else 5 GB].",
    ),
    click.option(
        "--dataset-files",
        type=click.IntRange(1),
        default=DEFAULT.dataset_files,
        show_default=True,
        help="For --footprint: the number of files of a dataset, within the menu's bounds.",
    ),
    click.option(
        "--file-speed",
        type=params.RATE,
        default="6 MB/s",
        show_default=True,
        help="For --footprint: the speed of one file.",
    ),
    click.option(
        "--deletion-seconds",
        type=click.FloatRange(min=0),
        default=DEFAULT.deletion_seconds,
        show_default=True,
        help="For --footprint: seconds that a site needs to delete one file.",
    ),
    click.option(
        "--deletion-lag",
        type=params.LAG,
        help="For --footprint: time from a rule's end to free space; a cycle is added [default: the menu's].",
    ),
    click.option(
        "--lifetime",
        type=params.DURATION,
        help="For --footprint: the lifetime of rules [default: the menu's longest].",
    ),
    click.option(
        "--link-limit",
        type=click.IntRange(1),
        default=DEFAULT.link_limit,
        show_default=True,
        help=f"For --footprint: transfers that FTS allows on a link; the default is that of {LIMITS_OF}.",
    ),
)


def options(command: F) -> F:
    """Add the options of a footprint to a command; it gets them as `whole` and the fields of Assumptions."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def refuse(ctx: click.Context, names: Sequence[str], why: str) -> None:
    """Raise UsageError when one of these parameters was given: it would be passed over without a word."""
    given = [
        parameter.opts[-1]
        for parameter in ctx.command.params
        if parameter.name in names
        and ctx.get_parameter_source(parameter.name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise UsageError(f"{', '.join(given)} {why}", "see `dc-inject plan --help`")


def describe(assumed: Assumptions) -> str:
    """Say what was assumed, in one sentence."""
    file = (
        "files of 5 GB where none is known" if assumed.mean_file is None else units.format_size(assumed.mean_file)
    )
    life = "the menus' longest" if assumed.lifetime is None else units.format_duration(assumed.lifetime)
    lag = "the menus'" if assumed.deletion_lag is None else units.format_duration(assumed.deletion_lag)
    return (
        f"assumed: {file}, {assumed.dataset_files} of them in a dataset, moving at "
        f"{units.format_size(assumed.file_speed)}/s each; {assumed.deletion_seconds:g} s to delete one; "
        f"lifetime {life}; deletion lag {lag} and a cycle"
    )
