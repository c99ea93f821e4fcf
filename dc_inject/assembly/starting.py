"""The one place where a campaign is put together: menus, ledger, services and clock become one that is ready.

Commands ask for it, and hand in what differs: how to connect to services (real, simulated, or only read), whom the
person trusts. `choose` takes the menus and the ledger, `prepare` the services, `engine` all of it, as
`running.py` asks. `dc-inject end`, which has no menus, begins in `ending.py`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from dc_inject import menu
from dc_inject.credentials import trust as trusting
from dc_inject.credentials.trust import Trust
from dc_inject.engine import admission, kept_menus
from dc_inject.engine.another_injector import Alone
from dc_inject.engine.context import Planner, Settings
from dc_inject.engine.engine import Engine
from dc_inject.engine.menus import Menus
from dc_inject.ledger import Ledger, ledger_files, shard_path
from dc_inject.model import Campaign, Hold
from dc_inject.model.errors import NeedsOperator, Temporary
from dc_inject.model.events import Observer, Silent
from dc_inject.model.naming import Origin
from dc_inject.model.ports import Backend, Clock, Executor, Identity, MachineClock
from dc_inject.model.shards import Shard, shard_name
from dc_inject.model.thresholds import Threshold
from dc_inject.planning.reconcile import backoff
from dc_inject.system.account import who

log = logging.getLogger(__name__)
T = TypeVar("T")
WrapMenus = Callable[[Menus, Ledger, Clock], Callable[[], Campaign]]

START_PATIENCE = timedelta(minutes=1)  # at most; how long a service may fail at the start before we give up
ONCE_MORE = timedelta(seconds=5)  # how long at least credentials are tried again that were refused once
HANDOVER = timedelta(seconds=45)  # how long --once waits for the one before it, which is at its cycle's end


class Connect(Protocol):
    """Makes a back end for each service that is needed, real or not."""

    def __call__(
        self,
        services: Iterable[str],
        *,
        campaign: str,
        clock: Clock,
        observer: Observer,
        timeout: float,
        endpoint: str,
        origin: Origin | None,
    ) -> Mapping[str, Backend]:
        """Return them; `timeout` is in seconds, `endpoint` that of FTS, and `origin` goes into what is made."""


class CampaignObserver(Observer, Protocol):
    """An observer that also hears which menus are in force."""

    def in_force(self, campaign: Campaign) -> None:
        """Hear which menus are in force, at the start and after each change."""


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """How services are reached: the clock, what makes back ends, whom a person trusts, and seconds for a call."""

    clock: Clock
    connect: Connect
    trust: Trust
    timeout: float

    def open(
        self,
        services: Iterable[str],
        campaign: str,
        endpoint: str,
        observer: Observer = Silent(),
        origin: Origin | None = None,
    ) -> Mapping[str, Backend]:
        """Return a back end for each service, for a campaign; the other arguments are those of `Connect`."""
        return self.connect(
            services,
            campaign=campaign,
            clock=self.clock,
            observer=observer,
            timeout=self.timeout,
            endpoint=endpoint,
            origin=origin,
        )


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a person asks of a run: the options of the command, which explains each."""

    once: bool = False
    until: datetime | None = None
    dry_run: bool = False
    ledger_path: Path | None = None
    links: Sequence[str] = ()
    shard: Shard | None = None
    scale: float = 1.0
    no_drain: bool = False
    end_on_stop: bool = False
    metrics_address: str | None = None
    serve_port: int | None = None
    abort_on: Sequence[Threshold] = ()
    textfile: Path | None = None
    pushgateway: str | None = None
    allow_admin: bool = False
    accept_clock: bool = False
    threads: int = 8
    timeout: float = 60.0


@dataclass(frozen=True, kw_only=True)
class AppParts:
    """What an app puts in place of parts of `run`.

    With `drafts`, the menus are read already. `wrap_menus` may return another source of menus, which the engine
    then asks at each turn of a cycle; `planner` decides on each cycle, instead of the usual one. With
    `ends_afterwards` the caller ends what is left.
    """

    drafts: Sequence[menu.MenuDraft] = ()
    wrap_menus: WrapMenus | None = None
    planner: Planner | None = None
    ends_afterwards: bool = False


@dataclass(frozen=True, slots=True)
class Chosen:
    """The menus of a start, and the ledger of their campaign, of which this process is the only injector.

    A new campaign gets its ledger only when everything is right, so that what is refused leaves nothing behind:
    until then (`is_new`) a temporary ledger takes its place.
    """

    menus: Sequence[Path]
    options: RunOptions
    drafts: Sequence[menu.MenuDraft]
    last_good: Sequence[menu.MenuDraft]  # of --once, for files that cannot be carried out any more
    campaign: str
    path: Path
    ledger: Ledger
    is_new: bool


@dataclass(frozen=True, slots=True)
class Start:
    """A campaign that is ready: its ledger, its services, and the checked menus in force."""

    campaign: str
    path: Path
    ledger: Ledger
    backends: Mapping[str, Backend]
    identities: Mapping[str, Identity]
    menus: Menus
    in_force: Campaign
    alone: Alone | None


def choose(
    stack: contextlib.ExitStack,
    menus: Sequence[Path],
    options: RunOptions,
    drafts: Sequence[menu.MenuDraft] = (),
) -> Chosen:
    """Read menus, and open and hold the ledger of their campaign until the stack is closed.

    A dry run gets a copy of the ledger. With `drafts`, the menus are read already. Raises MenuError and
    LedgerError.
    """
    shard, once = shard_name(options.shard), options.once
    drafts = drafts or kept_menus.read(menus, options.ledger_path, shard, once=once)
    campaign = menu.one_campaign(drafts)
    path = shard_path(ledger_files.file_of(options.ledger_path, campaign), shard)
    if options.dry_run:
        path = stack.enter_context(ledger_files.copy_of(path))
    is_new = not path.exists()
    ledger = stack.enter_context(_scratch() if is_new else _held(path, once=once))
    last_good = kept_menus.last_good(ledger, menus) if once else []
    if last_good and drafts[0].preview.cycle != ledger.cycle_length:
        drafts = last_good  # the cycle in force cannot change
    return Chosen(menus, options, drafts, last_good, campaign, path, ledger, is_new)


def prepare(
    stack: contextlib.ExitStack,
    chosen: Chosen,
    access: ServiceAccess,
    *,
    observer: CampaignObserver,
    accept: Callable[[Campaign], None],
) -> Start:
    """Connect to the services and put the menus in force.

    `accept` raises for menus that do not fit what was asked for. Raises UsageError, MenuError, LedgerError and
    ServiceError; what waiting may help is tried again for a while.
    """
    options, shard = chosen.options, shard_name(chosen.options.shard)
    clock, trust = access.clock, access.trust
    campaign, ledger, cycle = chosen.campaign, chosen.ledger, chosen.drafts[0].preview.cycle
    patience = min(START_PATIENCE, cycle / 10)
    who_starts = f"{who()}, process {os.getpid()}"
    origin = None if options.dry_run else Origin(uuid.uuid4().hex, who_starts, shard)
    allowed = _allowed(chosen, trust)
    services = {service for draft in chosen.drafts for service in draft.services}
    backends = access.open(services, campaign, menu.endpoint_of(chosen.drafts), observer, origin)
    identify = partial(admission.identities, backends, allow_admin=options.allow_admin)
    identities = patiently(identify, clock, patience)
    if not options.accept_clock:
        admission.refuse_clock(identities.values(), clock.now(), cycle)

    def admit(campaign: Campaign) -> None:
        admission.storages(campaign)
        trust.admit(campaign)
        observer.in_force(campaign)

    def bind(ledger: Ledger, cycle: timedelta) -> None:
        ledger.bind(campaign, cycle, tuple(identities.values()), clock.now(), shard)
        ledger.trust(allowed, who(), clock.now())

    source = Menus(
        chosen.menus,
        ledger=ledger,
        backends=backends,
        clock=clock,
        links=options.links,
        scale=options.scale,
        shard=options.shard,
        admits=admit,
    )
    bind(ledger, cycle)
    in_force = patiently(lambda: kept_menus.take_up(source, chosen.drafts, chosen.last_good), clock, patience)
    accept(in_force)
    alone = None if origin is None else Alone(campaign, origin, _how_to_adopt(chosen))
    if alone is not None:
        alone.refuse_others(ledger, backends, in_force.start, clock.now())
    if chosen.is_new:
        ledger = stack.enter_context(_held(chosen.path, once=options.once))
        bind(ledger, in_force.cycle)
        source.move_to(ledger)
    return Start(campaign, chosen.path, ledger, backends, identities, source, in_force, alone)


def engine(
    start: Start, options: RunOptions, parts: AppParts, *, clock: Clock, executor: Executor, observer: Observer
) -> Engine:
    """Return the engine of a campaign that is ready."""
    wrap, count = parts.wrap_menus, options.shard.count if options.shard else 1
    return Engine(
        menus=wrap(start.menus, start.ledger, clock) if wrap else start.menus,
        in_force=None if wrap else start.in_force,
        ledger=start.ledger,
        backends=start.backends,
        identities=start.identities,
        clock=clock,
        executor=executor,
        observer=observer,
        settings=Settings(
            call_grace=timedelta(seconds=3 * options.timeout),
            drain=not options.no_drain,
            end_on_stop=options.end_on_stop,
            ends_afterwards=parts.ends_afterwards,
            submits_at_once=-(-Settings().submits_at_once // count),
        ),
        alone=start.alone,
        planner=parts.planner,
        machine=clock if isinstance(clock, MachineClock) else None,
    )


# --------------------------------------------------------------------------- parts of a start


def patiently(
    ask: Callable[[], T], clock: Clock, patience: timedelta, sleep: Callable[[float], None] = time.sleep
) -> T:
    """Ask until there is an answer, or until `patience` is over: one 504 must not cost cron a whole cycle.

    Errors that a person has to repair are raised at once; credentials count as refused when they are refused
    twice.
    """
    deadline, tries, refused = clock.now() + patience, 0, 0
    while True:
        try:
            return ask()
        except (Temporary, NeedsOperator) as error:
            if error.hold == Hold.CREDENTIALS:
                refused += 1
                deadline = max(deadline, clock.now() + ONCE_MORE)
            elif isinstance(error, NeedsOperator) and not error.passing:
                raise
            if refused > 1 or clock.now() >= deadline:
                raise
            tries += 1
            log.warning("%s; trying again until %s", error.message, f"{deadline:%H:%M:%SZ}")
            sleep(backoff(tries, error.message, longest=timedelta(seconds=10)).total_seconds())


def _allowed(chosen: Chosen, trust: Trust) -> tuple[str, ...]:
    """Return the hosts that the person allows now, of those that the links to run need; those of before count."""
    if chosen.ledger.campaign == chosen.campaign:
        trust.name(*chosen.ledger.trusted(), by=trusting.ANSWERED)
    links, flows = chosen.options.links, (flow for draft in chosen.drafts for flow in draft.preview.flows)
    ends = trusting.ends(flow.link for flow in flows if not links or str(flow.link) in links)
    return trust.ask(ends, menu.endpoint_of(chosen.drafts))


def _how_to_adopt(chosen: Chosen) -> str:
    """Return as a hint what a person can do about rules or jobs that another ledger has made."""
    words = ["dc-inject", "ledger", "rebuild", chosen.campaign, *map(str, chosen.menus), "--adopt"]
    words += ["--ledger", str(chosen.options.ledger_path)] if chosen.options.ledger_path else []
    words += ["--shard", str(chosen.options.shard)] if chosen.options.shard else []
    return f"end that injector where it runs; once none runs, adopt them: `{shlex.join(words)}`"


@contextlib.contextmanager
def _held(path: Path, *, once: bool) -> Iterator[Ledger]:
    """Open a ledger as its only injector, and make it if there is none."""
    with Ledger.open(path) as ledger:
        ledger_files.require_real(ledger)
        if ledger.log_lacks:
            log.warning(
                "%d bytes of the ledger's log are missing: its last transactions are lost", ledger.log_lacks
            )
        with ledger.hold(who(), patience=HANDOVER if once else timedelta(0)):
            yield ledger


@contextlib.contextmanager
def _scratch() -> Iterator[Ledger]:
    """Give a temporary ledger, in which a start is tried before the campaign gets its own."""
    with (
        tempfile.TemporaryDirectory(prefix="dc_inject-") as folder,
        Ledger.open(Path(folder) / "start.sqlite", synchronous="OFF") as ledger,
    ):
        yield ledger
