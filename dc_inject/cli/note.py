"""`dc-inject note`: notes of operators, to be read beside a campaign's figures, kept in its ledger.

A note is a change (`Change`) that changes nothing: it has a time, an author and a text like the others, and stands
among them wherever changes are shown. The ledger's table `note` is for the program's own traces: it has no author,
keeps one text once, and drops the oldest, so a bug that repeats would push out what people wrote.

The text is one line, bounded and cleaned of secrets. It is about a time that is over: its own, or an earlier one.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from dc_inject.cli.shared import common, params, subjects
from dc_inject.ledger.records import NOTE
from dc_inject.model.errors import UsageError
from dc_inject.model.redaction import LONGEST, scrub
from dc_inject.system.clock import SystemClock


@click.command()
@common.CAMPAIGN
@click.argument("text")
@click.option("--at", type=params.TIME, metavar="TIME", help="The time that it is about [default: now].")
@common.LEDGER
def note(campaign: str, text: str, at: datetime | None, ledger_path: Path | None) -> None:
    r"""Write a note on a campaign, such as an incident; `status` shows it among the changes, and `report` too.

    It is kept for good, with your name; anything that looks like a password or token is left out.

    \b
    Example: dc-inject note dc27-rehearsal "tokens of KIT refused, ticket 4711"
    Example: dc-inject note dc27-rehearsal "LHCOPN cut" --at 2027-02-08T14:00Z
    """
    path = subjects.campaign_ledger(campaign, ledger_path)
    now = SystemClock().now()
    about = at or now
    if about > now:
        raise UsageError(f"{about:%Y-%m-%dT%H:%MZ} is not over yet", "a note says what happened, now or earlier")
    if len(" ".join(text.split())) > LONGEST:
        raise UsageError(f"a note has at most {LONGEST} characters", "say it in several notes")
    words = scrub(text)
    if not words:
        raise UsageError("the note is empty", 'write what happened: dc-inject note CAMPAIGN "text"')
    with subjects.opened(path, may_be_simulated=True) as (ledgers, view):
        name = view.campaign or path.stem
        for own in ledgers:
            own.change(common.who(), NOTE, words, about)
    click.echo(f"{name}: noted at {about:%Y-%m-%d %H:%M:%SZ}: {words}", err=True)
