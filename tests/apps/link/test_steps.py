"""Steps: what each has shown, what comes after it, and what all have shown together."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.apps.link.judging import steps
from dc_inject.apps.link.judging.progress import Progress, Step, conclusion
from dc_inject.apps.link.judging.reading import Reading
from dc_inject.apps.link.judging.steps import Ladder, Next, NextStep
from dc_inject.apps.link.judging.verdict import Cause, StepOutcome, Verdict, judge
from dc_inject.model import Held, Hold
from tests.engine.world import START

MINUTE = timedelta(minutes=1)
GB = 10**9
LADDER = Ladder(3 * GB, 30 * MINUTE, 1 * GB, 10 * GB)


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


def test_a_repetition_takes_no_time_from_steps_that_are_to_come():
    ladder = Ladder(GB, 30 * MINUTE, GB, 3 * GB)
    spoilt = made(GB, StepOutcome.INCONCLUSIVE, outage=True)
    assert steps.after(ladder, [spoilt], 60 * MINUTE) == NextStep(Next.UP, 2 * GB)
    assert steps.after(ladder, [spoilt], 90 * MINUTE) == NextStep(Next.REPEAT, GB)


def test_a_step_that_was_repeated_counts_by_its_repetition():
    ladder = Ladder(GB, 30 * MINUTE)
    spoilt = made(GB, StepOutcome.INCONCLUSIVE, outage=True)
    repeat = [NextStep(Next.REPEAT, GB), NextStep(Next.STOP)]
    assert conclusion(ladder, [spoilt, made(GB)], repeat).outcome is StepOutcome.REACHED
    assert conclusion(ladder, [spoilt], repeat[1:]).outcome is StepOutcome.INCONCLUSIVE
    bad = made(GB, StepOutcome.NOT_REACHED)
    assert conclusion(ladder, [spoilt, bad], repeat).outcome is StepOutcome.NOT_REACHED


def readings_of(*holds, injected=0):
    return tuple(
        Reading(START + n * MINUTE, injected=n * injected, held=Held(hold) if isinstance(hold, Hold) else hold)
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
        (readings_of(*2 * [Held(Hold.TOO_COARSE, {"smallest": 1199 * GB})]), False),
        (readings_of(*2 * [Held(Hold.TOO_COARSE, {"smallest": 1201 * GB})]), True),
    ],
)
def test_a_step_in_which_nothing_can_be_injected_is_soon_known(readings, idle):
    """Nobody has to wait two hours for it; a pause is somebody's will, and an outage may be over soon.

    A dataset goes out once half of it is due: at 1 GB/s, 600 GB are in 10 minutes.
    """
    assert Step(GB, readings).idle(10 * MINUTE) is idle


def test_the_reason_of_a_step_is_that_of_most_of_its_cycles():
    dry, full = Hold.POOL_DRY, Hold.DESTINATION_FULL
    assert judge(GB, readings_of(dry, dry, full)).hold is dry
    assert judge(GB, readings_of(dry, full)).hold is full
    assert judge(GB, readings_of(None, None)).hold is None
    assert judge(GB, readings_of(Hold.TOO_COARSE, Hold.TOO_COARSE, full)).hold is full, "too-coarse hides no other"


def test_fixed_steps_go_up_whatever_comes_and_stay_at_the_highest():
    ladder = Ladder(GB, 30 * MINUTE, 2 * GB, 4 * GB)
    bad = made(GB, StepOutcome.NOT_REACHED)
    assert steps.after(ladder, [bad]) == NextStep(Next.UP, 3 * GB)
    assert steps.after(ladder, [replace(bad, rate=3 * GB)]) == NextStep(Next.UP, 4 * GB)
    assert steps.after(ladder, [replace(bad, rate=4 * GB)]) == NextStep(Next.SAME, 4 * GB)
    told = conclusion(ladder, [bad])
    assert told.outcome is StepOutcome.NOT_REACHED
    assert told.reason.startswith("1 of 1 step not reached: at 8 Gb/s")


def test_a_step_of_which_nothing_was_read_is_not_left_out():
    """Killed just after a step has begun: that the one before was reached says nothing of it."""
    ladder = Ladder(GB, 10 * MINUTE, GB, 2 * GB)
    some = Progress(ladder, START + 20 * MINUTE)
    some.take(Reading(START))
    some.take(Reading(START + 10 * MINUTE, 600 * GB, 600 * GB))
    some.stopped(some.step.readings[-1])
    told = conclusion(ladder, some.verdicts, some.decisions)
    assert (told.outcome, told.cause.code) == (StepOutcome.INCONCLUSIVE, "ended-early")
    some.resume(START + 60 * MINUTE)
    told = conclusion(ladder, some.verdicts, some.decisions)
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
    ladder = replace(LADDER, first=GB)
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
    assert [one.kind for one in some.decisions] == [Next.REPEAT]
    some.take(replace(moments[4], fresh=True))
    assert some.step is not None
    assert (some.rate, len(some.step.readings)) == (GB, 1)
    for one in moments[5:]:
        some.take(one)
    assert [one.good for one in some.verdicts] == [False, True]
    assert conclusion(ladder, some.verdicts, some.decisions).outcome is StepOutcome.REACHED
