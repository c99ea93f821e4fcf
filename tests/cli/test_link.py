"""`dc-inject link`: one line makes a menu, checks, runs and ends it, and tells what each step has shown."""

from __future__ import annotations

import importlib
import json
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dc_inject import files, lint, menu
from dc_inject.backends.sim import InlineExecutor, SimBackend, SimClock
from dc_inject.errors import ThresholdMissed, UsageError
from dc_inject.ledger import LedgerView
from dc_inject.model import Link, State
from tests.cli.ledgers import START, run
from tests.engine.world import GB, items, source_files, url

A, B = "T1_UK_RAL_Disk", "T2_UK_London_IC"
SEARCH = ("--step", "2Gb/s", "--every", "12m", "--until-saturated", "--max", "9Gb/s")


class Executor(InlineExecutor):
    """Runs at once, and has nothing to close."""

    def __init__(self, clock: SimClock, size: int) -> None:
        super().__init__(clock)
        del size

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., SimBackend]]:
    """The command on a simulated clock; returns what makes its service, of a capacity in Gb/s."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    clock = SimClock(START)

    def made(capacity: float = 1000, **more: Any) -> SimBackend:
        stock = more.pop("stock", {A: items(A, 300, 10 * GB)})
        backend = SimBackend(clock, stock, speed=lambda _link: capacity * 1e9 / 8, **more)
        for name in ("run", "link", "end"):
            module = importlib.import_module(f"dc_inject.cli.{name}")
            monkeypatch.setattr(module, "SystemClock", lambda: clock)
            if hasattr(module, "ThreadExecutor"):
                monkeypatch.setattr(module, "ThreadExecutor", Executor)
        common = importlib.import_module("dc_inject.cli.common")
        monkeypatch.setattr(common, "backends", lambda *_, **__: {backend.name: backend})
        return backend

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield made
    for number, handler in before.items():
        signal.signal(number, handler)


def states(tmp_path: Path, campaign: str) -> set[State]:
    with LedgerView.open(tmp_path / "dc_inject" / f"{campaign}.sqlite") as view:
        assert view.overrides() == ()
        return {entry.state for entry in view.entries()}


def test_a_link_that_takes_it_is_told_and_its_rules_are_ended(service, tmp_path: Path) -> None:
    """The menu is kept, has no finding, and says what was asked for."""
    service()
    done = run("link", A, B, "--rate", "4Gb/s", "--for", "1h", "--campaign", "mini", "--format", "json")
    assert done.exit_code == 0, done.exception
    told = json.loads(done.stdout)
    (step,) = told["steps"]
    assert step["rate"] == 4e9 / 8
    assert step["ratio"] == pytest.approx(1, abs=0.1)
    assert (told["missed"], told["stands"], told["conclusion"]) == (False, None, "every step was reached")
    assert f"menu: {told['menu']}" in done.stderr
    assert "rules, jobs" in done.stderr, "the table of status"
    campaign = menu.campaign([draft.preview for draft in files.read_menus([Path(told["menu"])])])
    assert lint.findings(campaign) == ()
    (flow,) = campaign.flows
    assert (flow.link, flow.rate, flow.start) == (Link(A, B), 4e9 / 8, START)
    assert states(tmp_path, "mini") <= {State.ENDED, State.GONE, State.WITHDRAWN}
    assert (tmp_path / "dc_inject" / "links").stat().st_mode & 0o777 == 0o700


def test_a_search_tells_where_the_link_stands(service, tmp_path: Path) -> None:
    """As a table, with the steps up and the one back; what was on its way is ended."""
    service(5)
    done = run("link", A, B, "--rate", "2Gb/s", *SEARCH, "--campaign", "mini", "--cancel-rate", "60/min")
    assert done.exit_code == 0, done.exception
    lines = done.stdout.splitlines()
    assert [line.split()[1] for line in lines[1:-1]] == ["2", "4", "6", "4"]
    assert [line.split()[-1] for line in lines[1:-1]] == ["step", "step", "back", "stop"]
    assert lines[-1] == f"{A}:{B} stands at 4 Gb/s: at 6 Gb/s only 5 Gb/s moved"
    assert states(tmp_path, "mini") <= {State.ENDED, State.GONE, State.WITHDRAWN}


def test_a_step_that_is_missed_has_an_exit_code_of_its_own(service) -> None:
    """And the verdict is told all the same."""
    service(3)
    done = run(
        "link", A, B, "--rate", "2Gb/s", "--step", "2Gb/s", "--every", "30m", "--for", "1h", "--format", "csv"
    )
    assert isinstance(done.exception, ThresholdMissed)
    assert done.exception.exit_code == 5
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == ["step", "1", "2"]
    assert "missed: 1 of 2 steps" in done.stderr


@pytest.mark.parametrize(
    ("size", "every", "warned"),
    [(10, "30m", False), (50, "30m", True), (45, "30m", False), (50, "1h", False)],
)
def test_steps_of_few_datasets_are_warned_of(service, size: int, every: str, warned: bool) -> None:
    """Once, when less than ten datasets of the mean size fit into a step of 2 Gb/s, with what is better."""
    service(stock={A: items(A, 300, size * GB)})
    done = run("link", A, B, "--rate", "2Gb/s", "--step", "1Gb/s", "--every", every, "--for", "2h")
    assert done.stderr.count("looks like a link that does not follow") == warned
    if warned:
        assert "a step of 30 min at 2 Gb/s holds only 9.0 datasets of 50 GB" in done.stderr
        assert "--every" in done.stderr


def test_through_fts_files_are_counted(service) -> None:
    """There is nothing to slice."""
    service(stock=source_files("A", 100), name="fts", cleans_up=False)
    ends = ("link", url("A"), url("B"), "--fts", "https://fts.example.org:8446")
    done = run(*ends, "--rate", "10Mb/s", "--for", "1h")
    assert "holds only 4.5 files of 1 GB" in done.stderr
    assert "slices" not in done.stderr


def test_ctrl_c_ends_the_rules_and_tells_the_verdict_so_far(service, tmp_path: Path) -> None:
    """Of the step that it cut short, too."""
    calls = []

    def fault(method: str, subject: object) -> None:
        del subject
        calls.append(method)
        if calls.count("submit") == 60:
            calls.append("submit")  # once
            signal.raise_signal(signal.SIGINT)

    service(5).fault = fault
    done = run("link", A, B, "--rate", "2Gb/s", *SEARCH, "--campaign", "mini", "--cancel-rate", "60/min")
    assert done.exit_code == 0, done.exception
    assert "SIGINT: stopping; rules will be ended" in done.stderr
    assert 1 <= len(done.stdout.splitlines()) - 2 < 4
    assert not any(state.in_service for state in states(tmp_path, "mini"))


def test_ending_takes_no_longer_than_the_link_needs(service, tmp_path: Path) -> None:
    """One rule in 15 minutes would take hours: what arrives meanwhile ends at once, and is in the ledger."""
    backend = service(0.5)
    done = run("link", A, B, "--rate", "2Gb/s", "--for", "12m", "--campaign", "mini", "--cancel-rate", "4/h")
    assert isinstance(done.exception, ThresholdMissed)
    assert "unfinished rules: will be ended in" in done.stderr
    assert not any(state.in_service for state in states(tmp_path, "mini"))
    ended = [rule.ended for rule in backend.rules.values()]
    assert None not in ended
    assert max(ended) < START + timedelta(hours=1)


def test_ctrl_c_while_it_ends_says_what_is_left_and_what_goes_on(service, tmp_path: Path) -> None:
    """The verdict is told all the same; the ledger has ended what is ended at the service."""
    backend = service(0.5)
    pressed = iter([KeyboardInterrupt])

    def fault(method: str, subject: object) -> None:
        asked = method == "end" and backend.clock.now() > START + timedelta(minutes=25)
        if asked and (key := next(pressed, None)):
            raise key

    backend.fault = fault
    done = run("link", A, B, "--rate", "2Gb/s", "--for", "12m", "--campaign", "mini", "--cancel-rate", "60/h")
    assert done.exit_code == 130
    assert "left to the lifetime, the last until" in done.stderr
    assert "`dc-inject end mini --cancel` ends what is left" in done.stderr
    assert "moved" in done.stdout
    alive = sum(rule.ended is None for rule in backend.rules.values())
    with LedgerView.open(tmp_path / "dc_inject" / "mini.sqlite") as view:
        assert 0 < alive == sum(entry.state.in_service for entry in view.entries())


def test_files_go_through_fts_between_two_prefixes(service, tmp_path: Path) -> None:
    """Jobs are ended, and their copies deleted."""
    service(stock=source_files("A", 600), name="fts", cleans_up=False)
    done = run("link", url("A"), url("B"), "--rate", "2Gb/s", "--for", "1h", "--fts", "https://fts.example.org:8446",
               "--format", "json")  # fmt: skip
    assert done.exit_code == 0, done.exception
    told = json.loads(done.stdout)
    assert (told["service"], told["missed"]) == ("fts", False)
    assert "files: {folder: .}" in Path(told["menu"]).read_text()
    assert states(tmp_path, told["campaign"]) == {State.GONE}


def test_an_account_that_may_not_end_is_told_that_rules_stay(service, tmp_path: Path) -> None:
    """Its verdict is the same."""
    service(may_end=False)
    done = run("link", A, B, "--rate", "2Gb/s", "--for", "1h", "--campaign", "mini")
    assert done.exit_code == 0, done.exception
    assert "not all is ended" in done.stderr
    assert "every step was reached" in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--rate", "2Gb/s"), "--for 2h"),
        (("--rate", "2Gb/s", "--step", "1Gb/s", "--until-saturated"), "--max"),
        (("--rate", "2Gb/s", "--for", "1h", "--max", "1Gb/s"), "below --rate"),
        (("--rate", "2Gb/s", "--for", "1h", "--every", "10m"), "--step"),
        (("--rate", "2Gb/s", "--for", "1h", "--cycle", "1h"), "two cycles"),
        (("--rate", "2Gb/s", "--for", "1h", "--step", "1Gb/s", "--every", "3h"), "one step only"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    service, tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    """Before anything is written."""
    service()
    error = run("link", A, B, *words).exception
    assert isinstance(error, UsageError)
    assert says in f"{error.message} {error.hint}"
    assert not (tmp_path / "dc_inject").exists()


@pytest.mark.parametrize("ends", [(A, A), (A, url("B"))])
def test_ends_that_make_no_link_are_refused(service, ends: tuple[str, str]) -> None:
    service()
    assert isinstance(run("link", *ends, "--rate", "2Gb/s", "--for", "1h").exception, UsageError)


def test_the_page_has_every_key(service) -> None:
    """What is printed is what docs/mini-challenge.md describes."""
    service(5)
    told = json.loads(run("link", A, B, "--rate", "2Gb/s", *SEARCH, "--format", "json").stdout)
    page = (Path(__file__).parents[2] / "docs" / "mini-challenge.md").read_text()
    example = json.loads(page.split("```json verdict\n")[1].split("```")[0])
    assert list(example) == list(told)
    assert list(example["steps"][0]) == list(told["steps"][0])
