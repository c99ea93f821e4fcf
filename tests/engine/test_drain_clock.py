"""A clock that was ahead for a while when all had ended does not keep the drain waiting for that long."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from dc_inject.model import State
from dc_inject.planning import reconcile
from tests.engine.world import CYCLE, GB, START, campaign, flow, items, world


def test_a_drain_that_began_while_the_clock_was_ahead_ends_in_time(tmp_path):
    one = world(tmp_path, campaign([flow("A", "B", 1.0, end=START + CYCLE)]), {"A": items("A", 100, 10 * GB)})
    one.run(cycles=1)
    engine = one.engine()
    now = START + 2 * CYCLE
    for entry in one.ledger.entries(State.LIVE, State.COMPLETE):
        one.ledger.ended([entry.injection.key], now)
    assert one.ledger.entries(State.ENDED), "not yet known to be gone"
    assert not engine._drained(now + timedelta(hours=1))
    assert not engine._drained(now)
    assert engine._drained(now + 3 * CYCLE)


def test_what_completed_while_the_clock_was_ahead_is_ended_now_and_not_when_the_clock_comes_there(tmp_path):
    one = world(tmp_path, campaign([flow("A", "B", 1.0)]), {"A": items("A", 100, 10 * GB)})
    one.run(cycles=1)
    now = one.clock.now()
    known, minute = one.ledger.entries(State.LIVE, State.COMPLETE)[0], timedelta(minutes=1)

    def ends(completed, asked=None):
        times = {"completed_at": completed, "end_asked_at": asked}
        return bool(
            reconcile.select_to_end([replace(known, state=State.COMPLETE, **times)], now, lambda _: minute)
        )

    assert ends(now + timedelta(hours=1))
    assert ends(now - minute, now + timedelta(hours=1))
    assert not ends(now - minute / 2)
    assert ends(now - minute)
    assert not ends(now - minute, now)
