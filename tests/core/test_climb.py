"""Climbing: a link is found within a step of its capacity, whatever that is, and failures never raise it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dc_inject import climb
from dc_inject.climb import FOLLOWS, Decision, Ladder, Next, Reading, Step, Verdict
from dc_inject.model import Hold
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
            verdicts.append(climb.verdict(step))
            decision = climb.after(ladder, verdicts)
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
    found = climb.stands(verdicts)
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
    found = [climb.stands(climbed(LADDER, Link(capacity * GB, failing=part))) or 0 for part in (less, more)]
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
    found = climb.verdict(Step(GB, readings))
    assert (found.measured, found.asked, found.moved, found.ratio) == (readings[1].at, 1200 * GB, 1200 * GB, 1)
    assert found.good
    assert climb.verdict(Step(GB, readings[:1])).moved == 0
    assert not climb.verdict(Step(GB, readings[:1])).good


def test_what_was_not_asked_for_says_nothing_of_the_link():
    """The pool was dry: the climb stops, and the last good step stands."""
    moments = [START, START + 15 * MINUTE, START + 30 * MINUTE]
    good = climb.verdict(Step(GB, tuple(Reading(at, n * 900 * GB, n * 900 * GB) for n, at in enumerate(moments))))
    dry = replace(good, rate=2 * GB, asked=2 * good.asked, hold=Hold.POOL_DRY)
    assert dry.ours
    assert climb.after(LADDER, [good, dry]) == Decision(Next.STOP)
    assert climb.stands([good, dry]) == pytest.approx(GB)
    assert "pool-dry" in climb.conclusion(LADDER, [good, dry])
    backlog = replace(dry, hold=Hold.BACKLOG)
    assert not backlog.ours
    assert climb.after(LADDER, [good, backlog]) == Decision(Next.BACK, GB)


def readings_of(*holds, injected=0):
    return tuple(
        Reading(START + n * MINUTE, injected=n * injected, hold=hold) for n, hold in enumerate((None, *holds))
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
    ],
)
def test_a_step_in_which_nothing_can_be_injected_is_soon_known(readings, idle):
    """Nobody has to wait two hours for it; a pause is somebody's will."""
    assert Step(GB, readings).idle is idle


def test_the_reason_of_a_step_is_that_of_most_of_its_cycles():
    dry, full = Hold.POOL_DRY, Hold.DESTINATION_FULL
    assert climb.verdict(Step(GB, readings_of(dry, dry, full))).hold is dry
    assert climb.verdict(Step(GB, readings_of(dry, full))).hold is full
    assert climb.verdict(Step(GB, readings_of(None, None))).hold is None


def test_fixed_steps_go_up_whatever_comes_and_stay_at_the_highest():
    ladder = Ladder(GB, 30 * MINUTE, 2 * GB, 4 * GB)
    bad = Verdict(GB, START, START, START + 30 * MINUTE, 1800 * GB, 1800 * GB, 0, 0.0, None)
    assert climb.after(ladder, [bad]) == Decision(Next.UP, 3 * GB)
    assert climb.after(ladder, [replace(bad, rate=3 * GB)]) == Decision(Next.UP, 4 * GB)
    assert climb.after(ladder, [replace(bad, rate=4 * GB)]) == Decision(Next.SAME, 4 * GB)
    assert climb.conclusion(ladder, [bad]) == "missed: 1 of 1 step"
    assert bad.why == "moved does not follow"
    assert not replace(bad, moved=round(bad.asked * FOLLOWS), failed=0.06).good
