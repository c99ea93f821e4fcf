"""The storages are real: bytes, checksums, third-party copies; and what tests do to them works."""

from __future__ import annotations

import http.client
import json
import os
import signal
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from dc_inject.apps.sandbox.command_sandbox import sandbox as command
from dc_inject.model.errors import ServiceError, UsageError
from dc_inject.sandbox import Sandbox, processes
from dc_inject.sandbox.state import State
from tests.sandbox.rules import until

pytestmark = pytest.mark.sandbox


def ask(grid: Sandbox, name: str, method: str, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
    """Send one request to a storage; returns status, headers, body."""
    connection = http.client.HTTPConnection(grid.storages[name].removeprefix("http://"), timeout=30)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode(errors="replace")
    finally:
        connection.close()


@pytest.fixture
def place(storage_grid, request):
    """A folder of the test's own on every storage, gone afterwards."""
    folder = f"/test/{request.node.name}"
    yield folder
    for name in storage_grid.storages:
        for path in storage_grid.storage_files(name, folder):
            assert ask(storage_grid, name, "DELETE", path)[0] == 200
        assert storage_grid.storage_files(name, folder) == {}


def copy(grid: Sandbox, source: tuple[str, str], destination: tuple[str, str]) -> str:
    """Let the destination pull a file from the source; returns the last line of the answer."""
    ask(grid, destination[0], "MKCOL", destination[1].rpartition("/")[0])
    url = grid.storages[source[0]] + source[1]
    status, _, body = ask(grid, *(destination[0], "COPY", destination[1]), Source=url, Credential="none")
    return body.splitlines()[-1] if status in {201, 202} else f"{status}"  # XRootD 5, XRootD 6


def test_a_file_is_copied_from_storage_to_storage_and_both_sides_know_its_checksum(storage_grid, place):
    stored = storage_grid.put("XRD1", f"{place}/one", 3_000_001, seed="a")
    assert copy(storage_grid, ("XRD1", stored.path), ("XRD2", f"{place}/two")).startswith("success")
    there = storage_grid.storage_file("XRD2", f"{place}/two")
    assert (there.size, there.adler32) == (stored.size, stored.adler32)
    for name, path in (("XRD1", stored.path), ("XRD2", there.path)):
        status, headers, _ = ask(storage_grid, name, "HEAD", path, **{"Want-Digest": "adler32"})
        assert (status, headers["Digest"], headers["Content-Length"]) == (
            200,
            f"adler32={stored.adler32}",
            "3000001",
        )


def test_the_seed_makes_the_content(storage_grid, place):
    one, again, other = (storage_grid.put("XRD1", f"{place}/{n}", 5000, seed=s) for n, s in enumerate("aab"))
    assert one.adler32 == again.adler32 != other.adler32


def test_an_empty_file_is_a_file_too(storage_grid, place):
    assert storage_grid.put("XRD3", f"{place}/deep/er/empty", 0).adler32 == "00000001"
    assert storage_grid.storage_files("XRD3", place) == {f"{place}/deep/er/empty": 0}
    with pytest.raises(FileNotFoundError):
        storage_grid.storage_file("XRD3", f"{place}/missing")


def test_no_path_leads_out_of_a_storage(storage_grid):
    with pytest.raises(UsageError, match="leads out"):
        storage_grid.put("XRD1", "/a/../../../state.json", 1)


def test_a_storage_that_is_not_there_is_told_with_those_that_are(storage_grid):
    with pytest.raises(UsageError, match="no storage 'XRD9'") as told:
        storage_grid.stop_storage("XRD9")
    assert told.value.hint == "there are XRD1, XRD2, XRD3"


def test_a_stopped_storage_refuses_and_the_others_go_on_until_it_is_back_at_its_address(storage_grid, place):
    before = storage_grid.storages
    storage_grid.stop_storage("XRD2")
    try:
        with pytest.raises(ConnectionError):  # refused, or reset where it was still in the queue of the one before
            ask(storage_grid, "XRD2", "GET", "/")
        assert ask(storage_grid, "XRD1", "GET", "/")[0] == 200
    finally:
        storage_grid.start_storage("XRD2")
    assert ask(storage_grid, "XRD2", "GET", "/")[0] == 200
    assert storage_grid.storages == before


def pids(grid: Sandbox, name: str) -> dict[str, int]:
    """Processes of a storage by the name of their program."""
    found = processes.marked(State.read(grid.folder).marker, f"storage-{name}")
    return {Path(f"/proc/{pid}/comm").read_text().strip(): pid for pid in found}


def test_a_crashed_xrootd_is_started_again_and_serves_what_it_had(storage_grid, place):
    stored = storage_grid.put("XRD3", f"{place}/kept", 1000)
    crashed = pids(storage_grid, "XRD3")["xrootd"]
    os.kill(crashed, signal.SIGSEGV)
    until(lambda: pids(storage_grid, "XRD3").get("xrootd", crashed) != crashed)
    assert ask(storage_grid, "XRD3", "GET", stored.path)[0] == 200  # the listening socket outlived the crash


def test_no_xrootd_outlives_its_keeper(storage_grid):
    mine = pids(storage_grid, "XRD2")
    keeper = next(pid for name, pid in mine.items() if name != "xrootd")
    try:
        os.kill(keeper, signal.SIGKILL)
        until(lambda: pids(storage_grid, "XRD2") == {})
    finally:
        storage_grid.start_storage("XRD2")


def test_its_processes_work_in_the_sandboxs_folder(storage_grid):
    """XRootD writes into the folder where it works, which must not be that of whoever started the sandbox."""
    for pid in pids(storage_grid, "XRD1").values():
        assert Path(f"/proc/{pid}/cwd").readlink() == storage_grid.folder / "storage" / "XRD1"


def test_an_xrootd_that_cannot_start_is_told_with_its_last_words(storage_grid):
    settings = storage_grid.folder / "storage" / "XRD1" / "xrootd.cfg"
    right = settings.read_text()
    storage_grid.stop_storage("XRD1")
    settings.write_text(right.replace("libXrdHttp.so", "libNonsense.so"))
    with pytest.raises(ServiceError, match=r"storage-XRD1 ended: .*initialization failed"):
        storage_grid.start_storage("XRD1")
    settings.write_text(right)
    storage_grid.start_storage("XRD1")


def throttled(grid: Sandbox, name: str) -> bool:
    return "throttle.throttle data" in (grid.folder / "storage" / name / "xrootd.cfg").read_text()


def test_a_throttled_storage_still_copies_and_is_fast_again_afterwards(storage_grid, place):
    stored = storage_grid.put("XRD1", f"{place}/one", 4_000_000)
    storage_grid.throttle("XRD1", 8_000_000)
    try:
        assert throttled(storage_grid, "XRD1")
        assert copy(storage_grid, ("XRD1", stored.path), ("XRD2", f"{place}/two")).startswith("success")
    finally:
        storage_grid.throttle("XRD1", None)
    assert not throttled(storage_grid, "XRD1")
    assert storage_grid.storage_file("XRD2", f"{place}/two").adler32 == stored.adler32


def test_what_the_storages_write_is_for_the_owner_only(storage_grid, place):
    stored = storage_grid.put("XRD1", f"{place}/one", 10)
    copy(storage_grid, ("XRD1", stored.path), ("XRD2", f"{place}/new/two"))
    for folder, below, names in os.walk(storage_grid.folder):
        assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700, folder
        if "admin" in below:
            below.remove("admin")  # XRootD 6 opens its own folder to others, who cannot get to it
        for name in names:
            mode = Path(folder, name).lstat().st_mode
            assert stat.S_ISLNK(mode) or stat.S_IMODE(mode) & 0o077 == 0, name


def test_the_command_line_tells_where_everything_is(storage_grid):
    def run(*words: str):
        done = CliRunner().invoke(command, [words[0], "--folder", str(storage_grid.folder), *words[1:]])
        assert done.exit_code == 0, done.output
        return done

    up = run("up", "--storage", "xrootd")
    assert up.stdout.splitlines() == [
        f"export RUCIO_CONFIG={storage_grid.config}",
        f"export DC_INJECT_FTS_ENDPOINT={storage_grid.fts_url}",
    ]
    told = json.loads(run("status", "--format", "json").stdout)
    assert (told["storages"], told["fts"]) == (storage_grid.storages, storage_grid.fts_url)
    assert f"XRD2     {storage_grid.storages['XRD2']}" in run("status").stdout.splitlines()
    storage_grid.stop_storage("XRD2")
    try:
        assert f"XRD2     {storage_grid.storages['XRD2']}  (stopped)" in run("status").stdout.splitlines()
        told = json.loads(run("status", "--format", "json").stdout)
        assert (told["stopped"], told["up"]) == (["XRD2"], True)
    finally:
        storage_grid.start_storage("XRD2")
    assert "(stopped)" not in run("status").stdout


def test_a_sandbox_without_storages_says_how_to_get_some(sandbox):
    assert sandbox.storages == {}
    assert sandbox.status().fts is None
    with pytest.raises(UsageError, match="no storage 'XRD1'") as told:
        sandbox.stop_storage("XRD1")
    assert told.value.hint == "bring it up with --storage xrootd"
    with pytest.raises(UsageError, match="is up, without storages"):
        sandbox.up(storage="xrootd", env=Path(State.read(sandbox.folder).env))


@pytest.mark.parametrize("storages", [0, 201])
def test_a_number_of_storages_that_cannot_be_is_refused_before_anything_is_made(tmp_path, storages):
    with pytest.raises(UsageError, match="cannot be"):
        Sandbox(tmp_path / "sandbox").up(storage="xrootd", storages=storages, env=tmp_path / "env")
    assert list(tmp_path.iterdir()) == []


def test_a_storage_of_another_kind_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no storage 'tape'"):
        Sandbox(tmp_path / "sandbox").up(storage="tape")
