"""`dc-inject ledger rebuild`: a new ledger when the old one is lost, from what the services still have.

With a backup it has the past from there, and from the services what came after it.
"""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol, runtime_checkable

import click

from dc_inject import menu
from dc_inject.apps.rebuild.rebuilding import Rebuilding, Rebuilt
from dc_inject.cli.shared import common, end_files, log_output, params, trusting
from dc_inject.engine import admission
from dc_inject.engine.menus import Menus
from dc_inject.ledger import Ledger, LedgerView, ledger_files, lock, paths
from dc_inject.ledger.check import check
from dc_inject.menu import MenuDraft
from dc_inject.model import units
from dc_inject.model.errors import LedgerError, UsageError
from dc_inject.model.events import Silent
from dc_inject.model.ports import Backend, Clock, Executor, FoundInjection
from dc_inject.model.shards import Shard
from dc_inject.planning import shards
from dc_inject.system import files
from dc_inject.system.clock import SystemClock
from dc_inject.system.executor import ThreadExecutor

THREADS = 8
UNKNOWN = (
    "what was due and forgiven, and why: past rows show as due what was found of them, so nothing is made up",
    "what has expired or was ended, where its service does not tell of it any more: it is in no total",
    "files of such jobs, if any were left: `dc-inject end CAMPAIGN --sweep PREFIX` finds them",
    "stops, and what was set: stop and set it again before you `run`",
    "what was set aside, changes and notes",
    "what RSE expressions meant when their menus came into force: they mean what they mean now",
)


@runtime_checkable
class Searchable(Protocol):
    """A service that tells which rules or jobs of a campaign it has."""

    def ours(self, campaign: str, *, since: datetime | None) -> Iterator[FoundInjection]:
        """Stream those that were made, or of jobs that are over: were over, after `since`."""
        ...


@click.command()
@click.argument("campaign")
@common.MENUS
@common.LEDGER
@click.option(
    "--backup",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Begin with this backup, and add what the services have since.",
)
@click.option(
    "--adopt", is_flag=True, help="Begin with the ledger that exists, and add what the services have since."
)
@common.SHARD
@click.option("--since", type=params.TIME, help="Ignore rules and jobs older than this [default: none].")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common.ALLOW_ADMIN
@common.TIMEOUT
def rebuild(
    campaign: str,
    menus: tuple[Path, ...],
    ledger_path: Path | None,
    backup: Path | None,
    adopt: bool,
    shard: Shard | None,
    since: datetime | None,
    yes: bool,
    allow_admin: bool,
    timeout: float,
) -> None:
    r"""Rebuild the lost ledger of CAMPAIGN from what the services know.

    Rules are found by their comments, jobs by their metadata; MENUS are the menus in force. Afterwards `run`
    continues with the next cycle: it injects nothing twice, and observes and ends what was found. What cannot be
    recovered is listed, also in the ledger's notes. The path of the new ledger is printed.

    With --backup the ledger has all that the backup has, and only what came after it is asked of the services.
    With --adopt it begins with the ledger itself, if there is one: that gets what another injector has made.

    First end the injector; if it died, wait some minutes until its last calls are over.

    \b
    Example: dc-inject ledger rebuild dc27-rehearsal /etc/dc_inject/menus
    Example: dc-inject ledger rebuild dc27 /etc/dc_inject/menus --backup /backup/dc27-14.sqlite
    """
    log_output.talk(quiet=True)
    drafts = files.read_menus(menus)
    if (named := menu.one_campaign(drafts)) != campaign:
        raise UsageError(
            f"these menus are of campaign {named}, not of {campaign}", "use the menus of that campaign"
        )
    if adopt and backup:
        raise UsageError(
            "--adopt begins with the ledger that exists, and --backup with another", "use one of them"
        )
    path = paths.place(ledger_files.file_of(ledger_path, campaign), common.shard_name(shard))
    if adopt and path.exists():
        backup = path
    with contextlib.ExitStack() as stack:
        if backup != path:
            _refuse(path)
        before = _state(path)
        paths.make_folder(path.absolute().parent)
        stack.enter_context(lock.held(path, common.who(), timedelta(0), lock.REBUILDS))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=".rebuild-", dir=path.absolute().parent))
        new = Path(folder) / path.name
        if backup is not None:
            with LedgerView.open(backup) as view:
                view.copy_to(new)
        when = "" if backup is None else " since then" if backup == path else " since the backup"
        rebuilt = _make(new, menus, drafts, since, when, shard, allow_admin=allow_admin, timeout=timeout)
        if errors := [finding for finding in check(new) if not finding.note]:
            raise LedgerError(
                f"the new ledger would contain contradictions: {errors[0].message}", "please report it"
            )
        _say(rebuilt, when)
        if not (yes or end_files.agreed(f"Write {path}?")):
            raise UsageError("nothing was written", "answer y, or use --yes in a script")
        if _state(path) != before:  # asking took its time
            raise LedgerError(f"{path} has changed meanwhile", "run the command again")
        paths.keep(new, path)
    click.echo(str(path))


def _make(
    new: Path,
    menus: Sequence[Path],
    drafts: Sequence[MenuDraft],
    since: datetime | None,
    when: str,
    shard: Shard | None,
    *,
    allow_admin: bool,
    timeout: float,
) -> Rebuilt:
    """Make the ledger in a file of its own; raises if a service cannot list everything."""
    clock, campaign = SystemClock(), drafts[0].campaign
    allowed = trusting.ask((), menu.endpoint_of(drafts))
    backends = common.backends(
        {service for draft in drafts for service in draft.services},
        campaign=campaign,
        clock=clock,
        observer=Silent(),
        timeout=timeout,
        endpoint=menu.endpoint_of(drafts),
    )
    identities = admission.identities(backends, allow_admin=allow_admin)
    with Ledger.open(new, synchronous="OFF") as ledger, _threads(clock) as executor:
        cycle, name = drafts[0].preview.cycle, common.shard_name(shard)
        ledger.bind(campaign, cycle, tuple(identities.values()), clock.now(), name)
        ledger.trust(allowed, common.who(), clock.now())
        in_force = Menus(menus, ledger=ledger, backends=backends, clock=clock, shard=shard)()
        rebuilding = Rebuilding(
            campaign=in_force,
            backends=backends,
            clock=clock,
            executor=executor,
            patience=timedelta(seconds=3 * timeout),
        )
        injections = _found(backends, campaign, since)
        if shard is not None:
            is_ours = shards.member(in_force, shard)
            injections = [injection for injection in injections if is_ours(injection.link)]
        rebuilt = rebuilding.rebuild(ledger, injections)
        message = f"ledger rebuild: {units.counted(rebuilt.injections, 'injections')} found"
        ledger.change(common.who(), message, "it was lost, or others made some of it", clock.now())
        ledger.note(f"this ledger was made anew; not known{when}: " + "; ".join(UNKNOWN), clock.now())
    return rebuilt


@contextlib.contextmanager
def _threads(clock: Clock) -> Iterator[Executor]:
    executor = ThreadExecutor(clock, THREADS)
    try:
        yield executor
    finally:
        executor.close()


def _refuse(path: Path) -> None:
    """Refuse where a ledger is, or where the log of one was left: it may have what is wanted."""
    for file in (path, path.with_name(path.name + "-wal")):
        if file.exists() and (file == path or file.stat().st_size):
            message = "there is a ledger" if file == path else "the log of a ledger was left"
            look = f"check it with `dc-inject ledger check {shlex.quote(str(path.absolute()))}`"
            hint = f"{look}; if it is damaged, move {path.name}* away first"
            raise LedgerError(f"{message} at {file}", hint)


def _state(path: Path) -> list[tuple[int, int]]:
    """Return what tells whether a ledger, or its log, was written."""
    files = (path, path.with_name(path.name + "-wal"))
    states = [file.stat() for file in files if file.exists()]
    return [(state.st_size, state.st_mtime_ns) for state in states if state.st_size]


def _found(backends: Mapping[str, Backend], campaign: str, since: datetime | None) -> list[FoundInjection]:
    rules: dict[str, FoundInjection] = {}
    for backend in backends.values():
        if not isinstance(backend, Searchable):
            raise UsageError(f"{backend.name} cannot be searched for what a campaign has there")
        rules |= {rule.key: rule for rule in backend.ours(campaign, since=since)}
    return list(rules.values())


def _say(rebuilt: Rebuilt, when: str) -> None:
    """Say what was found, and what nobody can know, ever or since a backup."""
    click.echo(
        f"{units.counted(rebuilt.injections, 'injections')} found ({units.format_size(rebuilt.bytes)}), "
        f"{rebuilt.complete} of them complete",
        err=True,
    )
    for flow in rebuilt.strangers:
        click.echo(
            f"no menu has {flow} any more: its rules and jobs are observed to their end, and nothing is added",
            err=True,
        )
    click.echo(f"what cannot be recovered{when}:", err=True)
    for line in UNKNOWN:
        click.echo(f"- {line}", err=True)
