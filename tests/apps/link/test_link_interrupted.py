"""`dc-inject link` interrupted at any moment, by any signal: the last lines say what is left, and what ends it."""

from __future__ import annotations

import importlib
import json
import re
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from dc_inject.ledger import LedgerView
from dc_inject.model.errors import Temporary
from dc_inject.model.ports import Removal
from tests.apps.link.linking import A, B
from tests.cli.ledgers import run
from tests.engine.world import GB, source_files, url
from tests.sim import SimBackend
from tests.wording import lines

ASKED = ("--rate", "2Gb/s", "--for", "12m", "--campaign", "mini", "--cancel-rate", "60/h")
ENDS = "end what is left with `dc-inject end mini --cancel`"


def pressed(backend: SimBackend, *numbers: signal.Signals) -> None:
    """Let signals come one after the other, in the fifth call that submits."""
    calls: list[str] = []

    def fault(method: str, _subject: object) -> None:
        calls.append(method)
        if method == "submit" and calls.count(method) == 5:
            for number in numbers:
                signal.raise_signal(number)

    backend.fault = fault


def left(done: Result, tmp_path: Path) -> int:
    """How many rules the last lines tell of, with what ends them; as many as the ledger has."""
    last = done.stderr.splitlines()[-3:]
    told = re.compile(r"(\d+) rules? (?:left to (?:its|their) lifetime, the last until 2027|asked to end, and )")
    found = [told.match(line) for line in last]
    number = sum(int(match[1]) for match in found if match)
    assert last[-1] == (ENDS if number else "nothing is left to end")
    with LedgerView.open(tmp_path / "dc_inject" / "mini.sqlite") as view:
        assert number == sum(entry.state.in_service for entry in view.entries())
    return number


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_closed_terminal_is_no_second_ctrl_c(service, tmp_path: Path, first: signal.Signals, wording) -> None:
    """It sends SIGHUP twice, and at the end once more: rules are ended, and the verdict so far is made."""
    backend = service(0.5)
    pressed(backend, first, signal.SIGHUP, signal.SIGHUP)
    by_call = backend.fault

    def fault(method: str, subject: object) -> None:
        if method == "end":
            signal.raise_signal(signal.SIGHUP)
        by_call(method, subject)

    backend.fault = fault
    done = run("link", A, B, *ASKED, "--log-file", str(tmp_path / "log"))
    assert done.exception.exit_code == 2
    wording(run("link", "--verdict", "mini").exception.hint)
    with LedgerView.open(tmp_path / "dc_inject" / "mini.sqlite") as view:
        assert not any(entry.state.in_service for entry in view.entries())
    assert f"WARNING {first.name}: " in (tmp_path / "log").read_text()


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_leaves_at_once_and_names_what_is_left(
    service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: signal.Signals, wording
) -> None:
    """No verdict is made, but it can be asked for; who presses once more loses no line."""
    backend = service(0.5)
    pressed(backend, signal.SIGINT, second)
    interrupted_in(monkeypatch, "dc_inject.cli.shared.summary_output.show_left")
    done = run("link", A, B, *ASKED, "--log-file", tmp_path / "log", "--log-format", "json")
    assert done.exit_code == 130
    kept = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert sum(line["live"] + line["asked"] for line in kept if line.get("event") == "left") >= 4
    assert "`dc-inject link --verdict mini`" in done.stderr
    assert left(done, tmp_path) >= 4
    shown = run("link", "--verdict", "mini")
    wording(shown.exception.hint)
    assert run("status", "mini").stdout.startswith(shown.stdout.splitlines()[-1])
    backend.fault = lambda _method, _subject: None
    backend.clock.advance(backend.clock.now() + timedelta(minutes=10))
    assert run("end", "mini", "--cancel", "--cancel-rate", "60/min", "--yes").exit_code == 0
    verdict = run("link", "--verdict", "mini").exception
    assert verdict.exit_code == 2
    assert "`dc-inject link --resume mini`" in verdict.hint


@pytest.mark.parametrize(
    "place",
    [
        "dc_inject.apps.link.running.Climbing.finish",
        "dc_inject.assembly.ending.admit_to_end",
        "dc_inject.engine.ending.Drain.look",
        "dc_inject.engine.ending.Drain.look_again",
        "dc_inject.apps.link.command.emit",
    ],
)
def test_an_interruption_at_any_moment_afterwards_says_the_same(
    service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """It is the first one, or the second after one that ended the step early; nothing is said of a bug."""
    service(0.5)
    interrupted_in(monkeypatch, place)
    done = run("link", A, B, *ASKED)
    assert done.exit_code == 130
    assert left(done, tmp_path) or place.endswith(("look_again", "emit"))


def interrupted_in(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Let Ctrl-C come where a function begins."""
    path, _, name = place.rpartition(".")
    owner: Any
    try:
        owner = importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, kind = path.rpartition(".")
        owner = getattr(importlib.import_module(module), kind)
    before: Callable[..., Any] = getattr(owner, name)

    def cut(*arguments: Any, **named: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return before(*arguments, **named)

    monkeypatch.setattr(owner, name, cut)


@pytest.mark.parametrize("place", ["dc_inject.apps.link.checks.ready", "dc_inject.assembly.starting.prepare"])
def test_before_anything_is_injected_nothing_is_left(
    service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, wording
) -> None:
    service()
    interrupted_in(monkeypatch, place)
    done = run("link", A, B, *ASKED)
    assert done.exit_code == 130
    wording(lines(done.stderr, "interrupted"))
    assert not list(tmp_path.glob("dc_inject/**/mini*"))


def test_one_signal_after_which_something_stays_names_it_too(service, tmp_path: Path) -> None:
    """Files of a storage that does not answer: the command that deletes them is below the verdict."""
    backend = service(5, name="fts", stock=source_files("A", 300, GB))
    pressed(backend, signal.SIGINT)

    def mute(entries: Any) -> list[Removal]:
        backend.clock.advance(backend.clock.now() + timedelta(seconds=5))
        return [Removal(e.injection.key, gone=False, error=Temporary("no answer in time")) for e in entries]

    backend.remove = mute
    fts = ("--fts", "https://fts.example.org:8446", "--folder", "x", "--campaign", "mini")
    done = run("link", url("A"), url("B"), "--rate", "2Gb/s", "--for", "12m", *fts)
    assert done.exception.message == "mini: inconclusive (ended-early)"
    *_, files, command = done.stderr.splitlines()
    assert "ended jobs" in files
    assert command == ENDS
    assert done.stderr.index("left at ") < done.stderr.index(files)


def test_an_account_that_may_not_end_is_not_told_to(service, wording) -> None:
    """A command that is refused helps nobody."""
    backend = service(0.5, may_end=False)
    pressed(backend, signal.SIGINT, signal.SIGINT)
    done = run("link", A, B, *ASKED)
    assert done.exit_code == 130
    assert "rules left to their lifetime, the last until " in done.stderr.splitlines()[-2]
    wording(done.stderr.splitlines()[-1])
