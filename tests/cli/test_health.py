"""`health` says whether an injector does its work, and why not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from dc_inject.ledger import Ledger
from dc_inject.model import Cycle, State
from dc_inject.model.errors import LedgerError, ServiceError
from dc_inject.model.ports import Observation, Status
from dc_inject.summary import injector_health
from tests.cli.ledgers import CYCLE, FNAL, GB, ME, START, make, run


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    """The ledger of an injector that began a cycle at START."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    make(tmp_path / "dc_inject" / "dc27.sqlite", {FNAL: 1})
    with Ledger.open(tmp_path / "dc_inject" / "dc27.sqlite") as ledger, ledger.hold("me@host"):
        ledger.turned(START)
        yield ledger


def at(monkeypatch: pytest.MonkeyPatch, moment: datetime) -> None:
    monkeypatch.setattr("dc_inject.system.clock.SystemClock.now", lambda _: moment)


def refusal() -> tuple[str, str]:
    done = run("health")
    assert isinstance(done.exception, LedgerError)
    return done.exception.message, done.exception.hint or ""


@pytest.mark.usefixtures("ledger")
def test_a_cycle_in_the_last_two_lengths_is_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, START + 2 * CYCLE.length)
    done = run("health")
    assert done.exit_code == 0
    assert "2027-02-08 10:00:00Z; me@host" in done.stdout
    assert run("health", "dc27").exit_code == 0
    at(monkeypatch, START + 2 * CYCLE.length + timedelta(seconds=1))
    message, hint = refusal()
    assert "no cycle has begun for 30 min" in message
    assert "15 min" in hint


def test_a_clock_that_leapt_is_not_healthy(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, START + CYCLE.length)
    ledger.signal("clocks", "services", None, START, "it is a little ahead")
    assert run("health").exit_code == 0
    ledger.signal("clock", "this machine", None, START, "it leapt 1 d ahead")
    assert "1 d ahead" in refusal()[0]
    ledger.signal("clock", "this machine", "agrees", START)
    assert run("health").exit_code == 0


def test_where_nothing_arrives_it_fails_after_an_hour_with_the_words_of_the_first_screen(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 4: the injector does its work. What arrives, also in the open cycle, makes it healthy again."""
    for number in range(1, 5):
        cycle = Cycle(START + number * CYCLE.length, CYCLE.length)
        ledger.open_cycle(cycle, {FNAL: (450 * GB, None)}, cycle.start)
        ledger.close_cycle(CYCLE if number == 1 else Cycle(cycle.start - CYCLE.length, CYCLE.length), cycle.start)
    ledger.turned(START + 4 * CYCLE.length)
    at(monkeypatch, START + 4 * CYCLE.length - timedelta(seconds=1))
    assert run("health").exit_code == 0
    at(monkeypatch, START + 4 * CYCLE.length)
    error = run("health").exception
    assert isinstance(error, ServiceError)
    (line,) = [line for line in run("status", "dc27").stdout.splitlines() if line.startswith("! short")]
    assert line.partition(" links: ")[2] in error.message
    (entry,) = ledger.entries(State.LIVE)
    ledger.observe([Observation(entry.injection.key, Status.MOVING, files_done=1, moved=10 * GB)], START)
    assert run("health").exit_code == 0


def test_nobody_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    make(tmp_path / "dc_inject" / "dc27.sqlite", {FNAL: 1})
    message, hint = refusal()
    wording(message)
    assert "dc-inject run" in hint
    monkeypatch.setattr(injector_health, "LEAST_FREE", 10**18)
    assert "are free" in refusal()[0]  # a full disk has ended it


def test_nobody_has_run_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    message, hint = refusal()
    wording(message)
    assert "dc-inject run" in hint


def test_an_injector_that_has_just_started_is_healthy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with Ledger.open(tmp_path / "dc_inject" / "new.sqlite") as ledger, ledger.hold("me@host"):
        ledger.bind("new", CYCLE.length, [ME], START)
        assert run("health").stdout.startswith("new: no cycle ")


@pytest.mark.usefixtures("ledger")
def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, START)
    monkeypatch.setattr(injector_health, "LEAST_FREE", 10**18)
    assert "are free" in refusal()[0]


@pytest.mark.usefixtures("ledger")
def test_a_ledger_that_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch, wording) -> None:
    at(monkeypatch, START)
    monkeypatch.setattr("os.access", lambda *_: False)  # we may be root, who may always
    wording(refusal()[0])


def test_of_shards_one_that_is_dead_counts_more_than_one_through_which_nothing_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is silent only if all are."""
    states: dict[str, Exception | None] = {"1": ServiceError("silent"), "2": None}

    def check(path: Path, name: str, now: datetime) -> str:
        if error := states[path.name]:
            raise error
        return f"{name} {path.name}"

    monkeypatch.setattr(injector_health, "check", check)
    paths = [Path("1"), Path("2")]
    assert injector_health.check_all(paths, "dc27", START) == ["silent", "dc27 2"]
    states["2"] = ServiceError("silent, too")
    with pytest.raises(ServiceError):
        injector_health.check_all(paths, "dc27", START)
    states["2"] = LedgerError("dead")
    with pytest.raises(LedgerError):
        injector_health.check_all(paths, "dc27", START)
