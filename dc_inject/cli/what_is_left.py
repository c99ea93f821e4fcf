"""What is left of a campaign in its services after a stop, an error or an end, and the commands that end it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path

import click

from dc_inject.cli import end
from dc_inject.cli.shared import log_output
from dc_inject.ledger import LedgerView
from dc_inject.model import Entry, State, units
from dc_inject.model.errors import DcInjectError, LedgerBroken, LedgerError

START_AGAIN = "to continue, start the same command again"


class EndState(Enum):
    """How far it got to end what is left."""

    COMPLETE = "complete"
    FAILED = "failed"  # of some of it
    INTERRUPTED = "interrupted"


def says_how_to_go_on(error: BaseException) -> bool:
    """Whether it is the ledger's and its hint is all there is to do, as where another injector is at work."""
    return isinstance(error, LedgerError) and not isinstance(error, LedgerBroken)


def explain_stop(
    campaign: str, path: Path, error: DcInjectError | OSError, continued: Callable[[], str] = lambda: START_AGAIN
) -> None:
    """Say what an error has left of a campaign, and let its hint name the commands that end and continue it.

    `campaign` is a name or a ledger; `continued` says how to go on, which it may have to read from the ledger.
    """
    end_it = f"`dc-inject end {campaign} --cancel` ends what is left"
    goes_on = ""
    try:
        say(campaign, path, EndState.FAILED)
        goes_on = continued()
    except LedgerError as unread:  # on a full disk, perhaps
        click.echo(f"what is left is not known: {unread.message}", err=True)
    hint = "; ".join(filter(None, [getattr(error, "hint", ""), end_it, goes_on]))
    if isinstance(error, DcInjectError):
        error.hint = hint
    else:
        click.echo(hint, err=True)


def say(campaign: str, path: Path, end_state: EndState) -> None:
    """Say which rules, jobs or files are not known to be gone, and how to end them.

    If their end got to its end, those that were asked to end need nobody; after an interruption it is also said
    that nothing is left.
    """
    with LedgerView.open(path) as view, view.snapshot():
        in_service = view.entries(State.CALLED, State.LIVE, State.COMPLETE)
        ended = [e for e in view.entries(State.ENDED) if not e.injection.link.service.cleans_up]
        refusing = [identity.account for identity in view.identities() if identity.may_end is False]
    live = [entry for entry in in_service if entry.end_asked_at is None]
    asked = [entry for entry in in_service if entry.end_asked_at is not None]
    if end_state is EndState.COMPLETE:
        asked = [entry for entry in asked if not entry.injection.link.service.cleans_up]
    lines = []
    if live:
        lines.append(f"{_counted(live)} {end.left_to_lifetime(live)}")
    if asked:
        lines.append(f"{_counted(asked)} asked to end, and not known to be gone")
    if ended:
        files = units.counted(sum(entry.injection.item.files for entry in ended), "files")
        lines.append(f"{files} of ended jobs not known to be deleted")
    if lines and refusing:
        lines.append(f"{refusing[0]} may not end them earlier")
    elif lines:
        lines.append(f"end what is left with `dc-inject end {campaign} --cancel`")
    elif end_state is EndState.INTERRUPTED:
        lines.append("nothing is left to end")
    for line in lines:
        click.echo(line, err=True)
    if live or asked or ended:
        fields = {"campaign": campaign, "live": len(live), "asked": len(asked), "ended": len(ended)}
        words = "; ".join(lines)
        log_output.keep(words, "left", fields)


def _counted(entries: Sequence[Entry]) -> str:
    return units.counted(len(entries), entries[0].injection.link.service.injections)
