"""Fixtures that several parts of the tests use: the sandbox, its environment, and fresh things in it."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from rucio.client import Client
from rucio.common.config import clean_cached_config

from dc_inject.errors import ServiceError
from dc_inject.sandbox import (
    Dataset,
    Grid,
    Rse,
    Sandbox,
    default_environment,
    default_xrootd,
    ensure_environment,
    ensure_xrootd,
    make_datasets,
    read_grid,
)
from dc_inject.sandbox.locking import locked
from tests import guard
from tests.engine.world import LEFT_OPEN

HERE = Path(__file__).parent

# No test depends on how fast a machine is; with CI set, hypothesis also takes the same examples each time.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


# Folders of tests that wait for services, or simulate days.
LONG = ("e2e", "chaos", "sandbox", "backends", "engine")


def pytest_configure(config: pytest.Config) -> None:
    """Have somebody who ends sandboxes when this run is killed."""
    if guard.MARK in os.environ:
        return  # a worker, or a run within a run
    os.environ[guard.MARK] = mark = uuid.uuid4().hex
    clean = {name: value for name, value in os.environ.items() if name != guard.MARK}
    command = [sys.executable, str(HERE / "guard.py"), mark]
    watching = subprocess.Popen(command, stdin=subprocess.PIPE, env=clean, start_new_session=True)
    config.add_cleanup(lambda: watching.communicate() and os.environ.pop(guard.MARK))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what takes long first, so that no worker of a parallel run begins it when the others are done."""
    rank = {folder: number for number, folder in enumerate(LONG)}
    items.sort(key=lambda item: rank.get(item.path.parts[len(HERE.parts)], len(rank)))


@pytest.fixture(autouse=True)
def ledgers_of_worlds_are_closed() -> Iterator[None]:
    """Leave no ledger open; Python 3.13 warns of each, at any later time."""
    yield
    LEFT_OPEN.close()


@pytest.fixture(scope="session")
def sandbox_env() -> Path:
    """The Rucio server's environment, made when missing; if that fails tests are skipped, in CI they fail."""
    folder = Path(os.environ.get("DC_INJECT_SANDBOX_ENV") or default_environment())
    try:
        ensure_environment(folder, lambda line: None)
    except ServiceError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no Rucio server for the sandbox: {error}")
    return folder


@pytest.fixture(scope="session")
def sandbox(sandbox_env: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A running sandbox, one for all of this test run: do nothing to it that disturbs others.

    It is the default grid with a third of the datasets, which is up sooner.

    The workers of a parallel run share it: each leaves its process id in a folder, and the last one out
    takes the sandbox down.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    users = shared / "sandbox-users"
    grid = Sandbox(shared / "sandbox")
    me = users / str(os.getpid())
    with locked(users, lambda line: None):
        users.mkdir(exist_ok=True)
        me.touch()
        grid.up(grid=_lighter(read_grid()), env=sandbox_env)
    try:
        yield grid
    finally:
        with locked(users, lambda line: None):
            me.unlink()
            if not any(Path("/proc", user.name).exists() for user in users.iterdir()):
                grid.down()


@pytest.fixture(scope="session")
def xrootd() -> Path:
    """Where XRootD is when the system has none; without it tests are skipped, in CI they fail."""
    folder = Path(os.environ.get("DC_INJECT_SANDBOX_XROOTD") or default_xrootd())
    try:
        ensure_xrootd(folder, lambda line: None)
    except ServiceError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"{error} ({error.hint})")
    return folder


@pytest.fixture(scope="session")
def storage_grid(sandbox_env: Path, xrootd: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A running sandbox with three storages (XRD1 to XRD3) and the FTS service, one for each worker.

    A test may stop, throttle and fill them, and leaves them running, fast, and without files of its own.
    Beside the storages' RSEs there are two without bytes, T2_CH_CERN and T1_DE_KIT_Disk.
    """
    longer_than_a_socket_may_be = "sandbox-" * 14
    grid = Sandbox(tmp_path_factory.mktemp("storage") / longer_than_a_socket_may_be)
    grid.up(grid=_two(read_grid()), env=sandbox_env, interval=0.1, storage="xrootd", xrootd=xrootd)
    try:
        yield grid
    finally:
        grid.down()


def _two(grid: Grid) -> Grid:
    """Take two RSEs of a grid, and a few datasets at the first."""
    first, second = "T2_CH_CERN", "T1_DE_KIT_Disk"
    rses = tuple(rse for rse in grid.rses if rse.name in (first, second))
    return replace(grid, rses=rses, links={}, datasets={first: grid.datasets[first][:6]})


def _lighter(grid: Grid) -> Grid:
    return replace(grid, datasets={source: some[::3] for source, some in grid.datasets.items()})


@pytest.fixture
def fresh_link(sandbox: Sandbox) -> Callable[..., tuple[str, str, tuple[Dataset, ...]]]:
    """Make an empty destination and a source with datasets that no other test knows; returns the three."""

    def make(
        count: int = 3, space: int = 10**15, **shape: tuple[int, int]
    ) -> tuple[str, str, tuple[Dataset, ...]]:
        label = uuid.uuid4().hex[:8].upper()
        source, destination = f"T2_XX_{label}_From", f"T2_XX_{label}_To"
        datasets = make_datasets(source, count, seed=label, **({"files": (2, 4)} | shape))
        sandbox.add([Rse(source, 10**16), Rse(destination, space)], {source: datasets})
        return source, destination, datasets

    return make


@contextmanager
def rucio_config(config: Path) -> Iterator[None]:
    """Let rucio-clients read this rucio.cfg inside the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUCIO_CONFIG", str(config))
        clean_cached_config()
        yield
    clean_cached_config()


def client_for(config: Path) -> Client:
    """Make a plain Rucio client from a rucio.cfg (`sandbox.config` or `sandbox.root_config`)."""
    with rucio_config(config):
        return Client()
