"""`dc-inject run`: the main job."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import click

from dc_inject.backends.dry import DryBackend
from dc_inject.cli import (
    active_overrides,
    closing_table,
    common,
    hangup,
    ledger_files,
    live_view,
    log_output,
    params,
    serve,
    tables,
    thresholds,
    trusting,
    watch_figures,
)
from dc_inject.engine import Engine, Settings, admission
from dc_inject.engine.menus import Menus
from dc_inject.ledger import Ledger
from dc_inject.ledger import place as ledger_place
from dc_inject.menu import MenuDraft
from dc_inject.metrics import Metrics, publishing
from dc_inject.model import Campaign, Hold, rates, units
from dc_inject.model.errors import NeedsOperator, Temporary
from dc_inject.model.events import Observer
from dc_inject.model.ports import Backend, Clock, Identity
from dc_inject.model.services import injections
from dc_inject.model.thresholds import Threshold
from dc_inject.planning.reconcile import backoff
from dc_inject.planning.shards import Shard
from dc_inject.system import files
from dc_inject.system.clock import SystemClock
from dc_inject.system.executor import ThreadExecutor
from dc_inject.system.service_manager import ServiceManager

log = logging.getLogger(__name__)
T = TypeVar("T")
WrapMenus = Callable[[Callable[[], Campaign], Ledger, Clock], Callable[[], Campaign]]

START_PATIENCE = timedelta(minutes=1)  # at most; how long a service may fail at the start before we give up
ONCE_MORE = timedelta(seconds=5)  # how long at least credentials are tried again that were refused once
MOST_ROWS = 60  # links of a closing table
HANDOVER = timedelta(seconds=45)  # how long --once waits for the one before it, which is at its cycle's end


@click.command()
@common.MENUS
@click.option("--once", is_flag=True, help="Inject only the current cycle, and exit at its end; for cron.")
@click.option("--until", type=params.TIME, help="Stop injecting at this time, such as 2027-02-08T10:00Z.")
@click.option("--dry-run", is_flag=True, help="Run in real time without changing anything; `plan` is quicker.")
@common.LEDGER
@common.LINKS
@common.SHARD
@common.SCALE
@click.option(
    "--no-drain", is_flag=True, help="Exit when the menus end, without waiting for rules and jobs to end."
)
@click.option(
    "--end-on-stop",
    is_flag=True,
    help="When stopped, end complete rules and jobs at once, and delete their files for up to half a minute.",
)
@click.option(
    "--metrics-address", metavar="[HOST:]PORT", help="Serve Prometheus metrics at this address [host: 127.0.0.1]."
)
@serve.SERVE
@thresholds.ABORT_ON
@click.option(
    "--textfile",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --once: write the metrics to this file at the end, for node_exporter (*.prom, mode 0644).",
)
@click.option("--pushgateway", metavar="URL", help="With --once: send the metrics to a Pushgateway at the end.")
@click.option("--allow-admin", is_flag=True, help="Accept an administrator's account.")
@click.option(
    "--threads",
    default=8,
    show_default=True,
    type=click.IntRange(1, 64),
    help="The number of simultaneous calls to a service.",
)
@common.TIMEOUT
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
@click.option("-q", "--quiet", is_flag=True, help="Log only warnings and errors, and print no table; for cron.")
@log_output.OPTIONS
def run(
    menus: tuple[Path, ...],
    *,
    verbose: bool,
    quiet: bool,
    plain: bool,
    log_format: str,
    log_file: Path | None,
    **how: Any,
) -> None:
    r"""Inject MENUS cycle after cycle until they end, then wait until none of their rules and jobs is live.

    SIGTERM, Ctrl-C or a closed terminal stops the injection; rules and jobs stay live, and the next `run`
    continues. Press Ctrl-C twice to exit at once.

    On a terminal it shows below its log how the campaign stands; --plain leaves that out. `dc-inject watch` shows
    more, from any other terminal.

    At its end `run` prints the same table as `dc-inject status --summary`, except with --once, and exits with 5
    if a threshold of its menus was missed.

    \b
    Example: dc-inject run menus/cms-t0-export.yaml
    Example, for cron: dc-inject run --once --quiet /etc/dc_inject/menus
    """
    seen = log_output.talk(verbose=verbose, quiet=quiet, plain=plain, fmt=log_format, file=log_file)
    show = None if quiet or how["once"] else _show_totals
    inject(menus, closing=show, live=seen, **how)


def _admit(campaign: Campaign) -> None:
    """Raise MenuError for storages that cannot be spoken to here, or that would get a token unnamed."""
    admission.storages(campaign)
    trusting.admit(campaign)


def _ends(drafts: Iterable[MenuDraft], links: Sequence[str]) -> set[trusting.End]:
    """Return the storages of those links that are to run."""
    flows = (flow for draft in drafts for flow in draft.preview.flows)
    return trusting.ends(flow.link for flow in flows if not links or str(flow.link) in links)


def _backends(
    drafts: Sequence[MenuDraft],
    campaign: str,
    clock: Clock,
    observer: Observer,
    *,
    timeout: float,
    dry_run: bool,
) -> Mapping[str, Backend]:
    """Return a back end for each service of the menus; in a dry run they only simulate what would change."""
    backends = common.backends(
        {service for draft in drafts for service in draft.services},
        campaign=campaign,
        clock=clock,
        observer=observer,
        timeout=timeout,
        endpoint=common.menus_endpoint(drafts),
    )
    if not dry_run:
        return backends
    return {service: DryBackend(backend, clock) for service, backend in backends.items()}


def _serve(
    stack: contextlib.ExitStack,
    metrics: Metrics,
    address: str | None,
    ledgers: Mapping[str, Path],
    port: int | None,
) -> None:
    """Serve metrics at an address, and the live page at a port, if they are given, until the stack is closed."""
    if address:
        stack.enter_context(metrics.serve(address))
    if port is not None:
        stack.enter_context(serve.serving(ledgers, port, metrics=metrics.app()))


def inject(
    menus: Sequence[Path],
    *,
    once: bool = False,
    until: datetime | None = None,
    dry_run: bool = False,
    ledger_path: Path | None = None,
    links: Sequence[str] = (),
    shard: Shard | None = None,
    scale: float = 1.0,
    no_drain: bool = False,
    end_on_stop: bool = False,
    metrics_address: str | None = None,
    serve_port: int | None = None,
    abort_on: Sequence[Threshold] = (),
    textfile: Path | None = None,
    pushgateway: str | None = None,
    allow_admin: bool = False,
    threads: int = 8,
    timeout: float = 60.0,
    wrap_menus: WrapMenus | None = None,
    ends_afterwards: bool = False,
    closing: Callable[[str, Ledger], None] | None = None,
    live: bool = False,
) -> bool:
    """Do what `run` does; the options are its own. Return whether it got to its end: False if it was stopped.

    `wrap_menus` may return another source of menus, which the engine then asks at each turn of a cycle.
    `ends_afterwards` tells that the caller ends what is left. `closing` shows at the end how the campaign stands,
    and `live` shows it all the time on the terminal.
    """
    publishing.check(textfile, pushgateway, once=once and not dry_run)
    for number in hangup.signals():  # before there is anything to stop: as Ctrl-C
        signal.signal(number, signal.default_int_handler)
    drafts = files.read_menus(menus)
    campaign = common.one_campaign(drafts)
    clock = SystemClock()
    with contextlib.ExitStack() as after, contextlib.ExitStack() as stack:
        path = ledger_place(ledger_files.file_of(ledger_path, campaign), common.shard_name(shard))
        if dry_run:
            path = stack.enter_context(ledger_files.copy_of(path))
        # A new campaign gets its ledger only when everything is right: what is refused leaves nothing behind.
        new = not path.exists()
        ledger = stack.enter_context(_scratch() if new else _held(path, once=once))
        metrics = Metrics(path, campaign)
        trusting.recall(ledger, campaign)
        allowed = trusting.ask(_ends(drafts, links), common.menus_endpoint(drafts))
        backends = _backends(drafts, campaign, clock, metrics, timeout=timeout, dry_run=dry_run)
        patience = min(START_PATIENCE, drafts[0].preview.cycle / 10)
        identities = patiently(lambda: admission.identities(backends, allow_admin=allow_admin), clock, patience)

        def admit(campaign: Campaign) -> None:
            _admit(campaign)
            metrics.in_force(campaign)

        source = Menus(
            menus,
            ledger=ledger,
            backends=backends,
            clock=clock,
            links=links,
            scale=scale,
            shard=shard,
            admits=admit,
        )

        def bind(ledger: Ledger, cycle: timedelta) -> None:
            ledger.bind(campaign, cycle, tuple(identities.values()), clock.now(), common.shard_name(shard))
            ledger.trust(allowed, common.who(), clock.now())

        bind(ledger, drafts[0].preview.cycle)
        in_force = patiently(source, clock, patience)
        if shard is None:  # another shard may have the links
            thresholds.refuse_without_links(abort_on, [flow.key for flow in in_force.flows])
        if new:
            ledger = stack.enter_context(_held(path, once=once))
            bind(ledger, in_force.cycle)
            source.move_to(ledger)
        _say_configuration(in_force, identities.values(), path, shard, dry_run=dry_run)
        for line in active_overrides.standing(ledger):
            log.info("%s", line)
        _serve(stack, metrics, metrics_address, {campaign: path}, serve_port)
        manager = ServiceManager(os.environ)
        executor = ThreadExecutor(clock, threads, heartbeat=manager.alive)
        stack.callback(executor.close)
        watching = thresholds.AbortOn(abort_on, ledger, metrics)
        engine = Engine(
            menus=wrap_menus(source, ledger, clock) if wrap_menus else source,
            ledger=ledger,
            backends=backends,
            identities=identities,
            clock=clock,
            executor=executor,
            observer=watching,
            settings=Settings(
                call_grace=timedelta(seconds=3 * timeout),
                drain=not no_drain,
                end_on_stop=end_on_stop,
                ends_afterwards=ends_afterwards,
                submits_at_once=-(-Settings().submits_at_once // (shard.count if shard else 1)),
            ),
        )
        watching.engine = engine
        with (
            _signals(engine, f"{injections(backends)} {'will be ended' if ends_afterwards else 'stay live'}"),
            _shown(path, campaign, clock, live=live),
        ):
            manager.ready()
            engine.run(until=until, once=once)
        # When the ledger is free: whatever this takes, the run of the next cycle does not wait for it.
        after.callback(publishing.publish, metrics.text, _group(campaign, shard), textfile, pushgateway)
        if closing is not None:
            closing(campaign, ledger)
        watching.judge(menus_too=not (once or engine.stopping))
    return not engine.stopping


def _group(campaign: str, shard: Shard | None) -> str:
    """Return under which name a Pushgateway keeps the metrics: those of one shard do not replace another's."""
    return campaign if shard is None else f"{campaign}/shard/{shard.index}"


def _shown(path: Path, campaign: str, clock: Clock, *, live: bool) -> contextlib.AbstractContextManager[None]:
    """Show on the terminal how the campaign stands, if somebody wants to see it."""
    if not live:
        return contextlib.nullcontext()
    return live_view.shown(lambda: watch_figures.read(path, campaign, clock.now(), live_view.LAST), clock)


@contextlib.contextmanager
def _held(path: Path, *, once: bool) -> Iterator[Ledger]:
    """Open a ledger, made when there is none, as its only injector."""
    with Ledger.open(path) as ledger, ledger.hold(common.who(), patience=HANDOVER if once else timedelta(0)):
        yield ledger


@contextlib.contextmanager
def _scratch() -> Iterator[Ledger]:
    """Give a ledger that is gone afterwards, in which a start is tried before the campaign has its own."""
    with (
        tempfile.TemporaryDirectory(prefix="dc_inject-") as folder,
        Ledger.open(Path(folder) / "start.sqlite", synchronous="OFF") as ledger,
    ):
        yield ledger


def _show_totals(campaign: str, ledger: Ledger) -> None:
    """Print the closing table; of many links the total only."""
    closing = closing_table.totals(campaign, ledger)
    many = len(closing["links"]) > MOST_ROWS
    rows = [closing["total"]] if many else [*closing["links"], closing["total"]]
    tables.emit("table", closing_table.columns(rows), rows, f"closing table of {campaign}")
    if many:
        log.info("all %d links: `dc-inject status %s --summary`", len(closing["links"]), campaign)


def patiently(ask: Callable[[], T], clock: Clock, patience: timedelta) -> T:
    """Ask until there is an answer, or until `patience` is over: one 504 must not cost cron a whole cycle.

    What a person has to repair is raised at once; credentials count as refused when they are refused twice.
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
            time.sleep(backoff(tries, error.message, longest=timedelta(seconds=10)).total_seconds())


@contextlib.contextmanager
def _signals(engine: Engine, words: str) -> Iterator[None]:
    """Let the first SIGINT, SIGTERM or SIGHUP stop the engine in good order, and the second one leave at once."""
    ours = hangup.signals()

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        for signal_number in ours:
            signal.signal(signal_number, signal.default_int_handler)
        engine.stop()
        hangup.mind()
        click.echo(f"{signal.Signals(number).name}: stopping; {words}; press again to exit at once", err=True)

    before = {number: signal.signal(number, stop) for number in ours}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say_configuration(
    campaign: Campaign, identities: Iterable[Identity], path: Path, shard: Shard | None, *, dry_run: bool
) -> None:
    """Print the effective configuration to stderr: what will be done, as whom, and within which limits."""
    lines = [f"campaign {campaign.name}" + (" (dry run: nothing is changed)" if dry_run else "")]
    lines += [
        f"{i.service} {i.version} at {i.address} as {i.account}; {common.may_end(i.service, i.may_end)}"
        for i in identities
    ]
    if shard is not None:
        lines.append(
            f"shard {shard}: limits are for all shards, and ours are in proportion to the rates of its links"
        )
    for menu in campaign.menus:
        total, limits = rates.peak(menu.flows).rate, menu.limits
        window = f"{menu.start:%Y-%m-%d %H:%M:%SZ} to {menu.end:%Y-%m-%d %H:%M:%SZ}"
        lines.append(
            f"{menu.name}: {window}, {units.counted(len(menu.flows), 'links')}, {units.format_rate(total)}"
        )
        lines.append(
            f"limits: {units.format_rate(limits.total)} in total, {units.format_rate(limits.per_site)} a site, "
            f"{units.counted(limits.rules_per_hour, 'rules')} an hour, "
            f"{units.counted(limits.files_in_flight, 'files')} in flight"
        )
    for line in lines:
        log.info("%s", line)
    values = {
        "campaign": campaign.name,
        "ledger": str(path),
        "cycle_seconds": campaign.cycle.total_seconds(),
        "dry_run": dry_run,
    }
    sentence = f"cycle {units.format_duration(campaign.cycle)}; ledger {path}"
    log.info("%s", sentence, extra={"event": "started", "fields": values})
