"""The processes that make a sandbox work: the Rucio server, the daemons, PostgreSQL, the storages, and FTS."""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from dc_inject.model.errors import ServiceError

from . import postgres, processes
from .environment import python_of
from .state import State, write_private

SERVER, DAEMONS, FTS, POSTGRES = "server", "daemons", "fts", "postgres"
LOOK = 0.5  # seconds between two checks that a process which has work to do is alive
BUILT_WITHIN = 1800.0  # seconds that an order may take
FREE_WITHIN = 20.0  # seconds until a port that is in use must be free


class Services:
    """The processes of one sandbox, found by its marker."""

    def __init__(self, folder: Path, state: State, report: Callable[[str], None]) -> None:
        """Take the sandbox's folder and state, and what to do with each line of progress."""
        self._folder = folder
        self._state = state
        self._report = report

    def start_server(self, listener: socket.socket) -> None:
        """Start the REST server on a socket that listens already, so that no other process can take its port."""
        self._start(
            SERVER, "gunicorn", "--chdir", str(self._folder), "--bind", "fd://3",
            "--workers", "1", "--threads", "16", "--no-control-socket",
            "--umask", "63", "--graceful-timeout", "3", "--timeout", "120", "--log-level", "warning",
            "rucio.web.rest.flaskapi.v1.main:application", listen=[listener],
        )  # fmt: skip

    def start_daemons(self) -> None:
        """Start the daemons, all in one process."""
        self._start(DAEMONS, "sandbox_server.daemons", str(self._folder))

    def start_postgres(self) -> None:
        """Start PostgreSQL, which makes its data folder at the first time; a crashed one is started again."""
        self._start(POSTGRES, "sandbox_server.postgres", str(self._folder / postgres.FOLDER))

    def start_storage(self, name: str, listener: socket.socket) -> None:
        """Start a storage on a socket that listens on its address; a crashed XRootD is started again."""
        library = [f"LD_LIBRARY_PATH={self._state.library}"] if self._state.library else []
        self._start(
            storage_role(name), "sandbox_server.keeper", str(self._folder / "storage" / name),
            "env", *library, str(self._state.xrootd), "-I", "v4", "-c", "xrootd.cfg",
            listen=[listener],
        )  # fmt: skip

    def start_tape(self, name: str, listener: socket.socket) -> None:
        """Start a tape system in front of a storage."""
        self._start(
            tape_role(name), "sandbox_server.tape", str(self._folder / "storage" / name), listen=[listener]
        )

    def start_fts(self, listener: socket.socket, tls_listener: socket.socket) -> None:
        """Start the service that moves files between storages, with plain http and with TLS."""
        self._start(FTS, "sandbox_server.fts", str(self._folder), listen=[listener, tls_listener])

    def order(self, *wanted: Mapping[str, Any]) -> None:
        """Have the daemons build one thing after the other in the catalogue; they have all of Rucio loaded.

        Raises ServiceError for the first one that cannot be built.
        """
        place = self._folder / "orders"
        place.mkdir(mode=0o700, exist_ok=True)
        name = uuid.uuid4().hex
        orders = [place / f"{name}-{number:04}.json" for number in range(len(wanted))]
        try:
            for order, content in zip(orders, wanted, strict=True):
                write_private(order, json.dumps(content))  # it may hold a password
            for order in orders:
                self._wait_for(order.with_suffix(".done"))
        finally:
            for order in orders:
                order.unlink(missing_ok=True)
                order.with_suffix(".done").unlink(missing_ok=True)

    def _wait_for(self, done: Path) -> None:
        self.wait(DAEMONS, done.exists, BUILT_WITHIN)
        answer = json.loads(done.read_text())
        for line in answer["messages"]:
            self._report(line)
        if answer["error"]:
            raise ServiceError(f"the grid was not built: {answer['error']}")

    def running(self, role: str | None = None) -> list[int]:
        """Return the process ids of a role, or of all."""
        return processes.marked(self._state.marker, role)

    def end(self, role: str | None = None, grace: float = 10.0) -> None:
        """End the processes of a role, or all."""
        processes.end(lambda: self.running(role), grace)

    def answers(self) -> bool:
        """Return whether the server answers."""
        return answers(f"127.0.0.1:{self._state.port}", "/ping")

    def postgres_answers(self) -> bool:
        """Return whether PostgreSQL takes connections."""
        return postgres.ready(self._folder)

    def storage_answers(self, name: str) -> bool:
        """Return whether a storage answers."""
        return answers(self._state.storages[name], "/")

    def fts_answers(self) -> bool:
        """Return whether the FTS service answers."""
        return answers(f"127.0.0.1:{self._state.fts}", "/")

    def progress(self) -> dict[str, Any]:
        """Read what the daemons have done: passes, paused, and what waits for them."""
        try:
            progress: dict[str, Any] = json.loads((self._folder / "passes").read_text())
        except (OSError, ValueError):  # no pass yet, or just being written
            return {}
        return progress

    def wait(self, role: str, done: Callable[[], bool], patience: float = 180.0) -> None:
        """Wait until `done`; raises ServiceError when the process ends meanwhile, or after `patience` seconds."""
        deadline, next_look = time.monotonic() + patience, 0.0
        while not done():
            if (now := time.monotonic()) >= next_look:  # it means to look at every process of this machine
                if not self.running(role):
                    raise ServiceError(f"the sandbox's {role} ended: {self._last_words(role)}")
                next_look = now + LOOK
            if now > deadline:
                raise ServiceError(
                    f"the sandbox's {role} not ready after {patience:.0f} s: {self._last_words(role)}"
                )
            time.sleep(0.05)

    def _log(self, role: str) -> Path:
        return self._folder / "log" / f"{role}.log"

    def _start(self, role: str, module: str, *arguments: str, listen: Sequence[socket.socket] = ()) -> None:
        command = [str(python_of(Path(self._state.env))), "-m", module, *arguments]
        descriptors = [listener.fileno() for listener in listen]
        processes.start(command, self._environment(role), self._log(role), descriptors)

    def _environment(self, role: str) -> dict[str, str]:
        settings, library = self._folder / "server.cfg", self._folder / "lib"
        plain = processes.environment(self._state.marker, role, settings, library)
        if Path(self._state.env).stat().st_uid != os.geteuid():  # its owner could not delete our bytecode
            plain["PYTHONDONTWRITEBYTECODE"] = "1"
        return plain | (postgres.environment(self._folder) if self._state.db == "postgres" else {})

    def _last_words(self, role: str) -> str:
        try:
            lines = self._log(role).read_text(errors="replace").strip().splitlines()
        except OSError:
            return "it left no log"
        return "; ".join(lines[-3:]) or "its log is empty"


def storage_role(name: str) -> str:
    """Name the role of the processes of a storage."""
    return f"storage-{name}"


def tape_role(name: str) -> str:
    """Name the role of the process of a storage's tape system."""
    return f"tape-{name}"


def answers(address: str, path: str) -> bool:
    """Return whether a server at host:port answers a GET in five seconds, be it that it wants credentials."""
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status in {HTTPStatus.OK, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def listen(port: int | None = None, host: str = "127.0.0.1") -> socket.socket:
    """Listen on an address of this machine; without a port, on a free one below those that clients are given.

    A port that was named may be held for a moment by the last process that had it, so this waits until it is free.
    """
    deadline = time.monotonic() + FREE_WITHIN
    candidates = iter([port] if port else random.sample(range(20000, 32000), 200))
    candidate = next(candidates, None)
    while candidate is not None:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
            listener.listen(128)
        except OSError:
            listener.close()
        else:
            return listener
        if port and time.monotonic() < deadline:
            time.sleep(0.1)
        else:
            candidate = next(candidates, None)
    raise ServiceError(f"port {port or '20000 to 32000'} of {host} is taken")
