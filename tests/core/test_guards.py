"""Guards engage at one bound and let go at another, so that they do not flap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dc_inject.model import Hold
from dc_inject.model.holds import Trait
from dc_inject.planning.guards import GUARDS, GuardReading, engaged, leading


def readings(**values: float | None) -> dict[Hold, GuardReading]:
    return {Hold(name.replace("_", "-")): GuardReading(value, {"bytes": 1}) for name, value in values.items()}


def course(hold: str, values: list[float | None]) -> list[bool]:
    """Whether a guard holds, cycle by cycle."""
    now: dict[Hold, int] = {}
    held = []
    for value in values:
        now = engaged(now, readings(**{hold: value}))
        held.append(Hold(hold.replace("_", "-")) in now)
    return held


@pytest.mark.parametrize(
    ("hold", "values", "held"),
    [
        ("failing", [0.4, 0.5, 0.4, 0.3, 0.25, 0.4], [0, 1, 1, 1, 0, 0]),
        ("failing", [0.5, 0.4, 0.4, 0.5, 0.4, 0.3, 0.4, 0.4, 0.4], [1, 1, 1, 1, 1, 1, 1, 0, 0]),
        ("destination_full", [0.96, 0.98, 0.96, 0.951, 0.95, 0.96], [0, 1, 1, 1, 0, 0]),
        ("deletion_lag", [0.2, 0.3, 0.2, 0.1, 0.2], [0, 1, 1, 0, 0]),
        ("deletion_lag", [0.3, *[0.2] * 9], [1] * 10),
        ("fts_queue", [0.4, 0.6, 0.3, 0.2, 0.4], [0, 1, 1, 0, 0]),
        ("source_unavailable", [0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0], [0, 1, 1, 1, 1, 0, 0]),
        ("destination_unavailable", [1.0, 0.0, 0.0], [1, 1, 0]),
    ],
)
def test_the_course_of_each_guard(hold, values, held):
    assert course(hold, values) == [bool(one) for one in held]


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.hold.value)
def test_a_signal_that_is_missing_is_no_hold(guard):
    assert engaged({guard.hold: 0}, {}) == {}
    assert engaged({guard.hold: 0}, {guard.hold: GuardReading(None, {})}) == {}


def test_a_reading_that_is_inconclusive_changes_nothing():
    unclear = {Hold.FTS_QUEUE: GuardReading(None, {"waiting": 9}, "inconclusive")}
    assert engaged({}, unclear) == {}
    assert engaged({Hold.FTS_QUEUE: 0}, unclear) == {Hold.FTS_QUEUE: 0}
    assert engaged({Hold.FAILING: 2}, {Hold.FAILING: GuardReading(None, {}, "inconclusive")}) == {Hold.FAILING: 2}
    held = leading({Hold.FTS_QUEUE: 0}, unclear)
    assert held is not None
    assert held.numbers == {"waiting": 9, "reading": "inconclusive", "until": 0.25}


def test_a_guard_that_stops_a_link_leads_before_one_that_paces_it():
    """With its reading, and the bound that ends it; among equals the first in order."""
    seen = readings(failing=0.9, destination_full=0.99, fts_queue=0.9)
    held = leading(engaged({}, seen), seen)
    assert held is not None
    assert held.hold is Hold.DESTINATION_FULL
    assert held.numbers == {"bytes": 1, "reading": 0.99, "until": 0.95}
    paced = leading({Hold.DELETION_LAG: 0, Hold.FAILING: 0}, readings(failing=0.9, deletion_lag=0.5))
    assert paced is not None
    assert paced.hold is Hold.FAILING
    assert leading({}, seen) is None


def test_control_holds_by_its_window_and_its_guards():
    assert {hold for hold in Hold if Trait.CONTROL in hold.traits} == {
        Hold.BACKLOG, *(guard.hold for guard in GUARDS),
    }  # fmt: skip


@given(st.lists(st.floats(0, 1), max_size=30), st.sampled_from(GUARDS))
def test_it_does_not_change_while_the_reading_stays_between_the_bounds(values, guard):
    values = values[: guard.patience and guard.patience - 1]
    inside = [guard.off + (guard.on - guard.off) * (0.01 + 0.98 * value) for value in values]
    for before in ({}, {guard.hold: 0}):
        now = dict(before)
        for value in inside:
            now = engaged(now, {guard.hold: GuardReading(value, {})})
            assert set(now) == set(before)
