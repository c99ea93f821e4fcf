"""Deleting the files of ended jobs at their destinations, until they are known to be gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol, runtime_checkable

import click

from dc_inject.engine.ending import Ending
from dc_inject.errors import ServiceError
from dc_inject.ledger import Ledger
from dc_inject.model import Entry, State
from dc_inject.ports import Backend, Clock, Removal

PATIENCE = timedelta(minutes=2)  # how long files that resist are asked for again while nothing else gets on
TELL_EVERY = timedelta(seconds=10)
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


def left(ours: Ours, backends: Mapping[str, Backend]) -> int:
    """Return how many files of ended jobs are not known to be gone."""
    return sum(entry.injection.item.files for entry in _to_remove(ours, backends))


def under_way(ours: Ours, backends: Mapping[str, Backend]) -> list[Entry]:
    """Return the jobs whose end was asked for and that are not over yet."""
    return [e for e in ours(State.LIVE, State.COMPLETE) if e.end_asked_at and not _cleans_up(e, backends)]


def remove(ending: Ending, ours: Ours, backends: Mapping[str, Backend], clock: Clock) -> None:
    """Delete the files of ended jobs, and say what is known of them; raises ServiceError for those that stay."""
    entries = {entry.injection.key: entry for entry in _to_remove(ours, backends)}
    if not entries:
        return
    tally = _Tally(sum(entry.injection.item.files for entry in entries.values()))
    told = clock.now()
    try:
        for removal in ending.remove(entries.values(), PATIENCE):
            tally.add(removal, entries[removal.key].injection.item.files)
            if clock.now() >= told + TELL_EVERY:
                told = clock.now()
                click.echo(f"{tally.gone} of {tally.files} files are known to be gone", err=True)
    except KeyboardInterrupt:
        click.echo(f"interrupted: {tally.gone} of {tally.files} files are gone; run it again to go on", err=True)
        raise click.exceptions.Exit(130) from None
    click.echo(f"{tally.gone} files are known to be gone from their destinations", err=True)
    if tally.later:
        click.echo(_once_more(tally.later), err=True)
    if tally.errors:
        message, count = tally.errors.most_common(1)[0]
        raise ServiceError(
            f"files of {sum(tally.errors.values())} jobs are still at their destinations; of {count}: {message}",
            "the ledger keeps them: run it again when that is repaired",
        )


@dataclass
class _Tally:
    """How far deleting got: all files, those that are gone, jobs to look at later, what stood in the way."""

    files: int
    gone: int = 0
    later: list[Removal] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    def add(self, removal: Removal, files: int) -> None:
        if removal.gone:
            self.gone += files
        elif removal.error is None:
            self.later.append(removal)
        else:
            self.errors[removal.error.message] += 1


def tidy(ledger: Ledger, campaign: str, backends: Mapping[str, Backend]) -> None:
    """Delete the empty folders of a campaign of which nothing is left; those that stay hold no bytes."""
    left = ledger.entries(State.CALLED, State.LIVE, State.COMPLETE, State.ENDED)
    if any(not _cleans_up(entry, backends) for entry in left):
        return  # FTS makes folders for it, and they are empty before a file comes
    for service, destination in sorted({(flow.link.through, flow.link.destination) for flow in ledger.accounts()}):
        backend = backends[service]
        if isinstance(backend, Tidier) and (error := backend.tidy(destination, campaign)):
            click.echo(f"empty folders stay at {destination}: {error.message}", err=True)


def _once_more(later: Sequence[Removal]) -> str:
    moment = max((removal.again_at for removal in later if removal.again_at), default=None)
    when = f" after {moment:%Y-%m-%d %H:%M:%SZ}" if moment else " later"
    return (
        f"{len(later)} jobs had transfers that failed or were cancelled, which may still write: "
        f"they are deleted now; look once more{when}, with this command or `run`"
    )


def _to_remove(ours: Ours, backends: Mapping[str, Backend]) -> list[Entry]:
    return [entry for entry in ours(State.ENDED) if not _cleans_up(entry, backends)]


def _cleans_up(entry: Entry, backends: Mapping[str, Backend]) -> bool:
    return backends[entry.injection.link.through].cleans_up
