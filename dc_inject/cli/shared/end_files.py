"""Deleting the files of ended jobs at their destinations, until they are known to be gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Protocol, runtime_checkable

import click

from dc_inject.cli.shared import exits
from dc_inject.engine.ending import ManualEnd
from dc_inject.ledger import Ledger
from dc_inject.model import Entry, Injection, State, units
from dc_inject.model.errors import ServiceError
from dc_inject.model.ports import Backend, Clock, Removal
from dc_inject.summary.left import find

PATIENCE = timedelta(minutes=2)  # how long files that resist are asked for again while nothing else gets on
TELL_EVERY = timedelta(seconds=10)
SHOWN = 20  # destinations where files stay
Ours = Callable[..., list[Entry]]  # our entries in some states


@runtime_checkable
class Tidier(Protocol):
    """A service that leaves folders behind at destinations."""

    def tidy(self, prefix: str, campaign: str) -> ServiceError | None:
        """Delete the empty folders of a campaign of which no job is left; tell what stood in the way."""
        ...


def agreed(question: str) -> bool:
    """Ask, and take silence, as where nobody can be asked, for a no."""
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        return False


def remove(ending: ManualEnd, ours: Ours, clock: Clock, patience: timedelta = PATIENCE) -> bool:
    """Delete the files of ended jobs, and say what is known of them; return False if Ctrl-C interrupted it.

    Raises ServiceError for those that stay.
    """
    entries = {entry.injection.key: entry for entry in find(ours).ended}
    if not entries:
        return True
    tally = _Tally(sum(entry.injection.item.files for entry in entries.values()))
    last_told = clock.now()
    try:
        for removal in ending.remove(entries.values(), patience, partial(_waits, patience)):
            tally.add(removal, entries[removal.key].injection)
            if clock.now() >= last_told + TELL_EVERY:
                last_told = clock.now()
                click.echo(f"known to be gone: {tally.gone} of {units.counted(tally.files, 'files')}", err=True)
    except KeyboardInterrupt:
        exits.say_interrupted(f"{tally.gone} of {units.counted(tally.files, 'files')} gone")
        return False
    click.echo(f"known to be gone from their destinations: {units.counted(tally.gone, 'files')}", err=True)
    if tally.later:
        click.echo(_once_more(tally.later, next(iter(entries.values())).injection.campaign), err=True)
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


def _waits(patience: timedelta, destination: str, why: str) -> None:
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


def tidy(ledger: Ledger, campaign: str, backends: Mapping[str, Backend]) -> None:
    """Delete the empty folders of a campaign of which nothing is left; those that stay hold no bytes."""
    unfinished = ledger.entries(State.CALLED, State.LIVE, State.COMPLETE, State.ENDED)
    if any(not entry.injection.link.service.cleans_up for entry in unfinished):
        return  # FTS makes folders for it, and they are empty before a file comes
    for service, destination in sorted({(flow.link.through, flow.link.destination) for flow in ledger.accounts()}):
        backend = backends[service]
        if isinstance(backend, Tidier) and (error := backend.tidy(destination, campaign)):
            click.echo(f"empty folders are left at {destination}: {error.message}", err=True)


def say_what_lives_on(ours: Ours, noun: str, clock: Clock) -> None:
    """Say what is not over yet, and when to come again: nobody else will end it and delete its files."""
    count, last = find(ours).active_jobs(clock.now())
    if count:
        when = f" after {last:%Y-%m-%d %H:%M:%SZ}, or with --cancel" if last else ""
        click.echo(f"not finished: {units.counted(count, noun)} still active; run it again{when}", err=True)


def _once_more(later: Sequence[Removal], campaign: str) -> str:
    moment = max((removal.again_at for removal in later if removal.again_at), default=None)
    when = f"after {moment:%Y-%m-%d %H:%M:%SZ} (`longest_transfer` of the menu)" if moment else "later"
    return (
        f"{units.counted(len(later), 'jobs')} had transfers that failed or were cancelled, and FTS cannot always "
        f"stop a storage that is writing: what is there is deleted now; for what may still come, run "
        f"`dc-inject end {campaign}` once more {when}"
    )
