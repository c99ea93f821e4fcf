"""Climbing: the rate of one link goes up step by step; what comes after each step.

`verdict` tells what a step has shown. To find where a link stands, a good step is followed by a higher one, and a
bad one by the step below it, until that is good: there the link stands, with the lower of what was asked and what
moved. What failed has not moved, so it never counts. A step that is inconclusive since something did not work is
repeated, if there is time; one that we could not ask for ends the search.

All of it follows from the readings alone, so that it can be made again from what the ledger has kept of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from dc_inject.model import units
from dc_inject.model.holds import Trait
from dc_inject.planning.verdict import Cause, Reading, StepOutcome, Verdict, judge

COMPLETIONS = 2  # a step lasts at least so many times the time to completion
FEW = 10  # datasets or files in a step: with so many, half a one is 10 % of the half by which a step is judged
IDLE = 2  # cycles without a byte, for a reason of our own, after which there is no sense in going on
LONGEST = 4  # times the shortest step: how long the first one lasts, in which nobody knows that time
REPEATS = 2  # how often in a row a step is repeated that something else has spoilt


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

    def above(self, rate: float) -> float:
        """Return the rate of the next step up, which is the same at the top."""
        return min(rate + self.step, self.highest)


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
    def idle(self) -> bool:
        """Whether nothing could be injected at all so far, and waiting would not mend it."""
        since = self.readings[1:]
        hopeless = all(one.held is not None and Trait.HOPELESS in one.held.hold.traits for one in since)
        return len(since) >= IDLE and hopeless and since[-1].injected == self.readings[0].injected


class Next(StrEnum):
    """What comes after a step."""

    UP = "next step"
    SAME = "again"
    REPEAT = "repeat"  # since something else has spoilt it
    BACK = "back"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class NextStep:
    """What comes next, and at which rate (bytes per second; 0 after a stop)."""

    what: Next
    rate: float = 0.0


def after(ladder: Ladder, verdicts: Sequence[Verdict], left: timedelta = timedelta.max) -> NextStep:
    """Return what comes after the last of the steps so far, with so much time `left`."""
    last = verdicts[-1]
    higher = ladder.above(last.rate)
    if last.outage and _spoilt(verdicts) <= REPEATS and left >= _needed(ladder, last):
        return NextStep(Next.REPEAT, last.rate)
    if not ladder.saturate:
        return NextStep(Next.UP, higher) if higher > last.rate else NextStep(Next.SAME, last.rate)
    if last.outcome is StepOutcome.INCONCLUSIVE:
        return NextStep(Next.STOP)
    if last.good:
        tops = [one for one in verdicts if one.outcome is StepOutcome.NOT_REACHED] or last.rate >= ladder.highest
        return NextStep(Next.STOP) if tops else NextStep(Next.UP, higher)
    lower = max(
        (one.rate for one in verdicts if one.good and one.rate < last.rate), default=last.rate - ladder.step
    )
    return NextStep(Next.BACK, lower) if lower > 0 else NextStep(Next.STOP)


def _spoilt(verdicts: Sequence[Verdict]) -> int:
    """Return how many steps at the end were spoilt in a row, at one rate."""
    count = 0
    for one in reversed(verdicts):
        if not one.outage or one.rate != verdicts[-1].rate:
            break
        count += 1
    return count


def _needed(ladder: Ladder, last: Verdict) -> timedelta:
    """Return the time that a repetition needs: a step, without taking any from steps that are still to come."""
    if ladder.saturate or not ladder.step or ladder.highest == float("inf"):
        return ladder.every
    to_come = -(-(ladder.highest - last.rate) // ladder.step)
    return ladder.every * (1 + int(max(to_come, 0)))


class Progress:
    """How far a mini-challenge is, as it follows from its readings one by one."""

    def __init__(self, ladder: Ladder, until: datetime) -> None:
        """Take what is asked for, and the end of the last step."""
        self.ladder = ladder
        self.until = until
        self.step: Step | None = None
        self.over: datetime | None = None
        self.verdicts: list[Verdict] = []
        self.decisions: list[NextStep] = []

    @property
    def rate(self) -> float:
        """The rate that is asked for now."""
        return self.step.rate if self.step else self.ladder.first

    def resume(self, until: datetime, left: timedelta = timedelta.max) -> None:
        """Go on after a stop, until another end: a step that says nothing yet is made once more.

        What is decided for good stays so: then the last decision is still to stop.
        """
        self.until, self.over = until, None
        if not self.decisions or self.decisions[-1].what is not Next.STOP:
            return
        unknown = [
            number
            for number, one in enumerate(self.verdicts)
            if one.outcome is StepOutcome.INCONCLUSIVE and self.decisions[number].what is not Next.REPEAT
        ]
        place = unknown[-1] if unknown else -1
        repeat = NextStep(Next.REPEAT, self.verdicts[place].rate)
        decision = repeat if unknown else after(self.ladder, self.verdicts, left)
        self.decisions[place] = decision
        if decision.what is not Next.STOP:
            self.step = Step(decision.rate, ())

    def take(self, reading: Reading) -> NextStep | None:
        """Take a reading; returns what comes next where a step has ended with it."""
        if self.over is not None:
            return None
        if self.step is None or reading.fresh or not self.step.readings:
            self.step = Step(self.rate, (reading,))
            return None
        if reading.at <= self.step.readings[-1].at:
            return None
        self.step = replace(self.step, readings=(*self.step.readings, reading))
        idle = self.step.idle
        if reading.at < self.until and not self.step.over(self.ladder) and not idle:
            return None
        given_up = idle and not self.step.over(self.ladder)
        return self._decide(judge(self.step.rate, self.step.readings, idle=given_up), reading, stop=idle)

    def stopped(self, reading: Reading) -> None:
        """Judge the step that was under way when somebody ended it, with a last reading."""
        if self.step is None or self.over is not None or not self.step.readings:
            return
        self.over = reading.at
        if reading.at > self.step.readings[-1].at:
            self.step = replace(self.step, readings=(*self.step.readings, reading))
        early = reading.at < self.until and not self.step.over(self.ladder)
        self.verdicts.append(judge(self.step.rate, self.step.readings, early=early))
        self.decisions.append(NextStep(Next.STOP))

    def _decide(self, made: Verdict, reading: Reading, *, stop: bool) -> NextStep:
        self.verdicts.append(made)
        decision = after(self.ladder, self.verdicts, self.until - reading.at)
        if stop or reading.at >= self.until:
            decision = NextStep(Next.STOP)
        self.decisions.append(decision)
        if decision.what is Next.STOP:
            self.over = reading.at
        else:
            self.step = Step(decision.rate, (replace(reading, fresh=False),))
        return decision


# --------------------------------------------------------------------------- all steps together


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What all steps have shown together: where the link stands (bytes per second), where that was looked for.

    With a search `stands` without the outcome "reached" is what the link takes at least.
    """

    outcome: StepOutcome
    reason: str
    cause: Cause | None = None
    stands: float | None = None


def stands(verdicts: Sequence[Verdict]) -> float | None:
    """Return where the link stands, in bytes per second: what the last good step asked, and no more than moved."""
    good = [one for one in verdicts if one.good]
    return min(good[-1].rate, good[-1].moved_rate) if good else None


def conclusion(ladder: Ladder, verdicts: Sequence[Verdict], decisions: Sequence[NextStep] = ()) -> Conclusion:
    """Return what all steps have shown; one that was repeated counts by its repetition."""
    last = len(verdicts) - 1  # what is to be repeated and has not been yet counts as it is
    repeated = [number for number, one in enumerate(decisions[:last]) if one.what is Next.REPEAT]
    some = [one for number, one in enumerate(verdicts) if number not in repeated]
    if not some:
        return Conclusion(StepOutcome.INCONCLUSIVE, "no result: no step was long enough", Cause("time", "no step"))
    return _found(ladder, some) if ladder.saturate else _fixed(some)


def _fixed(verdicts: Sequence[Verdict]) -> Conclusion:
    missed = [one for one in verdicts if one.outcome is StepOutcome.NOT_REACHED]
    unknown = [one for one in verdicts if one.outcome is StepOutcome.INCONCLUSIVE]
    steps = units.counted(len(verdicts), "steps")
    if missed:
        said = f"{len(missed)} of {steps} not reached: {_seen(missed[0])}"
        return Conclusion(StepOutcome.NOT_REACHED, said, missed[0].cause)
    if unknown:
        said = f"{len(unknown)} of {steps} inconclusive: {_seen(unknown[0])}"
        return Conclusion(StepOutcome.INCONCLUSIVE, said, unknown[0].cause)
    return Conclusion(StepOutcome.REACHED, "every step was reached")


def _found(ladder: Ladder, verdicts: Sequence[Verdict]) -> Conclusion:
    place, last = stands(verdicts), verdicts[-1]
    bad = [one for one in verdicts if one.outcome is StepOutcome.NOT_REACHED]
    if last.outcome is StepOutcome.INCONCLUSIVE:
        return Conclusion(StepOutcome.INCONCLUSIVE, _seen(last), last.cause, place)
    if place is None:
        return Conclusion(StepOutcome.NOT_REACHED, f"the lowest rate failed: {_seen(bad[-1])}", bad[-1].cause)
    if bad and last.good:
        return Conclusion(StepOutcome.REACHED, _seen(bad[0]), bad[0].cause, place)
    if last.good and last.rate >= ladder.highest:
        return Conclusion(
            StepOutcome.REACHED, "it can carry at least the highest rate that was tried", None, place
        )
    said = "there was not enough time to find out"
    return Conclusion(StepOutcome.INCONCLUSIVE, said, Cause("time", said), place)


def _seen(verdict: Verdict) -> str:
    """Say what was seen in a step that was not reached."""
    return f"at {units.format_rate(verdict.rate)} {verdict.why}"
