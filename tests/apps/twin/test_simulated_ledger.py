"""The ledger of a simulation: it can be read and noted on, but there is nothing to stop, change or go on with.

It merges changes, and becomes what one is that writes each at once.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dc_inject.apps.twin.simulated_ledger import SimulatedLedger
from dc_inject.control import Windows
from dc_inject.control.law import LinkState
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.ledger.active_entries import STATES
from dc_inject.model import Bundle, File, Injection, JobOptions, State
from dc_inject.model.errors import LedgerError, NumberTooLarge, Permanent, Temporary
from dc_inject.model.ports import Outcome, Status
from dc_inject.summary import days
from tests.cli import ledgers
from tests.cli.ledgers import FNAL, make, run
from tests.ledger.world import AB, AC, DB, GB, START, injection, opened, seen, started, totals_from_rows

TWIN = Path(__file__).parents[3] / "menus" / "twin"
MENU = """
menu: 1
campaign: dc27
description: One link
contact: dc-ops@example.org
timezone: UTC
start: 2027-02-08 10:00
end: 2027-02-09 10:00
target: 4 Gb/s
defaults: {datasets: {did: ["*:*"]}}
scenarios: {t0-export: {from: T2_CH_CERN, to: T1_US_FNAL_Disk, rate: 4 Gb/s}}
"""


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(ledgers, "ME", replace(ledgers.ME, address="twin://one-link"))
    return make(tmp_path / "kept.sqlite", {FNAL: 1}).path


@pytest.mark.parametrize(
    "words",
    [
        ["stop", "LEDGER"],
        ["pause", "LEDGER", "t0-export"],
        ["resume", "LEDGER"],
        ["set", "LEDGER", "t0-export", "scale", "0.5"],
        ["unset", "LEDGER", "t0-export"],
        ["end", "LEDGER", "--cancel", "--yes"],
        ["run", "MENU", "--ledger", "LEDGER"],
        ["health", "LEDGER"],
    ],
    ids=lambda words: words[0],
)
def test_what_would_act_on_a_simulation_is_refused(
    words: list[str], ledger: Path, tmp_path: Path, wording
) -> None:
    menu = tmp_path / "menu.yaml"
    menu.write_text(MENU)
    error = run(*({"LEDGER": ledger, "MENU": menu}.get(word, word) for word in words)).exception
    assert isinstance(error, LedgerError)
    wording(error.message)
    wording(error.hint)
    with LedgerView.open(ledger) as view:
        assert view.pauses() == view.overrides() == view.changes() == ()


def test_status_says_that_it_is_a_simulation(ledger: Path) -> None:
    """Right below the five lines with which every view begins."""
    lines = run("status", ledger).stdout.splitlines()
    assert "simulated in the grid one-link: no real transfer is in it" in lines[5:7]
    assert json.loads(run("status", ledger, "--format", "json").stdout)["simulated_in"] == "one-link"


def test_it_can_be_read_and_noted_on(ledger: Path) -> None:
    assert run("note", ledger, "the disk was too small").exit_code == 0
    assert "the disk was too small" in run("status", ledger).stdout


FILES = tuple(File(f"davs://a/{name}", GB) for name in "xyz")
JOBS = [
    injection(name, item=Bundle(name, 3 * GB, 3, members=FILES), job=JobOptions(), keeps_files=name == "kept")
    for name in ("kept", "not kept")
]
MANY = [injection(f"cms:/{name}#1", key) for key in (AB, AC, DB) for name in "abcd"] + JOBS


def dumped(ledger: Ledger) -> list[str]:
    """All that a ledger contains, but for states in which nothing is any more."""
    with closing(sqlite3.connect(ledger.path)) as connection:
        lines = connection.iterdump()
        return sorted(line for line in lines if "state_count" not in line or not line.endswith(",0,0);"))


def something(dice: random.Random, now: datetime) -> Callable[[Ledger], object]:
    """Return one thing that happens to some injections, as it is done to a ledger."""
    keys = [one.key for one in dice.sample(MANY, 3)]
    errors = (None, None, Permanent("no"), Temporary("503"), Temporary("timed out", lost=True))
    outcomes = [Outcome(key, f"rule {key[:4]}", error=dice.choice(errors)) for key in keys]
    status = dice.choice([Status.MOVING, Status.MOVING, Status.COMPLETE, Status.ABSENT])
    looks = [seen(key, status, moved=dice.choice([0, 5]), files_done=dice.choice([0, 3])) for key in keys]
    does: list[Callable[[Ledger], object]] = [
        lambda ledger: ledger.call(keys, now),
        lambda ledger: ledger.answer(outcomes, now, {}),
        lambda ledger: ledger.observe(looks, now),
        lambda ledger: [ledger.observe(looks, now + timedelta(seconds=later)) for later in (0, 5)],
        lambda ledger: ledger.end_asked(keys, now),
        lambda ledger: ledger.ended(keys[:1], now),
        lambda ledger: ledger.gone(keys, now),
        lambda ledger: ledger.withdraw(keys, "no time", now),
        lambda ledger: ledger.add_injections([one for one in MANY if one.key in keys], now),
    ]
    return dice.choice(does)


@pytest.mark.parametrize("seed", range(12))
def test_it_becomes_what_a_ledger_is_that_writes_at_once(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    with opened(tmp_path) as at_once, SimulatedLedger.make(tmp_path / "late.sqlite") as late:
        for ledger in (at_once, late):
            started(ledger, *MANY[::2])  # the others are new in the middle of it
        with late.together():
            for step in range(120):
                do = something(dice, START + timedelta(seconds=10 * step))
                do(at_once), do(late)
                if dice.random() < 0.2:
                    assert late.entries(*STATES) == at_once.entries(*STATES)
                if dice.random() < 0.05:
                    assert late.accounts() == at_once.accounts() == totals_from_rows(late)
        assert dumped(late) == dumped(at_once)


def test_what_changes_twice_is_written_once(tmp_path: Path) -> None:
    """What is new is written as it has become."""
    with SimulatedLedger.make(tmp_path / "late.sqlite") as late:
        started(late)
        late.observe([], START)
        late.answer([Outcome("no such key", "")], START, {})  # what is read once has been read
        writes: set[str] = set()
        with late.together():
            late._db._connection.set_trace_callback(writes.add)
            late.add_injections(MANY, START)
            for at, one in enumerate(MANY):
                late.call([one.key], START + timedelta(seconds=at))
                late.answer([Outcome(one.key, f"rule {at}")], START + timedelta(seconds=at), {})
            late.observe(
                [seen(one.key, Status.MOVING, files_done=1) for one in MANY], START + timedelta(minutes=1)
            )
            assert not [one for one in writes if one.startswith(("INSERT", "UPDATE"))]
        assert len([one for one in writes if one.startswith("INSERT INTO injection")]) == len(MANY)
        assert not [one for one in writes if one.startswith("UPDATE injection")]
        assert {entry.files_done for entry in late.entries()} == {1}


def test_a_number_that_is_too_large_is_an_error_and_nothing_of_it_stays(tmp_path: Path) -> None:
    huge = injection("huge", item=replace(MANY[0].item, bytes=2**63))
    with SimulatedLedger.make(tmp_path / "late.sqlite") as late:
        started(late, MANY[0])
        with pytest.raises(NumberTooLarge), late.together():
            late.add_injections([huge], START)
        assert [entry.injection.key for entry in late.entries()] == [MANY[0].key]


def go_on_after_an_error(ledger: Ledger) -> None:
    with suppress(ZeroDivisionError), ledger.together():
        ledger.add_injections(MANY, START)
        raise ZeroDivisionError
    ledger.note("an error", START)


def test_nothing_goes_on_after_a_change_that_was_interrupted(tmp_path: Path) -> None:
    """What was merged with it cannot be undone in part."""
    with SimulatedLedger.make(tmp_path / "late.sqlite") as late:
        started(late)
        with pytest.raises(LedgerError), late.together():
            go_on_after_an_error(late)
    with LedgerView.open(tmp_path / "late.sqlite") as view:
        assert not view.entries()


def test_what_is_merged_is_forgotten_when_a_change_is_undone(tmp_path: Path) -> None:
    with SimulatedLedger.make(tmp_path / "late.sqlite") as late:
        started(late)
        with suppress(ZeroDivisionError), late.together():
            late.add_injections(MANY, START)
            raise ZeroDivisionError
        assert late.entries() == []


def read_what_cannot_be_written(ledger: Ledger, huge: Injection) -> None:
    ledger.add_injections([MANY[1], huge], START)
    with suppress(NumberTooLarge):
        ledger.accounts()


def test_an_error_that_shows_in_a_later_reading_undoes_the_whole(tmp_path: Path) -> None:
    huge = injection("huge", item=replace(MANY[0].item, bytes=2**63))
    with SimulatedLedger.make(tmp_path / "late.sqlite") as late:
        started(late)
        late.add_injections([MANY[0]], START)
        with pytest.raises(LedgerError), late.together():
            read_what_cannot_be_written(late, huge)
        assert late.entries() == late.entries(State.INTENDED)
        assert [entry.injection.key for entry in late.entries()] == [MANY[0].key]


def test_the_state_of_control_is_kept_by_a_ledger_that_is_continued(tmp_path: Path) -> None:
    """Nobody goes on with a simulation."""
    kept = []
    with opened(tmp_path) as at_once, SimulatedLedger.make(tmp_path / "late.sqlite") as late:
        for ledger in (at_once, late):
            started(ledger, MANY[0])
            windows = Windows(ledger)
            windows._know(AB, LinkState())
            windows._write(START, [AB])
            kept.append(len(ledger.signals("windows")))
    assert kept == [1, 0]


def test_status_and_explain_show_the_whole_of_a_simulation_that_is_over(tmp_path: Path) -> None:
    """It was stopped before its menus end, and nothing goes on."""
    folder, kept = TWIN / "overloaded-storage", tmp_path / "kept.sqlite"
    how = ("--grid", folder / "grid.yaml", "--policy", "act", "--days", 0.125)
    assert run("simulate", folder / "menu.yaml", *how, "--ledger", kept).exit_code == 0
    table = run("status", kept, "--summary").stdout.splitlines()
    assert set(table[:6]) <= set(run("status", kept).stdout.splitlines())
    (one,) = (row for row in table if row.split()[1:2] == ["T1_ES_PIC_Disk"])
    of_one = run("status", kept, "--link", "T1_ES_PIC_Disk:T1_IT_CNAF_Disk").stdout.splitlines()
    assert one.split() in [line.split() for line in of_one]
    assert not [line for line in of_one if line.startswith(("total", "test      T2_CH_CERN"))]
    status = json.loads(run("status", kept, "--format", "json").stdout)
    assert status["over_since"] is not None
    assert status["more"].startswith("dc-inject explain")
    explained = json.loads(run("explain", kept, "--format", "json").stdout)
    assert {row["key"] for row in explained} == {"backlog"}
    assert not any(row["needs_action"] for row in explained)


def test_a_simulation_that_ends_while_a_service_is_down_was_not_stopped(tmp_path: Path) -> None:
    """Cycles that could not be planned were due all the same."""
    folder, kept = TWIN / "rucio-down", tmp_path / "kept.sqlite"
    for name, old, new in (
        ("menu", "end: 2027-02-08 22:00", "end: 2027-02-08 12:00"),
        ("grid", "at: 3 h 20 min, for: 40 min", "at: 80 min, for: 70 min"),
    ):
        text = (folder / f"{name}.yaml").read_text()
        assert old in text
        (tmp_path / f"{name}.yaml").write_text(text.replace(old, new))
    done = run("simulate", tmp_path / "menu.yaml", "--grid", tmp_path / "grid.yaml", "--ledger", kept)
    assert done.exit_code == 0
    with LedgerView.open(kept) as view:
        (menu,) = days.list_days(view).menus
    assert menu[2] == datetime(2027, 2, 8, 12, tzinfo=UTC)
