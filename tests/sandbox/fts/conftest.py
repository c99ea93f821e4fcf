"""A running FTS service, and storages on addresses that no other test uses."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dc_inject.sandbox.environment import python_of
from tests.sandbox.fts.webdav import Storage

if TYPE_CHECKING:
    from tests.sandbox.fts.service import Fts

NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def shared(sandbox_env: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fts]:
    from tests.sandbox.fts.service import Fts  # noqa: PLC0415 (without the client its tests are skipped, not ours)

    service = Fts(tmp_path_factory.mktemp("fts"), python_of(sandbox_env))
    service.start()
    try:
        yield service
    finally:
        service.stop()


@pytest.fixture
def fts(shared: Fts) -> Iterator[Fts]:
    """A service that this test may change the settings and tokens of."""
    yield shared
    shared.settings()
    shared.tokens()


@pytest.fixture
def own_fts(sandbox_env: Path, tmp_path: Path) -> Iterator[Fts]:
    """A service of the test's own, not started."""
    from tests.sandbox.fts.service import Fts  # noqa: PLC0415 (as above)

    service = Fts(tmp_path, python_of(sandbox_env))
    try:
        yield service
    finally:
        service.kill()


@pytest.fixture
def new_storage() -> Iterator[Callable[[], Storage]]:
    made: list[Storage] = []

    def make() -> Storage:
        number = next(NUMBERS)
        made.append(Storage(f"127.77.{number // 250}.{number % 250 + 1}"))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def source(new_storage: Callable[[], Storage]) -> Storage:
    return new_storage()


@pytest.fixture
def destination(new_storage: Callable[[], Storage]) -> Storage:
    return new_storage()


@pytest.fixture
def context(fts: Fts) -> Any:
    """The client, as anybody on this machine."""
    return fts.context()
