"""What is left of a campaign in its services after a stop, an error or an end: for `run`, `link` and `end`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any

from dc_inject.ledger import Reader
from dc_inject.model import Entry, State, units
from dc_inject.model.errors import LedgerBroken, LedgerError

START_AGAIN = "to continue, start the same command again"


class EndState(Enum):
    """How far an attempt to end what is left got."""

    COMPLETE = "complete"
    FAILED = "failed"  # of some of it
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Left:
    """The rules, jobs and files that are not known to be gone.

    `live` are rules and jobs whose end was not asked for, `asked` those whose end was, `ended` jobs that have
    ended and whose files are not known to be deleted. `refusing` is an account that may not end anything early.
    """

    live: Sequence[Entry]
    asked: Sequence[Entry]
    ended: Sequence[Entry]
    refusing: str = ""

    def __bool__(self) -> bool:
        """Whether anything is left."""
        return bool(self.live or self.asked or self.files)

    @property
    def files(self) -> int:
        """The number of files that ended jobs have left; reads leave none."""
        return sum(e.injection.item.files for e in self.ended if not e.injection.link.service.reads)

    def after(self, end_state: EndState) -> Left:
        """Return what needs an action that an attempt to end it has not named.

        After a complete one, asked rules need none, and it named when files of ended jobs can be deleted.
        """
        if end_state is not EndState.COMPLETE:
            return self
        return replace(self, asked=[entry for entry in self.asked if not _cleans_up(entry)], ended=[])

    def lines(self, campaign: str, end_state: EndState) -> list[str]:
        """Return it in words, with the command that ends it; also that nothing is left after an interruption."""
        lines = []
        if self.live:
            lines.append(f"{_counted(self.live)} {describe_lifetimes(self.live)}")
        if self.asked:
            lines.append(f"{_counted(self.asked)} asked to end, and not known to be gone")
        if self.files:
            lines.append(f"{units.counted(self.files, 'files')} of ended jobs not known to be deleted")
        if lines and self.refusing:
            lines.append(f"{self.refusing} may not end them earlier")
        elif lines:
            lines.append(f"end what is left with `dc-inject end {campaign} --cancel`")
        elif end_state is EndState.INTERRUPTED:
            lines.append("nothing is left to end")
        return lines

    def fields(self, campaign: str) -> dict[str, Any]:
        """Return it for the log: the fields are an interface, described in docs/reference/log.md."""
        counts = {"live": len(self.live), "asked": len(self.asked), "ended": len(self.ended)}
        return {"campaign": campaign, **counts}

    def active_jobs(self, now: datetime) -> tuple[int, datetime | None]:
        """Return how many jobs are active, and when `end` can end all of them without --cancel.

        That is None where it can now, or where it is not known.
        """
        alive = [entry for entry in (*self.live, *self.asked) if not _cleans_up(entry)]
        last = find_last_expiry(alive)
        waits = last is not None and last > now and any(not _cleans_up(entry) for entry in self.live)
        return len(alive), last if waits else None


def read(view: Reader) -> Left:
    """Return what is left of a campaign by its ledger."""
    refusing = next((identity.account for identity in view.identities() if identity.may_end is False), "")
    return replace(find(view.entries), refusing=refusing)


def find(entries: Callable[..., Sequence[Entry]]) -> Left:
    """Return what is left of these entries; `entries` takes states, and returns those in any of them."""
    in_service = entries(State.CALLED, State.LIVE, State.COMPLETE)
    return Left(
        [entry for entry in in_service if entry.end_asked_at is None],
        [entry for entry in in_service if entry.end_asked_at is not None],
        [entry for entry in entries(State.ENDED) if not _cleans_up(entry)],
    )


def describe_lifetimes(entries: Sequence[Entry]) -> str:
    """Return in words until when entries live whose end is not asked for."""
    last = find_last_expiry(entries)
    whose = "its" if len(entries) == 1 else "their"
    return f"left to {whose} lifetime" + (f", the last until {last:%Y-%m-%d %H:%M:%SZ}" if last else "")


def find_last_expiry(entries: Sequence[Entry]) -> datetime | None:
    """Return when the last lifetime of these entries ends; None if none is known."""
    return max((entry.expires_at for entry in entries if entry.expires_at), default=None)


def hint_suffices(error: BaseException) -> bool:
    """Whether the hint of an error is all there is to do, as where another injector holds the ledger."""
    return isinstance(error, LedgerError) and not isinstance(error, LedgerBroken)


def add_ways_on(campaign: str, hint: str | None, continuing: str) -> str:
    """Return the hint of an error that stopped a campaign, with the commands that end and continue it."""
    end_it = f"`dc-inject end {campaign} --cancel` ends what is left"
    return "; ".join(filter(None, [hint, end_it, continuing]))


def _cleans_up(entry: Entry) -> bool:
    return entry.injection.link.service.cleans_up


def _counted(entries: Sequence[Entry]) -> str:
    return units.counted(len(entries), entries[0].injection.link.service.injections)
