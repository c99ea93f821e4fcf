"""A Rucio back end on a Rucio in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dc_inject.backends.rucio import RucioBackend
from dc_inject.model import Dataset, Entry, Item, Link

from .fake import GB, FakeRse, FakeRucio
from .support import Heard, injection, live

SOURCE, DESTINATION = "T2_CH_CERN", "T1_DE_KIT_Disk"


@pytest.fixture
def link() -> Link:
    return Link(SOURCE, DESTINATION)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def server() -> FakeRucio:
    """A Rucio with two RSEs and ten datasets of three files of 2 GB at the source."""
    server = FakeRucio(rses={SOURCE: FakeRse(), DESTINATION: FakeRse()})
    for number in range(10):
        server.add(f"cms:/data/RAW#{number}", SOURCE)
    return server


@pytest.fixture
def items(server: FakeRucio) -> list[Item]:
    return [Dataset(f"{scope}:{name}", 6 * GB, 3) for scope, name in server.datasets]


@pytest.fixture
def make(server: FakeRucio, heard: Heard) -> Callable[..., RucioBackend]:
    """Make a back end with bounds of the test's own."""

    def make(**bounds: Any) -> RucioBackend:
        return RucioBackend(
            campaign="test",
            clock=server.clock,
            observer=heard,
            make=server.client,
            sleep=lambda _seconds: None,
            **bounds,
        )

    return make


@pytest.fixture
def backend(make: Callable[..., RucioBackend]) -> RucioBackend:
    return make()


@pytest.fixture
def entries(backend: RucioBackend, items: list[Item], link: Link) -> list[Entry]:
    injections = [injection(item, link) for item in items[:4]]
    return live(injections, backend.submit(injections))
