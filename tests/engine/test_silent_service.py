"""A service that takes calls and never answers: the others are observed all the same, and it is told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from datetime import timedelta
from typing import Any

import pytest

from dc_inject.backends.sim import InlineExecutor
from dc_inject.engine.engine import Engine
from dc_inject.ledger import LedgerView
from dc_inject.model import Hold, State
from dc_inject.model.errors import Temporary
from dc_inject.model.ports import Observation, Status
from dc_inject.summary import marks
from dc_inject.system.clock import SystemClock
from dc_inject.system.executor import ThreadExecutor
from tests.engine.world import CYCLE, GB, START, World, campaign, file_flow, flow, items, source_files, world
from tests.sim import SimBackend

SERVICES = ("rucio", "fts")


class Hanging(InlineExecutor):
    """Runs tasks, but of those of one lane that `hangs` names nothing is ever heard."""

    lane = ""

    def hangs(self, task: Callable[[], Any]) -> bool:
        return getattr(getattr(task, "func", None), "__name__", "") == "observe"

    def submit(self, tag: Hashable, task: Callable[[], Any], lane: str = "") -> None:
        if not lane.startswith(self.lane) or not self.hangs(task):
            super().submit(tag, task, lane)


class OneThread(Hanging):
    """Has one thread for each lane, which a task that hangs keeps for ever."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.lost: set[str] = set()

    def submit(self, tag: Hashable, task: Callable[[], Any], lane: str = "") -> None:
        if self.hangs(task):
            self.lost.add(lane)
        if lane not in self.lost:
            InlineExecutor.submit(self, tag, task, lane)


@pytest.fixture
def both(tmp_path) -> World:
    """A link through each service, with jobs that are over within a cycle."""
    links = [
        flow("A", "B", 1.0, lifetime_min=CYCLE, lifetime_max=CYCLE, dwell=timedelta(minutes=1)),
        file_flow("C", "D", 1.0),
    ]
    one = world(tmp_path, campaign(links), {"A": items("A", 200, 10 * GB)})
    one.join(SimBackend(one.clock, source_files("C", 400), name="fts"))
    return one


def hanging(one: World, service: str) -> Engine:
    engine = one.engine()
    executor = Hanging(one.clock)
    executor.lane = service
    engine._executor = engine._calls._executor = executor
    return engine


def seen(one: World, service: str) -> set[State]:
    return {e.state for e in one.ledger.entries(*State) if e.injection.link.through == service}


@pytest.mark.parametrize("service", SERVICES)
def test_the_other_service_is_observed_and_ended(both: World, service: str):
    (other,) = {*SERVICES} - {service}
    hanging(both, service).run(until=START + 4 * CYCLE)
    assert not seen(both, service) & {State.COMPLETE, State.ENDED}
    assert State.ENDED in seen(both, other)
    rows = {(row.cycle.start, row.key.link.through): row for row in both.ledger.rows()}
    assert rows[START + 3 * CYCLE, other].injected > 0
    assert rows[START + 2 * CYCLE, other].moved > 0


@pytest.mark.parametrize("service", SERVICES)
def test_its_links_hold_with_the_reason_and_status_says_so(both: World, service: str, wording):
    hanging(both, service).run(until=START + 4 * CYCLE)
    held = [row.held for row in both.ledger.rows() if row.key.link.through == service][-1]
    assert held is not None
    assert held.hold is Hold.API_ERRORS
    assert f" {service} since 2027-02-08T10:0" in held.numbers["message"]
    with LedgerView.open(both.path / "test.sqlite") as view:
        (signal,) = [s for s in view.signals() if s.name == "observation" and s.value is None]
    assert signal.subject == service
    wording([signal.why, marks.TROUBLES["observation"].format(of=service)])


def test_observation_that_fails_is_told_with_its_reason_and_over_when_it_works(tmp_path):
    one = world(tmp_path, campaign([flow("A", "B", 1.0)]), {"A": items("A", 200, 10 * GB)})
    away = [True]

    def fault(method: str, _subject: object) -> None:
        if method == "observe" and away[0]:
            raise Temporary("no end in 600 s")

    one.backend.fault = fault
    one.run(cycles=3)
    held = one.ledger.rows()[-1].held
    assert held is not None
    assert held.hold is Hold.API_ERRORS
    assert "600 s" in held.numbers["message"]
    injected = one.ledger.rows()[-1].injected
    assert injected == 0
    away[0] = False
    one.run(cycles=2)
    assert one.ledger.rows()[-1].injected > 0
    with LedgerView.open(one.path / "test.sqlite") as view:
        assert [s.value for s in view.signals() if s.name == "observation"] == ["seen"]


@pytest.mark.parametrize(("again_at", "holds"), [(None, True), (START, False)])
def test_answers_that_show_nothing_of_any_rule_are_silence(tmp_path, again_at, holds):
    """But that a rule is not there is an answer, which is asked for again."""
    one = world(tmp_path, campaign([flow("A", "B", 1.0)]), {"A": items("A", 200, 10 * GB)})
    one.backend.observe = lambda entries, *, exact=False: [
        Observation(entry.injection.key, Status.UNKNOWN, again_at=again_at) for entry in entries
    ]
    one.run(cycles=3)
    row = one.ledger.rows()[-1]
    assert (row.held is not None and row.held.hold is Hold.API_ERRORS, row.injected == 0) == (holds, holds)
    with LedgerView.open(one.path / "test.sqlite") as view:
        assert {s.value for s in view.signals() if s.name == "observation"} == {None if holds else "seen"}


def test_looks_that_hang_take_no_thread_from_what_is_planned_and_released(tmp_path):
    one = world(tmp_path, campaign([flow("A", "B", 1.0)]), {"A": items("A", 200, 10 * GB)})
    engine = one.engine()
    executor = OneThread(one.clock)
    engine._executor = engine._calls._executor = executor
    engine.run(until=START + CYCLE)
    (row,) = one.ledger.rows()
    assert executor.lost
    assert abs(row.injected - row.due) <= 5 * GB


def test_calls_that_hang_take_no_thread_from_another_service():
    executor = ThreadExecutor(SystemClock(), 2)
    over = threading.Event()
    try:
        for number in range(10):
            executor.submit(number, lambda: over.wait(60), "rucio")
        executor.submit("mine", lambda: "here", "fts")
        (done,) = executor.wait(SystemClock().now() + timedelta(seconds=60))
        assert (done.tag, done.result) == ("mine", "here")
    finally:
        over.set()
        executor.close()
