"""Cycles and their rows: opened once, planned once, closed for good, and always the sum of what happened."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

from dc_inject.engine.situation import recent_due
from dc_inject.ledger import Ledger, cycles
from dc_inject.model import Cycle, Held, Hold
from dc_inject.model.errors import LedgerError
from dc_inject.model.ports import Status
from tests.ledger.world import (
    AB,
    AC,
    CYCLE,
    DB,
    FLOWS,
    GB,
    LENGTH,
    MINUTE,
    START,
    accepted,
    dues,
    injection,
    opened,
    plan,
    seen,
    started,
)

from .world import totals_from_rows

END = CYCLE.end
DRY = Held(Hold.POOL_DRY, {"free": 0, "rate": 1.5, "source": "A"})


@pytest.fixture
def ledger(tmp_path):
    with opened(tmp_path) as made:
        yield made


def rows(ledger, cycle=CYCLE):
    return {row.key: row for row in ledger.rows(cycle=cycle)}


def test_a_cycle_is_opened_once(ledger):
    assert ledger.last_cycle() is None
    ledger.open_cycle(CYCLE, dues(held=DRY), START)
    ledger.open_cycle(CYCLE, dues(7), START + MINUTE)
    assert ledger.last_cycle() == CYCLE
    assert ledger.unclosed() == (CYCLE,)
    assert [row.due for row in ledger.rows()] == [450 * GB] * 3
    assert all(row.held == DRY for row in ledger.rows())
    assert {account.due for account in ledger.accounts().values()} == {450 * GB}


def test_an_open_row_that_is_not_planned_has_no_decision(ledger):
    ledger.open_cycle(CYCLE, dues(), START)
    row = rows(ledger)[AB]
    assert (row.want, row.cap, row.budget, row.lifetime, row.pool_items) == (0, 0, 0, None, None)
    assert not ledger.is_planned(CYCLE)
    assert ledger.last_planned() is None


def test_a_plan_is_recorded_once_with_its_decisions_and_intents(ledger):
    ledger.open_cycle(CYCLE, dues(), START)
    made = plan([injection()], forgiven=3 * GB, held=DRY)
    ledger.record_plan(made, START)
    ledger.record_plan(plan([injection("cms:/other#1")], forgiven=9 * GB), START + MINUTE)
    assert ledger.is_planned(CYCLE)
    assert ledger.last_planned() == CYCLE
    row = rows(ledger)[AB]
    assert (row.want, row.cap, row.budget, row.forgiven) == (500 * GB, 900 * GB, 400 * GB, 3 * GB)
    assert (row.lifetime, row.pool_items, row.pool_bytes) == (4 * LENGTH, 7, 700 * GB)
    assert row.held == DRY
    assert ledger.accounts()[AB].forgiven == 3 * GB
    assert [entry.injection for entry in ledger.entries()] == [injection()]


def test_a_plan_without_a_hold_leaves_the_one_that_was_known_before(ledger):
    ledger.open_cycle(CYCLE, dues(0, DRY), START)
    ledger.record_plan(plan(due=0), START)
    assert rows(ledger)[AB].held == DRY


def test_a_plan_of_a_cycle_that_is_not_open_changes_nothing(ledger, wording):
    ledger.record_plan(plan([injection()]), START)
    assert (ledger.entries(), ledger.rows()) == ([], ())
    with pytest.raises(LedgerError) as refused:
        ledger.add_injections([injection()], START)
    wording(refused.value)


def test_an_open_row_shows_what_it_would_be_closed_with(ledger):
    started(ledger, injection())
    keys = accepted(ledger, injection(), present=GB)
    ledger.observe([seen(keys[0], Status.MOVING, moved=41 * GB)], START)
    before = rows(ledger)
    row = before[AB]
    assert (row.injected, row.moved, row.estimated, row.rules, row.closed) == (99 * GB, 40 * GB, 40 * GB, 1, False)
    ledger.close_cycle(CYCLE, END)
    assert rows(ledger) == {key: row._replace(closed=True) for key, row in before.items()}


def test_late_news_is_in_the_row_of_the_cycle_in_which_it_became_known(ledger):
    started(ledger, injection())
    key = injection().key
    ledger.call([key], START)
    ledger.close_cycle(CYCLE, END)
    ledger.open_cycle(CYCLE.next, dues(), END)
    ledger.observe([seen(key, Status.MOVING, moved=40 * GB)], END)
    ledger.close_cycle(CYCLE.next, END + LENGTH)
    third = CYCLE.next.next
    ledger.open_cycle(third, dues(), END + LENGTH)
    ledger.observe([seen(key, Status.COMPLETE)], END + LENGTH)
    ledger.close_cycle(third, END + 2 * LENGTH)
    told = [(r.injected, r.moved, r.estimated, r.rules) for r in ledger.rows() if r.key == AB]
    assert told == [(0, 0, 0, 0), (100 * GB, 40 * GB, 40 * GB, 1), (0, 60 * GB, -40 * GB, 0)]


def test_news_of_a_flow_that_has_no_row_gets_one(ledger):
    """A link is no longer in the menu, and its last rules complete: the rows still sum to the account."""
    started(ledger, injection())
    keys = accepted(ledger, injection())
    ledger.close_cycle(CYCLE, END)
    ledger.open_cycle(CYCLE.next, {AC: (5, None)}, END)
    ledger.observe([seen(keys[0], Status.COMPLETE)], END)
    ledger.close_cycle(CYCLE.next, END + LENGTH)
    late = rows(ledger, CYCLE.next)
    assert set(late) == {AB, AC}
    assert (late[AB].due, late[AB].moved, late[AB].held) == (0, 100 * GB, None)


def test_with_several_open_cycles_news_is_in_the_oldest(ledger):
    started(ledger, injection())
    ledger.open_cycle(CYCLE.next, dues(), END)
    accepted(ledger, injection())
    assert [row.injected for row in ledger.rows() if row.key == AB] == [100 * GB, 0]
    ledger.close_cycle(CYCLE, END)
    ledger.close_cycle(CYCLE.next, END)
    assert [row.injected for row in ledger.rows() if row.key == AB] == [100 * GB, 0]


def test_only_a_row_that_got_less_than_due_takes_a_hold_at_the_close(ledger):
    coarse = Held(Hold.TOO_COARSE, {"budget": 1})
    ledger.open_cycle(CYCLE, {AB: (100 * GB, None), AC: (100 * GB, DRY), DB: (100 * GB, None)}, START)
    ledger.record_plan(plan([injection()]), START)
    accepted(ledger, injection())
    ledger.close_cycle(CYCLE, END, dict.fromkeys(FLOWS, coarse))
    assert {key: row.held for key, row in rows(ledger).items()} == {AB: None, AC: DRY, DB: coarse}
    assert ledger.hold_counts() == {AC: {Hold.POOL_DRY: 1}, DB: {Hold.TOO_COARSE: 1}}


def test_a_close_is_done_once(ledger):
    started(ledger, injection())
    ledger.close_cycle(CYCLE, END)
    before = ledger.rows()
    accepted(ledger, injection())
    ledger.close_cycle(CYCLE, END + LENGTH, dict.fromkeys(FLOWS, DRY))
    assert ledger.rows() == before
    assert ledger.unclosed() == ()
    ledger.close_cycle(CYCLE.next, END)
    assert ledger.rows() == before, "what was never opened cannot be closed"


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE cycle_row SET injected = 1",
        "UPDATE cycle_row SET hold = 'quota', numbers = '{}'",
        "DELETE FROM cycle_row",
        "INSERT INTO cycle_row (cycle, account, due) SELECT start, 99, 1 FROM cycle",
        "INSERT OR REPLACE INTO cycle_row (cycle, account, due) SELECT cycle, account, 1 FROM cycle_row",
        "UPDATE cycle SET closed_at = NULL",
        "UPDATE cycle SET closed_at = closed_at + 1",
        "DELETE FROM cycle",
        "UPDATE cycle_row SET due = due + 1",
        "DELETE FROM injection",
        "UPDATE injection SET account = 2",
        "UPDATE injection SET item = 'x'",
    ],
)
def test_no_statement_changes_what_is_closed(ledger, sql):
    started(ledger, injection())
    ledger.close_cycle(CYCLE, END)
    before = ledger.rows()
    writer = sqlite3.connect(ledger.path)
    with pytest.raises(sqlite3.IntegrityError):
        writer.execute(sql)
    writer.close()
    assert ledger.rows() == before


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE injection SET bytes = 1.5",
        "UPDATE injection SET bytes = 'many'",
        "UPDATE injection SET bytes = -1",
        "UPDATE injection SET state = 'done'",
        "UPDATE injection SET state = 'live'",
        "UPDATE injection SET state = 'called'",
        "UPDATE injection SET moved = 5",
        "UPDATE injection SET files_done = 51",
        "UPDATE injection SET release = 'noon'",
        "UPDATE injection SET cycle = 5",
        "UPDATE cycle_row SET forgiven = NULL",
        "UPDATE cycle_row SET hold = 'quota'",
        "INSERT INTO cycle (start, length, opened_at) VALUES (5, 0, 5)",
    ],
)
def test_types_and_sense_are_held_by_the_tables(ledger, sql):
    started(ledger, injection())
    writer = sqlite3.connect(ledger.path)
    writer.execute("PRAGMA foreign_keys = ON")
    with pytest.raises(sqlite3.IntegrityError):
        writer.execute(sql)
    writer.close()


def test_totals_follow_whatever_is_written_by_hand(ledger):
    """Somebody mends an entry at night with SQL: the account is right all the same."""
    started(ledger, injection())
    accepted(ledger, injection())
    writer = sqlite3.connect(ledger.path)
    writer.execute("UPDATE injection SET state = 'ended', ended_at = 5, present = 7")
    writer.commit()
    writer.close()
    assert ledger.accounts()[AB].injected == 100 * GB - 7
    assert ledger.accounts() == totals_from_rows(ledger)


def test_rows_since_a_start(ledger):
    for cycle in (CYCLE, CYCLE.next):
        ledger.open_cycle(cycle, dues(), START)
    assert {row.cycle for row in ledger.rows(since=CYCLE.next.start)} == {CYCLE.next}
    assert [row.key for row in ledger.rows(cycle=CYCLE)] == sorted(FLOWS)


def test_recent_due_is_the_largest_of_the_last_cycles_of_the_grid(ledger):
    for number, due in enumerate((900, 50, 70, 60)):
        ledger.open_cycle(Cycle(START + number * LENGTH, LENGTH), {AB: (due, None)}, START)
    ledger.open_cycle(Cycle(START + 9 * LENGTH, LENGTH), {AB: (5, None), AC: (6, None)}, START)
    rows = {row.cycle.start: row for row in ledger.rows() if row.key == AB}
    assert recent_due(Cycle(START + 3 * LENGTH, LENGTH), rows) == 70
    assert recent_due(Cycle(START + 2 * LENGTH, LENGTH), rows) == 900
    assert recent_due(Cycle(START + 9 * LENGTH, LENGTH), rows) == 5


def test_the_closing_table_counts_cycles_with_a_due_and_holds(ledger):
    started(ledger, injection())
    accepted(ledger, injection())
    ledger.close_cycle(CYCLE, END, dict.fromkeys(FLOWS, DRY))
    ledger.open_cycle(CYCLE.next, {AB: (5, None), AC: (0, DRY)}, END)
    lines = {line.key: line for line in ledger.summary()}
    assert list(lines) == sorted(FLOWS)
    assert {key: line.cycles for key, line in lines.items()} == {AB: 2, AC: 1, DB: 1}
    assert {key: dict(line.holds) for key, line in lines.items()} == {
        AB: {Hold.POOL_DRY: 1},
        AC: {Hold.POOL_DRY: 2},
        DB: {Hold.POOL_DRY: 1},
    }
    line = lines[AB]
    assert (line.due, line.injected, line.moved, line.totals.estimated) == (450 * GB + 5, 100 * GB, 0, 0)
    assert (line.totals.rules, line.totals.forgiven) == (1, 0)
    assert ledger.totals().due == 3 * 450 * GB + 5


def test_accounts_are_read_once_until_somebody_else_opens_one(ledger):
    ledger.open_cycle(CYCLE, {AB: (1, None)}, START)
    with Ledger.open(ledger.path) as other:
        other.open_cycle(CYCLE.next, {AC: (2, None)}, START)
    ledger.open_cycle(CYCLE.next.next, {DB: (4, None)}, START)
    said: list[str] = []
    ledger._db._connection.set_trace_callback(said.append)
    ledger.open_cycle(CYCLE.next.next.next, dict.fromkeys(FLOWS, (8, None)), START)
    assert not [one for one in said if "FROM account" in one]
    assert {key: totals.due for key, totals in ledger.accounts().items()} == {AB: 9, AC: 10, DB: 12}


def test_an_account_that_was_undone_is_opened_again(ledger):
    with contextlib.suppress(ZeroDivisionError), ledger.together():
        ledger.open_cycle(CYCLE, {AB: (1, None)}, START)
        raise ZeroDivisionError
    ledger.open_cycle(CYCLE, {AC: (2, None)}, START)
    ledger.open_cycle(CYCLE.next, {AB: (4, None)}, START)
    assert {key: totals.due for key, totals in ledger.accounts().items()} == {AB: 4, AC: 2}


@pytest.mark.parametrize("hold", [None, Hold.POOL_DRY, Hold.TOO_COARSE])
@pytest.mark.parametrize(("injected", "coming"), [(0, 0), (0, 5), (40, 0), (-40, 0), (900, 0)])
def test_what_should_have_arrived_is_the_same_in_a_row_and_in_sql(ledger, hold, injected, coming):
    ledger.open_cycle(CYCLE, dues(100), START)
    row = rows(ledger)[AB]._replace(injected=injected, held=hold and Held(hold))
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        made = "SELECT ? AS hold, ? AS due, ? AS injected", "SELECT ? AS coming"
        question = f"SELECT {cycles._EXPECTED} FROM ({made[0]}) AS r, ({made[1]}) AS a"
        asked = database.execute(question, (hold and hold.value, row.due, injected, coming))
        assert asked.fetchone() == (row.expected(coming),)
