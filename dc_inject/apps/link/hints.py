"""Hints in the options of `dc-inject link`: it writes its menu itself, and has no ledger to choose."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace

from dc_inject.cli.run import run
from dc_inject.cli.shared import common
from dc_inject.model.errors import DcInjectError, MenuError

KEYS = {  # of menus, and the option that stands for each; every other key can only be set in a menu
    "accept": "--accept",
    "campaign": "--campaign",
    "contact": "--contact",
    "cycle": "--cycle",
    "datasets": "--did",
    "files": "--folder",
    "fts": "--fts",
    "rate": "--rate",
    "rules_per_hour": "--rules-per-hour",
}
NONE = "`link` has no option for that: write a menu, and use `dc-inject run MENU`"
_KEY = re.compile(r"`(\w+): ([^`]*)`(?: (?:into|in) the menu)?")
_VALUE = re.compile(r"\[([^][]+)\]|\{endpoint: ([^{}]+)\}")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
_CODE_OR_JOINT = re.compile(r"`[^`]*`?|; (?:or )?|, (?:or )?")


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Write the hints of errors in the options of `link`."""
    try:
        yield
    except MenuError as error:
        problems = [replace(problem, hint=adapt_hint(problem.hint)) for problem in error.problems]
        translated_error = MenuError(problems)
        translated_error.hint = error.hint
        raise translated_error from error.__cause__
    except DcInjectError as error:
        error.hint = error.hint and adapt_hint(error.hint)
        raise


def _missing() -> set[str]:
    """Return the options of `run`, whose messages `link` prints, that the command of this call does not have."""
    return {name for one in run.params for name in one.opts} - common.own_options()


def adapt_hint(hint: str) -> str:
    """Return a hint without the alternatives that a user of `link` does not have.

    A key of a menu becomes the option that stands for it. A hint that names a command is left as it is.
    """
    hint = _KEY.sub(_option, hint)
    if not hint or "`dc-inject " in hint:
        return hint
    for option in _missing():
        hint = hint.replace(f"{option} or ", "")
    kept = [(joint, piece) for joint, piece in _pieces(hint) if _is_possible(piece)]
    return "".join(joint + piece for joint, piece in [("", kept[0][1]), *kept[1:]]) if kept else NONE


def _pieces(hint: str) -> list[tuple[str, str]]:
    """Return the alternatives of a hint, each with what joins it to the one before; joints in code are none."""
    pieces, joint, start = [], "", 0
    for found in _CODE_OR_JOINT.finditer(hint):
        if not found[0].startswith("`"):
            pieces.append((joint, hint[start : found.start()]))
            joint, start = found[0], found.end()
    return [*pieces, (joint, hint[start:])]


def _is_possible(piece: str) -> bool:
    return not _KEY.search(piece) and _missing().isdisjoint(_OPTION.findall(piece))


def _option(match: re.Match[str]) -> str:
    """Return the option for a key of a menu, or the text as it was if there is none."""
    option, value = KEYS.get(match[1]), _VALUE.fullmatch(match[2])
    if option is None:
        return match[0]
    return f"`{option} {value[1] or value[2]}`" if value else option
