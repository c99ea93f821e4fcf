"""A machine's clock that leaps: cycles go on by the time that passes, until a service shows another time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from dc_inject.backends.sim import SimClock
from dc_inject.model import Campaign, Cycle, Hold
from dc_inject.model.events import CycleOpened
from dc_inject.system import clock as system_clock
from dc_inject.system.clock import SystemClock
from tests.engine.world import CYCLE, GB, START, World, campaign, flow, items, world

HOUR, SLICE = timedelta(hours=1), timedelta(seconds=10)
CYCLES = 12


class Machine(SystemClock):
    """A machine's clock in a simulated world: off by so much from some moments of the true time on.

    With `sleeps` at a moment it sleeps for so long, and its steady clock with it. `told` is since when services
    name their time.
    """

    def __init__(self, true: SimClock, steps: Sequence[tuple[datetime, timedelta]]) -> None:
        super().__init__()
        self.true, self.steps = true, steps
        self.sleeps: list[tuple[datetime, timedelta]] = []
        self.slept = timedelta(0)
        self.told = START

    def steady(self) -> float:
        return (self.true.now() - START - self.slept).total_seconds()

    def shown(self) -> datetime:
        true = self.true.now()
        return true + next((off for since, off in reversed(self.steps) if since <= true), timedelta(0))

    def ahead(self, address: str) -> timedelta | None:
        del address
        return self.shown() - self.true.now() if self.told <= self.true.now() else None

    def advance(self, moment: datetime) -> None:
        """Wait by slices until this clock shows a moment."""
        while (left := moment - self.now()) > timedelta(0):
            self.true.advance(self.true.now() + min(left, SLICE))
            if self.sleeps and self.true.now() >= self.sleeps[0][0]:
                length = self.sleeps.pop()[1]
                self.slept += length
                self.true.advance(self.true.now() + length)


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A campaign of three hours on a machine whose clock a test moves."""
    made = campaign([flow("A", "B", 1.0, end=START + CYCLES * CYCLE)])
    one = world(tmp_path, made, {"A": items("A", 80, 50 * GB)}, speed=lambda _link: GB)
    one.settings = replace(one.settings, poll=SLICE)
    one.clock = machine = Machine(one.clock, [])  # type: ignore[assignment]
    monkeypatch.setattr(system_clock, "steady", machine.steady)
    return one


def opened(one: World) -> list[tuple[Cycle, datetime]]:
    """Note from now on which cycles are opened, and when in true time."""
    cycles: list[tuple[Cycle, datetime]] = []
    tell = one.heard.event

    def event(event: object) -> None:
        tell(event)  # type: ignore[arg-type]
        if isinstance(event, CycleOpened):
            cycles.append((event.cycle, one.clock.true.now()))  # type: ignore[attr-defined]

    one.heard.event = event  # type: ignore[method-assign]
    return cycles


def starts(one: World, hold: Hold | None = None) -> list[datetime]:
    """The cycles in which something was due, or those with a hold."""
    rows = [row for row in one.ledger.rows() if row.due and (not hold or (row.held and row.held.hold is hold))]
    return [row.cycle.start for row in rows]


@pytest.mark.parametrize(
    ("off", "stays"),
    [
        pytest.param(timedelta(days=1), timedelta(seconds=15), id="a day ahead for 15 s"),
        pytest.param(timedelta(days=400), timedelta(seconds=15), id="400 days ahead for 15 s"),
        pytest.param(timedelta(days=1), None, id="a day ahead for good"),
        pytest.param(-2 * HOUR, HOUR, id="two hours back for an hour"),
        pytest.param(-2 * HOUR, None, id="two hours back for good"),
    ],
)
def test_a_leap_that_no_service_confirms_changes_nothing(
    one: World, caplog: pytest.LogCaptureFixture, off: timedelta, stays: timedelta | None
) -> None:
    leapt = START + HOUR + timedelta(minutes=7)
    one.clock.steps = [(leapt, off), *([(leapt + stays, timedelta(0))] if stays else [])]  # type: ignore[attr-defined]
    cycles = opened(one)
    one.run()
    assert starts(one) == [START + number * CYCLE for number in range(CYCLES)]
    assert starts(one, Hold.NOT_RUNNING) == []
    assert all(cycle.start <= true < cycle.end for cycle, true in cycles)
    (account,) = one.ledger.accounts().values()
    assert abs(account.injected - account.due) <= 50 * GB
    (signal,) = one.ledger.signals("clock")
    assert (signal.value is None) is (stays is None)
    events = [(record.levelname, record.__dict__.get("event")) for record in caplog.records]
    assert ("ERROR", "clock") in events


def test_a_leap_that_is_over_before_the_engine_looks_is_reported(
    one: World, caplog: pytest.LogCaptureFixture
) -> None:
    leapt = START + timedelta(minutes=7)
    one.settings = replace(one.settings, poll=CYCLE)
    one.clock.steps = [(leapt, timedelta(days=1)), (leapt + SLICE, timedelta(0))]  # type: ignore[attr-defined]
    one.run(cycles=2)
    events = [(record.levelname, record.__dict__.get("event")) for record in caplog.records]
    assert events.count(("ERROR", "clock")) == 1


def test_a_machine_that_slept_goes_on_with_the_time_that_services_show(one: World) -> None:
    """Its steady clock stood still, as that of a virtual machine does: its clock is ahead, and right."""
    slept = START + HOUR + timedelta(minutes=7)
    one.clock.sleeps = [(slept, HOUR)]  # type: ignore[attr-defined]
    cycles = opened(one)
    one.run()
    assert starts(one, Hold.NOT_RUNNING)[:3] == [START + number * CYCLE for number in (5, 6, 7)]
    assert all(cycle.start <= true < cycle.end for cycle, true in cycles)
    assert [signal for signal in one.ledger.signals("clock") if signal.value is None] == []


def test_services_are_asked_for_their_time_when_none_has_told_it(one: World) -> None:
    slept, told = START + HOUR + timedelta(minutes=7), START + HOUR * 2.5
    one.clock.sleeps, one.clock.told = [(slept, HOUR)], told  # type: ignore[attr-defined]
    cycles = opened(one)
    before = one.backend.calls.get("check", 0)
    one.run(cycles=CYCLES)
    assert one.backend.calls["check"] - before > 10
    late = [(cycle.start, true) for cycle, true in cycles if slept + HOUR < true < told]
    assert late
    assert all(start <= true - HOUR for start, true in late), "the time from before goes on meanwhile"
    assert cycles[-1][0].start == START + (CYCLES - 1) * CYCLE
    (signal,) = one.ledger.signals("clock")
    assert signal.value == "agrees"


def test_a_stop_ends_the_record_of_missed_cycles(tmp_path: Path) -> None:
    """An injector that was away for long can be stopped at its start, and the next one writes the rest."""
    made = campaign([flow("A", "B", 1.0, end=START + CYCLES * CYCLE)])
    one = world(tmp_path, made, {"A": items("A", 80, 50 * GB)})
    one.run(cycles=1)
    one.clock.advance(START + 10 * CYCLE)
    asked: list[Campaign] = []

    def menus() -> Campaign:
        asked.append(made)
        if len(asked) == 2:  # at the turn of the first cycle
            engine.stop()
        return made

    one.menus = menus
    engine = one.engine()
    engine.run()
    assert len(starts(one)) == 1
    one.menus = lambda: made
    one.run()
    assert starts(one, Hold.NOT_RUNNING)[:9] == [START + number * CYCLE for number in range(1, 10)]


def test_cycles_outside_of_the_menus_are_not_gone_through(tmp_path: Path) -> None:
    made = campaign([flow("A", "B", 1.0, end=START + 2 * CYCLE)])
    one = world(tmp_path, made, {"A": items("A", 80, 50 * GB)})
    one.run(cycles=1)
    one.clock.advance(START + timedelta(days=400))
    engine = one.engine()
    assert [slot.start for slot in engine._missed(Cycle.at(one.clock.now(), CYCLE))] == [START + CYCLE]
