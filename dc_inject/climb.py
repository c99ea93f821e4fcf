"""Climbing: the rate of one link goes up step by step; what each step has shown, and what comes after it.

A step is judged by the part of it after the time to completion, since what was injected before then is still on
its way: with `asked` = rate x that time, and `moved` what arrived in it,

    good  =  moved >= 90 % of asked, and failed <= 5 % of (moved + failed)

To find where a link stands, a good step is followed by a higher one, and a bad one by the step below it, until
that is good: there the link stands, with the lower of what was asked and what moved. What failed has not moved, so
it never counts; and a step that we could not ask for says nothing of the link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from dc_inject import units
from dc_inject.model import Hold

FOLLOWS = 0.9  # part of what is asked that has to move
FAILS = 0.05  # part of what comes to its end that may fail
COMPLETIONS = 2  # a step lasts at least so many times the time to completion
FEW = 10  # datasets or files in a step: with so many, half a one is 10 % of the half by which a step is judged
IDLE = 2  # cycles without a byte, for a reason that is not the link's, after which there is no sense in going on
LONGEST = 4  # times the shortest step: how long the first one lasts, in which nobody knows that time

# Holds for which the link cannot be blamed: we did not ask for as much as we wanted to.
OURS = frozenset(
    {
        *(Hold.PAUSED, Hold.EXCLUDED, Hold.NOT_RUNNING, Hold.CREDENTIALS, Hold.QUARANTINED, Hold.QUOTA),
        *(Hold.DESTINATION_FULL, Hold.SITE_LIMIT, Hold.CAMPAIGN_LIMIT, Hold.POOL_DRY, Hold.API_ERRORS, Hold.GRAIN),
        *(Hold.SOURCE_UNAVAILABLE, Hold.DESTINATION_UNAVAILABLE, Hold.DELETION_LAG),
    }
)


@dataclass(frozen=True, slots=True)
class Ladder:
    """What is asked for: the first rate, how much more in each step, and at most (bytes per second).

    `every` is the length of a step, the shortest one where `saturate` looks for where the link stands.
    """

    first: float
    every: timedelta
    step: float = 0.0
    highest: float = float("inf")
    saturate: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """The account of the link at a moment: bytes that moved, were injected and failed since the begin.

    `completion` is the median time from a rule to its completion lately, if anything was completed.
    """

    at: datetime
    moved: int = 0
    injected: int = 0
    failed: int = 0
    completion: timedelta | None = None
    hold: Hold | None = None  # of the last cycle


def in_a_step(ladder: Ladder, items: int, size: int) -> float | None:
    """Return how many datasets (or files) of the pool's mean size the first step holds, if they are too few.

    The pool has so many `items` (1 or more) of `size` bytes together; each later step
    has a higher rate, so it holds more.
    """
    held = ladder.first * ladder.every.total_seconds() / (size / items)
    return held if held < FEW else None


@dataclass(frozen=True, slots=True)
class Step:
    """A rate (bytes per second) that holds since the first of its readings."""

    rate: float
    readings: tuple[Reading, ...]

    def over(self, ladder: Ladder) -> bool:
        """Tell whether it has lasted long enough to be judged."""
        first, last = self.readings[0], self.readings[-1]
        shortest = ladder.every
        if ladder.saturate:
            known = first.completion or last.completion
            longest = LONGEST * ladder.every
            needed = longest if known is None else COMPLETIONS * known
            shortest = max(ladder.every, needed if first.completion else min(needed, longest))
        return last.at - first.at >= shortest

    @property
    def hold(self) -> Hold | None:
        """Why less was injected than was to be: what most of its cycles say, the last of those that say it."""
        holds = [one.hold for one in self.readings[1:] if one.hold]
        return max(reversed(holds), key=holds.count, default=None)

    @property
    def idle(self) -> bool:
        """Whether nothing could be injected at all so far, and nobody paused it."""
        since = self.readings[1:]
        ours = all(one.hold in OURS - {Hold.PAUSED} for one in since)
        return len(since) >= IDLE and ours and since[-1].injected == 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a step has shown: asked and moved (bytes) from `measured` to `end`; `failed` is a part of one."""

    rate: float
    start: datetime
    measured: datetime
    end: datetime
    asked: float
    injected: int
    moved: int
    failed: float
    hold: Hold | None
    early: bool = False  # somebody ended it before its time

    @property
    def ratio(self) -> float:
        """Moved of asked."""
        return self.moved / self.asked if self.asked else 0.0

    @property
    def moved_rate(self) -> float:
        """Bytes per second that moved."""
        seconds = (self.end - self.measured).total_seconds()
        return self.moved / seconds if seconds else 0.0

    @property
    def good(self) -> bool:
        """Whether the link follows, and hardly anything fails."""
        return self.ratio >= FOLLOWS and self.failed <= FAILS

    @property
    def ours(self) -> bool:
        """Whether it is not good for a reason that is not the link's: less was injected than was to be."""
        wanted = self.rate * (self.end - self.start).total_seconds()
        return not self.good and self.failed <= FAILS and self.hold in OURS and self.injected < FOLLOWS * wanted

    @property
    def why(self) -> str:
        """What is wrong, in words; empty when it is good."""
        early = ", ended early" if self.early else ""
        if self.failed > FAILS:
            return f"{100 * self.failed:.0f} % failed{early}"
        if self.ours:
            return f"not asked for: {self.hold}{early}"
        return "" if self.good else f"moved does not follow{early}"


class Next(StrEnum):
    """What comes after a step."""

    UP = "next step"
    SAME = "again"
    BACK = "back"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Decision:
    """What comes next, and at which rate (bytes per second; 0 after a stop)."""

    what: Next
    rate: float = 0.0


def verdict(step: Step) -> Verdict:
    """Judge a step by its readings; of one with a single reading nothing is known, and nothing moved."""
    first, last = step.readings[0], step.readings[-1]
    middle = first.at + (last.at - first.at) / 2
    settled = min(first.at + first.completion, middle) if first.completion else middle
    since = next(
        (one for one in step.readings[:-1] if one.at >= settled), step.readings[max(len(step.readings) - 2, 0)]
    )
    moved, failed = last.moved - since.moved, max(last.failed - first.failed, 0)
    ended = failed + max(last.moved - first.moved, 0)
    return Verdict(
        rate=step.rate,
        start=first.at,
        measured=since.at,
        end=last.at,
        asked=step.rate * (last.at - since.at).total_seconds(),
        injected=last.injected - first.injected,
        moved=max(moved, 0),
        failed=failed / ended if ended else 0.0,
        hold=step.hold,
    )


def after(ladder: Ladder, verdicts: Sequence[Verdict]) -> Decision:
    """Return what comes after the last of the steps so far."""
    last = verdicts[-1]
    higher = min(last.rate + ladder.step, ladder.highest)
    if not ladder.saturate:
        return Decision(Next.UP, higher) if higher > last.rate else Decision(Next.SAME, last.rate)
    if last.ours:
        return Decision(Next.STOP)
    if last.good:
        tops = [one for one in verdicts if not one.good] or last.rate >= ladder.highest
        return Decision(Next.STOP) if tops else Decision(Next.UP, higher)
    lower = max(
        (one.rate for one in verdicts if one.good and one.rate < last.rate), default=last.rate - ladder.step
    )
    return Decision(Next.BACK, lower) if lower > 0 else Decision(Next.STOP)


def stands(verdicts: Sequence[Verdict]) -> float | None:
    """Return where the link stands, in bytes per second: what the last good step asked, and no more than moved."""
    good = [one for one in verdicts if one.good]
    return min(good[-1].rate, good[-1].moved_rate) if good else None


def conclusion(ladder: Ladder, verdicts: Sequence[Verdict]) -> str:
    """Say in words how it ended: the reason for which nothing higher is known."""
    if not verdicts:
        return "nothing is known: no step was long enough"
    if not ladder.saturate:
        missed = sum(not one.good for one in verdicts)
        return (
            f"missed: {missed} of {units.counted(len(verdicts), 'steps')}" if missed else "every step was reached"
        )
    bad = [one for one in verdicts if not one.good]
    if any(one.ours for one in bad):
        return f"more could not be asked for ({next(one.hold for one in bad if one.ours)}): the link may take more"
    if not any(one.good for one in verdicts):
        return f"it does not take what was asked for: {_seen(bad[-1])}"
    if not bad and verdicts[-1].rate >= ladder.highest:
        return "it takes at least the most that was to be tried"
    return _seen(bad[0]) if bad else "the time was over before it was saturated"


def _seen(bad: Verdict) -> str:
    """Say what was seen in a step that was not reached."""
    rate, moved = units.format_rate(bad.rate), units.format_rate(bad.moved_rate)
    return f"at {rate} {bad.why}" if bad.failed > FAILS else f"at {rate} only {moved} moved"
