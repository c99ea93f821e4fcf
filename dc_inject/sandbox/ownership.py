"""Which folders are the sandbox's own: only those with a marker that it wrote may ever be deleted."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from dc_inject.model.errors import UsageError

MARKER = ".dc_inject-sandbox"
_TEXT = "dc_inject made this folder and deletes it with all that is in it\n"

Legacy = Callable[[Path], bool]  # whether a folder is one that an earlier version made, without a marker


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


def is_ours(folder: Path, legacy: Legacy = lambda _: False) -> bool:
    """Return whether we made a folder: it is a folder of our own user, with our marker."""
    try:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        return _has(folder, MARKER, _TEXT) or legacy(folder)
    except OSError:
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


def remove(folder: Path, option: str, legacy: Legacy = lambda _: False) -> None:
    """Delete a folder of ours with all that is in it, or one that is empty; raises UsageError for any other."""
    if is_ours(folder, legacy):
        shutil.rmtree(folder)
    elif folder.is_symlink() or not folder.is_dir() or any(folder.iterdir()):
        raise _in_use(folder, option)
    else:
        folder.rmdir()


def refuse_foreign(folder: Path, option: str, legacy: Legacy = lambda _: False) -> None:
    """Raise UsageError for a folder that has something in it and is not ours."""
    foreign = folder.is_symlink() or not folder.is_dir() or any(folder.iterdir())
    if os.path.lexists(folder) and foreign and not is_ours(folder, legacy):
        raise _in_use(folder, option)


def completed(name: str) -> Legacy:
    """Recognize folders of earlier versions by the file that was written when they were complete."""
    return lambda folder: stat.S_ISREG((folder / name).lstat().st_mode)


def is_older_sandbox(folder: Path) -> bool:
    """Return whether a folder is a sandbox of an earlier version, by its state file."""
    file = folder / "state.json"
    if not stat.S_ISREG(file.lstat().st_mode):
        return False
    try:
        content = json.loads(file.read_text())
    except ValueError:
        return False
    return isinstance(content, dict) and {"marker", "port", "env", "policy", "account", "quota"} <= set(content)


def _has(folder: Path, name: str, text: str) -> bool:
    file = folder / name
    try:
        return stat.S_ISREG(file.lstat().st_mode) and file.read_text() == text
    except (OSError, UnicodeDecodeError):
        return False


def _in_use(folder: Path, option: str) -> UsageError:
    return UsageError(
        f"{folder} is in use for something else: it has no {MARKER}, which is in all folders of the sandbox",
        f"name another folder with {option}, or delete this one yourself",
    )
