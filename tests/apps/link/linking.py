"""The command `dc-inject link` on a simulated service and clock."""

from __future__ import annotations

import importlib
import signal
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dc_inject import menu
from dc_inject.analysis import lint
from dc_inject.apps.preview.online_report import Answers
from dc_inject.assembly import starting
from dc_inject.backends.sim import InlineExecutor, SimClock
from dc_inject.engine.context import Settings
from dc_inject.ledger import LedgerView
from dc_inject.model import Campaign, State
from dc_inject.model.errors import Problem, Temporary
from tests.cli.ledgers import START
from tests.engine.world import GB, items
from tests.sim import SimBackend

A, B = "T1_UK_RAL_Disk", "T2_UK_London_IC"
POLL = timedelta(seconds=20)  # of a simulated clock; a step each two seconds takes most of a test's time
SEARCH = ("--step", "2Gb/s", "--every", "12m", "--until-saturated", "--max", "9Gb/s")


class Executor(InlineExecutor):
    """Runs at once, and has nothing to close."""

    def __init__(self, clock: SimClock, size: int, heartbeat: object = None) -> None:
        super().__init__(clock)
        del size, heartbeat

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signals_of_a_terminal: None
) -> Callable[..., SimBackend]:
    """The command on a simulated clock; returns what makes its service, of a capacity in Gb/s."""
    del signals_of_a_terminal  # the command takes them
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    clock = SimClock(START)

    def made(capacity: float = 1000, **more: Any) -> SimBackend:
        stock = more.pop("stock", {A: items(A, 300, 10 * GB)})
        backend = SimBackend(clock, stock, speed=lambda _link: capacity * 1e9 / 8, **more)
        for name in ("cli.run", "apps.link.command", "apps.smoke.command", "cli.end"):
            module = importlib.import_module(f"dc_inject.{name}")
            monkeypatch.setattr(module, "SystemClock", lambda: clock)
        for name in ("running", "ending"):
            monkeypatch.setattr(f"dc_inject.assembly.{name}.ThreadExecutor", Executor)
        common = importlib.import_module("dc_inject.cli.shared.common")
        monkeypatch.setattr(common, "backends", lambda *_, **__: {backend.name: backend})
        monkeypatch.setattr("dc_inject.apps.link.checks.online.ask", asked)
        monkeypatch.setattr(starting, "Settings", partial(Settings, poll=POLL))
        return backend

    def asked(
        drafts: list[menu.MenuDraft], campaign: Campaign, backends: dict[str, Any], _speed: float
    ) -> Answers:
        """What services tell, as `check --online` has it from real ones."""
        told = Answers(campaign)
        (flow,) = campaign.flows
        (backend,) = backends.values()
        for end in flow.link.ends:
            if flow.link.through == "rucio" and end not in {A, B}:
                told.problems.append(Problem(drafts[0].name, 0, f"rucio knows no RSE {end}", f"its like: {A}"))
            if end in backend.unwritable:
                what = f"in Rucio, {end} is not writable now"
                told.problems.append(Problem(drafts[0].name, 1, what, "ask its site", "storage-unreachable"))
        told.pool_sizes[flow.pool] = there = lint.PoolSize.of(backend.inventory(*flow.pool))
        if not there.datasets and "no-source-files" not in drafts[0].preview.accept:
            what = f"{flow.link.source} has no dataset that the menu takes"
            told.problems.append(Problem(drafts[0].name, 1, what, "look at `datasets`", "no-source-files"))
        return told

    return made


def states(tmp_path: Path, campaign: str) -> set[State]:
    with LedgerView.open(tmp_path / "dc_inject" / f"{campaign}.sqlite") as view:
        assert view.overrides() == ()
        return {entry.state for entry in view.entries()}


def signalled(
    backend, method: str, at: int, number: signal.Signals = signal.SIGINT, *, lost: bool = False
) -> None:
    """Let a signal come during the nth call of a method; `lost` loses that call, too."""
    calls = []

    def fault(called: str, _subject: object) -> None:
        calls.append(called)
        if called == method and calls.count(method) == at:
            signal.raise_signal(number)
            if lost is not None:
                raise Temporary("no answer in time", lost=lost)

    backend.fault = fault
