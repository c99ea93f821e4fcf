"""The files of a ledger: made for us alone, and watched while it is open.

A ledger that was moved, deleted or replaced while an injector has it open is lost with all that is written to it
from then on; one with two names has two logs and two locks. The log must never become shorter while it is open.

How much a log has to hold is in the `-shm` file next to it (https://www.sqlite.org/walformat.html). It may only be
read before SQLite opens it: to close it would drop SQLite's locks.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import struct
from pathlib import Path

from dc_inject.ledger import errors, paths, schema
from dc_inject.model.errors import LedgerError
from dc_inject.system import disk

_INDEX = struct.Struct("=12xB1xHI76xI")  # whether it is valid, the page's size, frames, and those copied already
_LOG_HEAD, _FRAME = 32, 24  # bytes before the first frame of a log, and before each page
_MAGIC = b"SQLite format 3\0"
_HEAD = 100  # bytes of a database's header
_START = "find out who did that, and start again; what it lacks then is named"
_MEND = "fix that (rights, mount) and start again; with another ledger the campaign would start from zero"
_ELSEWHERE = "name a file in a folder that you may write to, with --ledger or XDG_STATE_HOME"


def missing_log(path: Path) -> int:
    """Return how many bytes the log of a ledger lacks that nothing has open here; 0 if it is whole."""
    log = _log(path)
    try:
        head = disk.read(log.with_name(log.name.removesuffix("-wal") + "-shm"), _INDEX.size)
    except OSError:
        return 0  # it was closed in good order, or was never opened
    if len(head) < _INDEX.size:
        return 0
    valid, page, frames, copied = _INDEX.unpack(head)
    wanted = _LOG_HEAD + frames * (_FRAME + (page if page > 1 else 65536))
    size = 0
    with contextlib.suppress(OSError):
        size = log.stat().st_size
    return max(wanted - size, 0) if valid and frames > copied else 0


class FileWatch:
    """Compares the files of an open ledger with what they were before."""

    def __init__(self, path: Path) -> None:
        """Take the path of a ledger that is open."""
        self._path = path
        self._log_path = _log(path)  # once: a link that leads elsewhere from now on is another file
        self._file: os.stat_result | None = None
        self._log: os.stat_result | None = None

    def look(self) -> None:
        """Raise LedgerError if the ledger is not in its place any more, has another name, or lost of its log."""
        file = self._seen(self._path, self._file)
        if file.st_nlink > 1:
            raise LedgerError(
                f"{self._path} has {file.st_nlink} names (hard links), so that two injectors could use it",
                f"delete the other names: `find / -xdev -inum {file.st_ino}` finds them",
            )
        path = self._log_path
        log = self._seen(path, self._log) if self._log or path.exists() else None
        if log and self._log and log.st_size < self._log.st_size:
            raise LedgerError(f"{path} was truncated while the ledger is in use", _START)
        self._file, self._log = file, log

    def _seen(self, path: Path, before: os.stat_result | None) -> os.stat_result:
        try:
            now = path.stat()
        except OSError as error:
            message = f"{path} was moved or deleted while the ledger is in use ({error.strerror})"
            raise LedgerError(message, "put it back, or " + _START) from None
        if before and not os.path.samestat(before, now):
            raise LedgerError(f"{path} was replaced while the ledger is in use", _START)
        return now


def _log(path: Path) -> Path:
    real = disk.real(path)
    return real.with_name(f"{real.name}-wal")


def make_file(path: Path) -> None:
    """Make the file, for us alone, in a folder that is ours alone when we have to make it."""
    try:
        paths.make_folder(path.parent)
        handle = disk.opened(disk.real(path), os.O_RDWR | os.O_CREAT, 0o600, follow=False)
    except disk.NotRegularError:
        raise LedgerError(f"{path} is not a ledger: it is not a regular file", schema.ANOTHER) from None
    except OSError as error:
        if errors.full(error):
            raise errors.of_system(path, error) from error
        raise LedgerError(
            f"the ledger {path} cannot be opened for writing: {error.strerror}",
            _MEND if os.path.lexists(path) else _ELSEWHERE,
        ) from None
    try:
        status = os.fstat(handle)
        ours = _is_ours(path, os.pread(handle, _HEAD, 0))
        if status.st_uid != os.geteuid():
            raise LedgerError(f"{path} belongs to another user (uid {status.st_uid})", schema.ANOTHER)
        if ours and status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            os.fchmod(handle, 0o600)
    finally:
        os.close(handle)


def make_log_ours(path: Path) -> None:
    """Let us write what a reader has left next to a ledger.

    SQLite makes the log for a reader too, with the rights that the ledger has just then, perhaps none to write;
    and only a writer removes it.
    """
    real = disk.real(path)
    for file in (real.with_name(f"{real.name}{end}") for end in ("-wal", "-shm")):
        with contextlib.suppress(FileNotFoundError):
            status = file.lstat()
            if status.st_uid != os.geteuid():
                raise LedgerError(
                    f"{file} belongs to another user (uid {status.st_uid}), who has read the ledger",
                    "as root, give it to the owner of the ledger with `chown`; let others read copies",
                )
            if stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) != 0o600:
                file.chmod(0o600)


def refuse_foreign(path: Path) -> None:
    """Raise LedgerError for a file that is no SQLite database, before SQLite touches it."""
    try:
        head = disk.read(path, _HEAD)
    except OSError as error:
        raise LedgerError(
            f"the ledger {path} cannot be read: {error.strerror}", "check its owner and rights"
        ) from None
    _is_ours(path, head)


def _is_ours(path: Path, head: bytes) -> bool:
    """Return by the head of a file whether it is a ledger or empty; a new one's head may still be in its log.

    Raises LedgerError for what is certainly neither, before SQLite touches it.
    """
    if head and not head.startswith(_MAGIC):
        raise LedgerError(f"{path} is not a ledger, and not a database", schema.ANOTHER)
    application = int.from_bytes(head[68:72], "big")  # https://www.sqlite.org/fileformat.html#the_database_header
    if application not in {0, schema.APPLICATION_ID}:
        schema.refuse_version(path, None)
    return not head or application == schema.APPLICATION_ID


def find_defect(path: Path) -> str | None:
    """Return the code of what makes a file no ledger of this version; None where it is one, or cannot be seen."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            number = schema.version(connection)
            if number in schema.READABLE:
                return "schema" if schema.differences(connection) else None
    except sqlite3.OperationalError:  # it cannot be opened, or others keep it locked
        return None
    except sqlite3.DatabaseError as error:
        return "no-ledger" if getattr(error, "sqlite_errorname", "") == "SQLITE_NOTADB" else "damaged"
    return "no-ledger" if number is None else "version"
