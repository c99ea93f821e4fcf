"""The sandbox itself: a folder, a server and a daemons process, brought up, looked at and taken down."""

from __future__ import annotations

import http.client
import json
import os
import random
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dc_inject.errors import ServiceError, UsageError

from . import processes
from .environment import default_environment, ensure_environment, python_of
from .grid import Dataset, Grid, Link, Rse, dataset_plain, link_plain, read_grid, rse_plain
from .locking import locked
from .settings import alembic_settings, client_settings, server_settings

POLICIES = ("owners", "generic")
_STATE = "state.json"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Status:
    """What `status` tells: up is true when the server answers and the daemons live."""

    up: bool
    folder: str
    url: str | None = None
    config: str | None = None  # rucio.cfg of the ordinary account
    account: str | None = None
    policy: str | None = None
    server: bool = False
    daemons: bool = False


def default_folder() -> Path:
    """Name the place of a sandbox unless told otherwise."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return state / "dc_inject" / "sandbox"


class Sandbox:
    """A grid in `folder`; any number of these objects, in any process, may speak of the same one."""

    def __init__(self, folder: Path | None = None, say: Say = lambda _: None) -> None:
        """Name the folder, and what to do with each line of progress."""
        self.folder = Path(os.path.abspath(folder or default_folder()))  # noqa: PTH100 (resolve would follow links)
        if set(str(self.folder)) & set("%?#\n"):
            raise UsageError(f"{self.folder} has a character that a database address cannot have")
        self._say = say

    @property
    def config(self) -> Path:
        """rucio.cfg of the ordinary account."""
        return self.folder / "rucio.cfg"

    @property
    def root_config(self) -> Path:
        """rucio.cfg of root, for what tests set up."""
        return self.folder / "root.cfg"

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"http://127.0.0.1:{self._state()['port']}"

    def up(
        self,
        *,
        grid: Path | Grid | None = None,
        policy: str = "owners",
        env: Path | None = None,
        interval: float = 0.2,
    ) -> None:
        """Bring it up, unless it is up; clears what a crash left behind, leaves nothing when it fails itself.

        `interval` is the pause between two passes of the daemons, in seconds.
        """
        if policy not in POLICIES:
            raise UsageError(f"there is no policy {policy!r}", f"known are {', '.join(POLICIES)}")
        wanted = grid if isinstance(grid, Grid) else read_grid(grid)
        python = Path(os.path.abspath(env or default_environment()))  # noqa: PTH100
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.folder, self._say):
            if self.status().up:
                self._say(f"the sandbox in {self.folder} is up already")
                return
            self._refuse_foreign_folder()
            if self.folder.exists():
                self._say("clearing what an earlier sandbox left behind")
                self._clear()
            ensure_environment(python, self._say)
            try:
                self._create(wanted, policy, python, interval)
            except BaseException:
                self._say("taking down what was begun")
                self._clear()
                raise

    def down(self, *, keep: bool = False) -> bool:
        """End its processes and remove its folder (unless `keep`); returns whether there was anything."""
        if not self.folder.parent.exists():
            return False
        with locked(self.folder, self._say):
            if not self.folder.exists():
                return False
            self._refuse_foreign_folder()
            self._clear(keep=keep)
        return True

    def status(self) -> Status:
        """Look at it; never raises for a sandbox that is down."""
        try:
            state = self._state()
        except ServiceError:
            return Status(False, str(self.folder))
        server = bool(self._running("server")) and self._answers(state["port"])
        daemons = bool(self._running("daemons"))
        return Status(
            state["phase"] == "up" and server and daemons,
            str(self.folder),
            f"http://127.0.0.1:{state['port']}",
            str(self.config),
            state["account"],
            state["policy"],
            server,
            daemons,
        )

    # what tests do to it ------------------------------------------------------------------------------

    def stop_server(self) -> None:
        """End the REST server; the daemons go on."""
        processes.end(lambda: self._running("server"))

    def start_server(self) -> None:
        """Start the REST server again, at the same address."""
        state = self._state()
        with _listener(state["port"]) as listener:
            self._start_server(state, listener)
        self._wait("the Rucio server", "server", lambda: self._answers(state["port"]))

    def stop_daemons(self) -> None:
        """End the daemons; what is on its way over the links starts again when they come back."""
        processes.end(lambda: self._running("daemons"))
        (self.folder / "passes").unlink(missing_ok=True)

    def start_daemons(self) -> None:
        """Start the daemons again."""
        self._start_daemons(self._state())
        self.settle()

    def pause_daemons(self) -> None:
        """Let the daemons rest; returns when their present pass is over."""
        (self.folder / "pause").touch(mode=0o600)
        self._wait("the daemons' rest", "daemons", lambda: self._progress().get("paused") is True)

    def resume_daemons(self) -> None:
        """Let the daemons work again."""
        (self.folder / "pause").unlink(missing_ok=True)
        self._wait("the daemons", "daemons", lambda: self._progress().get("paused") is False)

    def set_links(self, links: Mapping[tuple[str, str], Link] | None = None, default: Link | None = None) -> None:
        """Change links, or the default of all others, from the daemons' next pass on."""
        file = self.folder / "links.json"
        content = json.loads(file.read_text())
        content["links"] |= {":".join(pair): link_plain(link) for pair, link in (links or {}).items()}
        if default is not None:
            content["default"] = link_plain(default)
        self._write("links.json", json.dumps(content, indent=1))

    def add(self, rses: Iterable[Rse] = (), datasets: Mapping[str, Sequence[Dataset]] | None = None) -> None:
        """Add RSEs, and datasets by source RSE; returns when the datasets are candidates."""
        state = self._state()
        self._build(
            {
                "rses": [rse_plain(rse) for rse in rses],
                "quotas": {state["account"]: state["quota"]},
                "datasets": {
                    source: [dataset_plain(one) for one in some] for source, some in (datasets or {}).items()
                },
            }
        )
        self.settle()

    def settle(self) -> None:
        """Wait until the daemons have worked off what was added before this call."""
        before = self._progress().get("passes", 0)
        self._wait(
            "the daemons",
            "daemons",
            lambda: (progress := self._progress()).get("passes", 0) >= before + 2 and progress["waiting"] == 0,
        )

    # parts of up ------------------------------------------------------------------------------------------

    def _create(self, grid: Grid, policy: str, python: Path, interval: float) -> None:
        self.folder.mkdir(mode=0o700)
        with _listener() as listener:
            state = {
                "phase": "starting",
                "marker": secrets.token_hex(16),
                "port": listener.getsockname()[1],
                "env": str(python),
                "policy": policy,
                "account": grid.account,
                "quota": grid.quota,
            }
            # on disk before the first process lives: whoever comes after a crash finds them by the marker
            self._write(_STATE, json.dumps(state))
            passwords = self._write_settings(grid, policy, interval)
            (self.folder / "pause").touch(mode=0o600)

            def start() -> None:
                self._say("starting the Rucio server and the daemons")
                self._start_server(state, listener)
                self._start_daemons(state)

            # they take seconds to start: they do so as soon as there is a database, beside the building
            self._build(_wanted(grid, passwords), after_first_line=start)
        self._say("waiting until the server answers and the datasets are known")
        self.resume_daemons()
        self._wait("the Rucio server", "server", lambda: self._answers(state["port"]))
        self.settle()
        self._write(_STATE, json.dumps(state | {"phase": "up"}))

    def _write_settings(self, grid: Grid, policy: str, interval: float) -> dict[str, str]:
        passwords = {name: secrets.token_urlsafe(24) for name in ("root", grid.account)}
        (self.folder / "log").mkdir(mode=0o700)
        library = self.folder / "lib" / "sandbox_server"
        shutil.copytree(Path(__file__).parent / "server", library, ignore=shutil.ignore_patterns("__pycache__"))
        for path in (library.parent, library, *library.rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)
        self._write("server.cfg", server_settings(self.folder, policy, passwords["root"]))
        self._write("alembic.ini", alembic_settings(self.folder))
        self._write("root.cfg", client_settings(self.folder, self.url, "root", passwords["root"]))
        self._write("rucio.cfg", client_settings(self.folder, self.url, grid.account, passwords[grid.account]))
        self._write("daemons.json", json.dumps({"interval": interval}))
        self._write("links.json", json.dumps(_links(grid), indent=1))
        return passwords

    def _build(self, wanted: Mapping[str, Any], after_first_line: Callable[[], None] | None = None) -> None:
        """Run the building script, line by line; its input holds passwords, so it goes through a pipe."""
        state = self._state()
        command = [str(python_of(Path(state["env"]))), "-m", "sandbox_server.build"]
        log = self.folder / "log" / "build.log"
        with (
            os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as errors,
            subprocess.Popen(
                command,
                env=self._environment(state, "build"),
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
                    if number == 0 and after_first_line:
                        after_first_line()
            except BaseException:
                building.kill()
                raise
        if building.returncode:
            raise ServiceError(f"the grid was not built: {self._last_words('build')}")

    def _start_server(self, state: Mapping[str, Any], listener: socket.socket) -> None:
        self._start(
            state, "server", "-m", "gunicorn", "--bind", "fd://3", "--workers", "1", "--threads", "16",
            "--no-control-socket", "--umask", "63", "--graceful-timeout", "3", "--timeout", "120",
            "--log-level", "warning", "rucio.web.rest.flaskapi.v1.main:application", listen=listener.fileno(),
        )  # fmt: skip

    def _start_daemons(self, state: Mapping[str, Any]) -> None:
        self._start(state, "daemons", "-m", "sandbox_server.daemons", str(self.folder))

    def _start(self, state: Mapping[str, Any], role: str, *arguments: str, listen: int | None = None) -> None:
        python = str(python_of(Path(state["env"])))
        log = self.folder / "log" / f"{role}.log"
        processes.start([python, *arguments], self._environment(state, role), log, listen)

    def _environment(self, state: Mapping[str, Any], role: str) -> dict[str, str]:
        return processes.environment(state["marker"], role, self.folder / "server.cfg", self.folder / "lib")

    # looking, waiting, clearing ----------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads((self.folder / _STATE).read_text())
        except (OSError, ValueError):
            raise ServiceError(f"there is no sandbox in {self.folder}", "dc-inject sandbox up") from None
        return state

    def _running(self, role: str) -> list[int]:
        return processes.marked(self._state()["marker"], role)

    def _progress(self) -> dict[str, Any]:
        try:
            progress: dict[str, Any] = json.loads((self.folder / "passes").read_text())
        except (OSError, ValueError):  # no pass yet
            return {}
        return progress

    def _answers(self, port: int) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/ping")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _wait(self, what: str, role: str, done: Callable[[], bool], patience: float = 60.0) -> None:
        deadline = time.monotonic() + patience
        while not done():
            if not self._running(role):
                raise ServiceError(f"{what}: the process has ended: {self._last_words(role)}")
            if time.monotonic() > deadline:
                raise ServiceError(f"{what}: not ready after {patience:.0f} s: {self._last_words(role)}")
            time.sleep(0.05)

    def _last_words(self, role: str) -> str:
        try:
            lines = (self.folder / "log" / f"{role}.log").read_text(errors="replace").strip().splitlines()
        except OSError:
            return "it left no log"
        return "; ".join(lines[-3:]) or "its log is empty"

    def _refuse_foreign_folder(self) -> None:
        if not self.folder.exists() or (self.folder / _STATE).exists():
            return
        if {path.name for path in self.folder.iterdir()} - {f"{_STATE}.new"}:
            raise UsageError(f"{self.folder} is in use for something else", "name another folder with --folder")

    def _clear(self, *, keep: bool = False) -> None:
        try:
            marker = self._state()["marker"]
        except ServiceError:
            marker = None  # it crashed before it started anything
        if marker:
            processes.end(lambda: processes.marked(marker))
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=False)

    def _write(self, name: str, text: str) -> None:
        """Write a file that only its owner may read, in one step."""
        new = self.folder / f"{name}.new"
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        new.replace(self.folder / name)


def _listener(port: int | None = None) -> socket.socket:
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


def _wanted(grid: Grid, passwords: Mapping[str, str]) -> dict[str, Any]:
    return {
        "create": True,
        "accounts": [
            {"name": "production", "type": "SERVICE"},
            {"name": grid.account, "type": "USER", "password": passwords[grid.account]},
        ],
        "scopes": grid.scopes,
        "rses": [rse_plain(rse) for rse in grid.rses],
        "quotas": {grid.account: grid.quota},
        "datasets": {source: [dataset_plain(one) for one in some] for source, some in grid.datasets.items()},
    }


def _links(grid: Grid) -> dict[str, Any]:
    return {
        "seed": grid.seed,
        "default": link_plain(grid.default_link),
        "links": {":".join(pair): link_plain(link) for pair, link in grid.links.items()},
    }
