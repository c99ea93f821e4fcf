"""What a person can do to a running sandbox from the terminal: stop, start, put files, act as somebody."""

from __future__ import annotations

import csv
import io
import json
import shlex
import stat
import urllib.request
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dc_inject.apps.sandbox.command_sandbox import sandbox as command
from dc_inject.backends.fts import FtsBackend
from dc_inject.credentials import Credentials
from dc_inject.model.errors import ServiceError, UsageError
from dc_inject.model.events import Silent
from dc_inject.model.ports import Identity
from dc_inject.sandbox import Sandbox
from dc_inject.system.clock import SystemClock
from tests.backends.support import fts3_or_skip

pytestmark = pytest.mark.sandbox


def run(grid: Sandbox, *words: str) -> Result:
    return CliRunner().invoke(command, [words[0], "--folder", str(grid.folder), *words[1:]])


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=120):
            return True
    except OSError:
        return False


def test_parts_are_stopped_and_started_at_the_same_address(storage_grid: Sandbox) -> None:
    where = {
        "XRD2": storage_grid.storages["XRD2"],
        "fts": storage_grid.fts_url,
        "rucio": f"{storage_grid.url}/ping",
    }
    try:
        done = run(storage_grid, "stop", *where)
        assert done.exit_code == 0, done.output
        assert [answers(url) for url in where.values()] == [False] * 3
        assert answers(storage_grid.storages["XRD1"])
    finally:
        done = run(storage_grid, "start", *where)
    assert done.exit_code == 0, done.output
    assert [answers(url) for url in where.values()] == [True] * 3
    again = run(storage_grid, "start", "XRD2")
    assert "running already" in again.output


def test_a_part_that_is_not_there_is_told_with_those_that_are(storage_grid: Sandbox, tmp_path: Path) -> None:
    done = run(storage_grid, "stop", "XRD9")
    assert isinstance(done.exception, UsageError)
    assert done.exception.hint == "there are rucio, daemons, fts, XRD1, XRD2, XRD3"
    done = run(Sandbox(tmp_path / "none"), "start", "fts")
    assert isinstance(done.exception, ServiceError)
    assert done.exception.hint == "dc-inject sandbox up"


def test_files_that_are_put_there_are_printed_as_a_source_list(storage_grid: Sandbox) -> None:
    under = f"put/{uuid.uuid4().hex}"
    done = run(storage_grid, "put", "XRD1", f"{under}/f", "3 kB", "--count", "2")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    prefix = storage_grid.storages["XRD1"]
    assert [row["url"] for row in rows] == [f"{prefix}/{under}/f-000{number}" for number in (1, 2)]
    for row in rows:
        found = storage_grid.storage_file("XRD1", row["url"].removeprefix(prefix))
        assert (row["size"], row["checksum"]) == ("3000", f"adler32:{found.adler32}")
        assert answers(row["url"])
    assert len({row["checksum"] for row in rows}) == 2
    assert run(storage_grid, "put", "XRD1", under, "much").exit_code == 2


def exports(done: Result) -> Mapping[str, str]:
    assert done.exit_code == 0, done.output
    return dict(shlex.split(line)[1].split("=", 1) for line in done.stdout.splitlines())


def whoami(environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Identity:
    fts3_or_skip()
    for name in ("X509_CERT_DIR", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    clock = SystemClock()
    return FtsBackend(
        environ["DC_INJECT_FTS_ENDPOINT"],
        campaign="test",
        clock=clock,
        observer=Silent(),
        credentials=Credentials(environ, clock),
    ).check()


@pytest.mark.parametrize(("kind", "scheme"), [((), "https"), (("--token",), "http")])
def test_a_person_can_act_with_a_certificate_or_a_token(
    storage_grid: Sandbox, monkeypatch: pytest.MonkeyPatch, kind: tuple[str, ...], scheme: str
) -> None:
    done = run(storage_grid, "user", "alice", *kind)
    environ = exports(done)
    assert environ["DC_INJECT_FTS_ENDPOINT"].startswith(f"{scheme}://127.0.0.1:")
    assert whoami(environ, monkeypatch).account.endswith("/CN=alice")
    if kind:
        token = Path(environ["BEARER_TOKEN_FILE"])
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        assert token.read_text() not in done.output


@pytest.mark.parametrize("name", ["fts", "../x", "", "a b"])
def test_a_name_that_would_be_another_file_is_refused(storage_grid: Sandbox, name: str) -> None:
    assert isinstance(run(storage_grid, "user", name, "--token").exception, UsageError)


def test_status_tells_both_addresses_of_fts(storage_grid: Sandbox) -> None:
    told = json.loads(run(storage_grid, "status", "--format", "json").stdout)
    assert (told["fts"], told["fts_tls"]) == (storage_grid.fts_url, storage_grid.fts_tls_url)
