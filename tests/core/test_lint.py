"""Lint: each code fires where it should, and not on the near miss beside it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from dc_inject import menu
from dc_inject.analysis import lint
from dc_inject.analysis.footprint.load import Assumptions
from dc_inject.model import (
    Campaign,
    DatasetFilter,
    Exclusion,
    File,
    FileFilter,
    Flow,
    Link,
    Listing,
    Menu,
    RseSpec,
    Site,
    Tape,
)
from dc_inject.model.errors import Problem
from dc_inject.model.findings import CODES
from dc_inject.model.shape import Point, Shape
from dc_inject.model.transfers import FILE_SPEED
from tests.menu.texts import draft, text

START = datetime(2027, 2, 8, 10, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
GBIT, GB, TB = 1e9 / 8, 10**9, 10**12
ALL = DatasetFilter(("cms:*",))


def flow(source: str, destination: str, gbit: float, scenario: str = "one", **more) -> Flow:
    """A link of so many Gb/s, for a day."""
    terms = {"start": START, "end": START + DAY, "datasets": ALL, "menu": "m.yaml", "line": 7} | more
    return Flow(scenario, Link(source, destination, terms.pop("through", "rucio")), gbit * GBIT, **terms)


def day(*flows: Flow, name: str = "m.yaml", start: datetime = START, end: datetime = START + DAY, **more) -> Menu:
    return Menu(name, "dc27", "nobody", start, end, flows, **more)


def found(*menus: Menu, file_speed: float = 10e6, **how) -> list[Problem]:
    """Find with files fast enough for 10.4 Gb/s a link, so that few transfers are short where others are tried."""
    return list(lint.findings(Campaign("dc27", "nobody", HOUR / 4, menus), file_speed=file_speed, **how))


def codes(*menus: Menu, **how) -> list[str]:
    return [problem.code for problem in found(*menus, **how)]


# --------------------------------------------------------------------------- lifetimes


@pytest.mark.parametrize(("days", "outliers"), [(1, []), (1.01, [False]), (7, [False]), (8, [True])])
def test_rules_that_may_live_for_more_than_a_day_are_found(days: float, outliers: list[bool]) -> None:
    """One finding a scenario; above a week `run` wants it accepted."""
    flows = [flow("A", to, 1, lifetime_max=days * DAY) for to in ("B", "C")]
    assert [one.needs_accepting for one in found(day(*flows)) if one.code == "long-lifetime"] == outliers
    assert "long-lifetime" not in codes(day(*flows, accept=frozenset({"long-lifetime"})))


# --------------------------------------------------------------------------- spaces


def sized(space: int, lag: timedelta = timedelta(0)) -> tuple[Site, ...]:
    return (Site("KIT", rses={"B": RseSpec(space, lag)}),)


def test_space_that_even_the_shortest_lifetime_overfills(wording):
    """8 Gb/s for 1 h and a cycle of lag are 4.5 TB."""
    (problem,) = found(day(flow("A", "B", 8), sites=sized(4 * TB)))
    assert (problem.code, problem.file, problem.line, problem.needs_accepting) == (
        "space-overfilled",
        "m.yaml",
        7,
        False,
    )
    wording(problem.message)


def test_space_that_the_shortest_lifetime_just_fits_is_enough():
    assert codes(day(flow("A", "B", 8), sites=sized(4500 * GB))) == []
    assert codes(day(flow("A", "B", 8), sites=sized(4500 * GB, HOUR))) == ["space-overfilled"]


def test_a_short_menu_never_overfills_what_holds_all_of_it():
    short = day(flow("A", "B", 8, end=START + HOUR / 2), end=START + HOUR / 2, sites=sized(2 * TB))
    assert "space-overfilled" not in codes(short)


def test_space_is_that_of_the_rse_and_not_of_its_site():
    sites = (Site("KIT", rses={"B": RseSpec(4 * TB), "C": RseSpec(400 * TB)}),)
    assert codes(day(flow("A", "B", 8), sites=sites)) == ["space-overfilled"]


@pytest.mark.parametrize(
    ("rate", "buffer", "expected"),
    [(1, 1799, ["tape-buffer"]), (1, 1800, []), (0.5, 900, []), (0.5, 899, ["tape-buffer"]), (9, 1800, [])],
)
def test_a_tape_buffer_holds_what_drives_read_in_two_cycles(rate, buffer, expected):
    """Two cycles of 15 min; the drives read at most 1 GB/s."""
    tape = Tape(GB, buffer * GB, frozenset("A"))
    problems = found(day(flow("A", "B", 8 * rate), sites=(Site("KIT", rses={"A": RseSpec()}, tape=tape),)))
    assert [problem.code for problem in problems if problem.code == "tape-buffer"] == expected


# --------------------------------------------------------------------------- datasets


def large(files: int) -> DatasetFilter:
    return DatasetFilter(("cms:*",), files=(files, 1000))


def test_a_link_that_is_too_slow_for_a_dataset_an_hour():
    """1 Gb/s are 450 GB an hour; datasets have 500 files of 1 GB at least."""
    flows = [flow("A", to, 1, datasets=large(500)) for to in "BC"]
    (problem,) = found(day(*flows, flow("A", "D", 9, datasets=large(500))))
    assert problem.code == "coarse-datasets"
    assert "A -> B (and 1 more link of one) moves 450 GB an hour" in problem.message
    assert "500 GB" in problem.message


def test_a_link_of_just_one_dataset_an_hour_is_fast_enough():
    assert codes(day(flow("A", "B", 1, datasets=large(450)))) == []
    assert codes(day(flow("A", "B", 1, datasets=large(490), overhead=0.1))) == []


def test_files_of_a_list_count_as_they_are():
    def through(size: int) -> Menu:
        files = FileFilter(Listing("l", "x", (File("davs://a/dc/1", size), File("davs://a/dc/2", 900 * GB))))
        return day(flow("davs://a/dc", "davs://b/dc", 1, through="fts", datasets=files))

    assert codes(through(451 * GB)) == ["coarse-datasets"]
    assert codes(through(450 * GB)) == []
    folder = FileFilter(folder="", size=(451 * GB, 900 * GB))
    assert codes(day(flow("davs://a/dc", "davs://b/dc", 1, through="fts", datasets=folder))) == ["coarse-datasets"]


# --------------------------------------------------------------------------- transfers


def test_a_link_that_needs_more_transfers_than_fts_runs():
    """130 files at 6 MB/s are 6.24 Gb/s, all scenarios on the link together; FTS's release is named."""
    both = [flow("A", "B", 3, end=START + HOUR), flow("A", "B", 4, "two", start=START + HOUR)]
    assert codes(day(*both), file_speed=6e6) == []
    assert codes(day(flow("A", "B", 6.24)), file_speed=6e6) == []
    (problem,) = found(day(flow("A", "B", 6.3)), file_speed=6e6)
    assert problem.code == "fts-link-limit"
    assert all(words in problem.message for words in ("6.3 Gb/s", " 131 ", "FTS 3.14, schema 10", " 130 "))
    both = day(flow("A", "B", 3), flow("A", "B", 4, "two"))
    assert codes(both, file_speed=6e6) == ["fts-link-limit", "scenarios-overlap"]


def test_of_a_scenario_the_link_is_named_that_needs_the_most_transfers():
    """One finding each, however many links they have."""
    more = [flow("A", to, rate) for to, rate in (("B", 10), ("C", 12), ("D", 6))]
    one, two = found(day(*more, flow("A", "E", 11, "two")), file_speed=6e6)
    assert one.message.startswith("A -> C (and 1 more link of one): 12 Gb/s need 250 transfers")
    assert two.message.startswith("A -> E: 11 Gb/s need 229 transfers")


def test_how_fast_a_file_moves_can_be_told():
    """As the footprint has it; without a word, with the same speed."""
    assert Assumptions().file_speed == FILE_SPEED
    assert codes(day(flow("A", "B", 26.1)), file_speed=25e6) == ["fts-link-limit"]
    assert codes(day(flow("A", "B", 26)), file_speed=25e6) == []


def test_real_limits_of_fts_count_instead_of_the_usual_ones():
    """Storages are hosts: two folders of one share what it has."""
    flows = [
        flow(f"davs://a:1/{n}", f"davs://b:1/{n}", 21, through="fts", datasets=FileFilter(folder="")) for n in "xy"
    ]
    assert codes(day(*flows)) == ["fts-link-limit"]
    assert codes(day(*flows), services_with_limits=("fts",)) == []
    assert codes(day(flow("A", "B", 41)), services_with_limits=("fts",)) == ["fts-link-limit"]


def test_the_top_of_a_shape_is_what_counts():
    low = Shape(START, (Point(timedelta(0), 0.5),))
    assert codes(day(flow("A", "B", 19, shape=low))) == []
    high = Shape(START, (Point(timedelta(0), 0.5), Point(HOUR, 1.0), Point(HOUR, 0.0)))
    assert codes(day(flow("A", "B", 19, shape=high))) == ["fts-link-limit"]


# --------------------------------------------------------------------------- scenarios


def test_scenarios_that_share_a_link_at_one_time(wording):
    """One finding for two scenarios, also when they are in two menus."""
    one, two = flow("A", "B", 1), flow("A", "B", 1, "two", menu="two.yaml", line=3)
    more = flow("A", "C", 1), flow("A", "C", 1, "two", menu="two.yaml", line=4)
    (problem,) = found(day(one, more[0]), day(two, more[1], name="two.yaml"))
    assert (problem.code, problem.file, problem.line) == ("scenarios-overlap", "two.yaml", 3)
    wording(problem.message)


def test_many_scenarios_of_one_link_are_one_finding():
    """So a menu of thousands costs neither minutes nor gigabytes; those at another time are another finding."""
    many = [flow("A", "B", 1e-3, f"s{n:04d}", line=n) for n in range(2_000)]
    later = [flow("A", "B", 1, name, start=START + DAY, end=START + 2 * DAY, line=9) for name in ("x", "y")]
    window = day(*many, *later, end=START + 2 * DAY, accept=frozenset(CODES) - {"scenarios-overlap"})
    first, second = sorted(found(window), key=lambda problem: problem.message)
    assert (first.line, second.line) == (1, 9)
    assert first.message.startswith("s0000, s0001 and 1998 more use A -> B")
    assert second.message.startswith("x and y use A -> B")


def test_scenarios_on_other_links_or_at_other_times_can_be_told_apart():
    assert codes(day(flow("A", "B", 1), flow("B", "A", 1, "two"))) == []
    later = flow("A", "B", 1, "two", start=START + HOUR)
    assert codes(day(flow("A", "B", 1, end=START + HOUR), later)) == []


# --------------------------------------------------------------------------- days


def days(*spans: tuple[float, float]) -> list[Menu]:
    """Menus with windows in hours from the start."""
    made = []
    for number, (begin, end) in enumerate(spans):
        start, stop = START + begin * HOUR, START + end * HOUR
        made.append(day(flow("A", "B", 1, start=start, end=stop), name=f"{number}.yaml", start=start, end=stop))
    return made


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 24), (24, 48), (48, 72)], []),
        ([(0, 24), (25, 48)], ["window-gap"]),
        ([(0, 24), (23, 48)], ["window-overlap"]),
        ([(0, 24), (23, 48), (50, 60)], ["window-overlap", "window-gap"]),
        ([(0, 48), (12, 24), (48, 72)], []),  # an addition for some hours
        ([(0, 24), (0, 24)], []),  # two files of one day
        ([(0, 24), (0, 48), (48, 50)], []),
    ],
)
def test_windows_with_gaps_or_overlaps_between_days(spans, expected):
    """In whatever order the menus come."""
    for menus in (days(*spans), days(*spans)[::-1]):
        assert sorted(codes(*menus)) == sorted(expected)


def test_a_gap_is_told_at_the_menu_that_comes_late(wording):
    (problem,) = found(*days((0, 24), (25, 48)))
    assert problem.file == "1.yaml"
    wording(problem.message)


def test_a_day_whose_sum_differs_from_its_target(wording):
    """By more than 1 %; `run` wants it accepted."""
    (problem,) = found(day(flow("A", "B", 9), target=10 * GBIT, target_line=4))
    assert (problem.code, problem.line, problem.needs_accepting) == ("target-differs", 4, True)
    wording(problem.message)
    assert codes(day(flow("A", "B", 9), target=9.09 * GBIT)) == []
    assert codes(day(flow("A", "B", 9), target=9.1 * GBIT)) == ["target-differs"]


# --------------------------------------------------------------------------- exclusions


def off(start: float, end: float, **more) -> Exclusion:
    """An exclusion from so many hours after the start on."""
    return Exclusion(START + start * HOUR, START + end * HOUR, "downtime", **more)


KIT = (Site("KIT", rses={"B": RseSpec()}), Site("RAL", rses={"C": RseSpec()}))


@pytest.mark.parametrize(
    "exclusion",
    [
        off(-3, 0, rse="B"),
        off(24, 25, site="KIT"),
        off(1, 2, site="RAL"),
        off(5, 6, scenario="short"),
    ],
)
def test_exclusions_that_take_nothing_out(exclusion, wording):
    short = flow("A", "B", 1, "short", end=START + HOUR)
    (problem,) = found(day(flow("X", "B", 1), short, sites=KIT, exclusions=(exclusion,)))
    assert problem.code == "idle-exclusion"
    wording(problem)


@pytest.mark.parametrize(
    "exclusion",
    [
        off(-3, 0.1, rse="B"),
        off(23, 30, site="KIT"),
        off(1, 2, scenario="one"),
        off(1, 2, link="A:B"),
        off(1, 2, rse="A"),
    ],
)
def test_exclusions_that_take_something_out(exclusion):
    assert found(day(flow("A", "B", 1), sites=KIT, exclusions=(exclusion,))) == []


def test_an_exclusion_that_an_expression_may_mean_is_not_idle():
    """Nobody knows yet which RSEs it means."""
    assert found(day(flow("A", "tier=2", 1), sites=KIT, exclusions=(off(1, 2, site="RAL"),))) == []


def test_an_exclusion_of_an_included_file_is_judged_with_all_menus():
    """It may be meant for another day; together, it is meant for none."""
    tomorrow = START + DAY
    for exclusion, alone, together in (
        (off(30, 31, rse="B", file="_off.yaml", line=2), [], []),
        (off(90, 91, rse="B", file="_off.yaml", line=2), [], ["idle-exclusion"]),
    ):
        first = day(flow("A", "B", 1), exclusions=(exclusion,))
        second = day(
            flow("A", "B", 1, start=tomorrow, end=tomorrow + DAY, menu="n.yaml"),
            name="n.yaml",
            start=tomorrow,
            end=tomorrow + DAY,
            exclusions=(exclusion,),
        )
        assert codes(first) == alone
        assert codes(first, second) == together


def test_an_idle_exclusion_is_told_with_its_line():
    menu_ = text(exclude="exclude:\n  - {rse: B, from: 2027-03-08 10:00, to: 2027-03-08 12:00, reason: typo}")
    problems = lint.findings(menu.campaign([draft(menu_).preview]))
    assert ("idle-exclusion", len(menu_.splitlines())) in [(one.code, one.line) for one in problems]


def test_a_wrong_year_is_found() -> None:
    """By the gap, which `run` wants accepted above 30 days, and by how far ahead a menu is."""
    gaps = {
        hours: found(*days((0, 24), (hours, hours + 24)))[0].needs_accepting
        for hours in (48, 24 * 31, 24 * 32, 24 * 366)
    }
    assert gaps == {48: False, 24 * 31: False, 24 * 32: True, 24 * 366: True}
    campaign = Campaign("dc27", "nobody", HOUR / 4, tuple(days((0, 24), (1, 24), (2, 24))))
    accepted = replace(campaign.menus[2], accept=frozenset({"far-ahead"}))
    campaign = replace(campaign, menus=(*campaign.menus[:2], accepted))
    assert [one.file for one in lint.find_late_starts(campaign, START - 300 * DAY)] == ["1.yaml"]


# --------------------------------------------------------------------------- all


def test_what_a_menu_accepts_is_no_finding():
    """By its code, and only in the menu that accepts it."""
    one = day(flow("A", "B", 50), target=60 * GBIT)
    assert codes(one) == ["target-differs", "fts-link-limit"]
    assert codes(replace(one, accept=frozenset({"target-differs"}))) == ["fts-link-limit"]
    late = days((0, 24), (25, 48))
    assert codes(replace(late[0], accept=frozenset({"window-gap"})), late[1]) == ["window-gap"]
    assert codes(late[0], replace(late[1], accept=frozenset({"window-gap"}))) == []


def test_findings_of_menus_are_among_all():
    menus = days((0, 24), (25, 48))
    slow = day(*(flow(f"S{n}", "B", 1 if n else 30, stated=True) for n in range(5)))
    assert "rate-outlier" in codes(slow, *menus[1:])


def test_every_code_that_is_given_is_known():
    """A menu could not accept it else."""
    flows = [flow("A", "B", 1, datasets=large(500)), flow("A", "B", 60, "two")]
    menus = [day(*flows, sites=sized(TB), target=TB), *days((23, 25), (26, 27))]
    given = set(codes(*menus))
    assert given == {
        "space-overfilled",
        "coarse-datasets",
        "fts-link-limit",
        "scenarios-overlap",
        "window-gap",
        "window-overlap",
        "target-differs",
        "site-over-limit",
    }
    assert given <= set(CODES)
