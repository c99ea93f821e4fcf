"""Whether the files of an open ledger are still in their place, whole, and under one name.

A ledger that was moved, deleted or replaced while an injector has it open is lost with all that is written to it
from then on; one with two names has two logs and two locks. The log must never become shorter while it is open.

How much a log has to hold is in the `-shm` file beside it (https://www.sqlite.org/walformat.html). It may only be
read before SQLite opens it: to close it would drop SQLite's locks.
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

from dc_inject.model.errors import LedgerError
from dc_inject.system import disk

_INDEX = struct.Struct("=12xB1xHI76xI")  # whether it is valid, the page's size, frames, and those copied already
_HEAD, _FRAME = 32, 24  # bytes before the first frame of a log, and before each page
_START = "find out who did that, and start again; what it lacks then is named"


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
    wanted = _HEAD + frames * (_FRAME + (page if page > 1 else 65536))
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
