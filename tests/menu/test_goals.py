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
    assert rates.shorten_to_goal(flow).end == flow.start + hour
    (later,) = read(scenarios("one: {from: A, to: B, volume: 3.6 TB, rate: 8 Gb/s, shape: {ramp: 2 h}}")).flows
    assert abs(rates.shorten_to_goal(later).end - later.start - 2 * hour) <= timedelta(microseconds=1)
    (less,) = read(scenarios("one: {from: A, to: B, volume: 900 TB, rate: 8 Gb/s}")).flows
    assert rates.shorten_to_goal(less).end == less.end


@pytest.mark.parametrize(
    "body",
    [
        "one: {from: A, to: B, again: true}",
        "one: {from: A, to: B, again: true, keep: 1 TB, rate: 1 Gb/s}",
        "one: {from: A, to: B, again: maybe, rate: 1 Gb/s}",
        "one: {from: A, to: B, keep: 2 TB}",
        "one: {from: A, to: B, keep: 2 TB, volume: 2 TB, rate: 1 Gb/s}",
        "one: {from: A, to: B, volume: 2 Tb}",
        "one: {from: A, to: B, volume: 0 B}",
        "one: {from: A, to: B, keep: 5, rate: 1 Gb/s}",
        "one: {from: A, to: B, volume: 2 TB, shape: {ramp: 1 h}}",
        "one: {volume: 2 TB, links: [{from: A, to: B, rate: 1 Gb/s}]}",
        "one: {keep: 2 TB, links: [{from: A, to: B, rate: 1 Gb/s}]}",
        "one: {from: A, to: B, rate: }",
        "one: {links: [{from: A, to: B, rate: }]}",
    ],
)
def test_what_is_wrong(body: str, wording) -> None:
    """One problem each, with a hint."""
    (found,) = problems(scenarios(body))
    wording(found)


def test_files_through_fts_go_out_again_anyway() -> None:
    """So that nobody believes that it does something there."""
    body = RIGHT.replace("rate:", "again: true, rate:")
    (found,) = problems(fts(body), LIST)
    assert "through FTS the same files may go out again" in found.message
    made = read(scenarios("one: {from: A, to: [B, C], again: true, rate: 2 Gb/s}"))
    assert [flow.goal for flow in made.flows] == [Recycle()] * 2


def test_a_goal_has_no_place_in_defaults(wording) -> None:
    """It is of one scenario or link."""
    (found,) = problems(text(defaults='defaults: {volume: 2 TB, datasets: {did: "cms:*"}}'))
    wording(found.message)
    wording(found.hint)
