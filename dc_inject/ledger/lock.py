"""One injector per ledger: a lock that frees itself when its process dies, and says who holds it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from dc_inject.errors import LedgerError
from dc_inject.ledger.database import translated

_SLICE = 0.1  # seconds between two tries while waiting for the one before


def lock_file(ledger: Path) -> Path:
    """Return the lock's file of a ledger."""
    return ledger.with_name(ledger.name + ".lock")


@contextmanager
def held(ledger: Path, who: str, patience: timedelta = timedelta(0)) -> Iterator[None]:
    """Hold the injector's lock of a ledger; raises LedgerError with the holder's name after `patience`."""
    path = lock_file(ledger)
    with translated(path):
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        tries = int(patience.total_seconds() / _SLICE)
        while not _taken(file):
            if tries <= 0:
                raise LedgerError(
                    f"{ledger} is in use: {holder(ledger) or 'another process'}",
                    "one injector per ledger; `dc-inject stop` stops injecting from any terminal",
                )
            tries -= 1
            time.sleep(_SLICE)
        with translated(path):
            os.truncate(file, 0)
            text = json.dumps({"who": who, "pid": os.getpid(), "host": os.uname().nodename})
            os.pwrite(file, text.encode(), 0)
        yield
    finally:
        os.close(file)


def holder(ledger: Path) -> str | None:
    """Return who holds the injector's lock now, in words, or None if nobody does."""
    path = lock_file(ledger)
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerError(f"{path} cannot be read: {error.strerror}", "its owner or root can") from error
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(file, 4096, 0).decode(errors="replace")
        try:
            found = json.loads(text)
            return f"{found['who']}, process {found['pid']} on {found['host']}"
        except (ValueError, KeyError, TypeError):
            return "a process that has just begun"
    finally:
        os.close(file)
    return None


def _taken(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
