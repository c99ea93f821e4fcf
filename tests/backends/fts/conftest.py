"""An FTS back end on a small FTS and a storage in memory, through the real client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from dc_inject.backends.fts import FtsBackend
from dc_inject.backends.sim import SimClock
from dc_inject.model import Bundle, Entry, File, Injection, JobOptions, Link

from ..support import CYCLE, Heard, fts3_or_skip, injection, live
from .keys import Keys
from .service import FakeFts, running
from .store import Store

SOURCE, DESTINATION = "davs://a:1094/data", "davs://b:1095/dc"
LINK = Link(SOURCE, DESTINATION, "fts")


@pytest.fixture
def store() -> Store:
    store = Store(free=10**15)
    for number in range(20):
        store.put(f"{SOURCE}/f{number}", 1000 + number)
    return store


@pytest.fixture
def fts(store: Store) -> Iterator[FakeFts]:
    with running(store) as service:
        yield service


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def clock() -> SimClock:
    return SimClock(CYCLE.start)


@pytest.fixture
def make(
    fts: FakeFts, store: Store, keys: Keys, heard: Heard, clock: SimClock, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., FtsBackend]:
    """Make a back end with bounds of the test's own."""
    fts3_or_skip()
    for name in ("X509_USER_PROXY", "X509_USER_CERT", "X509_USER_KEY", "X509_CERT_DIR", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)

    def make(endpoint: str = "", **bounds: Any) -> FtsBackend:
        values = {"storage": store, "timeout": 30.0, **bounds}
        return FtsBackend(
            endpoint or fts.url, campaign="test", clock=clock, observer=heard, credentials=keys, **values
        )

    return make


@pytest.fixture
def backend(make: Callable[..., FtsBackend]) -> FtsBackend:
    return make()


def bundle(number: int, files: int = 2, **more: Any) -> Injection:
    """An injection of some of the source's files."""
    members = tuple(
        File(f"{SOURCE}/f{n}", 1000 + n, "adler32:0cc737eb") for n in range(files * number, files * (number + 1))
    )
    item = Bundle(f"bundle {number}", sum(m.bytes for m in members), len(members), members=members)
    options = more.pop("job", JobOptions(scitag=65, longest_transfer=timedelta(minutes=30)))
    return injection(item, more.pop("link", LINK), job=options, **more)


def submitted(backend: FtsBackend, *numbers: int, **more: Any) -> list[Entry]:
    """The entries of bundles that were submitted."""
    made = [bundle(number, **more) for number in numbers]
    return live(made, backend.submit(made))
