"""The search for the rate at which a link is saturated: short trials first, then repeats that show how sure it is.

A link that is asked for more than it carries delivers what it carries, whatever that is asked for. So one trial
above the capacity shows more than many below: the search

1. goes up from the first rate, each time by twice as much as before, until the link does not follow, and never
   back to a rate that it has passed;
2. then keeps it overloaded: it asks for what moves and a little more, and at first for so much more that twice or
   thrice as much is on its way as a link always has there; when more is, for what moves. Since the link has more
   to move than it can, each trial begins where the last one ended, and shows what it carries. If all that waited
   arrives, it was not too much, and the search goes on up;
3. ends after four trials that began with enough waiting, or more while they leave it unsure: the slope of the line
   through what had moved at all their readings is the link's capacity, with the interval in which it lies with a
   probability of 95 % (`estimate.py`).

Why a line, and why no more waits than has to: an overloaded link sends as much as it can, but a file counts only
when all of it is there. What is under way at the begin and at the end of a time differs, since files that start
together arrive together; a line depends little on these two moments. And it grows while FTS adds transfers, which
it does as long as as many files wait as it runs, needed or not: then less arrives than is sent.

Where transfers fail, the delivered rate means little: then the middle is tried between the highest rate that was
reached and the lowest that was not. Storages often fail since much waits for them, and would go on failing at any
rate: so after each trial that was not reached nothing is asked for until what waits has arrived.

The ideas come from two tools that measure for a living. FD.io's MLRsearch tries what a device forwarded under too
high a load, has short trials decide first and long ones last (RFC 9411's neighbour, draft-ietf-bmwg-mlrsearch);
fio's `latency_target` doubles while it succeeds, bisects after the first failure, and measures the depth that it
found once more (`lat_target_success` in its io_u.c).

A trial lasts as long as it must and no longer: the least time to completion seen so far, in which a new rate shows
nothing yet, and then a fifth of a step, or ten datasets (`window`). Services report what has moved only when one
of their daemons passes, often once a minute: a window of several passes is as wrong as a part of one. Trials of an
overloaded link have no new rate to wait for, and what one sees too little the next one sees too much. On the way
up a trial ends as soon as what it asks for moves (`follows`): if that was only by chance, the next one shows it.

FTS may be what is too small for a link (`ramp.py`). It begins with half of the transfers that it may run, and adds
two a minute only while at least as many files wait as it runs: hence the queue. Where the link may need more
transfers than FTS begins with, repeats go on while what moves rises, and what moved before it grew does not count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from statistics import fmean, linear_regression
from typing import NamedTuple

from dc_inject.apps.link.judging import overload
from dc_inject.apps.link.judging.estimate import DIFFER, Course, changed, estimate_slope, slope
from dc_inject.apps.link.judging.reading import Reading
from dc_inject.apps.link.judging.steps import FEW, Ladder, Next, NextStep
from dc_inject.apps.link.judging.verdict import Cause, Verdict
from dc_inject.model import units
from dc_inject.model.estimates import Estimate
from dc_inject.model.holds import Trait
from dc_inject.planning import ramp

PRECISION = 0.05  # of a rate: how near each other the last good and the first bad one have to be
ABOVE = 1.06  # times what moves: what an overloaded link is asked for
ROOM = 0.2  # part of what shall wait: so much more is asked for
LEAST, MOST = 4, 6  # repeats at the end
WIDE = 0.1  # of the mean: half of an interval for which repeats go on
NARROW = 0.07  # the same, where FTS may be too small
TRIALS = 40  # after which a link that never settles is given up
LONGEST = 4  # steps: how long the first trial waits for something to complete
SOON = 3  # so much shorter may a trial on the way up be
LOWEST = 0.5  # of the first rate or of a step: what is lower is not tried
RAMPING = "FTS still ramping"


# --------------------------------------------------------------------------- how long a trial lasts


def over(ladder: Ladder, rate: float, readings: Sequence[Reading], settle: timedelta | None) -> bool:
    """Return whether a trial has lasted long enough; `settle` is the time in which its rate shows nothing yet."""
    lasted = readings[-1].at - readings[0].at
    if settle is None:
        return lasted >= LONGEST * ladder.every
    return lasted >= settle + window(ladder, rate, readings[-1].dataset)


def follows(ladder: Ladder, trial: Verdict, dataset: int) -> bool:
    """Return whether a trial on the way up may end after a third of its time, since what it asks for moves.

    By chance it may have moved more than the link carries: then the next one is too much, which is looked for
    anyway. One that has not moved enough may only be late.
    """
    soon = trial.end - trial.measured >= window(ladder, trial.rate, dataset) / SOON
    return trial.good and soon and trial.rate < ladder.highest


def window(ladder: Ladder, rate: float, dataset: int) -> timedelta:
    """Return for how long a rate is measured: a fifth of a step, or ten datasets of a size, at most a step."""
    datasets = timedelta(seconds=FEW * dataset / rate)
    return max(ladder.shortest, min(datasets, ladder.every))


# --------------------------------------------------------------------------- what comes next


def after(ladder: Ladder, verdicts: Sequence[Verdict]) -> NextStep:
    """Return what comes after the last of the trials so far, which was not inconclusive."""
    trials = overload.conclusive(verdicts)
    last, run = trials[-1], overload.overloaded(ladder, trials)
    if len(trials) >= TRIALS:
        return NextStep(Next.STOP)
    if any(overload.failing(trial) for trial in trials):
        return _by_halves(ladder, trials)
    higher = None if run else _upwards(ladder, trials)
    if higher is not None:
        return higher
    small = _may_be_small(ladder, trials)
    if _sure(_repeats(ladder, trials), small=small):
        return NextStep(Next.STOP)
    following = _overload(ladder, run) if run else NextStep(Next.CONFIRM, last.rate)
    return replace(following, why=RAMPING if small else "")


def _upwards(ladder: Ladder, trials: Sequence[Verdict]) -> NextStep | None:
    """Return the next higher rate to try after one that the link takes; None if it is as high as it may be."""
    last, above = trials[-1], _too_much(trials)
    if last.rate >= ladder.highest:
        return None
    if above is not None and above.rate > last.rate * (1 + PRECISION):
        return NextStep(Next.BETWEEN, _rounded(_between(last, above)))
    if above is not None and overload.failing(above):
        return None
    tried = max(trial.rate for trial in trials)  # also one that only seemed too much: a little more drains at once
    return NextStep(Next.UP, _higher(ladder, tried))


def _by_halves(ladder: Ladder, trials: Sequence[Verdict]) -> NextStep:
    """Return what comes next where transfers fail: the middle between what is reached and what is not.

    After a trial that was not reached nothing is asked for until what waits has arrived: many transfers at a time
    may be why they fail.
    """
    last, (good, bad) = trials[-1], _bounds(ladder, trials)
    if bad > good * (1 + PRECISION):
        return replace(_to(ladder, (good + bad) / 2), pause=not last.good)
    if last.rate != good or not last.good:
        return replace(_to(ladder, good), pause=not last.good)
    return NextStep(Next.STOP) if _sure(_repeats(ladder, trials)) else NextStep(Next.CONFIRM, good)


def _bounds(ladder: Ladder, trials: Sequence[Verdict]) -> tuple[float, float]:
    """Return the highest rate that was reached below the lowest that was not (0: none), and that one.

    A trial that was not reached while much waited from before does not count against its rate.
    """
    bad = [trial.rate for trial in trials if not trial.good]
    clean = [
        trial.rate
        for before, trial in zip([None, *trials], trials, strict=False)
        if not trial.good and (before is None or before.end != trial.start or not overload.enough(ladder, before))
    ]
    lowest = min(clean or bad)
    return max((trial.rate for trial in trials if trial.good and trial.rate < lowest), default=0.0), lowest


def drained(ladder: Ladder, rate: float, waiting: int, quickest: timedelta | None, lasted: timedelta) -> bool:
    """Whether a pause is over: no more waits than is always on its way at a rate, or it has lasted long."""
    always = rate * quickest.total_seconds() if quickest else 0.0
    return waiting <= always or lasted >= LONGEST * ladder.every


def _overload(ladder: Ladder, run: Sequence[Verdict]) -> NextStep:
    """Return the rate that keeps a link overloaded: the same while it does, and as much waits as shall.

    Where more waits than shall, what moves is asked for, so that it does not become still more.
    """
    last, moves = run[-1], overload.mean_rate((run[1:] or run)[-LEAST:])
    lacking = (1 + ROOM) * overload.queue(ladder, last) - last.waiting
    least, most = (1 + PRECISION / 2, overload.FAR) if lacking >= 0 else (1 - PRECISION / 2, 1 + PRECISION / 2)
    if overload.enough(ladder, last) and moves * least <= last.rate <= moves * most:
        return NextStep(Next.CONFIRM, last.rate)
    more = min(lacking / ladder.shortest.total_seconds(), moves)
    following = _to(ladder, ABOVE * moves + more if lacking >= 0 else max(moves, _lowest(ladder)))
    return replace(following, kind=Next.CONFIRM) if following.rate == last.rate else following


def _same(trials: Sequence[Verdict]) -> list[Verdict]:
    """Return the last trial and those right before it at the same rate, which it repeats."""
    place = len(trials) - 1
    while place and trials[place - 1].rate == trials[-1].rate and not overload.failing(trials[place - 1]):
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


def _to(ladder: Ladder, rate: float) -> NextStep:
    """Return a trial at a rate (bytes per second), or the end where that is too low to be tried."""
    if rate < _lowest(ladder):
        return NextStep(Next.STOP)
    return NextStep(Next.BETWEEN, min(_rounded(rate), ladder.highest))


def _lowest(ladder: Ladder) -> float:
    """Return the lowest rate that is tried, in bytes per second."""
    return LOWEST * min(ladder.first, ladder.step or ladder.first)


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
    ]
    return min(bad, key=lambda trial: trial.rate, default=None)


def _exceeds(later: Verdict, bad: Verdict) -> bool:
    if not later.good:
        return False
    more = not overload.failing(bad) and later.moved_rate > bad.moved_rate * (1 + 2 * PRECISION)
    return later.rate >= bad.rate or more


def _between(good: Verdict, bad: Verdict) -> float:
    """Return the rate to try between one that was taken and one that was too much."""
    guess = bad.moved_rate * ABOVE
    if not overload.failing(bad) and good.rate * (1 + PRECISION) < guess < bad.rate:
        return guess
    return math.sqrt(good.rate * bad.rate)


class Repeat(NamedTuple):
    """A trial that shows the capacity, and what moved in it of what counts (bytes per second)."""

    rate: float
    trial: Verdict


def _repeats(ladder: Ladder, trials: Sequence[Verdict]) -> list[Repeat]:
    """Return the last trials that show the capacity, without what was before it changed."""
    repeats = _counting(ladder, trials)[-MOST:]
    while _may_be_small(ladder, trials) and _grow(_rates(repeats)):
        del repeats[0]
    while cut := changed(_rates(repeats)):
        del repeats[:cut]
    return repeats


def _counting(ladder: Ladder, trials: Sequence[Verdict]) -> list[Repeat]:
    """Return the trials that show the capacity, or what it was before it changed.

    Of an overloaded link these are those that began with enough waiting, without what moved before FTS grew; else
    all after the first at the last rate: when it takes all of that, more is only what was late. What waited before
    an outage or a stop may be gone after it.
    """
    run = overload.overloaded(ladder, trials)
    if run:
        pairs = [(before, trial) for before, trial in pairwise(run) if before.end == trial.start]
        return [Repeat(trial.moved_rate, trial) for before, trial in pairs if overload.enough(ladder, before)]
    return [Repeat(min(trial.moved_rate, trial.rate), trial) for trial in _same(trials)[1:]]


def _estimate(repeats: Sequence[Repeat], most: float = math.inf) -> Estimate:
    """Return the slope through repeats, at most a rate (bytes per second), with its interval."""
    line = estimate_slope(_runs(repeats), max(trial.counted_by for _, trial in repeats))
    return replace(line, mean=min(line.mean, most))


def _runs(repeats: Sequence[Repeat]) -> list[list[Course]]:
    """Return what moved in repeats, those together that follow each other without a gap."""
    runs: list[list[Course]] = []
    end = None
    for _, trial in repeats:
        if trial.measured != end:
            runs.append([])
        runs[-1].append(trial.course)
        end = trial.end
    return runs


def _rates(repeats: Sequence[Repeat]) -> list[float]:
    return [repeat.rate for repeat in repeats]


def _grow(rates: Sequence[float]) -> bool:
    half = len(rates) // 2
    return half > 0 and fmean(rates[-half:]) > (1 + PRECISION) * fmean(rates[:half])


def _sure(repeats: Sequence[Repeat], *, small: bool = False) -> bool:
    """Whether there are enough repeats: the least, and more while their estimate is not sure.

    Where FTS may be too `small` for the link, it has to be surer, and what moves must not rise meanwhile. Nor may
    it seem to fall: in the second half of the repeats, or in the last one, which is then far below all others.
    """
    if len(repeats) < LEAST or len(repeats) >= MOST:
        return len(repeats) >= MOST
    estimated, rates, half = _estimate(repeats), _rates(repeats), len(repeats) // 2
    rising = small and linear_regression(range(len(rates)), rates).slope > 0
    begun = rates[-1] < (1 - DIFFER) * min(rates[:-1])
    falling = begun or fmean(rates[-half:]) < (1 - DIFFER) * fmean(rates[:half])
    return estimated.half <= (NARROW if small else WIDE) * estimated.mean and not rising and not falling


def _may_be_small(ladder: Ladder, trials: Sequence[Verdict]) -> bool:
    """Whether FTS may run too few transfers for a link that has more to move: more than it begins with are needed.

    Where it is not known how many there are, FTS's usual ramp decides.
    """
    last = trials[-1]
    if not overload.overloaded(ladder, trials):
        return False
    if last.file and last.quickest:
        return overload.transfers(last) >= ramp.HALF_WAY
    return ramp.binding(last.end - trials[0].start, last.moved_rate)


# --------------------------------------------------------------------------- what all trials have shown


def estimate(ladder: Ladder, verdicts: Sequence[Verdict]) -> Estimate | None:
    """Return the capacity, in bytes per second; None while it was not repeated often enough.

    It is the slope of the line through what had moved at all readings of the repeats, at most what was asked for.
    """
    trials = overload.conclusive(verdicts)
    repeats = _repeats(ladder, trials) if trials else []
    if len(repeats) < LEAST:
        return None
    return _estimate(repeats, math.inf if overload.overloaded(ladder, trials) else trials[-1].rate)


def describe_fall(ladder: Ladder, verdicts: Sequence[Verdict]) -> str:
    """Describe the fall of the link's rate during repeats (from what, to what, when); empty if it did not fall."""
    trials = overload.conclusive(verdicts)
    repeats = _counting(ladder, trials) if trials else []
    cut = changed(_rates(repeats))
    if not cut or (before := slope(_runs(repeats[:cut]))) < (after := slope(_runs(repeats[cut:]))):
        return ""
    high, low = units.format_rate(before), units.format_rate(after)
    return f"it fell from {high} to {low} at about {repeats[cut - 1].trial.end:%H:%M:%SZ}"


def at_least(verdicts: Sequence[Verdict]) -> float | None:
    """Return a lower bound of the capacity, in bytes per second: the most that moved of what a trial asked for.

    A trial that was too much counts, too, unless transfers failed.
    """
    conclusive = [trial for trial in overload.conclusive(verdicts) if not overload.failing(trial)]
    return max((min(trial.rate, trial.moved_rate) for trial in conclusive), default=None)


def held(ladder: Ladder, verdicts: Sequence[Verdict], capacity: float) -> Cause | None:
    """Return what held the repeats of a capacity, if less moved than asked for, as not all was injected."""
    trials = overload.conclusive(verdicts)
    last, hold = trials[-1], trials[-1].hold
    if overload.overloaded(ladder, trials) or _takes_all(last, capacity) or hold is None or not last.held:
        return None
    if (Trait.LINK | Trait.NO_LIMIT) & hold.traits:
        return None
    moved = units.format_rate(capacity)
    words = f"of {units.format_rate(last.rate)} only {moved} moved, and {last.held}"
    return Cause(str(hold), words)


def _takes_all(last: Verdict, capacity: float) -> bool:
    return capacity >= overload.TAKES_ALL * last.rate


def reason(ladder: Ladder, verdicts: Sequence[Verdict], capacity: float) -> tuple[str, Cause | None]:
    """Return why a link carries no more than the capacity that was found."""
    trials = overload.conclusive(verdicts)
    last, run = trials[-1], overload.overloaded(ladder, trials)
    above = [trial for trial in trials if not trial.good and trial.rate > last.rate]
    if run or (not above and not _takes_all(last, capacity)):
        asked = last.rate if last.rate > capacity else max(trial.rate for trial in run or [last])
        moved, waiting = units.format_rate(capacity), units.format_size(last.waiting)
        words = f"of {units.format_rate(asked)} only {moved} moved, and {waiting} are on their way"
        if overload.transfers(last) >= ramp.HALF_WAY:
            words += "; FTS may carry more once it runs more transfers"
        if fell := describe_fall(ladder, trials):
            words += f"; {fell}"
        return words, Cause("saturated", words)
    if above:
        bad = min(above, key=lambda trial: trial.rate)
        crowded = next((trial for trial in trials if overload.failing(trial)), None)
        more = (
            f"; where much waits, transfers fail ({describe(crowded)})"
            if crowded and not overload.failing(bad)
            else ""
        )
        return f"{describe(bad)}{more}", bad.cause
    return "it can carry at least the highest rate that was tried", None


def describe(verdict: Verdict) -> str:
    """Describe a trial or step that was not reached."""
    return f"at {units.format_rate(verdict.rate)} {verdict.why}"
