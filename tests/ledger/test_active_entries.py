"""What the writer of a ledger keeps in memory is what is in its file, and only what changed is written there."""

from __future__ import annotations

import contextlib
import random
import re
import sqlite3
from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.ledger import Ledger, LedgerView
from dc_inject.ledger.active_entries import STATES
from dc_inject.model import Bundle, File, JobOptions, State, transitions
from dc_inject.model.errors import LedgerError
from dc_inject.model.ports import Outcome, Status
from tests.ledger.world import START, accepted, injection, opened, seen, started

ONE, OTHER = injection("cms:/a#1"), injection("cms:/b#1")
FILES = Bundle("bundle", 200, 2, members=(File("davs://a/1", 100), File("davs://a/2", 100)))
LATER = START + timedelta(minutes=5)


@pytest.fixture
def ledger(tmp_path):
    with opened(tmp_path) as made:
        started(made, ONE, OTHER)
        yield made


def as_in_the_file(ledger):
    with LedgerView.open(ledger.path) as reader:
        return reader.entries(*STATES)


def statements(ledger, what):
    """What SQLite is given to do, triggers included."""
    said = []
    ledger._db._connection.set_trace_callback(said.append)
    what()
    ledger._db._connection.set_trace_callback(None)
    return said


def test_what_lives_is_read_once(ledger):
    ledger.entries(*STATES)
    said = statements(ledger, lambda: ledger.entries(State.LIVE) + ledger.entries(State.INTENDED, State.CALLED))
    assert [one for one in said if "injection" in one] == []


def test_what_lives_is_followed_through_its_whole_life(ledger):
    for step in (
        lambda: ledger.call([ONE.key, OTHER.key], LATER),
        lambda: ledger.answer([Outcome(ONE.key, "rule-1"), Outcome(OTHER.key, "rule-2", present=7)], LATER, {}),
        lambda: ledger.observe([seen(ONE.key, Status.MOVING, files_done=3, moved=5)], LATER),
        lambda: ledger.observe([seen(ONE.key, Status.COMPLETE)], LATER),
        lambda: ledger.end_asked([ONE.key], LATER),
        lambda: ledger.ended([ONE.key], LATER),
        lambda: ledger.gone([ONE.key], LATER),
        lambda: ledger.add_injections([injection("cms:/c#1")], LATER),
        lambda: ledger.withdraw([injection("cms:/c#1").key], "no time", LATER),
        lambda: ledger.add_injections([injection("cms:/c#1")], LATER),
    ):
        step()
        assert ledger.entries(*STATES) == as_in_the_file(ledger)
    assert {entry.state for entry in ledger.entries(*STATES)} == {State.INTENDED, State.LIVE}


def test_files_are_named_as_long_as_the_file_tells_them(ledger):
    bundle = injection("bundle", item=FILES, job=JobOptions())
    for step in (
        lambda: ledger.add_injections([bundle], LATER),
        lambda: ledger.call([bundle.key], LATER),
        lambda: ledger.answer([Outcome(bundle.key, "job")], LATER, {}),
    ):
        step()
        assert ledger.entries(*STATES) == as_in_the_file(ledger)


def test_what_another_process_writes_is_seen(ledger):
    accepted(ledger, ONE)
    ledger.entries(*STATES)
    with Ledger.open(ledger.path) as other:
        other.end_asked([ONE.key], LATER)
    [entry] = ledger.entries(State.LIVE)
    assert entry.end_asked_at == LATER
    ledger.observe([seen(ONE.key, Status.MOVING, moved=5)], LATER)
    assert ledger.entry(ONE.key).end_asked_at == LATER


def test_a_transaction_that_fails_leaves_nothing_in_memory(ledger):
    accepted(ledger, ONE)
    before = ledger.entries(*STATES)
    with contextlib.suppress(ZeroDivisionError), ledger.together():
        ledger.ended([ONE.key], LATER)
        ledger.gone([ONE.key], LATER)
        assert [entry.injection for entry in ledger.entries(*STATES)] == [OTHER]
        raise ZeroDivisionError
    assert ledger.entries(*STATES) == before == as_in_the_file(ledger)


def test_a_statement_that_fails_undoes_the_transaction_around_it_and_leaves_nothing_in_memory(ledger, monkeypatch):
    accepted(ledger, ONE, OTHER)
    run_many = ledger._db.run_many

    def half(sql, values):
        run_many(sql, list(values)[:1])
        raise sqlite3.OperationalError

    def go_on_after_it():
        monkeypatch.setattr(ledger._db, "run_many", half)
        with contextlib.suppress(sqlite3.OperationalError):
            ledger.observe([seen(ONE.key, Status.MOVING, moved=5), seen(OTHER.key, Status.MOVING, moved=6)], LATER)
        monkeypatch.setattr(ledger._db, "run_many", run_many)

    with pytest.raises(LedgerError), ledger.together():
        go_on_after_it()
    assert [entry.moved for entry in ledger.entries(State.LIVE)] == [0, 0]
    assert ledger.entries(*STATES) == as_in_the_file(ledger)


def test_a_look_that_tells_nothing_new_writes_the_time_of_the_look_alone(ledger):
    accepted(ledger, ONE)
    ledger.observe([seen(ONE.key, Status.MOVING, moved=5)], LATER)
    again = LATER + timedelta(minutes=1)
    said = statements(ledger, lambda: ledger.observe([seen(ONE.key, Status.MOVING, moved=5)], again))
    [update] = [one for one in said if re.search("UPDATE injection", one)]
    assert re.findall(r"(\w+) = ", update) == ["observed_at"]
    assert not [one for one in said if "UPDATE account" in one or "state_count" in one]
    assert ledger.entry(ONE.key).observed_at == again


def test_what_becomes_of_many_alike_is_one_statement(ledger):
    accepted(ledger, ONE, OTHER)
    said = statements(ledger, lambda: ledger.ended([ONE.key, OTHER.key], LATER))
    # SQLite tells the statement again after each of its triggers.
    assert len({one for one in said if one.startswith("UPDATE injection")}) == 1
    assert [entry.ended_at for entry in ledger.entries(State.ENDED)] == [LATER, LATER]
    assert ledger.entries(*STATES) == as_in_the_file(ledger)
    assert ledger.state_counts()[State.ENDED][0] == 2


def test_whether_others_have_written_is_asked_once_in_a_transaction(ledger):
    accepted(ledger, ONE, OTHER)
    said = statements(ledger, lambda: ledger.observe([seen(ONE.key, Status.MOVING, moved=5)], LATER))
    assert len([one for one in said if "data_version" in one]) == 1


def times(ledger, since=START):
    return {flow: list(taken) for flow, taken in ledger.times_to_completion(since).items()}


def times_in_the_file(ledger, since=START):
    with LedgerView.open(ledger.path) as reader:
        return times(reader, since)


def test_how_long_completed_ones_took_is_read_once_and_followed(ledger):
    accepted(ledger, ONE, OTHER)
    assert times(ledger) == {}
    ledger.observe([seen(ONE.key, Status.COMPLETE)], LATER)
    said = statements(ledger, lambda: times(ledger))
    assert [one for one in said if "FROM injection" in one] == []
    assert times(ledger) == times_in_the_file(ledger) != {}
    with Ledger.open(ledger.path) as other:
        other.observe([seen(OTHER.key, Status.COMPLETE)], LATER + timedelta(minutes=1))
    ledger.ended([ONE.key], LATER + timedelta(minutes=2))
    assert times(ledger) == times_in_the_file(ledger)
    later = LATER + timedelta(minutes=1)
    assert times(ledger, later) == times_in_the_file(ledger, later) == {OTHER.flow: times(ledger)[OTHER.flow][-1:]}
    long_after = LATER + timedelta(days=1)
    assert times(ledger, long_after) == {}
    assert times(ledger) == times_in_the_file(ledger)  # read anew, since it was let go


def test_a_completion_that_was_undone_is_not_known(ledger):
    accepted(ledger, ONE)
    assert times(ledger) == {}
    with contextlib.suppress(ZeroDivisionError), ledger.together():
        ledger.observe([seen(ONE.key, Status.COMPLETE)], LATER)
        raise ZeroDivisionError
    assert times(ledger) == times_in_the_file(ledger) == {}


@pytest.mark.parametrize("seed", range(20))
def test_a_look_that_is_repeated_leaves_what_it_left_before(ledger, seed, monkeypatch):
    """Whatever is seen, and however often: memory, file and the pure function of the states agree."""
    dice = random.Random(seed)
    accepted(ledger, ONE, OTHER)
    looks = [anything(dice) for _ in range(4)]
    now = LATER
    for _ in range(30):
        now += timedelta(minutes=1)
        if dice.random() < 0.1:
            ledger.end_asked([ONE.key], now)
        before, look = ledger.entry(ONE.key), dice.choice(looks)
        ledger.observe([look], now)
        assert ledger.entry(ONE.key) == transitions.observed(before, look, now)
        assert ledger.entries(*STATES) == as_in_the_file(ledger)
    assert set(ledger._looks) <= {ONE.key}


def anything(dice):
    """A look at what is live: any of its numbers may be wrong."""
    some = {"moved": dice.choice([None, 0, 40, 10**15]), "size": dice.choice([None, None, 30, 10**12])}
    return seen(
        ONE.key,
        dice.choice([Status.MOVING, Status.STUCK, Status.COMPLETE, Status.UNKNOWN]),
        **some,
        exact=dice.random() < 0.3,
        present=dice.choice([None, None, 7]),
        failed=dice.choice([0, 0, 5]),
        files_done=dice.choice([0, 1, 3]),
        files_stuck=dice.choice([0, 0, 2]),
        error=dice.choice(["", "no space"]),
    )


def test_looks_are_forgotten_when_it_is_over(ledger):
    accepted(ledger, ONE)
    ledger.observe([seen(ONE.key, Status.MOVING, moved=5)], LATER)
    assert set(ledger._looks) == {ONE.key}
    ledger.ended([ONE.key], LATER)
    assert not ledger._looks


def test_what_is_kept_is_in_the_order_of_release(ledger):
    later = [injection(f"cms:/{number}#1") for number in (3, 1, 2)]
    ledger.add_injections(
        [replace(one, release=START + timedelta(minutes=9 - n)) for n, one in enumerate(later)], START
    )
    ledger.withdraw([later[1].key], "no time", LATER)
    ledger.add_injections([replace(later[1], release=START)], LATER)
    assert ledger.entries(*STATES) == as_in_the_file(ledger)
    ledger.call([later[0].key], LATER)
    assert ledger.entries(*STATES) == as_in_the_file(ledger)
