"""Dues are the exact integral of the menu's rates."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject.model import Cycle, Exclusion, Flow, Hold
from dc_inject.planning import pace
from tests.core.builders import CYCLE, GB, LENGTH, START, flow, gbps

MINUTE = timedelta(minutes=1)
CALM = settings(deadline=None, derandomize=True)


def at(minutes: float) -> datetime:
    """So many minutes after the start."""
    return START + minutes * MINUTE


def due(flows: list[Flow], *exclusions: Exclusion, since: datetime | None = None) -> list[tuple[int, object]]:
    """Bytes and hold of each flow in the first cycle, in GB, in the order of the keys."""
    sites = {"B": "Site", "C": "Site"}
    parts = pace.due(flows, exclusions, sites, START, START + LENGTH, since)
    return [(part.bytes // GB, part.held and part.held.hold) for part in parts.values()]


ONE = flow(rate=8)  # 1 GB/s: 900 GB in a cycle

TABLE = {
    "a whole cycle": ([ONE], [], [(900, None)]),
    "starts inside": ([replace(ONE, start=at(5))], [], [(600, Hold.OUTSIDE_WINDOW)]),
    "ends inside": ([replace(ONE, end=at(1))], [], [(60, Hold.OUTSIDE_WINDOW)]),
    "over": ([replace(ONE, end=START)], [], [(0, Hold.OUTSIDE_WINDOW)]),
    "not begun": ([replace(ONE, start=at(15))], [], [(0, Hold.OUTSIDE_WINDOW)]),
    "two menus that follow each other": (
        [replace(ONE, end=at(5)), replace(ONE, start=at(5), rate=2e9)],
        [],
        [(300 + 1200, None)],
    ),
    "its link is excluded": ([ONE], [Exclusion(at(0), at(10), "why", link="A:B")], [(300, Hold.EXCLUDED)]),
    "its source is excluded": ([ONE], [Exclusion(at(5), at(10), "why", rse="A")], [(600, Hold.EXCLUDED)]),
    "its site is excluded": ([ONE], [Exclusion(at(-5), at(50), "why", site="Site")], [(0, Hold.EXCLUDED)]),
    "an RSE without a site is its own": (
        [ONE],
        [Exclusion(at(-5), at(50), "why", site="A")],
        [(0, Hold.EXCLUDED)],
    ),
    "its scenario is excluded": ([ONE], [Exclusion(at(0), at(15), "why", scenario="test")], [(0, Hold.EXCLUDED)]),
    "somebody else is excluded": ([ONE], [Exclusion(at(0), at(15), "why", rse="X")], [(900, None)]),
    "two exclusions overlap": (
        [ONE],
        [Exclusion(at(0), at(6), "one", rse="A"), Exclusion(at(3), at(9), "two", rse="B")],
        [(360, Hold.EXCLUDED)],
    ),
    "redistributed in proportion": (
        [flow("A", "B", 8), flow("A", "D", 8), flow("A", "E", 24)],
        [Exclusion(at(0), at(15), "why", rse="B", redistribute=True)],
        [(0, Hold.EXCLUDED), (900 + 225, None), (2700 + 675, None)],
    ),
    "redistributed to nobody": (
        [flow("A", "B", 8)],
        [Exclusion(at(0), at(15), "why", rse="B", redistribute=True)],
        [(0, Hold.EXCLUDED)],
    ),
    "not redistributed to another scenario": (
        [flow("A", "B", 8, scenario="one"), flow("A", "D", 8, scenario="two")],
        [Exclusion(at(0), at(15), "why", rse="B", redistribute=True)],
        [(0, Hold.EXCLUDED), (900, None)],
    ),
    "not redistributed to what is outside its window": (
        [flow("A", "B", 8), flow("A", "D", 8, start=at(10))],
        [Exclusion(at(0), at(15), "why", rse="B", redistribute=True)],
        [(0, Hold.EXCLUDED), (600, Hold.OUTSIDE_WINDOW)],
    ),
}


@pytest.mark.parametrize(("flows", "exclusions", "expected"), TABLE.values(), ids=TABLE)
def test_due_is_the_rate_over_what_windows_and_exclusions_leave(flows, exclusions, expected) -> None:
    """1 GB/s for 15 minutes is 900 GB."""
    assert due(flows, *exclusions) == expected


def test_nothing_is_due_before_the_first_run() -> None:
    """A start in the middle of a cycle owes the rest of it, one after its end nothing."""
    assert due([ONE], since=at(5)) == [(600, Hold.NOT_RUNNING)]
    assert due([ONE], since=at(60)) == [(0, Hold.NOT_RUNNING)]
    assert due([ONE], since=at(-60)) == [(900, None)]


def test_a_hold_comes_with_its_numbers() -> None:
    """Seconds lost, of how many, and the reason that somebody gave."""
    parts = pace.due([ONE], [Exclusion(at(0), at(10), "downtime", rse="A")], {}, START, START + LENGTH)
    held = parts[ONE.key].held
    assert held is not None
    assert held.numbers == {"seconds": 600, "of": 900, "reason": "downtime"}


@given(
    rate=st.floats(1, 1e12),
    start=st.integers(0, 10**10),
    length=st.integers(1, 10**10),
    cycle=st.integers(1, 3600),
)
@CALM
def test_cycles_sum_to_the_whole_integral(rate: float, start: int, length: int, cycle: int) -> None:
    """To half a byte per cycle, however crooked the rate and the window are."""
    one = replace(
        ONE,
        rate=rate,
        start=START + timedelta(microseconds=start),
        end=START + timedelta(microseconds=start + length),
    )
    step = timedelta(seconds=max(cycle, length / 1e6 / 50))
    now, total, count = Cycle.at(one.start, step), 0, 0
    while now.start < one.end:
        total += pace.due([one], [], {}, now.start, now.end)[one.key].bytes
        now, count = now.next, count + 1
    assert abs(total - Fraction(rate) * length / 10**6) <= Fraction(count, 2)


@given(st.lists(st.floats(0.1, 100), min_size=2, max_size=6), st.data())
@CALM
def test_redistribution_keeps_the_rate_of_the_scenario(rates: list[float], data: st.DataObject) -> None:
    """As long as one link is left, the sum is what the menu says."""
    flows = [flow("A", f"B{i}", rate) for i, rate in enumerate(rates)]
    off = data.draw(st.sets(st.integers(0, len(rates) - 1), max_size=len(rates) - 1))
    exclusions = [Exclusion(at(-1), at(99), "why", rse=f"B{i}", redistribute=True) for i in off]
    parts = pace.due(flows, exclusions, {}, START, START + LENGTH)
    assert sum(part.bytes for part in parts.values()) == pytest.approx(gbps(sum(rates)) * 900, abs=len(rates))


@given(st.permutations([flow("A", f"B{i}", i + 1, scenario=f"s{i % 2}") for i in range(6)]))
@CALM
def test_dues_do_not_depend_on_the_order_of_flows(flows: list[Flow]) -> None:
    """Neither the bytes nor the order in which they come out."""
    off = [Exclusion(at(2), at(7), "why", rse="B3", redistribute=True)]
    parts = pace.due(flows, off, {}, START, START + LENGTH)
    assert list(parts.items()) == list(
        pace.due(sorted(flows, key=lambda f: f.key), off, {}, START, at(15)).items()
    )


def test_the_target_rate_is_that_of_the_moment() -> None:
    """Inside a window the menu's rate, outside 0."""
    one = replace(ONE, start=at(5), end=at(6))
    assert pace.rate([one], [], {}, at(5.5)) == {one.key: gbps(8)}
    assert pace.rate([one], [], {}, at(4)) == pace.rate([one], [], {}, at(6)) == {one.key: 0}


def test_the_flow_that_overlaps_a_cycle_most_speaks_for_its_key() -> None:
    """Of two with the same overlap the later one."""
    early, late = replace(ONE, end=at(5)), replace(ONE, start=at(5), rate=1.0)
    half = replace(ONE, end=at(7.5)), replace(ONE, start=at(7.5), rate=1.0)
    assert pace.select_flows([late, early], CYCLE)[ONE.key] is late
    assert pace.select_flows([half[1], half[0]], CYCLE)[ONE.key] is half[1]
    assert pace.select_flows([early, flow("X", "Y")], CYCLE).keys() == {ONE.key, flow("X", "Y").key}
