"""Which folders are the sandbox's own: only those with a marker that it wrote may ever be deleted."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from dc_inject.model.errors import UsageError

MARKER = ".dc_inject-sandbox"
_TEXT = "dc_inject made this folder and deletes it with all that is in it\n"


def claim(folder: Path, option: str, mode: int = 0o755) -> None:
    """Make a folder, or take an empty one, and mark it as ours before anything else is in it.

    Raises UsageError for one that has something in it.
    """
    folder.mkdir(mode=mode, exist_ok=True)
    if folder.is_symlink() or any(folder.iterdir()):
        raise _in_use(folder, option)
    descriptor = os.open(folder / MARKER, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(_TEXT)


def is_ours(folder: Path) -> bool:
    """Return whether we made a folder: it is a folder of our own user, with our marker."""
    marker = folder / MARKER
    try:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        return stat.S_ISREG(marker.lstat().st_mode) and marker.read_text() == _TEXT
    except (OSError, UnicodeDecodeError):
        return False


def is_private(folder: Path, file: str) -> bool:
    """Return whether we made a folder in which no other user can write, and a file in it is ours alone."""
    if not is_ours(folder) or folder.lstat().st_mode & 0o022:
        return False
    try:
        status = (folder / file).lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def remove(folder: Path, option: str) -> None:
    """Delete a folder of ours with all that is in it, or one that is empty; raises UsageError for any other."""
    refuse_foreign(folder, option)
    if is_ours(folder):
        shutil.rmtree(folder)
    else:
        folder.rmdir()


def refuse_foreign(folder: Path, option: str) -> None:
    """Raise UsageError for a folder that has something in it and is not ours."""
    foreign = folder.is_symlink() or not folder.is_dir() or any(folder.iterdir())
    if os.path.lexists(folder) and foreign and not is_ours(folder):
        raise _in_use(folder, option)


def _in_use(folder: Path, option: str) -> UsageError:
    return UsageError(
        f"{folder} is in use for something else: it has no {MARKER}, which is in all folders of the sandbox",
        f"name another folder with {option}, or delete this one yourself",
    )
