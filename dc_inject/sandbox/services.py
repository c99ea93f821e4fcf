"""The processes that make a sandbox work: the Rucio server, the daemons, and the script that builds the grid."""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from dc_inject.errors import ServiceError

from . import processes
from .environment import python_of

STATE = "state.json"
SERVER, DAEMONS, BUILD = "server", "daemons", "build"


@dataclass(frozen=True)
class State:
    """What is on disk before the first process lives, so that whoever comes after a crash finds them all."""

    marker: str
    port: int
    env: str
    policy: str
    account: str
    quota: int
    up: bool = False

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read it; raises ServiceError where there is none."""
        try:
            return cls(**json.loads((folder / STATE).read_text()))
        except (OSError, ValueError, TypeError):
            raise ServiceError(f"there is no sandbox in {folder}", "dc-inject sandbox up") from None

    def write(self, folder: Path) -> None:
        """Write it in one step."""
        write_private(folder / STATE, json.dumps(asdict(self)))

    def when_up(self) -> Self:
        """The same, complete."""
        return replace(self, up=True)


class Services:
    """The processes of one sandbox, found by its marker."""

    def __init__(self, folder: Path, state: State, say: Callable[[str], None]) -> None:
        """Take the sandbox's folder and state, and what to do with each line of progress."""
        self._folder = folder
        self._state = state
        self._say = say

    def start_server(self, listener: socket.socket) -> None:
        """Start the REST server on a socket that listens already, so that nobody can take its port."""
        self._start(
            SERVER, "gunicorn", "--bind", "fd://3", "--workers", "1", "--threads", "16", "--no-control-socket",
            "--umask", "63", "--graceful-timeout", "3", "--timeout", "120", "--log-level", "warning",
            "rucio.web.rest.flaskapi.v1.main:application", listen=listener.fileno(),
        )  # fmt: skip

    def start_daemons(self) -> None:
        """Start the daemons, all in one process."""
        self._start(DAEMONS, "sandbox_server.daemons", str(self._folder))

    def build(self, wanted: Mapping[str, Any], after_first_line: Callable[[], None] = lambda: None) -> None:
        """Run the building script; its input holds passwords, so it goes through a pipe."""
        log = self._log(BUILD)
        with (
            os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as errors,
            subprocess.Popen(
                [self._python, "-m", "sandbox_server.build"],
                env=self._environment(BUILD),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
                umask=0o077,
            ) as building,
        ):
            assert building.stdin is not None
            assert building.stdout is not None
            try:
                json.dump(wanted, building.stdin)
                building.stdin.close()
                for number, line in enumerate(building.stdout):
                    self._say(line.rstrip())
                    if number == 0:
                        after_first_line()
            except BrokenPipeError:
                pass  # the script has died; its last words are told below
            except BaseException:
                building.kill()
                raise
        if building.returncode:
            raise ServiceError(f"the grid was not built: {self._last_words(BUILD)}")

    def running(self, role: str | None = None) -> list[int]:
        """Return the process ids of a role, or of all."""
        return processes.marked(self._state.marker, role)

    def end(self, role: str | None = None, grace: float = 10.0) -> None:
        """End the processes of a role, or all."""
        processes.end(lambda: self.running(role), grace)

    def answers(self) -> bool:
        """Tell whether the server answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self._state.port, timeout=5)
        try:
            connection.request("GET", "/ping")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def progress(self) -> dict[str, Any]:
        """Read what the daemons have done: passes, paused, and what waits for them."""
        try:
            progress: dict[str, Any] = json.loads((self._folder / "passes").read_text())
        except (OSError, ValueError):  # no pass yet, or just being written
            return {}
        return progress

    def wait(self, role: str, done: Callable[[], bool], patience: float = 180.0) -> None:
        """Wait until `done`; raises ServiceError when the process ends meanwhile, or after `patience` seconds."""
        deadline = time.monotonic() + patience
        while not done():
            if not self.running(role):
                raise ServiceError(f"the sandbox's {role} ended: {self._last_words(role)}")
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"the sandbox's {role} not ready after {patience:.0f} s: {self._last_words(role)}"
                )
            time.sleep(0.05)

    @property
    def _python(self) -> str:
        return str(python_of(Path(self._state.env)))

    def _log(self, role: str) -> Path:
        return self._folder / "log" / f"{role}.log"

    def _start(self, role: str, module: str, *arguments: str, listen: int | None = None) -> None:
        command = [self._python, "-m", module, *arguments]
        processes.start(command, self._environment(role), self._log(role), listen)

    def _environment(self, role: str) -> dict[str, str]:
        return processes.environment(self._state.marker, role, self._folder / "server.cfg", self._folder / "lib")

    def _last_words(self, role: str) -> str:
        try:
            lines = self._log(role).read_text(errors="replace").strip().splitlines()
        except OSError:
            return "it left no log"
        return "; ".join(lines[-3:]) or "its log is empty"


def listen(port: int | None = None) -> socket.socket:
    """Listen on 127.0.0.1; without a port, on a free one below those that the kernel gives to clients."""
    for candidate in [port] if port else random.sample(range(20000, 32000), 200):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", candidate))
            listener.listen(128)
        except OSError:
            listener.close()
        else:
            return listener
    raise ServiceError(f"port {port or '20000 to 32000'} of 127.0.0.1 is taken")


def write_private(file: Path, text: str) -> None:
    """Write a file that only its owner may read, in one step."""
    new = file.with_name(f"{file.name}.new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(text)
    new.replace(file)
