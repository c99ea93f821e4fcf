"""What a service carries out after it was given up is found, and counted as what it is: traffic of ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from dc_inject.model import Entry, Flow, Injection, State
from dc_inject.model.errors import Temporary
from tests.engine.world import CYCLE, GB, START, World, campaign, flow, items, world

LINK = flow("A", "B", 1.0)


def carried_out_late(path: Path, link: Flow) -> tuple[World, Sequence[Injection]]:
    """A world in which a call was lost, given up in the next cycle, and then carried out."""
    one = world(path, campaign([link]), {"A": items("A", 200, 50 * GB)}, speed=lambda _link: 1e6)
    late: list[Sequence[Injection]] = []

    def lose(method, subject):
        if method == "submit" and not late and one.clock.now() > START + CYCLE * 0.5:
            late.append(subject)
            raise Temporary("timed out", lost=True)

    one.backend.fault = lose
    one.settings = replace(one.settings, call_grace=CYCLE / 2)
    one.run(cycles=1)
    one.run(cycles=1)
    assert {entry.state for entry in entries(one, late[0])} == {State.WITHDRAWN}
    one.backend.submit(late[0])
    return one, late[0]


def entries(one: World, injections: Sequence[Injection]) -> list[Entry]:
    """What became of them."""
    return [entry for entry in one.ledger.entries() if entry.injection in injections]


def test_at_a_start_all_that_was_given_up_within_a_day_is_looked_for_once(tmp_path):
    """Nobody has looked while nobody ran, and what a service carried out late is traffic of ours."""
    lasting = replace(LINK, lifetime_min=timedelta(days=1), lifetime_max=timedelta(days=1))
    one, late = carried_out_late(tmp_path, lasting)
    one.clock.advance(START + timedelta(hours=20))
    one.run(cycles=1)
    found = entries(one, late)
    assert found
    assert all(entry.accepted_at is not None for entry in found)


def test_a_rule_that_is_made_long_after_anybody_waited_for_it_is_found_and_counted(tmp_path):
    one, late = carried_out_late(tmp_path, LINK)
    one.run(cycles=1)
    assert {entry.state for entry in entries(one, late)} == {State.LIVE}
    account = next(iter(one.ledger.accounts().values()))
    assert account.injected == sum(rule.injection.item.bytes for rule in one.backend.rules.values())


def test_a_pause_drops_what_was_lost_in_a_cycle_that_a_run_has_closed_before_its_end(tmp_path):
    """A closed cycle never changes: its bytes stay in the debt."""
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 100, 5 * GB)})

    def lose(method, _subject):
        if method == "submit":
            raise Temporary("no answer", lost=True)

    one.backend.fault = lose
    one.engine().run(until=START + CYCLE / 3)
    assert not one.ledger.unclosed()
    one.ledger.pause("*", "somebody", "enough", one.clock.now())
    one.run(cycles=2)
    assert {entry.state for entry in one.ledger.entries()} == {State.WITHDRAWN}
    assert [(row.due, row.forgiven) for row in one.ledger.rows()] == [(112_500_000_000, 0), (0, 0), (0, 0)]
