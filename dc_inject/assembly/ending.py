"""The end by hand is put together: a ledger without menus, and the services of what it has made."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from dc_inject.assembly.starting import ServiceAccess
from dc_inject.assembly.sweeping import Sweep
from dc_inject.credentials import trust as trusting
from dc_inject.engine.ending import THREADS, Drain, ToEnd, files_left, tidy
from dc_inject.ledger import Ledger, LedgerView, Reader, files, ledger_files
from dc_inject.ledger.lock import ENDS, InUse
from dc_inject.model import Entry, FlowKey, units
from dc_inject.model.errors import LedgerError, Permanent, ServiceError
from dc_inject.model.ports import Backend, Clock
from dc_inject.model.services import DEFAULT, FTS, SERVICES, injections
from dc_inject.summary.left import describe_lifetimes
from dc_inject.system.account import who
from dc_inject.system.executor import ThreadExecutor


@dataclass(frozen=True, slots=True)
class Ending:
    """A campaign that is ready to be ended by hand; `noun` is what its services call rules or jobs."""

    campaign: str
    noun: str
    ledger: Ledger
    backends: Mapping[str, Backend]
    drain: Drain
    clock: Clock

    def describe(self, plan: ToEnd, files: int, *, cancel: bool, rate: float) -> list[str]:
        """Return a line about each part of what is there, and what would be done, before anything is done.

        `files` of ended jobs are to be deleted; `rate` is how many rules or jobs an hour are cancelled.
        """
        lines, noun = [], self.noun
        if plan.complete:
            lines.append(f"{units.counted(len(plan.complete), f'complete {noun}')}: will be ended at once")
        if plan.spared:
            what = units.counted(plan.spared, f"complete {noun}")
            lines.append(f"{what}: kept, because unfinished second hops read from them")
        if files:
            lines.append(f"{units.counted(files, 'files')} of ended jobs: will be deleted at their destinations")
        if plan.overdue:
            overdue = units.counted(len(plan.overdue), noun)
            lines.append(f"{overdue} past the lifetime: {_cancelled(plan.overdue, rate)}")
        unfinished = units.counted(len(plan.unfinished), f"unfinished {noun}")
        if plan.unfinished and cancel:
            lines.append(f"{unfinished}: {_cancelled(plan.unfinished, rate)}")
        elif plan.unfinished:
            left = units.counted(files_left(plan.unfinished), "files")
            lines.append(f"{unfinished} with {left} under way: {describe_lifetimes(plan.unfinished)}")
        for number, words in (
            (plan.ending, "already ending"),
            (plan.gone, "already gone"),
            (plan.in_doubt, f"in doubt: run `dc-inject end {self.campaign}` again in some minutes"),
        ):
            if number:
                lines.append(f"{units.counted(number, noun)} {words}")
        return lines or [f"no {noun} of {self.campaign} to end"]

    def tidy(self) -> Iterator[tuple[str, ServiceError]]:
        """Delete empty folders; give destinations where some stay, and why."""
        return tidy(self.ledger, self.campaign, self.backends)

    @contextlib.contextmanager
    def sweep(self, prefix: str) -> Iterator[Sweep]:
        """Give the search for files below a prefix that no shard of the campaign knows."""
        with ledger_files.of_all_shards(self.ledger) as ledger:
            yield Sweep(self.backends[FTS.name], prefix, self.campaign, ledger, self.clock)


def find_shards_to_end(
    campaign: str, path: Path | None, covers: Callable[[FlowKey], bool], accept: Callable[[Reader], None]
) -> list[Path]:
    """Return the ledgers of those shards of a campaign that have flows to end; none where it is not in shards.

    `accept` raises if the campaign never had what is to end. Raises LedgerError while any shard has an injector.
    """
    whole = ledger_files.file_of(path or ledger_files.named(campaign), campaign)
    shards = files(whole)
    if shards in ([], [whole]):
        return []
    with LedgerView.open(whole) as view:
        accept(view)
        if holder := view.holder():
            raise LedgerError(f"{whole.stem} has an injector: {holder}", "end all of them first (Ctrl-C, SIGTERM)")

    def has_some(shard: Path) -> bool:
        with LedgerView.open(shard) as view:
            return any(covers(flow) for flow in view.accounts())

    return [shard for shard in shards if has_some(shard)] or shards


def assemble(
    stack: contextlib.ExitStack,
    campaign: str,
    path: Path | None,
    access: ServiceAccess,
    *,
    sweep: str | None,
    covers: Callable[[FlowKey], bool],
    accept: Callable[[Ledger], None],
) -> Ending:
    """Open a campaign's ledger, which is held until the stack is closed, and the services of what it has made.

    `sweep` is a prefix that is searched afterwards, for which FTS is needed. It is about the flows that it
    `covers`; `accept` raises if the campaign never had any. Raises LedgerError with a way out if there is no
    ledger, and ServiceError for an account that is not the ledger's, or may not end rules.
    """
    clock, trust = access.clock, access.trust
    trust.name(sweep or "")
    try:
        file = ledger_files.existing(campaign, path)
    except LedgerError as error:
        name = "CAMPAIGN" if ledger_files.named(campaign) else campaign
        error.hint = f"if it is lost, `dc-inject ledger rebuild {name} MENUS` makes a new one; {error.hint}"
        raise
    ledger = stack.enter_context(Ledger.open(file))
    ledger_files.require_real(ledger)
    name = ledger_files.campaign_in(ledger, campaign, file)
    try:
        stack.enter_context(ledger.hold(who(), does=ENDS))
    except InUse as error:
        if error.injects:
            error.hint = (
                "an injector ends complete rules itself; to use `end`, end the injector first (Ctrl-C, SIGTERM)"
            )
        raise
    accept(ledger)
    # The address of FTS was named when the ledger was bound.
    named = (one.address for one in ledger.identities() if SERVICES[one.service].named_by_menus)
    endpoint = next(named, "")
    trust.name(endpoint, by="ledger")
    if ledger.campaign == name:
        trust.name(*ledger.trusted(), by=trusting.ANSWERED)
    places = trusting.ends((flow.link for flow in ledger.accounts()), "destination")  # sources are not opened
    ledger.trust(trust.ask(places, "", whose="Ending this campaign"), who(), clock.now())
    trust.require(places)
    services = {flow.link.through for flow in ledger.accounts()} | ({FTS.name} if sweep else set())
    backends = access.open(services or {DEFAULT.name}, name, endpoint)
    admit_to_end(backends.values(), ledger, clock)
    executor = ThreadExecutor(clock, THREADS)
    stack.callback(executor.close)
    drain = Drain(
        ledger=ledger,
        backends=backends,
        clock=clock,
        executor=executor,
        covers=covers,
        patience=timedelta(seconds=3 * access.timeout),
    )
    return Ending(name, injections(backends), ledger, backends, drain, clock)


def sweep_without_ledger(campaign: str, prefix: str, access: ServiceAccess) -> Sweep:
    """Return the search for files of a campaign whose ledger is lost. There may be no Rucio: only FTS is asked."""
    access.trust.name(prefix)
    backends = access.open({FTS.name}, campaign, "")
    admit_to_end(backends.values(), None, access.clock)
    return Sweep(backends[FTS.name], prefix, campaign, None, access.clock)


def admit_to_end(backends: Iterable[Backend], ledger: Ledger | None, clock: Clock) -> None:
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


def _cancelled(entries: Sequence[Entry], rate: float) -> str:
    time = units.format_duration(timedelta(hours=(len(entries) - 1) / rate))
    return f"will be ended in {time}; cancels {units.counted(files_left(entries), 'files')} under way"
