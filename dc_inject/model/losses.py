"""What of an injection did not move, although its rule or job is over, and how that ended. Pure.

Bytes that were injected have moved, or are on their way, or had not moved when their rule or job ended:

    injected = moved + on its way + not moved

What had not moved by then stays injected, and the debt does not ask for it again. `failed` is beside this sum:
what failed for good is no longer injected, and is due once more (`model/transitions.py`).

How a rule or job ended follows from the times that the ledger keeps of it:

- `expired`: its lifetime was over, whatever else was tried before.
- `cancelled`: dc_inject had asked to end it before: `dc-inject end --cancel`, or a run whose rule found files of
  it at the destination already.
- `ended_otherwise`: it was gone before its lifetime was over, and this ledger knows of nobody who asked for that.

Services and this machine may differ by the duration of a call: hence `GRACE`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from dc_inject.model.types import Entry, State

GRACE = timedelta(minutes=1)  # what is gone so long before the end of its lifetime has expired
OVER = frozenset({State.COMPLETE, State.ENDED, State.GONE})


class Lost(NamedTuple):
    """Bytes that did not move, by how their rule or job ended, and bytes that failed.

    `not_moved_estimated` is the part of those that did not move of rules of which what moved is an estimate.
    """

    expired: int = 0
    cancelled: int = 0
    ended_otherwise: int = 0
    not_moved_estimated: int = 0
    failed: int = 0


def of_entry(entry: Entry) -> Lost:
    """Return what of an entry did not move."""
    size = entry.injected - entry.moved if entry.state in OVER else 0
    estimated = 0 if entry.moved_exact else size
    if _has_expired(entry):
        return Lost(expired=size, not_moved_estimated=estimated, failed=entry.failed)
    if entry.end_asked_at is not None:
        return Lost(cancelled=size, not_moved_estimated=estimated, failed=entry.failed)
    return Lost(ended_otherwise=size, not_moved_estimated=estimated, failed=entry.failed)


def _has_expired(entry: Entry) -> bool:
    """Whether its lifetime was over when its end was seen.

    Once its end was asked for, its service names that moment as the end of its lifetime, so that what it was given
    counts then.
    """
    if entry.ended_at is None or entry.accepted_at is None:
        return False
    ends = [entry.accepted_at + entry.injection.lifetime]
    if entry.end_asked_at is None and entry.expires_at is not None:
        ends.append(entry.expires_at)
    return entry.ended_at >= min(ends) - GRACE
