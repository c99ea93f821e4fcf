"""What `watch` and a run's live view show is what `status` and `report` say, to the byte."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from dc_inject.apps.report import live_lines, watch_figures
from dc_inject.ledger import Ledger
from dc_inject.model import Cycle, FlowKey, Link
from dc_inject.model.errors import LedgerError
from dc_inject.model.held import Held
from dc_inject.model.holds import Hold
from tests.apps.report import campaigns_to_watch as watching
from tests.apps.report.campaigns_to_watch import LAST, LINKS, NOW
from tests.cli.ledgers import run


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return watching.campaign(tmp_path_factory.mktemp("watch") / "dc27.sqlite")


def test_ratios_are_those_of_a_report_and_sums_those_of_the_closing_table(ledger: Path) -> None:
    """Those of a link are of cycles that are over; with what is open they are the totals."""
    standing = watch_figures.read(ledger, str(ledger), NOW, LAST)
    told = json.loads(run("report", ledger, "--format", "json").stdout)
    assert len(standing.links) == len(told["links"]) == len(LINKS)
    for line in standing.links:
        names = {name: line[name] for name in watch_figures.NAMES}
        (reported,) = [one for one in told["links"] if one.items() >= names.items()]
        figures = ("due", "injected", "moved", "rules", "ratio", "grade", "sign")
        assert [line[name] for name in figures] == [reported[name] for name in figures]
        assert line["ratio"] == line["moved"] / line["due"]
    for line in watch_figures.grouped(standing.links, "scenario"):
        (reported,) = [one for one in told["scenarios"] if one["name"] == line["scenario"]]
        assert (line["ratio"], line["sign"]) == (reported["ratio"], reported["sign"])


def test_before_the_first_cycle_is_over_its_sums_stand_there_without_a_ratio(tmp_path: Path) -> None:
    path, cycle = tmp_path / "dc27.sqlite", Cycle.at(NOW, watching.LENGTH)
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.bind("dc27", watching.LENGTH, [watching.ME], NOW)
        ledger.open_cycle(cycle, {LINKS[0]: (5, None)}, NOW)
    (line,) = watch_figures.read(path, "dc27", NOW).links
    assert (line["due"], line["ratio"], line["grade"], line["sign"]) == (5, None, None, "")


@pytest.mark.parametrize(
    ("numbers", "held"),
    [({"debt": 9, "cap": 4, "forgiven": 5}, ""), ({"seconds": 300.0, "of": 900.0}, "not-running")],
    ids=["older debt", "begun late"],
)
def test_a_link_is_not_shown_as_held_where_only_older_debt_is_forgiven(
    tmp_path: Path, numbers: dict[str, float], held: str
) -> None:
    """That no injector ran before is no news of the cycle in which one runs."""
    path, cycle = tmp_path / "dc27.sqlite", Cycle.at(NOW, watching.LENGTH)
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.bind("dc27", watching.LENGTH, [watching.ME], NOW)
        ledger.open_cycle(cycle, {LINKS[0]: (5, Held(Hold.NOT_RUNNING, numbers))}, NOW)
    (line,) = watch_figures.read(path, "dc27", NOW, LAST).links
    assert line["held"] == held


def test_the_last_hours_are_those_before_the_end_of_the_last_cycle_that_is_over(ledger: Path) -> None:
    """Whenever somebody looks; and the trend has what moved in cycles that are over."""
    standing = watch_figures.read(ledger, str(ledger), NOW + timedelta(days=99), timedelta(hours=1))
    assert standing.since == watching.BEGIN + (watching.CYCLES - 4) * watching.LENGTH
    assert standing.until == standing.since + timedelta(hours=1)
    first = next(line for line in standing.links if line["destination"] == "T1_US_FNAL_Disk")
    assert first["due"] == 4 * watching.due(0)
    assert len(first["trend"]) == 4
    assert sum(moved for moved, _ in first["trend"]) == first["moved"]


def test_a_link_is_short_where_too_little_moved(ledger: Path) -> None:
    """Held or not; a hold that let enough through is shown, and is none of them."""
    links = watching.standing(ledger).links
    assert {line["held"] for line in links if line[watch_figures.SHORT]} == {
        "pool-dry",
        "failing",
        "destination-full",
    }
    assert {line["held"] for line in links if not line[watch_figures.SHORT]} == {"", "too-coarse"}
    first = watch_figures.ordered(links, watch_figures.SHORT)
    assert [line["held"] for line in first[:3]] == ["pool-dry", "failing", "destination-full"]


def test_lines_are_filtered_by_words_and_sorted_by_columns(ledger: Path) -> None:
    links = watching.standing(ledger).links
    assert {line["destination"] for line in watch_figures.filter_lines(links, "UK lond brun")} == {
        "T2_UK_London_Brunel"
    }
    assert [line["held"] for line in watch_figures.filter_lines(links, "pool-dry")] == ["pool-dry"]
    assert watch_figures.filter_lines(links, "") == list(links)
    moved = [line["moved"] for line in watch_figures.ordered(links, "moved")]
    assert moved == sorted(moved, reverse=True)
    assert watch_figures.ordered(links, "ratio")[0]["held"] == "pool-dry"
    assert watch_figures.ordered(links, "source", reverse=True)[0]["source"] == "T2_US_Nebraska"


def test_names_and_reasons_move_no_cursor(tmp_path: Path) -> None:
    """They come from services, and from whoever writes menus."""
    evil = "T2_\x1b[2J\x9bEvil"
    path = tmp_path / "dc27.sqlite"
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.bind("dc27", watching.LENGTH, [watching.ME], NOW)
        cycle = watching.Cycle.at(NOW, watching.LENGTH)
        ledger.open_cycle(cycle, {FlowKey(evil, Link(evil, evil)): (5, watching.HELD[1])}, NOW)
        ledger.pause(evil, evil, evil, NOW)
        ledger.signal("service", evil, None, NOW, evil)
        ledger.note(f"trace\n{evil}", NOW)
    standing = watch_figures.read(path, str(path), NOW, LAST)
    texts = [line.plain for line in live_lines.heading(standing, 200, 11)] + standing.status["events"]
    assert sum("Evil" in text for text in texts) >= 4
    assert all(text.isprintable() for text in texts), texts


def test_before_the_first_cycle_there_is_something_to_read(tmp_path: Path) -> None:
    path = tmp_path / "dc27.sqlite"
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.bind("dc27", watching.LENGTH, [watching.ME], NOW)
    standing = watch_figures.read(path, "dc27", NOW, LAST)
    assert len(standing.status["first_lines"]) == len(live_lines.heading(standing, 80, 11)) == 5
    with pytest.raises(LedgerError):
        watch_figures.read(path, "another", NOW, LAST)


@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_lines_fit_whatever_the_width_and_may_be_ascii(ledger: Path, width: int, ascii_only: bool) -> None:
    lines = live_lines.heading(watching.standing(ledger), width, 11, ascii_only=ascii_only)
    assert max(line.cell_len for line in lines) <= width
    assert 6 <= len(lines) <= 11  # the last one is what to run
    if ascii_only:
        assert all(line.plain.isascii() for line in lines)
