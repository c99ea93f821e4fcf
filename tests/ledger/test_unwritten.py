"""A ledger that commits rarely, as that of a simulation, says and becomes what one does that commits at once."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from datetime import timedelta

import pytest

from dc_inject.ledger import Ledger, LedgerView
from dc_inject.ledger.active_entries import STATES
from dc_inject.model import Bundle, File, JobOptions
from dc_inject.model.errors import LedgerError, Permanent, Temporary
from dc_inject.model.overrides import Kind
from dc_inject.model.ports import Outcome, Status
from tests.ledger.world import AB, AC, DB, GB, START, accepted, injection, opened, seen, started

FILES = tuple(File(f"davs://a/{name}", GB) for name in "xyz")
JOBS = [
    injection(name, item=Bundle(name, 3 * GB, 3, members=FILES), job=JobOptions(), keeps_files=name == "kept")
    for name in ("kept", "not kept")
]
MANY = [injection(f"cms:/{name}#1", key) for key in (AB, AC, DB) for name in "abcd"] + JOBS
LATER = START + timedelta(minutes=5)


def rarely(folder):
    folder.mkdir()
    return opened(folder, commit_every=1000)


def dumped(ledger):
    """All of a ledger, but for the order of states, and those in which nothing is any more."""
    ledger.close()
    with closing(sqlite3.connect(ledger.path)) as connection:
        return sorted(line for line in connection.iterdump() if not line.endswith(",0,0);"))


def something(dice, now):
    """One thing that happens to some injections, as it is done to a ledger."""
    keys = [one.key for one in dice.sample(MANY, 3)]
    errors = (None, None, Permanent("no"), Temporary("503"), Temporary("timed out", lost=True))
    outcomes = [Outcome(key, f"rule {key[:4]}", error=dice.choice(errors)) for key in keys]
    status = dice.choice([Status.MOVING, Status.MOVING, Status.COMPLETE, Status.ABSENT])
    looks = [seen(key, status, moved=dice.choice([0, 5]), files_done=dice.choice([0, 3])) for key in keys]
    return dice.choice(
        [
            lambda ledger: ledger.call(keys, now),
            lambda ledger: ledger.answer(outcomes, now, {}),
            lambda ledger: ledger.observe(looks, now),
            lambda ledger: ledger.observe(looks, now),
            lambda ledger: ledger.end_asked(keys, now),
            lambda ledger: ledger.ended(keys[:1], now),
            lambda ledger: ledger.gone(keys, now),
            lambda ledger: ledger.withdraw(keys, "no time", now),
            lambda ledger: ledger.add_injections([one for one in MANY if one.key in keys], now),
        ]
    )


@pytest.mark.parametrize("seed", range(12))
def test_it_becomes_what_one_does_that_commits_at_once(tmp_path, seed):
    dice = random.Random(seed)
    with opened(tmp_path) as at_once, rarely(tmp_path / "rarely") as late:
        for ledger in (at_once, late):
            started(ledger, *MANY[::2])  # the others are new in the middle of it
        for step in range(120):
            what = something(dice, START + timedelta(seconds=10 * step))
            for ledger in (at_once, late):
                what(ledger)
            if dice.random() < 0.2:
                assert late.entries(*STATES) == at_once.entries(*STATES)
            if dice.random() < 0.05:
                assert late.accounts() == at_once.accounts() == late.totals_from_rows()
        assert dumped(late) == dumped(at_once)


def test_what_changes_twice_is_written_once(tmp_path):
    with rarely(tmp_path / "rarely") as ledger:
        started(ledger, *MANY)
        accepted(ledger, MANY[0])  # from now on it is known that none of them goes out only once
        ledger.accounts()
        said: list[str] = []
        ledger._db._connection.set_trace_callback(said.append)
        keys = accepted(ledger, *MANY)
        ledger.observe([seen(key, Status.COMPLETE) for key in keys], LATER)
        assert [one for one in said if "injection" in one] == []
        assert ledger.accounts()[AB].moved == sum(one.item.bytes for one in MANY if one.flow == AB)
        updates = {one for one in said if one.startswith("UPDATE injection")}  # told again after each trigger
        assert len(updates) == len(MANY)


def test_a_new_intent_is_written_as_what_it_has_become(tmp_path):
    with opened(tmp_path) as at_once, rarely(tmp_path / "rarely") as late:
        said: list[str] = []
        for ledger in (at_once, late):
            started(ledger, MANY[0])
            accepted(ledger, MANY[0])  # from now on it is known that none of them goes out only once
            ledger.accounts()
            ledger._db._connection.set_trace_callback(said.append if ledger is late else None)
            ledger.add_injections(MANY[1:], START)
            keys = accepted(ledger, *MANY[1:])
            ledger.observe([seen(key, Status.COMPLETE) for key in keys], LATER)
            ledger.accounts()
        assert [one for one in said if one.startswith("UPDATE injection")] == []
        assert dumped(late) == dumped(at_once)


def test_nobody_else_sees_it_before_the_commit(tmp_path):
    with rarely(tmp_path / "rarely") as ledger:
        started(ledger, *MANY)
        with LedgerView.open(ledger.path) as reader:
            assert reader.entries() == []
    with LedgerView.open(ledger.path) as reader:
        assert len(reader.entries()) == len(MANY)


def test_after_an_error_it_takes_nothing_more(tmp_path):
    """What went before is lost with what failed, and with a part of it nobody may go on."""
    with rarely(tmp_path / "rarely") as ledger:
        started(ledger, *MANY)
        with pytest.raises(ZeroDivisionError), ledger.together():
            raise ZeroDivisionError
        with pytest.raises(LedgerError, match="is lost"):
            ledger.call([MANY[0].key], LATER)
    with LedgerView.open(ledger.path) as reader:
        assert reader.entries() == []


def test_a_reading_that_cannot_be_made_up_for_is_an_error_too(tmp_path, monkeypatch):
    with rarely(tmp_path / "rarely") as ledger:
        started(ledger, *MANY)
        ledger.call([MANY[0].key], LATER)
        ledger.call([MANY[1].key], LATER)
        monkeypatch.setattr(ledger._db, "run_many", failing)
        with pytest.raises(LedgerError, match="disk"):
            ledger.accounts()
        monkeypatch.undo()
        with pytest.raises(LedgerError, match="is lost"):
            ledger.call([MANY[2].key], LATER)


def failing(sql, values):
    raise sqlite3.OperationalError("disk I/O error")


def test_what_people_set_is_seen_whoever_sets_it(tmp_path):
    with opened(tmp_path) as ledger:
        started(ledger)
        assert ledger.pauses() == ledger.overrides() == ()
        with Ledger.open(ledger.path) as other:
            other.pause("day", "me", "", LATER)
            other.override("day", Kind.SCALE, 0.5, "me", "", LATER)
        assert [len(ledger.pauses()), len(ledger.overrides())] == [1, 1]
        ledger.pause("night", "me", "", LATER)
        ledger.override("night", Kind.SCALE, 0.5, "me", "", LATER)
        assert [len(ledger.pauses()), len(ledger.overrides())] == [2, 2]
        ledger.resume("day", "me", "", LATER)
        ledger.unset("day", None, "me", "", LATER)
        assert [len(ledger.pauses()), len(ledger.overrides())] == [1, 1]
