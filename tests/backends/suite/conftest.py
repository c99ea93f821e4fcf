"""The places that the suite of behaviour runs at: a simulation, a Rucio in memory, and a real one."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest

from dc_inject.backends.rucio import RucioBackend
from dc_inject.backends.sim import SimBackend, SimClock
from dc_inject.clock import SystemClock
from dc_inject.model import Cycle, DatasetFilter, Injection, Item, Link
from dc_inject.ports import Backend
from dc_inject.sandbox import Rse, Sandbox, make_datasets

from ...conftest import rucio_config
from ..fake import GB, FakeRse, FakeRucio
from ..support import CYCLE, Heard, injection

TESTS = 20  # more than there are
PATIENCE = 60.0  # seconds that a real grid may take
FROM, TO = "T2_XX_From", "T2_XX_To"


@dataclass
class Place:
    """A back end, a link with datasets at its source, and a way to let time pass until something holds."""

    backend: Backend
    link: Link
    items: Sequence[Item]
    datasets: DatasetFilter
    until: Callable[[Callable[[], object]], None]
    cycle: Cycle = CYCLE

    def injections(self, *numbers: int, **more: Any) -> list[Injection]:
        """Injections of the datasets with these numbers."""
        return [injection(self.items[n], self.link, **{"cycle": self.cycle, **more}) for n in numbers]


# The simulation has no catalogue: it takes every item.
REAL_CATALOGUES = ["fake", pytest.param("sandbox", marks=pytest.mark.sandbox)]


@pytest.fixture(params=["sim", *REAL_CATALOGUES])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == "sandbox":
        yield from _sandbox(request)
    else:
        yield {"sim": _sim, "fake": _fake}[request.param]()


def _items() -> list[Item]:
    return [Item(f"cms:/data/RAW#{number}", 6 * GB, 3) for number in range(4)]


def _filter(prefix: str) -> DatasetFilter:
    return DatasetFilter((f"cms:{prefix}*",), exclude=("cms:*nothing*",), mean_file=(1, 10**12))


def _sim() -> Place:
    clock, items = SimClock(CYCLE.start), _items()
    backend = SimBackend(clock, {FROM: items, TO: []})

    def until(holds: Callable[[], object]) -> None:
        for _ in range(10):
            if holds():
                return
            clock.advance(clock.now() + timedelta(minutes=1))
        raise AssertionError("not in time")

    return Place(backend, Link(FROM, TO), items, _filter("/data/RAW"), until)


def _fake() -> Place:
    server, items = FakeRucio(rses={FROM: FakeRse(), TO: FakeRse()}), _items()
    for item in items:
        server.add(item.name, FROM)
    backend = RucioBackend(campaign="test", clock=server.clock, observer=Heard(), make=server.client)

    def until(holds: Callable[[], object]) -> None:
        for _ in range(10):
            if holds():
                return
            server.complete()
            server.clock.time += timedelta(minutes=1)
            server.clean()
        raise AssertionError("not in time")

    return Place(backend, Link(FROM, TO), items, _filter("/data/RAW"), until)


@pytest.fixture(scope="session")
def real_link(sandbox: Sandbox) -> tuple[Link, Iterator[Item]]:
    """A link of the real grid that is ours alone, and datasets at its source that no test has had yet."""
    label = uuid.uuid4().hex[:8].upper()
    link = Link(f"T2_XX_{label}_From", f"T2_XX_{label}_To")
    datasets = make_datasets(link.source, TESTS * 4, seed=label, files=(2, 3))
    sandbox.add([Rse(link.source, 10**16), Rse(link.destination, 10**15)], {link.source: datasets})
    return link, iter([Item(f"{d.scope}:{d.name}", d.size, len(d.files)) for d in datasets])


def _sandbox(request: pytest.FixtureRequest) -> Iterator[Place]:
    grid: Sandbox = request.getfixturevalue("sandbox")
    link, unused = request.getfixturevalue("real_link")
    items = list(islice(unused, 4))
    clock = SystemClock()

    def until(holds: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, "not in time"
            time.sleep(0.2)  # a real grid needs its time

    with rucio_config(grid.config):
        backend = RucioBackend(campaign="test", clock=clock, observer=Heard())
        datasets = DatasetFilter(tuple(f"{item.name}*" for item in items), mean_file=(1, 10**12))
        yield Place(backend, link, items, datasets, until, Cycle.at(clock.now(), timedelta(seconds=15)))
