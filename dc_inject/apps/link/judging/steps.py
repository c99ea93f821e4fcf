"""Steps: the rate of one link goes up step by step, whatever each step shows; what comes after each of them.

`verdict` judges what a step has shown. A step that is inconclusive since something did not work is repeated, if
no later one loses its time by it. `saturation.py` looks for the rate at which a link is saturated, `progress.py`
keeps how far either is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from dc_inject.apps.link.judging.verdict import Verdict

FEW = 10  # datasets or files in a step: with so many, half a one is 10 % of the half by which a step is judged
REPEATS = 2  # how often in a row a step is repeated that something else has spoilt
SHORT = 5  # trials of a search in the time of a step


@dataclass(frozen=True, slots=True)
class Ladder:
    """What is asked for: the first rate, how much more in each step, and at most (bytes per second).

    `every` is the length of a step. With `saturate` it is the longest that a trial is measured, and `step` what
    the second trial asks for more than the first (0: twice as much).
    """

    first: float
    every: timedelta
    step: float = 0.0
    highest: float = float("inf")
    saturate: bool = False

    @property
    def shortest(self) -> timedelta:
        """For how long a rate is measured at least."""
        return self.every / SHORT if self.saturate else self.every

    def above(self, rate: float) -> float:
        """Return the rate (bytes per second) of the next step up, which is the same at the top."""
        return min(rate + self.step, self.highest)

    def rates(self, lasting: timedelta) -> Iterator[float]:
        """Give the rate (bytes per second) of each step that begins in this time."""
        rate = self.first
        for _ in range(-(-lasting // self.every)):
            yield rate
            rate = self.above(rate)


def count_in_first_step(ladder: Ladder, items: int, size: int) -> float | None:
    """Return how many datasets (or files) of the pool's mean size the first step holds, if they are too few.

    The pool has so many `items` (1 or more) of `size` bytes together; each later step
    has a higher rate, so it holds more.
    """
    held = ladder.first * ladder.every.total_seconds() / (size / items)
    return held if held < FEW else None


class Next(StrEnum):
    """What comes after a step."""

    UP = "next step"
    SAME = "again"
    REPEAT = "repeat"  # since something else has spoilt it
    BETWEEN = "between"
    CONFIRM = "confirm"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class NextStep:
    """What comes next, at which rate (bytes per second; 0 after a stop), and why where that is not plain.

    With `pause` nothing is asked for first, until what waits has arrived.
    """

    kind: Next
    rate: float = 0.0
    why: str = ""
    pause: bool = False


def after(ladder: Ladder, verdicts: Sequence[Verdict], time_left: timedelta = timedelta.max) -> NextStep:
    """Return what comes after the last of the steps so far, with so much time `time_left`."""
    last = verdicts[-1]
    if is_worth_repeating(ladder, verdicts, time_left):
        return NextStep(Next.REPEAT, last.rate)
    higher = ladder.above(last.rate)
    return NextStep(Next.UP, higher) if higher > last.rate else NextStep(Next.SAME, last.rate)


def is_worth_repeating(ladder: Ladder, verdicts: Sequence[Verdict], time_left: timedelta) -> bool:
    """Whether the last step is made once more, since something else has spoilt it, and there is time."""
    last = verdicts[-1]
    return last.outage and _spoilt(verdicts) <= REPEATS and time_left >= _needed(ladder, last)


def _spoilt(verdicts: Sequence[Verdict]) -> int:
    """Return how many steps at the end were spoilt in a row, at one rate."""
    count = 0
    for verdict in reversed(verdicts):
        if not verdict.outage or verdict.rate != verdicts[-1].rate:
            break
        count += 1
    return count


def _needed(ladder: Ladder, last: Verdict) -> timedelta:
    """Return the time that a repetition needs: a step, without taking any from steps that are still to come."""
    if ladder.saturate or not ladder.step or ladder.highest == float("inf"):
        return ladder.shortest
    to_come = -(-(ladder.highest - last.rate) // ladder.step)
    return ladder.every * (1 + int(max(to_come, 0)))
