"""What is done in every cycle, look or scrape does not grow with the campaign: nothing reads all that ever was."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from dc_inject.model import Cycle, State
from dc_inject.model.ports import Outcome, Status
from tests.ledger.world import AB, CYCLE, LENGTH, POOL, START, dues, injection, opened, plan, seen, started

ONE = injection()
OFTEN = {
    "entries of states": lambda one: one.entries(State.CALLED, State.LIVE, State.COMPLETE),
    "entries of one state": lambda one: one.entries(State.ENDED),
    "entries of a cycle": lambda one: one.entries(cycle=CYCLE),
    "entries since": lambda one: one.entries(since=START),
    "entry": lambda one: one.entry(ONE.key),
    "accounts": lambda one: one.accounts(),
    "taken": lambda one: one.taken(START),
    "leaving": lambda one: one.leaving(),
    "resident": lambda one: one.resident(),
    "on_its_way": lambda one: one.on_its_way(),
    "files_in_flight": lambda one: one.files_in_flight(),
    "completion_times": lambda one: one.completion_times(START),
    "rows of a cycle": lambda one: one.rows(cycle=CYCLE),
    "rows since": lambda one: one.rows(since=START),
    "cycles": lambda one: (one.last_cycle(), one.last_planned(), one.unclosed()),
    "summary": lambda one: one.summary(),
    "state_counts": lambda one: one.state_counts(),
    "pauses": lambda one: (
        one.pauses(),
        one.overrides(),
        one.signals(),
        one.identities(),
        one.times_set_aside("a", "B"),
    ),
    "inventory": lambda one: (one.inventory("rucio", POOL), one.inventory_read_at("rucio", POOL)),
    "call": lambda one: one.call([ONE.key], START),
    "answer": lambda one: one.answer([Outcome(ONE.key, "r")], START, {}),
    "observe": lambda one: one.observe([seen(ONE.key, Status.COMPLETE)], START),
    "end": lambda one: (one.end_asked([ONE.key], START), one.ended([ONE.key], START), one.gone([ONE.key], START)),
    "add_injections": lambda one: one.add_injections([ONE], START),
    "open_cycle": lambda one: one.open_cycle(CYCLE.next, dues(), START),
    "record_plan": lambda one: one.record_plan(plan([], CYCLE.next), START),
    "close_cycle": lambda one: one.close_cycle(CYCLE, START),
}
GROWING = r"injection|cycle_row|r|cycle|note|change|quarantine|pool_item"


@pytest.fixture
def ledger(tmp_path):
    with opened(tmp_path) as made:
        started(made, ONE)
    with opened(tmp_path) as again:  # which has read nothing yet
        yield again


@pytest.mark.parametrize("what", OFTEN)
def test_no_statement_of_a_cycle_scans_what_grows(ledger, what):
    """SQLite's own plan of each statement names no full scan of a table that grows with the campaign."""
    statements = []
    connection = ledger._db._connection
    connection.set_trace_callback(statements.append)
    OFTEN[what](ledger)
    connection.set_trace_callback(None)
    plans = [statement for statement in statements if re.match(r"(SELECT|UPDATE|INSERT|DELETE)\b", statement)]
    assert plans
    for statement in plans:
        for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}"):
            detail = row["detail"]
            scan = re.match(
                rf"SCAN (TABLE )?({GROWING})\b(?! USING (COVERING )?INDEX (cycle_unclosed|injection_active))",
                detail,
            )
            newest = "ORDER BY start DESC LIMIT 1" in statement or "min(start)" in detail
            assert scan is None or newest, (statement, detail)


def steps(ledger, what):
    """How much work SQLite has with a call, in its own steps, which no other process disturbs."""
    count = [0]

    def one():
        count[0] += 1
        return 0

    connection = ledger._db._connection
    what(ledger)
    connection.set_progress_handler(one, 10)
    what(ledger)
    connection.set_progress_handler(None, 10)
    return count[0]


def lived(ledger, cycles, size):
    """So many cycles of injections that came and went."""
    cycle = ledger.last_cycle()
    for _ in range(cycles):
        some = [injection(f"cms:/{number}#1", AB, cycle) for number in range(size)]
        keys = [one.key for one in some]
        with ledger.together():
            ledger.open_cycle(cycle, dues(), cycle.start)
            ledger.record_plan(plan(some, cycle), cycle.start)
            ledger.add_injections(some, cycle.start)
            ledger.call(keys, cycle.start)
            ledger.answer([Outcome(key, "r") for key in keys], cycle.start, {})
            ledger.observe([seen(key, Status.COMPLETE) for key in keys], cycle.end)
            ledger.ended(keys, cycle.end)
            ledger.gone(keys, cycle.end)
            ledger.close_cycle(cycle, cycle.end)
        cycle = Cycle(cycle.start + LENGTH, LENGTH)


def test_the_work_of_a_cycle_is_the_same_after_a_long_campaign(ledger):
    lived(ledger, 3, 50)
    cycle = ledger.last_cycle().next
    ledger.open_cycle(cycle, dues(), cycle.start)

    def look(one):
        now = one.last_cycle().start
        one.entries(State.CALLED, State.LIVE, State.COMPLETE)
        one.entries(State.ENDED)
        one.entries(cycle=one.last_cycle())
        one.taken(now)
        one.leaving()
        one.resident()
        one.on_its_way()
        one.files_in_flight()
        one.completion_times(now + timedelta(minutes=1))
        one.accounts()
        one.summary()
        one.state_counts()

    early = steps(ledger, look)
    lived(ledger, 40, 50)
    assert len(ledger.entries()) > 2000
    cycle = ledger.last_cycle().next
    ledger.open_cycle(cycle, dues(), cycle.start)
    assert steps(ledger, look) <= 1.1 * early
