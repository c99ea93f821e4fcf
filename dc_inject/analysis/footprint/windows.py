"""Integrals of a rate: over all time, and over the window in which it is largest.

A rate is given as its mean in parts of time. Where it is not constant in one, as on a ramp, the largest window is
that of the means.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import accumulate

Parts = Sequence[tuple[datetime, datetime, float]]  # in order of time; nothing between them


def volume(parts: Parts) -> float:
    """Return the integral over all parts, in bytes for a rate in bytes per second."""
    return sum(rate * (end - start).total_seconds() for start, end, rate in parts)


def most(parts: Parts, window: timedelta) -> float:
    """Return the largest integral over any window of that length.

    The integral over a window is linear in its begin between the borders of parts, so that it is largest where the
    window begins or ends at one.
    """
    sums = [0.0, *accumulate(rate * (end - start).total_seconds() for start, end, rate in parts)]
    starts = [start for start, _, _ in parts]

    def until(moment: datetime) -> float:
        index = bisect_right(starts, moment)
        if index == 0:
            return 0.0
        start, end, rate = parts[index - 1]
        return sums[index - 1] + rate * (min(end, moment) - start).total_seconds()

    begins = {*starts, *(end - window for _, end, _ in parts)}
    return max((until(begin + window) - until(begin) for begin in begins), default=0.0)
