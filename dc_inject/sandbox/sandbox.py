"""The sandbox itself: a folder with a Rucio server and its daemons, brought up, looked at and taken down."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dc_inject.errors import ServiceError, UsageError

from . import processes
from .environment import default_environment, ensure_environment
from .grid import Dataset, Grid, Link, Rse, dataset_plain, link_plain, read_grid, rse_plain
from .locking import locked
from .services import DAEMONS, SERVER, STATE, Services, State, listen, write_private
from .settings import alembic_settings, client_settings, server_settings

POLICIES = ("owners", "generic")
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
        self.folder = Path(os.path.abspath(folder or default_folder()))  # noqa: PTH100 (links stay as given)
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
        return _url(State.read(self.folder))

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
        python = Path(os.path.abspath(env or default_environment()))  # noqa: PTH100 (as above)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.folder, self._say):
            if self.status().up:
                self._say(f"the sandbox in {self.folder} is up already")
                return
            self._refuse_foreign_folder()
            if self.folder.exists():
                self._say("clearing what an earlier sandbox left behind")
                self._clear(grace=0)
            ensure_environment(python, self._say)
            try:
                self._create(wanted, policy, python, interval)
            except BaseException:
                self._say("taking down what was begun")
                self._clear(grace=0)
                raise

    def down(self, *, keep: bool = False) -> bool:
        """End its processes and remove its folder (unless `keep`); returns whether there was anything."""
        if not self.folder.exists():
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
            state = State.read(self.folder)
        except ServiceError:
            return Status(up=False, folder=str(self.folder))
        services = Services(self.folder, state, self._say)
        server = bool(services.running(SERVER)) and services.answers()
        daemons = bool(services.running(DAEMONS))
        return Status(
            up=state.up and server and daemons,
            folder=str(self.folder),
            url=_url(state),
            config=str(self.config),
            account=state.account,
            policy=state.policy,
            server=server,
            daemons=daemons,
        )

    # what tests do to it --------------------------------------------------------------------------------

    def stop_server(self) -> None:
        """End the REST server; the daemons go on."""
        self._services().end(SERVER)

    def start_server(self) -> None:
        """Start the REST server again, at the same address."""
        services = self._services()
        with listen(State.read(self.folder).port) as listener:
            services.start_server(listener)
        services.wait(SERVER, services.answers)

    def stop_daemons(self) -> None:
        """End the daemons; what is on its way over the links starts again when they come back."""
        self._services().end(DAEMONS)
        (self.folder / "passes").unlink(missing_ok=True)

    def start_daemons(self) -> None:
        """Start the daemons again."""
        self._services().start_daemons()
        self.settle()

    def pause_daemons(self) -> None:
        """Let the daemons rest; returns when their present pass is over."""
        (self.folder / "pause").touch(mode=0o600)
        services = self._services()
        services.wait(DAEMONS, lambda: services.progress().get("paused") is True)

    def resume_daemons(self) -> None:
        """Let the daemons work again."""
        (self.folder / "pause").unlink(missing_ok=True)
        services = self._services()
        services.wait(DAEMONS, lambda: services.progress().get("paused") is False)

    def set_links(self, links: Mapping[tuple[str, str], Link] | None = None, default: Link | None = None) -> None:
        """Change links, or the default of all others, from the daemons' next pass on."""
        with locked(self.folder, self._say):  # several tests may do so at a time
            file = self.folder / "links.json"
            content = json.loads(file.read_text())
            content["links"] |= {":".join(pair): link_plain(link) for pair, link in (links or {}).items()}
            if default is not None:
                content["default"] = link_plain(default)
            write_private(file, json.dumps(content, indent=1))

    def add(self, rses: Iterable[Rse] = (), datasets: Mapping[str, Sequence[Dataset]] | None = None) -> None:
        """Add RSEs, and datasets by source RSE; returns when the datasets are candidates."""
        state = State.read(self.folder)
        self._services().build(
            {
                "rses": [rse_plain(rse) for rse in rses],
                "quotas": {state.account: state.quota},
                "datasets": _plain(datasets or {}),
            }
        )
        self.settle()

    def settle(self) -> None:
        """Wait until the daemons have worked off what was added before this call."""
        services = self._services()
        before = services.progress().get("passes", 0)

        def settled() -> bool:
            progress = services.progress()
            return bool(progress.get("passes", 0) >= before + 2 and progress["waiting"] == 0)

        services.wait(DAEMONS, settled)

    # parts of up and down -------------------------------------------------------------------------------

    def _create(self, grid: Grid, policy: str, python: Path, interval: float) -> None:
        self.folder.mkdir(mode=0o700)
        with listen() as listener:
            port = listener.getsockname()[1]
            state = State(secrets.token_hex(16), port, str(python), policy, grid.account, grid.quota)
            state.write(self.folder)
            services = self._services()
            passwords = {name: secrets.token_urlsafe(24) for name in ("root", grid.account)}
            self._write_settings(state, passwords)
            self._write("daemons.json", json.dumps({"interval": interval}))
            self._write("links.json", json.dumps(_links(grid), indent=1))
            self._write("pause", "")

            def start() -> None:
                self._say("starting the Rucio server and the daemons")
                services.start_server(listener)
                services.start_daemons()

            # they take seconds to start: they do so as soon as there is a database, beside the building
            services.build(_wanted(grid, passwords), after_first_line=start)
        self._say("waiting until the server answers and the datasets are known")
        self.resume_daemons()
        services.wait(SERVER, services.answers)
        self.settle()
        state.when_up().write(self.folder)

    def _write_settings(self, state: State, passwords: Mapping[str, str]) -> None:
        (self.folder / "log").mkdir(mode=0o700)
        library = self.folder / "lib" / "sandbox_server"
        shutil.copytree(Path(__file__).parent / "server", library, ignore=shutil.ignore_patterns("__pycache__"))
        for path in (library.parent, library, *library.rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)
        self._write("server.cfg", server_settings(self.folder, state.policy, passwords["root"]))
        self._write("alembic.ini", alembic_settings(self.folder))
        for name, account in (("root.cfg", "root"), ("rucio.cfg", state.account)):
            self._write(name, client_settings(self.folder, _url(state), account, passwords[account]))

    def _write(self, name: str, text: str) -> None:
        write_private(self.folder / name, text)

    def _services(self) -> Services:
        return Services(self.folder, State.read(self.folder), self._say)

    def _refuse_foreign_folder(self) -> None:
        if not self.folder.exists() or (self.folder / STATE).exists():
            return
        if {path.name for path in self.folder.iterdir()} - {f"{STATE}.new"}:
            raise UsageError(f"{self.folder} is in use for something else", "name another folder with --folder")

    def _clear(self, *, keep: bool = False, grace: float = 5.0) -> None:
        if not self.folder.exists():
            return
        if (self.folder / STATE).exists():  # else it crashed before it started anything
            marker = json.loads((self.folder / STATE).read_text())["marker"]  # all that every version has
            processes.end(lambda: processes.marked(marker), grace)
        if not keep:
            shutil.rmtree(self.folder)


def _url(state: State) -> str:
    return f"http://127.0.0.1:{state.port}"


def _plain(datasets: Mapping[str, Sequence[Dataset]]) -> dict[str, Any]:
    return {source: [dataset_plain(one) for one in some] for source, some in datasets.items()}


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
        "datasets": _plain(grid.datasets),
    }


def _links(grid: Grid) -> dict[str, Any]:
    return {
        "seed": grid.seed,
        "default": link_plain(grid.default_link),
        "links": {":".join(pair): link_plain(link) for pair, link in grid.links.items()},
    }
