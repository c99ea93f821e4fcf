"""Climbing: a link is found within a step of its capacity, whatever that is, and failures never raise it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dc_inject.model import Held, Hold
from dc_inject.planning import saturation
from dc_inject.planning.saturation import REPEATS, Ladder, Next, NextStep, Progress, Step
from dc_inject.planning.verdict import Cause, Reading, StepOutcome, Verdict, judge
from tests.engine.world import START

MINUTE = timedelta(minutes=1)
GB = 10**9
LADDER = Ladder(3 * GB, 30 * MINUTE, 1 * GB, 10 * GB, saturate=True)


class Link:
    """A link of a capacity and a time to completion that fails a part; what is too much waits in a queue."""

    def __init__(self, capacity: float, completion: timedelta = 3 * MINUTE, failing: float = 0.0) -> None:
        self.capacity, self.completion, self.failing = capacity, completion, failing
        self.given = self.moved = self.failed = self.queue = 0.0

    def minute(self, rate: float) -> None:
        self.given += 60 * rate
        self.queue += 60 * rate
        done = min(self.queue, 60 * self.capacity)
        self.queue -= done
        self.moved += done * (1 - self.failing)
        self.failed += done * self.failing

    def reading(self, at) -> Reading:
        known = self.completion if self.moved else None
        return Reading(at, round(self.moved), round(self.given), round(self.failed), known)


def climbed(ladder: Ladder, link: Link, every: int = 5) -> list[Verdict]:
    """Climb a simulated link with a reading every few minutes; returns all verdicts."""
    rate, now, verdicts = ladder.first, START, []
    readings = [link.reading(now)]
    for minute in range(1, 100_000):
        now = START + minute * MINUTE
        link.minute(rate)
        if minute % every:
            continue
        readings.append(link.reading(now))
        step = Step(rate, tuple(readings))
        if step.over(ladder):
            verdicts.append(judge(step.rate, step.readings))
            decision = saturation.after(ladder, verdicts)
            if decision.what is Next.STOP:
                return verdicts
            rate, readings = decision.rate, readings[-1:]
    raise AssertionError("it never ends")


rates = st.floats(0.2, 20)


@given(rates, rates, st.floats(0.3, 3), st.integers(1, 40))
def test_a_link_is_found_within_a_step_of_its_capacity(capacity, first, step, minutes):
    """Or it takes the most that was to be tried, or not even the least."""
    ladder = Ladder(first * GB, 30 * MINUTE, step * GB, 25 * GB, saturate=True)
    verdicts = climbed(ladder, Link(capacity * GB, minutes * MINUTE))
    found = saturation.stands(verdicts)
    if found is None:
        assert capacity < step
        return
    assert found <= capacity * GB * 1.001 + 1
    assert found > min(capacity, 25) * GB - step * GB - 1
    assert all(one.rate <= ladder.highest for one in verdicts)


@given(rates, st.floats(0, 1), st.floats(0, 1))
@example(20, 0.0, 0.08)  # what still moves would be enough
def test_failing_never_raises_what_is_found(capacity, less, more):
    less, more = sorted((less, more))
    found = [saturation.stands(climbed(LADDER, Link(capacity * GB, failing=part))) or 0 for part in (less, more)]
    assert found[1] <= found[0] * 1.001
    if more > 0.06:
        assert found[1] == 0


@given(rates)
def test_after_a_bad_step_no_higher_one_is_tried(capacity):
    verdicts = climbed(LADDER, Link(capacity * GB))
    bad = [number for number, one in enumerate(verdicts) if not one.good]
    if bad:
        later = verdicts[bad[0] :]
        assert [one.rate for one in later] == sorted((one.rate for one in later), reverse=True)
        assert all(one.rate < verdicts[bad[0]].rate for one in later[1:])


@pytest.mark.parametrize(
    ("known", "minutes", "over"),
    [
        (None, 30, False),
        (None, 119, False),
        (None, 120, True),
        (10, 29, False),
        (10, 30, True),
        (40, 79, False),
        (40, 80, True),
    ],
)
def test_a_step_lasts_twice_the_time_to_completion(known, minutes, over):
    """And where that is not known at its begin, as the first one tells, but not for ever."""
    completion = known and known * MINUTE
    step = Step(GB, (Reading(START, completion=completion), Reading(START + minutes * MINUTE)))
    assert step.over(LADDER) is over
    assert step.over(replace(LADDER, saturate=False)) is (minutes >= 30)


def test_the_first_step_is_not_kept_waiting_by_a_queue_that_grows():
    readings = (Reading(START), Reading(START + 120 * MINUTE, completion=200 * MINUTE))
    assert Step(GB, readings).over(LADDER)


def test_a_step_is_judged_by_what_moved_after_the_time_to_completion():
    """What arrives in the time before was asked for in the step before."""
    readings = tuple(
        Reading(START + 10 * n * MINUTE, moved, 600 * n * GB, completion=10 * MINUTE)
        for n, moved in enumerate((0, 0, 600 * GB, 1200 * GB))
    )
    found = judge(GB, readings)
    assert (found.measured, found.asked, found.moved, found.ratio) == (readings[1].at, 1200 * GB, 1200 * GB, 1)
    assert found.good
    assert judge(GB, readings[:1]).moved == 0
    assert not judge(GB, readings[:1]).good


def made(rate, outcome=StepOutcome.REACHED, *, outage=False, moved=None):
    """A step of half an hour at a rate."""
    cause = None if outcome is StepOutcome.REACHED else Cause("api-errors" if outage else "pool-dry", "it", outage)
    asked = 1800 * rate
    half = START + 15 * MINUTE
    return Verdict(
        rate, START, half, START + 45 * MINUTE, asked, asked, asked if moved is None else moved, 0.0, None,
        outcome, cause,
    )  # fmt: skip


def test_what_was_not_asked_for_says_nothing_of_the_link():
    """The pool was dry: the climb stops, and the link takes at least what the last good step took."""
    dry = made(2 * GB, StepOutcome.INCONCLUSIVE)
    assert saturation.after(LADDER, [made(GB), dry]) == NextStep(Next.STOP)
    told = saturation.conclusion(LADDER, [made(GB), dry])
    assert (told.outcome, told.stands, told.cause and told.cause.code) == ("inconclusive", GB, "pool-dry")


def test_what_an_outage_has_spoilt_is_repeated_but_not_for_ever():
    spoilt = made(2 * GB, StepOutcome.INCONCLUSIVE, outage=True)
    verdicts = [made(GB)]
    for _ in range(REPEATS):
        verdicts.append(spoilt)
        assert saturation.after(LADDER, verdicts) == NextStep(Next.REPEAT, 2 * GB)
    assert saturation.after(LADDER, [*verdicts, spoilt]) == NextStep(Next.STOP)
    assert saturation.after(LADDER, [spoilt], 29 * MINUTE) == NextStep(Next.STOP)
    assert saturation.after(LADDER, [*verdicts, made(2 * GB)]) == NextStep(Next.UP, 3 * GB)


def test_a_repetition_takes_no_time_from_steps_that_are_to_come():
    ladder = Ladder(GB, 30 * MINUTE, GB, 3 * GB)
    spoilt = made(GB, StepOutcome.INCONCLUSIVE, outage=True)
    assert saturation.after(ladder, [spoilt], 60 * MINUTE) == NextStep(Next.UP, 2 * GB)
    assert saturation.after(ladder, [spoilt], 90 * MINUTE) == NextStep(Next.REPEAT, GB)


def test_a_step_that_was_repeated_counts_by_its_repetition():
    ladder = Ladder(GB, 30 * MINUTE)
    spoilt = made(GB, StepOutcome.INCONCLUSIVE, outage=True)
    repeat = [NextStep(Next.REPEAT, GB), NextStep(Next.STOP)]
    assert saturation.conclusion(ladder, [spoilt, made(GB)], repeat).outcome is StepOutcome.REACHED
    assert saturation.conclusion(ladder, [spoilt], repeat[1:]).outcome is StepOutcome.INCONCLUSIVE
    bad = made(GB, StepOutcome.NOT_REACHED)
    assert saturation.conclusion(ladder, [spoilt, bad], repeat).outcome is StepOutcome.NOT_REACHED


@pytest.mark.parametrize(
    ("verdicts", "outcome", "stands"),
    [
        ([made(GB), made(2 * GB, StepOutcome.NOT_REACHED), made(GB)], StepOutcome.REACHED, GB),
        ([made(GB), made(10 * GB)], StepOutcome.REACHED, 10 * GB),
        ([made(GB, StepOutcome.NOT_REACHED)], StepOutcome.NOT_REACHED, None),
        ([made(GB), made(2 * GB)], StepOutcome.INCONCLUSIVE, 2 * GB),
        ([made(GB), made(2 * GB, StepOutcome.NOT_REACHED)], StepOutcome.INCONCLUSIVE, GB),
        ([made(GB, StepOutcome.INCONCLUSIVE, outage=True)], StepOutcome.INCONCLUSIVE, None),
        ([], StepOutcome.INCONCLUSIVE, None),
    ],
)
def test_where_a_link_stands_is_known_or_not(verdicts, outcome, stands):
    """Known where a step was reached and the next was not, or the most was; else it takes at least so much."""
    told = saturation.conclusion(LADDER, verdicts)
    assert (told.outcome, told.stands) == (outcome, stands)


def readings_of(*holds, injected=0):
    return tuple(
        Reading(START + n * MINUTE, injected=n * injected, held=Held(hold) if hold else None)
        for n, hold in enumerate((None, *holds))
    )


@pytest.mark.parametrize(
    ("readings", "idle"),
    [
        (readings_of(Hold.POOL_DRY), False),
        (readings_of(Hold.POOL_DRY, Hold.POOL_DRY), True),
        (readings_of(Hold.POOL_DRY, Hold.POOL_DRY, injected=1), False),
        (readings_of(Hold.POOL_DRY, None), False),
        (readings_of(Hold.BACKLOG, Hold.BACKLOG), False),
        (readings_of(Hold.PAUSED, Hold.PAUSED), False),
        (readings_of(Hold.API_ERRORS, Hold.API_ERRORS), False),
    ],
)
def test_a_step_in_which_nothing_can_be_injected_is_soon_known(readings, idle):
    """Nobody has to wait two hours for it; a pause is somebody's will, and an outage may be over soon."""
    assert Step(GB, readings).idle is idle


def test_the_reason_of_a_step_is_that_of_most_of_its_cycles():
    dry, full = Hold.POOL_DRY, Hold.DESTINATION_FULL
    assert judge(GB, readings_of(dry, dry, full)).hold is dry
    assert judge(GB, readings_of(dry, full)).hold is full
    assert judge(GB, readings_of(None, None)).hold is None
    assert judge(GB, readings_of(Hold.TOO_COARSE, Hold.TOO_COARSE, full)).hold is full, "too-coarse hides no other"


def test_fixed_steps_go_up_whatever_comes_and_stay_at_the_highest():
    ladder = Ladder(GB, 30 * MINUTE, 2 * GB, 4 * GB)
    bad = made(GB, StepOutcome.NOT_REACHED)
    assert saturation.after(ladder, [bad]) == NextStep(Next.UP, 3 * GB)
    assert saturation.after(ladder, [replace(bad, rate=3 * GB)]) == NextStep(Next.UP, 4 * GB)
    assert saturation.after(ladder, [replace(bad, rate=4 * GB)]) == NextStep(Next.SAME, 4 * GB)
    told = saturation.conclusion(ladder, [bad])
    assert told.outcome is StepOutcome.NOT_REACHED
    assert told.reason.startswith("1 of 1 step not reached: at 8 Gb/s")


def test_a_step_of_which_nothing_was_read_is_not_left_out():
    """Killed just after a step has begun: that the one before was reached says nothing of it."""
    ladder = Ladder(GB, 10 * MINUTE, GB, 2 * GB)
    some = Progress(ladder, START + 20 * MINUTE)
    some.take(Reading(START))
    some.take(Reading(START + 10 * MINUTE, 600 * GB, 600 * GB))
    some.stopped(some.step.readings[-1])
    told = saturation.conclusion(ladder, some.verdicts, some.decisions)
    assert (told.outcome, told.cause.code) == (StepOutcome.INCONCLUSIVE, "ended-early")
    some.resume(START + 60 * MINUTE)
    told = saturation.conclusion(ladder, some.verdicts, some.decisions)
    assert told.outcome is StepOutcome.INCONCLUSIVE, "it is to be repeated, and has not been yet"


def test_a_step_at_the_end_of_all_time_is_not_early():
    """However short the rest was."""
    some = Progress(Ladder(GB, 10 * MINUTE, GB, 2 * GB), START + 5 * MINUTE)
    some.take(Reading(START))
    some.stopped(Reading(START + 5 * MINUTE, 300 * GB, 300 * GB))
    assert [one.outcome for one in some.verdicts] == [StepOutcome.REACHED]


def test_who_goes_on_begins_the_step_anew():
    """What happened between two processes is in no step, and what was judged early is not counted."""
    moments = [Reading(START + n * 10 * MINUTE, n * 600 * GB, n * 600 * GB) for n in range(8)]
    ladder = replace(LADDER, first=GB, saturate=False)
    some = Progress(ladder, START + 300 * MINUTE)
    for one in moments[:3]:
        some.take(one)
    some.stopped(moments[3])
    assert [one.cause and one.cause.code for one in some.verdicts] == [None], "it was over just then"
    some = Progress(ladder, START + 300 * MINUTE)
    for one in moments[:2]:
        some.take(one)
    some.stopped(moments[2])
    assert [one.cause and one.cause.code for one in some.verdicts] == ["ended-early"]
    some.resume(START + 600 * MINUTE)
    assert [one.what for one in some.decisions] == [Next.REPEAT]
    some.take(replace(moments[4], fresh=True))
    assert some.step is not None
    assert (some.rate, len(some.step.readings)) == (GB, 1)
    for one in moments[5:]:
        some.take(one)
    assert [one.good for one in some.verdicts] == [False, True]
    assert saturation.conclusion(ladder, some.verdicts, some.decisions).outcome is StepOutcome.REACHED
