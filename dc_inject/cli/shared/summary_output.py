"""Printing what `summary/` finds, for every command: the closing table, reasons of holds, advice, what is left.

In tables, `~` marks bytes that are partly an estimate.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dc_inject.cli.shared import log_output, tables
from dc_inject.ledger import LedgerView, Reader
from dc_inject.model import units
from dc_inject.model.errors import DcInjectError, LedgerError
from dc_inject.summary import advice, closing, left
from dc_inject.summary.closing import Estimate
from dc_inject.summary.left import EndState

log = logging.getLogger(__name__)

MOST_ROWS = 60  # links of a closing table
MOST_REASONS = 10  # of holds; JSON has all
ADVICE = "what `act` would have held"
NO_FORECAST = (
    "(as control saw it in a run that it left alone: what it holds back may go out later, and from the first such "
    "cycle on a run with `act` differs"
)


def size(value: int) -> str:
    """Return a size for people, with `~` where it is an estimate."""
    return ("~" if isinstance(value, Estimate) else "") + units.format_size(value)


def _holds(held: Mapping[str, int]) -> str:
    return ", ".join(f"{units.grouped(cycles)} {hold}" for hold, cycles in held.items())


def _goal(goal: Mapping[str, int]) -> str:
    """Return a goal, and how far it is reached: `volume 2 PB, 53.0 % moved`."""
    if "volume" in goal:
        part = goal["moved"] / goal["volume"] if goal["volume"] else 1.0
        return f"volume {size(goal['volume'])}, {units.percent(part)} moved"
    if "again" in goal:
        return "again when complete"
    if "then" in goal:
        return "second hop"
    return f"keep {size(goal['keep'])}, {size(goal['on_its_way'])} on its way" if goal else ""


LINK = (
    tables.Column("scenario", "scenario", name=True, heading=True),
    tables.Column("source", "source", name=True),
    tables.Column("destination", "destination", name=True),
    tables.Column("service", "service", quiet=True),
)


GOAL = tables.Column("goal", "goal", _goal, spare=3)
SUMMARY = (
    *LINK,
    tables.Column("due", "due", size, right=True),
    tables.Column("injected", "injected", size, right=True, spare=2),
    tables.Column("injected_ratio", "inj/due", units.percent, right=True),
    tables.Column("moved", "moved", size, right=True),
    tables.Column("moved_estimated", "estimated", size, quiet=True),
    tables.Column("moved_ratio", "moved/inj", units.percent, right=True, spare=1),
    tables.Column("on_its_way", "on its way", size, quiet=True),
    tables.Column("not_moved", "not moved", size, right=True, spare=1, rare=True),
    tables.Column("not_moved_failed", "of these failed", size, quiet=True),
    tables.Column("failed", "failed", size, quiet=True),
    tables.Column("rules", "rules/jobs", right=True, spare=5),
    tables.Column("forgiven", "forgiven", size, right=True, spare=4),
    tables.Column("cycles", "cycles", quiet=True),
    tables.Column("held", "held (cycles)", _holds),
    tables.Column("harmless", "harmless (cycles)", _holds, spare=6),
    tables.Column("failed_files", "failed files", _holds, spare=3),
    GOAL,
)


def lost_line(totals: Mapping[str, Any]) -> str:
    """Return a line for below the table, in which a narrow terminal leaves no room for it; empty if nothing is."""
    amount, failed = (totals["total"][name] for name in ("not_moved", "not_moved_failed"))
    of_it = f", {size(failed)} of it failed in all attempts" if failed else ""
    words = f"had not moved when their rules or jobs ended{of_it}"
    return f"{size(amount)} {words}: see `dc-inject report {totals['campaign']}`" if amount else ""


def show_totals(campaign: str, view: Reader) -> None:
    """Print the closing table with what control advised; of many links the total only."""
    totals = closing.totals(campaign, view)
    many = len(totals["links"]) > MOST_ROWS
    rows = [totals["total"]] if many else [*totals["links"], totals["total"]]
    tables.emit("table", SUMMARY, rows, f"closing table of {campaign}")
    if lost := lost_line(totals):
        click.echo(lost)
    advised = advice.advised(view)
    show_advice(advised.given, advice.rows(advised.held), simulated=False)
    if many:
        log.info("all %d links: `dc-inject status %s --summary`", len(totals["links"]), campaign)


# --------------------------------------------------------------------------- why links were held


REASONS = (
    tables.Column("hold", "held by"),
    tables.Column("links", "links", right=True),
    tables.Column("cycles", "cycles", right=True),
    tables.Column("missing", "missing in them", units.format_size, right=True),
    tables.Column("sentence", "why, and which links most", below=True),
)

ADVISED = tuple(
    replace(column, key="held_back", head="held back") if column.key == "missing" else column for column in REASONS
)


def show_reasons(
    rows: Sequence[dict[str, Any]], title: str = "", columns: Sequence[tables.Column] = REASONS
) -> None:
    """Print the first of these reasons as a table, each with the links that it held most; then count the rest."""
    if not rows:
        return
    click.echo()
    tables.emit(
        "table",
        columns,
        [{**row, "sentence": f"{row['why']}; {_links(row)}"} for row in rows[:MOST_REASONS]],
        title,
    )
    if rest := rows[MOST_REASONS:]:
        held = units.counted(sum(row["cycles"] for row in rest), "cycles of links")
        click.echo(f"and {units.counted(len(rest), 'reasons')} more, in {held}; --format json has all")


def _links(row: dict[str, Any]) -> str:
    named = ", ".join(row["most_held"])
    more = row["links"] - len(row["most_held"])
    return f"{named} and {more} more" if more else named


def show_advice(given: bool, holds: Sequence[dict[str, Any]], *, seeds: str = "", simulated: bool = True) -> None:
    """Print them as a table, if control advised; these are medians of so many `seeds`."""
    if not given:
        return
    if not holds:
        click.echo("\ncontrol only advised, and would have held nothing back")
        return
    show_reasons(holds, f"{ADVICE}{seeds}", ADVISED)
    click.echo(NO_FORECAST + ("; `--policy act` shows how)" if simulated else ")"))


# --------------------------------------------------------------------------- what is left


def explain_stop(
    campaign: str,
    path: Path,
    error: DcInjectError | OSError,
    continued: Callable[[], str] = lambda: left.START_AGAIN,
) -> None:
    """Print what an error has left of a campaign, and let its hint name the commands that end and continue it.

    `campaign` is a name or a ledger; `continued` returns how to go on, which it may have to read from the ledger.
    """
    goes_on = ""
    try:
        show_left(campaign, path, EndState.FAILED)
        goes_on = continued()
    except LedgerError as unread:  # on a full disk, perhaps
        click.echo(f"what is left is not known: {unread.message}", err=True)
    hint = left.add_ways_on(campaign, getattr(error, "hint", ""), goes_on)
    if isinstance(error, DcInjectError):
        error.hint = hint
    else:
        click.echo(hint, err=True)


def show_left(campaign: str, path: Path, end_state: EndState) -> None:
    """Print which rules, jobs or files are not known to be gone, and how to end them; keep it in the log, too."""
    with LedgerView.open(path) as view, view.snapshot():
        found = left.read(view).after(end_state)
    lines = found.lines(campaign, end_state)
    for line in lines:
        click.echo(line, err=True)
    if found:
        log_output.keep("; ".join(lines), "left", found.fields(campaign))
