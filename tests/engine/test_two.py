"""Two injectors with ledgers of their own and one destination, at the same time; nothing else is shared."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from dc_inject.backends.sim import InlineExecutor, SimClock
from dc_inject.engine.context import Settings
from dc_inject.engine.engine import Engine
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.ledger.check import check
from dc_inject.model import State
from dc_inject.model.events import Refused
from dc_inject.model.ports import Finished
from tests.engine.world import CYCLE, GB, START, Heard, campaign, flow, items
from tests.sim import SimBackend

DUE = 112_500_000_000  # of a cycle of a link of 1 Gb/s
PATIENCE = 120  # seconds that one of them waits for the other on a busy machine
CYCLES = 4


class Turns:
    """Lets one of several engines run at a time: the one that is to wake first, when all of them wait."""

    def __init__(self, clock: SimClock, names: Sequence[str]) -> None:
        self.clock = clock
        self.working = set(names)
        self.waiting: dict[str, datetime] = {}
        self.changed = threading.Condition()

    def wait(self, name: str, until: datetime) -> None:
        """Give the turn away, and take it again when it has come to `until`."""
        with self.changed:
            self.working.discard(name)
            self.waiting[name] = until
            self._next()
            assert self.changed.wait_for(lambda: name in self.working, PATIENCE), "the other one never waits"

    def leave(self, name: str) -> None:
        with self.changed:
            self.working.discard(name)
            self._next()

    def _next(self) -> None:
        if not self.working and self.waiting:
            until, name = min((until, name) for name, until in self.waiting.items())
            del self.waiting[name]
            self.clock.advance(until)
            self.working.add(name)
            self.changed.notify_all()


class Turned(InlineExecutor):
    """Waits by giving the other engine its turn."""

    def __init__(self, turns: Turns, name: str) -> None:
        super().__init__(turns.clock)
        self.turns, self.name = turns, name

    def wait(self, until: datetime) -> list[Finished]:
        if not self._finished:
            self.turns.wait(self.name, until)
        return super().wait(self.turns.clock.now())


def _inject(name: str, path: Path, turns: Turns, backend: SimBackend, heard: Heard) -> None:
    """Run a campaign of this name until it is drained, with a ledger of its own."""
    made = campaign([flow("A", "B", 1.0, end=START + CYCLES * CYCLE, lifetime_min=timedelta(hours=2))])
    made = replace(made, name=name, menus=(replace(made.menus[0], campaign=name),))
    try:
        turns.wait(name, START)
        with Ledger.open(path, synchronous="OFF") as ledger:
            ledger.bind(name, CYCLE, (backend.check(),), turns.clock.now())
            engine = Engine(
                menus=lambda: made,
                ledger=ledger,
                backends={"rucio": backend},
                identities={"rucio": backend.check()},
                clock=turns.clock,
                executor=Turned(turns, name),
                observer=heard,
                settings=Settings(poll=CYCLE / 5),
            )
            engine.run()
    finally:
        turns.leave(name)


def test_two_injectors_into_one_destination_share_its_source_and_give_no_dataset_twice(tmp_path: Path) -> None:
    """Each has only its own rules in its books, gets all that it is due, and ends nobody else's."""
    names = ["one", "two"]
    clock = SimClock(START)
    backend = SimBackend(clock, {"A": items("A", 160, 10 * GB)}, speed=lambda _link: GB / 8, may_end=False)
    turns, heard = Turns(clock, names), {name: Heard() for name in names}
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(_inject, n, tmp_path / n, turns, backend, heard[n]) for n in names]:
            done.result()
    until: dict[str, datetime] = {}
    for rule in sorted(backend.rules.values(), key=lambda rule: rule.created):
        name = rule.injection.item.name
        assert until.get(name, rule.created) <= rule.created, f"{name} was given twice at a time"
        assert rule.deleted
        until[name] = rule.deleted
        assert rule.ended == rule.expires, "nobody ends a rule of the other"
    met = {name: [refused.kind for refused in heard[name].of(Refused)].count("another-now") for name in names}
    assert 0 < sum(met.values()) < len(backend.rules) / 8, "they meet, and then look at what is there"
    for name in names:
        mine = {rule.injection.key for rule in backend.rules.values() if rule.injection.campaign == name}
        with LedgerView.open(tmp_path / name) as view:
            assert {entry.injection.key for entry in view.entries() if entry.accepted_at} == mine
            assert {entry.state for entry in view.entries()} <= {State.GONE, State.REFUSED, State.WITHDRAWN}
            totals = view.totals()
            assert totals.due == CYCLES * DUE
            assert abs(totals.injected - totals.due) <= 10 * GB
        assert not [found for found in check(tmp_path / name) if not found.note]
