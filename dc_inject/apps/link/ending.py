"""The end of a mini-challenge: what it leaves is ended; an interruption says what is left, and what ends it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path

import click

from dc_inject.apps.link import challenges
from dc_inject.apps.link.challenges import LinkOptions
from dc_inject.cli import end
from dc_inject.cli.shared import exits, hangup, ledger_files
from dc_inject.ledger import LedgerView
from dc_inject.model import Entry, State, units
from dc_inject.model.errors import DcInjectError, LedgerBroken, LedgerError, ServiceError, UsageError


class EndState(Enum):
    """How far it got to end what a mini-challenge has left."""

    COMPLETE = "complete"
    FAILED = "failed"  # of some of it
    INTERRUPTED = "interrupted"


def end_rules(campaign: str, ledger_path: Path, options: LinkOptions, patience: timedelta) -> EndState:
    """End the rules or jobs that are left, and return how far that got.

    Where something cannot be ended, say so: everything ends with its lifetime.
    """
    try:
        complete = end.end_campaign(
            campaign,
            cancel=True,
            cancel_rate=options.cancel_rate,
            yes=True,
            ledger_path=ledger_path,
            timeout=options.timeout,
            patience=patience,
        )
    except ServiceError as error:
        click.echo(f"not everything has ended: {error.message}", err=True)
        return EndState.FAILED
    except KeyboardInterrupt:
        return EndState.INTERRUPTED
    return EndState.COMPLETE if complete else EndState.INTERRUPTED


@contextlib.contextmanager
def interruptible(campaign: str) -> Iterator[None]:
    """Say what is left of a campaign, and what ends it, if a signal interrupts what is inside."""
    try:
        yield
    except KeyboardInterrupt:
        for number in hangup.signals():  # those who press again and again would otherwise not be told
            signal.signal(number, signal.SIG_IGN)
        path = ledger_files.file_of(None, campaign)
        if path.exists():
            exits.say_interrupted(f"`dc-inject link --verdict {campaign}` prints the verdict so far")
            say_what_is_left(campaign, path, EndState.INTERRUPTED)
        else:
            exits.say_interrupted("nothing was injected")
        raise click.exceptions.Exit(exits.INTERRUPTED) from None


def says_how_to_go_on(error: BaseException) -> bool:
    """Whether it is the ledger's and its hint is all there is to do, as where another injector is at work."""
    return isinstance(error, LedgerError) and not isinstance(error, LedgerBroken)


def explain_stop(campaign: str, path: Path, error: DcInjectError | OSError, now: datetime | None = None) -> None:
    """Say what an error has left of a campaign, and let its hint name the commands that end and continue it.

    `campaign` is a name or a ledger; `now` is for a test of one link.
    """
    end_it = f"`dc-inject end {campaign} --cancel` ends what is left"
    goes_on = "" if now is not None else "to continue, start the same command again"
    try:
        say_what_is_left(campaign, path, EndState.FAILED)
        if now is not None:
            goes_on = continued(campaign, path, now)
    except LedgerError as unread:  # on a full disk, perhaps
        click.echo(f"what is left is not known: {unread.message}", err=True)
    hint = "; ".join(filter(None, [getattr(error, "hint", ""), end_it, goes_on]))
    if isinstance(error, DcInjectError):
        error.hint = hint
    else:
        click.echo(hint, err=True)


def continued(campaign: str, path: Path, now: datetime) -> str:
    """Return how the test is continued, or where its verdict is; empty where it has not begun."""
    with LedgerView.open(path) as view, view.snapshot():
        if not view.challenge():
            return ""
        for more in (None, timedelta(hours=1)):
            try:
                challenges.resume_challenge(view, path, more, now)
            except UsageError:
                continue
            option = "" if more is None else " --for 1h"
            return f"`dc-inject link --resume {campaign}{option}` continues the test"
    return f"`dc-inject link --verdict {campaign}` prints the verdict"


def say_what_is_left(campaign: str, path: Path, end_state: EndState) -> None:
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


def _counted(entries: Sequence[Entry]) -> str:
    return units.counted(len(entries), entries[0].injection.link.service.injections)
