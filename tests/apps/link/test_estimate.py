"""How sure the mean of repeats is, and whether they are of one thing."""

from __future__ import annotations

import math
import random
from itertools import accumulate

import pytest

from dc_inject.apps.link.judging.estimate import changed, estimate_slope, slope
from dc_inject.model.estimates import Estimate


def test_the_interval_is_that_of_students_t():
    """Of 9, 10 and 11: 10 and 4.303 / sqrt(3)."""
    told = Estimate.of([9, 10, 11])
    assert (told.mean, told.repeats) == (pytest.approx(10), 3)
    assert told.half == pytest.approx(4.303 / math.sqrt(3), rel=1e-3)
    assert told.interval == (pytest.approx(told.mean - told.half), pytest.approx(told.mean + told.half))


def test_repeats_that_count_the_same_are_no_surer_than_they_can_count():
    """Of four in a row that count ones: 3.182 x sqrt(1 / 6) / 4; of two runs of two, twice the variance."""
    assert Estimate.of([10] * 4).half == 0
    ten = [(1, 10)]
    assert estimate_slope([[ten] * 4], 1) == Estimate(10, pytest.approx(3.182 * math.sqrt(1 / 6) / 4), 4)
    assert estimate_slope([[ten] * 2] * 2, 1).half == pytest.approx(3.182 * math.sqrt(2 / 6) / 4)
    assert estimate_slope([[ten] * 4], 0).half == 0
    assert estimate_slope([[[(1, 1)]] * 2], 10).interval[0] == 0


@pytest.mark.parametrize("repeats", [4, 6])
@pytest.mark.parametrize("in_a_row", [True, False])
def test_of_what_is_counted_as_wholes_the_interval_has_the_true_rate_in_it(repeats, in_a_row):
    """Of 500 counts of a steady stream, 3 to 30 wholes in each, one after another or each begun anywhere."""
    inside = 0
    for seed in range(500):
        draw = random.Random(seed)
        rate, edge, counts = draw.uniform(3, 30), draw.random(), []
        for _ in range(repeats):
            edge = edge if in_a_row else draw.random()
            counts.append([(1, math.floor(edge + rate))])
            edge = (edge + rate) % 1
        low, high = estimate_slope([counts] if in_a_row else [[count] for count in counts], 1).interval
        inside += low <= rate <= high
    assert inside >= 0.95 * 500


def line(counts):
    """Four repeats of three readings each, two minutes apart."""
    return [[[(2 * part, counts[at + part] - counts[at]) for part in (1, 2, 3)] for at in (0, 3, 6, 9)]]


def late(draw):
    """What is counted each two minutes of 1 a minute, all of it late by up to a minute."""
    return [minute - draw.uniform(0, 1) * (minute > 0) for minute in range(0, 25, 2)]


def varying(draw):
    """The same of what moves by chance: 1 a minute, with a standard deviation of 0.2 in two minutes."""
    return [0, *accumulate(draw.gauss(2, 0.4) for _ in range(12))]


@pytest.mark.parametrize(("counted", "widest"), [(late, 0.85), (varying, 1.0)])
def test_the_interval_of_a_line_is_honest_whatever_makes_counts_differ(counted, widest):
    """Of 500 lines 93 % or more; where counts are only late it is narrower than that of the mean."""
    inside, lines, means = 0, 0.0, 0.0
    for seed in range(500):
        runs = line(counted(random.Random(seed)))
        low, high = estimate_slope(runs, 0).interval
        inside += low <= 1 <= high
        lines += (high - low) / 2
        means += Estimate.of([course[-1][1] / 6 for course in runs[0]]).half
    assert inside >= 0.93 * 500
    assert lines < widest * means


def test_a_gap_between_repeats_makes_the_interval_of_a_line_wider():
    """What the one before lacks is not in the next one."""
    repeats = line(late(random.Random(1)))[0]
    assert estimate_slope([[repeat] for repeat in repeats], 0).half > estimate_slope([repeats], 0).half


@pytest.mark.parametrize(
    ("values", "before"),
    [
        ([10, 10, 10, 10], 0),
        ([10, 10, 5, 5], 2),
        ([10, 10, 7, 5, 5, 5], 2),
        ([7, 5, 5, 5], 1),
        ([10, 10, 10, 5], 3),
        ([5, 5, 10, 10], 2),  # up is a change, too
        ([10, 10, 9.1, 9.1], 0),  # of less than a tenth
        ([8.5, 10, 10, 10], 0),  # nor of less than a fifth where it is only one
        ([7.5, 10, 10, 10], 1),
        ([8, 12, 8, 12, 8, 12], 0),  # they differ as much before as after
        ([10, 5], 0),  # of two nobody can tell
        ([], 0),
    ],
)
def test_repeats_of_two_things_are_told_apart(values, before):
    assert changed(values) == before


def test_repeats_that_only_differ_are_seldom_taken_for_two_things():
    """Of a thousand times four or six repeats of one mean, that differ by 3 or by 15 %."""
    for spread, most in ((0.03, 5), (0.15, 250)):
        draw = random.Random(1)
        times = [[draw.gauss(10, 10 * spread) for _ in range(draw.choice([4, 6]))] for _ in range(1000)]
        assert sum(changed(values) > 0 for values in times) <= most


def test_a_slope_is_that_of_the_line_through_all_counts():
    """By hand: of the counts 0, 1, 5 at 0, 1, 2 s it is 2.5, and so of the same counts as two repeats."""
    assert slope([[[(1, 1), (2, 5)]]]) == pytest.approx(2.5)
    assert slope([[[(1, 1)], [(1, 4)]]]) == pytest.approx(2.5)
    assert slope([[[(1, 1)]], [[(1, 4)]]]) == pytest.approx(2.5)  # what moved between two runs says nothing
    assert slope([[[(1, 1)]], [[(3, 6)]]]) == pytest.approx((1 * 1 + 3 * 6) / (1 * 1 + 3 * 3))


def test_a_slope_is_nearer_to_the_rate_than_a_mean_where_counts_are_late_by_chance():
    """Of 500 times four repeats of three counts each, all of them late by up to a minute of 24."""
    lines, means = 0.0, 0.0
    for seed in range(500):
        counts = late(random.Random(seed))
        lines += (slope(line(counts)) - 1) ** 2
        means += (counts[-1] / 24 - 1) ** 2
    assert lines < means / 2
