"""What errors of SQLite and of the file system mean to an operator, and what to do about them."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from pathlib import Path

from dc_inject.model.errors import LedgerBroken, NumberTooLarge


class translated:  # noqa: N801  it is called like a function
    """Turn errors of SQLite inside the block into LedgerBroken with what a person can do.

    It is around each statement: a generator would take several times as long.
    """

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        """Take the path of the ledger."""
        self._path = path

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise what an error means."""
        if isinstance(error, sqlite3.Error):
            raise _ledger_error(self._path, getattr(error, "sqlite_errorname", ""), str(error)) from error
        if isinstance(error, OverflowError):
            raise NumberTooLarge(
                f"a number is too large for the ledger {self._path}", "check rates and sizes"
            ) from error


_MEANINGS = (  # the beginning of SQLite's name of an error, what it means, what to do
    ("SQLITE_FULL", "the disk is full", "free some space and start again; what was written before is safe"),
    ("SQLITE_BUSY", "another process has locked it", "see who has it open (`lsof`, `fuser`), and start again"),
    ("SQLITE_LOCKED", "another process has locked it", "see who has it open (`lsof`, `fuser`), and start again"),
    ("SQLITE_READONLY", "it cannot be written", "check the rights on the file and its folder"),
    ("SQLITE_PERM", "it cannot be written", "check the rights on the file and its folder"),
    ("SQLITE_CANTOPEN", "it cannot be opened", "check the rights on the file, its -wal and -shm, and its folder"),
    ("SQLITE_NOTADB", "it is not a database", "name another file"),
    ("SQLITE_CORRUPT", "it is damaged", "keep it with its -wal for an investigation, and continue with a backup"),
    ("SQLITE_IOERR", "the disk does not work", "check the system's log; what was written before is safe"),
    (
        "SQLITE_CONSTRAINT",
        "it refused an inconsistent change",
        "this is a bug: please report it with this message",
    ),
)


_ROOM = 32 * 1024  # bytes by which SQLite lengthens its -shm
_OF_SYSTEM = {  # an errno, and SQLite's name of the same trouble; any other is one of the disk
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "SQLITE_FULL"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "SQLITE_READONLY"),
}


def of_system(path: Path, error: OSError) -> LedgerBroken:
    """Return what an error of the file system means for a ledger: what SQLite's own of the same trouble does."""
    return _ledger_error(path, _OF_SYSTEM.get(error.errno or 0, "SQLITE_IOERR"), error.strerror or str(error))


def full(error: OSError) -> bool:
    """Whether a disk, or a quota on it, is full."""
    return error.errno in {errno.ENOSPC, errno.EDQUOT}


def _no_room(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.absolute().parent).free < _ROOM
    except OSError:
        return False


def _ledger_error(path: Path, name: str, message: str) -> LedgerBroken:
    if name.startswith("SQLITE_IOERR") and _no_room(path):
        name = "SQLITE_FULL"  # where SQLite cannot lengthen its -shm it reports that the disk does not work
    for start, meaning, hint in _MEANINGS:
        if name.startswith(start):
            return LedgerBroken(f"the ledger {path}: {meaning} ({message})", hint)
    return LedgerBroken(f"the ledger {path}: {message}", "please report it with this message")
