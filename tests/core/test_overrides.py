"""Overrides: what is set over menus is a pure overlay, whatever the order, and taking it back leaves no trace."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dc_inject.engine.rate_changes import lowered
from dc_inject.model import rates
from dc_inject.model.goals import Keep, SecondHop, Volume
from dc_inject.model.overrides import Kind, Override, covers
from dc_inject.model.shape import Point, Shape
from dc_inject.planning import overrides, pace
from tests.engine.world import CYCLE, START, campaign, flow

RAMP = Shape(START, (Point(timedelta(0), 0.0), Point(timedelta(hours=2), 1.0)))
LINKS = (
    flow("A", "B", 10),
    flow("A", "C", 30),
    flow("A", "B", 20, scenario="other", shape=RAMP),
    flow("D", "C", 5, scenario="other", end=START + timedelta(hours=3)),
)
WHEN = datetime(2027, 2, 8, 9, tzinfo=UTC)
SUBJECTS = ("*", "test", "other", "A:B", "A:C", "D:C")


def override(subject: str, kind: str, value: float) -> Override:
    return Override(subject, Kind(kind), value, "me@here", "", WHEN)


def gbps(*found) -> list[float]:
    return [pytest.approx(8 * one.rate / 1e9) for one in found]


one_override = st.builds(
    override, st.sampled_from(SUBJECTS), st.sampled_from(["rate", "scale"]), st.floats(1e-3, 1e12)
)
some = st.lists(one_override, max_size=4, unique_by=lambda one: (one.subject, one.kind))


@given(some, st.randoms())
def test_the_order_in_which_things_were_set_does_not_matter(known, chance):
    mixed = list(known)
    chance.shuffle(mixed)
    assert overrides.changed(LINKS, known) == overrides.changed(LINKS, mixed)


@given(some, one_override)
def test_setting_and_taking_back_is_as_if_nothing_had_been(known, more):
    """Since nothing is kept but what is set, what was before comes back to the last bit."""
    known = [one for one in known if (one.subject, one.kind) != (more.subject, more.kind)]
    before = overrides.changed(LINKS, known)
    assert overrides.changed(before, ()) == before
    assert overrides.changed(LINKS, [one for one in [*known, more] if one != more]) == before
    assert overrides.changed(LINKS, ()) == LINKS
    made = campaign(LINKS)
    assert overrides.apply_overrides(made, ()) is made


@given(some)
def test_only_rates_shapes_and_goals_change(known):
    for old, new in zip(LINKS, overrides.changed(LINKS, known), strict=True):
        assert replace(new, rate=old.rate, shape=old.shape, goal=old.goal) == old
        if not any(covers(one.subject, old.key) for one in known):
            assert new == old


@given(st.sampled_from(SUBJECTS), st.floats(1e-3, 1e12))
def test_a_rate_is_what_its_subject_sums_to_shared_as_in_the_menu(subject, rate):
    made = overrides.changed(LINKS, [override(subject, "rate", rate)])
    ours = [new for old, new in zip(LINKS, made, strict=True) if covers(subject, old.key)]
    assert rates.peak(ours).rate == pytest.approx(rate)
    assert all(new.shape is None for new in ours), "what is set is constant"
    parts = {new.rate / old.rate for old, new in zip(LINKS, made, strict=True) if new in ours}
    assert max(parts) == pytest.approx(min(parts))


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_scales_multiply_and_keep_the_shape(first, second):
    made = overrides.changed(LINKS, [override("*", "scale", first), override("other", "scale", second)])
    assert [new.rate for new in made] == [
        pytest.approx(old.rate * first * (second if old.scenario == "other" else 1)) for old in LINKS
    ]
    assert [new.shape for new in made] == [old.shape for old in LINKS]


def test_the_narrowest_rate_holds_and_scales_come_after_it():
    known = [override("test", "rate", 100e9 / 8), override("A:C", "rate", 40e9 / 8), override("*", "scale", 0.5)]
    assert gbps(*overrides.changed(LINKS, known)) == [12.5, 20, 10, 2.5]
    assert len({overrides.changed(LINKS, order) for order in permutations(known)}) == 1


def test_a_rate_of_one_link_is_exact():
    (made,) = overrides.changed([LINKS[1]], [override("A:C", "rate", 0.1)])
    assert made.rate == 0.1


def test_goals_are_scaled_with_their_rates_and_paced_by_a_rate_that_is_set():
    links = [flow("A", "B", 1, goal=Volume(100, steady=True)), flow("A", "C", 1, goal=Keep(50))]
    scaled = overrides.changed(links, [override("*", "scale", 0.5)])
    assert [one.goal for one in scaled] == [Volume(50, steady=True), Keep(25)]
    paced = overrides.changed(links, [override("test", "rate", 4.0)])
    assert [one.goal for one in paced] == [Volume(100), Keep(50)]


def test_second_hops_follow_the_rate_of_their_scenario_and_have_one_of_their_own():
    links = [flow("A", "B", 10), flow("A", "C", 30), flow("B", "D", 10, goal=SecondHop())]
    assert gbps(*overrides.changed(links, [override("test", "rate", 20e9 / 8)])) == [5, 15, 5]
    assert gbps(*overrides.changed(links, [override("B:D", "rate", 20e9 / 8)])) == [10, 30, 20]


@given(some, some, st.integers(0, CYCLE // timedelta(microseconds=1)))
def test_across_a_change_in_the_middle_of_a_cycle_the_integral_is_exact(first, second, microseconds):
    """Booked less forgiven is what held before the change, and after it the lower of both: to a byte."""
    moment, end = START + microseconds * timedelta(microseconds=1), START + CYCLE
    before, after = (overrides.apply_overrides(campaign(LINKS), known) for known in (first, second))
    booked, less = pace.due(before.flows, (), {}, START, end), lowered([before], after, moment, end)
    for old, new in zip(before.flows, after.flows, strict=True):
        exact = rates.area(old, START, moment) + min(rates.area(old, moment, end), rates.area(new, moment, end))
        assert abs(booked[old.key].bytes - less.get(old.key, 0) - exact) <= Fraction(3, 2)
