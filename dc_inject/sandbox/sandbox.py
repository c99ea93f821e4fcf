"""The sandbox itself: a folder with a Rucio server and its daemons, brought up, looked at and taken down."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from dc_inject.model.errors import ServiceError, UsageError

from . import ownership, processes
from .controls import RucioControls
from .environment import (
    RELEASES,
    default_environment,
    ensure_environment,
    ensure_postgres,
    installed_release,
    lock_of,
)
from .grid import Grid, read_grid
from .locking import locked
from .making import Wanted, make
from .services import DAEMONS, FTS, POSTGRES, SERVER, storage_role, tape_role
from .state import STATE, State
from .storages import StorageControls, addresses, wait
from .xrootd import default_xrootd, ensure_xrootd

POLICIES = ("owners", "generic")
DATABASES = ("sqlite", "postgres")


@dataclass(frozen=True)
class Status:
    """The answer of `status`: up is true when the server answers and the daemons live."""

    up: bool
    folder: str
    url: str | None = None
    config: str | None = None  # rucio.cfg of the ordinary account
    account: str | None = None
    policy: str | None = None
    db: str | None = None  # sqlite or postgres
    rucio: str | None = None  # the release of its server
    server: bool = False
    daemons: bool = False
    fts: str | None = None
    fts_tls: str | None = None
    storages: Mapping[str, str] = field(default_factory=dict)  # prefixes of URLs, by name
    stopped: tuple[str, ...] = ()  # storages, and `fts`, of which no process lives


class _Part(NamedTuple):
    """What can be stopped and started alone, and the role of its processes."""

    role: str
    stop: Callable[[], None]
    start: Callable[[], None]


class Sandbox(RucioControls, StorageControls):
    """The sandbox in a folder: brought up, looked at, taken down."""

    def up(
        self,
        *,
        grid: Path | Grid | None = None,
        policy: str = "owners",
        env: Path | None = None,
        interval: float = 0.2,
        db: str = "sqlite",
        rucio: str | None = None,
        storage: str | None = None,
        storages: int = 3,
        xrootd: Path | None = None,
        time_scale: float = 1.0,
    ) -> None:
        """Bring it up, unless it is up; clears what a crash left behind, leaves nothing when it fails itself.

        `interval` is the pause between two passes of the daemons, in seconds; `rucio` is the release of the
        server, one of RELEASES (by default that of the environment `env`, or the first).
        With `db="postgres"` Rucio's catalogue is in PostgreSQL, which is installed into the server's environment
        at the first time.
        With `storage="xrootd"` there are `storages` real ones too, each an RSE as well, and an FTS service;
        `xrootd` is where Debian's packages are unpacked when the system has none. All times of the FTS service are
        those of a real one multiplied with `time_scale`.
        """
        if policy not in POLICIES:
            raise UsageError(f"there is no policy {policy!r}", f"known are {', '.join(POLICIES)}")
        if db not in DATABASES:
            raise UsageError(f"there is no database {db!r}", f"known are {', '.join(DATABASES)}")
        if storage not in (None, "xrootd"):
            raise UsageError(f"there is no storage {storage!r}", "known is xrootd")
        release = rucio or (installed_release(env) if env else RELEASES[0])
        lock_of(release)  # refuses a release that there is not
        addresses(storages)  # refused now, and not after minutes of installing
        wanted = grid if isinstance(grid, Grid) else read_grid(grid)
        python = Path(os.path.abspath(env or default_environment(release)))  # noqa: PTH100 (keeps links)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.folder, self._report):
            if self.status().up:
                self._refuse_to_change(db, storage, rucio)
                self._report(f"the sandbox in {self.folder} is up already")
                return
            ownership.refuse_foreign(self.folder, "--folder")
            if self.folder.exists():
                self._report("clearing what an earlier sandbox left behind")
                self._clear(grace=0)
            ensure_environment(python, self._report, release)
            if db == "postgres":
                ensure_postgres(python, self._report)
            unpacked = Path(os.path.abspath(xrootd or default_xrootd()))  # noqa: PTH100 (as above)
            program = ensure_xrootd(unpacked, self._report) if storage else None
            try:
                self._make(Wanted(wanted, policy, python, interval, program, storages, db, release, time_scale))
            except BaseException:
                self._report("taking down what was begun")
                self._clear(grace=0)
                raise

    def down(self, *, keep: bool = False) -> bool:
        """End its processes and remove its folder (unless `keep`); returns whether there was anything."""
        if not self.folder.exists():
            return False
        with locked(self.folder, self._report):
            if not self.folder.exists():
                return False
            ownership.refuse_foreign(self.folder, "--folder")
            self._clear(keep=keep)
        return True

    def status(self) -> Status:
        """Look at it; never raises for a sandbox that is down."""
        try:
            state = self._state()
        except ServiceError:
            return Status(up=False, folder=str(self.folder))
        services = self._services()
        server = bool(services.running(SERVER)) and services.answers()
        daemons = bool(services.running(DAEMONS))
        return Status(
            up=state.up and server and daemons,
            folder=str(self.folder),
            url=state.url,
            config=str(self.config),
            account=state.account,
            policy=state.policy,
            db=state.db,
            rucio=state.rucio,
            server=server,
            daemons=daemons,
            fts=state.fts_url,
            fts_tls=self.fts_tls_url if state.fts else None,
            storages=self.storages,
            stopped=self._stopped(state),
        )

    def _stopped(self, state: State) -> tuple[str, ...]:
        """Name the parts other than Rucio of which nothing runs."""
        roles = {name: storage_role(name) for name in state.storages} | ({"fts": FTS} if state.fts else {})
        living = processes.roles(state.marker)
        return tuple(name for name, role in roles.items() if role not in living)

    def stop(self, part: str) -> None:
        """Stop a part: `rucio`, `daemons`, `database`, `fts`, or a storage by its name."""
        self._part(part).stop()
        self._report(f"{part}: stopped")

    def start(self, part: str) -> None:
        """Start a part that was stopped, and wait until it answers; one that runs stays as it is."""
        wanted = self._part(part)
        if self._services().running(wanted.role):
            self._report(f"{part}: running already")
        else:
            wanted.start()
            self._report(f"{part}: running again")

    def _part(self, name: str) -> _Part:
        state = self._state()
        parts = {
            "rucio": _Part(SERVER, self.stop_server, self.start_server),
            "daemons": _Part(DAEMONS, self.stop_daemons, self.start_daemons),
        }
        if state.db == "postgres":
            parts["database"] = _Part(POSTGRES, self.stop_database, self.start_database)
        if state.fts:
            parts["fts"] = _Part(FTS, self.stop_fts, self.start_fts)
        for storage in state.storages:
            parts[storage] = _Part(
                storage_role(storage), partial(self.stop_storage, storage), partial(self.start_storage, storage)
            )
        if name not in parts:
            raise UsageError(f"the sandbox has no part {name!r}", f"there are {', '.join(parts)}")
        return parts[name]

    # parts of up and down -------------------------------------------------------------------------------

    def _refuse_to_change(self, db: str, storage: str | None, rucio: str | None) -> None:
        state = self._state()
        if rucio not in (None, state.rucio):
            raise UsageError(f"the sandbox is up, with Rucio {state.rucio}", "first run `dc-inject sandbox down`")
        if storage and not state.storages:
            raise UsageError("the sandbox is up, without storages", "first run `dc-inject sandbox down`")
        if db == "postgres" != state.db:
            raise UsageError(f"the sandbox is up, with {state.db}", "first run `dc-inject sandbox down`")

    def _make(self, wanted: Wanted) -> None:
        make(self.folder, wanted, self._report)
        self._report("waiting until the server answers and the datasets are known")
        self.resume_daemons()
        services, state = self._services(), self._state()
        services.wait(SERVER, services.answers)
        wait(services, state)
        self.settle()
        replace(self._state(), up=True).write(self.folder)

    def _clear(self, *, keep: bool = False, grace: float = 5.0) -> None:
        if not self.folder.exists():
            return
        if (self.folder / STATE).exists():  # else it crashed before it started anything
            state = json.loads((self.folder / STATE).read_text())
            marker = state["marker"]  # all that every version has
            if state.get("db") == "postgres":  # in order: first those who use it
                users = [partial(processes.marked, marker, role) for role in (SERVER, DAEMONS)]
                processes.end(lambda: [pid for find in users for pid in find()], grace)
                processes.end(partial(processes.marked, marker, POSTGRES))
            processes.end(lambda: processes.marked(marker), grace)
        if not keep:
            ownership.remove(self.folder, "--folder")


def own_addresses(folder: Path) -> frozenset[str]:
    """Return `host:port` of what is served by living processes of the sandbox in a folder: FTS, storages, tapes.

    There are none where the folder, or its record of processes, belongs to another user.
    """
    if not ownership.is_private(folder, STATE):
        return frozenset()
    try:
        state = State.read(folder)
    except ServiceError:  # taken down meanwhile
        return frozenset()
    living = processes.roles(state.marker)
    addresses = {address for name, address in state.storages.items() if storage_role(name) in living}
    addresses |= {address for name, address in state.tapes.items() if tape_role(name) in living}
    if FTS in living:
        addresses |= {f"127.0.0.1:{port}" for port in (state.fts, state.fts_tls) if port}
    return frozenset(addresses)
