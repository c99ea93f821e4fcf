"""A ledger restored from a backup that is some cycles old: nothing twice, nothing forgotten, its past is kept."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from dc_inject.ledger import Ledger, LedgerView
from dc_inject.ledger.check import check
from dc_inject.model import State
from dc_inject.model.events import Answered, Calling, Event, Intended
from tests.apps.rebuild.test_rebuilding import FTS, ours, rebuilding
from tests.engine.world import (
    CYCLE,
    GB,
    LEFT_OPEN,
    START,
    World,
    campaign,
    file_flow,
    flow,
    items,
    source_files,
    world,
)

from ..ledger.world import totals_from_rows

STAYS = {"dwell": timedelta(hours=10), "lifetime_max": timedelta(hours=20)}  # nothing ends while a test lasts
RATES = {"B": 0.8, "C": 0.4}  # Gb/s: 90 and 45 GB a cycle
SIZE = 10 * GB  # of a dataset and of a job
SERVICES = ["rucio", "fts"]


def made(path: Path, through: str) -> World:
    """Two links from one source."""
    if through == "fts":
        links = [file_flow("A", to, rate, **STAYS) for to, rate in RATES.items()]
        return world(path, campaign(links), source_files("A", 2000), **FTS)
    links = [flow("A", to, rate, **STAYS) for to, rate in RATES.items()]
    return world(path, campaign(links), {"A": items("A", 400, SIZE)})


def backed_up(one: World, at: float, step: type[Event] = Answered) -> Path:
    """Have a backup made in the middle of the run, at a step after so many cycles."""
    backup = one.path / "backup.sqlite"

    def copy() -> None:
        if one.clock.now() >= START + at * CYCLE and not backup.exists():
            with LedgerView.open(one.ledger.path) as view:
                view.copy_to(backup)

    one.heard.at[step] = copy
    return backup


def put_back(one: World, backup: Path) -> None:
    """Lose the ledger, and take the backup in its place."""
    one.ledger.close()
    one.ledger = LEFT_OPEN.enter_context(Ledger.open(backup, synchronous="OFF"))
    one.heard.at.clear()


def injected(one: World) -> Counter[str]:
    """What the service was really given, by destination."""
    given: Counter[str] = Counter()
    for rule in one.backend.rules.values():
        given[rule.injection.link.destination] += rule.injection.item.bytes
    return given


def due(one: World) -> Counter[str]:
    """What all links are due from the start until now, by destination."""
    time = (one.clock.now() - START).total_seconds()
    return Counter({link.link.destination: int(link.rate * time) for link in one.menus().flows})


def nothing_twice(one: World) -> None:
    """The service has nothing that the ledger does not know, and the ledger agrees with itself."""
    entries = {entry.injection.key: entry for entry in one.ledger.entries() if entry.accepted_at}
    assert entries.keys() == one.backend.rules.keys()
    places = Counter((rule.injection.item.name, rule.injection.link) for rule in one.backend.rules.values())
    assert set(places.values()) == {1}
    assert not one.ledger.entries(State.REFUSED)
    assert one.ledger.accounts() == totals_from_rows(one.ledger)
    assert [found for found in check(one.ledger.path) if not found.note] == []


@pytest.mark.parametrize("step", [Intended, Calling, Answered])
@pytest.mark.parametrize("through", SERVICES)
def test_within_its_cycle_what_was_injected_since_is_adopted_by_its_key(tmp_path, through, step):
    one = made(tmp_path, through)
    backup = backed_up(one, 2.0, step)
    one.engine().run(until=START + 2.9 * CYCLE)
    put_back(one, backup)
    known = {entry.injection.key for entry in one.ledger.entries() if entry.accepted_at}
    assert len(one.backend.rules) - len(known) > 3  # injected since the backup was made
    one.engine().run(until=START + 6 * CYCLE)
    nothing_twice(one)
    assert all(abs(given - due(one)[to]) <= SIZE for to, given in injected(one).items())


@pytest.mark.parametrize("lost", [2.9, 3.4, 5.5])
@pytest.mark.parametrize("through", SERVICES)
def test_brought_to_the_present_it_has_all_that_was_injected_since_and_makes_nothing_up(tmp_path, through, lost):
    one = made(tmp_path, through)
    backup = backed_up(one, 2.3)
    one.engine().run(until=START + lost * CYCLE)
    before = len(one.backend.rules)
    put_back(one, backup)
    past = [row for row in one.ledger.rows() if row.closed]
    known = sum(entry.accepted_at is not None for entry in one.ledger.entries())
    assert past
    found = rebuilding(one).rebuild(one.ledger, list(ours(one)))
    assert found.injections == before - known > 3
    nothing_twice(one)
    assert one.ledger.rows()[: len(past)] == tuple(past)
    one.engine().run(until=START + 7 * CYCLE)
    nothing_twice(one)
    missed = CYCLE * (1 - lost % 1)  # the rest of the cycle in which it was lost: `run` goes on with the next one
    for flow_ in one.menus().flows:
        to, slack = flow_.link.destination, int(flow_.rate * missed.total_seconds())
        assert -slack - 2 * SIZE <= injected(one)[to] - due(one)[to] <= SIZE, to


@pytest.mark.parametrize("through", SERVICES)
def test_moved_to_another_machine_within_a_cycle_it_goes_on_as_if_nothing_had_happened(tmp_path, through):
    """The injector was ended before the copy was made, so the copy has everything; a pause is made up."""
    one = made(tmp_path, through)
    engine, moved = one.engine(), tmp_path / "moved.sqlite"
    one.heard.at[Answered] = lambda: one.clock.now() < START + 2.4 * CYCLE or engine.stop()
    engine.run()
    assert one.ledger.unclosed()
    with LedgerView.open(one.ledger.path) as view:
        view.copy_to(moved)
    put_back(one, moved)
    one.clock.advance(START + 2.7 * CYCLE)
    one.engine().run(until=START + 6 * CYCLE)
    nothing_twice(one)
    assert all(abs(given - due(one)[to]) <= SIZE for to, given in injected(one).items())


def test_as_it_is_it_makes_up_what_was_injected_since(tmp_path):
    """So a backup has to be brought to the present: alone it owes what came after it, at most two cycles of it."""
    one = made(tmp_path, "rucio")
    backup = backed_up(one, 2.3)
    one.engine().run(until=START + 5.5 * CYCLE)
    put_back(one, backup)
    one.engine().run(until=START + 9 * CYCLE)
    assert all(injected(one)[to] > due(one)[to] + SIZE for to in injected(one))


@pytest.mark.parametrize("later", [0, 3], ids="{} cycles later".format)
def test_what_came_and_went_meanwhile_is_not_made_up(tmp_path, later):
    """Rucio does not tell of rules that have ended, so nobody knows what they brought."""
    few = {"A": items("A", 20, SIZE)}  # they go round
    one = world(tmp_path, campaign([flow("A", "B", 0.8)]), few, speed=lambda _link: 2e8)
    one.settings = replace(one.settings, observations_per_cycle=15)
    backup = backed_up(one, 2.3)
    one.engine().run(until=START + 5.5 * CYCLE)
    put_back(one, backup)
    one.clock.advance(one.clock.now() + later * CYCLE)
    before = injected(one)["B"]
    rebuilding(one).rebuild(one.ledger, list(ours(one)))
    (account,) = one.ledger.accounts().values()
    assert account.due - account.injected - account.forgiven <= 0 < account.forgiven
    assert not one.ledger.entries(State.INTENDED, State.CALLED)
    living = {entry.injection.key for entry in one.ledger.entries(State.LIVE, State.COMPLETE)}
    assert living == {key for key, rule in one.backend.rules.items() if rule.ended is None}
    assert [found for found in check(one.ledger.path) if not found.note] == []
    one.engine().run(until=START + (8 + later) * CYCLE)
    assert abs(injected(one)["B"] - before - 2 * 90 * GB) <= SIZE
    assert [found for found in check(one.ledger.path) if not found.note] == []
