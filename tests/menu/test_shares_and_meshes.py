"""Scenarios are written out into flows: who sends to whom, at which rate, on which terms."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject.model import DatasetFilter, Exclusion, Limits, Link, Order, RseSpec, Site
from dc_inject.model.errors import MenuError
from tests.menu.texts import draft, problems, rates, read, scenarios, text


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        ("{from: A, to: B, rate: 10 Gb/s}", {"A:B": 10}),
        ("{from: A, to: [B, C], rate: 10 Gb/s}", {"A:B": 5, "A:C": 5}),
        ("{from: [A, B], to: [A, B, C], rate: 8 Gb/s}", {"A:B": 2, "A:C": 2, "B:A": 2, "B:C": 2}),
        ("{from: A, to: {B: 40, C: 10}, rate: 10 Gb/s}", {"A:B": 8, "A:C": 2}),
        ("{from: A, to: {B: 1, C: 0}, rate: 10 Gb/s}", {"A:B": 10}),
        ("{from: {A: 3, B: 1}, to: {C: 1, D: 1}, rate: 8 Gb/s}", {"A:C": 3, "A:D": 3, "B:C": 1, "B:D": 1}),
        ("{from: {A: 1, B: 1}, to: {A: 1, C: 2}, rate: 10 Gb/s}", {"A:C": 4, "B:A": 2, "B:C": 4}),
        ("{from: A, to: [B, C], rate: 10 Gb/s, both_ways: true}", {"A:B": 5, "A:C": 5, "B:A": 5, "C:A": 5}),
        ("{mesh: [A, B], rate: 10 GB/s}", {"A:B": 40, "B:A": 40}),
        ("{mesh: [A, B, C], rate: 6 Gb/s}", {"A:B": 1, "A:C": 1, "B:A": 1, "B:C": 1, "C:A": 1, "C:B": 1}),
        ("{links: [{from: A, to: B, rate: 1 Gb/s}, {from: B, to: C, rate: 2 Gb/s}]}", {"A:B": 1, "B:C": 2}),
        ("{links: [{from: A, to: B, rate: 1 Gb/s, both_ways: true}]}", {"A:B": 1, "B:A": 1}),
    ],
)
def test_rates(scenario: str, expected: dict[str, float]) -> None:
    """The rate of a scenario is shared among all pairs but self-pairs; both ways each get it all."""
    assert rates(read(scenarios(f"one: {scenario}"))) == expected


SHARES = st.dictionaries(st.sampled_from("ABCDEF"), st.integers(0, 100), min_size=1, max_size=6)


@settings(deadline=None)
@given(sources=SHARES, destinations=SHARES, rate=st.integers(1, 900))
def test_a_scenario_sums_to_its_rate(sources: dict[str, int], destinations: dict[str, int], rate: int) -> None:
    """Whatever the shares, the links sum to the rate, and keep the proportions of the shares."""
    written = (str(shares).replace("'", "") for shares in (sources, destinations))
    content = scenarios("one: {{from: {}, to: {}, rate: {} Gb/s}}".format(*written, rate))
    pairs = {(a, b): sources[a] * destinations[b] for a in sources for b in destinations if a != b}
    pairs = {pair: share for pair, share in pairs.items() if share}
    if not pairs:
        assert problems(content)
        return
    flows = read(content).flows
    assert sum(flow.rate for flow in flows) == pytest.approx(rate * 1e9 / 8)
    assert {flow.link.ends for flow in flows} == set(pairs)
    unit = rate * 1e9 / 8 / sum(pairs.values())
    assert all(flow.rate == pytest.approx(unit * pairs[flow.link.ends]) for flow in flows)


def test_links_of_a_file() -> None:
    """`links: {file: ...}` reads a CSV beside the menu; more columns are the keys of a link."""
    content = scenarios("one: {links: {file: sub/links.csv}}")
    csv = "from, to, rate, priority, start\n# from KIT\nA, B, 10 Gb/s, 4,\n\nB, A, 1 GB/s, , 2027-02-08 12:00\n"
    made = draft(content, {"dir/sub/links.csv": csv}, name="dir/m.yaml").preview
    assert rates(made) == {"A:B": 10, "B:A": 8}
    assert [(flow.priority, flow.menu, flow.line, flow.stated) for flow in made.flows] == [
        (4, "dir/sub/links.csv", 3, True),
        (3, "dir/sub/links.csv", 5, True),
    ]
    assert made.flows[1].start == datetime(2027, 2, 8, 11, tzinfo=UTC)


@pytest.mark.parametrize(
    ("csv", "line"),
    [
        ("A,B,7800\n", 1),
        ("from,to,rate\nA,B,7800\n", 2),
        ("from,to,rate\nA,B\n", 2),
        ("from,to,rate\nA,B,1 Gb/s,x\n", 2),
        ("from,to,rate,colour\nA,B,1 Gb/s,x\n", 1),
        ("from,to,rate\nA,B,1 Gb/s\nA,B,2 Gb/s\n", 3),
        ("from,to,rate\n", 10),
        ("", 10),
    ],
)
def test_wrong_links_of_a_file(csv: str, line: int, wording) -> None:
    """What is wrong in a CSV is told with its line there; an empty one with the menu's line."""
    found = problems(scenarios("one: {links: {file: links.csv}}"), {"links.csv": csv})
    assert (found[0].file, found[0].line) == ("m.yaml" if line == 10 else "links.csv", line)
    wording(found[0])


def test_defaults() -> None:
    """What a menu does not say has the defaults of the design."""
    made = read(text(timezone=""))
    (flow,) = made.flows
    assert (made.start, made.end) == (datetime(2027, 2, 8, 10, tzinfo=UTC), datetime(2027, 2, 9, 10, tzinfo=UTC))
    assert (made.cycle, made.timezone, made.target, made.accept) == (
        timedelta(minutes=15),
        "UTC",
        None,
        frozenset(),
    )
    assert flow.link == Link("A", "B", "rucio")
    assert flow.datasets == DatasetFilter(("cms:*",), (), (), (1, 1000), (10**9, 20 * 10**9))
    assert (flow.order, flow.grain, flow.overhead) == (Order.LARGEST_FIRST, 0.25, 0.0)
    assert (flow.activity, flow.priority, flow.service_priority) == ("Data Challenge", 3, 3)
    assert (flow.lifetime_min, flow.lifetime_max) == (timedelta(hours=1), timedelta(hours=2))
    assert read(text(limits="")).limits == Limits()


def test_overrides() -> None:
    """A link's word counts before its scenario's, and that before the defaults, key by key."""
    made = read(
        text(
            defaults="""defaults:
  activity: Functional Test
  priority: 2
  lifetime: {min: 30 min, max: 4 h}
  overhead: 10 %
  datasets: {did: ["b:*", "a:*"], files: 1..50, exclude: "a:x", order: random}""",
            scenarios="""scenarios:
  one:
    priority: 4
    start: 2027-02-08 12:00
    datasets: {files: 2..20}
    lifetime: {max: 3 h}
    links:
      - {from: A, to: B, rate: 1 Gb/s}
      - from: B
        to: C
        rate: 1 Gb/s
        priority: 5
        end: 2027-02-08 14:00
        activity: Recovery
        grain: 50 %
        dwell: 5 min
        datasets: {containers: "a:c", file: dids.txt, order: smallest-first, mean_file: 2..3 GB}""",
        ),
        {"dids.txt": "# chosen by hand\ncms:/A/B/RAW#1\n\n  cms:/A/B/RAW#2\n"},
    )
    plain, special = made.flows
    assert (plain.priority, plain.activity, plain.overhead) == (4, "Functional Test", 0.1)
    assert (plain.lifetime_min, plain.lifetime_max) == (timedelta(minutes=30), timedelta(hours=3))
    assert (plain.start.hour, plain.end) == (11, made.end)
    assert plain.datasets == DatasetFilter(("a:*", "b:*"), (), ("a:x",), (2, 20))
    assert plain.order == Order.RANDOM
    assert (special.priority, special.activity, special.overhead, special.grain) == (5, "Recovery", 0.1, 0.5)
    assert (special.start.hour, special.end.hour, special.dwell) == (11, 13, timedelta(minutes=5))
    assert special.datasets == DatasetFilter(
        ("cms:/A/B/RAW#1", "cms:/A/B/RAW#2"), ("a:c",), ("a:x",), (2, 20), (2 * 10**9, 3 * 10**9)
    )
    assert special.order == Order.SMALLEST_FIRST


def test_the_rest_of_a_menu() -> None:
    """Sites, limits, exclusions, tape and switches become what the engine works with."""
    made = read(
        text(
            limits="limits: {total: 1 Tb/s, per_site: 80 Gb/s, rules_per_hour: 3000, files_in_flight: 200_000}",
            defaults="defaults: {cycle: 10 min, service_priority: 4, datasets: {did: 'cms:*'}}",
            scenarios="scenarios: {one: {links: [{from: KIT, to: T, rate: 8 Gb/s, tape_agreed: Ada}]}}",
            x="""sites:
  KIT: {wan: 300 Gb/s, max_ingress: 80 Gb/s, rses: {K: {space: 500 TB, deletion_lag: 20 min}}}
  RAL: {rses: {R: {}}}
exclude:
  - {site: KIT, from: 2027-02-08 14:00, to: 2027-02-08 15:00, reason: downtime, redistribute: true}
tape: {Z: Charles}
accept: rate-outlier
above_production: true
target: 8.05 Gb/s
x-anything: {goes: [here]}""",
        )
    )
    assert made.limits == Limits(1e12 / 8, 1e10, 3000, 200_000)
    assert made.cycle == timedelta(minutes=10)
    assert made.sites == (
        Site("KIT", 3e11 / 8, 1e10, None, {"K": RseSpec(500 * 10**12, timedelta(minutes=20))}),
        Site("RAL", rses={"R": RseSpec()}),
    )
    assert made.exclusions == (
        Exclusion(
            datetime(2027, 2, 8, 13, tzinfo=UTC),
            datetime(2027, 2, 8, 14, tzinfo=UTC),
            "downtime",
            site="KIT",
            redistribute=True,
        ),
    )
    assert made.tape_agreed == {"K": "Ada", "T": "Ada", "Z": "Charles"}
    assert (made.accept, made.target) == (frozenset({"rate-outlier"}), 8.05e9 / 8)
    assert [str(flow.link) for flow in made.flows] == ["K:T"]  # the site's one RSE


def test_windows_that_do_not_overlap_may_share_a_link() -> None:
    """The same link twice in a scenario is right at different times, and the target is of any one time."""
    made = read(
        text(
            x="target: 10 Gb/s",
            limits="limits: {total: 10 Gb/s}",
            scenarios="""scenarios:
  one:
    links:
      - {from: A, to: B, rate: 10 Gb/s, end: 2027-02-08 12:00}
      - {from: A, to: B, rate: 5 Gb/s, start: 2027-02-08 12:00}""",
        )
    )
    assert len(made.flows) == 2


# --------------------------------------------------------------------------- RSE expressions


def test_expressions_are_resolved_later() -> None:
    """An end that is no plain name is an expression: it is asked for once, and then shared as a list would be."""
    made = draft(
        scenarios("""
one: {from: A, to: "tier=2&country=US", rate: 12 Gb/s}
two: {mesh: "tier=2&country=US", rate: 6 Gb/s}
three: {from: A, to: {"tier=2&country=US": 30, B: 10}, rate: 4 Gb/s}
four: {links: [{from: "T1*", to: B, rate: 3 Gb/s}]}
""")
    )
    assert made.expressions == (("rucio", "tier=2&country=US"), ("rucio", "T1*"))
    resolved = made.resolve({"tier=2&country=US": ("Y", "X", "Z"), "T1*": ("T1", "B")})
    found = {}
    for flow in resolved.flows:
        found.setdefault(flow.scenario, {})[str(flow.link)] = round(flow.rate * 8 / 1e9, 6)
    assert found == {
        "one": {"A:X": 4, "A:Y": 4, "A:Z": 4},
        "two": {f"{a}:{b}": 1 for a in "XYZ" for b in "XYZ" if a != b},
        "three": {"A:X": 1, "A:Y": 1, "A:Z": 1, "A:B": 1},
        "four": {"T1:B": 3},
    }
    assert sum(flow.rate for flow in made.preview.flows) == sum(flow.rate for flow in resolved.flows)


@pytest.mark.parametrize(
    ("scenario", "names"),
    [
        ('{from: A, to: "tier=2", rate: 1 Gb/s}', ()),
        ('{from: A, to: "tier=2", rate: 1 Gb/s}', ("A",)),
        ('{mesh: "tier=2", rate: 1 Gb/s}', ("A",)),
        ('{from: A, to: {"tier=2": 1, B: 1}, rate: 1 Gb/s}', ("B", "C")),
        (
            '{links: [{from: A, to: "tier=2", rate: 1 Gb/s}, {from: A, to: B, rate: 1 Gb/s}]}',
            ("B",),
        ),
    ],
)
def test_what_only_shows_when_expressions_are_resolved(scenario: str, names: tuple[str, ...], wording) -> None:
    """A menu that is right as written may be wrong with what its expressions mean; then it has a line too."""
    made = draft(scenarios(f"one: {scenario}"))
    with pytest.raises(MenuError) as caught:
        made.resolve({"tier=2": names})
    wording(caught.value.problems[0])
    assert caught.value.problems[0].line >= 9


def test_an_expression_that_nobody_resolved_is_a_menu_error(wording) -> None:
    """Nothing is guessed."""
    with pytest.raises(MenuError) as refused:
        draft(scenarios('one: {from: A, to: "tier=2", rate: 1 Gb/s}')).resolve({})
    wording(refused.value)
