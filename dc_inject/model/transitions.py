"""The states of an injection, and what each piece of news makes of its entry. Pure.

    intended > called > live > complete > ended > gone

A call may also be refused, or withdrawn before it is made or when it was never carried out; what is live may end
without being complete.

This is the only place that changes the state of an entry; the ledger writes down the result. A rule that exists is
never forgotten: news that it was accepted or found makes an entry live from whatever state it had before that.
What has ended stays ended, what was complete stays complete, and an estimate never replaces an exact number. What
failed only grows, and is no longer injected: so it comes back to the debt.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from dc_inject.model import Entry, State
from dc_inject.model.errors import NeedsOperator, Permanent, Temporary, TryOtherItem
from dc_inject.model.ports import Observation, Outcome, Status

OVER = "its cycle is over"  # why intents are withdrawn for which there was no time
WITHHELD = "enough was in flight until its cycle was over"  # the same for which no window of control had room
ERROR_LIMIT = 1000  # characters of a service's message that are kept

UNASKED = frozenset({State.INTENDED, State.CALLED})
ALIVE = frozenset({State.LIVE, State.COMPLETE})


def called(entry: Entry, now: datetime) -> Entry:
    """Return an intent as it is when its call is about to go out."""
    return entry.changed(state=State.CALLED, attempt=entry.attempt + 1, called_at=now, not_before=None)


def answered(entry: Entry, outcome: Outcome, now: datetime, retry_at: datetime) -> Entry:
    """Return an entry after the service's answer to its call."""
    if outcome.error is None:
        return _accepted(entry, outcome, now)
    error = outcome.error.message
    if isinstance(outcome.error, Temporary) and not outcome.error.outage:
        error = f"{outcome.error.hold}: {error}"  # `held.read_hold` reads it
    error = error[:ERROR_LIMIT]
    if entry.state is not State.CALLED:
        return entry  # it was found, or dropped, while the call was under way
    match outcome.error:
        case TryOtherItem() | Permanent():
            return entry.changed(state=State.REFUSED, error=error)
        case NeedsOperator() | Temporary(lost=False):
            return entry.changed(state=State.INTENDED, not_before=retry_at, error=error)
        case _:
            return entry.changed(error=error)  # it is unknown whether it was carried out


def withdrawn(entry: Entry, why: str) -> Entry:
    """Return an entry that we drop, as long as no service has accepted it."""
    if entry.state not in UNASKED:
        return entry
    return entry.changed(state=State.WITHDRAWN, error=why[:ERROR_LIMIT])


def observed(entry: Entry, observation: Observation, now: datetime) -> Entry:
    """Return an entry after a look at it in the service."""
    if observation.status is Status.UNKNOWN:
        return entry
    if observation.status is Status.ABSENT:
        if entry.state not in ALIVE:
            return entry.changed(observed_at=now)  # in doubt: the engine decides when it was never carried out
        return ended(_measured(entry, observation, now), now)
    if entry.accepted_at is None:
        since = entry.called_at or now
        entry = entry.changed(
            state=State.LIVE,
            accepted_at=since,
            expires_at=since + entry.injection.lifetime,
            not_before=None,
        )
    if entry.state not in ALIVE:
        return entry.changed(observed_at=now)
    if entry.state is State.LIVE and observation.status is not Status.COMPLETE:
        return _measured(entry, observation, now)
    return _completed(entry, observation, now)


def end_asked(entry: Entry, now: datetime) -> Entry:
    """Return an entry as it is when its service is about to be asked to end it."""
    return entry.changed(end_asked_at=now)


def ended(entry: Entry, now: datetime) -> Entry:
    """Return an entry whose rule or job is gone from the service."""
    return entry.changed(state=State.ENDED, ended_at=now) if entry.state in ALIVE else entry


def gone(entry: Entry, now: datetime) -> Entry:
    """Return an ended entry whose bytes are gone from the destination."""
    return entry.changed(state=State.GONE, gone_at=now) if entry.state is State.ENDED else entry


def _accepted(entry: Entry, outcome: Outcome, now: datetime) -> Entry:
    external_id = outcome.external_id or entry.external_id
    if entry.accepted_at is None:
        entry = entry.changed(
            external_id=external_id,
            state=State.LIVE,
            accepted_at=now,
            expires_at=now + entry.injection.lifetime,
            not_before=None,
            error="",
        )
    elif external_id != entry.external_id:
        entry = entry.changed(external_id=external_id)
    return _with_present(entry, outcome.present) if outcome.present else entry


def _completed(entry: Entry, observation: Observation, now: datetime) -> Entry:
    """Return an entry that is seen complete, or was before: its bytes are exact, and so they stay."""
    unsettled = _room(entry) - entry.moved
    became = entry.state is State.LIVE
    entry = _measured(entry, observation, now)
    stuck, undone = entry.files_stuck, entry.undone
    if became:  # a service's exact number is kept also where it is too small
        unsettled = _room(entry) - entry.moved if observation.exact and observation.moved is not None else 0
        stuck = stuck if entry.failed else 0
        undone = observation.undone if entry.failed and entry.injection.keeps_files else undone
    return entry.changed(
        state=State.COMPLETE,
        completed_at=now if became else entry.completed_at,
        moved=max(_room(entry) - unsettled, 0),
        moved_exact=True,
        files_done=max(entry.injection.item.files - (stuck if entry.failed else 0), 0),
        files_stuck=stuck,
        undone=undone,
    )


def _measured(entry: Entry, observation: Observation, now: datetime) -> Entry:
    """Return an entry with the numbers of an observation.

    What a service sees of it at the destination includes what was there before: moved is the rest of it.
    """
    if observation.size is not None:
        entry = _with_size(entry, observation.size)
    if observation.present is not None:
        entry = _with_present(entry, observation.present)
    item, moved, exact = entry.injection.item, entry.moved, entry.moved_exact
    failed = max(entry.failed, min(observation.failed, item.bytes - entry.present))
    room = item.bytes - entry.present - failed
    if failed != entry.failed:
        moved = min(moved, room)
    if observation.moved is not None and (observation.exact or not exact):
        moved, exact = min(max(observation.moved - entry.present, 0), room), observation.exact
    if observation.status is Status.ABSENT:  # there is no more to learn from it
        return entry.changed(observed_at=now, failed=failed, moved=moved, moved_exact=exact)
    return entry.changed(
        observed_at=now,
        failed=failed,
        moved=moved,
        moved_exact=exact,
        external_id=observation.external_id or entry.external_id,
        expires_at=observation.expires_at or entry.expires_at,
        files_done=min(max(observation.files_done, 0), item.files),
        files_stuck=min(max(observation.files_stuck, 0), item.files),
        error=observation.error[:ERROR_LIMIT],
    )


def _room(entry: Entry) -> int:
    """Return the bytes of it that were to move: neither there before, nor failed."""
    return entry.injection.item.bytes - entry.present - entry.failed


def _with_size(entry: Entry, size: int) -> Entry:
    """Return an entry with the true size of what it injects; it is never less than what is known of it."""
    item = replace(entry.injection.item, bytes=max(size, entry.present + entry.failed))
    entry = entry.changed(injection=replace(entry.injection, item=item))
    return entry.changed(moved=min(entry.moved, _room(entry)))


def _with_present(entry: Entry, present: int) -> Entry:
    size = entry.injection.item.bytes
    present = min(max(present, 0), size - entry.failed)
    room = size - present - entry.failed
    return entry.changed(present=present, moved=room if entry.completed_at else min(entry.moved, room))
