"""The storages of a sandbox, and the service that moves files between them: stop, start, slow down, look in."""

from __future__ import annotations

import json
import re
import secrets
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from dc_inject.model.errors import UsageError

from . import authority, storage
from .authority import Authority
from .grid import Grid, Rse, make_datasets
from .handle import Handle
from .locking import locked
from .services import FTS, Services, answers, listen, storage_role, tape_role
from .settings import storage_settings
from .state import State, write_private
from .storage import Stored

DATASETS = 4  # at every storage
MOST = 200  # storages, each on an address of its own
SPACE = 10**12  # bytes of space that an RSE on a storage has


class StorageControls(Handle):
    """The part of a sandbox that is storage; all of it needs `up(storage="xrootd")`."""

    @property
    def storages(self) -> dict[str, str]:
        """Prefixes of the storages' URLs, by name."""
        return {name: f"http://{address}" for name, address in self._state().storages.items()}

    @property
    def authority(self) -> Authority:
        """Who issues certificates that the storages and the FTS service trust."""
        return Authority(self.folder / "authority")

    @property
    def fts_url(self) -> str:
        """Address of the FTS service with plain http."""
        return f"http://127.0.0.1:{self._state().fts}"

    @property
    def fts_tls_url(self) -> str:
        """Address of the FTS service with TLS, which knows who calls by the certificate."""
        return f"https://127.0.0.1:{self._state().fts_tls}"

    def stop_storage(self, name: str) -> None:
        """End a storage; its address refuses connections until it is started again."""
        self._require_storage(name)
        self._services().end(storage_role(name))

    def start_storage(self, name: str) -> None:
        """Start a storage again, at the same address."""
        host, port = self._require_storage(name)
        services = self._services()
        with listen(port, host) as listener:
            services.start_storage(name, listener)
        services.wait(storage_role(name), lambda: services.storage_answers(name))

    def throttle(self, name: str, rate: int | None) -> None:
        """Let a storage give and take `rate` bytes a second, or (None) what it can; starts it again."""
        self.stop_storage(name)
        write_settings(self.folder, self._state(), name, rate)
        self.start_storage(name)

    def start_tape(self, name: str, drives: int, seconds: float) -> str:
        """Put a tape system in front of a storage, and return its URL: by it, all files there are on tape only.

        Each of its drives stages a file in so many seconds.
        """
        host, port = self._require_storage(name)
        services = self._services()
        services.end(tape_role(name))
        settings = json.dumps({"storage": f"http://{host}:{port}", "drives": drives, "seconds": seconds})
        write_private(self.folder / "storage" / name / "tape.json", settings)
        with listen(host=host) as listener:
            services.start_tape(name, listener)
            address = f"{host}:{listener.getsockname()[1]}"
        replace(state := self._state(), tapes={**state.tapes, name: address}).write(self.folder)
        services.wait(tape_role(name), lambda: answers(address, "/.well-known/wlcg-tape-rest-api"))
        return f"http://{address}"

    def put(self, name: str, path: str, size: int, seed: object = 0) -> Stored:
        """Write a file straight into a storage's folder; the content follows from the seed."""
        self._require_storage(name)
        return storage.write(storage.data_folder(self.folder, name), path, size, seed)

    def storage_file(self, name: str, path: str) -> Stored:
        """Look at a file on disk. Raises FileNotFoundError when it is not there."""
        self._require_storage(name)
        return storage.read(storage.data_folder(self.folder, name), path)

    def storage_files(self, name: str, under: str = "/") -> dict[str, int]:
        """Sizes of all files on disk below a folder of a storage, by path."""
        self._require_storage(name)
        return dict(storage.walk(storage.data_folder(self.folder, name), under))

    def issue_certificate(self, person: str) -> tuple[Path, Path]:
        """Issue a certificate that the FTS service takes, and its key, to a person."""
        return self.authority.issue(self._person(person))

    def issue_token(self, person: str) -> Path:
        """Make the FTS service know a new bearer token of a person, and return the file that holds it."""
        name, tokens = self._person(person), self.folder / "fts" / "tokens.json"
        token = secrets.token_urlsafe(32)
        with locked(self.folder, self._report):
            by_token = json.loads(tokens.read_text()) if tokens.exists() else {}
            write_private(tokens, json.dumps(by_token | {token: {"vo": "sandbox", "user": f"/CN={name}"}}))
        file = self.folder / "authority" / f"{name}.token"
        write_private(file, token)
        return file

    def _person(self, name: str) -> str:
        if not self._state().fts:
            raise UsageError("the sandbox has no FTS service", "bring it up with --storage xrootd")
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,40}", name) or name in {"ca", "fts", "storage"}:
            raise UsageError(f"{name!r} is not a name for a person here", "one word such as alice")
        return name

    def stop_fts(self) -> None:
        """End the FTS service."""
        self._services().end(FTS)

    def start_fts(self) -> None:
        """Start the FTS service again, at the same addresses."""
        services = self._services()
        state = self._state()
        with listen(state.fts) as plain, listen(state.fts_tls) as tls:
            services.start_fts(plain, tls)
        services.wait(FTS, services.fts_answers)

    def _require_storage(self, name: str) -> tuple[str, int]:
        """Return host and port of a storage of the sandbox. Raises UsageError for another name."""
        storages = self._state().storages
        if name not in storages:
            hint = f"there are {', '.join(storages)}" if storages else "bring it up with --storage xrootd"
            raise UsageError(f"the sandbox has no storage {name!r}", hint)
        host, _, port = storages[name].partition(":")
        return host, int(port)


def addresses(count: int) -> dict[str, str]:
    """Give `count` storages a name and an address each: links are distinguished by host, not by port."""
    if not 1 <= count <= MOST:
        raise UsageError(f"{count} storages cannot be: from 1 to {MOST}")
    return {f"XRD{number}": f"127.0.0.{number + 1}" for number in range(1, count + 1)}


def with_storages(grid: Grid, names: Iterable[str]) -> Grid:
    """Add to a grid an RSE of the same name for every storage, with a few small datasets."""
    rses = [Rse(name, SPACE, attributes={"site": name, "tier": "2"}, on=name) for name in names]
    datasets = {
        rse.name: make_datasets(
            rse.name,
            DATASETS,
            scope=grid.scopes[0],
            files=(3, 3),
            file_size=(1_000_000, 5_000_000),
            seed=grid.seed,
        )
        for rse in rses
    }
    return replace(grid, rses=(*grid.rses, *rses), datasets={**grid.datasets, **datasets})


def prepare(folder: Path, state: State) -> None:
    """Make the folders, certificates and settings of the storages and of the FTS service."""
    hosts = {address.partition(":")[0] for address in state.storages.values()}
    trusted = authority.create(folder / "authority")
    _give(folder / "fts", trusted, trusted.issue("fts", ["127.0.0.1", "localhost"]))
    of_storages = trusted.issue("storage", sorted(hosts))
    (folder / "storage").mkdir(mode=0o700)
    for name in state.storages:
        _give(folder / "storage" / name, trusted, of_storages)
        storage.data_folder(folder, name).mkdir(mode=0o700)
        write_settings(folder, state, name, None)


def _give(folder: Path, trusted: Authority, issued: tuple[Path, Path]) -> None:
    """Make the folder of a service, with its certificate and key and those whom it trusts."""
    folder.mkdir(mode=0o700)
    certificate, key = issued
    names = {"host.pem": certificate, "host.key": key, "ca.pem": trusted.certificate}
    for name, file in (names | {"certificates": trusted.directory}).items():
        (folder / name).symlink_to(file)


def write_settings(folder: Path, state: State, name: str, rate: int | None) -> None:
    """Write the settings of one storage, which it reads when it starts."""
    port = int(state.storages[name].partition(":")[2])
    write_private(folder / "storage" / name / "xrootd.cfg", storage_settings(port, rate))


def start(services: Services, listeners: Mapping[str, socket.socket], fts: Sequence[socket.socket]) -> None:
    """Start the storages and the FTS service on their sockets; they may still be starting at the end of it."""
    for name, listener in listeners.items():
        services.start_storage(name, listener)
    services.start_fts(*fts)


def wait(services: Services, state: State) -> None:
    """Wait until all storages and the FTS service answer."""
    for name in state.storages:
        services.wait(storage_role(name), partial(services.storage_answers, name))
    if state.fts:
        services.wait(FTS, services.fts_answers)
