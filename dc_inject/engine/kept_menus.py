"""Menus as a ledger keeps them: the last good ones, for a run to which the files make no sense any more."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from dc_inject import menu
from dc_inject.engine.menus import Menus
from dc_inject.ledger import LedgerView, Reader, ledger_files, shard_path
from dc_inject.model import Campaign
from dc_inject.model.errors import LedgerError, MenuError
from dc_inject.system import files

_CAMPAIGN = re.compile(rb"^campaign:[ \t]*[\"']?([^\s\"'#]+)", re.MULTILINE)


def last_good(view: Reader, paths: Sequence[Path]) -> list[menu.MenuDraft]:
    """Return the menus in force as they were when they were read of these paths; none if any of them differs."""
    load, menus = files.make_loader(*paths), view.menus_in_force()
    try:
        kept = [menu.read_kept(one.text, one.name, one.digest, view.menu_parts(one.digest), load) for one in menus]
    except MenuError:
        return []
    whole = [draft.digest for draft in kept] == [record.digest for record in menus]
    return kept if whole else []


def of_files(paths: Sequence[Path], ledger: Path | None, shard: str) -> list[menu.MenuDraft]:
    """Return the last good menus of files that make no sense now, from the one ledger here that has them in force.

    None if several have, or if the files name another campaign.
    """
    found = []
    for path in [ledger] if ledger else [ledger_files.file_of(None, name) for name in ledger_files.campaigns()]:
        with contextlib.suppress(LedgerError), LedgerView.open(shard_path(path, shard)) as view:
            names = [Path(record.name) for record in view.menus_in_force()]
            absolute = {path.absolute() for path in paths}
            are_named = all({name.absolute(), name.absolute().parent} & absolute for name in names)
            texts = [match for text in _texts(paths) for match in _CAMPAIGN.finditer(text)]
            others = {match[1].decode(errors="replace") for match in texts}  # as far as they can be read
            if names and are_named and (not others or view.campaign in others):
                found.append(last_good(view, paths))
    return found[0] if len(found) == 1 else []


def read(paths: Sequence[Path], ledger: Path | None, shard: str, *, once: bool) -> list[menu.MenuDraft]:
    """Read the menus of a run. With `once`, files that make no sense cost no cycle: the last good menus stay."""
    try:
        read_now = files.read_menus(paths)
        menu.one_campaign(read_now)
    except MenuError:
        kept = of_files(paths, ledger, shard) if once else []
        if not kept:
            raise
        return kept  # the engine reads the files once more, and reports what is wrong with them
    return read_now


def take_up(menus: Menus, read_now: Sequence[menu.MenuDraft], last: Sequence[menu.MenuDraft]) -> Campaign:
    """Put menus in force, or the last good ones where those cannot be carried out."""
    try:
        return menus.take_up(read_now)
    except MenuError:
        with contextlib.suppress(MenuError):
            if last:
                return menus.take_up(last)
        raise


def _texts(paths: Sequence[Path]) -> Iterator[bytes]:
    for path in paths:
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            if not path.is_dir() or (file.suffix in files.SUFFIXES and file.name[0] not in "._"):
                with contextlib.suppress(OSError):
                    yield files.load(str(file), files.LARGEST)
