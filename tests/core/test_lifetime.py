"""Lifetimes fill the space and not more."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject.model import Dataset, Link
from dc_inject.model.goals import SecondHop
from dc_inject.planning import lifetime
from tests.backends.support import injection
from tests.core.builders import CYCLE, GB, START, TB, flow

H = timedelta(hours=1)

# space, ingress in GB/s, lag, expected: between 1 h and 3 h
TABLE = [
    (None, 1, 0, 3),  # the space is not known
    (36 * TB, 0, 0, 3),  # nothing comes in
    (36 * TB, 1, 0, 3),  # ten hours would fit
    (7.2 * TB, 1, 0, 2),
    (7.2 * TB, 1, 0.5, 1.5),
    (3.6 * TB, 1, 0.5, 1),  # half an hour would fit: the ingress has to be cut
    (0, 1, 0, 1),
    (-5, 1, 0, 1),
]


@pytest.mark.parametrize(("space", "ingress", "lag", "expected"), TABLE)
def test_a_lifetime_fits_the_space_within_its_bounds(space, ingress, lag, expected) -> None:
    """clamp(space / ingress - lag, min, max)."""
    space = None if space is None else int(space)
    arguments = (space, ingress * GB, lag * H, 1 * H, 3 * H)
    assert lifetime.fitting(*arguments) == expected * H


def test_a_rule_stays_until_it_is_ended_early_if_that_is_known() -> None:
    """Completion and dwell where measured, but it expires by itself; else the lifetime that fits."""
    assert lifetime.stay(2 * H, 3 * H, None, H) == 2 * H
    assert lifetime.stay(2 * H, 3 * H, H / 2, H / 4) == 0.75 * H
    assert lifetime.stay(2 * H, 3 * H, 5 * H, H) == 3 * H


@pytest.mark.parametrize(
    ("may_end", "completion", "expected"),
    [
        (False, None, (2, 2.5)),
        (False, 1, (2, 2.5)),  # measured, but complete rules cannot be ended
        (True, None, (3, 2.5)),  # they can, but nobody knows how soon
        (True, 1, (3, 1.75)),
    ],
)
def test_a_rule_is_born_with_the_longest_lifetime_where_it_can_be_ended_early(
    may_end, completion, expected
) -> None:
    """And takes up space for as long as it will really stay, which counts the lag in."""
    one = flow(lifetime_min=H, lifetime_max=3 * H, dwell=H / 4, end=START + 24 * H)
    measured = None if completion is None else completion * H
    life = lifetime.planned(one, 9 * TB, GB, H / 2, measured, may_end=may_end)
    assert (life.lifetime, life.horizon) == (expected[0] * H, expected[1] * H)


def test_what_has_a_second_hop_stays_for_both_of_them_and_a_plan() -> None:
    """Unknown while either is."""
    first, hop = flow("A", "B"), flow("B", "T", goal=SecondHop())
    flows = {first.key: first, hop.key: hop}
    whole = {first.key: H, hop.key: 2 * H}
    assert lifetime.until_ended(whole, flows, CYCLE) == {first.key: 3 * H + CYCLE.length, hop.key: 2 * H}
    assert lifetime.until_ended({first.key: H}, flows, CYCLE) == {first.key: None, hop.key: None}


def test_a_second_copy_ends_before_its_first_one_unless_too_little_is_left() -> None:
    one = injection(Dataset("cms:/a", 1, 1), Link("B", "T"), release=START, lifetime=2 * H)
    assert lifetime.limit_second_copy(one, START + 5 * H, H) == 2 * H
    assert lifetime.limit_second_copy(one, START + 1.5 * H, H) == 1.5 * H
    assert lifetime.limit_second_copy(one, START + H / 2, H) == 2 * H
    assert lifetime.is_outliving(one.release + one.lifetime, START + H)
    assert not lifetime.is_outliving(one.release + one.lifetime, START + 2 * H)
    assert not lifetime.is_outliving(one.release + one.lifetime, None)


def test_services_are_told_no_less_than_the_lifetime() -> None:
    """FTS counts whole hours, at least one."""
    assert lifetime.seconds(timedelta(seconds=1.2)) == 2
    assert [lifetime.get_queue_time(some) for some in (timedelta(0), H, 1.1 * H)] == [1, 1, 2]


def test_what_was_found_lives_as_its_service_tells_or_as_long_as_its_menu_allows() -> None:
    assert lifetime.estimate_found_lifetime(None, START, START + H) == H
    assert lifetime.estimate_found_lifetime(None, START, START - H) == timedelta(0)
    assert lifetime.estimate_found_lifetime(flow(lifetime_max=5 * H), START, None) == 5 * H
    assert lifetime.estimate_found_lifetime(None, START, None) == 2 * H


def test_a_short_menu_needs_no_more_space_than_it_injects() -> None:
    """r + lag, at most the window."""
    assert lifetime.horizon(2 * H, H, 24 * H) == 3 * H
    assert lifetime.horizon(2 * H, H, H / 2) == H / 2


@given(
    space=st.integers(0, 10**17),
    ingress=st.floats(1, 1e12),
    lag=st.integers(0, 10**5),
    bounds=st.tuples(st.integers(1, 10**5), st.integers(1, 10**5)),
)
@settings(deadline=None, derandomize=True)
def test_what_comes_in_during_a_lifetime_fits_unless_the_least_lifetime_is_too_long(space, ingress, lag, bounds):
    """Never outside its bounds; above the least, ingress x (lifetime + lag) stays within the space."""
    shortest, longest = (timedelta(seconds=some) for some in sorted(bounds))
    wait = timedelta(seconds=lag)
    result = lifetime.fitting(space, ingress, wait, shortest, longest)
    assert shortest <= result <= longest
    if result > shortest:
        assert ingress * (result + wait).total_seconds() <= space * (1 + 1e-9)


@pytest.mark.parametrize(
    ("space", "expected"), [(None, 9 * 2.25), (13.5e9 * 3600, 9 * 1.5), (4e9 * 3600, 9 * 1.25)]
)
def test_a_space_is_needed_for_as_long_as_rules_stay_and_deletions_take(space, expected) -> None:
    """9 GB/s for an hour at least, or as long as fits up to two, and a quarter until it is deleted."""
    parts = [(flow("A"), 6e9, None), (flow("C"), 3e9, None)]
    whole = lifetime.needed(parts, space, timedelta(minutes=15), may_end=())
    assert whole == pytest.approx(expected * 1e9 * 3600)
