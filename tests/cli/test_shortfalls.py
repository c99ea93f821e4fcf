"""The forecast of a simulation: which links fall short, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from dc_inject.cli import shortfalls
from dc_inject.ledger import SummaryLine, Totals
from dc_inject.model import Cycle, FlowKey, Held, Hold, Link
from tests.cli import ledgers
from tests.cli.ledgers import CYCLE, GB, ME, START, Ledger

pytest.importorskip("numpy")  # an extra
SCENARIOS = Path(__file__).parents[2] / "menus" / "twin"
KEY, OTHER = FlowKey("test", Link("A", "B")), FlowKey("test", Link("A", "C"))
SLOTS = "all transfers that FTS lets the link have are in use"


def why(name: str, *more: object, changes: Mapping[str, str] | None = None, folder: Path | None = None) -> str:
    """Simulate a scenario, with changes of its grid; returns why its only link is short."""
    menu, grid = SCENARIOS / name / "menu.yaml", SCENARIOS / name / "grid.yaml"
    if changes and folder:
        text = grid.read_text()
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        (grid := folder / "grid.yaml").write_text(text)
    done = ledgers.run("simulate", menu, "--grid", grid, "--format", "json", *more)
    assert done.exit_code == 0, done.exception
    (link,) = json.loads(done.stdout)["forecast"]
    return str(link["why"])


def test_a_slow_link_is_the_cause_of_its_backlog_in_the_cycles_with_it():
    cause = why("link-at-70-percent", "--days", 0.3)
    assert cause.endswith("the link itself carries no more (in all cycles with backlog)")


@pytest.mark.parametrize("policy", ["off", "act"])
def test_files_that_wait_for_a_moment_are_no_cause_where_space_is(policy):
    """On such a disk files wait for FTS's transfers half of the time, and all that is injected is moved."""
    held, *others = why("tier2-at-3-hours", "--days", 0.3, "--policy", policy).split("; ")
    assert held.startswith("destination-full in ")
    assert [cause for cause in others if not cause.startswith("T2_US_MIT above 98 %")] == []


@pytest.mark.parametrize(("name", "are_slow"), [("slow-deletions", True), ("full-disk", False)])
def test_slow_deletions_are_told_from_a_disk_that_is_too_small(name, are_slow):
    held, *others = why(name, "--policy", "off").split("; ")
    assert held.startswith("destination-full in ")
    assert any(cause.startswith("deletions at T1_UK_RAL_Disk are slow: ") for cause in others) == are_slow


def test_few_transfers_after_a_disk_was_full_are_the_fault_of_the_disk():
    """In the last hours FTS gives two transfers to what waits, since all had failed while the disk was full."""
    cause = why("tier2-at-3-hours", "--policy", "off")
    assert "FTS keeps fewer transfers than before T2_US_MIT was full (in all cycles with backlog)" in cause
    assert SLOTS not in cause


def test_a_disk_that_is_kept_for_bytes_on_their_way_is_told_with_what_they_wait_for(tmp_path):
    """The link carries half, and what waits for it takes the space."""
    slow = {"failures: 0.5 %": "failures: 0.5 %, rate: 5 Gb/s"}
    causes = why("full-disk", "--days", 0.3, "--policy", "off", changes=slow, folder=tmp_path).split("; ")
    assert any(cause.startswith("destination-full in ") for cause in causes)
    assert any(cause.endswith(" % at most: bytes on their way count too") for cause in causes)
    assert any(cause.startswith("the link itself carries no more (in ") for cause in causes)


def test_a_dataset_that_is_larger_than_what_is_due_is_the_cause_where_nothing_else_held_a_link(tmp_path):
    """A slow link for two hours: one dataset fits, the next is not due before the menu ends."""
    text = (SCENARIOS / "one-link" / "menu.yaml").read_text()
    (menu := tmp_path / "menu.yaml").write_text(text.replace("10 Gb/s", "0.1 Gb/s").replace("22:00", "12:00"))
    done = ledgers.run("simulate", menu, "--grid", SCENARIOS / "one-link" / "grid.yaml", "--format", "json")
    (link,) = json.loads(done.stdout)["forecast"]
    cause = "the next of its datasets is larger than what is due: smaller datasets, or slices"
    assert link["why"] == f"{cause} (too-coarse in 7 of 8 cycles)"


def test_where_nothing_tells_the_cause_it_is_inconclusive():
    assert why("pool-too-small", "--days", 0.3, "--policy", "fixed").startswith("inconclusive: ")


# --------------------------------------------------------------------------- with a world that is made up


def world(
    used: float = 0.0, above: float = 0.0, waits: Mapping[str, list[float]] | None = None, overdue: float = 0.0
):
    """Four samples of a world with a disk B, and what a reaper left; `waits`: what A -> B waited for, when."""
    storages = {name: number for number, name in enumerate("ABC")}
    return SimpleNamespace(
        grid=SimpleNamespace(
            storage_at=lambda end: end, storages=dict.fromkeys(storages, SimpleNamespace(space=100.0))
        ),
        held_back={("A", "B"): waits or {}},
        samples=[
            SimpleNamespace(at=450.0 + 900 * n, used=[0.0, used, 0.0], overdue=[0.0, overdue, 0.0])
            for n in range(4)
        ],
        network=SimpleNamespace(storages=storages),
        storages=SimpleNamespace(hours_nearly_full=[0.0, above, 0.0]),
    )


def line(key: FlowKey = KEY, due: int = 8, injected: int = 4, moved: int = 4, coming: int = 0) -> SummaryLine:
    """A link that moved half of its due in eight cycles."""
    return SummaryLine(
        key, Totals(due=due * GB, injected=injected * GB, moved=moved * GB, coming=coming * GB), 8, {}
    )


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(tmp_path / "made.sqlite", synchronous="OFF") as made:
        made.bind("dc27", CYCLE.length, [ME], START)
        yield made


def cycles(ledger: Ledger, *holds: tuple[int, Hold] | None) -> Ledger:
    """Write cycles in which A -> B was due some bytes and got none; it was held in each, or not."""
    cycle = CYCLE
    for held in holds:
        due, hold = held or (GB, None)
        ledger.open_cycle(cycle, {KEY: (due, None if hold is None else Held(hold, {}))}, cycle.start)
        ledger.close_cycle(cycle, cycle.end)
        cycle = cycle.next
    return ledger


def causes(ledger, *lines: SummaryLine, **of_world: object) -> list[list[str]]:
    made = shortfalls.short(lines, world(**of_world), ledger, START)
    return [list(map(str, link.causes)) for link in made]


def test_links_that_lack_most_come_first_whatever_part_that_is(ledger):
    lines = [line(), line(OTHER, due=20, injected=14, moved=14)]
    made = shortfalls.short(lines, world(), ledger, START)
    assert [(link.key, link.row["missing"], link.row["moved_of_due"]) for link in made] == [
        (OTHER, 6 * GB, 0.7),
        (KEY, 4 * GB, 0.5),
    ]


def test_a_minute_above_98_percent_is_told_as_one(ledger):
    """`0.0 h` would contradict itself."""
    assert causes(ledger, line(), above=1 / 60) == [["B above 98 % for 1 min"]]


def test_what_files_waited_for_counts_in_the_cycles_that_it_explains(ledger):
    """Only in the last one of four: before, the link was not held."""
    waits, held = {"FTS is down": [450.0, 1350.0, 2250.0], SLOTS: [3150.0]}, "backlog in 1 of 8 cycles"
    cycles(ledger, None, None, None, (GB, Hold.BACKLOG))
    assert causes(ledger, line(), waits=waits) == [[held, f"{SLOTS} (in all cycles with backlog)"]]
    of_all = ["FTS is down (in 75 % of all cycles)", f"{SLOTS} (in 25 % of all cycles)"]
    assert causes(ledger, line(injected=8), waits=waits) == [[held, *of_all]]
    assert causes(ledger, line()) == [[held, "inconclusive: its files waited for nothing in FTS"]]


def test_what_files_waited_for_counts_in_all_cycles_between_two_looks(tmp_path):
    """With cycles of five minutes two of three have no sample of the world."""
    short = Cycle(START, timedelta(minutes=5))
    with Ledger.open(tmp_path / "short.sqlite", synchronous="OFF") as ledger:
        ledger.bind("dc27", short.length, [ME], START)
        for held in (True, False, False):  # the sample is in the second one
            ledger.open_cycle(short, {KEY: (GB, Held(Hold.BACKLOG, {}) if held else None)}, short.start)
            ledger.close_cycle(short, short.end)
            short = short.next
        told = [["backlog in 1 of 8 cycles", f"{SLOTS} (in all cycles with backlog)"]]
        assert causes(ledger, line(), waits={SLOTS: [450.0, 1350.0]}) == told


def test_a_hold_in_whose_cycles_little_was_missing_is_no_cause_beside_another(ledger):
    """However many they are."""
    cycles(ledger, (1, Hold.BACKLOG), (1, Hold.BACKLOG), (GB, Hold.QUOTA))
    assert causes(ledger, line()) == [["quota in 1 of 8 cycles"]]


def test_slow_deletions_are_the_cause_where_what_they_left_would_have_been_room_enough(ledger):
    """A tenth too little is not."""
    slow, held = (
        "deletions at B are slow: there was room without what they left",
        "destination-full in 2 of 8 cycles",
    )
    cycles(ledger, (GB, Hold.DESTINATION_FULL), (GB, Hold.DESTINATION_FULL))
    enough, too_few = (causes(ledger, line(), used=95.0, overdue=part * GB)[0] for part in (1.1, 0.9))
    assert enough == [held, f"{slow} (in all cycles with destination-full)"]
    assert too_few == [held]


def test_deletions_that_are_slow_in_few_of_the_cycles_are_no_cause(ledger):
    """They would have been room enough in one of three."""
    much = (3 * GB, Hold.DESTINATION_FULL)
    cycles(ledger, (GB, Hold.DESTINATION_FULL), much, much)
    assert causes(ledger, line(), used=95.0, overdue=1.1 * GB) == [["destination-full in 3 of 8 cycles"]]


def test_through_fts_files_are_too_coarse_and_beside_another_hold_none_are(ledger):
    """What waited for a dataset in a cycle is made up in the next ones, if nothing else holds the link."""
    through_fts = FlowKey("test", Link("A", "B", "fts"))
    coarse = {Hold.TOO_COARSE: 3}
    cause = "the next of its files is larger than what is due: smaller files (too-coarse in 3 of 8 cycles)"
    assert causes(ledger, replace(line(through_fts), holds=coarse)) == [[cause]]
    (lost,) = causes(ledger, replace(line(through_fts, injected=8), holds=coarse))
    assert lost == ["inconclusive: what was injected did not all arrive, and waited for nothing in FTS"]
    cycles(ledger, (GB, Hold.QUOTA))
    assert causes(ledger, replace(line(), holds=coarse | {Hold.QUOTA: 1})) == [["quota in 1 of 8 cycles"]]


def test_what_is_still_on_its_way_is_not_lost(ledger):
    cycles(ledger, None)
    assert causes(ledger, line(injected=8, coming=4)) == [["what is due at the end is still on its way"]]


def test_a_little_that_is_still_on_its_way_does_not_explain_what_never_was_injected_or_got_lost(ledger):
    """At the end of a simulation something is on its way on nearly every link."""
    too_little = "inconclusive: too little was injected, and no hold says why"
    lost = "inconclusive: what was injected did not all arrive, and waited for nothing in FTS"
    assert causes(ledger, line(due=80, injected=50, moved=49, coming=1)) == [[too_little]]
    assert causes(ledger, line(due=80, injected=50, moved=40, coming=10)) == [[too_little]]
    assert causes(ledger, line(due=80, injected=80, moved=49, coming=1)) == [[lost]]
    cycles(ledger, (GB, Hold.QUOTA))
    assert causes(ledger, line(due=80, injected=50, moved=40, coming=10)) == [["quota in 1 of 8 cycles"]]
