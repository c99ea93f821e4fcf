"""What `end` shows of files that it deletes: those of ended jobs, and with --sweep those that no ledger has."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TypeVar

import click

from dc_inject.assembly.ending import Ending
from dc_inject.assembly.sweeping import Sweep
from dc_inject.cli.shared import exits, trusting
from dc_inject.ledger import Reader
from dc_inject.model import Injection, units
from dc_inject.model.errors import Permanent, ServiceError, UsageError
from dc_inject.model.ports import Clock, Removal, Stray
from dc_inject.summary.left import find

T = TypeVar("T")

PATIENCE = timedelta(minutes=2)  # how long files that resist are asked for again while nothing else gets on
SHOW_EVERY = timedelta(seconds=10)
SHOWN = 20  # lines: destinations where files stay, or scenarios and cycles


def show_progress(steps: Iterable[T], clock: Clock, describe: Callable[[], str]) -> Iterator[T]:
    """Give the steps of a long task, and print every ten seconds how far it got."""
    shown_at = clock.now()
    for step in steps:
        yield step
        if clock.now() >= shown_at + SHOW_EVERY:
            shown_at = clock.now()
            click.echo(describe(), err=True)


def remove(ready: Ending, patience: timedelta) -> bool:
    """Delete the files of ended jobs, and show what is known of them; return False if Ctrl-C interrupted it.

    Raises ServiceError for those that stay.
    """
    left = find(ready.drain.ours)
    entries = {entry.injection.key: entry for entry in left.ended}
    if not entries:
        return True
    tally = _Tally(left.files)
    files = units.counted(tally.files, "files")
    try:
        removals = ready.drain.remove(entries.values(), patience, partial(_report_wait, patience))
        for removal in show_progress(removals, ready.clock, lambda: f"known to be gone: {tally.gone} of {files}"):
            tally.add(removal, entries[removal.key].injection)
    except KeyboardInterrupt:
        exits.report_interruption(f"{tally.gone} of {files} gone")
        return False
    if tally.files:
        click.echo(f"known to be gone from their destinations: {units.counted(tally.gone, 'files')}", err=True)
    if tally.later:
        click.echo(_describe_second_look(tally.later, ready.campaign), err=True)
    if tally.stays:
        for line in tally.account():
            click.echo(line, err=True)
        most = max(tally.stays.values(), key=lambda stay: stay.jobs)
        jobs = sum(stay.jobs for stay in tally.stays.values())
        raise ServiceError(
            f"files of {units.counted(jobs, 'jobs')} are still at their destinations; of {most.jobs}: {most.why}",
            "they stay in the ledger: run it again when the problem is solved",
        )
    return True


def _report_wait(patience: timedelta, destination: str, why: str) -> None:
    until = units.format_duration(patience)
    click.echo(f"waiting for {destination}: {why}; giving up after {until} without progress", err=True)


@dataclass
class _Stay:
    """What stays at a destination, and what was met there first."""

    why: str
    jobs: int = 0
    files: int = 0


@dataclass
class _Tally:
    """How far deleting got: all files, those that are gone, jobs to look at later, what stood in the way."""

    files: int
    gone: int = 0
    later: list[Removal] = field(default_factory=list)
    stays: dict[str, _Stay] = field(default_factory=dict)  # by destination

    def add(self, removal: Removal, injection: Injection) -> None:
        if injection.link.service.reads:
            return  # it left records only
        if removal.gone:
            self.gone += injection.item.files
        elif removal.error is None:
            self.later.append(removal)
        else:
            stay = self.stays.setdefault(injection.link.destination, _Stay(removal.error.message))
            stay.jobs += 1
            stay.files += injection.item.files

    def account(self) -> Iterator[str]:
        """Give a line for each destination where files stay, those with the most first."""
        lines = sorted(self.stays.items(), key=lambda item: (-item[1].files, item[0]))
        for destination, stay in lines[:SHOWN]:
            files, jobs = units.counted(stay.files, "files"), units.counted(stay.jobs, "jobs")
            yield f"{destination}: {files} of {jobs} left: {stay.why}"
        if len(lines) > SHOWN:
            yield f"... and {units.counted(len(lines) - SHOWN, 'more destinations')}"


def report_active_jobs(ready: Ending) -> None:
    """Show what is not over yet, and when to run it again: no service ends it and deletes its files."""
    count, last = find(ready.drain.ours).active_jobs(ready.clock.now())
    if count:
        when = f" after {last:%Y-%m-%d %H:%M:%SZ}, or with --cancel" if last else ""
        click.echo(f"not finished: {units.counted(count, ready.noun)} still active; run it again{when}", err=True)


def _describe_second_look(later: Sequence[Removal], campaign: str) -> str:
    moment = max((removal.again_at for removal in later if removal.again_at), default=None)
    when = f"after {moment:%Y-%m-%d %H:%M:%SZ} (`longest_transfer` of the menu)" if moment else "later"
    return (
        f"{units.counted(len(later), 'jobs')} had transfers that failed or were cancelled, and FTS cannot always "
        f"stop a storage that is writing: what is there is deleted now; for what may still come, run "
        f"`dc-inject end {campaign}` once more {when}"
    )


def warn(prefix: str, ledger: Reader) -> None:
    """Warn when a prefix is no destination of the campaign: most likely nothing of it is there."""
    destinations = sorted({flow.link.destination for flow in ledger.accounts() if not flow.link.service.cleans_up})
    if destinations and prefix not in destinations:
        others = f"{', '.join(destinations[:5])}{', ...' if len(destinations) > 5 else ''}"
        click.echo(f"no job in this ledger went to {prefix}; its destinations are {others}", err=True)


def sweep(search: Sweep, *, include_recent: bool, yes: bool) -> None:
    """Find files of a campaign that are in no ledger, ask, and delete them.

    Files that, or whose cycles, are younger than a day stay unless `include_recent`; those of active jobs always.
    """
    service, ours = search.backend.name, f"of {search.campaign} below {search.prefix}"
    found = search.find(include_recent=include_recent)
    if not found.every:
        click.echo(f"no files {ours} except those in the ledger", err=True)
        return
    _list(found.working, f"kept: their jobs are still active at {service}:")
    _list(found.unknown, f"kept: {service} does not know the state of their jobs:")
    click.echo(f"{_sum(found.every)} {ours} that are in no ledger", err=True)
    _list(found.young, "less than a day old, kept (--include-recent deletes them too):")
    if not found.free:
        if found.young:
            raise UsageError(
                "nothing was deleted", "make sure that no injector runs this campaign, then use --include-recent"
            )
        return
    _list(found.free, "to be deleted:")
    if found.recent:
        owners = _describe_owners(service, search.ledger)
        click.echo(f"the files of the last day belong to campaign {search.campaign}: {owners}", err=True)
    if not yes and not trusting.agreed("Delete them?"):
        raise UsageError("nothing was deleted", "answer y, or use --yes in a script")
    _delete(search.delete(found.free), len(found.free), search.clock)


def _describe_owners(service: str, ledger: Reader | None) -> str:
    """Return who injects a campaign, as far as a ledger shows: an injector may be at work on its newest files."""
    if ledger is None:
        return "no ledger here shows who injects it, so make sure that no injector runs it"
    contacts = sorted({entry.injection.contact for entry in ledger.entries()} - {""})
    accounts = [f"account {owners.account} at {owners.service}" for owners in ledger.identities()]
    owners = [f"contact {', '.join(contacts)}"] if contacts else []
    who = ", ".join([*owners, *accounts]) or f"its ledger names none, and {service} knows only the files"
    return f"{who}; make sure that no other injector is at work on it"


def _list(strays: Sequence[Stray], verb: str) -> None:
    """Show files by scenario and cycle, with one of each; nothing where there are none."""
    if not strays:
        return
    groups: defaultdict[tuple[str, str], list[Stray]] = defaultdict(list)
    for stray in strays:
        groups[stray.copy.scenario, f"{stray.copy.cycle:%Y-%m-%d %H:%M:%SZ}"].append(stray)
    click.echo(verb, err=True)
    for (scenario, cycle), group in sorted(groups.items())[:SHOWN]:
        newest = max((stray.modified for stray in group if stray.modified), default=None)
        changed = f", the last changed {newest:%Y-%m-%d %H:%M:%SZ}" if newest else ""
        click.echo(f"  {scenario}, cycle {cycle}: {_sum(group)}{changed}, such as {group[0].url}", err=True)
    if len(groups) > SHOWN:
        click.echo(f"  and {len(groups) - SHOWN} more", err=True)


def _sum(strays: Sequence[Stray]) -> str:
    return f"{units.counted(len(strays), 'files')} ({units.format_size(sum(stray.bytes for stray in strays))})"


def _delete(deletion: Iterator[Sequence[ServiceError | None]], count: int, clock: Clock) -> None:
    """Delete files, and show how far it got; raises Permanent when some stay."""
    done, errors, hint = list[int](), Counter[str](), None
    files = units.counted(count, "files")
    try:
        for results in show_progress(deletion, clock, lambda: f"{sum(done)} of {files} deleted"):
            failed = [error for error in results if error is not None]
            done.append(len(results) - len(failed))
            errors.update(error.message for error in failed)
            hint = hint or next((error.hint for error in failed if error.hint), None)
    except KeyboardInterrupt:
        exits.report_interruption(f"{sum(done)} of {files} deleted; run it again to continue")
        raise click.exceptions.Exit(exits.INTERRUPTED) from None
    click.echo(f"{units.counted(sum(done), 'files')} deleted", err=True)
    if errors:
        message, count = errors.most_common(1)[0]
        raise Permanent(f"{units.counted(errors.total(), 'files')} are still there; of {count}: {message}", hint)
