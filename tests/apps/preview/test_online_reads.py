"""`check --online` and `ping` of streamed reads: an RSE or a URL as source, and what stands in its way."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from dc_inject.backends.sim import SimClock
from dc_inject.cli.shared import common
from dc_inject.model import File
from dc_inject.model.errors import Permanent, ServiceError, Temporary
from tests.cli.ledgers import START, run
from tests.menu.texts import text
from tests.sim import SimBackend

command = importlib.import_module("dc_inject.apps.preview.command_ping")
UNKNOWN = Permanent("no A1", "A?")


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimBackend:
    """Workers that may read two files of the source A."""
    clock = SimClock(START)
    service = SimBackend(clock, {"A": [File("A/1", 10**9), File("A/2", 10**9)]}, name="reads")
    monkeypatch.setattr(command, "SystemClock", lambda: clock)
    monkeypatch.setattr(common, "backends", lambda services, **_: dict.fromkeys(services, service))
    link = "scenarios:\n  one: {from: A, to: T2_DE_DESY, rate: 1 Gb/s}"
    defaults = 'defaults: {through: reads, datasets: {did: "a:b"}}'
    (tmp_path / "m.yaml").write_text(text(defaults=defaults, scenarios=link))
    return service


def refuse(service: SimBackend, error: ServiceError) -> None:
    def fault(method: str, _subject: object) -> None:
        if method == "inventory":
            raise error

    service.fault = fault


def test_sources_are_listed(service, tmp_path):
    done = run("check", "--online", tmp_path / "m.yaml")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "A: 2 files, 2 GB" in done.stderr
    (told,) = json.loads(run("ping", tmp_path / "m.yaml", "--format", "json").stdout)
    (source,) = told["storages"]
    assert (source["storage"], source["end"], source["reachable"], source["exists"]) == ("A", "source", True, True)


def test_a_typo_in_an_rse_is_an_error_with_the_nearest_one(service, tmp_path):
    refuse(service, UNKNOWN)
    done = run("check", "--online", "--format", "json", tmp_path / "m.yaml")
    (row,) = json.loads(done.stdout)
    assert (done.exit_code, row["line"], row["severity"], row["hint"]) == (2, 10, "error", UNKNOWN.hint)
    (told,) = json.loads(run("ping", tmp_path / "m.yaml", "--format", "json").stdout)
    (source,) = told["storages"]
    assert (source["reachable"], UNKNOWN.hint in source["error"]) == (None, True)


def test_a_source_that_does_not_answer_is_the_fault_of_no_menu(service, tmp_path):
    refuse(service, Temporary("no answer"))
    assert run("check", "--online", tmp_path / "m.yaml").exit_code == 4
    assert isinstance(run("ping", tmp_path / "m.yaml").exception, Temporary)  # no storage answers
