"""A new ledger in the place of a lost one: begun with a backup or empty, filled, checked, and put there."""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol, runtime_checkable

from dc_inject import menu
from dc_inject.apps.rebuild.rebuilding import Rebuilding, Rebuilt
from dc_inject.engine import admission
from dc_inject.engine.menus import Menus
from dc_inject.ledger import Ledger, LedgerView, lock, paths
from dc_inject.ledger.check import check
from dc_inject.model import units
from dc_inject.model.errors import LedgerError, UsageError
from dc_inject.model.ports import Backend, FoundInjection
from dc_inject.model.services import SERVICES
from dc_inject.model.shards import Shard
from dc_inject.planning import shards
from dc_inject.system.clock import SystemClock
from dc_inject.system.executor import ThreadExecutor

THREADS = 8
UNKNOWN = (
    "what was due and forgiven, and why: past rows show as due what was found of them, so nothing is made up",
    "what has expired or was ended, where its service does not list it any more: it is in no total",
    "files of such jobs, if any were left: `dc-inject end CAMPAIGN --sweep PREFIX` finds them",
    "stops, and what was set: stop and set it again before you `run`",
    "what was set aside, changes and notes",
    "what RSE expressions meant when their menus came into force: they mean what they mean now",
)


@runtime_checkable
class Searchable(Protocol):
    """A service that lists which rules or jobs of a campaign it has."""

    def ours(self, campaign: str, *, since: datetime | None) -> Iterator[FoundInjection]:
        """Stream those that were made, or of jobs that are over: were over, after `since`."""


@dataclass(frozen=True, slots=True)
class NewLedger:
    """A new ledger in a file of its own (`file`), the place for it, and what that place had before."""

    file: Path
    place: Path
    before: Sequence[tuple[int, int]]

    def take_place(self) -> None:
        """Put it in its place; raises LedgerError if that has changed meanwhile."""
        if _state(self.place) != self.before:
            raise LedgerError(f"{self.place} has changed meanwhile", "run the command again")
        paths.keep(self.file, self.place)


@contextlib.contextmanager
def prepare(place: Path, backup: Path | None, who: str) -> Iterator[NewLedger]:
    """Give a new ledger that begins with a backup, if there is one; its place is locked until the block ends.

    Raises LedgerError where a ledger is in its place already, unless that is the backup.
    """
    if backup != place:
        _refuse(place)
    before, folder = _state(place), place.absolute().parent
    paths.make_folder(folder)
    with (
        lock.held(place, who, timedelta(0), lock.REBUILDS),
        tempfile.TemporaryDirectory(prefix=".rebuild-", dir=folder) as own,
    ):
        file = Path(own) / place.name
        if backup is not None:
            with LedgerView.open(backup) as view:
                view.copy_to(file)
        yield NewLedger(file, place, before)


def fill(
    file: Path,
    menus: Sequence[Path],
    drafts: Sequence[menu.MenuDraft],
    backends: Mapping[str, Backend],
    *,
    since: datetime | None,
    when: str,
    shard: Shard | None,
    trusted: Sequence[str],
    who: str,
    allow_admin: bool,
    patience: timedelta,
) -> Rebuilt:
    """Write what services have of a campaign into its new ledger, and check that.

    `menus` are the files of `drafts`. What is older than `since` does not count. `when` is the time since which
    something is unknown, in words. `who` trusts the hosts `trusted`. `patience` is the time for a round of calls.
    Raises UsageError or ServiceError if a service cannot list everything.
    """
    clock, campaign = SystemClock(), drafts[0].campaign
    identities = admission.identities(backends, allow_admin=allow_admin)
    with (
        Ledger.open(file, synchronous="OFF") as ledger,
        contextlib.closing(ThreadExecutor(clock, THREADS)) as executor,
    ):
        cycle, name = drafts[0].preview.cycle, str(shard or "")
        ledger.bind(campaign, cycle, tuple(identities.values()), clock.now(), name)
        ledger.trust(trusted, who, clock.now())
        in_force = Menus(menus, ledger=ledger, backends=backends, clock=clock, shard=shard)()
        rebuilding = Rebuilding(
            campaign=in_force,
            backends=backends,
            clock=clock,
            executor=executor,
            patience=patience,
        )
        injections = _found(backends, campaign, since)
        if shard is not None:
            is_ours = shards.member(in_force, shard)
            injections = [injection for injection in injections if is_ours(injection.link)]
        rebuilt = rebuilding.rebuild(ledger, injections)
        message = f"ledger rebuild: {units.counted(rebuilt.injections, 'injections')} found"
        ledger.change(who, message, "it was lost, or others made some of it", clock.now())
        ledger.note(f"this ledger was rebuilt; not known{when}: " + "; ".join(UNKNOWN), clock.now())
    if errors := [finding for finding in check(file) if not finding.note]:
        raise LedgerError(f"the new ledger would contain contradictions: {errors[0].message}", "please report it")
    return rebuilt


def _refuse(path: Path) -> None:
    """Refuse where a ledger is, or where the log of one was left: it may have what is wanted."""
    for file in (path, path.with_name(path.name + "-wal")):
        if file.exists() and (file == path or file.stat().st_size):
            message = "there is a ledger" if file == path else "the log of a ledger was left"
            look = f"check it with `dc-inject ledger check {shlex.quote(str(path.absolute()))}`"
            hint = f"{look}; if it is damaged, move {path.name}* away first"
            raise LedgerError(f"{message} at {file}", hint)


def _state(path: Path) -> list[tuple[int, int]]:
    """Return what changes when a ledger, or its log, is written."""
    files = (path, path.with_name(path.name + "-wal"))
    states = [file.stat() for file in files if file.exists()]
    return [(state.st_size, state.st_mtime_ns) for state in states if state.st_size]


def _found(backends: Mapping[str, Backend], campaign: str, since: datetime | None) -> list[FoundInjection]:
    rules: dict[str, FoundInjection] = {}
    for backend in backends.values():
        if not isinstance(backend, Searchable):
            message = (
                f"`ledger rebuild` does not support {SERVICES[backend.name].title}: it cannot search for them"
            )
            raise UsageError(message, "copy a backup of the ledger to its place: `run` continues from it")
        rules |= {rule.key: rule for rule in backend.ours(campaign, since=since)}
    return list(rules.values())
