"""Volumes and bytes to keep, as menus write them: shared to the byte, beside a rate or in its place."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject.model import rates
from dc_inject.model.goals import Keep, Recycle, Volume
from tests.menu.texts import LIST, RIGHT, draft, fts, problems, read, scenarios, text

TB = 10**12


@given(st.lists(st.integers(1, 100), min_size=1, max_size=9), st.integers(1, 10**6))
@settings(deadline=None, derandomize=True)
def test_shares_of_a_volume_sum_to_it_to_the_byte(shares: list[int], kilobytes: int) -> None:
    """Each link within a byte of its part."""
    to = ", ".join(f"D{n}: {share}" for n, share in enumerate(shares))
    made = read(scenarios(f"one: {{from: A, to: {{{to}}}, volume: {kilobytes} kB, rate: 1 Gb/s}}"))
    goals = [flow.goal for flow in made.flows]
    assert sum(goal.bytes for goal in goals if goal) == kilobytes * 1000
    for goal, share in zip(goals, shares, strict=True):
        assert goal is not None
        assert abs(goal.bytes - kilobytes * 1000 * share / sum(shares)) <= 1


def test_each_form() -> None:
    """Shares, a mesh, both ways and links; without a rate a volume is even over the window, which is a day."""
    made = read(
        scenarios(
            """
a: {from: A, to: {B: 3, C: 1}, volume: 4 TB, rate: 4 Gb/s}
b: {mesh: [A, B, C], keep: 6 TB, rate: 6 Gb/s}
c: {from: A, to: B, volume: 86.4 TB, both_ways: true}
d:
  overhead: 10 %
  links:
    - {from: A, to: B, volume: 2 TiB, rate: 1 Gb/s}
    - {from: A, to: C, keep: 1 TB, rate: 1 Gb/s, shape: {ramp: 1 h}}
    - {from: A, to: D, rate: 1 Gb/s}
"""
        )
    )
    found = {(flow.scenario, str(flow.link)): (flow.goal, round(flow.rate), flow.overhead) for flow in made.flows}
    gb = 10**9 // 8
    assert found["a", "A:B"] == (Volume(3 * TB), 3 * gb, 0)
    assert found["a", "A:C"] == (Volume(TB), gb, 0)
    assert [goal for (name, _), goal in found.items() if name == "b"] == [(Keep(TB), gb, 0)] * 6
    assert found["c", "A:B"] == found["c", "B:A"] == (Volume(86_400 * 10**9, steady=True), 10**9, 0)
    assert found["d", "A:B"] == (Volume(2 * 2**40), gb, 0)
    assert found["d", "A:C"] == (Keep(TB), gb, 0)
    assert found["d", "A:D"] == (None, gb, 0.1)


def test_links_of_a_file_may_have_volumes() -> None:
    """Some of them, with or without a rate."""
    rows = "from,to,volume,rate\nA,B,2 TB,1 Gb/s\nA,C,1 TB,\nA,D,,1 Gb/s\n"
    made = draft(scenarios("one: {links: {file: l.csv}}"), {"l.csv": rows}).preview
    assert [flow.goal for flow in made.flows] == [Volume(2 * TB), Volume(TB, steady=True), None]


def test_a_volume_is_given_at_its_rate_until_it_is_there() -> None:
    """What plans count with: nothing after its end."""
    (flow,) = read(scenarios("one: {from: A, to: B, volume: 3.6 TB, rate: 8 Gb/s}")).flows
    hour = timedelta(hours=1)
    assert rates.mean([flow], flow.start, flow.start + hour) == 1e9
    assert rates.mean([flow], flow.start + hour, flow.end) == 0
    assert rates.planned(flow, flow.start - hour, flow.end + hour) == 3_600 * 10**9
    assert rates.peak([flow]).rate == 1e9
    assert rates.until_done(flow).end == flow.start + hour
    (later,) = read(scenarios("one: {from: A, to: B, volume: 3.6 TB, rate: 8 Gb/s, shape: {ramp: 2 h}}")).flows
    assert abs(rates.until_done(later).end - later.start - 2 * hour) <= timedelta(microseconds=1)
    (less,) = read(scenarios("one: {from: A, to: B, volume: 900 TB, rate: 8 Gb/s}")).flows
    assert rates.until_done(less).end == less.end


@pytest.mark.parametrize(
    ("body", "message", "hint"),
    [
        ("one: {from: A, to: B, again: true}", "`rate` is missing", "`again` needs a highest rate"),
        (
            "one: {from: A, to: B, again: true, keep: 1 TB, rate: 1 Gb/s}",
            "`again` cannot go with `keep`",
            "one of",
        ),
        ("one: {from: A, to: B, again: maybe, rate: 1 Gb/s}", "got 'maybe'", "true"),
        ("one: {from: A, to: B}", "`rate` is missing", "add `rate: ...`"),
        ("one: {from: A, to: B, keep: 2 TB}", "`rate` is missing", "`keep` needs a highest rate"),
        (
            "one: {from: A, to: B, keep: 2 TB, volume: 2 TB, rate: 1 Gb/s}",
            "`keep` cannot go with `volume`",
            "one of",
        ),
        ("one: {from: A, to: B, volume: 2 Tb}", "`volume`: '2 Tb' is not a size", "2 PiB"),
        ("one: {from: A, to: B, volume: 0 B}", "`volume`: '0 B' must be above 0", "above 0"),
        ("one: {from: A, to: B, keep: 5, rate: 1 Gb/s}", "`keep`: '5' has no unit", "500 TB"),
        (
            "one: {from: A, to: B, volume: 2 TB, shape: {ramp: 1 h}}",
            "the shape has no `rate`",
            "shape: constant",
        ),
        (
            "one: {volume: 2 TB, links: [{from: A, to: B, rate: 1 Gb/s}]}",
            "`volume` cannot go with `links`",
            "each link",
        ),
        (
            "one: {keep: 2 TB, links: [{from: A, to: B, rate: 1 Gb/s}]}",
            "`keep` cannot go with `links`",
            "each link",
        ),
        ("one: {links: [{from: A, to: B}]}", "`rate` is missing", "such as `rate: 10 Gb/s`"),
        ("one: {from: A, to: B, rate: }", "`rate` has no value", "give it one"),
        ("one: {links: [{from: A, to: B, rate: }]}", "`rate` has no value", "give it one"),
    ],
)
def test_what_is_wrong(body: str, message: str, hint: str) -> None:
    """One problem each, with a hint."""
    (found,) = problems(scenarios(body))
    assert message in found.message
    assert hint in found.hint


def test_files_through_fts_go_out_again_anyway() -> None:
    """So that nobody believes that it does something there."""
    body = RIGHT.replace("rate:", "again: true, rate:")
    (found,) = problems(fts(body), LIST)
    assert "through FTS the same files may go out again" in found.message
    made = read(scenarios("one: {from: A, to: [B, C], again: true, rate: 2 Gb/s}"))
    assert [flow.goal for flow in made.flows] == [Recycle()] * 2


def test_a_goal_has_no_place_in_defaults() -> None:
    """It is of one scenario or link."""
    (found,) = problems(text(defaults='defaults: {volume: 2 TB, datasets: {did: "cms:*"}}'))
    assert found.message == "the key `volume` is unknown here"
    assert found.hint == "it belongs in a scenario"
