"""What to do about injections that exist: retry, look up, settle, end. Pure: it decides, the engine acts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from dc_inject.model import Entry, State

FIRST_RETRY = timedelta(seconds=2)
LONGEST_RETRY = timedelta(minutes=5)
CANCELS_PER_HOUR = 600  # jobs that were not done at the end of their lifetime
ASK_AGAIN = timedelta(minutes=2)  # an end that was accepted and is not seen to work is asked for again


def backoff(
    attempt: int, key: str, first: timedelta = FIRST_RETRY, longest: timedelta = LONGEST_RETRY
) -> timedelta:
    """Return how long to wait before attempt + 1: doubling from `first`, at most `longest`.

    Jittered to between half and all of it, by a hash of key and attempt, so that 1,000 links that failed
    together do not come back together and a test sees the same wait each time.
    """
    whole: timedelta = min(first * 2 ** min(max(attempt - 1, 0), 20), longest)
    digest = hashlib.blake2b(f"{key} {attempt}".encode(), digest_size=4).digest()
    jittered: timedelta = whole * (0.5 + int.from_bytes(digest) / 2**33)
    return jittered


def to_end(
    entries: Iterable[Entry],
    now: datetime,
    dwell: Callable[[Entry], timedelta],
    lives_on: Callable[[Entry], bool] = lambda _entry: False,
    again_after: timedelta = ASK_AGAIN,
) -> list[Entry]:
    """Return the entries to end now, but for those whose end was asked for just now.

    These are the complete ones whose dwell is over, and those that found files at the destination already: they
    are withdrawn, since at their end Rucio would delete what somebody else has put there. What `lives_on` in its
    service has to be ended as well when its lifetime is over. `again_after` has to be longer than it takes to see
    what became of an end.
    """
    return [
        entry
        for entry in entries
        if (
            (entry.state is State.LIVE and entry.present)
            or (entry.completed_at is not None and _passed(entry.completed_at, dwell(entry), now))
            or (entry.expires_at is not None and entry.expires_at <= now and lives_on(entry))
        )
        and entry.state in {State.LIVE, State.COMPLETE}
        and (entry.end_asked_at is None or _passed(entry.end_asked_at, again_after, now))
    ]


def _passed(moment: datetime, wait: timedelta, now: datetime) -> bool:
    """Whether so much time has passed since a moment; one in the future was written by a clock that was ahead."""
    return not now - wait < moment <= now


def at_a_pace(entries: Sequence[Entry], every: timedelta, per_hour: int = CANCELS_PER_HOUR) -> list[Entry]:
    """Return the complete entries, and of the others as many as may be cancelled in a round: the oldest first.

    A cancelled job is work for FTS; many at once have jammed it.
    """
    most = max(1, int(per_hour * (every / timedelta(hours=1))))
    unfinished = sorted((e for e in entries if e.state is not State.COMPLETE), key=_turn)
    return [e for e in entries if e.state is State.COMPLETE] + unfinished[:most]


def _turn(entry: Entry) -> tuple[bool, datetime, str]:
    """The oldest first, but those that were asked for in vain behind all others."""
    return (entry.end_asked_at is not None, entry.expires_at or entry.injection.release, entry.injection.key)


def to_settle(entries: Iterable[Entry], now: datetime, ahead: timedelta) -> list[Entry]:
    """Return the live, incomplete entries that expire within `ahead`: the last chance to look at their locks."""
    return [
        entry
        for entry in entries
        if entry.state is State.LIVE and entry.expires_at is not None and now < entry.expires_at <= now + ahead
    ]


def given_up(entry: Entry, now: datetime, grace: timedelta) -> bool:
    """Whether an entry in doubt that the service does not know may be taken as never carried out.

    Only once `grace` (longer than any call may take) has passed since the call: before that the service may
    still be at work on it.
    """
    return entry.state is State.CALLED and (entry.called_at is None or entry.called_at + grace <= now)
