"""Rates with a shape: integrals are exact on any grid, and peaks are where the sum is highest."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject.model import Cycle, Exclusion, Flow, rates
from dc_inject.model.shape import Point, Shape, area
from dc_inject.planning import pace
from tests.core.builders import START, flow, gbps

CALM = settings(deadline=None, derandomize=True)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
ONE = flow(rate=8)  # 1 GB/s


def shape(*points: tuple[float, float], period: float | None = None) -> Shape:
    """A shape from START on, its times in hours."""
    made = tuple(Point(at * HOUR, level) for at, level in points)
    return Shape(START, made, None if period is None else period * HOUR)


RAMP = shape((0, 0), (1, 1))
STEPS = shape((0, 0.25), (1, 0.25), (1, 0.5), (2, 0.5), (2, 1))
PULSES = shape((0, 1), (1, 1), (1, 0), (3, 0), period=3)
DAILY = shape((0, 0.2), (8, 0.2), (10, 1), (18, 1), (24, 0.2), period=24)

microseconds = st.integers(-(10**10), 10**11).map(lambda n: START + timedelta(microseconds=n))


levels_of_a_menu = st.floats(0, 1).map(lambda level: round(level, 9))  # finer ones drown in the smallest float


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Any shape: crooked times and levels, jumps, with and without a period."""
    ats = sorted(draw(st.lists(st.integers(0, 10**10), min_size=1, max_size=8)))
    levels = draw(st.lists(levels_of_a_menu, min_size=len(ats), max_size=len(ats)))
    points = [Point(timedelta(microseconds=at - ats[0]), level) for at, level in zip(ats, levels, strict=True)]
    period = draw(st.none() | st.integers(10**9, 10**10))
    if period is not None:
        last = points[-1].at + timedelta(microseconds=period)
        return Shape(draw(microseconds), (*points, Point(last, draw(levels_of_a_menu))), last)
    return Shape(draw(microseconds), tuple(points))


@pytest.mark.parametrize(
    ("form", "at", "level", "before"),
    [
        (RAMP, -1, 0, 0),
        (RAMP, 0.5, 0.5, 0.5),
        (RAMP, 7, 1, 1),
        (STEPS, 1, 0.5, 0.25),
        (STEPS, 2, 1, 0.5),
        (STEPS, 99, 1, 1),
        (PULSES, 1, 0, 1),
        (PULSES, 3, 1, 0),
        (PULSES, 300, 1, 0),
        (PULSES, -0.5, 0, 0),
        (DAILY, 9, 0.6, 0.6),
        (DAILY, 24 * 5 + 21, 0.6, 0.6),
    ],
)
def test_levels(form: Shape, at: float, level: float, before: float) -> None:
    """On a straight line between points, held outside of them, repeated with a period; two at a jump."""
    assert float(form.level(START + at * HOUR)) == pytest.approx(level)
    assert float(form.level(START + at * HOUR, before=True)) == pytest.approx(before)


@pytest.mark.parametrize(
    ("form", "start", "end", "hours"),
    [
        (RAMP, 0, 1, 0.5),
        (RAMP, 0, 3, 2.5),
        (STEPS, 0.5, 2.5, 0.125 + 0.5 + 0.5),
        (PULSES, 0, 30, 10),
        (DAILY, 0, 24, 14.4),
    ],
)
def test_areas(form: Shape, start: float, end: float, hours: float) -> None:
    """As one would compute them by hand."""
    assert float(area(form, START + start * HOUR, START + end * HOUR) / (HOUR // timedelta(microseconds=1))) == (
        pytest.approx(hours)
    )


@given(shapes(), st.lists(microseconds, min_size=2, max_size=9))
@CALM
def test_parts_sum_to_the_whole_exactly(form: Shape, cuts: list) -> None:
    """Wherever a window is cut; and no area is negative."""
    ordered = sorted(cuts)
    parts = [area(form, left, right) for left, right in pairwise(ordered)]
    assert sum(parts) == area(form, ordered[0], ordered[-1])
    assert all(
        0 <= part <= (right - left) // timedelta(microseconds=1)
        for part, (left, right) in zip(parts, pairwise(ordered), strict=True)
    )


@given(shapes(), st.integers(0, 10**10), st.integers(1, 5 * 10**10), st.integers(60, 7200), st.floats(1, 1e12))
@CALM
def test_cycles_of_a_shape_sum_to_its_integral(
    form: Shape, start: int, length: int, cycle: int, rate: float
) -> None:
    """For any grid and any window that cuts the shape, to half a byte a cycle."""
    begin = START + timedelta(microseconds=start)
    one = replace(ONE, rate=rate, shape=form, start=begin, end=begin + timedelta(microseconds=length))
    now, total, count = Cycle.at(one.start, timedelta(seconds=max(cycle, length // 10**6 // 40))), 0, 0
    while now.start < one.end:
        total += pace.due([one], [], {}, now.start, now.end)[one.key].bytes
        now, count = now.next, count + 1
    assert abs(total - rates.area(one, one.start, one.end)) <= Fraction(count, 2)


@given(shapes(), st.floats(0.001, 1000), microseconds, microseconds)
@CALM
def test_scale_is_linear(form: Shape, factor: float, start: datetime, end: datetime) -> None:
    """A share of a rate has that share of the integral, of the mean and of the peak."""
    one = replace(ONE, shape=form)
    part = replace(one, rate=one.rate * factor)
    assert float(rates.area(part, start, end)) == pytest.approx(factor * float(rates.area(one, start, end)))
    assert rates.peak([part]).rate == pytest.approx(factor * rates.peak([one]).rate)


@given(
    st.lists(st.tuples(st.none() | shapes(), st.floats(0.1, 100)), min_size=1, max_size=4),
    st.lists(st.integers(0, 24 * 3600), max_size=20),
)
@CALM
def test_no_moment_is_above_the_peak(parts: list, moments: list[int]) -> None:
    """And the mean of any window is between 0 and its peak."""
    flows = [flow("A", f"B{i}", rate, shape=form) for i, (form, rate) in enumerate(parts)]
    top = rates.peak(flows)
    for second in moments:
        moment = START + timedelta(seconds=second)
        assert sum(rates.at(one, moment) for one in flows) <= top.rate * (1 + 1e-9)
        window = moment, moment + HOUR
        inside = rates.peak(flows, *window).rate
        assert 0 <= rates.mean(flows, *window) <= inside * (1 + 1e-9) <= top.rate * (1 + 1e-8)


def test_a_peak_is_found_where_shapes_add_up() -> None:
    """Two ramps up, one of which falls back when the other is half way; a jump counts just before it, too."""
    up = flow("A", "B", 8, shape=RAMP)
    saw = flow("A", "C", 8, shape=shape((0, 0), (0.5, 1), (0.5, 0)))
    assert rates.peak([up, saw]) == (pytest.approx(1.5e9), saw)
    assert rates.peak([up, saw], START + HOUR, START + 2 * HOUR) == (pytest.approx(1e9), up)
    assert (
        rates.peak([flow(rate=8, shape=PULSES), flow("A", "C", 8, shape=replace(PULSES, begin=START + HOUR))]).rate
        == 1e9
    )


def test_links_of_many_shapes_are_summed_quickly_enough() -> None:
    """The groups of equal shapes are what counts, not the links."""
    flows = [flow("A", f"B{i}", 1, shape=DAILY, end=START + timedelta(days=12)) for i in range(1200)]
    assert rates.peak(flows).rate == pytest.approx(gbps(1200))


def test_redistribution_keeps_the_rate_of_a_scenario_with_shapes() -> None:
    """What an excluded link would have had at that time goes to the others, and the sum is the menu's."""
    flows = [flow("A", f"B{i}", 8, shape=form) for i, form in enumerate([RAMP, STEPS, None])]
    for off in range(3):
        exclusions = [Exclusion(START + 10 * MINUTE, START + 80 * MINUTE, "why", rse=f"B{off}", redistribute=True)]
        for number in range(8):
            start = START + number * 15 * MINUTE
            parts = pace.due(flows, exclusions, {}, start, start + 15 * MINUTE)
            asked = sum(rates.area(one, start, start + 15 * MINUTE) for one in flows)
            assert abs(sum(part.bytes for part in parts.values()) - asked) <= 2


def test_a_pause_in_pulses_is_no_hold() -> None:
    """Nothing is due then because the menu says so; nobody lost anything."""
    one: Flow = replace(ONE, shape=PULSES)
    (part,) = pace.due([one], [], {}, START + HOUR, START + 2 * HOUR).values()
    assert (part.bytes, part.held) == (0, None)
    assert pace.rate([one], [], {}, START + HOUR) == {one.key: 0}
    assert pace.rate([one], [], {}, START) == {one.key: 1e9}
