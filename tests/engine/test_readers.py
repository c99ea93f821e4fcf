"""What the engine does with readers, unlike with jobs; and with a service of theirs that has to be repaired."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import pytest

from dc_inject.backends.sim import InlineExecutor
from dc_inject.engine.engine import GRACE
from dc_inject.model import State
from dc_inject.model.errors import NeedsOperator, Temporary
from tests.engine import world as worlds
from tests.engine.world import CYCLE, GB, START, campaign, file_flow, flow, items, source_files, world
from tests.sim import SimBackend


@pytest.mark.parametrize("through", ["reads", "fts"])
def test_a_pause_ends_readers_at_the_next_look_and_leaves_jobs(tmp_path, through):
    link = file_flow("A", "B", 1.0)
    link = replace(link, link=link.link._replace(through=through))
    stock, slow = source_files("A", 400), lambda _link: 1e6
    one = world(tmp_path, campaign([link]), stock, name=through, speed=slow)
    one.run(cycles=1)
    one.ledger.pause("*", "somebody", "stop it", one.clock.now())
    one.engine().run(until=one.clock.now() + one.settings.poll)
    asked = {entry.end_asked_at is not None for entry in one.ledger.entries() if entry.accepted_at}
    assert asked == {through == "reads"}


def test_a_pause_leaves_readers_of_a_service_that_no_menu_has_any_more(tmp_path):
    link = file_flow("A", "B", 1.0)
    link = replace(link, link=link.link._replace(through="reads"))
    one = world(tmp_path, campaign([link]), source_files("A", 40), name="reads", speed=lambda _link: 1e6)
    one.run(cycles=1)
    one.ledger.pause("*", "somebody", "stop it", one.clock.now())
    one.menus = lambda: campaign([flow("A", "B", 1.0)])
    one.backend = SimBackend(one.clock, {})
    one.ledger.bind("test", CYCLE, (one.backend.check(),), one.clock.now())
    one.run(cycles=1)  # an unexpected error would end the test
    assert {entry.end_asked_at for entry in one.ledger.entries() if entry.accepted_at} == {None}


def test_a_run_ends_what_ends_with_it_and_then_looks_once_more(tmp_path):
    """What the last observation before the end had not seen yet is in the ledger all the same."""
    link = file_flow("A", "B", 1.0)
    link = replace(link, link=link.link._replace(through="reads"))
    one = world(tmp_path, campaign([link]), source_files("A", 40), name="reads", speed=lambda _link: 1.0)

    def close() -> None:
        for rule in one.backend.rules.values():
            rule.moved, rule.completed = float(rule.injection.item.bytes), one.clock.now()

    one.backend.close = close
    one.engine().run(once=True)
    entries = [entry for entry in one.ledger.entries() if entry.accepted_at]
    assert {entry.state for entry in entries} == {State.COMPLETE}
    assert all(entry.moved == entry.injection.item.bytes for entry in entries)


class Hanging(InlineExecutor):
    """Calls to FTS do not return."""

    def submit(self, tag: Hashable, task: Callable[[], Any], lane: str = "") -> None:
        if lane != "fts":
            super().submit(tag, task, lane)


@pytest.mark.parametrize("fails", [False, True])
def test_what_ends_with_a_run_is_looked_at_though_another_service_hangs_or_its_end_fails(
    tmp_path, monkeypatch, fails
):
    """A stop takes no longer for it."""
    link = file_flow("A", "B", 1.0)
    read = replace(link, link=link.link._replace(through="reads"))
    stock = source_files("A", 40)
    one = world(tmp_path, campaign([link, read]), stock, name="reads", speed=lambda _link: 1.0)
    one.join(SimBackend(one.clock, stock, name="fts"))

    def close() -> None:
        for rule in one.backend.rules.values():
            rule.moved, rule.completed = float(rule.injection.item.bytes), one.clock.now()
        if fails:
            raise TimeoutError

    one.backend.close = close
    monkeypatch.setattr(worlds, "InlineExecutor", Hanging)
    one.engine().run(once=True)
    entries = [entry for entry in one.ledger.entries() if entry.accepted_at]
    assert {entry.state for entry in entries} == {State.COMPLETE}
    assert one.clock.now() <= START + CYCLE + GRACE


def test_workers_are_ended_though_calls_that_hang_have_all_threads_of_their_service(tmp_path, monkeypatch):
    """As those that list sources that do not answer."""

    class Full(InlineExecutor):
        def submit(self, tag: Hashable, task: Callable[[], Any], lane: str = "") -> None:
            if lane != "reads":
                super().submit(tag, task, lane)

    link = file_flow("A", "B", 1.0)
    link = replace(link, link=link.link._replace(through="reads"))
    one = world(tmp_path, campaign([link]), source_files("A", 4), name="reads")
    ended: list[bool] = []
    one.backend.close = lambda: ended.append(True)
    monkeypatch.setattr(worlds, "InlineExecutor", Full)
    one.engine().run(once=True)
    assert ended == [True]


@pytest.mark.parametrize("through", ["reads", "fts"])
def test_records_of_readers_that_stay_are_no_files_at_a_destination(tmp_path, through):
    link = file_flow("A", "B", 1.0)
    link = replace(link, link=link.link._replace(through=through))
    one = world(tmp_path, campaign([link]), source_files("A", 400), name=through)

    def fault(method, _subject):
        if method == "remove":
            raise Temporary("no answer")

    one.backend.fault = fault
    engine = one.engine()
    engine.run(until=START + 3 * CYCLE)
    assert one.ledger.entries(State.ENDED)
    assert bool(engine._context.undeletable) == (through == "fts")


def test_a_silent_service_that_a_person_has_to_repair_reports_nothing_again(tmp_path, caplog):
    caplog.set_level("INFO")
    one = world(
        tmp_path, campaign([flow("A", "B", 1.0)]), {"A": items("A", 200, 10 * GB)}, speed=lambda _link: 1e6
    )
    error: list[Exception] = []

    def fault(_method, _subject):
        if error:
            raise error[0]

    one.backend.fault = fault
    engine = one.engine()
    for now, cycles in ((None, 1), (Temporary("no answer"), 4), (NeedsOperator("no such address"), 3)):
        error[:] = [now] if now else []
        engine.run(until=one.clock.now() + cycles * CYCLE)
    told = [getattr(record, "event", "") for record in caplog.records]
    assert "service-unobserved" in told
    assert "service-observed" not in told
