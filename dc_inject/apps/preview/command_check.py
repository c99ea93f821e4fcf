"""`dc-inject check`: everything that is wrong or odd in menus, and with --online in what they need of services."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from dc_inject.apps.preview import checking
from dc_inject.cli.shared import common, log_output, params, tables, trusting
from dc_inject.menu import MenuDraft
from dc_inject.model import Campaign, rates, units
from dc_inject.model.errors import Problem
from dc_inject.model.ports import Backend
from dc_inject.model.transfers import FILE_SPEED
from dc_inject.system.clock import SystemClock

COLUMNS = tuple(
    tables.Column(key, key) for key in ("file", "line", "column", "severity", "code", "outlier", "message", "hint")
)


@click.command()
@common.MENUS
@click.option("--strict", is_flag=True, help="Treat warnings as errors (exit code 2).")
@click.option("--online", "asking", is_flag=True, help="Also ask the services and storages; this changes nothing.")
@click.option(
    "--file-speed",
    type=params.RATE,
    default=FILE_SPEED,
    help=f"The speed of one file through FTS [default: {units.format_size(FILE_SPEED)}/s, as in DC24].",
)
@common.LINKS
@common.SCALE
@common.TIMEOUT
@common.FORMAT
@click.pass_context
def check(
    ctx: click.Context,
    menus: tuple[Path, ...],
    strict: bool,
    asking: bool,
    file_speed: float,
    links: tuple[str, ...],
    scale: float,
    timeout: float,
    fmt: str,
) -> None:
    r"""Check MENUS (files or folders), and report every problem with its line and a hint.

    An error is something that cannot work (exit code 2). A warning is a finding with a code; `run` refuses
    findings that are outliers unless the menu accepts their code (`accept: [code]`).

    With --online it also asks the services: who you are, whether the ends of all links exist, can copy, have space
    and datasets or files, and grant you the rights that are needed, and whether FTS's limits will throttle the
    menus. Exit code 4: a service cannot be reached, or refuses your credentials.

    --link and --scale check what `run` would do with them.

    \b
    Example: dc-inject check menus/cms-t0-export.yaml
    Example: dc-inject check --strict --format json menus/cms
    Example: dc-inject check --online menus/fts-juno-steps.yaml
    """

    def connect(drafts: Sequence[MenuDraft]) -> Mapping[str, Backend]:
        log_output.talk(quiet=True)
        return common.connect(drafts, timeout)

    now = SystemClock().now()
    found = checking.check(menus, links, scale, file_speed, trusting.recall, connect if asking else None, now)
    _emit(fmt, found.problems, found.credentials)
    actions = [] if found.campaign is None else checking.describe_actions(found.campaign.name)
    for sentence in [*found.credentials, *found.answers, *actions]:
        click.echo(sentence, err=True)
    if found.campaign is not None:
        click.echo(_sentence(found.campaign, [] if found.answers else found.drafts, scale), err=True)
    errors, warnings = found.errors, len(found.problems) - found.errors
    if found.problems:
        counted = f"{units.counted(errors, 'errors')}, {units.counted(warnings, 'warnings')}"
        click.echo(counted + (" (treated as errors: --strict)" if strict and warnings else ""), err=True)
    ctx.exit(4 if found.service_failed else 2 if errors or (strict and warnings) else 0)


def _emit(fmt: str, problems: Iterable[Problem], notes: Iterable[str]) -> None:
    """Print problems; where a program reads them, also what is worth to know and no problem."""
    rows: list[dict[str, Any]] = [
        {
            "file": problem.file,
            "line": problem.line or None,
            "column": problem.column or None,
            "severity": "error" if problem.is_error else "warning",
            "code": problem.code or None,
            "outlier": problem.needs_accepting,
            "message": problem.message,
            "hint": problem.hint,
        }
        for problem in problems
    ]
    if fmt == "table":  # messages are sentences: lines that editors can follow beat columns
        for row, problem in zip(rows, problems, strict=True):
            click.echo(f"{row['severity']}: {problem}")
    else:
        empty = {column.key: None for column in COLUMNS} | {"outlier": False}
        rows += [empty | {"severity": "note", "code": "credentials", "message": note} for note in notes]
        tables.emit(fmt, COLUMNS, rows)


def _sentence(campaign: Campaign, drafts: Sequence[MenuDraft], scale: float) -> str:
    """Return what the menus ask for, in one sentence."""
    flows = campaign.flows
    links, scenarios = len({flow.link for flow in flows}), len({flow.scenario for flow in flows})
    start, end = (units.format_minute(moment) for moment in (campaign.start, campaign.end))
    rate = units.format_rate(rates.peak(flows).rate)
    sentence = (
        f"{campaign.name}: {units.counted(links, 'links')} in {units.counted(scenarios, 'scenarios')}, "
        f"{rate} together{f' (rates times {scale:g})' if scale != 1 else ''}, from {start} to {end}"
    )
    expressions = len({expression for draft in drafts for expression in draft.expressions})
    if expressions:
        sentence += (
            f"; {units.counted(expressions, 'RSE expressions')} counted as one RSE each, until `run` resolves them"
        )
    return sentence
