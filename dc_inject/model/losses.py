"""What of an injection did not move, although its rule or job is over, and how that ended. Pure.

Bytes that were injected have moved, or are on their way, or had not moved when their rule or job ended:

    injected = moved + on its way + not moved

What had not moved by then stays injected, and the debt does not ask for it again. `failed` is not in this sum:
what failed for good is no longer injected, and is due once more (`model/transitions.py`).

Files that failed in all attempts of a rule when it was last looked at have failed (`not_moved_failed`), however
the rule ended: their bytes are known by the mean size of its files. Rucio may try such a file again, and what
fails after the last look is not known; it counts as the rest does.

How a rule or job ended follows from the times that the ledger keeps of it, for the rest of what did not move:

- `cancelled`: dc_inject asked to end it before its lifetime was over: `dc-inject end --cancel`, or a run whose
  rule found files of it at the destination already.
- `expired`: it was there until its lifetime was over.
- `ended_otherwise`: it was gone before that, and nothing in this ledger asked for it.

The clocks of services and of this machine may differ, and a call takes its time: hence `GRACE`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from dc_inject.model.types import Entry, State

GRACE = timedelta(minutes=1)  # what is gone so long before the end of its lifetime has expired
OVER = frozenset({State.COMPLETE, State.ENDED, State.GONE})


class Lost(NamedTuple):
    """Bytes that did not move, since they failed or by how their rule or job ended, and `failed` apart.

    `not_moved_estimated` is the part of those that did not move of rules of which what moved is an estimate.
    `failed` are bytes of jobs, or of rules that did not begin, which are no longer injected.
    """

    not_moved_failed: int = 0
    expired: int = 0
    cancelled: int = 0
    ended_otherwise: int = 0
    not_moved_estimated: int = 0
    failed: int = 0


def sum_losses(entry: Entry) -> Lost:
    """Return what of an entry did not move."""
    size = entry.injected - entry.moved if entry.state in OVER else 0
    failed, estimated = _failed_of(entry, size), 0 if entry.moved_exact else size
    lost = Lost(failed, not_moved_estimated=estimated, failed=entry.failed)
    if _was_cancelled(entry):
        return lost._replace(cancelled=size - failed)
    if _has_expired(entry):
        return lost._replace(expired=size - failed)
    return lost._replace(ended_otherwise=size - failed)


def count_stuck(entry: Entry) -> int:
    """Return the bytes of files that failed in all attempts, by their mean size; at most what is left to move.

    Rounded up, as what moved is rounded down: a byte between them would be late until the rule ends. Stuck files
    may be small ones. `ledger/injections.py` has the same in SQL.
    """
    size = -(-entry.injection.item.bytes * entry.files_stuck // max(entry.injection.item.files, 1))
    return max(min(size, entry.injected - entry.moved), 0)


def _failed_of(entry: Entry, size: int) -> int:
    """Return how much failed of what did not move; `ledger/injections.py` adds the same up in SQL."""
    if entry.failed:  # a service that gives failed bytes back has named them: they are not injected any more
        return 0
    is_all = entry.files_stuck and entry.files_done + entry.files_stuck >= entry.injection.item.files
    return size if is_all else min(count_stuck(entry), size)


def _was_cancelled(entry: Entry) -> bool:
    """Whether it was asked to end before the end of the lifetime that it was given.

    From then on `expires_at` of the service is the moment of asking. What services do not end by
    themselves is asked to end when its lifetime is over, and has expired.
    """
    asked_at, since = entry.end_asked_at, entry.accepted_at
    return asked_at is not None and since is not None and asked_at < since + entry.injection.lifetime


def _has_expired(entry: Entry) -> bool:
    """Whether its lifetime was over when its end was seen: its own, or that of its service."""
    if entry.ended_at is None or entry.accepted_at is None:
        return False
    given = entry.accepted_at + entry.injection.lifetime
    return entry.ended_at >= min(given, entry.expires_at or given) - GRACE
