"""Shapes: how a rate goes over time, as levels (parts of the rate) with straight lines between them.

A ramp, steps, pulses and a daily curve are all of this one kind, so that integrals are exact: the area under a
straight line is its length times the mean of its ends, taken in fractions.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

_MICROSECOND = timedelta(microseconds=1)


class Point(NamedTuple):
    """A level (0 to 1) at a time after the begin of a shape."""

    at: timedelta
    level: float


class Piece(NamedTuple):
    """A part of time in which a level goes in a straight line; `last` is the level just before `end`."""

    start: datetime
    end: datetime
    first: Fraction
    last: Fraction


@dataclass(frozen=True, slots=True)
class Shape:
    """Levels over time: straight lines between `points`, which are in order; two at one time are a jump.

    The first point is at 0. Before it, and after the last one, the level stays; with a `period` the points, of
    which the last is at its end, come again and again. The clock of a shape is its menu's: neither a late start
    nor a pause moves `begin`. `kind` is what the menu calls it.
    """

    begin: datetime
    points: tuple[Point, ...]
    period: timedelta | None = None
    kind: str = field(default="", compare=False)

    def level(self, moment: datetime, *, before: bool = False) -> Fraction:
        """Return the level at a moment, or just before it: they differ at a jump."""
        at = moment - self.begin
        if self.period is not None:
            at %= self.period
            if before and not at:
                at = self.period
        find = bisect_left if before else bisect_right
        index = find(self.points, at, key=lambda point: point.at)
        if index in {0, len(self.points)}:
            return Fraction(self.points[min(index, len(self.points) - 1)].level)
        (left, low), (right, high) = self.points[index - 1 : index + 1]
        part = Fraction((at - left) // _MICROSECOND, (right - left) // _MICROSECOND)
        return Fraction(low) + (Fraction(high) - Fraction(low)) * part

    def corners(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Yield the moments inside of (start, end) at which the level jumps or turns, in order."""
        if start >= end:
            return
        ats = sorted({point.at for point in self.points})
        rounds = range(1)
        if self.period is not None:
            ats.pop()  # the end of a period is the begin of the next
            rounds = range((start - self.begin) // self.period, (end - self.begin) // self.period + 1)
        for number in rounds:
            first = self.begin + number * (self.period or timedelta(0))
            yield from (first + at for at in ats if start < first + at < end)

    def pieces(self, start: datetime, end: datetime) -> Iterator[Piece]:
        """Yield the straight lines of [start, end), in order."""
        if start < end:
            for left, right in pairwise([start, *self.corners(start, end), end]):
                yield Piece(left, right, self.level(left), self.level(right, before=True))


@lru_cache(maxsize=4096)
def area(shape: Shape, start: datetime, end: datetime) -> Fraction:
    """Return the integral of the level over [start, end), in microseconds: exact, so parts sum to the whole."""
    return sum(
        ((p.first + p.last) / 2 * ((p.end - p.start) // _MICROSECOND) for p in shape.pieces(start, end)),
        start=Fraction(0),
    )
