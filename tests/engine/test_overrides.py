"""What a person sets while it runs: the next cycle is due it, a lower rate is heeded at once, the past stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dc_inject.model import Hold
from dc_inject.model.events import Called, Calling, Planned
from dc_inject.model.goals import Keep
from dc_inject.model.overrides import Kind
from tests.engine.world import CYCLE, GB, START, campaign, flow, items, world

LINK = flow("A", "B", 8)
DUE = 900 * GB  # in a cycle
WHO = ("somebody", "a reason")


@pytest.fixture
def one(tmp_path):
    return world(tmp_path, campaign([LINK]), {"A": items("A", 450, 10 * GB)})


def put(one, kind, value, subject="A:B"):
    one.ledger.override(subject, Kind(kind), value, *WHO, one.clock.now())


def at(one, part, do):
    """Do something once, when so much of the first cycle is over."""
    left = [do]

    def called():
        if left and one.clock.now() >= START + part * CYCLE:
            left.pop()()

    one.heard.at[Called] = called


def test_what_is_set_counts_from_the_next_cycle_until_it_is_taken_back(one):
    one.run(cycles=1)
    put(one, "rate", 2e9, "test")
    put(one, "scale", 0.25)
    one.run(cycles=2)
    assert one.ledger.unset("A:B", None, *WHO, one.clock.now())
    one.run(cycles=1)
    assert one.ledger.unset("test", Kind.RATE, *WHO, one.clock.now())
    one.run(cycles=1)
    rows = one.ledger.rows()
    assert [row.due for row in rows] == [DUE, DUE // 2, DUE // 2, 2 * DUE, DUE]
    assert not any(row.forgiven for row in rows)
    assert abs(sum(row.injected for row in rows) - sum(row.due for row in rows)) <= 5 * GB


@pytest.mark.parametrize("part", [0.25, 0.5, 0.9])
def test_a_lower_rate_is_heeded_in_the_middle_of_a_cycle_and_the_account_is_exact(one, part):
    """Due less forgiven is the integral of both rates, and what was dropped is not made up."""
    moments = []
    at(one, part, lambda: (moments.append(one.clock.now()), put(one, "rate", 0.25e9)))
    one.run(cycles=3)
    first, *later = one.ledger.rows()
    seen = (moments[0] - START).total_seconds()
    exact = 1e9 * seen + 0.25e9 * (CYCLE.total_seconds() - seen)
    # It was heard of at the next step after it was set, at most a poll later.
    assert first.due == DUE
    assert exact <= first.due - first.forgiven <= exact + 0.75e9 * (CYCLE / 5).total_seconds() + 1
    total = one.ledger.totals()
    assert abs(total.injected - (total.due - total.forgiven)) <= 5 * GB
    assert first.held.hold is Hold.PAUSED
    assert [row.due for row in later] == [DUE // 4] * 2
    assert all(row.injected <= 1.2 * row.due + 5 * GB for row in later)


def test_up_and_down_again_in_one_cycle_changes_nothing_that_was_booked(one):
    at(one, 0.3, lambda: put(one, "rate", 4e9))

    def calling():
        if one.clock.now() >= START + 0.6 * CYCLE:
            one.ledger.unset("A:B", None, *WHO, one.clock.now())

    one.heard.at[Calling] = calling
    one.run(cycles=2)
    rows = one.ledger.rows()
    assert [row.due for row in rows] == [DUE] * 2
    assert not any(row.forgiven for row in rows)


def test_nothing_is_forgiven_of_what_is_paused(one):
    one.ledger.pause("*", *WHO, START)
    one.heard.at[Planned] = lambda: put(one, "scale", 0.5)
    one.run(cycles=1)
    (row,) = one.ledger.rows()
    assert (row.due, row.forgiven) == (0, 0)


def test_a_cycle_in_which_nobody_ran_is_due_what_was_set_at_its_begin(one):
    one.run(cycles=1)
    put(one, "scale", 2.0)
    one.clock.advance(START + 3.5 * CYCLE)
    one.ledger.unset("A:B", None, *WHO, one.clock.now())
    one.clock.advance(START + 5 * CYCLE)
    one.run(cycles=1)
    assert [row.due for row in one.ledger.rows()] == [DUE, 2 * DUE, 2 * DUE, 2 * DUE, DUE, DUE]


def test_bytes_to_keep_are_scaled(tmp_path):
    link = replace(LINK, goal=Keep(400 * GB))
    one = world(tmp_path, campaign([link]), {"A": items("A", 450, 10 * GB)}, speed=lambda _link: 1.0)
    put(one, "scale", 0.5)
    one.run(cycles=3)
    assert one.ledger.accounts()[link.key].coming == pytest.approx(200 * GB, rel=1e-6)


def test_the_log_says_what_is_set_by_whom_and_why_and_when_it_is_no_more(one, caplog):
    caplog.set_level("INFO", "dc_inject")

    def set_for_a_cycle():
        put(one, "rate", 5e9)
        at(one, 1.3, lambda: one.ledger.unset("A:B", None, *WHO, one.clock.now()))

    at(one, 0.3, set_for_a_cycle)
    one.run(cycles=3)
    told = [record for record in caplog.records if getattr(record, "event", "") in {"set", "unset"}]
    assert [record.event for record in told] == ["set", "unset"]
    set_to = {"kind": "rate", "subject": "A:B", "value": 5e9, "who": "somebody", "why": "a reason"}
    assert [record.fields for record in told] == [set_to, set_to]
