"""The places that the suite of behaviour runs at: simulations, a Rucio and an FTS in memory, and real ones."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest

from dc_inject.apps.twin.grid.description import Grid, Site, Stock, Storage
from dc_inject.backends.fts import FtsBackend
from dc_inject.backends.rucio import RucioBackend
from dc_inject.backends.sim import SimClock
from dc_inject.credentials import Credentials
from dc_inject.model import (
    Bundle,
    Cycle,
    Dataset,
    DatasetFilter,
    File,
    FileFilter,
    Injection,
    Item,
    JobOptions,
    Link,
)
from dc_inject.model.naming import Origin
from dc_inject.model.ports import Backend
from dc_inject.sandbox import Rse, Sandbox, make_datasets
from dc_inject.system.clock import SystemClock
from tests.sim import SimBackend

from ...conftest import rucio_config
from ..fake import GB, FakeRse, FakeRucio
from ..fts.keys import Keys, Opens
from ..fts.service import running
from ..fts.store import Store
from ..support import CYCLE, Heard, fts3_or_skip, injection

TESTS = 20  # more than there are
PATIENCE = 300.0  # seconds that a real grid may take
FROM, TO = "T2_XX_From", "T2_XX_To"
ORIGIN = Origin("0123456789abcdef" * 2, "ops@vobox, process 7", "1/2")
FILES = 2  # of a bundle


@dataclass
class Place:
    """A back end, a link with something at its source, and a way to let time pass until something holds.

    `items` are what is injected, `stock` what an inventory finds; through FTS those are bundles of files, and
    files.
    """

    backend: Backend
    link: Link
    items: Sequence[Item]
    wanted: DatasetFilter | FileFilter
    until: Callable[[Callable[[], object]], None]
    cycle: Cycle = CYCLE

    @property
    def stock(self) -> list[Item]:
        """What an inventory of the source has to find."""
        if self.link.service.cleans_up:
            return list(self.items)
        return [member for item in self.items for member in item.members]

    def injections(self, *numbers: int, **more: Any) -> list[Injection]:
        """Injections of the items with these numbers."""
        job = None if self.link.service.cleans_up else JobOptions(retry=0, longest_transfer=timedelta(seconds=1))
        values = {"cycle": self.cycle, "job": job, **more}
        return [injection(self.items[n], self.link, **values) for n in numbers]

    def without(self, item: Item) -> DatasetFilter | FileFilter:
        """A filter that leaves one of the stock out."""
        if isinstance(self.wanted, DatasetFilter):
            return replace(self.wanted, exclude=(item.name,))
        assert item.name.endswith("f0")
        return replace(self.wanted, pattern="*[!0]")


def at(*names: str) -> list[Any]:
    """Places by name, those on real services marked so."""
    real = {"sandbox", "storages"}
    return [pytest.param(name, marks=pytest.mark.sandbox) if name in real else name for name in names]


# The simulation has no catalogue: it takes every item.
REAL_CATALOGUES = at("fake", "sandbox")
DATASETS = at("sim", "twin", "fake", "sandbox")
FTS = at("fts", "storages")
FILES_PLACES = at("sim-files", "fts", "storages")


@pytest.fixture(params=[*DATASETS, *FILES_PLACES])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    makers: dict[str, Callable[[pytest.FixtureRequest], Iterator[Place]]] = {
        "sim": _sim,
        "twin": _twin,
        "fake": _fake,
        "sandbox": _sandbox,
        "sim-files": _sim_files,
        "fts": _fts,
        "storages": _storages,
    }
    yield from makers[request.param](request)


# ---------------------------------------------------------------------------------------- datasets through Rucio


def _items() -> list[Item]:
    return [Dataset(f"cms:/data/RAW#{number}", 6 * GB, 3) for number in range(4)]


def _filter(prefix: str) -> DatasetFilter:
    return DatasetFilter((f"cms:{prefix}*",), exclude=("cms:*nothing*",), mean_file=(1, 10**12))


def _patiently(step: Callable[[], None]) -> Callable[[Callable[[], object]], None]:
    def until(holds: Callable[[], object]) -> None:
        for _ in range(10):
            if holds():
                return
            step()
        raise AssertionError("not in time")

    return until


def _really(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.2)  # a real grid needs its time


def _minute(clock: SimClock) -> None:
    clock.advance(clock.now() + timedelta(minutes=1))


def _sim(_request: pytest.FixtureRequest) -> Iterator[Place]:
    clock, items = SimClock(CYCLE.start), _items()
    backend = SimBackend(clock, {FROM: items, TO: []})
    yield Place(backend, Link(FROM, TO), items, _filter("/data/RAW"), _patiently(lambda: _minute(clock)))


def _twin(_request: pytest.FixtureRequest) -> Iterator[Place]:
    pytest.importorskip("numpy")  # an extra
    from dc_inject.apps.twin.backend import TwinBackend, TwinClock  # noqa: PLC0415  they need it
    from dc_inject.apps.twin.grid.world import World  # noqa: PLC0415

    storages = {name: Storage(name, name) for name in (FROM, TO)}
    stock = (Stock((FROM,), 4, (3, 3), (2.0 * GB, 2.0 * GB)),)
    grid = Grid("suite", {name: Site(name) for name in storages}, storages, stocks=stock)
    world = World(grid, 1)
    clock = TwinClock(CYCLE.start, world)
    backend = TwinBackend(world, clock, 1)
    wanted = _filter("/data/RAW")
    items = list(backend.inventory(FROM, wanted))
    yield Place(backend, Link(FROM, TO), items, wanted, _patiently(lambda: _minute(clock)))


def _fake(_request: pytest.FixtureRequest) -> Iterator[Place]:
    server, items = FakeRucio(rses={FROM: FakeRse(), TO: FakeRse()}), _items()
    for item in items:
        server.add(item.name, FROM)
    backend = RucioBackend(
        campaign="test", clock=server.clock, observer=Heard(), make=server.client, origin=ORIGIN
    )

    def step() -> None:
        server.complete()
        server.clock.time += timedelta(minutes=1)
        server.clean()

    yield Place(backend, Link(FROM, TO), items, _filter("/data/RAW"), _patiently(step))


@pytest.fixture(scope="session")
def real_link(sandbox: Sandbox) -> tuple[Link, Iterator[Item]]:
    """A link of the real grid that is ours alone, and datasets at its source that no test has had yet."""
    label = uuid.uuid4().hex[:8].upper()
    link = Link(f"T2_XX_{label}_From", f"T2_XX_{label}_To")
    datasets = make_datasets(link.source, TESTS * 4, seed=label, files=(2, 3))
    sandbox.add([Rse(link.source, 10**16), Rse(link.destination, 10**15)], {link.source: datasets})
    return link, iter([Dataset(f"{d.scope}:{d.name}", d.size, len(d.files)) for d in datasets])


def _sandbox(request: pytest.FixtureRequest) -> Iterator[Place]:
    grid: Sandbox = request.getfixturevalue("sandbox")
    link, unused = request.getfixturevalue("real_link")
    items = list(islice(unused, 4))
    clock = SystemClock()
    with rucio_config(grid.config):
        backend = RucioBackend(campaign="test", clock=clock, observer=Heard(), origin=ORIGIN)
        datasets = DatasetFilter(tuple(f"{item.name}*" for item in items), mean_file=(1, 10**12))
        yield Place(backend, link, items, datasets, _really, Cycle.at(clock.now(), timedelta(seconds=15)))


# ---------------------------------------------------------------------------------------- files through FTS


def _bundles(files: Sequence[Item]) -> list[Item]:
    parts = [tuple(files[start : start + FILES]) for start in range(0, len(files), FILES)]
    return [
        Bundle(f"bundle {n}", sum(file.bytes for file in part), len(part), members=part)
        for n, part in enumerate(parts)
    ]


def _sim_files(_request: pytest.FixtureRequest) -> Iterator[Place]:
    source, destination = "davs://a/data", "davs://b/dc"
    clock, files = SimClock(CYCLE.start), [File(f"{source}/f{n}", GB + n) for n in range(4 * FILES)]
    backend = SimBackend(clock, {source: files, destination: []}, name="fts")
    link = Link(source, destination, "fts")
    yield Place(backend, link, _bundles(files), FileFilter(folder=""), _patiently(lambda: _minute(clock)))


def _fts(request: pytest.FixtureRequest) -> Iterator[Place]:
    """An FTS in memory, spoken to by the real client over HTTP, and a storage in memory."""
    fts3_or_skip()
    source, destination = "davs://a/data", "davs://b/dc"
    clock, store = SimClock(CYCLE.start), Store(free=10**15)
    files = [File(f"{source}/f{n}", GB + n) for n in range(4 * FILES)]
    for file in files:
        store.put(file.name, file.bytes)
    store.put(f"{destination}/theirs", 1)
    with running(store) as service:
        backend = FtsBackend(
            service.url,
            campaign="test",
            clock=clock,
            observer=Heard(),
            credentials=Keys({"fts": Opens("a-token")}),
            storage=store,
            origin=ORIGIN,
        )

        def step() -> None:
            service.finish()
            _minute(clock)

        link = Link(source, destination, "fts")
        yield Place(backend, link, _bundles(files), FileFilter(folder=""), _patiently(step))


def _storages(request: pytest.FixtureRequest) -> Iterator[Place]:
    """The sandbox's FTS and real storages."""
    fts3_or_skip()
    grid: Sandbox = request.getfixturevalue("storage_grid")
    label, clock = uuid.uuid4().hex[:8], SystemClock()
    source, destination = (f"{grid.storages[name]}/suite/{label}" for name in ("XRD1", "XRD2"))
    files = []
    for n in range(4 * FILES):
        stored = grid.put("XRD1", f"/suite/{label}/f{n}", 100_000 + n, seed=f"{label} {n}")
        files.append(File(f"{source}/f{n}", stored.size, f"adler32:{stored.adler32}"))
    backend = FtsBackend(
        grid.fts_url,
        campaign="test",
        clock=clock,
        observer=Heard(),
        credentials=Credentials({}, clock, uid=-1),
        origin=ORIGIN,
    )
    link, cycle = Link(source, destination, "fts"), Cycle.at(clock.now(), timedelta(seconds=15))
    bundles = _bundles(files)
    yield Place(backend, link, bundles, FileFilter(folder=""), _really, cycle)
