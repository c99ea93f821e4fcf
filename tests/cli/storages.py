"""A small FTS with storages for tests of commands: spoken to by the real client, storages in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from dc_inject.backends.fts import FtsBackend
from dc_inject.backends.fts.inventory import Replicas
from dc_inject.backends.sim import SimClock
from dc_inject.model.events import Silent
from dc_inject.storage import Reach
from tests.backends.fts.keys import TOKEN, Keys
from tests.backends.fts.service import FakeFts, running
from tests.backends.fts.store import Store
from tests.cli.ledgers import START

__all__ = ["TOKEN", "Open", "a_service"]


class Open(Store):
    """Storages that exist wherever one looks."""

    def reachable(self, url: str) -> Reach:
        return replace(super().reachable(url), exists=True)


@contextmanager
def a_service(
    storage: Store,
    monkeypatch: pytest.MonkeyPatch,
    replicas: Replicas | None = None,
    clock: SimClock | None = None,
) -> Iterator[tuple[FakeFts, FtsBackend]]:
    """Run a service, and give the back end that speaks to it and to storages in memory, with a token.

    `replicas` stands for Rucio, where a menu names datasets.
    """
    for name in ("X509_USER_PROXY", "X509_USER_CERT", "X509_USER_KEY", "X509_CERT_DIR", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    with running(storage) as fts:
        yield (
            fts,
            FtsBackend(
                fts.url,
                campaign="test",
                clock=clock or SimClock(START),
                observer=Silent(),
                credentials=Keys(),
                storage=storage,
                timeout=30.0,
                replicas=replicas,
            ),
        )
