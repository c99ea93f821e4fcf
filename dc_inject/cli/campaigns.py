"""What commands on a whole campaign share: its ledger, its services, and its rules where there is no ledger."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Protocol, runtime_checkable

import click

from dc_inject.cli.shared import common, ledger_files, subjects
from dc_inject.cli.shared.subjects import Subject
from dc_inject.ledger import Ledger, LedgerView, paths
from dc_inject.ledger.lock import ENDS, InUse
from dc_inject.model import Cycle, Entry, Injection, State, naming, units
from dc_inject.model.errors import LedgerError, Permanent, UsageError
from dc_inject.model.items import sized
from dc_inject.model.ports import Backend, Candidate, Clock, FoundInjection
from dc_inject.model.services import DEFAULT, FTS, SERVICES


@runtime_checkable
class Finder(Protocol):
    """A service that can be searched for rules of a campaign."""

    name: str

    def ours(self, campaign: str) -> Iterator[FoundInjection]:
        """Stream the rules of a campaign, found by their comments."""
        ...


def of_shards(campaign: str, path: Path | None, subject: Subject) -> list[Path]:
    """Return the ledgers of those shards of a campaign that have a subject; none where it is not in shards.

    Raises LedgerError while any shard has an injector, and UsageError for a subject that none of them ever had.
    """
    place = ledger_files.file_of(path or ledger_files.named(campaign), campaign)
    files = paths.files(place)
    if files in ([], [place]):
        return []
    with LedgerView.open(place) as view:
        subjects.require_known(view, subject)
        if holder := view.holder():
            raise LedgerError(f"{place.stem} has an injector: {holder}", "end all of them first (Ctrl-C, SIGTERM)")
    return [file for file in files if _has(file, subject)] or files


def _has(file: Path, subject: Subject) -> bool:
    with LedgerView.open(file) as view:
        return any(subject.covers(flow) for flow in view.accounts())


def opened(
    stack: contextlib.ExitStack, campaign: str, path: Path | None, *, no_ledger: bool, sweeping: bool
) -> tuple[Ledger | None, str]:
    """Return the ledger, held, with the campaign's name; None where rules or files have to be found without."""
    named = path or ledger_files.named(campaign)
    if no_ledger and named:
        raise UsageError("--no-ledger cannot be combined with a ledger file", "give the campaign's name")
    file = ledger_files.file_of(named, campaign)
    if no_ledger or not (named or file.exists()):
        if not naming.NAME.fullmatch(campaign):
            raise UsageError(f"{campaign!r} is not a valid campaign name")
        if not no_ledger:
            looking = "looking for files only" if sweeping else "looking for rules by their comments"
            click.echo(f"there is no ledger at {file}: {looking}", err=True)
            if not sweeping:
                ways = (
                    f"jobs and files through FTS: `dc-inject ledger rebuild {campaign} MENUS`, or --sweep PREFIX"
                )
                click.echo(f"({ways}; campaigns with a ledger: {_with_ledgers()})", err=True)
        return None, campaign
    file = ledger_files.existing(campaign, path)
    ledger = stack.enter_context(Ledger.open(file))
    ledger_files.require_real(ledger)
    name = ledger_files.campaign_in(ledger, campaign, file)
    try:
        stack.enter_context(ledger.hold(common.who(), does=ENDS))
    except InUse as error:
        if error.injects:
            error.hint = (
                "an injector ends complete rules itself; to use `end`, end the injector first (Ctrl-C, SIGTERM)"
            )
        raise
    return ledger, name


def _with_ledgers() -> str:
    return ", ".join(ledger_files.campaigns()) or "none"


def services(ledger: Ledger | None, *, sweeping: bool) -> set[str]:
    """Return the services to speak to; who sweeps up files without a ledger may have no Rucio at all."""
    names = set() if ledger is None else {flow.link.through for flow in ledger.accounts()}
    if sweeping:
        names.add(FTS.name)
    return names or {DEFAULT.name}


def admit(backends: Iterable[Backend], ledger: Ledger | None, clock: Clock) -> None:
    """Refuse another account than the ledger's, and one that may not end rules."""
    for backend in backends:
        identity = backend.check()
        if ledger is not None:
            ledger.identify(identity, clock.now())
        if identity.may_end is False:
            raise Permanent(
                f"{identity.account} may not end rules at {identity.service} ({identity.address})",
                "its rules end with their lifetime; an administrator of the service can end them earlier",
            )


def find_rules(backends: Iterable[Backend], campaign: str, *, may_be_none: bool = True) -> list[Entry]:
    """Return the campaign's rules as those services have them that end what they are left with by themselves.

    Raises UsageError if there are none, unless there may be none.

    A job's files have to be deleted afterwards, which takes a ledger: `ledger rebuild` makes one.
    """
    rules = [
        rule
        for backend in backends
        if isinstance(backend, Finder) and SERVICES[backend.name].cleans_up
        for rule in _with_sizes(backend, list(backend.ours(campaign)))
    ]
    if not (rules or may_be_none):
        message = f"nothing is known of a campaign {campaign!r}: it has no ledger here, and no rule names it"
        raise UsageError(message, f"campaigns with a ledger: {_with_ledgers()}")
    sized = [rule for rule in rules if rule.bytes]
    if unsized := len(rules) - len(sized):
        reason = "whether the files of their datasets were at the destination before them is not known"
        click.echo(f"{units.counted(unsized, 'rules')}: left to their lifetime, because {reason}", err=True)
    return [_entry(rule) for rule in sized]


def _with_sizes(backend: Backend, rules: Sequence[FoundInjection]) -> Iterator[FoundInjection]:
    """Give rules with the sizes of their datasets, which Rucio's list of rules leaves out for open ones.

    Without its size nobody can tell how much of a dataset a rule found in place, and the end of a rule deletes
    files: those of others must stay.
    """
    unsized = [Candidate(rule.item, rule.link) for rule in rules if not rule.bytes]
    statuses = backend.check_replicas(unsized) if unsized else {}
    items = {candidate: status.item for candidate, status in statuses.items()}
    for rule in rules:
        item = items.get(Candidate(rule.item, rule.link))
        yield rule if item is None else replace(rule, bytes=item.bytes)


def _entry(rule: FoundInjection) -> Entry:
    """Return a rule as a ledger would have it, as far as its service tells."""
    injection = Injection(
        key=rule.key,
        campaign=rule.campaign,
        cycle=Cycle(rule.cycle, timedelta(0)),
        scenario=rule.scenario,
        link=rule.link,
        item=sized(rule.item, rule.bytes or 0, rule.files),
        release=rule.created_at,
        lifetime=(rule.expires_at or rule.created_at) - rule.created_at,
        activity="",
        service_priority=0,
        contact="",
    )
    return Entry(
        injection,
        State.LIVE,
        rule.external_id,
        accepted_at=rule.created_at,
        expires_at=rule.expires_at,
        files_done=0,  # so that what was at the destination before us is asked for
    )
