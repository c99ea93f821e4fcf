"""Lifetimes fill the space and not more."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject.planning import lifetime
from tests.core.builders import GB, TB

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
    assert lifetime.lifetime(*arguments, may_end=False) == expected * H
    assert lifetime.lifetime(*arguments, may_end=True) == 3 * H


def test_a_rule_stays_until_it_is_ended_early_if_that_is_known() -> None:
    """Completion and dwell where measured, but it expires by itself; else the lifetime that fits."""
    assert lifetime.stay(2 * H, 3 * H, None, H) == 2 * H
    assert lifetime.stay(2 * H, 3 * H, H / 2, H / 4) == 0.75 * H
    assert lifetime.stay(2 * H, 3 * H, 5 * H, H) == 3 * H


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
