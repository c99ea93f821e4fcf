"""How long a rule lives, how long its bytes stay, and what ingress a destination's space can take in the long run.

    lifetime = max                                     where early ending works, or nothing comes in
             = clamp(space / ingress - lag, min, max)  else
    r        = measured time to completion + dwell     where early ending works and the time is known
             = clamp(space / ingress - lag, min, max)  else
    space needed in the steady state = ingress x (r + lag)

space in bytes, ingress in bytes per second, lag is what the destination's deletions take after a rule's end.
"""

from __future__ import annotations

from datetime import timedelta


def fitting(
    space: int | None, ingress: float, lag: timedelta, shortest: timedelta, longest: timedelta
) -> timedelta:
    """Return the lifetime at which the ingress just fills the space; `longest` when either is unknown or 0."""
    if space is None or ingress <= 0:
        return longest
    seconds = max(space, 0) / ingress
    if seconds >= (longest + lag).total_seconds():
        return longest
    return max(shortest, timedelta(seconds=int(seconds)) - lag)


def lifetime(
    space: int | None,
    ingress: float,
    lag: timedelta,
    shortest: timedelta,
    longest: timedelta,
    *,
    may_end: bool,
) -> timedelta:
    """Return the lifetime to give to a rule: the longest where complete rules can be ended early."""
    return longest if may_end else fitting(space, ingress, lag, shortest, longest)


def stay(fitted: timedelta, longest: timedelta, completion: timedelta | None, dwell: timedelta) -> timedelta:
    """Return r, how long a rule stays: `completion` (None: not ended early, or not known yet) and dwell.

    Never more than `longest`, since a rule expires by itself; without a measurement it is the fitted lifetime.
    """
    return fitted if completion is None else min(completion + dwell, longest)


def horizon(r: timedelta, lag: timedelta, window: timedelta) -> timedelta:
    """Return for how long a byte takes up space or keeps its dataset from being used again.

    That is r + lag, but no longer than the window of its flow: what a short menu injects in all is never more
    than ingress x window.
    """
    return min(r + lag, window)
