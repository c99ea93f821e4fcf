"""The world of `dc-inject end`: a ledger, a simulated clock and service behind the command."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest

from dc_inject.backends.sim import InlineExecutor, SimClock
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.model import (
    Bundle,
    Cycle,
    Entry,
    File,
    FlowKey,
    Injection,
    JobOptions,
    Link,
    State,
    deletion,
    naming,
)
from dc_inject.model.errors import ServiceError
from dc_inject.model.items import label
from dc_inject.model.plan import Plan
from dc_inject.model.ports import Backend, Identity, Outcome, Status, Stray
from tests.cli.ledgers import CYCLE, GB, START, run
from tests.sim import SimBackend

command = importlib.import_module("dc_inject.cli.end")
LINK = Link("davs://a.example.org/dc", "davs://b.example.org/dc", "fts")
FLOW = FlowKey("export", LINK)
S = TypeVar("S", bound=Backend)
LIFETIME = timedelta(hours=2)
ME = Identity("fts", "sim://", "1", "def", "sim", admin=False, may_end=True)


@dataclass
class World(Generic[S]):
    """A campaign named dc27 with what it has at a service, and the command before it."""

    path: Path
    clock: SimClock
    service: S

    def end(self, *options: str, text: str | None = None) -> Any:
        return run("end", "dc27", "--ledger", self.path, *options, text=text)

    def entries(self) -> list[Entry]:
        with LedgerView.open(self.path) as view:
            return view.entries()

    def state(self, key: str) -> State:
        return next(entry.state for entry in self.entries() if entry.injection.key == key)

    def states(self) -> dict[State, int]:
        with LedgerView.open(self.path) as view:
            return {state: count for state, (count, _) in view.state_counts().items()}


class _Inline(InlineExecutor):
    def __init__(self, clock: SimClock, _threads: int) -> None:
        super().__init__(clock)

    def close(self) -> None:
        pass


def behind_the_command(patch: pytest.MonkeyPatch, clock: SimClock, name: str, service: Backend) -> None:
    """Let the command use this clock and this service."""
    patch.setattr(command, "SystemClock", lambda: clock)
    patch.setattr(command.common, "backends", lambda services, **_: {name: service})
    patch.setattr("dc_inject.assembly.ending.ThreadExecutor", _Inline)


@dataclass
class Service(SimBackend):
    """A simulated FTS, with files at a destination that can be swept up."""

    name: str = "fts"
    strays: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    modified: datetime | None = None
    tidied: list[tuple[str, str]] = field(default_factory=list)
    untidy: ServiceError | None = None

    def tidy(self, prefix: str, campaign: str) -> ServiceError | None:
        self.tidied.append((prefix, campaign))
        return self.untidy

    def sweep(self, prefix: str, campaign: str) -> Iterator[Stray]:
        for url in self.strays:
            copy = naming.read_copy(prefix, url)
            if copy is not None and copy.campaign == campaign:
                yield Stray(url, copy, GB, self.modified)

    def statuses(self, keys: Iterable[str]) -> Mapping[str, Status]:
        keys = list(keys)
        self._call("statuses", keys)
        known = {key: self.rules[key] for key in keys if key in self.rules}
        return {key: Status.ABSENT if key not in known or known[key].ended else Status.MOVING for key in keys}

    def delete(self, urls: Sequence[str], prefix: str, campaign: str) -> list[tuple[str, ServiceError | None]]:
        for url in urls:
            assert deletion.address(deletion.CopiedFile(prefix, url, campaign)) == url
        self.deleted += urls
        return [(url, None) for url in urls]


Files = World[Service]


def job(number: int, cycle: Cycle = CYCLE, link: Link = LINK) -> Injection:
    """A job of ten files."""
    members = tuple(File(f"{link.source}/{number}/{n}", GB) for n in range(10))
    item = Bundle(label(members, START, number), 10 * GB, 10, members)
    key = naming.key("dc27", "export", cycle.start, link, item.name)
    return Injection(key, "dc27", cycle, "export", link, item, START, LIFETIME, "DC", 3, "me@x.org", JobOptions())


def submitted(path: Path, service: Backend, jobs: Sequence[Injection], me: Identity = ME) -> None:
    """Submit jobs, and write a ledger that knows them."""
    flows = {FlowKey(one.scenario, one.link): (50 * GB, None) for one in jobs}
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.bind("dc27", CYCLE.length, [me], START)
        ledger.open_cycle(CYCLE, flows, START)
        ledger.record_plan(Plan(CYCLE, (), tuple(jobs)), START)
        ledger.call([job.key for job in jobs], START)
        ledger.answer([Outcome(one.key, one.external_id) for one in service.submit(jobs)], START, {})


def world_of_files(path: Path, patch: pytest.MonkeyPatch) -> Files:
    """Three jobs through FTS that are complete, and two of which 4 of 10 files have arrived."""
    clock = SimClock(START)
    service = Service(clock, {}, speed=lambda _link: 0.0)
    submitted(path / "dc27.sqlite", service, [job(number) for number in range(5)])
    for number, rule in enumerate(service.rules.values()):
        done = number < 3
        rule.moved = (10 if done else 4) * GB
        rule.completed = START if done else None
    behind_the_command(patch, clock, "fts", service)
    return World(path / "dc27.sqlite", clock, service)
