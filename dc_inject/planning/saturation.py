"""The search for the rate at which a link is saturated: short trials first, then repeats that tell how sure it is.

A link that is asked for more than it carries delivers what it carries. So one trial above the capacity tells more
than many below: the search

1. goes up from the first rate, each time by twice as much as before, until the link does not follow;
2. tries what that trial delivered and 6 % more; if the link takes all of that, the middle between that and the
   lowest rate that was too much, and so on until the two are within 5 % of each other;
3. repeats the last trial at least three times, without a pause: their mean is where the link stands, with the
   interval in which it lies with a probability of 95 % (Student's t), and up to six times while that is wide.

Where transfers fail, what is delivered says little: then the middle is tried between the highest rate at which few
failed and the lowest at which many did.

The ideas come from two tools that measure for a living. FD.io's MLRsearch tries what a device forwarded under too
high a load, has short trials decide first and long ones last (RFC 9411's neighbour, draft-ietf-bmwg-mlrsearch);
fio's `latency_target` doubles while it succeeds, bisects after the first failure, and measures the depth that it
found once more (`lat_target_success` in its io_u.c).

A trial lasts as long as it must and no longer: the least time to completion seen so far, in which a new rate shows
nothing yet, and then a tenth of a step, or ten datasets (`window`). Repeats have no new rate to wait for.

What was too much once may be carried later, when FTS has grown to more transfers (`ramp.py`). So a trial counts no
longer that a later one has exceeded, or that FTS was too small for and may have outgrown; and repeats go on while
what moves still grows as FTS's transfers do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from statistics import fmean, stdev

from dc_inject.model import units
from dc_inject.planning import ramp
from dc_inject.planning.steps import FEW, Ladder, Next, NextStep
from dc_inject.planning.verdict import FOLLOWS, Cause, Reading, StepOutcome, Verdict

PRECISION = 0.05  # of a rate: how near each other the last good and the first bad one have to be
TAKES_ALL = 0.985  # part of what is asked from which on nothing tells that the link is at its limit
GOES_UP = 0.95  # the same on the way up, where a trial that is too much is what tells most
ABOVE = 1.06  # times what moved while it was too much: the rate to try next, which the link just does not take
LEAST, MOST = 3, 6  # repeats at the end
WIDE = 0.07  # of the mean: half of an interval for which repeats go on
TRIALS = 40  # after which a link that never settles is given up
LONGEST = 4  # steps: how long the first trial waits for something to complete
LOWEST = 0.5  # of the first rate or of a step: what is lower is not tried
RAMPING = "FTS still ramping"
# Student's t for 95 % (two-sided), by the number of values from two on
T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


# --------------------------------------------------------------------------- how long a trial lasts


def over(ladder: Ladder, rate: float, readings: Sequence[Reading], settle: timedelta | None) -> bool:
    """Tell whether a trial has lasted long enough; `settle` is the time in which its rate shows nothing yet."""
    lasted = readings[-1].at - readings[0].at
    if settle is None:
        return lasted >= LONGEST * ladder.every
    return lasted >= settle + window(ladder, rate, readings[-1].dataset)


def window(ladder: Ladder, rate: float, dataset: int) -> timedelta:
    """Return for how long a rate is measured: a tenth of a step, or ten datasets of a size, at most a step."""
    datasets = timedelta(seconds=FEW * dataset / rate)
    return max(ladder.shortest, min(datasets, ladder.every))


# --------------------------------------------------------------------------- what comes next


def after(ladder: Ladder, verdicts: Sequence[Verdict]) -> NextStep:
    """Return what comes after the last of the trials so far, which was not inconclusive."""
    trials = conclusive(verdicts)
    last, same = trials[-1], _same(trials)
    takes = sum(trial.moved for trial in same) / sum(trial.asked for trial in same)
    if len(trials) >= TRIALS:
        return NextStep(Next.STOP)
    if failing(last) or takes < FOLLOWS:
        lower = _lower(ladder, trials, takes * last.rate)
        small = not failing(last) and ramp.possible(last.rate, last.end - trials[0].start, last.moved_rate)
        return replace(lower, why=RAMPING if small and lower.kind is not Next.STOP else "")
    above = _too_much(trials)
    if above is None and takes >= GOES_UP and last.rate < ladder.highest and len(same) == 1:
        return NextStep(Next.UP, _higher(ladder, last.rate))
    if takes >= TAKES_ALL and last.rate < ladder.highest and (len(same) == 1 or len(same) > LEAST):
        if above is None:
            return NextStep(Next.UP, _higher(ladder, last.rate))
        if above.rate > last.rate * (1 + PRECISION):
            return NextStep(Next.BETWEEN, _rounded(_between(last, above)))
    growing = ramping(same, trials[0])
    if _sure(same[1:]) and not growing:
        return NextStep(Next.STOP)
    return NextStep(Next.CONFIRM, last.rate, RAMPING if growing else "")


def conclusive(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the trials that say something of the link."""
    return [trial for trial in verdicts if trial.outcome is not StepOutcome.INCONCLUSIVE]


def failing(verdict: Verdict) -> bool:
    """Whether a trial was not reached since transfers failed: what moved is not what the link carries."""
    return not verdict.good and verdict.cause is not None and verdict.cause.code == "failing"


def _same(trials: Sequence[Verdict]) -> list[Verdict]:
    """Return the last trial and those right before it at the same rate, which it repeats."""
    place = len(trials) - 1
    while place and trials[place - 1].rate == trials[-1].rate and not failing(trials[place - 1]):
        place -= 1
    return list(trials[place:])


def _higher(ladder: Ladder, rate: float) -> float:
    """Return the next rate up: each increase is twice the one before."""
    step = ladder.step or ladder.first
    more = step
    while ladder.first + more <= rate * (1 + 1e-9):
        more = 2 * more + step
    return min(ladder.first + more, ladder.highest)


def up(ladder: Ladder) -> list[float]:
    """Return the rates on the way up, if the link takes all of them."""
    rates = [ladder.first]
    while rates[-1] < ladder.highest:
        rates.append(_higher(ladder, rates[-1]))
    return rates


def _lower(ladder: Ladder, trials: Sequence[Verdict], moved: float) -> NextStep:
    """Return what comes after a trial that was too much, in which so many bytes a second moved."""
    last = trials[-1]
    good = max((trial.rate for trial in trials if trial.good and trial.rate < last.rate), default=0.0)
    if not failing(last):
        lower = moved * ABOVE
    elif last.rate <= good * (1 + PRECISION):
        lower = good
    else:
        lower = (good + last.rate) / 2
    least = LOWEST * min(ladder.first, ladder.step or ladder.first)
    return NextStep(Next.BETWEEN, _rounded(lower)) if lower >= least else NextStep(Next.STOP)


def _rounded(rate: float) -> float:
    """Return a rate with three digits in bits per second, as people read it."""
    return float(f"{8 * rate:.3g}") / 8


def _too_much(trials: Sequence[Verdict]) -> Verdict | None:
    """Return the trial of the lowest rate above the last that was too much, and that no later one has exceeded."""
    bad = [
        trial
        for place, trial in enumerate(trials)
        if not trial.good
        and trial.rate > trials[-1].rate
        and not any(_exceeds(later, trial) for later in trials[place + 1 :])
        and not _outgrown(trial, trials)
    ]
    return min(bad, key=lambda trial: trial.rate, default=None)


def _exceeds(later: Verdict, bad: Verdict) -> bool:
    if not later.good:
        return False
    more = not failing(bad) and later.moved_rate > bad.moved_rate * (1 + 2 * PRECISION)
    return later.rate >= bad.rate or more


def _outgrown(bad: Verdict, trials: Sequence[Verdict]) -> bool:
    """Whether FTS may have been what a trial was too much for, and has grown since."""
    begun = trials[0].start
    if failing(bad) or not ramp.possible(bad.rate, bad.end - begun, bad.moved_rate):
        return False
    return ramp.allowed(trials[-1].end - begun) > bad.moved_rate * (1 + PRECISION)


def _between(good: Verdict, bad: Verdict) -> float:
    """Return the rate to try between one that was taken and one that was too much."""
    guess = bad.moved_rate * ABOVE
    if not failing(bad) and good.rate * (1 + PRECISION) < guess < bad.rate:
        return guess
    return math.sqrt(good.rate * bad.rate)


def _sure(repeats: Sequence[Verdict]) -> bool:
    """Whether there are enough repeats: three at least, more while they differ much."""
    if len(repeats) < LEAST:
        return False
    estimated = Estimate.of(repeats)
    return len(repeats) >= MOST or estimated.half <= WIDE * estimated.mean


def ramping(same: Sequence[Verdict], earliest: Verdict) -> bool:
    """Whether what moves in trials at one rate still grows as it does while FTS adds transfers.

    `earliest` is the first trial of all, with which FTS began to grow.
    """
    half, last = len(same) // 2, same[-1]
    if not half or not ramp.possible(last.rate, last.end - earliest.start, last.moved_rate):
        return False
    early, late = same[:half], same[-half:]
    grown = fmean(trial.moved_rate for trial in late) - fmean(trial.moved_rate for trial in early)
    return grown >= ramp.gain((late[0].end - early[0].end).total_seconds()) / 4


# --------------------------------------------------------------------------- what all trials have shown


@dataclass(frozen=True, slots=True)
class Estimate:
    """Where a link stands, in bytes per second, and half of the interval around it; of so many repeats."""

    mean: float
    half: float
    repeats: int

    @classmethod
    def of(cls, repeats: Sequence[Verdict]) -> Estimate:
        """Return the mean of what moved in repeats (two or more), with its interval of 95 %."""
        rates = [min(trial.rate, trial.moved_rate) for trial in repeats]
        t = T[min(len(rates) - 2, len(T) - 1)]
        return cls(fmean(rates), t * stdev(rates) / math.sqrt(len(rates)), len(rates))

    @property
    def interval(self) -> tuple[float, float]:
        """Bytes per second."""
        return max(self.mean - self.half, 0.0), self.mean + self.half


def estimate(verdicts: Sequence[Verdict]) -> Estimate | None:
    """Return where the link stands; None while it was not repeated often enough."""
    trials = conclusive(verdicts)
    repeats = _same(trials)[1:] if trials else []
    return Estimate.of(repeats) if len(repeats) >= LEAST else None


def at_least(verdicts: Sequence[Verdict]) -> float | None:
    """Return what the link takes at least, in bytes per second: the most that moved in a trial that was good."""
    return max((min(trial.rate, trial.moved_rate) for trial in verdicts if trial.good), default=None)


def reason(verdicts: Sequence[Verdict]) -> tuple[str, Cause | None]:
    """Say why a link that has been found carries no more."""
    trials = conclusive(verdicts)
    same = _same(trials)
    above = [trial for trial in trials if not trial.good and trial.rate > same[-1].rate]
    if above:
        bad = min(above, key=lambda trial: trial.rate)
        return describe(bad), bad.cause
    takes = sum(trial.moved for trial in same) / sum(trial.asked for trial in same)
    rate = units.format_rate(same[-1].rate)
    if takes < TAKES_ALL:
        words = f"of {rate} only {units.format_rate(takes * same[-1].rate)} moved"
        return words, Cause("saturated", words)
    return "it can carry at least the highest rate that was tried", None


def describe(verdict: Verdict) -> str:
    """Say what was seen in a trial or step that was not reached."""
    return f"at {units.format_rate(verdict.rate)} {verdict.why}"
