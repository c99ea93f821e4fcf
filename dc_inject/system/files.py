"""Reading menus from disk: files, folders of them, and what they include."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from dc_inject import menu
from dc_inject.menu.includes import Load
from dc_inject.model import units
from dc_inject.model.errors import MenuError, Problem, UsageError
from dc_inject.model.faults import hint_of
from dc_inject.system import disk

SUFFIXES = (".yaml", ".yml")
_MENU_LIKE = re.compile(r"\.ya?ml(?![a-z])", re.IGNORECASE)
_LEFTOVERS = ("~", ".bak", ".orig", ".rej", ".swp", ".tmp")  # of editors and the like
_allowed: list[Path] = []  # folders that a person named, whose files menus may bring in
LARGEST = 20_000_001  # bytes of a menu; one more than it may have, so that a larger one is seen


def read_menus(paths: Sequence[Path]) -> list[menu.MenuDraft]:
    """Read files, and folders of them, in the order given; raises one MenuError with the problems of all.

    Of a folder all `*.yaml` and `*.yml` count, by name, but for those that begin with `.` or `_` (parts for
    `include`). A file that is named twice is read once. A file that looks like a menu, and is not read, is a
    problem.
    """
    problems: list[Problem] = []
    files: dict[Path, Path] = {}
    for path in paths:
        of_folder = _menus_in(path, problems)
        files.update({file.absolute(): file for file in of_folder if file.absolute() not in files})
    drafts, within, used = [], make_loader(*paths), {disk.real(file) for file in files}

    def read_listed(name: str, most: int) -> bytes:
        used.add(disk.real(Path(name)))
        return within(name, most)

    for file in files.values():
        try:
            drafts.append(menu.read(load(str(file), LARGEST), str(file), read_listed))
        except OSError as error:
            problems.append(Problem(str(file), 0, f"cannot be read: {error.strerror or error}", hint_of(error)))
        except MenuError as error:
            problems += error.problems
    problems = problems or [problem for path in paths for problem in _unread(path, used)]
    if problems:
        raise MenuError(problems)
    return drafts


def _unread(folder: Path, used: Collection[Path]) -> Iterator[Problem]:
    """Yield each file of a folder, or of a folder in it, that looks like a menu and that no menu used."""
    for file in _menu_like(folder):
        if disk.real(file) not in used:
            hint = f"call it {_MENU_LIKE.split(file.name)[0]}.yaml, or begin its name with `_` to leave it out"
            yield Problem(str(file), 0, "looks like a menu, but is not read", hint)
    for inner in _listed(folder):
        unread = [file for file in _menu_like(inner) if disk.real(file) not in used]
        if unread and inner.name[0] not in "._":
            some = units.some(file.name for file in unread)
            hint = "name this folder, too, or begin its name with `_`"
            yield Problem(str(inner), 0, f"menus in this folder are not read: {some}", hint)


def _menu_like(folder: Path) -> list[Path]:
    """Return the files of a folder that are menus by their names, or might be meant as such."""
    return [
        file
        for file in _listed(folder)
        if _MENU_LIKE.search(file.name) and file.name[0] not in "._#" and not file.name.endswith(_LEFTOVERS)
    ]


def _listed(folder: Path) -> list[Path]:
    """Return what is in a folder; nothing of what is none, or may not be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def allow(folders: Sequence[Path]) -> None:
    """Let menus name files of these folders too, from now on, and of no others."""
    _allowed[:] = folders


def make_loader(*named: Path) -> Load:
    """Return what loads the files that menus bring in, of the folders that a person named or named menus in.

    A menu of another user could show the first lines of any file that we may read. Raises OSError for those.
    """
    folders = {disk.real(place if _is_folder(place) else place.parent) for place in (*named, *_allowed)}

    def within(name: str, most: int) -> bytes:
        path = disk.real(Path(name))
        if not any(path.is_relative_to(folder) for folder in folders):
            raise PermissionError(
                errno.EPERM, "it is outside of the menu's folder; --include-from FOLDER allows it", name
            )
        return load(str(path), most)

    return within


def write_whole(
    path: Path, content: str | bytes, *, force: bool, mode: int = 0o666, exactly: bool = False
) -> None:
    """Write a file that is there as a whole or not at all; see `whole`."""
    with whole(path, force=force, mode=mode, exactly=exactly) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def whole(path: Path, *, force: bool, mode: int = 0o666, exactly: bool = False) -> Iterator[BinaryIO]:
    """Open a file that is there as a whole after the block, or not at all, whatever happens meanwhile.

    A new one has the rights of `mode`, of which umask takes away; one that is replaced keeps its own. With
    `exactly` it has those of `mode` in any case.

    Raises UsageError when it cannot be written, or is there already and may not be replaced (`force`).
    """
    refuse_existing(path, force=force)
    goal = Path(os.path.realpath(path))  # a link to a file stays one
    part = goal.with_name(f".{secrets.token_hex(8)}.part")  # short: the goal may have the longest name there is
    try:
        mode = stat.S_IMODE(goal.stat().st_mode) if goal.exists() and not exactly else mode
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if exactly:
                    os.fchmod(file.fileno(), mode)
                yield file
                file.flush()
                os.fsync(file.fileno())
            if force:
                part.replace(goal)
            else:
                _put(part, goal)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}", hint_of(error)) from None


def make_folder(path: Path) -> None:
    """Make a folder if it is not there; raises UsageError when it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the folder {path} cannot be made: {error.strerror or error}", hint_of(error)) from None


def refuse_existing(path: Path, *, force: bool) -> None:
    """Raise UsageError for a file that is there already and may not be replaced, or a name that cannot be."""
    if exists(path) and not force:
        raise UsageError(f"{path} exists already", "name another file, or replace it with --force")


def exists(path: Path) -> bool:
    """Return whether a file is there that is to be written; raises UsageError for a name that cannot be."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", "name another file") from None
    return True


def need_folder(path: Path) -> None:
    """Raise UsageError if a file could not be written later, since its folder is not there, or takes no files."""
    if not path.parent.is_dir():
        raise UsageError(f"{path} cannot be written: there is no folder {path.parent}", "make it first")
    try:
        tempfile.TemporaryFile(dir=path.parent).close()  # rights do not show that it is /proc, or a full disk
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", "name another file") from None


def _put(part: Path, goal: Path) -> None:
    """Give a file its name, which must not be taken meanwhile."""
    with contextlib.suppress(FileExistsError):
        try:
            goal.hardlink_to(part)
        except PermissionError:  # a file system without hard links
            refuse_existing(goal, force=False)
            part.replace(goal)
        return
    refuse_existing(goal, force=False)


def _is_folder(path: Path) -> bool:
    """Return whether it is a folder; what cannot be looked at is none, and cannot be read either."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _menus_in(path: Path, problems: list[Problem]) -> list[Path]:
    if not _is_folder(path):
        return [path]
    try:
        names = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.name[0] not in "._")
    except OSError as error:
        problems.append(Problem(str(path), 0, f"cannot be read: {error.strerror or error}", "check its rights"))
        return []
    if not names:
        problems.append(
            Problem(
                str(path),
                0,
                "the folder contains no menus",
                "a menu is a file *.yaml that does not begin with `_`",
            )
        )
    return names


def load(name: str, most: int) -> bytes:
    """Return the bytes of a regular file, at most so many; raises OSError."""
    return disk.read(Path(name), most)
