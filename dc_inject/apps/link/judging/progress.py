"""How far a mini-challenge is: its steps, or the trials of a search, derived from the readings one by one.

All of it follows from the readings alone, so that it can be made again from what the ledger has kept of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from dc_inject.apps.link.judging import overload, saturation, steps
from dc_inject.apps.link.judging.reading import Reading
from dc_inject.apps.link.judging.steps import Ladder, Next, NextStep
from dc_inject.apps.link.judging.verdict import COARSE, Cause, StepOutcome, Verdict, judge
from dc_inject.model import units
from dc_inject.model.held import Held
from dc_inject.model.holds import Hold, Trait

UNDER_WAY = "under-way"
HISTORY = 500  # readings by which it is known how the link delivers
IDLE = 2  # cycles without a byte, for a reason of our own, after which there is no sense in going on


@dataclass(frozen=True, slots=True)
class Step:
    """A rate (bytes per second) that holds since the first of its readings.

    `at_once`: it is measured from there on, since it held before, or the link has more to move than it can.
    """

    rate: float
    readings: tuple[Reading, ...]
    at_once: bool = False

    def over(self, ladder: Ladder, quickest: timedelta | None = None) -> bool:
        """Return whether it has lasted long enough; `quickest` is the least time to completion so far."""
        if ladder.saturate:
            return saturation.over(ladder, self.rate, self.readings, self.settles(quickest))
        return self.readings[-1].at - self.readings[0].at >= ladder.every

    def settles(self, quickest: timedelta | None) -> timedelta | None:
        """Return the time in which its rate shows nothing yet; None while that is not known."""
        return timedelta(0) if self.at_once else quickest

    def idle(self, longest: timedelta) -> bool:
        """Whether nothing could be injected at all so far, and waiting would not mend it in the `longest` step."""
        since = self.readings[1:]
        if len(since) < IDLE or since[-1].injected != self.readings[0].injected:
            return False
        return all(reading.held is not None and self._is_hopeless(reading.held, longest) for reading in since)

    def _is_hopeless(self, held: Held, longest: timedelta) -> bool:
        """Whether a hold will last; the smallest dataset goes out once half of it is due."""
        if held.hold is Hold.TOO_COARSE and isinstance(smallest := held.numbers.get("smallest"), int | float):
            return smallest / 2 > self.rate * longest.total_seconds()
        return Trait.HOPELESS in held.hold.traits


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
        self._taken: deque[Reading] = deque(maxlen=HISTORY)
        self._quickest: timedelta | None = None
        self._paused: datetime | None = None  # since when nothing is asked for

    @property
    def rate(self) -> float:
        """The rate that is asked for now, or after the pause, in bytes per second."""
        return self.step.rate if self.step else self.ladder.first

    @property
    def paused(self) -> bool:
        """Whether nothing is asked for until what waits has arrived."""
        return self._paused is not None

    def concluded(self, *, running: bool = False) -> Conclusion:
        """Return what all steps have shown so far, where `running` means that more may come."""
        return conclusion(self.ladder, self.verdicts, self.decisions, over=not running or self.over is not None)

    def resume(self, until: datetime, time_left: timedelta = timedelta.max) -> None:
        """Go on after a stop, until another end: a step without a result is made once more.

        What is decided for good stays so: then the last decision is still to stop.
        """
        self.until, self.over = until, None
        if not self.decisions or self.decisions[-1].kind is not Next.STOP:
            return
        unknown = [
            number
            for number, verdict in enumerate(self.verdicts)
            if verdict.outcome is StepOutcome.INCONCLUSIVE and self.decisions[number].kind is not Next.REPEAT
        ]
        place = unknown[-1] if unknown else -1
        repeat = NextStep(Next.REPEAT, self.verdicts[place].rate)
        decision = repeat if unknown else _after(self.ladder, self.verdicts, time_left)
        self.decisions[place] = decision
        if decision.kind is not Next.STOP:
            self.step = Step(decision.rate, ())

    def take(self, reading: Reading) -> NextStep | None:
        """Take a reading; returns what comes next where a step has ended with it."""
        if self.over is not None:
            return None
        self._taken.append(reading)
        if reading.completion is not None:
            self._quickest = min(self._quickest or reading.completion, reading.completion)
        if self._paused is not None and not reading.fresh and self.step is not None:
            self._wait(self.step.rate, reading, self._paused)
            return None
        self._paused = None  # what waited before a stop is gone
        if self.step is None or reading.fresh or not self.step.readings:
            self.step = Step(self.rate, (reading,))
            return None
        if reading.at <= self.step.readings[-1].at:
            return None
        self.step = step = replace(self.step, readings=(*self.step.readings, reading))
        idle, over = step.idle(self.ladder.every), step.over(self.ladder, self._quickest) or self._follows(step)
        if reading.at < self.until and not over and not idle:
            return None
        verdict = self._judged(step, idle=idle and not over)
        if reading.at < self.until and not idle and self._too_short(verdict):
            return None
        self.verdicts.append(verdict)
        decision = _after(self.ladder, self.verdicts, self.until - reading.at)
        if idle or reading.at >= self.until:
            decision = NextStep(Next.STOP)
        self.decisions.append(decision)
        if decision.kind is Next.STOP:
            self.over = reading.at
        else:
            readings = (replace(reading, fresh=False),)
            full = decision.kind is Next.BETWEEN and bool(overload.overloaded(self.ladder, self.verdicts))
            self.step = Step(decision.rate, readings, at_once=full or decision.kind is Next.CONFIRM)
        if decision.pause and decision.kind is not Next.STOP:
            self.step, self._paused = Step(decision.rate, ()), reading.at
        return decision

    def _wait(self, rate: float, reading: Reading, since: datetime) -> None:
        """Take a reading in a pause, after which the next step has this rate."""
        if reading.at >= self.until:
            self.over = reading.at
        elif saturation.drained(self.ladder, rate, reading.waiting, self._quickest, reading.at - since):
            self.step, self._paused = Step(rate, (reading,)), None

    def stopped(self, reading: Reading) -> None:
        """Judge the step that was under way when it was ended by hand, with a last reading."""
        if self._paused is not None and self.over is None:
            self.over = reading.at
        if self.step is None or self.over is not None or not self.step.readings:
            return
        self.over = reading.at
        if reading.at > self.step.readings[-1].at:
            self.step = replace(self.step, readings=(*self.step.readings, reading))
        early = reading.at < self.until and not self.step.over(self.ladder, self._quickest)
        self.verdicts.append(self._judged(self.step, early=early))
        self.decisions.append(NextStep(Next.STOP))

    def _judged(self, step: Step, *, early: bool = False, idle: bool = False) -> Verdict:
        settle = step.settles(self._quickest) if self.ladder.saturate else None
        before = [reading for reading in self._taken if reading.at <= step.readings[0].at]
        verdict = judge(step.rate, step.readings, early=early, idle=idle, settle=settle, before=before)
        return replace(verdict, quickest=self._quickest)

    def _follows(self, step: Step) -> bool:
        """Whether a trial on the way up has shown already that the link follows."""
        settle = step.settles(self._quickest)
        if not self.ladder.saturate or not settle or step.readings[-1].at - step.readings[0].at <= settle:
            return False
        up = not any(map(overload.failing, self.verdicts))  # else it bisects, where each trial counts
        return up and saturation.follows(self.ladder, self._judged(step), step.readings[-1].dataset)

    def _too_short(self, verdict: Verdict) -> bool:
        """Whether datasets were too coarse for a short trial, so that it goes on."""
        coarse = verdict.cause is not None and verdict.cause.code == COARSE
        return self.ladder.saturate and coarse and verdict.end - verdict.start < self.ladder.every


def _after(ladder: Ladder, verdicts: Sequence[Verdict], time_left: timedelta) -> NextStep:
    """Return what comes after the last of the steps, or trials, so far, with so much time `time_left`."""
    if not ladder.saturate or steps.is_worth_repeating(ladder, verdicts, time_left):
        return steps.after(ladder, verdicts, time_left)
    return (
        NextStep(Next.STOP)
        if verdicts[-1].outcome is StepOutcome.INCONCLUSIVE
        else saturation.after(ladder, verdicts)
    )


# --------------------------------------------------------------------------- all steps together


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What all steps have shown together, and the capacity of the link (bytes per second), if that was looked for.

    It lies in `interval` with a probability of 95 %; without an interval it is a lower bound. Every view takes it
    from here: `figures` is for programs, `in_words` in `summary/thresholds.py` for people.
    """

    outcome: StepOutcome
    reason: str
    cause: Cause | None = None
    capacity: float | None = None
    interval: tuple[float, float] | None = None

    def figures(self) -> dict[str, Any]:
        """Return it for programs; the keys are an interface, described in docs/reference/link.md."""
        return {
            "outcome": self.outcome.value,
            "cause": None if self.cause is None else self.cause.code,
            "reason": self.reason,
            "outage": self.cause is not None and self.cause.outage,
            "capacity": self.capacity,
            "interval": None if self.interval is None else list(self.interval),
        }


def conclusion(
    ladder: Ladder, verdicts: Sequence[Verdict], decisions: Sequence[NextStep] = (), *, over: bool = True
) -> Conclusion:
    """Return what all steps have shown so far; one that was repeated counts by its repetition.

    `over` means that there will be no more of them.
    """
    last = len(verdicts) - 1  # what is to be repeated and has not been yet counts as it is
    repeated = [number for number, decision in enumerate(decisions[:last]) if decision.kind is Next.REPEAT]
    counting = [verdict for number, verdict in enumerate(verdicts) if number not in repeated]
    if not counting and not over:
        words = "no step has a result yet"
        return Conclusion(StepOutcome.INCONCLUSIVE, words, Cause(UNDER_WAY, words))
    if not counting:
        return Conclusion(StepOutcome.INCONCLUSIVE, "no result: no step was long enough", Cause("time", "no step"))
    if ladder.saturate:
        return _of_search(ladder, counting, over=over)
    return _of_steps(counting, repeated=len(repeated), over=over)


def _of_steps(verdicts: Sequence[Verdict], *, repeated: int, over: bool) -> Conclusion:
    """Return what steps have shown, besides those that were `repeated`: the table has these, too."""
    missed = [verdict for verdict in verdicts if verdict.outcome is StepOutcome.NOT_REACHED]
    unknown = [verdict for verdict in verdicts if verdict.outcome is StepOutcome.INCONCLUSIVE]
    steps = units.counted(len(verdicts), "steps")
    besides = f", besides {repeated} that {'was' if repeated == 1 else 'were'} repeated" if repeated else ""
    if missed:
        words = f"{len(missed)} of {steps} not reached{besides}: {saturation.describe(missed[0])}"
        return Conclusion(StepOutcome.NOT_REACHED, words, missed[0].cause)
    if not over:
        words = f"the test is still under way, after {steps}"
        return Conclusion(StepOutcome.INCONCLUSIVE, words, Cause(UNDER_WAY, words))
    if unknown:
        words = f"{len(unknown)} of {steps} inconclusive{besides}: {saturation.describe(unknown[0])}"
        return Conclusion(StepOutcome.INCONCLUSIVE, words, unknown[0].cause)
    last = verdicts[-1]
    moved = f"{units.format_rate(last.moved_rate)}{last.tolerance}"
    words = f"every step was reached{besides}; in the last one, at {units.format_rate(last.rate)}, {moved} moved"
    return Conclusion(StepOutcome.REACHED, words)


def _of_search(ladder: Ladder, verdicts: Sequence[Verdict], *, over: bool) -> Conclusion:
    least, last = saturation.at_least(verdicts), verdicts[-1]
    if not over:
        words = f"the search is still under way, after {units.counted(len(verdicts), 'trials')}"
        return Conclusion(StepOutcome.INCONCLUSIVE, words, Cause(UNDER_WAY, words), least)
    if last.outcome is StepOutcome.INCONCLUSIVE:
        return Conclusion(StepOutcome.INCONCLUSIVE, saturation.describe(last), last.cause, least)
    if saturation.after(ladder, verdicts).kind is not Next.STOP:
        fell = saturation.describe_fall(ladder, verdicts)
        words = "there was not enough time to find out" + (f": {fell}, which was to be repeated" if fell else "")
        if last.good and last.rate >= ladder.highest and not fell:
            highest = units.format_rate(ladder.highest)
            words = f"{highest}, the highest rate to try, was reached, without time for enough repeats"
        return Conclusion(StepOutcome.INCONCLUSIVE, words, Cause("time", words), least)
    estimated = saturation.estimate(ladder, verdicts)
    if estimated is None and not any(verdict.good for verdict in verdicts):
        return Conclusion(
            StepOutcome.NOT_REACHED, f"the lowest rate failed: {saturation.describe(last)}", last.cause
        )
    if estimated is None:
        seen = saturation.describe_fall(ladder, verdicts) or saturation.describe(last)
        words = f"it did not settle in {units.counted(len(verdicts), 'trials')}: {seen}"
        return Conclusion(StepOutcome.INCONCLUSIVE, words, Cause("unsteady", words), least)
    if (bound := saturation.held(ladder, verdicts, estimated.mean)) is not None:
        return Conclusion(StepOutcome.INCONCLUSIVE, bound.words, bound, least)
    words, cause = saturation.reason(ladder, verdicts, estimated.mean)
    return Conclusion(StepOutcome.REACHED, words, cause, estimated.mean, estimated.interval)
