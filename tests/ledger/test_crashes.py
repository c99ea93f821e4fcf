"""The process can be killed, or the machine lose its power, between any two transactions: the ledger is whole."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys

import pytest

from dc_inject.ledger import Ledger, in_place, schema
from dc_inject.model import Held, Hold
from dc_inject.model.errors import Temporary, TryOtherItem
from dc_inject.model.overrides import Kind
from dc_inject.model.ports import Outcome, Status
from tests.ledger.world import (
    AB,
    AC,
    CYCLE,
    DB,
    LENGTH,
    ME,
    MINUTE,
    POOL,
    START,
    dues,
    injection,
    opened,
    plan,
    seen,
    totals_from_rows,
)

SOME = [injection(f"cms:/{name}#1", key) for name, key in (("a", AB), ("b", AC), ("c", DB), ("d", AB))]
KEYS = [one.key for one in SOME]
GRAIN = dict.fromkeys((AB, AC, DB), Held(Hold.TOO_COARSE))


def set_aside(ledger):
    """The one step that counts how often it is done."""
    ledger.quarantine(SOME[1].item.name, "C", "being deleted", START)


STEPS = [
    lambda ledger: ledger.bind("dc27", LENGTH, (ME,), START),
    lambda ledger: ledger.begin(START),
    lambda ledger: ledger.put_in_force([("a.yaml", "1", "menu: 1")], START),
    lambda ledger: ledger.store_inventory("rucio", POOL, [one.item for one in SOME], START),
    lambda ledger: ledger.open_cycle(CYCLE, dues(), START),
    lambda ledger: ledger.record_plan(plan(SOME[:3], forgiven=5), START),
    lambda ledger: ledger.call(KEYS[:3], START),
    lambda ledger: ledger.answer(
        [
            Outcome(KEYS[0], "r0", present=7),
            Outcome(KEYS[1], error=TryOtherItem("being deleted")),
            Outcome(KEYS[2], error=Temporary("timed out", lost=True)),
        ],
        START,
        {},
    ),
    set_aside,
    lambda ledger: ledger.add_injections(SOME[3:], START + MINUTE),
    lambda ledger: ledger.pause("*", "me", "lunch", START + MINUTE),
    lambda ledger: ledger.override("A:B", Kind.SCALE, 0.5, "me", "", START + MINUTE),
    lambda ledger: ledger.unset("A:B", None, "me", "", START + MINUTE),
    lambda ledger: ledger.withdraw(KEYS[3:], "paused", START + MINUTE),
    lambda ledger: ledger.observe([seen(KEYS[0], Status.MOVING, moved=5), seen(KEYS[2], Status.MOVING)], START),
    lambda ledger: ledger.close_cycle(CYCLE, CYCLE.end, GRAIN),
    lambda ledger: ledger.open_cycle(CYCLE.next, {AB: (5, None)}, CYCLE.end),
    lambda ledger: ledger.observe([seen(key, Status.COMPLETE) for key in (KEYS[0], KEYS[2])], CYCLE.end),
    lambda ledger: ledger.end_asked([KEYS[0], KEYS[2]], CYCLE.end),
    lambda ledger: ledger.observe([seen(KEYS[0], Status.ABSENT)], CYCLE.end),
    lambda ledger: ledger.gone([KEYS[0]], CYCLE.end),
    lambda ledger: ledger.close_cycle(CYCLE.next, CYCLE.next.end),
]


def dump(path) -> list[str]:
    """All that a ledger holds, as text."""
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        return list(connection.iterdump())
    finally:
        connection.close()


def crashed(path, folder):
    """What a crash would leave of a ledger that is open: the file and its write-ahead log, without the rest."""
    folder.mkdir()
    for name in (path.name, path.name + "-wal"):
        shutil.copy(path.with_name(name), folder / name)
    return folder / path.name


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    with opened(tmp_path_factory.mktemp("calm")) as ledger:
        for step in STEPS:
            step(ledger)
        return dump(ledger.path)


@pytest.mark.parametrize("after", range(len(STEPS) + 1))
def test_what_a_crash_leaves_is_whole_and_going_on_from_it_gives_the_same(tmp_path, undisturbed, after):
    """The step before the crash is done again, as the next start does: it changes nothing."""
    with opened(tmp_path) as ledger:
        for step in STEPS[:after]:
            step(ledger)
        left = crashed(ledger.path, tmp_path / "left")
    with Ledger.open(left, synchronous="OFF") as ledger:
        assert ledger.accounts() == totals_from_rows(ledger)
        for step in STEPS[max(after - 1, 0) :]:
            if step is not set_aside or step in STEPS[after:]:
                step(ledger)
        assert ledger.accounts() == totals_from_rows(ledger)
        assert dump(left) == undisturbed


@pytest.mark.parametrize("lost", [1, 100, 3000, 5000])
def test_a_log_that_was_cut_short_loses_whole_transactions_only(tmp_path, lost):
    """Without fsync the machine may lose the end of the log; what is left is a state that there was."""
    with opened(tmp_path) as ledger:
        for step in STEPS:
            step(ledger)
        left = crashed(ledger.path, tmp_path / "left")
    log = left.with_name(left.name + "-wal")
    log.write_bytes(log.read_bytes()[:-lost])
    with Ledger.open(left, synchronous="OFF") as ledger:
        assert ledger.accounts() == totals_from_rows(ledger)
        for step in STEPS[-5:]:
            step(ledger)
        assert ledger.accounts() == totals_from_rows(ledger)
    dump(left)


def test_a_ledger_whose_making_is_cut_short_is_made_again(tmp_path, monkeypatch, make_empty_file):
    monkeypatch.setattr(in_place, "make_file", make_empty_file)
    path = tmp_path / "dc27.sqlite"
    with monkeypatch.context() as patch:
        patch.setattr(schema, "_statements", lambda: ("CREATE TABLE campaign (a)", "this is no SQL"))
        with pytest.raises(Exception, match="syntax error"):
            Ledger.open(path)
    with Ledger.open(path) as ledger:
        assert ledger.campaign is None


KILLED = """
import os, signal, sys
from pathlib import Path
from dc_inject.ledger import Ledger
from tests.ledger.world import START, injection, started
with Ledger.open(Path(sys.argv[1])) as ledger:
    started(ledger, injection())
    with ledger.together():
        ledger.call([injection().key], START)
        ledger.note("never", START)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_inside_a_transaction_leaves_nothing_of_it(tmp_path):
    path = tmp_path / "dc27.sqlite"
    died = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=60, check=False)
    assert died.returncode == -9
    with Ledger.open(path) as ledger:
        assert [entry.attempt for entry in ledger.entries()] == [0]
        assert ledger.notes() == ()
        assert ledger.accounts() == totals_from_rows(ledger)
        dump(path)
