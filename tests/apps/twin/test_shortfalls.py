"""The forecast of a simulation: which links fall short, and why."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dc_inject.apps.twin import shortfalls
from dc_inject.apps.twin.shortfalls import Cause, Kind
from dc_inject.ledger import SummaryLine, Totals
from dc_inject.model import Cycle, FlowKey, Held, Hold, Link
from tests.cli import ledgers
from tests.cli.ledgers import CYCLE, GB, ME, START, Ledger

pytest.importorskip("numpy")  # an extra

from dc_inject.apps.twin.grid import world as bottlenecks

SCENARIOS = Path(__file__).parents[3] / "menus" / "twin"
KEY, OTHER = FlowKey("test", Link("A", "B")), FlowKey("test", Link("A", "C"))
HELD = ("hold", "backlog", 1)  # in the last of the cycles below
NO_HOLD = ("inconclusive",)


Rows = list[dict[str, Any]]


def why(name: str, *more: object, changes: Mapping[str, str] | None = None, folder: Path | None = None) -> Rows:
    """Simulate a scenario, with changes of its grid; returns the causes for which its only link is short."""
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
    causes: Rows = link["causes"]
    return causes


def test_a_slow_link_is_the_cause_of_its_backlog_in_the_cycles_with_it():
    held, waited = why("link-at-70-percent", "--days", 0.3)
    assert (held["hold"], waited["part"], waited["holds"]) == ("backlog", 1.0, ["backlog"])


@pytest.mark.parametrize("policy", ["off", "act"])
def test_files_that_wait_for_a_moment_are_no_cause_where_space_is(policy):
    """On such a disk files wait for FTS's transfers half of the time, and all that is injected is moved."""
    held, *others = why("tier2-at-3-hours", "--days", 0.3, "--policy", policy)
    assert held["hold"] == "destination-full"
    assert {cause["kind"] for cause in others} <= {"disk"}


@pytest.mark.parametrize(("name", "are_slow"), [("slow-deletions", True), ("full-disk", False)])
def test_slow_deletions_are_told_from_a_disk_that_is_too_small(name, are_slow):
    held, *waited, disk = why(name, "--policy", "off")
    assert (held["hold"], disk["kind"]) == ("destination-full", "disk")
    assert [cause["holds"] for cause in waited] == ([["destination-full"]] if are_slow else [])
    assert all(disk["storage"] in cause["what"] for cause in waited)


def test_a_disk_that_is_kept_for_bytes_on_their_way_is_told_with_what_they_wait_for(tmp_path):
    """The link carries half, and what waits for it takes the space."""
    slow = {"failures: 0.5 %": "failures: 0.5 %, rate: 5 Gb/s"}
    causes = why("full-disk", "--days", 0.3, "--policy", "off", changes=slow, folder=tmp_path)
    assert [cause["kind"] for cause in causes if "filled" in cause] == ["disk"]
    assert "destination-full" in [cause.get("hold") for cause in causes]
    waited = [cause["what"] for cause in causes if cause["kind"] == "waited"]
    assert waited == [bottlenecks.FULL.format("the link itself")]


def test_a_disk_that_one_dataset_fills_is_full_at_most_although_no_sample_finds_it_so(tmp_path):
    """It is empty again before the next sample, which has the period of the cycles."""
    tiny = {
        "space: 6 TB, deletion: {lag: 15 min}": "space: 50 GB",
        "20..100, file_size: 3..6": "10..60, file_size: 2..5",
        "may_end: no": "may_end: yes",
    }
    causes = why("full-disk", "--policy", "off", changes=tiny, folder=tmp_path)
    assert [cause["storage"] for cause in causes if "seconds_above_98" in cause] == ["T2_UK_London_Brunel"]
    assert not any("filled" in cause for cause in causes)


def test_a_dataset_that_is_larger_than_what_is_due_is_the_cause_where_nothing_else_held_a_link(tmp_path):
    """A slow link for two hours: one dataset fits, the next is not due before the menu ends."""
    text = (SCENARIOS / "one-link" / "menu.yaml").read_text()
    (menu := tmp_path / "menu.yaml").write_text(text.replace("10 Gb/s", "0.1 Gb/s").replace("22:00", "12:00"))
    done = ledgers.run("simulate", menu, "--grid", SCENARIOS / "one-link" / "grid.yaml", "--format", "json")
    (link,) = json.loads(done.stdout)["forecast"]
    (cause,) = link["causes"]
    assert (cause["hold"], cause["cycles"], cause["of_cycles"]) == ("too-coarse", 7, 8)


@pytest.mark.parametrize("policy", ["off", "act", "fixed"])
def test_where_attempts_fail_the_few_transfers_that_fts_keeps_are_their_fault_whatever_the_policy(
    policy,
):
    """Files that have just failed wait for a moment all day; what nearly all files waited for is told alone."""
    *held, cause = why("failing-transfers", "--policy", policy)
    assert (cause["kind"], cause["what"]) == ("waited", bottlenecks.FEW)
    assert [hold["hold"] for hold in held] == ([] if policy == "fixed" else ["backlog"])


def test_files_that_failed_in_all_attempts_are_told_by_why_they_did(tmp_path):
    """While a storage is down they fail at once and wait for little; then FTS has few transfers for a while."""
    down = {
        "datasets:\n": "troubles: [{fault: storage-down, subject: T1_DE_KIT_Disk, at: 2 h, for: 2 h}]\ndatasets:\n"
    }
    (cause,) = why("one-link", "--days", 0.3, "--policy", "fixed", changes=down, folder=tmp_path)
    assert cause["kind"] == "failed"
    assert 8000 * GB <= cause["bytes"] < 10_000 * GB
    assert "T1_DE_KIT_Disk" in cause["what"]


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
    days = 0.4 if hold is Hold.QUARANTINED else 0.25
    cause = why(name, "--days", days, "--policy", "fixed", changes=changes, folder=tmp_path)[-1]
    assert (cause["hold"], cause["of_cycles"]) == (hold, math.ceil(96 * days))


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


def told(cause: Cause) -> tuple[object, ...]:
    """The kind of a cause, what files waited for, and its figures, but for the cycles of the link, which are 8."""
    row = cause.row
    what = row.pop("what")
    assert row.pop("of_cycles", 8) == 8
    return row.pop("kind"), *([what] if cause.kind is Kind.WAITED else []), *row.values()


def causes(ledger, *lines: SummaryLine, **how) -> list[list[tuple[object, ...]]]:
    return [list(map(told, link.causes)) for link in short(ledger, *lines, **how)]


def test_each_cause_has_its_words(ledger, wording):
    """What files waited for has those of `grid/world.py`."""
    through_fts = line(FlowKey("test", Link("A", "B", "fts")))
    whole, made = line(injected=8), {}
    made["unexplained"] = short(
        ledger, line(), whole, replace(line(), totals=replace(whole.totals, coming=4 * GB))
    )
    made["coarse"] = short(ledger, *(replace(one, holds={Hold.TOO_COARSE: 3}) for one in (line(), through_fts)))
    cycles(ledger, (1, Hold.BACKLOG), (GB, Hold.DELETION_LAG), (GB, Hold.DESTINATION_FULL), (GB, Hold.BACKLOG))
    made["disk"] = short(ledger, line(), used=95.0, above=1 / 60, overdue=9 * GB)
    made["in time"] = short(ledger, line(), used=95.0, failed={"failed": GB}, waits={"x": [450.0, 3150.0]})
    made["later"] = short(ledger, whole, waits={"x": [450.0]})
    wording([f"{name}: {link.row['why']}" for name, links in made.items() for link in links])


def test_what_was_not_seen_is_told_with_the_hold(ledger, wording):
    cycles(ledger, (GB, Hold.BACKLOG))
    (link,) = short(ledger, line())
    wording(link.row["why"])


def test_links_that_lack_most_come_first_whatever_part_that_is(ledger):
    lines = [line(), line(OTHER, due=20, injected=14, moved=14)]
    made = short(ledger, *lines)
    assert [(link.key, link.row["missing"], link.row["moved_of_due"]) for link in made] == [
        (OTHER, 6 * GB, 0.7),
        (KEY, 4 * GB, 0.5),
    ]


def test_a_minute_above_98_percent_is_told_as_one_and_explains_no_more_than_is_due_in_it(ledger):
    """Half of what is due in two hours is missing."""
    cycles(ledger, None)
    assert causes(ledger, line(), above=1 / 60) == [[("disk", "B", 60), NO_HOLD]]
    assert causes(ledger, line(), above=0.45) == [[("disk", "B", 1620), NO_HOLD]]
    assert causes(ledger, line(), above=0.55) == [[("disk", "B", 1980)]]


def test_what_explains_less_than_half_of_what_is_missing_leaves_the_rest_inconclusive(ledger):
    for part, more in ((1, True), (3, False)):
        (of_link,) = causes(ledger, line(injected=8), failed={"failed": part * GB, "rare": 1})
        assert of_link == [("failed", part * GB), *([("inconclusive", 3 * GB - 1)] if more else [])]


def test_links_between_the_same_storages_share_what_failed_between_them_as_they_were_injected(ledger):
    other = FlowKey("other", Link("A", "B"))
    lines = line(injected=9, moved=5), line(other, injected=3, moved=1)
    made = causes(ledger, *lines, failed={"failed": 4 * GB})
    assert [cause for link in made for cause in link if cause[0] == "failed"] == [
        ("failed", GB),
        ("failed", 3 * GB),
    ]


def test_what_files_waited_for_in_most_cycles_comes_first_and_what_few_waited_for_is_left_out(ledger):
    """In the order of what is printed, although more files waited in the fewer cycles."""
    cycles(ledger, None, None, None, None)
    waits, lost = {"down": [450.0, 1350.0, 2250.0], "slots": [3150.0]}, line(injected=8)
    (of_link,) = causes(ledger, lost, waits=waits, files={"slots": 4.0})
    assert of_link == [("waited", "down", 0.75, []), ("waited", "slots", 0.25, [])]
    (of_link,) = causes(ledger, lost, waits=waits, files={"slots": 100.0})
    assert of_link == [("waited", "slots", 0.25, [])]


def test_what_files_waited_for_counts_in_the_cycles_that_it_explains(ledger):
    """Only in the last one of four: before, the link was not held."""
    waits = {"down": [450.0, 1350.0, 2250.0], "slots": [3150.0]}
    cycles(ledger, None, None, None, (GB, Hold.BACKLOG))
    assert causes(ledger, line(), waits=waits) == [[HELD, ("waited", "slots", 1.0, ["backlog"])]]
    of_all = [("waited", "down", 0.75, []), ("waited", "slots", 0.25, [])]
    assert causes(ledger, line(injected=8), waits=waits) == [[HELD, *of_all]]
    assert causes(ledger, line()) == [[HELD, NO_HOLD]]


def test_a_link_that_is_held_because_its_files_failed_has_a_cause(ledger):
    """Nothing waits for a storage that is down: files fail at once."""
    cycles(ledger, None, None, None, (GB, Hold.BACKLOG))
    assert causes(ledger, line(injected=6), failed={"failed": 2 * GB}) == [[HELD, ("failed", 2 * GB)]]


def test_a_hold_that_says_why_leaves_nothing_inconclusive_beside_a_lesser_one_that_does_not(ledger):
    cycles(ledger, (GB, Hold.BACKLOG), (2 * GB, Hold.QUOTA))
    assert causes(ledger, line()) == [[("hold", "quota", 1), HELD]]


def test_programs_have_the_figures_of_each_cause(ledger):
    """As a list, beside the text that people read."""
    cycles(ledger, None, None, None, (GB, Hold.BACKLOG))
    (link,) = short(ledger, line(injected=6), failed={"failed": 2 * GB}, waits={"slots": [3150.0]})
    assert link.row["why"].count("; ") == len(link.row["causes"]) - 1 == 2
    assert link.row["causes"] == [
        {"kind": "hold", "what": "backlog", "hold": "backlog", "cycles": 1, "of_cycles": 8},
        {"kind": "failed", "what": "failed", "bytes": 2 * GB},
        {"kind": "waited", "what": "slots", "part": 1.0, "holds": ["backlog"]},
    ]
    (lost,) = short(ledger, line(injected=8))
    assert lost.causes[-1].what in lost.row["why"]
    assert lost.row["causes"][-1] == {"kind": "inconclusive", "what": lost.causes[-1].what, "bytes": 4 * GB}


def test_holds_are_in_the_order_of_their_cycles(ledger):
    """Which is what is printed, whatever was missing in them."""
    cycles(ledger, (9 * GB, Hold.PAUSED), (GB, Hold.QUOTA), (GB, Hold.QUOTA))
    assert causes(ledger, line()) == [[("hold", "quota", 2), ("hold", "paused", 1)]]


def test_what_files_waited_for_counts_in_all_cycles_between_two_looks(tmp_path):
    """With cycles of five minutes two of three have no sample of the world."""
    short = Cycle(START, timedelta(minutes=5))
    with Ledger.open(tmp_path / "short.sqlite", synchronous="OFF") as ledger:
        ledger.bind("dc27", short.length, [ME], START)
        for held in (True, False, False):  # the sample is in the second one
            ledger.open_cycle(short, {KEY: (GB, Held(Hold.BACKLOG, {}) if held else None)}, short.start)
            ledger.close_cycle(short, short.end)
            short = short.next
        waited = ("waited", "slots", 1.0, ["backlog"])
        assert causes(ledger, line(), waits={"slots": [450.0, 1350.0]}) == [[HELD, waited]]


def test_a_hold_in_whose_cycles_little_was_missing_is_no_cause_beside_another(ledger):
    """However many they are."""
    cycles(ledger, (1, Hold.BACKLOG), (1, Hold.BACKLOG), (GB, Hold.QUOTA))
    assert causes(ledger, line()) == [[("hold", "quota", 1)]]


def test_slow_deletions_are_the_cause_where_what_they_left_would_have_been_room_enough(ledger):
    """A tenth too little is not."""
    cycles(ledger, (GB, Hold.DESTINATION_FULL), (GB, Hold.DESTINATION_FULL))
    enough, too_few = (causes(ledger, line(), used=95.0, overdue=part * GB)[0] for part in (1.1, 0.9))
    assert too_few == [("hold", "destination-full", 2)]
    held, (kind, what, *figures) = enough
    assert (held, kind, figures) == (too_few[0], "waited", [1.0, ["destination-full"]])
    assert " B " in what


def test_what_lacks_room_at_one_disk_adds_up_whatever_the_ends_of_its_links_are_called(ledger):
    """Two prefixes of FTS at one storage: each alone would have had room."""
    cycle, other = CYCLE, FlowKey("test", Link("A", "davs://b.example.org/other", "fts"))
    held = Held(Hold.DESTINATION_FULL, {})
    ledger.open_cycle(cycle, {KEY: (GB, held), other: (GB, held)}, cycle.start)
    ledger.close_cycle(cycle, cycle.end)
    for overdue, is_cause in ((1.5, False), (2.5, True)):
        made = causes(
            ledger, line(), line(other), used=95.0, overdue=overdue * GB, prefixes={other.link.destination: "B"}
        )
        assert [[cause[0] for cause in link] for link in made] == [
            ["hold", "waited"] if is_cause else ["hold"]
        ] * 2


@pytest.mark.parametrize("hold", [Hold.DESTINATION_FULL, Hold.DELETION_LAG])
def test_how_full_a_disk_was_is_told_where_it_never_was_nearly_full(hold, ledger, wording):
    """A guard that lets in as much as is deleted counts no bytes on their way."""
    cycles(ledger, (GB, hold))
    (link,) = short(ledger, line(), used=59.0)
    assert list(map(told, link.causes)) == [("hold", hold, 1), ("disk", "B", 0.59)]
    wording(link.causes[1])


def test_deletions_that_are_slow_in_few_of_the_cycles_are_no_cause(ledger):
    """They would have been room enough in one of three."""
    much = (3 * GB, Hold.DESTINATION_FULL)
    cycles(ledger, (GB, Hold.DESTINATION_FULL), much, much)
    assert causes(ledger, line(), used=95.0, overdue=1.1 * GB) == [[("hold", "destination-full", 3)]]


def test_through_fts_files_are_too_coarse_and_beside_another_hold_none_are(ledger):
    """What waited for a dataset in a cycle is made up in the next ones, if nothing else holds the link."""
    through_fts = FlowKey("test", Link("A", "B", "fts"))
    coarse = {Hold.TOO_COARSE: 3}
    assert causes(ledger, replace(line(through_fts), holds=coarse)) == [[("hold", "too-coarse", 3)]]
    (lost,) = causes(ledger, replace(line(through_fts, injected=8), holds=coarse))
    assert lost == [("inconclusive", 4 * GB)]
    cycles(ledger, (GB, Hold.QUOTA))
    assert causes(ledger, replace(line(), holds=coarse | {Hold.QUOTA: 1})) == [[("hold", "quota", 1)]]


def test_what_is_still_on_its_way_is_not_lost(ledger):
    cycles(ledger, None)
    assert causes(ledger, line(injected=8, coming=4)) == [[("on-its-way",)]]


def test_a_little_that_is_still_on_its_way_does_not_explain_what_never_was_injected_or_got_lost(ledger):
    """At the end of a simulation something is on its way on nearly every link."""
    assert causes(ledger, line(due=80, injected=50, moved=49, coming=1)) == [[NO_HOLD]]
    assert causes(ledger, line(due=80, injected=50, moved=40, coming=10)) == [[NO_HOLD]]
    assert causes(ledger, line(due=80, injected=80, moved=49, coming=1)) == [[("inconclusive", 30 * GB)]]
    cycles(ledger, (GB, Hold.QUOTA))
    assert causes(ledger, line(due=80, injected=50, moved=40, coming=10)) == [[("hold", "quota", 1)]]
