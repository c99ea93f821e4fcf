"""The names of a job's files: in its entries while it is to be asked for, and kept for a second hop alone."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

from dc_inject.ledger.check import check
from dc_inject.model import Bundle, File, JobOptions, State
from dc_inject.model.ports import Observation, Outcome, Status
from tests.ledger.world import CYCLE, GB, MINUTE, START, injection, opened, started

FILES = tuple(File(f"davs://a.example.org/dc/{n}", 25 * GB, f"adler32:0000000{n}") for n in range(4))


def job(*, keeps_files):
    """A job of four files."""
    return injection(item=Bundle("4 files", 100 * GB, 4, members=FILES), job=JobOptions(), keeps_files=keeps_files)


def agrees(ledger):
    """See that `ledger check` finds nothing wrong with the names of files."""
    assert [found for found in check(ledger.path) if found.code == "members-left"] == []


def seen(ledger, key):
    """The names of its files: in a list of entries, asked for, and those that did not arrive."""
    (listed,) = ledger.entries()
    named = ledger.with_files([key, "unknown"])
    assert named.keys() == {key}
    assert named[key] == ledger.entry(key)
    return listed.injection.item.members, named[key].injection.item.members, listed.undone


@pytest.mark.parametrize("keeps_files", [False, True])
def test_files_are_named_as_long_as_somebody_needs_them(tmp_path, keeps_files):
    made = job(keeps_files=keeps_files)
    kept = FILES if keeps_files else ()
    lost = (FILES[1].name,)
    with opened(tmp_path) as ledger:
        started(ledger, made)
        assert seen(ledger, made.key) == (FILES, FILES, ())
        ledger.call([made.key], START)
        assert seen(ledger, made.key) == (FILES, FILES, ())
        ledger.answer([Outcome(made.key, "job")], START, {})
        assert seen(ledger, made.key) == ((), kept, ())
        some = {"failed": 25 * GB, "undone": lost, "exact": True, "moved": 75 * GB}
        for minute in range(2):
            ledger.observe([Observation(made.key, Status.COMPLETE, "job", **some)], START + minute * MINUTE)
            assert seen(ledger, made.key) == ((), kept, lost if keeps_files else ())
        agrees(ledger)
        ledger.observe([Observation(made.key, Status.COMPLETE, "job")], START + 2 * MINUTE)
        assert seen(ledger, made.key) == ((), kept, lost if keeps_files else ())
        ledger.ended([made.key], CYCLE.end)
        assert seen(ledger, made.key) == ((), (), ())
        assert ledger.entry(made.key).state is State.ENDED
        agrees(ledger)


def test_an_intent_that_was_dropped_and_comes_back_names_its_files_again(tmp_path):
    made = job(keeps_files=True)
    with opened(tmp_path) as ledger:
        started(ledger, made)
        ledger.withdraw([made.key], "paused", START)
        assert seen(ledger, made.key) == ((), (), ())
        ledger.add_injections([made], START)
        assert seen(ledger, made.key) == (FILES, FILES, ())
        assert ledger.entry(made.key).injection == made


def test_names_that_are_left_where_nobody_needs_them_are_found(tmp_path):
    made = job(keeps_files=True)
    with opened(tmp_path) as ledger:
        started(ledger, made)
        ledger.call([made.key], START)
        ledger.answer([Outcome(made.key, "job")], START, {})
        agrees(ledger)
    for wrong in ("keeps_files = 0", "keeps_files = 1, members = NULL, undone = '[]'"):
        with contextlib.closing(sqlite3.connect(tmp_path / "dc27.sqlite")) as db, db:
            db.execute(f"UPDATE injection SET {wrong}")
        assert "members-left" in {found.code for found in check(tmp_path / "dc27.sqlite")}
