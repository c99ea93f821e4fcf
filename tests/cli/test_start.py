"""The start of `run`: what is refused leaves nothing behind, and what a run prints and publishes."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from rucio.common.config import clean_cached_config

from dc_inject.assembly import starting
from dc_inject.backends.sim import SimClock
from dc_inject.engine.engine import Engine
from dc_inject.ledger import Ledger
from dc_inject.metrics import publishing
from dc_inject.model.errors import MenuError, ServiceError, UsageError
from dc_inject.model.overrides import Kind
from dc_inject.model.ports import RseFacts
from tests.cli.ledgers import FNAL, START, make, run
from tests.sim import SimBackend

command = importlib.import_module("dc_inject.cli.run")

MENU = """\
menu: 1
campaign: {campaign}
contact: dc-ops@example.org
timezone: UTC
start: 2027-02-08 10:00
end: 2027-02-08 11:00
scenarios:
  one:
    datasets: {{did: "cms:*"}}
    links: [{{from: {source}, to: B, rate: 1 Gb/s}}]
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signals_of_a_terminal: None) -> Path:
    """The place of ledgers; nothing of a Rucio is configured."""
    del signals_of_a_terminal  # `run` takes SIGTERM from the first moment on
    for name in [name for name in os.environ if name.startswith("RUCIO_")] + ["VIRTUAL_ENV"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RUCIO_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    clean_cached_config()
    return tmp_path / "state"


def menu(folder: Path, campaign: str = "dc27", source: str = "A") -> Path:
    path = folder / f"{campaign}.yaml"
    path.write_text(MENU.format(campaign=campaign, source=source))
    return path


@pytest.fixture
def no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(seconds: float) -> None:
        pytest.fail(f"it waits for {seconds} s")

    monkeypatch.setattr(starting.time, "sleep", never)


def test_without_a_rucio_cfg_the_start_ends_at_once_and_leaves_nothing(
    state: Path, tmp_path: Path, no_sleep: None, caplog: pytest.LogCaptureFixture
) -> None:
    done = run("run", "--once", menu(tmp_path))
    assert isinstance(done.exception, ServiceError)
    assert "rucio.cfg" in (done.exception.hint or "")
    assert not caplog.records
    assert not state.exists()


def test_a_start_that_is_refused_leaves_nothing(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An RSE that nobody knows, an administrator's account: there is no campaign yet."""

    def backends(services: Iterable[str], **_: object) -> dict[str, SimBackend]:
        return {"rucio": SimBackend(SimClock(START), {"A": []})}

    monkeypatch.setattr(command.common, "backends", backends)
    monkeypatch.setattr(
        SimBackend, "sites", lambda self, names: {name: RseFacts(name, exists=name != "TYPO") for name in names}
    )
    done = run("run", "--once", menu(tmp_path, source="TYPO"))
    assert isinstance(done.exception, MenuError)
    assert "TYPO" in str(done.exception)
    assert not state.exists()


def test_what_has_a_ledger_is_refused_with_it(state: Path, tmp_path: Path, no_sleep: None) -> None:
    """A campaign that has begun keeps its ledger, whatever a later start is refused for."""
    path = make(state / "dc_inject" / "dc27.sqlite", {FNAL: 1}).path
    before = path.stat().st_ino
    done = run("run", "--once", menu(tmp_path))
    assert isinstance(done.exception, ServiceError)
    assert path.stat().st_ino == before


PAST = MENU.replace("2027", "2020").replace("{{from: {source}", "{{from: A")


@pytest.fixture
def past(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A menu that is over, at a simulated service, so that a run ends at once."""

    def backends(services: Iterable[str], **_: object) -> dict[str, SimBackend]:
        return {"rucio": SimBackend(SimClock(START), {"A": []})}

    monkeypatch.setattr(command.common, "backends", backends)
    path = tmp_path / "past.yaml"
    path.write_text(PAST.format(campaign="dc27", source="A"))
    return path


def test_a_run_says_at_its_start_what_is_stopped_and_set(past: Path) -> None:
    """Both hold for every menu of the campaign, until somebody takes them back."""
    assert run("run", past).exit_code == 0
    ledger = past.parent / "state" / "dc_inject" / "dc27.sqlite"
    with Ledger.open(ledger) as made:
        made.pause("*", "me", "lunch", START)
        made.override("one", Kind.RATE, 5e9, "you", "more", START)
    said = run("run", past).stderr
    assert "stopped since 2027-02-08 10:00:00Z by me (lunch): " in said
    assert "set since 2027-02-08 10:00:00Z by you (more): one: rate 40 Gb/s" in said
    checked = run("check", past).stderr
    assert "stopped since" in checked
    assert "set since" in checked
    inventory = past.with_name("inventory.csv")
    inventory.write_text("source,name,bytes,files\n")
    planned = run("plan", past, "--at", "2020-02-08T10:00Z", "--inventory", inventory)
    assert "stopped since" in planned.stderr
    assert "set since" in planned.stderr


def test_a_run_ends_with_the_closing_table(past: Path) -> None:
    done = run("run", past)
    assert done.stdout.splitlines()[0].rstrip().endswith(" dc27")
    assert done.stdout.splitlines()[-1].startswith("total")


@pytest.mark.parametrize("option", ["--quiet", "--once"])
def test_a_run_of_cron_prints_no_table(past: Path, option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "run", lambda self, **_: None)
    done = run("run", option, past)
    assert done.exit_code == 0
    assert done.stdout == ""
    assert bool(done.stderr) == (option == "--once")


def test_a_run_of_cron_publishes_its_metrics_when_it_has_let_go_of_its_ledger(
    past: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Pushgateway that is down costs a warning, and nothing else; the next run need not wait for it."""
    monkeypatch.setattr(Engine, "run", lambda self, **_: None)
    ledger, textfile = past.parent / "state" / "dc_inject" / "dc27.sqlite", past.parent / "dc27.prom"
    free: list[bool] = []

    def push(text: bytes, url: str, campaign: str) -> None:
        with Ledger.open(ledger) as made, made.hold("another run"):
            free.append(b"dc_inject_ledger_up" in text and campaign == "dc27")
        to_pushgateway(text, url, campaign)

    to_pushgateway = publishing.to_pushgateway
    monkeypatch.setattr(publishing, "to_pushgateway", push)
    down = "http://127.0.0.1:1"
    done = run("run", "--once", "--quiet", past, "--textfile", textfile, "--pushgateway", down)
    assert done.exit_code == 0, done.exception
    assert free == [True]
    assert 'dc_inject_ledger_up{campaign="dc27"} 1.0' in textfile.read_text()
    assert "WARNING the metrics are not published" in done.stderr


@pytest.mark.parametrize("more", [(), ("--once", "--dry-run")], ids=["no --once", "--dry-run"])
def test_only_a_real_run_of_cron_publishes(past: Path, more: tuple[str, ...]) -> None:
    done = run("run", past, *more, "--textfile", past.parent / "dc27.prom")
    assert isinstance(done.exception, UsageError)
    assert "--metrics-address" in (done.exception.hint or "")
