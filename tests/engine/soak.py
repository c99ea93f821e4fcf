"""Many days in minutes: a campaign on simulated services that break all the time, and what each part costs."""

from __future__ import annotations

import gc
import random
import resource
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from prometheus_client import generate_latest

from dc_inject.backends.sim import SimClock
from dc_inject.engine.context import Settings
from dc_inject.ledger import database
from dc_inject.metrics import Metrics
from dc_inject.model import Dataset, Flow, FlowKey, Item, State
from dc_inject.model.errors import Temporary
from dc_inject.model.events import CycleClosed, Event, Refused, UnexpectedError
from tests.engine.world import CYCLE, GB, START, World, campaign, file_flow, flow, source_files, world
from tests.sim import SimBackend

CHANGES = frozenset({"submit", "end", "remove"})  # calls whose answer may be lost after they were carried out
DAY = timedelta(days=1)
SPEED = 3  # times a link's rate: how fast the simulated services move its bytes
STEPS = 1000  # instructions of SQLite's machine that count as one step
SUMMED = ("rules", "due", "injected", "forgiven")  # of the accounts


@dataclass
class Faults:
    """Fails a share of all calls, in one of three ways, and all calls during outages."""

    share: float
    chance: random.Random
    clock: SimClock
    outages: dict[str, list[tuple[datetime, datetime]]] = field(default_factory=dict)  # by service
    counts: Counter[str] = field(default_factory=Counter)
    _lose: bool = False

    def join(self, backend: SimBackend) -> None:
        """Break the calls of a service from now on."""
        backend.fault = lambda method, _subject: self._before(backend.name, method)
        backend.answer = lambda _method, _subject: self._after()

    def _before(self, service: str, method: str) -> None:
        """Refuse a call, or drop its connection before it was carried out, or remember to lose its answer."""
        self.counts["calls"] += 1
        if any(start <= self.clock.now() < end for start, end in self.outages.get(service, ())):
            self._fail("outage", "cannot connect")
        if self.chance.random() >= self.share:
            return
        kind = self.chance.choice(["refused", "refused", "dropped", "lost"]) if method in CHANGES else "refused"
        if kind == "lost":
            self._lose = True
        else:
            self._fail(kind, "503" if kind == "refused" else "the connection broke", lost=kind == "dropped")

    def _after(self) -> None:
        """Lose the answer of a call that was carried out."""
        if self._lose:
            self._lose = False
            self._fail("lost", "no answer in time", lost=True)

    def _fail(self, kind: str, message: str, *, lost: bool = False) -> None:
        self.counts[kind] += 1
        raise Temporary(message, lost=lost)

    @property
    def faulty(self) -> int:
        """How many calls failed."""
        return sum(self.counts.values()) - self.counts["calls"]


@dataclass(frozen=True)
class Figures:
    """What a part of a soak gave and cost: sums of that part, but for levels, which are those at its end."""

    cycles: int
    rules: int
    due: int
    injected: int
    forgiven: int
    calls: int
    faulty: int
    seconds: float  # of one core, without what measuring takes
    statements: int
    steps: int
    resident: int  # level: bytes of memory
    blocks: int  # level: pieces of memory that Python has handed out
    files: int  # level: open ones
    ledger: int  # level: bytes
    grown: int  # bytes that the ledger grew
    violations: int


class Soak:
    """An observer that measures a world every `every` cycles, and compares ledger and services each time."""

    def __init__(self, one: World, faults: Faults, every: int, say: Callable[[Figures], None]) -> None:
        """Take the world, what breaks it, and whom to tell each part's figures."""
        self.one, self.faults, self.every, self.say = one, faults, every, say
        self.parts: list[Figures] = []
        self.violations: list[str] = []
        self.unexpected: Counter[str] = Counter()  # errors, by their type
        self.there_already = 0  # injections that a service refused as there already
        self._metrics = Metrics(one.ledger.path)
        self._forgotten: dict[FlowKey, int] = defaultdict(int)  # bytes of rules that are long gone
        self._measuring = 0.0  # seconds
        self._counted: Counter[str] = Counter()
        self._last: Counter[str] = Counter()
        connection = one.ledger._db._connection
        connection.set_trace_callback(self._statement)
        connection.set_progress_handler(self._step, STEPS)

    def event(self, event: Event) -> None:
        """Let the metrics hear it; measure at the end of each part."""
        self._metrics.event(event)
        match event:
            case UnexpectedError(kind):
                self.unexpected[kind] += 1
            case Refused(kind="another-now"):
                self.there_already += 1
        if isinstance(event, CycleClosed):
            begun, before = time.process_time(), self._counted.copy()
            self._counted["cycles"] += 1
            before["cycles"] += 1
            if before["cycles"] % 4 == 0:
                generate_latest(self._metrics.registry)
            if before["cycles"] % self.every == 0:
                self._measure(before, begun - self._measuring)
            self._counted = before  # looking is no work of the engine's
            self._measuring += time.process_time() - begun

    def _statement(self, text: str) -> None:
        self._counted["statements"] += not text.startswith("--")  # of triggers: counted with what fired them

    def _step(self) -> int:
        self._counted["steps"] += 1
        return 0

    def _measure(self, counted: Counter[str], seconds: float) -> None:
        found = list(self._wrong())
        self._forget()
        accounts = self.one.ledger.accounts().values()
        now = counted | Counter({name: sum(getattr(one, name) for one in accounts) for name in SUMMED})
        now |= Counter(calls=self.faults.counts["calls"], faulty=self.faults.faulty)
        now["seconds"], now["grown"] = seconds, self._ledger_size()
        for bounded in (database.stored, database.moment, database.duration):
            bounded.cache_clear()  # they fill up to their bound for half a day, and are no growth
        gc.collect()
        part = Figures(
            **{name: value - self._last[name] for name, value in ({"forgiven": 0, "faulty": 0} | now).items()},
            resident=int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize(),
            blocks=sys.getallocatedblocks(),
            files=len(list(Path("/proc/self/fd").iterdir())),
            ledger=now["grown"],
            violations=len(found),
        )
        self._last = now
        self.violations += found
        self.parts.append(part)
        self.say(part)

    def _ledger_size(self) -> int:
        """Return the bytes of the ledger's files."""
        return sum(file.stat().st_size for file in self.one.path.glob("test.sqlite*"))

    # ------------------------------------------------------------------ what must hold

    def _wrong(self) -> Iterator[str]:
        """Give what contradicts itself between the ledger and the services."""
        known = self._known()
        rules = {key: rule for backend in self.one.backends for key, rule in backend.rules.items()}
        service: dict[FlowKey, int] = defaultdict(int, self._forgotten)
        for key, rule in rules.items():
            state, accepted, failed = known.get(key, (None, 0, 0))
            if accepted:
                service[rule.injection.flow] += rule.injection.item.bytes - failed
            elif state is not State.CALLED:
                yield f"{rule.injection.link}: a rule of {rule.injection.cycle} is {state} in the ledger"
        for key, (state, _, _) in known.items():
            if state in {State.LIVE, State.COMPLETE} and key not in rules:
                yield f"{key} is {state} in the ledger and does not exist"
        for flow_key, account in self.one.ledger.accounts().items():
            if account.injected != service[flow_key]:
                yield f"{flow_key}: injected {account.injected}, in the service {service[flow_key]}"
        for backend in self.one.backends:
            yield from _twice(backend)

    def _known(self) -> dict[str, tuple[State, int, int]]:
        """Return what the ledger knows of all that is not long gone; a part is longer than any lifetime."""
        since = int((self.one.clock.now() - 2 * self.every * CYCLE - DAY).timestamp() * 1e6)
        sql = "SELECT key, state, accepted_at IS NOT NULL, failed FROM injection WHERE cycle >= ?"
        return {key: (State(state), accepted, failed) for key, state, accepted, failed in
                self.one.ledger._db.stream(sql, since)}  # fmt: skip

    def _forget(self) -> None:
        """Drop rules that are long gone: a real service keeps them on its own disk, not in our memory."""
        known = self._known()
        for backend in self.one.backends:
            gone = [key for key, rule in backend.rules.items() if rule.deleted and known[key][0] is State.GONE]
            for key in gone:
                rule = backend.rules.pop(key)
                self._forgotten[rule.injection.flow] += rule.injection.item.bytes - known[key][2]


def _twice(backend: SimBackend) -> Iterator[str]:
    """Give what was at a destination twice at a time."""
    until: dict[tuple[str, str], datetime] = {}
    for rule in sorted(backend.rules.values(), key=lambda rule: rule.created):
        place = backend._place(rule.injection)
        if rule.created < until.get(place, rule.created):
            yield f"{place} was given twice at a time"
        until[place] = rule.deleted or START + 365 * DAY


# --------------------------------------------------------------------------- the campaign


def soak(path: Path, *, days: float, links: int, share: float, every: int, seed: int, **more: Any) -> Soak:
    """Run a campaign, four fifths of its links through Rucio and one through FTS, and return what was measured.

    A `share` of the calls fails, one file in 500 through FTS does not arrive, and every day a service, or both,
    cannot be reached for an hour and a half. Further arguments: `say`.
    """
    chance = random.Random(seed)
    flows = _flows(links, START + days * DAY, chance)
    speeds = {one.link: SPEED * one.rate for one in flows}
    rses = sorted({one.link.source for one in flows if one.link.through == "rucio"})
    stock = {rse: _datasets(rse, chance) for rse in rses}
    lag = timedelta(minutes=20)
    settings = Settings(drain=False, poll=CYCLE / 5, observations_per_cycle=2)
    one = world(path, campaign(flows), stock, speed=speeds.__getitem__, deletion_lag=lag, settings=settings)
    files = [found for host in _hosts(links) for found in source_files(host, 200, 20 * GB).items()]
    bad = random.Random(seed)
    one.join(
        SimBackend(
            one.clock,
            dict(files),
            speed=speeds.__getitem__,
            name="fts",
            failing=lambda _file: bad.random() < 0.002,
        )
    )
    faults = Faults(share, chance, one.clock)
    engine_world = Soak(one, faults, every, more.get("say", lambda _part: None))
    one.heard = engine_world  # type: ignore[assignment]  # it hears as well
    engine = one.engine()
    for backend in one.backends:
        faults.join(backend)
        faults.outages[backend.name] = []
    for day in range(int(days)):
        start = START + (day + chance.random() * 0.9) * DAY
        for name in [["rucio"], ["fts"], ["rucio", "fts"]][day % 3]:
            faults.outages[name].append((start, start + timedelta(minutes=90)))
    engine.run(until=START + days * DAY)
    return engine_world


def _hosts(links: int) -> list[str]:
    return [f"F{n}" for n in range(max(2, links // 25))]


def _flows(links: int, end: datetime, chance: random.Random) -> list[Flow]:
    """Links of 0.25 to 4 Gb/s, from a few sources to as many destinations."""
    flows = []
    sources = round((links * 4 // 5) ** 0.5)
    for n in range(links * 4 // 5):
        source, destination = f"S{n % sources}", f"D{n // sources}"
        flows.append(flow(source, destination, 0.25 * 16 ** chance.random(), end=end, grain=1.0))
    hosts = _hosts(links)
    for n in range(links - len(flows)):
        source = hosts[n % len(hosts)]
        flows.append(file_flow(source, f"G{n}", 0.25 * 16 ** chance.random(), end=end))
    return flows


def _datasets(rse: str, chance: random.Random) -> list[Item]:
    return [
        Dataset(f"cms:/{rse}/{n}", int(50 * GB * 10 ** chance.random()), chance.randint(10, 200))
        for n in range(200)
    ]
