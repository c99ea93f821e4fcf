"""The SQLite file under a ledger: opening it safely, transactions, and errors that a person can act on."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dc_inject.errors import LedgerError
from dc_inject.ledger.schema import APPLICATION_ID, MIGRATIONS, VERSION

BUSY_SECONDS = 30.0  # how long a writer waits for another one (a stop from another terminal, say)
NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "lustre", "gpfs", "ceph", "beegfs", "9p"}
    | {"fuse.sshfs", "fuse.cvmfs2", "fuse.eosxd", "fuse.glusterfs"}
)


class Database:
    """A connection to a ledger's file, for one thread; no sqlite3 exception leaves it."""

    def __init__(self, path: Path, *, synchronous: str = "FULL", readonly: bool = False) -> None:
        """Open the file (and create it, unless `readonly`); raises LedgerError with a hint."""
        self.path = path
        if synchronous not in {"OFF", "NORMAL", "FULL", "EXTRA"}:
            raise LedgerError(f"synchronous cannot be {synchronous!r}")
        refuse_network(path)
        with translated(path):
            if readonly:
                if not path.exists():
                    raise LedgerError(f"there is no ledger {path}")
                self._connection = sqlite3.connect(
                    f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS, isolation_level=None
                )
            else:
                _private(path)
                self._connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            self._connection.row_factory = sqlite3.Row
            self._recognise(readonly=readonly)
            self._connection.execute("PRAGMA foreign_keys = ON")
            if readonly:
                self._connection.execute("PRAGMA query_only = ON")
            else:
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute(f"PRAGMA synchronous = {synchronous}")
                self._migrate()

    def close(self) -> None:
        """Close the connection; twice is the same as once."""
        self._connection.close()

    def read(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """Return all rows of a query."""
        with translated(self.path):
            return self._connection.execute(sql, values).fetchall()

    def one(self, sql: str, *values: Any) -> sqlite3.Row | None:
        """Return the first row of a query, or None."""
        with translated(self.path):
            found: sqlite3.Row | None = self._connection.execute(sql, values).fetchone()
            return found

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Give the connection inside a transaction: all of it is on disk afterwards, or nothing."""
        with translated(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Give the connection for a part of a transaction that somebody else has begun."""
        assert self._connection.in_transaction, "every write belongs to a transaction"
        yield self._connection

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let several reads see one state of the ledger, whatever an injector writes meanwhile; may be nested."""
        if self._connection.in_transaction:
            yield
            return
        with translated(self.path):
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("ROLLBACK")

    def copy_to(self, path: Path) -> None:
        """Copy the ledger as it is now into another file, also while it is written."""
        with translated(path):
            _private(path)
            target = sqlite3.connect(path)
            try:
                self._connection.backup(target)
            finally:
                target.close()

    def _recognise(self, *, readonly: bool) -> None:
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and application != APPLICATION_ID:
            raise LedgerError(f"{self.path} is a database of something else", "name another file with --ledger")
        if version > VERSION:
            raise LedgerError(
                f"{self.path} is of version {version}, from a newer dc_inject (this one knows {VERSION})",
                "use the newer dc_inject",
            )
        if readonly and version < VERSION:
            raise LedgerError(
                f"{self.path} is of version {version}, this dc_inject reads {VERSION}", "start `run` once"
            )

    def _migrate(self) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
            self._connection.executescript(
                f"BEGIN IMMEDIATE; {script} PRAGMA application_id = {APPLICATION_ID};"
                f" PRAGMA user_version = {number}; COMMIT;"
            )


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn what SQLite and the file system say into a LedgerError with a hint."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        hint = "look at the disk, the folder's permissions, and who else writes there"
        if "locked" in text:
            hint = "another process keeps writing to it; is a backup or a second tool at work?"
        elif "full" in text:
            hint = "the disk is full; make room, and start again: nothing is lost"
        elif "readonly" in text or "unable to open" in text:
            hint = "the file and its folder have to be writable for this user"
        raise LedgerError(f"the ledger {path} cannot be used: {text}", hint) from error
    except sqlite3.DatabaseError as error:
        raise LedgerError(
            f"the ledger {path} cannot be used: {error}", "is it a ledger? name another file with --ledger"
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise LedgerError(
            f"the ledger {path} cannot be used: {reason}", "name a place that this user can write, with --ledger"
        ) from error


def refuse_network(path: Path, mounts: Path = Path("/proc/self/mounts")) -> None:
    """Raise LedgerError when the file would be on a network file system, where locks cannot be trusted."""
    if not mounts.exists():
        return
    target, best, kind = str(path.absolute()), "", ""
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    if kind in NETWORK:
        raise LedgerError(
            f"{path} is on a network file system ({kind} at {best}), where a ledger could be damaged",
            "keep it on a local disk, with --ledger or XDG_STATE_HOME",
        )


def _private(path: Path) -> None:
    """Make the folder (0700) and the file (0600) where they are missing."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    path.chmod(0o600)
