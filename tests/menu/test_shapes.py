"""Shapes as menus write them: what they mean, how shares scale them, and what is said of wrong ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from dc_inject.analysis import lint
from dc_inject.menu import campaign
from dc_inject.model import Flow, Menu, rates
from tests.menu.texts import problems, read, scenarios, text

START = datetime(2027, 2, 8, 9, tzinfo=UTC)  # 10:00 in Zurich
HOUR = timedelta(hours=1)
GBPS = 1e9 / 8


def one(shape: str, more: str = "") -> str:
    """A menu with one link of 40 Gb/s in this shape; the shape is in line 11."""
    return scenarios(f"one: {{from: A, to: B, rate: 40 Gb/s{more},\n  shape: {shape}}}")


def levels(flow: Flow, *hours: float) -> list[float]:
    """The rate, in Gb/s, so many hours after the start."""
    return [round(rates.at(flow, START + hour * HOUR) / GBPS, 6) for hour in hours]


def first(made: Menu) -> Flow:
    """The first link."""
    return made.flows[0]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("constant", [40, 40, 40, 40, 40]),
        ("{ramp: 2 h}", [0, 20, 40, 40, 40]),
        ("{ramp: 4 h, from: 50 %}", [20, 25, 30, 35, 40]),
        ("{steps: [5 Gb/s, 50 %, 0.75, 100 %], hold: 1 h}", [5, 20, 30, 40, 40]),
        ("{steps: [10 Gb/s, 0, 40 Gb/s], hold: [2 h, 1 h]}", [10, 10, 0, 40, 40]),
        ("{steps: [100 %, 10 %], hold: [1 h, 2 h], repeat: true}", [40, 4, 4, 40, 4]),
        ("{burst: 1 h, pause: 1 h}", [40, 0, 40, 0, 40]),
        ("{burst: 2 h, pause: 1 h, low: 4 Gb/s}", [40, 40, 4, 40, 40]),
        ('{daily: {"10:00": 10 %, "12:00": 50 %, "14:00": 10 %}}', [4, 12, 20, 12, 4]),
        ('{daily: {"22:00": 100 %, "10:00": 0 %}}', [0, 40 / 12, 80 / 12, 10, 160 / 12]),
    ],
)
def test_each_kind(shape: str, expected: list[float]) -> None:
    """The rate at the start of the window, which is 10:00 in its zone, and each hour after it."""
    made = first(read(one(shape)))
    assert levels(made, 0, 1, 2, 3, 4) == pytest.approx(expected, abs=1e-5)


def test_a_constant_is_no_shape() -> None:
    """So that it is the same link as one of which nothing is said."""
    assert first(read(one("constant"))) == first(read(one("{constant: true}")))
    assert first(read(one("constant"))).shape is None


def test_a_daily_curve_comes_again_over_midnight() -> None:
    """Between its last and its first time it is a straight line too, also when it is written out of order."""
    made = first(read(one('{daily: {"23:00": 40 %, "01:00": 20 %, "12:00": 100 %}}')))
    assert levels(made, 2, 13, 14, 15) == [40, 16, 12, 8]


@pytest.mark.parametrize(
    ("day", "utc", "hours"),
    [
        # Clocks go from 02:00 to 03:00 at 01:00 UTC, and from 03:00 to 02:00.
        ("2027-03-28", ["00:30", "00:59:59", "01:00", "01:30", "02:00", "09:00"], [1.5, 2, 3, 3.5, 4, 11]),
        ("2027-10-31", ["00:00", "00:59:59", "01:00", "01:30", "02:00", "10:00"], [2, 3, 2, 2.5, 3, 11]),
    ],
    ids=["spring", "autumn"],
)
def test_a_daily_curve_goes_by_the_clock_on_the_wall_also_after_that_was_changed(
    day: str, utc: list[str], hours: list[float]
) -> None:
    """Its level is that of the hour which clocks show; of an hour that comes twice, twice."""
    start = datetime.fromisoformat(f"{day} 12:00+00:00") - 30 * HOUR
    end = start + 60 * HOUR
    menu = one('{daily: {"00:00": 0, "23:59": 100 %}}')
    for was, now in (("2027-02-08 10:00", start), ("2027-02-09 10:00", end)):
        menu = menu.replace(was, f"{now:%Y-%m-%d %H:%MZ}")
    made = first(read(menu))
    shown = [rates.at(made, datetime.fromisoformat(f"{day} {time}+00:00")) / made.rate for time in utc]
    assert shown == pytest.approx([hour * 60 / 1439 for hour in hours], abs=1e-3)
    parts = [start + number * HOUR / 4 for number in range(241)]
    assert sum(rates.planned(made, *part) for part in pairwise(parts)) == rates.planned(made, start, end)


def test_shares_meshes_and_both_ways_scale_a_shape() -> None:
    """A level that is told as a rate is part of the rate beside it, however that is shared."""
    made = read(
        scenarios(
            """
a: {from: X, to: {B: 3, C: 1}, rate: 40 Gb/s, both_ways: true, shape: {steps: [10 Gb/s, 40 Gb/s], hold: 1 h}}
b: {mesh: [A, B, C], rate: 60 Gb/s, shape: {ramp: 2 h}}
c:
  shape: {steps: [10 Gb/s, 100 %], hold: 1 h}
  links:
    - {from: K, to: L, rate: 20 Gb/s}
    - {from: L, to: M, rate: 80 Gb/s}
    - {from: M, to: K, rate: 30 Gb/s, shape: constant}
"""
        )
    )
    found = {(flow.scenario, str(flow.link)): levels(flow, 0, 1) for flow in made.flows}
    assert found["a", "X:B"] == found["a", "B:X"] == [7.5, 30]
    assert found["a", "X:C"] == found["a", "C:X"] == [2.5, 10]
    assert [rate for (name, _), rate in found.items() if name == "b"] == [[0, 5]] * 6
    assert [found["c", link] for link in ("K:L", "L:M", "M:K")] == [[10, 20], [10, 80], [30, 30]]


def test_a_link_says_more_than_its_scenario_and_the_defaults() -> None:
    """And each shape begins with the window of its own link."""
    body = """
a: {from: A, to: B, rate: 10 Gb/s, start: 2027-02-08 12:00}
b: {from: A, to: C, rate: 10 Gb/s, shape: {burst: 1 h, pause: 1 h}}
c: {from: A, to: D, rate: 10 Gb/s, shape: constant}
"""
    made = read(
        text(
            defaults='defaults: {datasets: {did: "cms:*"}, shape: {ramp: 2 h}}',
            scenarios="scenarios:" + body.replace("\n", "\n  "),
        )
    )
    assert [levels(flow, 0, 1, 2, 3) for flow in made.flows] == [[0, 0, 0, 5], [10, 0, 10, 0], [10, 10, 10, 10]]


def test_the_highest_sum_of_shapes_is_what_counts(wording) -> None:
    """Two bursts that never meet do not add up, for the target, for limits and for sites."""
    body = """
a: {from: A, to: B, rate: 40 Gb/s, shape: {burst: 1 h, pause: 1 h}}
b: {from: A, to: C, rate: 30 Gb/s, shape: {steps: [0 %, 100 %], hold: 1 h, repeat: true}}
"""
    tight = scenarios(body).replace("1 Tb/s, per", "40 Gb/s, per")
    assert problems(tight) == problems(tight + "target: 40 Gb/s\n") == ()
    (wrong,) = lint.findings(campaign([read(tight + "target: 70 Gb/s\naccept: [fts-link-limit, fts-ramp]\n")]))
    wording(wrong.message)


@pytest.mark.parametrize(
    "shape",
    [
        "{}",
        "ramp",
        "{ramp: 1 h, burst: 1 h, pause: 1 h}",
        "{ramp: 1 h, hold: 1 h}",
        "{burst: 1 h, pause: 1 h, from: 10 %}",
        "{ramp: 1}",
        "{ramp: 24 h}",
        "{ramp: 1 h, from: fast}",
        "{ramp: 1 h, from: -5 %}",
        "{steps: [1, 2], hold: 1 h}",
        "{steps: [50 %, 50 Gb/s], hold: 1 h}",
        "{steps: [50 %, 100 %]}",
        "{steps: [50 %, 100 %], hold: [1 h, 1 h]}",
        "{steps: [5 %, 9 %, 100 %], hold: [1 h, 1 h], repeat: true}",
        "{steps: [], hold: 1 h}",
        "{steps: [0, 0 %], hold: 1 h}",
        "{steps: [1, 0], hold: 1 s, repeat: true}",
        "{ramp: }",
        "{burst: 1 h}",
        "{burst: 0 s, pause: 1 h}",
        '{daily: {"25:00": 10 %, "08:00": 20 %}}',
        '{daily: {"08:00": 20 %}}',
        "{daily: [10 %, 20 %]}",
        "{daily: {}}",
        "{wave: 1 h}",
    ],
)
def test_what_is_wrong(shape: str, wording) -> None:
    """Each problem once, with its place, and without another one that follows from it."""
    found = problems(one(shape))
    assert found[0].line in {10, 11}
    wording(found[0])
    assert len(found) == 1


def test_what_is_not_understood_elsewhere_leads_to_no_further_complaint() -> None:
    """A rate or a window that is wrong says nothing of the shape."""
    steps = ", shape: {steps: [10 Gb/s, 20 Gb/s], hold: 1 h}}"
    assert len(problems(scenarios("one: {from: A, to: B, rate: fast" + steps))) == 1
    assert (
        len(problems(text(start="start: early").replace("rate: 10 Gb/s", "rate: 40 Gb/s\n    shape: {ramp: 1 h}")))
        == 1
    )
