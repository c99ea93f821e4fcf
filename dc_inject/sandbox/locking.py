"""A lock next to a folder, released when its holder dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dc_inject.model.errors import DcInjectError


@contextmanager
def locked(folder: Path, report: Callable[[str], None], patience: float = 600.0) -> Iterator[None]:
    """Hold the lock of `folder`; report a wait, and give up after `patience` seconds."""
    file = folder.parent / f".{folder.name}.lock"
    deadline, reported = time.monotonic() + patience, False
    while (descriptor := _try(file)) is None:
        if not reported:
            report(f"another process is at work on {folder}, waiting for it")
            reported = True
        if time.monotonic() > deadline:
            raise DcInjectError(f"another process holds {file} for more than {patience:.0f} s")
        time.sleep(0.1)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)  # while held: whoever has opened it meanwhile will notice, see _try
        os.close(descriptor)


def _try(file: Path) -> int | None:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_ino == file.stat().st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None
