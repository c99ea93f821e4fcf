"""A campaign on a simulated service and clock: what the engine's tests run in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from dc_inject.backends.sim import InlineExecutor, SimClock
from dc_inject.engine.another_injector import Alone
from dc_inject.engine.context import Settings
from dc_inject.engine.engine import Engine
from dc_inject.ledger import Ledger
from dc_inject.model import (
    Campaign,
    Dataset,
    DatasetFilter,
    File,
    FileFilter,
    Flow,
    Item,
    JobOptions,
    Limits,
    Link,
    Menu,
)
from dc_inject.model.events import Event, UnexpectedError
from dc_inject.model.ports import MachineClock
from tests.sim import SimBackend

E = TypeVar("E", bound=Event)
START = datetime(2027, 2, 8, 10, 0, tzinfo=UTC)
CYCLE = timedelta(minutes=15)
GB = 10**9
TB = 10**12
ALL = DatasetFilter(("*:*",), files=(1, 10**6), mean_file=(1, 10**15))
NO_LIMITS = Limits(total=1e15, per_site=1e15, rules_per_hour=10**9, files_in_flight=10**9)


def flow(source: str, destination: str, gbps: float, **more: Any) -> Flow:
    """A flow of `gbps` Gb/s for a day from START, in scenario `test` unless told otherwise."""
    values: dict[str, Any] = {
        "scenario": "test",
        "rate": gbps * 1e9 / 8,
        "start": START,
        "end": START + timedelta(days=1),
        "datasets": ALL,
        "lifetime_min": timedelta(hours=1),
        "lifetime_max": timedelta(hours=2),
        **more,
    }
    return Flow(link=Link(source, destination), **values)


def file_flow(source: str, destination: str, gbps: float, **more: Any) -> Flow:
    """A flow through FTS between the storages of two hosts, with jobs of at most ten files."""
    job = JobOptions(files=10, longest_transfer=timedelta(minutes=20))
    one = flow(url(source), url(destination), gbps, datasets=FileFilter(folder="", size=(1, 10**15)), job=job)
    return replace(one, link=one.link._replace(through="fts"), **more)


def url(host: str) -> str:
    """The URL prefix of a host's storage."""
    return f"davs://{host.lower()}.example.org/dc"


def source_files(source: str, count: int, size: int = GB) -> dict[str, list[Item]]:
    """Files of one size at a host's storage."""
    place = url(source)
    return {place: [File(f"{place}/data/{n:04}", size, f"adler32:{n:08x}") for n in range(count)]}


def campaign(flows: Sequence[Flow], **more: Any) -> Campaign:
    """A campaign of one menu that holds these flows."""
    values: dict[str, Any] = {"limits": NO_LIMITS, "cycle": CYCLE, **more}
    menu = Menu(
        name="test.yaml",
        campaign="test",
        contact="test@example.org",
        start=min(f.start for f in flows),
        end=max(f.end for f in flows),
        flows=tuple(flows),
        **values,
    )
    return Campaign("test", "test@example.org", menu.cycle, (menu,))


def items(source: str, count: int, size: int = 100 * GB, files: int = 50) -> list[Item]:
    """Datasets of one size at a source."""
    return [Dataset(f"cms:/{source}/data#{number:04}", size, files) for number in range(count)]


@dataclass
class Heard:
    """An observer that keeps what it hears, and can do something at an event."""

    events: list[Event] = field(default_factory=list)
    at: dict[type[Event], Callable[[], object]] = field(default_factory=dict)
    forgiving: bool = False  # whether errors that nobody expected are what a test is about

    def event(self, event: Event) -> None:
        assert self.forgiving or not isinstance(event, UnexpectedError), event
        self.events.append(event)
        if type(event) in self.at:
            self.at[type(event)]()

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of a kind, in their order."""
        return [event for event in self.events if isinstance(event, kind)]


LEFT_OPEN = ExitStack()  # what conftest.py closes after each test


def opened(path: Path) -> Ledger:
    """The world's ledger, opened once more."""
    return LEFT_OPEN.enter_context(Ledger.open(path / "test.sqlite", synchronous="OFF"))


@dataclass
class World:
    """Everything an engine needs, kept between engines, so that one may die and another go on."""

    path: Path
    menus: Callable[[], Campaign]
    clock: SimClock
    backend: SimBackend
    ledger: Ledger
    heard: Heard = field(default_factory=Heard)
    settings: Settings = Settings()
    others: list[SimBackend] = field(default_factory=list)
    alone: Alone | None = None

    @property
    def backends(self) -> list[SimBackend]:
        """All services of this world."""
        return [self.backend, *self.others]

    def join(self, backend: SimBackend) -> None:
        """Add a service that the campaign uses as well."""
        self.ledger.bind("test", CYCLE, (backend.check(),), self.clock.now())
        self.others.append(backend)

    def engine(self) -> Engine:
        return Engine(
            menus=self.menus,
            ledger=self.ledger,
            backends={backend.name: backend for backend in self.backends},
            identities={backend.name: backend.check() for backend in self.backends},
            clock=self.clock,
            executor=InlineExecutor(self.clock),
            observer=self.heard,
            settings=self.settings,
            alone=self.alone,
            machine=self.clock if isinstance(self.clock, MachineClock) else None,
        )

    def run(self, cycles: int | None = None, **more: Any) -> None:
        """Run an engine for so many cycles from now (or to the menus' end), without or with its drain."""
        until = None if cycles is None else self.clock.now() + cycles * CYCLE
        self.engine().run(until=until, **more)


def world(path: Path, made: Campaign | Callable[[], Campaign], stock: dict[str, list[Item]], **more: Any) -> World:
    """A world at START with this stock of datasets."""
    clock = more.pop("clock", SimClock(START))
    settings = more.pop("settings", Settings(drain=False, poll=CYCLE / 5))
    backend = SimBackend(clock, stock, **more)
    ledger = opened(path)
    menus = made if callable(made) else lambda: made
    ledger.bind("test", CYCLE, (backend.check(),), clock.now())
    return World(path, menus, clock, backend, ledger, settings=settings)
