"""`ping` and `check --online` against real storages and the FTS service."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from click.testing import CliRunner, Result

pytest.importorskip("fts3", reason="needs the extra `fts`: apt install gcc libssl-dev python3-dev")

from dc_inject.cli.root import root
from dc_inject.model.errors import DcInjectError
from dc_inject.sandbox import Sandbox
from tests.e2e.tool import Tool

pytestmark = pytest.mark.sandbox

NOBODY = (  # whoever runs the tests may have credentials
    "BEARER_TOKEN", "BEARER_TOKEN_FILE", "X509_USER_PROXY", "X509_USER_CERT", "X509_USER_KEY",
    "DC_INJECT_FTS_TOKEN_FILE", "DC_INJECT_SOURCE_TOKEN_FILE", "DC_INJECT_DESTINATION_TOKEN_FILE",
)  # fmt: skip
MENU = """\
menu: 1
campaign: online
contact: e2e@example.org
start: 2027-02-08 10:00
end: 2027-02-09 10:00
fts: {{endpoint: "{endpoint}"}}
defaults: {{through: fts, files: {{folder: {folder}}}}}
scenarios:
  test: {{from: "{source}", to: ["{one}", "{two}"], rate: {rate}}}
"""


@pytest.fixture
def tool(storage_grid: Sandbox, tmp_path: Path) -> Iterator[Tool]:
    made = Tool(tmp_path, storage_grid.config, dict.fromkeys(NOBODY, ""))
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture
def folder(storage_grid: Sandbox) -> Iterator[str]:
    """A folder with five files on the first storage, gone afterwards."""
    label = f"online-{uuid.uuid4().hex[:8]}"
    for number in range(5):
        storage_grid.put("XRD1", f"/{label}/in/{number}", 100_000 + number)
    yield label
    place = storage_grid.storages["XRD1"]
    paths = [*storage_grid.storage_files("XRD1", f"/{label}"), f"/{label}/in", f"/{label}"]
    with requests.Session() as session:
        for path in paths:
            assert session.delete(f"{place}{path}", timeout=30).ok


def write(
    grid: Sandbox, tool: Tool, folder: str, *, endpoint: str = "", rate: str = "10 Mb/s", files: str = "in"
) -> Path:
    """A menu from the first storage to the two others."""
    path = tool.state / "m.yaml"
    at = grid.storages
    path.write_text(
        MENU.format(
            endpoint=endpoint or grid.fts_url, rate=rate, folder=files, source=f"{at['XRD1']}/{folder}",
            one=f"{at['XRD2']}/{folder}", two=f"{at['XRD3']}/{folder}",
        )
    )  # fmt: skip
    return path


def on_disk(grid: Sandbox) -> dict[str, dict[str, int]]:
    return {name: grid.storage_files(name) for name in grid.storages}


def test_with_a_certificate_it_tells_who_i_am_and_what_fts_may_do_for_me(storage_grid, tool, folder):
    certificate, key = storage_grid.authority.issue(folder)
    tool.more |= {  # type: ignore[operator]
        "X509_USER_CERT": str(certificate), "X509_USER_KEY": str(key),
        "X509_CERT_DIR": str(storage_grid.authority.directory),
    }  # fmt: skip
    before = on_disk(storage_grid)
    menu = write(storage_grid, tool, folder, endpoint=storage_grid.fts_tls_url)
    done = tool.run("ping", menu, "--format", "json")
    (told,) = done.json
    assert (told["address"], told["error"]) == (storage_grid.fts_tls_url, None)
    assert told["account"].endswith(f"/CN={folder}")
    assert told["vo"] == "sandbox"
    assert told["delegation_needed"] is True
    assert told["delegated_until"] < told["credentials_until"]
    assert 0 < told["credentials_left"] <= 30 * 86400
    assert [(one["end"], one["reachable"], one["exists"]) for one in told["storages"]] == [
        ("source", True, True), ("destination", True, False), ("destination", True, False),
    ]  # fmt: skip
    assert {(one["propfind"], one["delete"]) for one in told["storages"]} == {(True, True)}
    assert "PRIVATE KEY" not in done.out + done.err
    assert on_disk(storage_grid) == before


@pytest.fixture
def alone(storage_grid: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's credentials, for commands within this process: five of them take longer in their own."""
    for name in NOBODY:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RUCIO_CONFIG", str(storage_grid.config))  # which proves that its FTS is this user's own


def run(code: int, *arguments: object) -> Result:
    """Run a command as its user does, whose exit code has to be this."""
    done = CliRunner().invoke(root, [str(argument) for argument in arguments])
    error = done.exception
    assert (error.exit_code if isinstance(error, DcInjectError) else done.exit_code) == code, done.output
    return done


def found(done: Result) -> list[str | None]:
    """The codes of what `check --format json` found."""
    return [row["code"] for row in json.loads(done.stdout) if row["severity"] != "note"]


CHECK = ("check", "--online", "--format", "json")


@pytest.mark.usefixtures("alone")
def test_what_is_right_and_what_fts_will_throttle(storage_grid, tool, folder):
    before = on_disk(storage_grid)
    done = run(0, *CHECK, write(storage_grid, tool, folder))
    assert found(done) == []
    assert f"{storage_grid.storages['XRD1']}/{folder}: 5 files, 500 kB" in done.stderr
    fast = write(storage_grid, tool, folder, rate="40 Gb/s")
    done = run(2, *CHECK, "--strict", fast)
    assert set(found(done)) == {"fts-link-limit", "fts-storage-limit"}
    # How many files FTS lets through hangs on what others have moved here before.
    assert re.search(r"\d+ files at 6 MB/s are [0-9.]+ [GM]b/s", done.stdout)
    run(0, *CHECK, "--strict", "--file-speed", "10 GB/s", fast)
    assert found(run(2, *CHECK, write(storage_grid, tool, folder, files="nothing"))) == ["no-source-files"]
    assert on_disk(storage_grid) == before


@pytest.mark.usefixtures("alone")
def test_a_storage_and_the_service_that_are_down(storage_grid, tool, folder, monkeypatch):
    monkeypatch.setenv("DC_INJECT_TRUST", storage_grid.fts_url)  # while it is stopped, others may take its port
    menu = write(storage_grid, tool, folder)
    storage_grid.stop_storage("XRD3")
    try:
        done = run(0, *CHECK, menu)
        assert found(done) == ["storage-unreachable"]
        assert f"{storage_grid.storages['XRD3']}/{folder}" in done.stdout
        lines = run(0, "ping", menu).stdout.splitlines()
        assert [line.split()[2] for line in lines if line.startswith("http:")] == ["yes", "yes", "no"]
        storage_grid.stop_fts()
        try:
            assert found(run(4, *CHECK, menu)) == [None, "storage-unreachable"]
            done = run(4, "ping", menu)
            assert storage_grid.fts_url in str(done.exception)
            assert "storage" in done.stdout.splitlines()[3]
        finally:
            storage_grid.start_fts()
    finally:
        storage_grid.start_storage("XRD3")
