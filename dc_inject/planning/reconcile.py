"""What to do about injections that exist: retry, look up, settle, end. Pure: it decides, the engine acts.

`stage` is how an entry stands. A run ends (`select_to_end`) what is complete and has dwelt, what found files at
its destination already, and what has outlived its lifetime in a service that ends nothing by itself. It ends rules
that are stalled (`is_stalled`) as soon as it sees that they are (`Rounds._end_stalled` in `engine/reconciler.py`).
`dc-inject end` ends by stage what a person asks for.

A rule is stalled when Rucio has suspended it, or has not begun with it some minutes after accepting it. Rucio
takes rules of 10,000 files and more asynchronously, whatever it is asked for, and suspends those without quota
then. Such a rule blocks its dataset and counts as injected, and may never move a byte. A job that waits in FTS's
queue is not stalled: that is a backlog.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from enum import Enum, auto

from dc_inject.model import Entry, State
from dc_inject.model.ports import Observation, Status

FIRST_RETRY = timedelta(seconds=2)
LONGEST_RETRY = timedelta(minutes=5)
CANCELS_PER_HOUR = 600  # jobs that were not done at the end of their lifetime
ASK_AGAIN = timedelta(minutes=2)  # an end that was accepted and is not seen to work is asked for again
STALLED_AFTER = timedelta(minutes=10)  # judge-injector takes 100 rules a minute

_STALLED = {Status.SUSPENDED: "suspended", Status.WAITING: "not-begun"}  # classes of failure


class Stage(Enum):
    """How far an entry is that was asked for."""

    IN_DOUBT = auto()  # its answer was lost, and its service may still be at work on it
    UNFINISHED = auto()
    OVERDUE = auto()  # unfinished past its lifetime, in a service that ends nothing by itself
    COMPLETE = auto()
    ENDING = auto()  # ended or expired, and its service takes its time to let it go
    ENDED = auto()  # its service does not have it any more


def stage(entry: Entry, now: datetime) -> Stage:
    """Return how far an entry is, as it stands after an observation."""
    if entry.state is State.CALLED:
        return Stage.IN_DOUBT
    if entry.state not in {State.LIVE, State.COMPLETE}:
        return Stage.ENDED
    if entry.injection.link.service.cleans_up and _expired(entry, now):
        return Stage.ENDING
    if entry.state is State.COMPLETE:
        return Stage.COMPLETE
    return Stage.OVERDUE if _expired(entry, now) else Stage.UNFINISHED


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


def select_to_end(
    entries: Iterable[Entry],
    now: datetime,
    dwell: Callable[[Entry], timedelta],
    again_after: timedelta = ASK_AGAIN,
) -> list[Entry]:
    """Return the entries that a run ends now, but for those whose end was asked for just now.

    These are the complete ones whose dwell is over, and those that found files at the destination already: they
    are withdrawn, since at their end Rucio would delete other people's files there. Where the service does
    not clean up, what has outlived its lifetime is ended as well. `again_after` has to be longer than it takes to
    see what became of an end.
    """
    return [
        entry
        for entry in entries
        if (
            (entry.state is State.LIVE and entry.present)
            or (entry.completed_at is not None and _passed(entry.completed_at, dwell(entry), now))
            or (_expired(entry, now) and not entry.injection.link.service.cleans_up)
        )
        and entry.state in {State.LIVE, State.COMPLETE}
        and (entry.end_asked_at is None or _passed(entry.end_asked_at, again_after, now))
    ]


def select_at_pace(entries: Sequence[Entry], every: timedelta) -> list[Entry]:
    """Return the complete entries, and as many of the others as may be cancelled in a round: the oldest first.

    `every` is the time between rounds. A cancelled job is work for FTS; many at once have jammed it.
    """
    most = max(1, int(CANCELS_PER_HOUR * (every / timedelta(hours=1))))
    unfinished = sorted((e for e in entries if e.state is not State.COMPLETE), key=_turn)
    return [e for e in entries if e.state is State.COMPLETE] + unfinished[:most]


def compute_next_cancel(last: datetime | None, now: datetime, per_hour: float) -> datetime:
    """Return when the next rule may be cancelled by hand: an hour / `per_hour` after the last one, or now.

    Time lost is not made up: after an outage there is no burst. A last one in the future was written by a clock
    that was ahead.
    """
    return now if last is None else max(now, min(last, now) + timedelta(hours=1) / per_hour)


def select_to_settle(entries: Iterable[Entry], now: datetime, ahead: timedelta) -> list[Entry]:
    """Return the live, incomplete entries that expire within `ahead`: the last chance to look at their locks."""
    return [
        entry
        for entry in entries
        if entry.state is State.LIVE and entry.expires_at is not None and now < entry.expires_at <= now + ahead
    ]


def is_never_carried_out(entry: Entry, observation: Observation, now: datetime, grace: timedelta) -> bool:
    """Whether an entry in doubt that its service does not know may be taken as never carried out.

    Only once `grace` (longer than any call may take) has passed since the call: before that the service may
    still be at work on it. A service that gave no answer about it (UNKNOWN) may well have it.
    """
    if entry.state is not State.CALLED or observation.status is not Status.ABSENT:
        return False
    return entry.called_at is None or entry.called_at + grace <= now


def is_stalled(entry: Entry, observation: Observation, now: datetime) -> bool:
    """Whether a rule should be ended, since it does nothing."""
    return (
        observation.status in _STALLED  # what most are not
        and entry.state is State.LIVE
        and entry.injection.job is None
        and entry.accepted_at is not None
        and entry.accepted_at + STALLED_AFTER <= now
    )


def with_stalled_named(entry: Entry, observation: Observation, now: datetime) -> Observation:
    """Return an observation with an error if the rule is stalled.

    When a stalled rule is gone, what it has not moved is given back to the debt. The error is kept in the ledger
    meanwhile, so that it makes no difference which process sees the end.
    """
    if is_stalled(entry, observation, now):
        minutes = STALLED_AFTER.seconds // 60
        error = f"{_STALLED[observation.status]}: the rule has not started {minutes} minutes after it was accepted"
        return observation._replace(error=f"{error} ({observation.error})" if observation.error else error)
    is_gone = observation.status is Status.ABSENT and entry.state is State.LIVE
    if is_gone and (failure := _stalled_before(entry)) is not None:
        item = entry.injection.item
        missing = item.files - entry.files_done
        failed = item.bytes - entry.present - entry.moved
        return observation._replace(failed=failed, reasons={failure: missing}, error=entry.error)
    return observation


def _stalled_before(entry: Entry) -> str | None:
    """Return the class of failure that the last observation of a stalled rule has named in its error.

    The ledger has no column for it, and a new column would be a new version of the ledger.
    """
    failure, colon, _ = entry.error.partition(":")
    return failure if colon and failure in _STALLED.values() else None


def _expired(entry: Entry, now: datetime) -> bool:
    return entry.expires_at is not None and entry.expires_at <= now


def _passed(moment: datetime, wait: timedelta, now: datetime) -> bool:
    """Whether so much time has passed since a moment; one in the future was written by a clock that was ahead."""
    return not now - wait < moment <= now


def _turn(entry: Entry) -> tuple[bool, datetime, str]:
    """The oldest first, but those that were asked for in vain behind all others."""
    return (entry.end_asked_at is not None, entry.expires_at or entry.injection.release, entry.injection.key)
