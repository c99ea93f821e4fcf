"""`dc-inject explain`: what a hold, an alert or what is short in a campaign means, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dc_inject import registry
from dc_inject.cli.shared import common, tables
from dc_inject.ledger import LedgerView, ledger_files
from dc_inject.model import State, units
from dc_inject.model.errors import UsageError
from dc_inject.model.held import format_numbers
from dc_inject.summary import first_lines, standing, what_to_do, why
from dc_inject.system.clock import SystemClock

SHOWN = {"means": "means", "do": "do", **what_to_do.PLACES, "call": "call", "contact": "contact"}
COLUMNS = tuple(tables.Column(name, name) for name in ("line", "key", "see", *SHOWN))


@click.command()
@click.argument("subject", cls=common.CampaignToRead, metavar="[KEY|CAMPAIGN]")
@common.LEDGER
@common.FORMAT
def explain(subject: str, ledger_path: Path | None, fmt: str) -> None:
    r"""Explain a hold, an alert or a cause; or all that is short in a campaign, with its numbers.

    It shows what each means, what to look at in Rucio, FTS, the network and deletions, and whom to call. It reads
    nothing but the campaign's ledger.

    \b
    Example: dc-inject explain destination-full
    Example: dc-inject explain DcInjectNothingArrives
    Example: dc-inject explain dc27-rehearsal
    """
    has_none = ledger_files.lacks(subject, ledger_path)  # a ledger that cannot be read is the campaign's, too
    rows, verdict = ([_entry(subject)], "") if has_none else _short(subject, ledger_path)
    if fmt != "table":
        tables.emit(fmt, COLUMNS, rows)
    elif verdict:
        click.echo(verdict)
    elif not rows:
        click.echo(f"{subject}: no link is known to be short, or held")
    for row in rows if fmt == "table" else ():
        click.echo(click.wrap_text(first_lines.one_line(row["line"]), 80))
        for name, title in SHOWN.items():
            if row[name]:
                click.echo(click.wrap_text(row[name], 80, f"  {title:<10}", " " * 12))
        click.echo()


def _entry(subject: str) -> dict[str, Any]:
    """Return a hold, an alert or a cause; raises UsageError."""
    try:
        entry = what_to_do.entry(subject)
    except KeyError as error:
        hint = units.did_you_mean(subject, [*what_to_do.entries(), *ledger_files.campaigns()])
        raise UsageError(f"{subject} is no hold, alert or cause, and no campaign here", hint) from error
    return {**entry, "line": f"{entry['key']}: {entry['see']}", "call": what_to_do.whom(entry), "contact": ""}


def _short(campaign: str, ledger_path: Path | None) -> tuple[list[dict[str, Any]], str]:
    """Return why nothing is injected, what is short in a campaign with its numbers, and the verdict of a test."""
    path = ledger_files.existing(campaign, ledger_path)
    with LedgerView.open(path) as view, view.snapshot():
        now = standing.shown_moment(view, SystemClock().now())
        status = standing.standing(ledger_files.campaign_in(view, campaign, path), view, now)
        groups = why.explain_all(view) if status["over_since"] else status["short"]
        halt, live = first_lines.halted(view, status, now), view.entries(State.LIVE)
        if halt is not None:
            call, line = what_to_do.whom(what_to_do.entry(halt)), status["first_lines"][-1].removeprefix("! ")
            row = {"cause": halt, "line": f"{halt}: {line}", "numbers": {}, "call": call, "needs_action": True}
            groups = [{**row, "links": []}, *groups]
        argument = ledger_files.argument_for(view)
        verdict = registry.load(registry.VERDICT)(view) if view.challenge() else ""
    contact = " ".join({f"of the campaign: {e.injection.contact}" for e in live if e.injection.contact and groups})
    rows = [
        {
            **what_to_do.entry_for(group, argument, live),
            "line": f"{'! ' * group['needs_action']}{group['line']} {format_numbers(group['numbers'])}",
            "call": group["call"],
            "needs_action": group["needs_action"],
            "contact": contact,
        }
        for group in groups
    ]
    return rows, verdict
