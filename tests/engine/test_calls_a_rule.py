"""REST calls to Rucio over the life of a rule: looked at, made, followed, ended, seen to be gone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from dc_inject.backends.rucio import RucioBackend
from dc_inject.backends.sim import InlineExecutor
from dc_inject.engine.context import Settings
from dc_inject.engine.engine import Engine
from dc_inject.model import State
from dc_inject.model.events import Silent
from tests.backends.fake import FakeRse, FakeRucio
from tests.engine.world import ALL, CYCLE, GB, START, campaign, flow, opened

SOURCES, DESTINATIONS, DATASETS = 3, 8, 50


class Server(FakeRucio):
    """A Rucio whose clock does what its daemons do: files arrive after a while, ended rules and files go."""

    def __init__(self, arrives: timedelta) -> None:
        """Take how long a rule's files are on their way."""
        super().__init__()
        self.arrives = arrives
        self.clock.time = START
        for number in range(SOURCES):
            self.rses[f"S{number}"] = FakeRse()
        for number in range(DESTINATIONS):
            self.rses[f"D{number}"] = FakeRse()

    def advance(self, moment: datetime) -> None:
        """Go on to a moment, as a simulated clock does."""
        self.clock.time = max(self.clock.time, moment)
        late = (self.clock.time - self.arrives).replace(tzinfo=None)
        for rule in self.rules.values():
            if rule.row["account"] == self.account and rule.row["created_at"] <= late:
                rule.files = dict.fromkeys(rule.files, "OK")
                self.replicas.setdefault(rule.row["rse_expression"], set()).update(rule.files)
        self.clean()

    def now(self) -> datetime:
        """Return the time."""
        return self.clock.time


@pytest.mark.parametrize("minutes", [8, 20])
def test_a_rule_costs_three_calls_at_most(tmp_path, minutes):
    server = Server(timedelta(minutes=minutes))
    for source in range(SOURCES):
        for number in range(DATASETS):
            server.add(f"cms:/S{source}/data#{number}", f"S{source}", files=4, size=10 * GB)
    links = [
        flow(f"S{n % SOURCES}", f"D{m}", 3, datasets=ALL, activity="Data Challenge", end=START + 3 * CYCLE)
        for n in range(SOURCES)
        for m in range(DESTINATIONS)
    ]  # 338 GB a cycle, each: eight or nine datasets
    made = campaign(links)
    backend = RucioBackend(
        campaign="test", clock=server, observer=Silent(), make=server.client, sleep=lambda _: None
    )
    ledger = opened(tmp_path)
    identity = backend.check()
    ledger.bind("test", CYCLE, (identity,), server.now())
    server.calls.clear()
    engine = Engine(
        menus=lambda: made,
        ledger=ledger,
        backends={"rucio": backend},
        identities={"rucio": replace(identity, may_end=True)},
        clock=server,
        executor=InlineExecutor(server),  # type: ignore[arg-type]
        observer=Silent(),
        settings=Settings(poll=CYCLE / 10),
    )
    engine.run()
    entries = ledger.entries()
    rules = sum(entry.accepted_at is not None for entry in entries)
    states = Counter(entry.state for entry in entries)
    assert rules > 500
    assert states[State.GONE] == rules, states
    assert all(entry.moved == entry.injection.item.bytes for entry in entries if entry.state is State.GONE)
    calls = Counter(name for name, _, _ in server.calls)
    each = ", ".join(f"{name} {count / rules:.2f}" for name, count in calls.most_common())
    assert sum(calls.values()) <= 3 * rules, (sum(calls.values()) / rules, each)
