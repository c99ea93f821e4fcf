"""The search: a link's capacity is found within 5 %, in a third of the time that steps up and back took."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dc_inject.apps.link.judging import overload, saturation
from dc_inject.apps.link.judging import progress as progress_module
from dc_inject.apps.link.judging.progress import conclusion
from dc_inject.apps.link.judging.reading import Reading
from dc_inject.apps.link.judging.steps import REPEATS, Ladder, Next, NextStep
from dc_inject.apps.link.judging.verdict import Cause, StepOutcome, Verdict
from tests.apps.link.simulated_link import CYCLE, GB, LADDER, MINUTE, Link, found, searched
from tests.engine.world import START

calm = settings(deadline=None, derandomize=True)
rates = st.floats(1, 20)


class Files(Link):
    """A link whose files are known: FTS may run too few transfers for it."""

    def reading(self, at) -> Reading:
        return replace(super().reading(at), file=3 * GB)


@pytest.mark.parametrize("capacity", [9, 17.5])
@pytest.mark.parametrize("link", [Link, Files])
def test_what_takes_an_hour_to_complete_is_found_and_waits_for_a_step_more_at_most(link, capacity):
    """Also where the most that is to be tried lets hardly more wait: then no queue is waited for."""
    progress = searched(LADDER, link(capacity * GB, 60 * MINUTE))
    assert found(progress).capacity == pytest.approx(capacity * GB, rel=0.05)
    assert len(progress.verdicts) <= 12
    most = max(one.waiting for one in progress.verdicts)
    assert most <= capacity * GB * (60 + 1.5 * 30 + 20) * 60


def steps_of_before(ladder: Ladder, capacity: float, completion: timedelta) -> timedelta:
    """How long the steps took that this search replaces: up by a step until less than 90 % moved, then back."""
    rate, count = ladder.first, 1
    while capacity >= 0.9 * rate and rate < ladder.highest:
        rate, count = min(rate + ladder.step, ladder.highest), count + 1
    while capacity < 0.9 * rate and rate > ladder.step:
        rate, count = rate - ladder.step, count + 1
    return count * max(ladder.every, 2 * completion)


@given(rates, st.floats(0.5, 3), st.sampled_from([0, 1, 2, 5, 15]))
@calm
def test_a_steady_link_is_found_within_five_percent(capacity, step, minutes):
    """Or it takes the most that was to be tried."""
    ladder = replace(LADDER, step=step * GB)
    told = found(searched(ladder, Link(capacity * GB, minutes * MINUTE)))
    assert told.outcome is StepOutcome.REACHED
    assert told.capacity == pytest.approx(min(capacity * GB, ladder.highest), rel=0.05)


@pytest.mark.parametrize("completion", [1, 3])
def test_noisy_links_are_found_within_five_percent_in_a_third_of_the_time(completion):
    """A hundred searches, of links whose throughput varies by 5 % from minute to minute.

    Against the steps that this search replaces, of the same options, which found a link within a step.
    """
    before, took, errors, inside = timedelta(0), timedelta(0), [], 0
    for seed in range(100):
        draw = random.Random(seed)
        ladder = replace(LADDER, first=2.5 * GB, step=1.25 * GB, highest=12.5 * GB)
        capacity = draw.uniform(1.5, 14) * GB
        progress = searched(ladder, Link(capacity, completion * MINUTE, noise=0.05, seed=seed))
        told, true = found(progress), min(capacity, ladder.highest)
        assert told.outcome is StepOutcome.REACHED, told
        errors.append(abs(told.capacity / true - 1))
        low, high = told.interval
        inside += low <= true <= high * (1 + 1e-6)
        took += progress.over - START
        before += steps_of_before(ladder, capacity, completion * MINUTE + CYCLE)
    assert 3 * took <= before
    assert max(errors) <= 0.05
    assert inside >= 88


@given(rates, st.floats(0, 1), st.floats(0, 1))
@example(20, 0.0, 0.08)  # what still moves would be enough
@calm
def test_failing_never_raises_what_is_found(capacity, less, more):
    """And more than a twentieth that fails is no capacity."""
    less, more = sorted((less, more))
    stands = [found(searched(LADDER, Link(capacity * GB, failing=part))).capacity or 0 for part in (less, more)]
    assert stands[1] <= stands[0] * 1.001
    if more > 0.06:
        assert stands[1] == 0


class Fails(Link):
    """A link on which half fails above a rate, as storages do with too many connections."""

    def cycle(self, rate):
        self.failing = 0.5 if rate > self.capacity else 0.0
        good, self.capacity = self.capacity, 1000 * GB
        super().cycle(rate)
        self.capacity = good


@pytest.mark.parametrize("capacity", [3, 7.7, 15])
def test_a_rate_from_which_on_transfers_fail_is_found_by_bisection(capacity):
    """What moves then says nothing of where that is."""
    told = found(searched(LADDER, Fails(capacity * GB)))
    assert told.outcome is StepOutcome.REACHED
    assert told.capacity == pytest.approx(capacity * GB, rel=0.05)
    assert told.capacity <= capacity * GB
    assert told.cause.code == "failing"


@pytest.mark.parametrize("capacity", [4, 9.3])
def test_a_search_ends_with_trials_at_one_rate(capacity):
    """And it goes up by twice as much each time, no further than one trial that is too much."""
    progress = searched(LADDER, Link(capacity * GB))
    done = [decision.kind for decision in progress.decisions]
    assert done[-4:] == [Next.CONFIRM] * 3 + [Next.STOP]
    assert len({one.rate for one in progress.verdicts[-4:]}) == 1
    assert saturation.up(LADDER) == [2 * GB, 3 * GB, 5 * GB, 9 * GB, 17 * GB, 20 * GB]
    tried = [one.rate for one in progress.verdicts if one.rate in saturation.up(LADDER)]
    assert tried == saturation.up(LADDER)[: len(tried)]
    assert sum(rate > capacity * GB / 0.9 for rate in tried) == 1
    assert found(progress).cause.code == "saturated"


def made(rate, moved=1.0, outcome=None, *, cause=None, outage=False, start=0, minutes=3):
    """A trial of a rate (GB/s) in which a part of it moved."""
    begin = START + start * MINUTE
    seconds = minutes * 60
    if outcome is None:
        outcome = StepOutcome.REACHED if moved >= 0.9 else StepOutcome.NOT_REACHED
    known = None if outcome is StepOutcome.REACHED else Cause(cause or "saturated", "it", outage)
    return Verdict(
        rate * GB, begin, begin, begin + minutes * MINUTE, rate * GB * seconds, round(rate * GB * seconds),
        round(rate * moved * GB * seconds), 0.0, None, outcome, known,
    )  # fmt: skip


def test_a_trial_on_the_way_up_ends_as_soon_as_it_moves_what_it_asks_for():
    """After a third of its time; one that does not move it takes all of that, and so do those that count."""
    progress = searched(LADDER, Link(9.3 * GB))
    lasted = [(one.rate / GB, one.good, (one.end - one.measured) / MINUTE) for one in progress.verdicts]
    assert lasted[1:5] == [(3, True, 2), (5, True, 2), (9, True, 2), (17, False, 6)]
    assert {minutes for _, _, minutes in lasted[5:]} == {6}


@pytest.mark.parametrize(
    ("trial", "dataset", "ends"),
    [
        (made(4, 0.9, minutes=2), 0, True),
        (made(4, 0.9, minutes=1), 0, False),
        (made(4, 0.89, minutes=2), 0, False),
        (made(20, 1.0, minutes=2), 0, False),  # the most that is to be tried is not on the way to anything
        (made(4, 0.9, minutes=2), 144 * GB, True),  # ten datasets in six minutes
        (made(4, 0.9, minutes=2), 145 * GB, False),
        (made(4, 0.9, minutes=5), 300 * GB, True),  # ten datasets in 12.5 minutes
        (made(4, 0.9, minutes=4), 300 * GB, False),
    ],
)
def test_what_a_link_follows_is_known_after_a_third_of_a_trial_or_of_ten_datasets(trial, dataset, ends):
    assert saturation.follows(LADDER, trial, dataset) is ends


def test_where_transfers_fail_no_trial_is_shorter():
    """What is reached there is a bound of the search, and no step on the way up."""
    progress = searched(LADDER, Fails(7.7 * GB))
    first = next(place for place, one in enumerate(progress.verdicts) if overload.failing(one))
    assert {(one.end - one.measured) / MINUTE for one in progress.verdicts[first:]} == {6}


def test_without_a_step_the_second_trial_asks_for_twice_as_much():
    assert saturation.up(replace(LADDER, step=0.0)) == [2 * GB, 4 * GB, 8 * GB, 16 * GB, 20 * GB]
    assert saturation.up(replace(LADDER, highest=2.5 * GB)) == [2 * GB, 2.5 * GB]


def test_a_trial_lasts_as_long_as_datasets_and_completions_need():
    """Repeats have no new rate to wait for; what never completes is waited for, but not for ever."""
    lasts = [Reading(START), Reading(START + 6 * MINUTE)]
    longer = [Reading(START), Reading(START + 11 * MINUTE)]
    assert saturation.over(LADDER, GB, lasts, timedelta(0))
    assert not saturation.over(LADDER, GB, lasts, 5 * MINUTE)
    assert saturation.over(LADDER, GB, longer, 5 * MINUTE)
    assert not saturation.over(LADDER, GB, [Reading(START), Reading(START + 119 * MINUTE)], None)
    assert saturation.over(LADDER, GB, [Reading(START), Reading(START + 120 * MINUTE)], None)
    assert saturation.window(LADDER, GB, 0) == 6 * MINUTE
    assert saturation.window(LADDER, GB, 60 * GB) == 10 * MINUTE
    assert saturation.window(LADDER, GB, 6000 * GB) == 30 * MINUTE


def in_a_row(verdicts, start=0):
    """Each begins where the one before has ended."""
    lasts = [(START + (start + 3 * place) * MINUTE, 3 * MINUTE) for place in range(len(verdicts))]
    return [
        replace(one, start=begin, measured=begin, end=begin + long)
        for one, (begin, long) in zip(verdicts, lasts, strict=True)
    ]


REPEATED = [made(4, 0.95)] * 4
DRY = made(4, 0.3, StepOutcome.INCONCLUSIVE, cause="pool-dry")


@pytest.mark.parametrize(
    ("verdicts", "outcome", "capacity"),
    [
        ([made(2), made(5, 0.8), *REPEATED], StepOutcome.REACHED, 3.8),
        ([made(2), *[made(20)] * 5], StepOutcome.REACHED, 20),
        ([made(2), made(5, 0.8), *REPEATED[1:]], StepOutcome.INCONCLUSIVE, 4),  # no time for the last repeat
        ([made(2), made(5, 0.6)], StepOutcome.INCONCLUSIVE, 3),
        ([made(2), made(5, 0.8, cause="failing")], StepOutcome.INCONCLUSIVE, 2),
        ([made(2), made(3)], StepOutcome.INCONCLUSIVE, 3),
        ([made(2), DRY], StepOutcome.INCONCLUSIVE, 2),
        ([made(2, 0.3), made(0.6, 0.5)], StepOutcome.NOT_REACHED, None),
        ([DRY], StepOutcome.INCONCLUSIVE, None),
        ([], StepOutcome.INCONCLUSIVE, None),
    ],
)
def test_the_capacity_is_known_or_not(verdicts, outcome, capacity):
    """Known after four repeats; else at least what moved in the best trial in which little failed."""
    told = conclusion(LADDER, in_a_row(verdicts))
    assert told.outcome is outcome
    assert told.capacity == (None if capacity is None else pytest.approx(capacity * GB))
    assert (told.interval is not None) == (outcome is StepOutcome.REACHED)


def test_a_search_that_had_no_time_to_repeat_the_highest_rate_says_so(wording):
    told = conclusion(LADDER, in_a_row([made(2), made(20)]))
    assert told.cause.code == "time"
    wording(told.reason)


def test_of_a_capacity_that_falls_and_is_not_repeated_is_told_that_there_was_no_time(wording):
    repeats = [replace(made(10, part), waiting=9000 * GB) for part in (0.95, 0.95, 0.95, 0.5, 0.5)]
    told = conclusion(LADDER, in_a_row([made(2), replace(made(12, 0.8), waiting=9000 * GB), *repeats]))
    assert (told.outcome, told.cause.code) == (StepOutcome.INCONCLUSIVE, "time")
    wording(told.reason)


@pytest.mark.parametrize(("part", "drained"), [(0.98, False), (0.99, True)])
def test_an_overload_is_over_when_all_that_was_asked_for_has_arrived(part, drained):
    """Of both trials together, nearly: 8 GB/s were asked for."""
    run = in_a_row([made(5, 0.8), made(3, (8 * part - 4) / 3)])
    assert (overload.overloaded(LADDER, run) == []) == drained


@pytest.mark.parametrize(
    ("waiting", "file", "rate"),
    [
        (0, 0, 1.06 * 4 + 1.2 * 1.7 * 4 / 6),
        (4 * 60, 0, 1.06 * 4 + (1.2 * 1.7 - 1) * 4 / 6),
        (2 * 4 * 60, 0, 1.06 * 4 + 0.04 * 4 / 6),
        (3 * 4 * 60, 0, 4),  # more than shall
        (0, 3, 1.06 * 4 + 1.2 * 3 * 4 / 6),  # 80 transfers
        (0, 4, 1.06 * 4 + 1.2 * 1.7 * 4 / 6),  # 60: FTS begins with more
        (-2000, 0, 2.06 * 4),
    ],
)
def test_an_overloaded_link_is_asked_for_what_moves_and_for_what_does_not_wait_yet(waiting, file, rate):
    """Within a trial of six minutes, of a link that moves 4 GB/s and always has a minute of that on its way."""
    last = replace(made(9, 4 / 9), waiting=waiting * GB, file=file * GB, quickest=MINUTE)
    following = after(in_a_row([made(2), last]))
    assert following.rate == pytest.approx(rate * GB, rel=0.01)
    assert following.why == ("FTS still ramping" if file == 3 else "")


def test_an_overload_was_none_if_most_of_it_moved_afterwards():
    assert overload.overloaded(LADDER, in_a_row([made(5, 0.8), made(5, 0.95)])) == []
    assert len(overload.overloaded(LADDER, in_a_row([made(5, 0.8), made(5, 0.85)]))) == 2


def test_where_enough_waits_an_overload_goes_on_though_most_of_it_moves_in_one_trial():
    """In the next one less may: what starts together arrives together."""
    waits = {"waiting": 500 * GB, "quickest": MINUTE}
    run = in_a_row([replace(made(5, part), **waits) for part in (0.8, 0.95, 0.95)])
    assert len(overload.overloaded(LADDER, run[:2])) == 2
    assert overload.overloaded(LADDER, [run[0], replace(run[1], waiting=400 * GB)]) == []
    assert overload.overloaded(LADDER, run) == []


@pytest.mark.parametrize(
    ("parts", "transfers", "goes_on"),
    [
        ([0.95] * 3, 0, True),
        ([0.95] * 4, 0, False),
        ([0.8, 1.1] * 2, 0, True),
        ([0.8, 1.1] * 3, 0, False),
        ([0.95] * 4, 80, False),
        ([0.93, 0.94, 0.95, 0.96], 80, True),  # FTS may have grown
        ([1.05, 1.0, 0.9, 0.95], 80, True),
        ([1.05, 1.0, 0.9, 0.95], 0, False),
        ([0.93, 0.94, 0.95, 0.96, 0.97, 0.98], 80, False),
    ],
)
def test_there_are_four_repeats_or_more_where_they_differ_or_fts_may_be_growing(parts, transfers, goes_on):
    file = round(4 * 60 * GB / transfers) if transfers else 0
    repeats = [made(4, part) for part in parts]
    waiting = (800 if transfers else 450) * GB
    trials = [replace(one, waiting=waiting, file=file, quickest=MINUTE) for one in [made(5, 0.8), *repeats]]
    decision = after(in_a_row([made(2), *trials]))
    assert decision.kind is (Next.CONFIRM if goes_on else Next.STOP)


@pytest.mark.parametrize(
    ("rate", "part", "counts"), [(20, 0.88, True), (20, 0.5, False), (19, 0.88, False), (20, 0.86, False)]
)
def test_where_the_most_is_hardly_too_much_no_queue_is_waited_for(rate, part, counts):
    """The most that is to be tried is 20 GB/s; next to nothing waits."""
    trials = [replace(made(rate, part), waiting=GB, quickest=MINUTE)] * 9
    estimated = saturation.estimate(LADDER, in_a_row([made(2), *trials]))
    assert (estimated and estimated.repeats) == (6 if counts else None)


def test_where_more_waits_than_has_to_what_moves_is_asked_for(wording):
    """At the same rate, where that is near enough; and however long that goes on, the link stays overloaded."""
    much = {"waiting": 1000 * GB, "quickest": MINUTE}
    run = in_a_row([made(2), replace(made(5, 0.8), **much), *[replace(made(4, 1.01), **much)] * 20])
    assert after(run[:2]).rate == pytest.approx(4 * GB)
    assert after(run[:3]) == NextStep(Next.CONFIRM, 4 * GB)
    assert len(overload.overloaded(LADDER, run)) == 21
    told = conclusion(LADDER, run)
    assert told.capacity == pytest.approx(4.04 * GB)
    wording(told.reason)
    drained = [*run[:-1], replace(run[-1], waiting=300 * GB)]
    assert overload.overloaded(LADDER, drained) == []


def test_a_link_stands_at_the_slope_through_all_readings_of_its_repeats():
    """What arrives late at the end changes little: between the first and the last reading 3.85 GB/s moved."""
    steady = tuple((60.0 * minute, 240.0 * GB * minute) for minute in (1, 2, 3))
    late = (*steady[:-1], (180.0, 612.0 * GB))
    repeats = [replace(made(4), counts=steady)] * 3 + [replace(made(4, 0.85), counts=late)]
    enough = [replace(one, waiting=450 * GB, quickest=MINUTE) for one in [made(5, 0.8), *repeats]]
    told = saturation.estimate(LADDER, in_a_row([made(2), *enough]))
    assert told.mean == pytest.approx((4 - 108 * 6 / (182 * 60)) * GB)
    assert told.interval[0] < 3.85 * GB


def test_where_much_waits_and_hardly_anything_moves_the_lowest_rate_is_asked_for():
    """It is no reason to give up: what waits may be why."""
    crowded = replace(made(9, 0.02), waiting=5000 * GB, quickest=MINUTE)
    assert after(in_a_row([made(2), made(3), made(5), crowded])) == NextStep(Next.BETWEEN, 0.5 * GB)


def test_no_more_than_the_most_is_asked_for_however_little_waits():
    last = replace(made(19, 15 / 19), quickest=MINUTE)
    assert after(in_a_row([made(2), last])).rate == LADDER.highest


def test_what_moved_before_fts_grew_does_not_count():
    """Of ten trials the last six, and of these not the first two."""
    parts = [0.6] * 6 + [0.9] * 4
    trials = [replace(made(4.2, part), waiting=1000 * GB, file=GB, quickest=MINUTE) for part in parts]
    told = saturation.estimate(LADDER, in_a_row([made(7, 0.4), *trials]))
    assert (told.repeats, told.mean) == (4, pytest.approx(0.9 * 4.2 * GB))


def test_a_link_that_takes_the_most_stands_there_though_more_arrives_late():
    """And four repeats are enough: nothing tells that FTS was too small."""
    trials = in_a_row([made(2), *[replace(made(20, 1.1), file=GB, quickest=MINUTE)] * 5])
    assert after(trials).kind is Next.STOP
    assert saturation.estimate(LADDER, trials).mean == pytest.approx(20 * GB)


def test_what_moved_right_after_a_stop_is_not_where_an_overloaded_link_stands():
    """What waited was cancelled: the link had no more to move than it was asked for."""
    before = in_a_row([made(2), made(5, 0.8), *REPEATED[:3]])
    again = in_a_row(REPEATED, start=100)
    assert after(before).kind is Next.CONFIRM
    assert saturation.estimate(LADDER, [*before, *again[:1]]) is None
    assert saturation.estimate(LADDER, [*before, *again[:2]]).repeats == 4


def test_what_an_outage_has_spoilt_is_repeated_but_not_for_ever():
    spoilt = made(3, 0.5, StepOutcome.INCONCLUSIVE, cause="api-errors", outage=True)
    verdicts = [made(2)]
    for _ in range(REPEATS):
        verdicts.append(spoilt)
        assert after(verdicts) == NextStep(Next.REPEAT, 3 * GB)
    assert after([*verdicts, spoilt]) == NextStep(Next.STOP)
    assert after([spoilt], 2 * MINUTE) == NextStep(Next.STOP)
    assert after([*verdicts, made(3)]) == NextStep(Next.UP, 5 * GB)


def after(verdicts, left=timedelta.max):
    return progress_module._after(LADDER, verdicts, left)


def test_a_link_that_never_settles_is_given_up():
    verdicts = [made(2), *[made(4, 0.5), made(3, 1.7)] * 20]
    told = conclusion(LADDER, verdicts)
    assert (told.outcome, told.cause.code) == (StepOutcome.INCONCLUSIVE, "unsteady")


def test_a_trial_that_a_later_one_exceeds_counts_no_longer():
    """Then the search goes up again, to more than that: a little too much would drain once more."""
    verdicts = [made(2), made(5, 0.6), made(3.18, 1.3), made(4, 1.4)]
    assert after(verdicts[:3]).kind is Next.BETWEEN
    assert after(verdicts) == NextStep(Next.UP, 9 * GB)
