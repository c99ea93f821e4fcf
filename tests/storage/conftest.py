"""A server that can misbehave, and our side of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from dc_inject.storage import WebDav
from tests.storage.server import DavServer, running

TOKEN = "opaque-token-0123456789-abcdefghij-secret"


@dataclass
class Opens:
    """An access that a test can change."""

    token: str = ""
    certificate: str = ""
    key: str = ""
    stamp: object = None


@pytest.fixture
def server() -> Iterator[DavServer]:
    with running() as server:
        yield server


@pytest.fixture
def other() -> Iterator[DavServer]:
    with running() as server:
        yield server


@pytest.fixture
def access() -> Opens:
    return Opens(token=TOKEN)


@pytest.fixture
def storage(access: Opens) -> Iterator[WebDav]:
    storage = WebDav(lambda: access, connect=30, read=30)
    yield storage
    storage.close()


@pytest.fixture
def hasty(access: Opens) -> Iterator[WebDav]:
    """One that does not wait for an answer, for servers that never give one."""
    storage = WebDav(lambda: access, connect=30, read=0.2)
    yield storage
    storage.close()
