"""Fixtures that several parts of the tests use: the sandbox, its environment, and fresh things in it."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from rucio.client import Client
from rucio.common.config import clean_cached_config
from xdist.scheduler import LoadFileScheduling

from dc_inject.ledger import Ledger, in_place
from dc_inject.model.errors import ServiceError
from dc_inject.sandbox import (
    RELEASES,
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
from tests import guard, warm_workers
from tests import wording as golden
from tests.engine.world import LEFT_OPEN

wording = golden.wording  # for all tests

HERE = Path(__file__).parent

# No test depends on how fast a machine is; with CI set, hypothesis also takes the same examples each time.
settings.register_profile(
    "any machine", deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("unit", settings.get_profile("any machine"), max_examples=5)
settings.load_profile("any machine")


# All modules and tests stay until the end: to walk them again and again for garbage takes a tenth of a run.
gc.set_threshold(100_000, 20, 20)

# Of the sandboxes' Rucio server; `make releases` runs the tests with each.
RELEASE = os.environ.get("DC_INJECT_SANDBOX_RUCIO") or RELEASES[0]

# Seconds between two passes of the daemons: a pass costs a tenth of a second, however little it finds to do.
INTERVAL = 0.5

# Who uses the storages of `storage_grid`, and disturbs them: one worker of a parallel run does a set's files, one
# by one, on a grid of its own.
STORAGE_USERS = (
    frozenset(
        f"tests/{name}.py" for name in ("e2e/test_files", "e2e/test_rebuild", "backends/suite/test_behaviour")
    ),
    frozenset(
        f"tests/{name}.py"
        for name in (
            "backends/test_fts_real", "e2e/test_data", "e2e/test_files_trouble", "e2e/test_control",
            "e2e/test_online", "hostile/test_some", "sandbox/fts/test_with_xrootd", "sandbox/test_commands",
            "e2e/test_reads", "sandbox/test_reach", "sandbox/test_real_bytes", "sandbox/test_storages",
        )
    ),
)  # fmt: skip

# Files that one worker does one by one; the last set disturbs `generic_grid`.
TOGETHER = (*STORAGE_USERS, frozenset({"tests/e2e/test_own_grid.py", "tests/sandbox/test_updown.py"}))

# Long tests that need no service: other workers do them while the first one makes the sandbox's environment.
MEANWHILE = frozenset(f"tests/engine/test_{name}.py" for name in ("crashes", "day", "soak"))

# Folders of tests that wait for services, or simulate days.
LONG = ("e2e", "chaos", "sandbox", "backends", "engine")

# The part of the files that need no service which is done between those that wait for one: both at a time leave no
# processor idle, and in the end there are only short ones.
BETWEEN = 0.4


def pytest_configure(config: pytest.Config) -> None:
    """Have somebody who ends sandboxes when this run is killed; no defaults of a person's own count here."""
    os.environ["XDG_CONFIG_HOME"] = "/nonexistent"
    if guard.MARK in os.environ:
        return  # a worker, or a run within a run
    os.environ[guard.MARK] = mark = uuid.uuid4().hex
    clean = {name: value for name, value in os.environ.items() if name != guard.MARK}
    command = [sys.executable, str(HERE / "guard.py"), mark]
    watching = subprocess.Popen(command, stdin=subprocess.PIPE, env=clean, start_new_session=True)
    config.add_cleanup(lambda: watching.communicate() and os.environ.pop(guard.MARK))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put what takes long first, so that no worker of a parallel run begins it when the others are done."""
    golden.select(config, items)
    rank = {folder: number for number, folder in enumerate(LONG)}

    def place(item: pytest.Item) -> tuple[int, bool, int]:
        file, folder = _file(item.nodeid), item.path.parts[len(HERE.parts)]
        return _together(file), file not in MEANWHILE, rank.get(folder, len(rank))

    items.sort(key=place)
    at_once = sum(place(item) < (len(TOGETHER), True) for item in items)
    items[at_once:] = _mixed(items[at_once:])


def _mixed(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Spread files that need no service evenly between those that do, and leave the rest to the end."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(_file(item.nodeid), []).append(item)
    waiting = [some for some in files.values() if any(one.get_closest_marker("sandbox") for one in some)]
    others = [some for some in files.values() if some not in waiting]
    share = BETWEEN * len(others) / max(len(waiting), 1)
    for number, some in enumerate(waiting):
        yield from chain(some, *others[round(number * share) : round((number + 1) * share)])
    yield from chain(*others[round(len(waiting) * share) :])


def pytest_sessionfinish() -> None:
    """Write golden files when this run is for that."""
    golden.write()


class TogetherOnGrids(LoadFileScheduling):
    """Gives each file to one worker, and each set of TOGETHER, too."""

    def _split_scope(self, nodeid: str) -> str:
        file = _file(nodeid)
        number = _together(file)
        return f"grid {number}" if number < len(TOGETHER) else file


def pytest_xdist_setupnodes(config: pytest.Config, specs: Iterable[Any]) -> None:
    """Start the workers of a parallel run warm."""
    warm_workers.fork(config, specs)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> TogetherOnGrids | None:
    """Take it for `--dist loadfile`."""
    return TogetherOnGrids(config, log) if config.getvalue("dist") == "loadfile" else None


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _together(file: str) -> int:
    """Return which set of TOGETHER a file is in; their number for one in none."""
    return next((number for number, users in enumerate(TOGETHER) if file in users), len(TOGETHER))


@pytest.fixture(autouse=True)
def ledgers_of_worlds_are_closed() -> Iterator[None]:
    """Leave no ledger open; Python 3.13 warns of each, at any later time."""
    yield
    LEFT_OPEN.close()


@pytest.fixture(autouse=True)
def the_log_is_as_before() -> Iterator[None]:
    """Undo what a command has set: after one with --quiet no other test would hear anything but warnings."""
    ours = logging.getLogger("dc_inject")
    ours.setLevel(logging.NOTSET)  # a fixture of a whole module may have run one
    before = logging.root.handlers[:], logging.root.level
    yield
    for handler in logging.root.handlers:
        if handler not in before[0]:
            handler.close()  # it may have a file
    logging.root.handlers[:] = before[0]
    logging.root.setLevel(before[1])
    ours.setLevel(logging.NOTSET)


def heed_signals() -> None:
    """Take SIGINT and SIGHUP though they were ignored at the start: what is started from now on has both.

    SIGHUP changes nothing here: a run under `nohup` goes on.
    """
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: lambda *_: None}
    for number, handler in handlers.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def _signals_heeded() -> None:
    """Let signals reach what tests start, also under `nohup`, and as a background job of a shell."""
    heed_signals()


@pytest.fixture(scope="session", autouse=True)
def no_ledger_waits_for_the_disk() -> Iterator[str]:
    """Let commands of this process write without it, as tests do that open a ledger: no power is cut here.

    Yields the default of the ledger, which users have.
    """
    defaults = Ledger.open.__func__.__kwdefaults__  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        default = defaults["synchronous"]
        patch.setitem(defaults, "synchronous", "OFF")
        yield default


@pytest.fixture(scope="session", autouse=True)
def make_empty_file(
    no_ledger_waits_for_the_disk: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Path], None]]:
    """Begin each ledger as a copy of one that was just made: to make its tables takes two thirds of an opening.

    Yields what begins it for users: as an empty file.
    """
    made = tmp_path_factory.mktemp("ledger") / "empty.sqlite"
    Ledger.open(made).close()
    make_file, empty = in_place.make_file, made.read_bytes()

    def copied(path: Path) -> None:
        make_file(path)
        if not path.stat().st_size:
            path.write_bytes(empty)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(in_place, "make_file", copied)
        yield make_file


@pytest.fixture
def signals_of_a_terminal() -> Iterator[None]:
    """Have signals do what they do in a terminal; nohup ignores SIGHUP, and background jobs of a shell SIGINT."""
    usual = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def sandbox_env() -> Path:
    """The Rucio server's environment, made when missing; if that fails tests are skipped, in CI they fail."""
    folder = Path(os.environ.get("DC_INJECT_SANDBOX_ENV") or default_environment(RELEASE))
    try:
        ensure_environment(folder, lambda line: None, RELEASE)
    except ServiceError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no Rucio server for the sandbox: {error}")
    return folder


@pytest.fixture(scope="session")
def sandbox(sandbox_env: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A running sandbox, one for all of this test run: do nothing to it that disturbs others.

    It is the default grid with a tenth of the datasets, which is up sooner.

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
        if not (_living(users) and grid.status().daemons):  # else it is up, however slow its answers are
            grid.up(grid=_lighter(read_grid()), env=sandbox_env, interval=INTERVAL)
        me.touch()
    try:
        yield grid
    finally:
        with locked(users, lambda line: None):
            me.unlink()
            if not _living(users):
                grid.down()


def _living(users: Path) -> bool:
    """Return whether a process lives of those that have left their ids in a folder."""
    return any(Path("/proc", user.name).exists() for user in users.iterdir())


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
    """A running sandbox with three storages (XRD1 to XRD3) and the FTS service, for the files of STORAGE_USERS.

    A test may stop, throttle and fill them, and leaves them running, fast, and without files of its own.
    Beside the storages' RSEs there are two without bytes, T2_CH_CERN and T1_DE_KIT_Disk.
    """
    user = _file(os.environ["PYTEST_CURRENT_TEST"])
    assert _together(user) < len(STORAGE_USERS), (
        f"{user} uses the storages and is not among STORAGE_USERS of tests/conftest.py"
    )
    longer_than_a_socket_may_be = "sandbox-" * 14
    grid = Sandbox(tmp_path_factory.mktemp("storage") / longer_than_a_socket_may_be)
    grid.up(
        grid=_two(read_grid()), env=sandbox_env, interval=INTERVAL, storage="xrootd", xrootd=xrootd,
        time_scale=1 / 60,
    )  # fmt: skip
    try:
        yield grid
    finally:
        grid.down()


SMALL = """
seed: 1
scopes: [cms]
account: {name: dcops, quota: 400 TB}
rses:
  T2_CH_CERN: {tier: 0, space: 5 PB}
  T1_DE_KIT_Disk: {tier: 1, space: 1 PB}
default_link: {rate: 10 Tb/s}
datasets:
  - {sources: [T2_CH_CERN], scope: cms, count: 6, files: 2..4, file_size: 1 GB..2 GB}
"""


@pytest.fixture(scope="session")
def small_grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The description of a grid of two RSEs."""
    file = tmp_path_factory.mktemp("grid") / "small.yaml"
    file.write_text(SMALL)
    return file


@pytest.fixture(scope="session")
def generic_grid(
    sandbox_env: Path, small_grid: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sandbox]:
    """A small sandbox with Rucio's generic permissions; a test may stop parts of it, and starts them again."""
    assert _file(os.environ["PYTEST_CURRENT_TEST"]) in TOGETHER[-1]
    grid = Sandbox(tmp_path_factory.mktemp("generic") / "sandbox")
    grid.up(grid=small_grid, policy="generic", env=sandbox_env, interval=INTERVAL)
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
    """Take a tenth of the datasets, and none of those with few files."""
    large = {source: [one for one in some if len(one.files) >= 5] for source, some in grid.datasets.items()}
    return replace(grid, datasets={source: tuple(some[::10]) for source, some in large.items()})


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
