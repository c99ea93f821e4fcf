"""The twin is tested where numpy is: it is in the lock for tests, but an extra for users.

Tests ask for the same simulations again and again: for people and for programs, alone and as one of several seeds.
Each is run once in a module, and whoever asks for it later gets a copy of its ledger and its world, to read.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import Executor, Future
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from dc_inject.apps.twin import several_seeds, simulation
from dc_inject.ledger import Ledger
from dc_inject.model.errors import Problem

collect_ignore_glob = [] if find_spec("numpy") else ["test_*.py"]


class InThisProcess(Executor):
    """Runs at once what it gets: a process of its own takes a second to start."""

    def __init__(self, _: int, __: object, initializer: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        initializer(*arguments)

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(function(*arguments))
        except Exception as error:  # noqa: BLE001  as in a process
            done.set_exception(error)
        return done


@pytest.fixture
def real_processes() -> None:
    """Ask for it where processes of several seeds are what a test is about."""


@pytest.fixture(autouse=True)
def seeds_in_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate several seeds without processes of their own, unless a test asks for them."""
    if "real_processes" not in request.fixturenames:
        monkeypatch.setattr(several_seeds, "ProcessPoolExecutor", InThisProcess)


class Simulations:
    """Those that have been run, by all that they depend on, with their ledgers in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._run = folder, simulation.run
        self._kept: dict[object, tuple[Path, simulation.Simulated, list[Problem]]] = {}

    def run(
        self,
        request: simulation.Request,
        ledger: Ledger,
        seed: int = 1,
        passed: simulation.Passed = lambda _: None,
        warn: simulation.Warn = lambda _: None,
    ) -> simulation.Simulated:
        """Do what `simulation.run` does; what raises is not kept."""
        folders = {path.parent for path in (*request.menus, request.grid)}  # with what menus include
        texts = [path.read_bytes() for folder in folders for path in sorted(folder.glob("*.yaml"))]
        key = (repr(request), *texts, seed, simulation.Engine)  # type: ignore[attr-defined]
        if key not in self._kept:
            kept, problems = Path(mkdtemp(dir=self._folder), "kept.sqlite"), list[Problem]()
            with simulation.new_ledger(kept) as own:
                made = self._run(request, own, seed, passed, problems.append)
            self._kept[key] = kept, made, problems
        kept, made, problems = self._kept[key]
        passed(1.0)
        for problem in problems:
            warn(problem)
        ledger.close()
        shutil.copy(kept, ledger.path)
        vars(ledger).update(vars(Ledger.open(ledger.path, synchronous="OFF")))
        return made


@pytest.fixture(scope="module", autouse=True)
def simulations_are_shared(tmp_path_factory: pytest.TempPathFactory):
    """Run each simulation of a module once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "run", Simulations(tmp_path_factory.mktemp("simulations")).run)
        yield
