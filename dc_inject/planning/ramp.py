"""FTS's ramp: how long its optimizer takes until a link has the transfers at a time that a rate needs. Pure.

FTS runs a limited number of transfers on each link at a time and changes that number itself, as `Optimizer
ConnectionsForPair` in OptimizerConnections.cpp of cern-fts/fts3 (3.14) decides, in one run a minute:

- a link of which it knows nothing starts half way between the least it runs, two, and the most, 130 by default
  (200 in DC24): at 66;
- while files succeed (97 % at least of those that are over, after all their retries) and what moves does not fall
  by an order of magnitude, each run adds two transfers in the default mode (`optimizer_mode` 2, seen on a real
  3.14.4), one in the conservative mode;
- while fewer files are queued than it runs, it adds none: a link grows only if it is given more than it carries;
- while more fail, each run takes one away; in the default mode only while at least a tenth as many files are
  queued as it runs.

So a rate r that needs n = r / (speed of one file) transfers is carried only after

    (n - 66) / 2 minutes  (twice that in the conservative mode), at most 32

and a step that is shorter measures FTS's ramp and not the link. What is used before that is less than half of the
range, where nothing has to grow. A link that moves more than the model allows has other limits, or faster files:
then the model does not apply to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from math import inf
from typing import NamedTuple

from dc_inject.model.transfers import FILE_SPEED, LINK_LIMIT

RUN = timedelta(minutes=1)  # between two decisions of the optimizer
ADDED = 2  # transfers that a run adds; 1 in the conservative mode
FEWEST = 2  # transfers on a link
FOLLOWS = 0.9  # part of what is asked that has to move
MORE = 1.2  # times what the model allows: a link that moves that much has another one
HALF_WAY = FEWEST + (LINK_LIMIT - FEWEST) // 2  # transfers with which FTS starts on a link that it does not know


class Growth(NamedTuple):
    """With how many transfers FTS starts on a link, and the most that it runs there."""

    first: int = HALF_WAY
    most: int = LINK_LIMIT

    @classmethod
    def to(cls, most: int) -> Growth:
        """Return how FTS grows on a link that it does not know, up to a limit."""
        return cls(min(FEWEST + (most - FEWEST) // 2, most), most)


_USUAL = Growth()  # of a link that FTS does not know, with its default limit


class TooShort(NamedTuple):
    """A step that is over before FTS has grown to its rate (bytes per second), and the time that this takes."""

    rate: float
    lasts: timedelta
    grows: timedelta


def time(rate: float, before: float = 0.0, file_speed: float = FILE_SPEED, growth: Growth = _USUAL) -> timedelta:
    """Return how long FTS grows until it runs what a rate needs, from a rate `before`; in bytes per second."""
    now = max(growth.first, min(before / file_speed, growth.most))
    return max(min(rate / file_speed, growth.most) - now, 0) / ADDED * RUN


def too_short(
    steps: Iterable[tuple[timedelta, float]], file_speed: float = FILE_SPEED, growth: Growth = _USUAL
) -> TooShort | None:
    """Return the step that lacks most time for FTS to grow to its rate; None if all have enough.

    `steps` are durations and rates (bytes per second), and `growth` is that of their link before the first one. In
    a step that is too short FTS grows as far as it comes; in one with a lower rate it keeps what it has.
    """
    worst, before = None, 0.0
    for lasts, rate in steps:
        grows = time(rate, before, file_speed, growth)
        if grows > lasts and (worst is None or grows - lasts > worst.grows - worst.lasts):
            worst = TooShort(rate, lasts, grows)
        begun = max(before, growth.first * file_speed)
        before = max(before, min(rate, begun + ADDED * file_speed * (lasts / RUN)))
    return worst


def allowed(since: timedelta) -> float:
    """Return what FTS carries at most, in bytes per second, so long after a link has begun."""
    return min(HALF_WAY + ADDED * (since / RUN), LINK_LIMIT) * FILE_SPEED


def possible(rate: float, since: timedelta, moved: float) -> bool:
    """Return whether FTS may still be growing toward a rate (bytes per second), `since` after a link has begun.

    `moved` is what moves now: false if that is more than FTS could carry by this model.
    """
    return since < time(rate) and moved < rate and moved <= MORE * allowed(since)


def binding(since: timedelta, moved: float) -> bool:
    """Return whether what a link moves (bytes per second) may be all that FTS carries `since` after its begin."""
    return since < time(inf) and 1 / MORE <= moved / allowed(since) <= MORE
