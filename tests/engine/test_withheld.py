"""What control withholds in whole campaigns: it waits, goes out when there is room, and is due again if lost."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.control import Governor
from dc_inject.engine import engine
from dc_inject.model import Control, Entry, Held, Hold, Mode
from dc_inject.model.types import State
from tests.engine.world import CYCLE, GB, NO_LIMITS, START, campaign, flow, items, world

DUE = 112_500_000_000  # a cycle's at 1 Gb/s
ACT, OFF = Control(Mode.ACT), Control()


def slow(path, control: Control = ACT, part: float = 0.3, **more):
    """A link that carries a part of what it is due."""
    path.mkdir(exist_ok=True)
    link = flow("A", "B", 1.0, control=control, **more)
    stock = {"A": items("A", 400, 8 * GB, files=1)}
    one = world(path, campaign([link]), stock, speed=lambda _link: part * 1e9 / 8)
    return one, link.key


def test_what_finds_no_room_until_its_cycle_ends_is_a_backlog_and_stays_in_the_debt(tmp_path):
    one, key = slow(tmp_path / "one")
    one.run(cycles=8)
    rows = one.ledger.rows()
    held = [row.held for row in rows if row.held]
    assert {hold.hold for hold in held} == {Hold.BACKLOG}
    assert all(hold.numbers["in_flight"] > 0 and hold.numbers["window"] > 0 for hold in held)
    closed = [hold for hold in held if "withdrawn" in hold.numbers]
    assert closed
    assert all(hold.numbers["not_sent"] > 0 for hold in closed)
    account = one.ledger.accounts()[key]
    assert account.forgiven == 0
    assert account.injected < 0.6 * account.due
    assert sum(entry.injection.item.bytes for entry in one.ledger.entries(State.CALLED, State.LIVE)) < 2 * DUE


def test_a_link_that_is_slow_has_less_in_flight_than_without_control_and_carries_as_much(tmp_path):
    made = {}
    for name, control in (("act", ACT), ("off", OFF)):
        one, key = slow(tmp_path / name, control)
        one.run(cycles=12)
        account = one.ledger.accounts()[key]
        made[name] = (account.coming, account.moved)
    assert made["act"][0] < made["off"][0] / 2
    assert made["act"][1] == pytest.approx(made["off"][1], rel=0.1)


def test_a_link_that_recovers_makes_up_its_debt(tmp_path):
    speed = {"now": 0.3}
    link = flow("A", "B", 1.0, control=ACT)
    stock = {"A": items("A", 400, 8 * GB, files=1)}
    one = world(tmp_path, campaign([link]), stock, speed=lambda _link: speed["now"] * 1e9 / 8)
    one.run(cycles=6)
    before = one.ledger.accounts()[link.key]
    speed["now"] = 3.0
    one.run(cycles=10)
    after = one.ledger.accounts()[link.key]
    assert before.injected < 0.7 * before.due
    assert after.injected >= 0.97 * after.due


@pytest.mark.parametrize(("control", "missed"), [(ACT, 0), (ACT, 3), (OFF, 0)])
def test_what_expired_is_due_again_where_control_acts(tmp_path, control, missed):
    """It did not arrive: without control it is lost. Cycles in which nobody runs do not hide it."""
    life = timedelta(minutes=45)
    speed = {"now": 0.0}
    link = flow("A", "B", 1.0, control=control, lifetime_min=life, lifetime_max=life)
    stock = {"A": items("A", 400, 8 * GB, files=1)}
    one = world(tmp_path, campaign([link]), stock, speed=lambda _link: speed["now"] * 1e9 / 8)
    one.run(cycles=6)
    one.clock.advance(START + (6 + missed) * CYCLE)
    speed["now"] = 9.0
    one.run(cycles=4 + missed)
    expired = sum(
        e.injection.item.bytes - e.moved for e in one.ledger.entries() if e.state in (State.ENDED, State.GONE)
    )
    extras = one.ledger.extras()[link.key]
    assert expired > 0
    assert (extras > 0) == (control is ACT)
    assert control is OFF or extras == pytest.approx(expired, abs=20 * GB)


FREE, FULL = flow("A", "B", 1.0), flow("A", "C", 1.0)


class FullWindow(Governor):
    """Lets nothing out on one link."""

    def __init__(self, _: object) -> None:
        """Need no ledger."""

    def withheld(self, entry: Entry, now: object) -> Held | None:
        """Withhold all of the link."""
        del now
        return Held(Hold.BACKLOG, {"window": 1}) if entry.injection.flow == FULL.key else None


def test_rules_that_wait_for_room_leave_little_of_an_hours_limit_unused(tmp_path, monkeypatch):
    """80 an hour are 20 a cycle, of which half is for the link that waits; a quarter more is chosen then."""
    monkeypatch.setattr(engine, "Windows", FullWindow)
    limits = replace(NO_LIMITS, rules_per_hour=80)
    one = world(tmp_path, campaign([FREE, FULL], limits=limits), {"A": items("A", 900, GB)})
    one.run(cycles=8)
    made = [row.rules for row in one.ledger.rows() if row.key == FREE.key]
    assert made[0] == 10
    assert all(12 <= rules <= 13 for rules in made[1:])
