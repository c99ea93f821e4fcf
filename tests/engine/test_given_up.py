"""What a service carries out after it was given up is found, and counted as what it is: traffic of ours."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from dc_inject.errors import Temporary
from dc_inject.model import State
from tests.engine.world import CYCLE, GB, START, campaign, flow, items, world

LINK = flow("A", "B", 1.0)


def test_at_a_start_all_that_was_given_up_within_a_day_is_looked_for_once(tmp_path):
    """Nobody has looked while nobody ran, and what a service carried out late is traffic of ours."""
    lasting = replace(LINK, lifetime_min=timedelta(days=1), lifetime_max=timedelta(days=1))
    one = world(tmp_path, campaign([lasting]), {"A": items("A", 200, 50 * GB)}, speed=lambda _link: 1e6)
    late: list = []

    def lose(method, subject):
        if method == "submit" and not late and one.clock.now() > START + CYCLE * 0.5:
            late.append(subject)
            raise Temporary("timed out", lost=True)

    one.backend.fault = lose
    one.settings = replace(one.settings, call_grace=CYCLE / 2)
    one.run(cycles=1)
    one.run(cycles=1)
    assert {e.state for e in one.ledger.entries() if e.injection in late[0]} == {State.WITHDRAWN}
    one.backend.submit(late[0])
    one.clock.advance(START + timedelta(hours=20))
    one.run(cycles=1)
    found = [e for e in one.ledger.entries() if e.injection in late[0]]
    assert found
    assert all(e.accepted_at is not None for e in found)


def test_a_rule_that_is_made_long_after_anybody_waited_for_it_is_found_and_counted(tmp_path):
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 200, 50 * GB)}, speed=lambda _link: 1e6)
    late: list = []

    def lose(method, subject):
        if method == "submit" and not late and one.clock.now() > START + CYCLE * 0.5:
            late.append(subject)
            raise Temporary("timed out", lost=True)

    one.backend.fault = lose
    one.settings = replace(one.settings, call_grace=CYCLE / 2)
    one.run(cycles=1)
    one.run(cycles=1)
    assert {e.state for e in one.ledger.entries() if e.injection in late[0]} == {State.WITHDRAWN}
    one.backend.submit(late[0])
    one.run(cycles=1)
    assert {e.state for e in one.ledger.entries() if e.injection in late[0]} == {State.LIVE}
    account = next(iter(one.ledger.accounts().values()))
    assert account.injected == sum(rule.injection.item.bytes for rule in one.backend.rules.values())
