"""Slices in menus: off unless a menu says so, and refused where they mean nothing."""

from __future__ import annotations

import pytest

from dc_inject.model.items import Slicing
from tests.menu.texts import LIST, RIGHT, fts, problems, read, scenarios

BASE = "from: A, to: B, rate: 1 Gb/s"


def slices(body: str) -> Slicing | None:
    """What a scenario with these keys says of slices."""
    return read(scenarios(f"one: {{{body}}}")).flows[0].slices


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("", None),
        (", datasets: {slices: no}", None),
        (", datasets: {slices: False}", None),
        (", datasets: {slices: off}", None),
        (", datasets: {slices: {scope: user.dcops, never: on}}", None),
        (", datasets: {slices: user.dcops}", Slicing("user.dcops")),
        (
            ", datasets: {slices: {scope: user.dcops, name: '/{campaign}/{mark}', at_most: 100 GB}}",
            Slicing("user.dcops", "/{campaign}/{mark}", 100 * 10**9),
        ),
        (", keep: 1 TB, datasets: {slices: user.dcops}", Slicing("user.dcops")),
    ],
)
def test_what_a_menu_says_of_slices(said: str, meant: Slicing | None) -> None:
    assert slices(BASE + said) == meant


def test_a_link_may_do_without_the_slices_of_its_scenario() -> None:
    links = "[{from: A, to: B, rate: 1 Gb/s}, {from: A, to: C, rate: 1 Gb/s, datasets: {slices: no}}]"
    flows = read(scenarios(f"one: {{datasets: {{slices: user.dcops}}, links: {links}}}")).flows
    assert [flow.slices for flow in flows] == [Slicing("user.dcops"), None]


@pytest.mark.parametrize(
    "said",
    [
        ", datasets: {slices: 'a scope'}",
        ", datasets: {slices: {at_most: 1 TB}}",
        ", datasets: {slices: yes}",
        ", datasets: {slices: {scope: user.dcops, name: all-alike}}",
        ", datasets: {slices: {scope: user.dcops, name: '{mark} {mother}'}}",
        ", volume: 1 TB, datasets: {slices: user.dcops}",
        ", again: true, datasets: {slices: user.dcops}",
        ", then: {to: D}, datasets: {slices: user.dcops}",
    ],
)
def test_what_cannot_be_meant_is_refused(said: str, wording) -> None:
    wording(problems(scenarios(f"one: {{{BASE}{said}}}")))


def test_fts_has_no_need_of_slices() -> None:
    one = RIGHT[:-1] + ", datasets: {did: 'a:*', slices: user.dcops}}"
    (problem,) = problems(fts(one), LIST)
    assert "only for links through Rucio" in problem.message
