"""`ping` of FTS: who I am there, the proxy that it has, and what the storages of the menus allow."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("fts3", reason="needs the extra `fts`: apt install gcc libssl-dev python3-dev")

from dc_inject.backends.fts import Delegation, FtsBackend
from dc_inject.backends.sim import SimClock
from dc_inject.model.errors import DcInjectError, NeedsOperator, Temporary
from dc_inject.storage import VERBS
from tests.backends.fts.service import FakeFts
from tests.cli.ledgers import START, run
from tests.cli.storages import TOKEN, Open, a_service
from tests.menu.texts import text

command = importlib.import_module("dc_inject.apps.preview.command_ping")

MENU = {
    "fts": 'fts: {endpoint: "https://fts.example.org:8446"}',
    "defaults": "defaults: {through: fts, files: {folder: in}}",
    "scenarios": 'scenarios: {one: {from: "davs://a/data", to: ["davs://b/dc", "davs://c/dc"], rate: 1 Gb/s}}',
}


@pytest.fixture
def storage() -> Open:
    """Storages in memory."""
    return Open(free=10**15)


@pytest.fixture
def fts(storage: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeFts]:
    """A small FTS that a menu names, and its storages."""
    (tmp_path / "m.yaml").write_text(text(**MENU))
    monkeypatch.setattr(command, "SystemClock", lambda: SimClock(START))
    with a_service(storage, monkeypatch) as (fake, backend):
        monkeypatch.setattr(command.common, "backends", lambda services, **_: dict.fromkeys(services, backend))
        yield fake


def test_of_fts_it_tells_who_i_am_and_each_storage(fts: FakeFts, storage: Open, tmp_path: Path) -> None:
    """As a source and as a destination; nothing is changed anywhere."""
    storage.allowed = {"PROPFIND": True, "DELETE": False, "MKCOL": None, "COPY": True}
    (told,) = json.loads(run("ping", tmp_path / "m.yaml", "--format", "json").stdout)
    storages = told.pop("storages")
    assert abs(told.pop("clock_ahead") - (START - datetime.now(UTC)).total_seconds()) < 600
    assert told == {
        "service": "fts",
        "address": fts.url,
        "version": "3.14.2",
        "vo": "dteam",
        "account": "/CN=me",
        "admin": False,
        "may_end": True,
        "credentials_from": "none found",
        "credentials_until": None,
        "credentials_left": None,
        "delegation_needed": False,
        "delegated_until": None,
        "error": None,
    }
    assert [(one["storage"], one["end"]) for one in storages] == [
        ("davs://a/data", "source"),
        ("davs://b/dc", "destination"),
        ("davs://c/dc", "destination"),
    ]
    assert storages[2] == {
        "storage": "davs://c/dc",
        "end": "destination",
        "reachable": True,
        "exists": True,
        "propfind": True,
        "delete": False,
        "mkcol": None,
        "copy": True,
        "free": 10**15,
        "nearline": None,
        "error": None,
    }
    assert {method for method, _, _ in fts.seen} == {"GET"}
    assert {verb for verb, _ in storage.asked} == {"reachable", "verbs"}


def test_a_source_whose_files_are_on_tape_is_nearline(fts: FakeFts, storage: Open, tmp_path: Path) -> None:
    """By the first file of what the menu recalls."""
    storage.put("davs://a/data/in/f", 1000)
    storage.tapes = set(storage.files)
    site = 'sites: {X: {rses: {"davs://a/data": {}}, tape: {drives: 4, rate: 300 MB/s, buffer: 20 TB}}}'
    (tmp_path / "m.yaml").write_text(text(**MENU, sites=site, tape='tape: {"davs://a/data": "J. Doe"}'))
    (told,) = json.loads(run("ping", tmp_path / "m.yaml", "--format", "json").stdout)
    assert [one["nearline"] for one in told["storages"]] == [True, None, None]
    storage.tapes.clear()
    (told,) = json.loads(run("ping", tmp_path / "m.yaml", "--format", "json").stdout)
    assert [one["nearline"] for one in told["storages"]] == [False, None, None]


@pytest.mark.parametrize(("minutes", "shown"), [(20, True), (-20, True), (0, False)])
def test_a_clock_that_differs_is_reported(
    fts: FakeFts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, minutes: int, shown: bool
) -> None:
    now = datetime.now(UTC) + timedelta(minutes=minutes)
    monkeypatch.setattr(command, "SystemClock", lambda: SimClock(now))
    done = run("ping", tmp_path / "m.yaml")
    assert ("our clock" in done.stdout) is shown
    assert ("clock" in done.stderr) is shown
    assert done.exit_code == 0


def test_every_key_is_on_the_page() -> None:
    """Programs are written by the page."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "ping.md").read_text()
    keys = {column.key for column in (*command.COLUMNS, *command.STORAGES)}
    assert {key for key in keys if f"`{key}`" not in page} == set()


@pytest.mark.parametrize("rucio", [False, True])
def test_without_menus_it_asks_what_is_configured(
    fts: FakeFts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rucio: bool
) -> None:
    """An FTS, and a Rucio only if there is one."""
    config = tmp_path / "rucio.cfg"
    if rucio:
        config.touch()
    monkeypatch.setenv("RUCIO_CONFIG", str(config))
    monkeypatch.setenv("DC_INJECT_FTS_ENDPOINT", fts.url)
    asked: list[set[str]] = []
    usual = command.common.backends
    monkeypatch.setattr(command.common, "backends", lambda some, **_: asked.append(set(some)) or usual({"fts"}))
    assert run("ping").exit_code == 0
    assert asked == [{"fts", "rucio"} if rucio else {"fts"}]


def test_people_get_two_tables(fts: FakeFts, storage: Open, tmp_path: Path) -> None:
    """One of services, one of storages."""
    lines = run("ping", tmp_path / "m.yaml").stdout.splitlines()
    assert lines[1].split("  ")[0] == "fts"
    assert "not needed" in lines[1]
    assert lines[2] == ""
    assert lines[3].split() == ["storage", "as", "reachable", "exists", *VERBS, "free", "because"]
    assert " ".join(lines[4].split()) == "davs://a/data source yes yes yes yes - yes 1 PB -"


def test_a_proxy_that_fts_has_is_told(fts: FakeFts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With its end, or that there is none."""
    for until, said in ((START, "2027-02-08T10:00:00Z"), (None, None)):
        monkeypatch.setattr(FtsBackend, "delegation", lambda _self, until=until: Delegation(True, until))
        (told,) = json.loads(run("ping", tmp_path / "m.yaml", "--format", "json").stdout)
        assert (told["delegation_needed"], told["delegated_until"]) == (True, said)


def test_fts_is_down_and_the_storages_are_asked_all_the_same(fts: FakeFts, tmp_path: Path) -> None:
    """Exit code 4; no token is told, even when it is echoed."""
    fts.instead.append(("GET", "/whoami", (401, {"message": f"Bearer {TOKEN} is not known"})))
    done = run("ping", tmp_path / "m.yaml", "--format", "json")
    assert isinstance(done.exception, NeedsOperator)
    (told,) = json.loads(done.stdout)
    assert told["error"].startswith(f"FTS at {fts.url}")
    assert [one["reachable"] for one in told["storages"]] == [True, True, True]
    assert TOKEN not in done.output + str(done.exception)
    fts.instead.append(("GET", "/whoami", (401, "no")))
    assert run("ping", tmp_path / "m.yaml").stdout.splitlines()[3].startswith("storage")


def test_storages_that_let_nobody_look_are_there(fts: FakeFts, storage: Open, tmp_path: Path) -> None:
    """A token may be good for transfers and for nothing else: not an error, and not a yes."""

    def fault(_verb: str, _url: str) -> None:
        raise NeedsOperator("PROPFIND: the storage answered 403", hold="credentials")

    storage.fault = fault
    done = run("ping", tmp_path / "m.yaml", "--format", "json")
    assert done.exit_code == 0
    (told,) = json.loads(done.stdout)
    assert {one["reachable"] for one in told["storages"]} == {None}


@pytest.mark.parametrize(
    ("down", "code"), [(("davs://a", "davs://b", "davs://c"), 4), (("davs://a", "davs://b"), 0)]
)
def test_storages_that_are_down(
    fts: FakeFts, storage: Open, tmp_path: Path, down: tuple[str, ...], code: int
) -> None:
    """All of them: exit code 4. Some of them: they are told."""

    def fault(_verb: str, url: str) -> None:
        if url.startswith(down):
            raise Temporary("no connection, or the connection broke (Connection refused)")

    storage.fault = fault
    done = run("ping", tmp_path / "m.yaml", "--format", "json")
    (told,) = json.loads(done.stdout)
    assert [one["reachable"] for one in told["storages"]].count(False) == len(down)
    assert told["storages"][0]["error"] == "no connection, or the connection broke (Connection refused)"
    assert (done.exception.exit_code if isinstance(done.exception, DcInjectError) else done.exit_code) == code


def test_a_secret_that_others_can_read_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Before anything is asked: it works, and should not be so."""
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o644)
    monkeypatch.setenv("DC_INJECT_FTS_TOKEN_FILE", str(token))
    endpoint = "https://fts.example.org:8446"
    monkeypatch.setenv("DC_INJECT_TRUST", "fts.example.org")
    command.common.backends(
        {"fts"}, campaign="a", clock=SimClock(START), observer=command.Silent(), timeout=1, endpoint=endpoint
    )
    assert f"chmod 600 {token}" in caplog.text
    assert TOKEN not in caplog.text
