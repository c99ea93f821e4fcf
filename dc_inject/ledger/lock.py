"""The injector's lock: one at a time, freed by the kernel when its holder dies, with the holder's name inside."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dc_inject.ledger import errors
from dc_inject.model.errors import LedgerError
from dc_inject.model.redaction import scrub
from dc_inject.system import disk

_PAUSE = 0.05  # seconds between two tries
_BEGIN = b'{"who": '  # of what a holder writes
_LEAST = 5  # tries: somebody who only asks who holds the lock has it for an instant


@contextlib.contextmanager
def held(path: Path, who: str, patience: timedelta) -> Iterator[None]:
    """Hold the lock of a ledger inside the block; raises LedgerError with the holder's name.

    flock belongs to the open file and not to the process, so that closing another handle of the same file (the
    metrics look at it) does not free it. The file stays afterwards, and only goes together with its ledger.
    """
    file = lock_file(path)
    try:
        handle = disk.opened(file, os.O_RDWR | os.O_CREAT, 0o600, follow=False)
    except OSError as error:
        if errors.full(error):
            raise errors.of_system(path, error) from error
        hint = "check the rights on it and on its folder"
        raise LedgerError(f"cannot lock {file}: {error.strerror}", hint) from None
    try:
        _refuse_foreign(handle, file)
        if not _taken(handle, fcntl.LOCK_EX, max(int(patience.total_seconds() / _PAUSE), _LEAST)):
            since = datetime.fromtimestamp(os.fstat(handle).st_mtime, UTC)
            raise LedgerError(
                f"{path} is in use: {_holder_in_words(handle)} injects with it since {since:%Y-%m-%d %H:%M:%SZ}",
                "a ledger has one injector; `dc-inject stop` stops it from injecting, from any terminal",
            )
        if not _in_place(handle, file):
            raise LedgerError(f"{path} has just been deleted", "start again")
        try:
            _say(handle, who)
        except OSError as error:
            raise errors.of_system(path, error) from error
        try:
            yield
        finally:
            os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def holder(path: Path) -> str | None:
    """Return who holds the lock of a ledger now, in words, or None; raises LedgerError when it cannot be told."""
    try:
        handle = disk.opened(lock_file(path), follow=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerError(
            f"the lock {lock_file(path)} cannot be read: {error.strerror}", "check its owner and rights"
        ) from None
    try:
        return None if _taken(handle, fcntl.LOCK_SH, 1) else _holder_in_words(handle)
    finally:
        os.close(handle)


def lock_file(path: Path) -> Path:
    """Return the lock's file of a ledger; it was last written when its holder took the lock."""
    real = disk.real(path)  # a ledger that is reached by two names has one lock
    return real.with_name(real.name + ".lock")


def _refuse_foreign(handle: int, file: Path) -> None:
    """Raise LedgerError for a file that is not only a lock of ours: to take the lock is to write into it."""
    status = os.fstat(handle)
    content = os.pread(handle, 4096, 0).strip(b"\0")  # of a lock whose holder lost power
    if status.st_uid != os.geteuid():
        why = f"it belongs to another user (uid {status.st_uid})"
    elif status.st_nlink > 1:
        why = "it has another name as well"
    elif content and not (content.startswith(_BEGIN) or _BEGIN.startswith(content)):
        why = "it has other contents"
    else:
        return
    raise LedgerError(f"{file} is not the lock of a ledger: {why}", "find out what it is, and move it away")


def _in_place(handle: int, file: Path) -> bool:
    """Whether an open lock is still the one that others find; whoever forgot the campaign has deleted it."""
    try:
        return os.path.samestat(os.fstat(handle), file.lstat())
    except FileNotFoundError:
        return False


def _taken(handle: int, kind: int, tries: int) -> bool:
    for left in reversed(range(tries)):
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if left:
                time.sleep(_PAUSE)
        else:
            return True
    return False


def _say(handle: int, who: str) -> None:
    """Write who holds the lock; raises OSError, on a full disk say."""
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps({"who": who, "pid": os.getpid(), "host": os.uname().nodename}).encode(), 0)


def _holder_in_words(handle: int) -> str:
    """Return what the holder wrote, in words."""
    try:
        content = json.loads(os.pread(handle, 4096, 0))
        return scrub(f"{content['who']}, process {content['pid']} on {content['host']}")
    except (ValueError, KeyError, TypeError):
        return "a process that has just started"  # it has the lock, and has not written yet
