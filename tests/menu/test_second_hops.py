"""Second hops as menus write them: where they begin and end, at which rate, and what is said of wrong ones."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject import menu
from dc_inject.model import DatasetFilter, FileFilter, Flow, Link
from dc_inject.model.errors import MenuError
from dc_inject.model.goals import SecondHop, Volume
from tests.menu.texts import LIST, RIGHT, A, B, draft, fts, problems, read, scenarios, text

GBPS = 1e9 / 8
BASE = "from: A, to: {B: 3, C: 1}, rate: 40 Gb/s"


def hops(body: str) -> dict[str, float]:
    """The second hops of a scenario, with their rates in Gb/s."""
    made = read(scenarios(f"one: {{{body}}}"))
    return {str(flow.link): round(flow.rate / GBPS, 6) for flow in made.flows if isinstance(flow.goal, SecondHop)}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (BASE + ", then: {to: D}", {"B:D": 30, "C:D": 10}),
        (BASE + ", then: {to: {B: D, C: E}}", {"B:D": 30, "C:E": 10}),
        (BASE + ", then: {to: {B: D}}", {"B:D": 30}),
        (BASE + ", then: {to: D, rate: 20 Gb/s}", {"B:D": 15, "C:D": 5}),
        (BASE + ", then: {to: {C: E}, rate: 20 Gb/s}", {"C:E": 20}),
        ("from: [A, F], to: B, rate: 20 Gb/s, then: {to: D}", {"B:D": 20}),
        ("from: A, to: B, volume: 86.4 TB, then: {to: D}", {"B:D": 8}),
        (
            "links: [{from: A, to: B, rate: 3 Gb/s}, {from: F, to: C, rate: 1 Gb/s}], then: {to: D}",
            {"B:D": 3, "C:D": 1},
        ),
    ],
)
def test_where_it_goes_on_and_how_fast(body: str, expected: dict[str, float]) -> None:
    """In proportion to what lands at each place."""
    assert hops(body) == expected


def test_a_second_hop_is_a_link_of_its_scenario_on_its_terms() -> None:
    """Its pool is what has landed there in this scenario, and nothing else."""
    body = """
one:
  from: A
  to: B
  volume: 2 TB
  rate: 8 Gb/s
  priority: 5
  start: 2027-02-08 12:00
  lifetime: {max: 6 h}
  then: {to: T, activity: Data Consolidation, tape_agreed: J. Doe}
"""
    made = read(scenarios(body))
    first, then = made.flows
    assert isinstance(first.goal, Volume)
    assert then.goal == SecondHop()
    assert then.scenario == first.scenario == "one"
    assert then.pool.source == "B"
    assert then.datasets == DatasetFilter((), landed="one")
    assert (then.start, then.end, then.priority) == (first.start, first.end, 5)
    assert (then.lifetime_min, then.lifetime_max) == (first.lifetime_min, first.lifetime_max)
    assert (then.activity, then.overhead) == ("Data Consolidation", 0)
    assert made.tape_agreed == {"T": "J. Doe"}


def test_an_expression_goes_on_when_it_is_resolved() -> None:
    """Until then it stands for itself."""
    made = draft(scenarios('one: {from: A, to: "tier=1", rate: 8 Gb/s, then: {to: {B: D}}}'))
    assert [str(flow.link) for flow in made.preview.flows] == ["A:tier=1"]
    flows = made.resolve({"tier=1": ("B", "C")}).flows
    assert [str(flow.link) for flow in flows] == ["A:B", "A:C", "B:D"]


def test_a_site_stands_for_its_rse() -> None:
    """As it does for other ends."""
    made = read(
        text(
            sites="sites: {KIT: {rses: {KIT_Disk: {}}}, TAPE: {rses: {KIT_Tape: {}}}}",
            scenarios="scenarios:\n  one: {from: A, to: KIT, rate: 8 Gb/s, then: {to: {KIT: TAPE}}}",
        )
    )
    links: list[Flow] = list(made.flows)
    assert str(links[1].link) == "KIT_Disk:KIT_Tape"


@pytest.mark.parametrize(
    "then",
    [
        "{to: {X: D}}",
        "{to: {B: B}}",
        "{to: {B: [D, E]}}",
        "{to: {}}",
        "{rate: 1 Gb/s}",
        '{to: {B: "tier=0&disk"}}',
        "{to: D, rate: fast}",
        "{to: D, volume: 1 TB}",
        "D",
    ],
)
def test_what_is_wrong(then: str, wording) -> None:
    """One problem each, with a hint."""
    (found,) = problems(scenarios(f"one: {{{BASE}, then: {then}}}"))
    wording(found)


def test_a_second_hop_that_is_a_link_already_is_there_twice(wording) -> None:
    """An account is of one link in one scenario."""
    (found,) = problems(scenarios("one: {mesh: [A, B], rate: 1 Gb/s, then: {to: {B: A}}}"))
    wording(found.message)


TAPE = "davs://tape.example.org/archive"


def test_through_fts_copies_go_on_from_where_they_landed() -> None:
    """On the terms of the first hop, its jobs included; no list or folder tells which files."""
    menu = fts(RIGHT.replace("rate:", f"then: {{to: '{TAPE}'}}, jobs: {{files: 50}}, rate:"))
    first, then = draft(menu, LIST).preview.flows
    assert then.link == Link(first.link.destination, TAPE, "fts")
    assert then.datasets == FileFilter(landed="one")
    assert then.goal == SecondHop()
    assert then.job == first.job
    assert (then.job.files, then.rate) == (50, first.rate)


def test_through_fts_a_site_stands_for_its_prefix() -> None:
    """As it does for other ends."""
    sites = f"sites: {{TAPE: {{rses: {{'{TAPE}': {{}}}}}}}}"
    menu = fts(RIGHT.replace("rate:", "then: {to: TAPE}, rate:"), sites=sites)
    assert draft(menu, LIST).preview.flows[1].link.destination == TAPE


@pytest.mark.parametrize(
    "scenario",
    [
        RIGHT.replace("rate:", "then: {to: SOME_RSE}, rate:"),
        RIGHT.replace("rate:", f"then: {{to: '{B}'}}, rate:"),
        RIGHT.replace("rate:", f"then: {{to: {{'{A}': '{TAPE}'}}}}, rate:"),
    ],
)
def test_what_is_wrong_through_fts(scenario: str, wording) -> None:
    """One problem each."""
    (found,) = problems(fts(scenario), LIST)
    wording(found)


def test_a_second_hop_through_two_services_is_refused(wording) -> None:
    """What landed through one is not known to the other."""
    links = f"{{from: '{A}', to: '{B}', rate: 1 Gb/s}}, {{from: X, to: Y, rate: 1 Gb/s, through: rucio}}"
    found = problems(fts(f"{{links: [{links}], then: {{to: '{TAPE}'}}}}"), LIST)
    wording(found)


def test_what_lands_with_different_lifetimes_goes_on_with_the_widest_whatever_the_order() -> None:
    """A second copy that ended long before the first one would be made again."""
    links = [
        "{from: A, to: B, rate: 3 Gb/s, lifetime: {min: 30 min, max: 2 h}}",
        "{from: F, to: B, rate: 1 Gb/s, lifetime: {min: 1 h, max: 6 h}}",
    ]
    for some in (links, links[::-1]):
        flows = read(scenarios(f"one: {{links: [{', '.join(some)}], then: {{to: D}}}}")).flows
        (then,) = (flow for flow in flows if isinstance(flow.goal, SecondHop))
        assert (then.lifetime_min, then.lifetime_max) == (timedelta(minutes=30), timedelta(hours=6))


@pytest.mark.parametrize("wrong", [True, False])
def test_what_lands_goes_on_to_one_place_at_a_time(wrong: bool, wording) -> None:
    """Also where several menus have the scenario: at once that is wrong, one after the other it is not."""
    first, second = (
        read(scenarios(f"one: {{from: {start}, to: B, rate: 4 Gb/s, then: {{to: {to}}}}}"), name=f"{to}.yaml")
        for start, to in (("A", "D"), ("F", "E"))
    )
    change = first.start if wrong else first.start + (first.end - first.start) / 2
    early = replace(first, flows=tuple(replace(flow, end=flow.end if wrong else change) for flow in first.flows))
    late = replace(second, flows=tuple(replace(flow, start=change) for flow in second.flows))
    if not wrong:
        assert len(menu.campaign([early, late]).flows) == 4
        return
    with pytest.raises(MenuError) as error:
        menu.campaign([early, late])
    (problem,) = error.value.problems
    wording(problem.message)
