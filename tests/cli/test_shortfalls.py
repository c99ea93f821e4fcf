"""The forecast of a simulation: which links fall short, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from dc_inject.cli import shortfalls
from dc_inject.ledger import SummaryLine, Totals
from dc_inject.model import FlowKey, Hold, Link
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
    assert cause.endswith("the link itself carries no more (in 100 % of the cycles with backlog)")


@pytest.mark.parametrize("policy", ["off", "act"])
def test_files_that_wait_for_a_moment_are_no_cause_where_space_is(policy):
    """On such a disk files wait for FTS's transfers half of the time, and all that is injected is moved."""
    held, *others = why("tier2-at-3-hours", "--days", 0.3, "--policy", policy).split("; ")
    assert held.startswith("destination-full in ")
    assert [cause for cause in others if not cause.startswith("T2_US_MIT above 98 %")] == []


def test_few_transfers_after_a_disk_was_full_are_the_fault_of_the_disk():
    """In the last hours FTS gives two transfers to what waits, since all had failed while the disk was full."""
    cause = why("tier2-at-3-hours", "--policy", "off")
    assert (
        "FTS keeps fewer transfers than before T2_US_MIT was full (in 100 % of the cycles with backlog)" in cause
    )
    assert SLOTS not in cause


def test_a_disk_that_is_kept_for_bytes_on_their_way_is_told_with_what_they_wait_for(tmp_path):
    """The link carries half, and what waits for it takes the space."""
    slow = {"failures: 0.5 %": "failures: 0.5 %, rate: 5 Gb/s"}
    causes = why("full-disk", "--days", 0.3, "--policy", "off", changes=slow, folder=tmp_path).split("; ")
    assert any(cause.startswith("destination-full in ") for cause in causes)
    assert any(cause.endswith(" % at most: bytes on their way count too") for cause in causes)
    assert any(cause.startswith("the link itself carries no more (in ") for cause in causes)


def test_where_nothing_tells_the_cause_it_is_inconclusive():
    assert why("pool-too-small", "--days", 0.3, "--policy", "fixed").startswith("inconclusive: ")


# --------------------------------------------------------------------------- with a world that is made up


def world(used: float = 0.0, above: float = 0.0, waits: Mapping[str, list[float]] | None = None):
    """Four samples of a world with a disk B; `waits` is what files of A -> B waited for, and when."""
    storages = {name: number for number, name in enumerate("ABC")}
    return SimpleNamespace(
        grid=SimpleNamespace(
            storage_at=lambda end: end, storages=dict.fromkeys(storages, SimpleNamespace(space=100.0))
        ),
        held_back={("A", "B"): waits or {}},
        samples=[SimpleNamespace(at=450.0 + 900 * n, used=[0.0, used, 0.0]) for n in range(4)],
        network=SimpleNamespace(storages=storages),
        storages=SimpleNamespace(hours_nearly_full=[0.0, above, 0.0]),
    )


def line(key: FlowKey = KEY, due: int = 8, injected: int = 4, moved: int = 4, **holds: int) -> SummaryLine:
    """A link that moved half of its due in eight cycles."""
    named = {Hold(name.replace("_", "-")): cycles for name, cycles in holds.items()}
    totals = Totals(due=due * GB, injected=injected * GB, moved=moved * GB)
    return SummaryLine(key, totals, 8, named)


@pytest.fixture
def ledger(tmp_path):
    """Four cycles in which A -> B is due something; it was held by its backlog in the last one."""
    with Ledger.open(tmp_path / "made.sqlite", synchronous="OFF") as made:
        made.bind("dc27", CYCLE.length, [ME], START)
        cycle = CYCLE
        for number in range(4):
            held = ledgers.Held(Hold.BACKLOG, {}) if number == 3 else None
            made.open_cycle(cycle, {KEY: (GB, held), OTHER: (GB, None)}, cycle.start)
            made.close_cycle(cycle, cycle.end)
            cycle = cycle.next
        yield made


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
    waits = {"FTS is down": [450.0, 1350.0, 2250.0], SLOTS: [3150.0]}
    held = "backlog in 1 of 8 cycles"
    assert causes(ledger, line(backlog=1), waits=waits) == [
        [held, f"{SLOTS} (in 100 % of the cycles with backlog)"]
    ]
    of_all = ["FTS is down (in 75 % of all cycles)", f"{SLOTS} (in 25 % of all cycles)"]
    assert causes(ledger, line(injected=8, backlog=1), waits=waits) == [[held, *of_all]]
    assert causes(ledger, line(backlog=1)) == [[held, "inconclusive: its files waited for nothing in FTS"]]


def test_a_hold_of_few_cycles_is_no_cause_beside_another(ledger):
    seldom = SummaryLine(KEY, Totals(due=8 * GB), 100, {Hold.QUOTA: 50, Hold.BACKLOG: 4})
    assert causes(ledger, seldom) == [["quota in 50 of 100 cycles"]]


def test_what_is_still_on_its_way_is_not_lost(ledger):
    coming = SummaryLine(KEY, Totals(due=8 * GB, injected=8 * GB, moved=4 * GB, coming=4 * GB), 8, {})
    assert causes(ledger, coming) == [["what is due at the end is still on its way"]]
    assert CYCLE.length == timedelta(minutes=15)  # as far apart as the samples
