"""Reading menus from disk: files, folders of them, and what they include."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dc_inject import menu
from dc_inject.errors import MenuError, Problem

SUFFIXES = (".yaml", ".yml")
LARGEST = 20_000_001  # bytes of a menu; one more than it may have, so that a larger one is seen


def read_menus(paths: Sequence[Path]) -> list[menu.MenuDraft]:
    """Read files, and folders of them, in the order given; raises one MenuError with the problems of all.

    Of a folder all `*.yaml` and `*.yml` count, by name, but for those that begin with `.` or `_` (parts for
    `include`). A file that is named twice is read once.
    """
    problems: list[Problem] = []
    files: dict[Path, Path] = {}
    for path in paths:
        found = _menus_in(path, problems)
        files.update({file.absolute(): file for file in found if file.absolute() not in files})
    drafts = []
    for file in files.values():
        try:
            drafts.append(menu.read(_read(str(file), LARGEST), str(file), _read))
        except OSError as error:
            problems.append(
                Problem(str(file), 0, f"cannot be read: {error.strerror or error}", "check path and rights")
            )
        except MenuError as error:
            problems += error.problems
    if problems:
        raise MenuError(problems)
    return drafts


def _menus_in(path: Path, problems: list[Problem]) -> list[Path]:
    if not path.is_dir():
        return [path]
    try:
        names = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.name[0] not in "._")
    except OSError as error:
        problems.append(Problem(str(path), 0, f"cannot be read: {error.strerror or error}", "check its rights"))
        return []
    if not names:
        problems.append(
            Problem(
                str(path), 0, "the folder has no menus", "a menu is a file *.yaml that does not begin with `_`"
            )
        )
    return names


def _read(name: str, most: int) -> bytes:
    """Return the bytes of a file, at most so many."""
    with Path(name).open("rb") as file:
        return file.read(most)
