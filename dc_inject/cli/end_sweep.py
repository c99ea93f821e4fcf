"""Sweeping up: files of ours below a destination that no ledger knows, shown, asked for, and deleted.

Their paths tell whose they are, not whether somebody is still at work on them: what is young, and what has a job
at work, is left alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

import click

from dc_inject.cli.shared import end_files, exits
from dc_inject.ledger.reading import Reader
from dc_inject.model import Bundle, Cycle, Entry, Injection, Link, State, units
from dc_inject.model.errors import Permanent, ServiceError, UsageError
from dc_inject.model.naming import Copy
from dc_inject.model.ports import Backend, Clock, Status, Stray
from dc_inject.model.services import FTS

YOUNG = timedelta(days=1)
AT_ONCE = 1000  # files deleted between two words
SHOWN = 20  # lines of scenarios and cycles
_QUIET = frozenset({Status.ABSENT, Status.COMPLETE})  # what a job is when it writes nothing any more


@runtime_checkable
class Sweeper(Protocol):
    """A service that can look for files of a campaign where they were copied to."""

    def sweep(self, prefix: str, campaign: str) -> Iterator[Stray]:
        """Stream files whose whole path is one of ours."""
        ...

    def delete(self, urls: Sequence[str], prefix: str, campaign: str) -> list[tuple[str, ServiceError | None]]:
        """Delete files of a campaign, and folders of its jobs that are empty then; tells what stood in the way."""
        ...


def warn(prefix: str, ledger: Reader) -> None:
    """Say so when a prefix is no destination of the campaign: most likely nothing of it is there."""
    destinations = sorted({flow.link.destination for flow in ledger.accounts() if not flow.link.service.cleans_up})
    if destinations and prefix not in destinations:
        others = f"{', '.join(destinations[:5])}{', ...' if len(destinations) > 5 else ''}"
        click.echo(f"no job in this ledger went to {prefix}; its destinations are {others}", err=True)


def sweep(
    backend: Backend,
    prefix: str,
    campaign: str,
    ledger: Reader | None,
    clock: Clock,
    *,
    include_recent: bool,
    yes: bool,
) -> None:
    """Find files of a campaign that no ledger answers for, ask, and delete them.

    Files that, or whose cycles, are younger than a day stay unless `include_recent`; those of active jobs always.
    """
    if not isinstance(backend, Sweeper):
        raise UsageError(f"{backend.name} leaves no files to sweep")
    keys = set() if ledger is None else {e.injection.key for e in ledger.entries() if e.state.resident}
    strays = [stray for stray in backend.sweep(prefix, campaign) if stray.copy.key not in keys]
    if not strays:
        click.echo(f"no files of {campaign} below {prefix} except those in the ledger", err=True)
        return
    since = clock.now() - YOUNG
    young = [stray for stray in strays if not include_recent and _newest(stray) > since]
    old = [stray for stray in strays if include_recent or _newest(stray) <= since]
    free = _without_work(backend, old, prefix)
    click.echo(f"{_sum(strays)} of {campaign} below {prefix} that are in no ledger", err=True)
    if young:
        _say(young, "less than a day old, kept (--include-recent deletes them too):")
    if not free:
        if young:
            raise UsageError(
                "nothing was deleted", "make sure that nobody injects this campaign, then use --include-recent"
            )
        return
    _say(free, "to be deleted:")
    if any(_newest(stray) > since for stray in free):
        click.echo(f"the files of the last day belong to campaign {campaign}: {_whose(backend, ledger)}", err=True)
    if not yes and not end_files.agreed("Delete them?"):
        raise UsageError("nothing was deleted", "answer y, or use --yes in a script")
    _delete(backend, free, prefix, campaign, clock)


def _whose(backend: Backend, ledger: Reader | None) -> str:
    """Say who injects a campaign, as far as a ledger tells: somebody may be at work on its newest files."""
    if ledger is None:
        return "no ledger here tells who injects it, so make sure that nobody does"
    contacts = sorted({entry.injection.contact for entry in ledger.entries()} - {""})
    accounts = [f"account {owners.account} at {owners.service}" for owners in ledger.identities()]
    owners = [f"contact {', '.join(contacts)}"] if contacts else []
    who = ", ".join([*owners, *accounts]) or f"its ledger tells nobody, and {backend.name} knows only the files"
    return f"{who}; make sure that no other injector is at work on it"


def _without_work(backend: Backend, strays: Sequence[Stray], prefix: str) -> list[Stray]:
    """Return the files whose jobs write nothing any more, as their service says, and tell of the others."""
    entries = [_entry(copy, prefix) for copy in {stray.copy.key: stray.copy for stray in strays}.values()]
    statuses = {observation.key: observation.status for observation in backend.observe(entries)}
    for status, what in (
        (f"at work at {backend.name}", _at_work(statuses)),
        (f"that {backend.name} does not tell of", _untold(statuses)),
    ):
        if left := [stray for stray in strays if stray.copy.key in what]:
            _say(left, f"of jobs {status}, left alone:")
    return [stray for stray in strays if statuses[stray.copy.key] in _QUIET]


def _at_work(statuses: Mapping[str, Status]) -> set[str]:
    return {key for key, status in statuses.items() if status not in {*_QUIET, Status.UNKNOWN}}


def _untold(statuses: Mapping[str, Status]) -> set[str]:
    return {key for key, status in statuses.items() if status is Status.UNKNOWN}


def _entry(copy: Copy, prefix: str) -> Entry:
    """Return as much of a job's entry as its service needs to find it by the key."""
    injection = Injection(
        key=copy.key,
        campaign=copy.campaign,
        cycle=Cycle(copy.cycle, timedelta(0)),
        scenario=copy.scenario,
        link=Link("", prefix, FTS.name),
        item=Bundle("", 0, 0),
        release=copy.cycle,
        lifetime=timedelta(0),
        activity="",
        service_priority=0,
        contact="",
    )
    return Entry(injection, State.CALLED)


def _say(strays: Iterable[Stray], verb: str) -> None:
    """Tell of files by scenario and cycle, with one of them."""
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


def _newest(stray: Stray) -> datetime:
    return max(stray.copy.cycle, stray.modified or stray.copy.cycle)


def _sum(strays: Sequence[Stray]) -> str:
    return f"{units.counted(len(strays), 'files')} ({units.format_size(sum(stray.bytes for stray in strays))})"


def _delete(sweeper: Sweeper, strays: Sequence[Stray], prefix: str, campaign: str, clock: Clock) -> None:
    """Delete files, and say how far it got; raises Permanent when some stay."""
    done, errors, hint, last_told = 0, Counter[str](), None, clock.now()
    urls = sorted(stray.url for stray in strays)  # so that the files of a folder go together
    try:
        for start in range(0, len(urls), AT_ONCE):
            for _, error in sweeper.delete(urls[start : start + AT_ONCE], prefix, campaign):
                done += error is None
                if error is not None:
                    errors[error.message] += 1
                    hint = hint or error.hint
            if clock.now() >= last_told + end_files.TELL_EVERY:
                last_told = clock.now()
                click.echo(f"{done} of {units.counted(len(urls), 'files')} deleted", err=True)
    except KeyboardInterrupt:
        exits.say_interrupted(f"{done} of {units.counted(len(urls), 'files')} deleted; run it again to continue")
        raise click.exceptions.Exit(exits.INTERRUPTED) from None
    click.echo(f"{units.counted(done, 'files')} deleted", err=True)
    if errors:
        message, count = errors.most_common(1)[0]
        raise Permanent(f"{units.counted(errors.total(), 'files')} are still there; of {count}: {message}", hint)
