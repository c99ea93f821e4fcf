"""The tape system of the sandbox, and how the service waits for it, as FTS3 does."""

from __future__ import annotations

import http.client
import json
import os
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dc_inject.sandbox import processes
from dc_inject.sandbox.environment import python_of
from dc_inject.sandbox.services import answers, listen
from tests.sandbox.fts.service import Fts, ended, reason, states, submit, told, transfers, wait_until
from tests.sandbox.fts.webdav import Storage

FAST, SLOW = 0.01, 1000.0  # seconds for a file
DISCOVERY = "/.well-known/wlcg-tape-rest-api"


class Tape:
    """A tape system in front of a storage; it is asked as FTS does."""

    def __init__(self, url: str, storage: Storage) -> None:
        self.url, self.storage = url, storage
        self.api = self.ask(DISCOVERY)["endpoints"][0]["uri"].removeprefix(url)

    def put(self, path: str, content: bytes) -> str:
        self.storage.put(path, content)
        return self.url + path

    @property
    def files(self) -> dict[str, bytes]:
        return self.storage.files

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        status, text = self.raw(path, body, method)
        assert status < 300, text
        return json.loads(text) if text else None

    def raw(self, path: str, body: Any = None, method: str | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=20)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method or ("GET" if body is None else "POST"), path, data)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def localities(self, paths: list[str]) -> set[str]:
        return {one["locality"] for one in self.ask(f"{self.api}/archiveinfo", {"paths": paths})}


@pytest.fixture(scope="module")
def tape(
    sandbox_env: Path, tmp_path_factory: pytest.TempPathFactory, shared: Fts
) -> Iterator[Callable[[float], Tape]]:
    """Put a tape system of four drives in front of a storage; tests that want equally fast drives share one."""
    made: dict[float, tuple[int, Tape]] = {}

    def start(seconds: float) -> Tape:
        storage, folder = Storage(f"127.78.0.{len(made) + 1}"), tmp_path_factory.mktemp("tape")
        (folder / "tape.json").write_text(json.dumps({"storage": storage.url, "drives": 4, "seconds": seconds}))
        env = processes.environment(uuid.uuid4().hex, "tape", Path("none"), shared.folder.parent / "lib")
        host = str(storage.server_address[0])
        with listen(host=host) as listener:
            command = [str(python_of(sandbox_env)), "-m", "sandbox_server.tape", str(folder)]
            pid = processes.start(command, env, folder / "log", [listener.fileno()])
            address = f"{host}:{listener.getsockname()[1]}"
        wait_until(lambda: answers(address, DISCOVERY), (folder / "log").read_text)
        made[seconds] = pid, Tape(f"http://{address}", storage)
        return made[seconds][1]

    yield lambda seconds: made[seconds][1] if seconds in made else start(seconds)
    for pid, system in made.values():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        system.storage.close()


def test_files_are_staged_by_drives_copied_and_released(
    tape: Callable[[float], Tape], destination: Storage, context: Any
) -> None:
    """Each has the times of its staging; behind its copy the tape system may take it off the disk."""
    system = tape(FAST)
    made = transfers(system, destination, 40)  # type: ignore[arg-type]  it takes files as a storage does
    paths = [transfer["sources"][0].removeprefix(system.url) for transfer in made]
    assert (system.raw(paths[0])[0], system.localities(paths)) == (503, {"TAPE"})
    assert "NEARLINE" in system.raw(paths[0], method="PROPFIND")[1]
    job = ended(context, submit(context, made, bring_online=3600, copy_pin_lifetime=3600))
    assert (job["job_state"], set(states(job))) == ("FINISHED", {"FINISHED"})
    assert all(file["staging_start"] <= file["staging_finished"] <= file["finish_time"] for file in job["files"])
    assert len(destination.files) == 40
    wait_until(lambda: system.localities(paths) == {"TAPE"})


@pytest.mark.parametrize(("seconds", "expected"), [(FAST, "FINISHED"), (SLOW, "FAILED")])
def test_what_is_copied_to_tape_waits_for_a_drive(
    tape: Callable[[float], Tape], source: Storage, context: Any, seconds: float, expected: str
) -> None:
    """The job is over when its files are on tape, or archive_timeout is."""
    system = tape(seconds)
    made = transfers(source, system)  # type: ignore[arg-type]  it takes files as a storage does
    job = ended(context, submit(context, made, archive_timeout=10**7 if seconds == FAST else 1))
    (file,) = job["files"]
    assert (job["job_state"], file["file_state"]) == (expected, expected)
    assert file["archive_start_time"] is not None
    assert (file["archive_finish_time"] is not None) == (expected == "FINISHED")
    assert system.localities([made[0]["destinations"][0].removeprefix(system.url)]) == {
        "DISK_AND_TAPE" if seconds == FAST else "DISK"
    }
    assert str(reason(job)).startswith("ARCHIVING [") == (expected == "FAILED")


def test_without_bring_online_a_file_on_tape_fails(
    tape: Callable[[float], Tape], destination: Storage, context: Any
) -> None:
    made = transfers(tape(FAST), destination)  # type: ignore[arg-type]
    assert "503" in reason(ended(context, submit(context, made, retry=-1)))


def test_a_job_that_is_cancelled_is_staged_no_further(
    tape: Callable[[float], Tape], destination: Storage, fts: Fts, context: Any
) -> None:
    system = tape(SLOW)
    job_id = submit(context, transfers(system, destination, 2), bring_online=10**7)  # type: ignore[arg-type]
    wait_until(lambda: set(states(told(context, job_id))) == {"STARTED"})
    assert told(context, job_id)["job_state"] == "STAGING"
    fts.ask("DELETE", f"/jobs/{job_id}")
    assert set(states(ended(context, job_id))) == {"CANCELED"}


@pytest.mark.parametrize(("lost", "seconds"), [(True, FAST), (False, SLOW)])
def test_what_the_tape_system_does_not_stage_fails(
    tape: Callable[[float], Tape], destination: Storage, context: Any, lost: bool, seconds: float
) -> None:
    """A file that is not there, and one that takes longer than bring_online."""
    system = tape(seconds)
    made = transfers(system, destination)  # type: ignore[arg-type]
    if lost:
        system.files.clear()  # of other tests, too: theirs are over
    job = ended(context, submit(context, made, bring_online=10**7 if lost else 1))
    assert (states(job), reason(job).startswith("STAGING [")) == (["FAILED"], True)


def test_a_request_is_deleted_and_what_is_unknown_is_not_found(tape: Callable[[float], Tape]) -> None:
    system = tape(SLOW)
    system.put("/data/a", b"a")
    request = system.ask(f"{system.api}/stage", {"files": [{"path": "/data/a"}]})["requestId"]
    system.ask(f"{system.api}/stage/{request}", method="DELETE")
    (file,) = system.ask(f"{system.api}/stage/{request}")["files"]
    assert file == {"path": "/data/a", "onDisk": False, "state": "CANCELLED"}
    assert system.raw(f"{system.api}/stage/none")[0] == 404
