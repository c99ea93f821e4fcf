"""A site that deletes nothing (its availability for deletions is off) is not filled."""

from __future__ import annotations

from dc_inject.model import Hold
from dc_inject.summary import standing
from tests.engine.world import GB, campaign, flow, items, world

LINK = flow("A", "B", 1.0)  # 112.5 GB a cycle


def test_a_destination_that_deletes_nothing_is_held_once_a_rule_has_ended_there(tmp_path):
    """Before that it costs nothing; `status` names it, until the site deletes again."""
    made = campaign([LINK, flow("A", "C", 1.0)])
    one = world(tmp_path, made, {"A": items("A", 200, 10 * GB)}, undeleting={"B"})

    def troubles():
        return [(t["what"], t["of"]) for t in standing.standing("test", one.ledger, one.clock.now())["troubles"]]

    one.run(cycles=1)
    assert not troubles()
    one.run(cycles=3)
    rows = [row for row in one.ledger.rows() if row.key.link.destination == "B"]
    held = rows[-1].held
    assert (held.hold, held.numbers["bytes"] > 0, rows[-1].injected) == (Hold.DELETION_LAG, True, 0)
    assert rows[0].injected > 0
    assert troubles() == [("deletion", "B")]
    others = [row.held for row in one.ledger.rows() if row.key.link.destination == "C" and row.held]
    assert all(held.hold.harmless for held in others)
    one.backend.undeleting.clear()
    one.run(cycles=2)
    assert not troubles()
    assert [row for row in one.ledger.rows() if row.key.link.destination == "B"][-1].injected > 0
