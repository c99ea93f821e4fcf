"""The injector's lock: one at a time, freed by the kernel when its holder dies, with the holder's name inside."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
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
_LEAST = 5  # tries: a process that only asks who holds the lock has it for an instant

INJECTS, ENDS, REBUILDS = "injects with", "ends rules and jobs of", "rebuilds"


class InUse(LedgerError):
    """Another process holds the lock; `injects` is whether it is an injector."""

    def __init__(self, path: Path, message: str, *, injects: bool) -> None:
        """Take the ledger and the message, and choose what a person can do."""
        stop = f"`dc-inject stop {shlex.quote(str(path.absolute()))}`"
        one = f"a ledger has one injector; {stop} stops it from injecting, from any terminal"
        super().__init__(message, one if injects else "wait until that is over, and run the command again")
        self.injects = injects


@contextlib.contextmanager
def held(path: Path, who: str, patience: timedelta, does: str = INJECTS) -> Iterator[None]:
    """Hold the lock of a ledger inside the block, and write down who does what; raises InUse.

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
            doing = _content(handle).get("does")
            other = next((one for one in (ENDS, REBUILDS) if one == doing), INJECTS)
            message = f"{path} is in use: {_holder_in_words(handle)} {other} it since {since:%Y-%m-%d %H:%M:%SZ}"
            raise InUse(path, message, injects=other == INJECTS)
        if not _in_place(handle, file):
            raise LedgerError(f"{path} has just been deleted", "start again")
        try:
            _write_holder(handle, who, does)
        except OSError as error:
            raise errors.of_system(path, error) from error
        try:
            yield
        finally:
            os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def holder(path: Path) -> str | None:
    """Return who holds the lock of a ledger now, in words, or None; raises LedgerError when that is unknown."""
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


def _write_holder(handle: int, who: str, does: str) -> None:
    """Write who holds the lock; raises OSError, for example on a full disk."""
    content = {"who": who, "pid": os.getpid(), "host": os.uname().nodename, "does": does}
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(content).encode(), 0)


def _content(handle: int) -> dict[str, object]:
    """Return what the holder wrote; nothing while it has not written yet, or where that makes no sense."""
    try:
        content = json.loads(os.pread(handle, 4096, 0))
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _holder_in_words(handle: int) -> str:
    """Return what the holder wrote, in words."""
    content = _content(handle)
    try:
        return scrub(f"{content['who']}, process {content['pid']} on {content['host']}")
    except KeyError:
        return "a process that has just started"  # it has the lock, and has not written yet
