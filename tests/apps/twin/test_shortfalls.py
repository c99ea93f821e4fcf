"""The forecast of a simulation: which links fall short, and why."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from dc_inject.apps.twin import shortfalls
from dc_inject.ledger import SummaryLine, Totals
from dc_inject.model import Cycle, FlowKey, Held, Hold, Link
from tests.cli import ledgers
from tests.cli.ledgers import CYCLE, GB, ME, START, Ledger

pytest.importorskip("numpy")  # an extra
SCENARIOS = Path(__file__).parents[3] / "menus" / "twin"
KEY, OTHER = FlowKey("test", Link("A", "B")), FlowKey("test", Link("A", "C"))
SLOTS = "all transfers that FTS lets the link have are in use"
LOST = "inconclusive: part of what was injected did not arrive, and no file was seen to wait for anything"
UNSEEN = "inconclusive: in the cycles with backlog no file was seen to wait for anything (seen every 15 minutes)"


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
    assert cause.endswith(" (in all cycles with backlog)")


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


def test_a_disk_that_is_kept_for_bytes_on_their_way_is_told_with_what_they_wait_for(tmp_path):
    """The link carries half, and what waits for it takes the space."""
    slow = {"failures: 0.5 %": "failures: 0.5 %, rate: 5 Gb/s"}
    causes = why("full-disk", "--days", 0.3, "--policy", "off", changes=slow, folder=tmp_path).split("; ")
    assert any(cause.startswith("destination-full in ") for cause in causes)
    assert any(" % at most: " in cause for cause in causes)
    assert any(cause.startswith("the link itself ") for cause in causes)


def test_a_disk_that_one_dataset_fills_is_full_at_most_although_no_sample_finds_it_so(tmp_path):
    """It is empty again before the next sample, which has the period of the cycles."""
    tiny = {
        "space: 6 TB, deletion: {lag: 15 min}": "space: 50 GB",
        "20..100, file_size: 3..6": "10..60, file_size: 2..5",
        "may_end: no": "may_end: yes",
    }
    causes = why("full-disk", "--policy", "off", changes=tiny, folder=tmp_path).split("; ")
    assert any(cause.startswith("T2_UK_London_Brunel above 98 % for ") for cause in causes)
    assert not any("at most" in cause for cause in causes)


def test_a_dataset_that_is_larger_than_what_is_due_is_the_cause_where_nothing_else_held_a_link(tmp_path):
    """A slow link for two hours: one dataset fits, the next is not due before the menu ends."""
    text = (SCENARIOS / "one-link" / "menu.yaml").read_text()
    (menu := tmp_path / "menu.yaml").write_text(text.replace("10 Gb/s", "0.1 Gb/s").replace("22:00", "12:00"))
    done = ledgers.run("simulate", menu, "--grid", SCENARIOS / "one-link" / "grid.yaml", "--format", "json")
    (link,) = json.loads(done.stdout)["forecast"]
    cause = "the next of its datasets is larger than what is due: smaller datasets, or slices"
    assert link["why"] == f"{cause} (too-coarse in 7 of 8 cycles)"


@pytest.mark.parametrize("policy", ["off", "act", "fixed"])
def test_where_attempts_fail_the_few_transfers_that_fts_keeps_are_their_fault_whatever_the_policy(
    policy,
):
    """Files that have just failed wait for a moment all day; what nearly all files waited for is told alone."""
    *held, cause = why("failing-transfers", "--policy", policy).split("; ")
    assert cause.startswith("FTS keeps few ")
    assert [hold.split(" ")[0] for hold in held] == ([] if policy == "fixed" else ["backlog"])


def test_files_that_failed_in_all_attempts_are_told_by_why_they_did(tmp_path):
    """While a storage is down they fail at once and wait for little; then FTS has few transfers for a while."""
    down = {
        "datasets:\n": "troubles: [{fault: storage-down, subject: T1_DE_KIT_Disk, at: 2 h, for: 2 h}]\ndatasets:\n"
    }
    cause = why("one-link", "--days", 0.3, "--policy", "fixed", changes=down, folder=tmp_path)
    assert re.fullmatch(r"files failed in all attempts while T1_DE_KIT_Disk was down \([89]\.\d+ TB\)", cause), (
        cause
    )


@pytest.mark.parametrize(
    ("name", "changes", "hold"),
    [
        ("pool-too-small", {}, Hold.POOL_DRY),  # its datasets are used up
        ("slow-deletions", {}, Hold.QUARANTINED),  # they are at the destination still
        ("pool-too-small", {"count: 30, files: 20..100": "count: 30, files: 400..500"}, Hold.TOO_COARSE),
        ("one-link", {"datasets:\n": "troubles: [{fault: rucio-down, at: 1 h, for: 2 h}]\ndatasets:\n"},
         Hold.API_ERRORS),
    ],
)  # fmt: skip
def test_a_fixed_rate_is_held_in_cycles_with_too_little(name, changes, hold, tmp_path):
    told = why(name, "--days", 0.4, "--policy", "fixed", changes=changes, folder=tmp_path)
    assert re.search(rf"\b{hold} in \d+ of 39 cycles\)?$", told), told


# --------------------------------------------------------------------------- with a world that is made up


def world(
    used: float = 0.0,
    above: float = 0.0,
    waits: Mapping[str, list[float]] | None = None,
    overdue: float = 0.0,
    files: Mapping[str, float] | None = None,
    failed: Mapping[str, int] | None = None,
    prefixes: Mapping[str, str] | None = None,
):
    """Four samples of a world with a disk B, and what a reaper left.

    `waits` is what A -> B waited for, when, `files` how many did (else 1), and `failed` the bytes that failed.
    """
    storages = {name: number for number, name in enumerate("ABC")}
    return SimpleNamespace(
        grid=SimpleNamespace(
            storage_at=lambda end: (prefixes or {}).get(end, end),
            storages=dict.fromkeys(storages, SimpleNamespace(space=100.0)),
        ),
        held_back={
            ("A", "B"): {
                cause: (at, [(files or {}).get(cause, 1.0)] * len(at)) for cause, at in (waits or {}).items()
            }
        },
        failed_for_good=lambda ends: (failed or {}) if ends == ("A", "B") else {},
        samples=[SimpleNamespace(at=450.0 + 900 * n, overdue=[0.0, overdue, 0.0]) for n in range(4)],
        network=SimpleNamespace(storages=storages),
        storages=SimpleNamespace(hours_nearly_full=[0.0, above, 0.0], most_used=[0.0, used, 0.0]),
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


def short(ledger, *lines: SummaryLine, **of_world):
    made = SimpleNamespace(world=world(**of_world), start=START)
    return shortfalls.short(lines, ledger, made)


def causes(ledger, *lines: SummaryLine, **how) -> list[list[str]]:
    return [list(map(str, link.causes)) for link in short(ledger, *lines, **how)]


def test_links_that_lack_most_come_first_whatever_part_that_is(ledger):
    lines = [line(), line(OTHER, due=20, injected=14, moved=14)]
    made = short(ledger, *lines)
    assert [(link.key, link.row["missing"], link.row["moved_of_due"]) for link in made] == [
        (OTHER, 6 * GB, 0.7),
        (KEY, 4 * GB, 0.5),
    ]


def test_a_minute_above_98_percent_is_told_as_one_and_explains_no_more_than_is_due_in_it(ledger):
    """`0.0 h` would contradict itself. Half of what is due in two hours is missing."""
    cycles(ledger, None)
    unexplained = "inconclusive: too little was injected, and no hold says why"
    assert causes(ledger, line(), above=1 / 60) == [["B above 98 % for 1 min", unexplained]]
    assert causes(ledger, line(), above=0.45) == [["B above 98 % for 27 min", unexplained]]
    assert causes(ledger, line(), above=0.55) == [["B above 98 % for 33 min"]]


def test_what_explains_less_than_half_of_what_is_missing_leaves_the_rest_inconclusive(ledger):
    for part, more in ((1, True), (3, False)):
        (told,) = causes(ledger, line(injected=8), failed={"failed": part * GB, "rare": 1})
        assert told == [f"failed ({part} GB)", *([f"{LOST} (3 GB)"] if more else [])]


def test_links_between_the_same_storages_share_what_failed_between_them_as_they_were_injected(ledger):
    other = FlowKey("other", Link("A", "B"))
    lines = line(injected=9, moved=5), line(other, injected=3, moved=1)
    told = causes(ledger, *lines, failed={"failed": 4 * GB})
    assert [cause for link in told for cause in link if cause.startswith("failed ")] == [
        "failed (1 GB)",
        "failed (3 GB)",
    ]


def test_what_files_waited_for_in_most_cycles_comes_first_and_what_few_waited_for_is_left_out(ledger):
    """In the order of what is printed, although more files waited in the fewer cycles."""
    cycles(ledger, None, None, None, None)
    waits, lost = {"FTS is down": [450.0, 1350.0, 2250.0], SLOTS: [3150.0]}, line(injected=8)
    (told,) = causes(ledger, lost, waits=waits, files={SLOTS: 4.0})
    assert told == ["FTS is down (in 75 % of all cycles)", f"{SLOTS} (in 25 % of all cycles)"]
    (told,) = causes(ledger, lost, waits=waits, files={SLOTS: 100.0})
    assert told == [f"{SLOTS} (in 25 % of all cycles)"]


def test_what_files_waited_for_counts_in_the_cycles_that_it_explains(ledger):
    """Only in the last one of four: before, the link was not held."""
    waits, held = {"FTS is down": [450.0, 1350.0, 2250.0], SLOTS: [3150.0]}, "backlog in 1 of 8 cycles"
    cycles(ledger, None, None, None, (GB, Hold.BACKLOG))
    assert causes(ledger, line(), waits=waits) == [[held, f"{SLOTS} (in all cycles with backlog)"]]
    of_all = ["FTS is down (in 75 % of all cycles)", f"{SLOTS} (in 25 % of all cycles)"]
    assert causes(ledger, line(injected=8), waits=waits) == [[held, *of_all]]
    assert causes(ledger, line()) == [[held, UNSEEN]]


def test_a_link_that_is_held_because_its_files_failed_has_a_cause(ledger):
    """Nothing waits for a storage that is down: files fail at once."""
    cycles(ledger, None, None, None, (GB, Hold.BACKLOG))
    held, failed = "backlog in 1 of 8 cycles", {"failed": 2 * GB}
    assert causes(ledger, line(injected=6), failed=failed) == [[held, "failed (2 GB)"]]


def test_a_hold_that_says_why_leaves_nothing_inconclusive_beside_a_lesser_one_that_does_not(ledger):
    cycles(ledger, (GB, Hold.BACKLOG), (2 * GB, Hold.QUOTA))
    assert causes(ledger, line()) == [["quota in 1 of 8 cycles", "backlog in 1 of 8 cycles"]]


def test_programs_have_the_figures_of_each_cause(ledger):
    """As a list, beside the text that people read."""
    cycles(ledger, None, None, None, (GB, Hold.BACKLOG))
    (link,) = short(ledger, line(injected=6), failed={"failed": 2 * GB}, waits={SLOTS: [3150.0]})
    assert link.row["why"].count("; ") == len(link.row["causes"]) - 1 == 2
    assert link.row["causes"] == [
        {"kind": "hold", "what": "backlog", "hold": "backlog", "cycles": 1, "of_cycles": 8},
        {"kind": "failed", "what": "failed", "bytes": 2 * GB},
        {"kind": "waited", "what": SLOTS, "part": 1.0, "holds": ["backlog"]},
    ]
    (lost,) = short(ledger, line(injected=8))
    assert lost.row["causes"][-1] == {"kind": "inconclusive", "what": LOST, "bytes": 4 * GB}


def test_holds_are_in_the_order_of_their_cycles(ledger):
    """Which is what is printed, whatever was missing in them."""
    cycles(ledger, (9 * GB, Hold.PAUSED), (GB, Hold.QUOTA), (GB, Hold.QUOTA))
    assert causes(ledger, line()) == [["quota in 2 of 8 cycles", "paused in 1 of 8 cycles"]]


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


def test_what_lacks_room_at_one_disk_adds_up_whatever_the_ends_of_its_links_are_called(ledger):
    """Two prefixes of FTS at one storage: each alone would have had room."""
    cycle, other = CYCLE, FlowKey("test", Link("A", "davs://b.example.org/other", "fts"))
    held = Held(Hold.DESTINATION_FULL, {})
    ledger.open_cycle(cycle, {KEY: (GB, held), other: (GB, held)}, cycle.start)
    ledger.close_cycle(cycle, cycle.end)
    for overdue, is_cause in ((1.5, False), (2.5, True)):
        told = causes(
            ledger, line(), line(other), used=95.0, overdue=overdue * GB, prefixes={other.link.destination: "B"}
        )
        assert [len(link) == 2 and link[1].startswith("deletions at B are slow") for link in told] == [
            is_cause
        ] * 2


@pytest.mark.parametrize(
    ("hold", "more"), [(Hold.DESTINATION_FULL, ": bytes on their way count too"), (Hold.DELETION_LAG, "")]
)
def test_how_full_a_disk_was_is_told_where_it_never_was_nearly_full(hold, more, ledger):
    """A guard that lets in as much as is deleted counts no bytes on their way."""
    cycles(ledger, (GB, hold))
    assert causes(ledger, line(), used=59.0) == [[f"{hold} in 1 of 8 cycles", f"B filled to 59.0 % at most{more}"]]


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
    assert lost == [f"{LOST} (4 GB)"]
    cycles(ledger, (GB, Hold.QUOTA))
    assert causes(ledger, replace(line(), holds=coarse | {Hold.QUOTA: 1})) == [["quota in 1 of 8 cycles"]]


def test_what_is_still_on_its_way_is_not_lost(ledger, wording):
    cycles(ledger, None)
    wording(causes(ledger, line(injected=8, coming=4))[0])


def test_a_little_that_is_still_on_its_way_does_not_explain_what_never_was_injected_or_got_lost(ledger):
    """At the end of a simulation something is on its way on nearly every link."""
    too_little = "inconclusive: too little was injected, and no hold says why"
    assert causes(ledger, line(due=80, injected=50, moved=49, coming=1)) == [[too_little]]
    assert causes(ledger, line(due=80, injected=50, moved=40, coming=10)) == [[too_little]]
    assert causes(ledger, line(due=80, injected=80, moved=49, coming=1)) == [[f"{LOST} (30 GB)"]]
    cycles(ledger, (GB, Hold.QUOTA))
    assert causes(ledger, line(due=80, injected=50, moved=40, coming=10)) == [["quota in 1 of 8 cycles"]]
