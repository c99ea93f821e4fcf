"""Printing the verdict of a mini-challenge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from dc_inject.apps.link import verdicts
from dc_inject.cli.shared import tables
from dc_inject.model import units


def _time_of_day(moment: str) -> str:
    return moment[11:19]


STEPS = (
    tables.Column("step", "step", right=True),
    tables.Column("rate", "asked", units.format_rate, right=True),
    tables.Column("moved_rate", "moved", units.format_rate, right=True),
    tables.Column("ratio", "of asked", units.percent, right=True),
    tables.Column("failed", "failed", units.percent, right=True),
    tables.Column("start", "from (UTC)", _time_of_day, whole=True, spare=1),
    tables.Column("measured", "measured", _time_of_day, whole=True),
    tables.Column("end", "to", _time_of_day, whole=True),
    tables.Column("asked", "asked", units.format_size, quiet=True),
    tables.Column("moved", "moved", units.format_size, quiet=True),
    tables.Column("grain", "grain", units.format_rate, quiet=True),
    tables.Column("injected", "injected", units.format_size, quiet=True),
    tables.Column("held", "held", quiet=True),
    tables.Column("outcome", "outcome", whole=True),
    tables.Column("cause", "because", whole=True, spare=2),  # the sentence below tells it
    tables.Column("reason", "reason", quiet=True),
    tables.Column("next", "then", whole=True, spare=3),
)


def emit(fmt: str, report: Mapping[str, Any]) -> None:
    """Print the verdict: the steps, what is left, and the result in a sentence."""
    if fmt == "json":
        tables.emit_json(report)
        return
    if report["steps"] or fmt != "table":
        tables.emit(fmt, STEPS, report["steps"])
    for line in verdicts.lines(report):
        click.echo(line, err=True)
    click.echo(verdicts.sentence(report), err=fmt != "table")
