"""The sandbox's FTS run by itself, and what its tests say to it through FTS3's real client."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from dc_inject.sandbox import processes
from dc_inject.sandbox.services import listen
from tests.sandbox.fts.webdav import PATIENCE, Storage, adler32

if os.environ.get("CI"):
    import fts3.rest.client.easy as fts3
else:
    fts3 = pytest.importorskip("fts3.rest.client.easy", reason="no FTS client; `make venv` says what it needs")

SERVER = Path(processes.__file__).parent / "server"


class Fts:
    """A service in a folder of its own; it can be stopped, killed and started again at its address."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder = folder / "fts"
        self.folder.mkdir(mode=0o700)
        self.log = folder / "fts.log"
        self._python = python
        self._library = folder / "lib"
        shutil.copytree(SERVER, self._library / "sandbox_server", ignore=shutil.ignore_patterns("__pycache__"))
        self._pid = 0
        self._ports: list[int | None] = [None, None]
        self.settings()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._ports[0]}"

    @property
    def tls_url(self) -> str:
        return f"https://127.0.0.1:{self._ports[1]}"

    def start(self, *, encrypted: bool = False) -> None:
        listeners = [listen(port) for port in self._ports[: 2 if encrypted else 1]]
        self._ports[: len(listeners)] = [listener.getsockname()[1] for listener in listeners]
        env = processes.environment(uuid.uuid4().hex, "fts", Path("none"), self._library)
        command = [str(self._python), "-m", "sandbox_server.fts", str(self.folder.parent)]
        self._pid = processes.start(command, env, self.log, [listener.fileno() for listener in listeners])
        for listener in listeners:
            listener.close()
        wait_until(self._answers, lambda: f"the service does not answer: {self.log.read_text()}")

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self._pid:
            os.kill(self._pid, number)
            wait_until(lambda: os.waitpid(self._pid, os.WNOHANG)[0] == self._pid, lambda: "it does not end")
            self._pid = 0

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def settings(self, **values: Any) -> None:
        write(self.folder / "settings.json", {"time_scale": 0.001} | values)

    def tokens(self, **values: dict[str, Any]) -> None:
        write(self.folder / "tokens.json", values)

    def context(self, token: str | None = None) -> Any:
        return fts3.Context(self.url, fts_access_token=token)

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> tuple[int, Any]:
        """Ask without the client, for what the client has no word for; returns status and answer."""
        status, text = self.raw(method, path, body, token)
        return status, json.loads(text) if text else None

    def raw(self, method: str, path: str, body: Any = None, token: str | None = None) -> tuple[int, str]:
        """Ask in the same way; returns the status and the answer's text."""
        host, _, port = self.url.removeprefix("http://").partition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            connection.request(method, path, body if isinstance(body, bytes) else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def _answers(self) -> bool:
        try:
            return self.ask("GET", "/")[0] in (200, 403)
        except OSError:
            return False


def write(file: Path, content: Any) -> None:
    new = file.with_suffix(".new")
    new.write_text(json.dumps(content))
    new.replace(file)


def wait_until(done: Any, complaint: Any = lambda: "it never came true") -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, complaint()
        time.sleep(0.05)


def transfers(source: Storage, destination: Storage, count: int = 1, under: str = "/in", **more: Any) -> list[Any]:
    """Put files at the source, and make the transfers of the client for them."""
    made = []
    for number in range(count):
        path = f"/data/{uuid.uuid4().hex}"
        url = source.put(path, os.urandom(200 + number))
        content = source.files[path]
        words = {"checksum": f"ADLER32:{adler32(content)}", "filesize": len(content)} | more
        made.append(fts3.new_transfer(url, f"{destination.url}{under}/{path.rpartition('/')[2]}", **words))
    return made


def submit(context: Any, some: list[Any], **params: Any) -> str:
    return fts3.submit(context, fts3.new_job(some, **({"verify_checksum": "both"} | params)))


def ended(context: Any, job_id: str) -> dict[str, Any]:
    """Wait until a job is over; returns it with its files."""
    wait_until(lambda: fts3.get_job_status(context, job_id)["job_finished"], lambda: f"{told(context, job_id)}")
    return told(context, job_id)


def told(context: Any, job_id: str) -> dict[str, Any]:
    return fts3.get_job_status(context, job_id, list_files=True)


def states(job: dict[str, Any]) -> list[str]:
    return [file["file_state"] for file in job["files"]]


def reason(job: dict[str, Any]) -> str:
    [file] = job["files"]
    return file["reason"]


def nobody_listens() -> str:
    """Make an address where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.9", 0))
        return f"http://127.0.0.9:{free.getsockname()[1]}"
