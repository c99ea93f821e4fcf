"""Makes a sandbox in a new folder: settings, processes, the grid in Rucio, files on the storages."""

from __future__ import annotations

import json
import secrets
import shutil
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import ownership, postgres, storages
from .contents import datasets_plain, rses_plain
from .environment import RELEASES
from .grid import Grid, link_plain
from .services import DAEMONS, POSTGRES, Services, listen
from .settings import ALEMBIC, CLIENT, server_settings, sqlite_address
from .state import State, write_private
from .xrootd import Xrootd

Report = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """What a sandbox is to be: `python` is the folder of the server's environment, `interval` in seconds."""

    grid: Grid
    policy: str
    python: Path
    interval: float
    xrootd: Xrootd | None = None  # without it there are no storages
    storages: int = 0
    db: str = "sqlite"
    rucio: str = RELEASES[0]
    time_scale: float = 1.0  # of the FTS service


@dataclass(frozen=True)
class Listeners:
    """Sockets that listen before any process lives, so that no other process can take their ports."""

    server: socket.socket
    storages: Mapping[str, socket.socket]
    fts: tuple[socket.socket, ...]


def make(folder: Path, wanted: Wanted, report: Report) -> None:
    """Make it, up to where its processes run and the grid is built; they may still be starting."""
    ownership.claim(folder, "--folder", mode=0o700)
    with ExitStack() as stack:
        listeners = _open(stack, wanted)
        grid = storages.with_storages(wanted.grid, listeners.storages)
        state = _state(wanted, listeners).with_rses(grid.rses)
        state.write(folder)
        passwords = {name: secrets.token_urlsafe(24) for name in ("root", grid.account)}
        _write_settings(folder, state, passwords)
        write_private(folder / "daemons.json", json.dumps({"interval": wanted.interval}))
        write_private(folder / "links.json", json.dumps(_links(grid), indent=1))
        write_private(folder / "pause", "")
        if state.db == "sqlite":
            write_private(folder / "rucio.db", "")  # Rucio would make it readable for others
        services = Services(folder, state, report)
        if state.db == "postgres":
            report("starting PostgreSQL")
            postgres.prepare(folder, state)
            services.start_postgres()
        if listeners.storages:
            report("starting the storages and the FTS service")
            storages.prepare(folder, state)
            write_private(folder / "fts" / "defaults.json", json.dumps({"time_scale": wanted.time_scale}))
            storages.start(services, listeners.storages, listeners.fts)

        if state.db == "postgres":
            services.wait(POSTGRES, services.postgres_answers)
        report("starting the daemons and the Rucio server")
        services.start_daemons()
        services.wait(DAEMONS, lambda: bool(services.progress()))
        report("database created")
        services.start_server(listeners.server)  # which needs a database, and takes seconds to load Rucio
        services.order(*_contents(folder, state, grid, passwords))


def _open(stack: ExitStack, wanted: Wanted) -> Listeners:
    names = storages.addresses(wanted.storages) if wanted.xrootd else {}
    return Listeners(
        stack.enter_context(listen()),
        {name: stack.enter_context(listen(host=host)) for name, host in names.items()},
        tuple(stack.enter_context(listen()) for _ in range(2 if names else 0)),
    )


def _state(wanted: Wanted, listeners: Listeners) -> State:
    plain = State(
        secrets.token_hex(16),
        listeners.server.getsockname()[1],
        str(wanted.python),
        wanted.policy,
        wanted.grid.account,
        wanted.grid.quota,
        db=wanted.db,
        rucio=wanted.rucio,
    )
    if not wanted.xrootd:
        return plain
    fts, fts_tls = (listener.getsockname()[1] for listener in listeners.fts)
    return replace(
        plain,
        storages={name: "{}:{}".format(*listener.getsockname()) for name, listener in listeners.storages.items()},
        xrootd=str(wanted.xrootd.program),
        library=str(wanted.xrootd.library) if wanted.xrootd.library else None,
        fts=fts,
        fts_tls=fts_tls,
    )


def _write_settings(folder: Path, state: State, passwords: Mapping[str, str]) -> None:
    (folder / "log").mkdir(mode=0o700)
    library = folder / "lib" / "sandbox_server"
    shutil.copytree(Path(__file__).parent / "server", library, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (library.parent, library, *library.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
        if path.is_dir():  # where servers leave their bytecode; made here, it is the owner's alone
            (path / "__pycache__").mkdir(mode=0o700)
    database = postgres.ADDRESS if state.db == "postgres" else sqlite_address(folder)
    root, storages_too = passwords["root"], bool(state.storages)
    settings = server_settings(folder, database, state.policy, root, storages=storages_too)
    write_private(folder / "server.cfg", settings)
    write_private(folder / "alembic.ini", ALEMBIC.format(database=database))
    for name, account in (("root.cfg", "root"), ("rucio.cfg", state.account)):
        settings = CLIENT.format(folder=folder, url=state.url, account=account, password=passwords[account])
        write_private(folder / name, settings)


def _contents(folder: Path, state: State, grid: Grid, passwords: Mapping[str, str]) -> list[dict[str, Any]]:
    """Write the orders for a grid: accounts and RSEs, then the datasets of each source."""
    places = {
        "accounts": [
            {"name": "production", "type": "SERVICE"},
            {"name": grid.account, "type": "USER", "password": passwords[grid.account]},
        ],
        "scopes": grid.scopes,
        "rses": rses_plain(state, grid.rses),
        "quotas": {grid.account: grid.quota},
    }
    datasets = datasets_plain(folder, state, grid.datasets)
    return [places, *({"datasets": {source: some}} for source, some in datasets.items())]


def _links(grid: Grid) -> dict[str, Any]:
    return {
        "seed": grid.seed,
        "default": link_plain(grid.default_link),
        "links": {":".join(pair): link_plain(link) for pair, link in grid.links.items()},
    }
