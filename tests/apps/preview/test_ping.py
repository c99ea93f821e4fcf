"""`ping` says who I am and what I may do, and changes nothing."""

from __future__ import annotations

import csv
import importlib
import io
import json
import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.backends.sim import SimClock
from dc_inject.model.errors import NeedsOperator
from tests.cli.ledgers import START, run
from tests.sim import SimBackend

command = importlib.import_module("dc_inject.apps.preview.command_ping")


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> SimBackend:
    """A simulated service in Rucio's place."""
    clock = SimClock(START)
    service = SimBackend(clock, {})
    monkeypatch.setattr(command, "SystemClock", lambda: clock)
    monkeypatch.setattr(command.common, "backends", lambda services, **_: {"rucio": service})
    return service


def test_it_tells_who_where_and_which_rights(service: SimBackend) -> None:
    """For people: words, and a dash for what could not be found out."""
    done = run("ping")
    assert done.exit_code == 0
    assert done.stdout.split("\n")[1].split() == ["rucio", "sim://", "1", "def", "sim", "no", "yes", "-", "-"]


@pytest.mark.parametrize("may_end", [True, False, None])
def test_for_programs_unknown_is_null(service: SimBackend, may_end: bool | None) -> None:
    """Yes, no and unknown are three different answers."""
    service.may_end = may_end
    (told,) = json.loads(run("ping", "--format", "json").stdout)
    assert told["may_end"] is may_end
    assert told["credentials_until"] is None


def test_it_tells_until_when_credentials_are_good(service: SimBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a time and as what is left."""
    identity = replace(service.check(), credentials_until=START + timedelta(hours=36), admin=True)
    monkeypatch.setattr(service, "check", lambda: identity)
    (told,) = json.loads(run("ping", "--format", "json").stdout)
    assert told["credentials_until"] == "2027-02-09T22:00:00Z"
    assert told["credentials_left"] == 36 * 3600
    assert told["admin"] is True
    assert "1 d 12 h" in run("ping").stdout
    (row,) = csv.DictReader(io.StringIO(run("ping", "--format", "csv").stdout))
    texts = {bool: json.dumps, list: json.dumps, type(None): lambda _: ""}
    assert row == {name: texts.get(type(value), str)(value) for name, value in told.items()}


def test_a_service_that_cannot_be_reached_is_exit_code_4(service: SimBackend) -> None:
    """With its address and a hint; the row of it says why, for people and programs."""

    def fault(_method: str, _subject: object) -> None:
        raise NeedsOperator("Rucio at https://rucio.example.org: cannot be reached", "check rucio_host")

    service.fault = fault
    done = run("ping")
    assert isinstance(done.exception, NeedsOperator)
    assert done.exception.exit_code == 4
    assert "https://rucio.example.org: cannot be reached" in done.stdout.splitlines()[1]
    (told,) = json.loads(run("ping", "--format", "json").stdout)
    assert (told["service"], told["account"]) == ("rucio", None)
    assert told["error"] == "Rucio at https://rucio.example.org: cannot be reached"


def test_what_is_waited_for_is_said_while_a_service_does_not_answer(
    service: SimBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On stderr, once, and with the name of the service; who answers at once hears nothing of it."""
    assert run("ping").stderr == ""
    said, echo = threading.Event(), command.click.echo

    def heard(message: str = "", **more: bool) -> None:
        echo(message, **more)
        if "waiting" in message:
            said.set()

    def fault(_method: str, _subject: object) -> None:
        assert said.wait(60)

    monkeypatch.setattr(command, "PATIENCE", 0)
    monkeypatch.setattr(command.click, "echo", heard)
    service.fault = fault
    lines = [line for line in run("ping").stderr.splitlines() if "rucio" in line]
    assert lines == ["dc-inject: waiting for an answer from rucio, up to 60 s for each call (--timeout)"]


@pytest.mark.parametrize("command", [["ping"], ["run"], ["menu", "expand"], ["menu", "diff"]])
def test_a_url_is_no_menu_and_is_named_as_it_was_written(command: list[str]) -> None:
    done = run(*command, "davs://storage.example.org/\x1b[31mdc?password=hunter2345")
    assert done.exit_code == 2
    shown = str(done.exception) + done.stderr
    assert "davs://storage.example.org/" in shown
    assert "\x1b" not in shown
    assert "hunter2345" not in shown


def test_only_check_is_called(service: SimBackend) -> None:
    """Nothing is read or written but who I am."""
    run("ping")
    assert service.calls == {"check": 1}
