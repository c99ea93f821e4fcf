"""Where ledgers are: that of a campaign, the one that was named in its place, and all that there are here.

A command takes a campaign, whose ledger is in the default folder (`ledger/paths.py`), or a ledger's file: what has
a slash in it or ends with `.sqlite`. Some have --ledger for the file as well. An error for a campaign without a
ledger lists those that have one.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from dc_inject import ledger
from dc_inject.ledger import LedgerView, lock
from dc_inject.ledger.errors import translated
from dc_inject.ledger.ledger import Reader
from dc_inject.model import State
from dc_inject.model.errors import LedgerError


def file_of(path: Path | None, campaign: str) -> Path:
    """Return the ledger's file: the one that was named, or the campaign's default place."""
    return path or ledger.default_path(campaign, os.environ)


def named(campaign: str) -> Path | None:
    """Return the file when a ledger was named in the place of a campaign."""
    return Path(campaign) if os.sep in campaign or campaign.endswith(".sqlite") else None


def existing(campaign: str, path: Path | None = None) -> Path:
    """Return the ledger that a campaign has: the file that was named, with --ledger or in the campaign's place.

    Raises LedgerError, with the campaigns that have a ledger, when there is none.
    """
    given = path or named(campaign)
    file = given or ledger.default_path(campaign, os.environ)
    if ledger.files(file):
        return file
    missing = "there is no ledger" if given else f"campaign {campaign!r} has no ledger"
    raise LedgerError(f"{missing} at {file}", known())


def lacks(campaign: str, path: Path | None) -> bool:
    """Whether a campaign has no ledger in its default place, and none was named instead."""
    return not (path or named(campaign) or ledger.files(file_of(None, campaign)))


@contextlib.contextmanager
def of_all_shards(own: Reader) -> Iterator[Reader]:
    """Give what the ledgers of all shards know, for that of one."""
    if ledger.shard_of(own.path) == (0, 0):
        yield own
        return
    with LedgerView.open(own.path.with_name(f"{ledger.campaign_of(own.path)}{own.path.suffix}")) as whole:
        yield whole


def known() -> str:
    """Return which campaigns have a ledger here, as a hint."""
    return f"campaigns with a ledger in {ledger.default_folder(os.environ)}: {', '.join(campaigns()) or 'none'}"


def campaigns() -> list[str]:
    """Return the campaigns that have a ledger in its default place."""
    return sorted({ledger.campaign_of(file) for file in ledger.default_folder(os.environ).glob("*.sqlite")})


def campaign_in(view: Reader, campaign: str, path: Path) -> str:
    """Return the campaign of a ledger; raises LedgerError when another one was named together with it."""
    name = view.campaign or path.stem
    if Path(campaign) != path and campaign != name:
        raise LedgerError(f"{path} is the ledger of campaign {name}, not of {campaign}", "name only one of them")
    return name


def argument_for(view: Reader) -> str:
    """Return what a command takes for a ledger: its campaign, or the file if that is not in its default place."""
    is_default = view.path == file_of(None, view.campaign or "")
    return view.campaign if view.campaign and is_default else shlex.quote(str(view.path.absolute()))


def require_real(view: Reader) -> None:
    """Raise LedgerError for the ledger of a simulation: there is nothing to stop, to change or to go on with."""
    if view.simulated_in is not None:
        raise LedgerError(
            f"{view.path} is the ledger of a simulation in {view.simulated_in}: nothing real is in it",
            "`status` and `report` read it; for anything else name the ledger of a real campaign",
        )


@contextlib.contextmanager
def copy_of(path: Path) -> Iterator[Path]:
    """Give a copy of a ledger (or the place of a new one) that goes away afterwards."""
    with tempfile.TemporaryDirectory(prefix="dc_inject-") as folder:
        copy = Path(folder) / path.name
        if path.exists():
            with LedgerView.open(path) as view:
                view.copy_to(copy)
        yield copy


def remove_log(path: Path) -> None:
    """Remove the log of a closed ledger, so that readers leave no files next to it; a writer makes it again."""
    with translated(path), contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")


def count_unended(view: Reader) -> int:
    """Return how many rules and jobs may still exist, or have left files that only this ledger knows of."""
    in_service = view.entries(*(state for state in State if state.in_service))
    ended = view.entries(State.ENDED)
    return len(in_service) + sum(1 for entry in ended if not entry.injection.link.service.cleans_up)


def forget_campaign(path: Path, who: str) -> None:
    """Delete a ledger, its log and its lock; raises LedgerError while it is used, or if that fails."""
    with lock.held(path, who, timedelta(0)):
        try:
            for end in ("", "-wal", "-shm"):
                path.with_name(path.name + end).unlink(missing_ok=True)
            lock.lock_file(path).unlink(missing_ok=True)
        except OSError as error:
            message = f"{error.filename or path} cannot be deleted: {error.strerror or error}"
            raise LedgerError(message, "check the rights on its folder") from None
