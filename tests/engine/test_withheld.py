"""What control withholds, and the limits of a menu."""

from __future__ import annotations

from dataclasses import replace

from dc_inject.control import Governor
from dc_inject.engine import engine
from dc_inject.model import Entry, Held, Hold
from tests.engine.world import GB, NO_LIMITS, campaign, flow, items, world

FREE, FULL = flow("A", "B", 1.0), flow("A", "C", 1.0)  # 112.5 GB a cycle each


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
