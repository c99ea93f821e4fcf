"""The one way to open a file that a user named: a regular file, never a pipe or device, which may wait for ever.

Opening never waits, and what was opened is looked at again, since a name may mean another file by then.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

PRIVATE = 0o600  # the mode of a file that only its owner may read


class NotRegularError(OSError):
    """What was named is a pipe, a socket or a device."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "it is not a regular file", str(path))


def real(path: Path) -> Path:
    """Return a path without links; of links in a circle one that cannot be opened, where resolving raises."""
    return Path(os.path.realpath(path))


def opened(path: Path, flags: int = os.O_RDONLY, mode: int = PRIVATE, *, follow: bool = True) -> int:
    """Return the descriptor of a regular file; raises OSError. Without `follow` its name may be no link."""
    try:
        _refuse(path, path.stat(follow_symlinks=follow))  # a device may act on being opened
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    flags |= os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    handle = os.open(path, flags, mode)
    try:
        _refuse(path, os.fstat(handle))
    except BaseException:
        os.close(handle)
        raise
    return handle


def read(path: Path, most: int) -> bytes:
    """Return the first bytes of a regular file, at most so many; raises OSError."""
    with os.fdopen(opened(path), "rb") as file:
        return file.read(most)


def _refuse(path: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, "it is a link", str(path))
    if not stat.S_ISREG(status.st_mode):
        raise NotRegularError(path)
