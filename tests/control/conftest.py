"""A governor and its ledger, for tests of what control lets out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dc_inject.model import FlowKey, Mode
from tests.control.small import AB, Make, Small


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Small] = []

    def one(*keys: FlowKey, mode: Mode = Mode.ACT, name: str = "one", **more: object) -> Small:
        made.append(Small(tmp_path / name, [key.link for key in keys or (AB,)], mode, **more))
        made[-1].plan()
        return made[-1]

    yield one
    for small in made:
        small.ledger.close()
