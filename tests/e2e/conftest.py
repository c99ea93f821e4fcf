"""The command line against the sandbox of this test run."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from dc_inject.sandbox import Sandbox
from tests.e2e.tool import Tool


@pytest.fixture
def tool(sandbox: Sandbox, tmp_path: Path) -> Iterator[Tool]:
    """The command line as the sandbox's ordinary account, with a state folder of its own."""
    made = Tool(tmp_path, sandbox.config)
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture
def label() -> str:
    """A word that no other test has in its names."""
    return uuid.uuid4().hex[:8].upper()
