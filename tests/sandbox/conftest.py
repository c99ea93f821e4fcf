"""A small grid that a test may disturb."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dc_inject.sandbox import Sandbox

SMALL = """
seed: 1
scopes: [cms]
account: {name: dcops, quota: 1 TB}
rses:
  T2_CH_CERN: {tier: 0, space: 5 PB}
  T1_DE_KIT_Disk: {tier: 1, space: 1 PB}
default_link: {rate: 10 Tb/s}
datasets:
  - {sources: [T2_CH_CERN], scope: cms, count: 6, files: 2..4, file_size: 1 GB..2 GB}
"""


@pytest.fixture(scope="session")
def small_grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("grid") / "small.yaml"
    file.write_text(SMALL)
    return file


@pytest.fixture(scope="module")
def small(sandbox_env: Path, small_grid: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A running sandbox of the module's own, with Rucio's generic permissions."""
    grid = Sandbox(tmp_path_factory.mktemp("small") / "sandbox")
    grid.up(grid=small_grid, policy="generic", env=sandbox_env)
    try:
        yield grid
    finally:
        grid.down()
