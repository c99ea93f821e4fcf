"""`dc-inject watch`: a campaign on the whole terminal, from its ledger alone, while it runs and afterwards.

It opens the ledger read-only for a moment at a time, so that it never holds an injector up. Its figures are read
in `watch_figures.py`, first before the screen is opened, so that a wrong name is an error like any other.
Textual shows them (`watch_app.py`), which is an extra: everybody else has `status`.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import click

from dc_inject.apps.report import watch_figures
from dc_inject.cli.shared import common, params
from dc_inject.ledger import ledger_files
from dc_inject.model.errors import UsageError
from dc_inject.system.clock import SystemClock


@click.command()
@common.TO_READ
@click.option(
    "--last",
    type=params.DURATION,
    help="The hours before the end of the last cycle whose sums, ratios and trends are shown; by default those "
    "since the menus last changed.",
)
@common.LEDGER
def watch(campaign: str, last: timedelta | None, ledger_path: Path | None) -> None:
    r"""Watch a campaign on the whole terminal: what moves, what is short, all links with their holds, and events.

    It only reads the ledger, so you can watch from any terminal of this machine, also after the campaign. Links
    can be filtered and sorted; the keys are in the last line, and q quits. Needs Textual.

    \b
    Example: dc-inject watch dc27-rehearsal
    Example: dc-inject watch dc27-rehearsal --last 6h
    """
    instead = f"`dc-inject status {campaign}` shows the same figures as tables"
    if not _terminal():
        raise UsageError("`watch` needs a terminal", instead)
    if find_spec("textual") is None:
        hint = f"`pip install '.[watch]'` in the clone installs it; without it {instead}"
        raise UsageError("watching needs Textual, which is not installed", hint)
    from dc_inject.apps.report.watch_app import WatchApp  # noqa: PLC0415  it is an extra, and takes half a second

    path = ledger_files.existing(campaign, ledger_path)
    clock = SystemClock()
    first = watch_figures.read(path, campaign, clock.now(), last)
    WatchApp(first, lambda: watch_figures.read(path, campaign, clock.now(), last)).run()


def _terminal() -> bool:
    """Whether this is a terminal on which a whole screen can be shown."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in {"", "dumb"}
