"""`dc-inject run`: the main job."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from dc_inject import registry
from dc_inject.assembly import starting
from dc_inject.assembly.starting import Chosen, Start, WrapMenus
from dc_inject.cli.shared import (
    common,
    hangup,
    log_output,
    params,
    summary_output,
    trusting,
)
from dc_inject.engine.context import Planner
from dc_inject.ledger import Ledger, ledger_files
from dc_inject.menu import MenuDraft
from dc_inject.metrics import Metrics, publishing
from dc_inject.model import Campaign, rates, units
from dc_inject.model.errors import LedgerBroken, MenuError
from dc_inject.model.ports import Backend, Clock
from dc_inject.model.services import SERVICES, describe_right, injections
from dc_inject.model.shards import Shard
from dc_inject.model.thresholds import Threshold
from dc_inject.summary import aborting, active_overrides
from dc_inject.system.clock import SystemClock
from dc_inject.system.executor import ThreadExecutor
from dc_inject.system.service_manager import ServiceManager

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of `run`."""

    once: bool = common.option(
        "--once", is_flag=True, help="Inject only the current cycle, and exit at its end; for cron."
    )
    until: datetime | None = common.option(
        "--until", type=params.TIME, help="Stop injecting at this time, such as 2027-02-08T10:00Z."
    )
    dry_run: bool = common.option(
        "--dry-run", is_flag=True, help="Run in real time without changing anything; `plan` is quicker."
    )
    ledger_path: Path | None = common.given(common.LEDGER)
    links: Sequence[str] = common.given(common.LINKS)
    shard: Shard | None = common.given(common.SHARD)
    scale: float = common.given(common.SCALE)
    no_drain: bool = common.option(
        "--no-drain", is_flag=True, help="Exit when the menus end, without waiting for rules and jobs to end."
    )
    end_on_stop: bool = common.option(
        "--end-on-stop",
        is_flag=True,
        help="When stopped, end complete rules and jobs at once, and delete their files for up to half a minute.",
    )
    metrics_address: str | None = common.option(
        "--metrics-address",
        metavar="[HOST:]PORT",
        help="Serve Prometheus metrics at this address [host: 127.0.0.1].",
    )
    serve_port: int | None = common.option(
        "--serve",
        "serve_port",
        type=params.PORT,
        is_flag=False,
        flag_value=params.PAGE_PORT,
        metavar="[PORT]",
        help=f"Serve the report, live, at 127.0.0.1 [port: {params.PAGE_PORT}], with metrics at its /metrics.",
    )
    abort_on: Sequence[Threshold] = common.option(
        "--abort-on",
        type=params.Parsed("threshold", aborting.parse_condition),
        multiple=True,
        metavar="CONDITION",
        help="Stop, and exit with 5, once this holds, such as 'ratio < 0.5 over 1h' (may be repeated).",
    )
    textfile: Path | None = common.option(
        "--textfile",
        type=click.Path(path_type=Path, dir_okay=False),
        help="With --once: write the metrics to this file at the end, for node_exporter (*.prom, mode 0644).",
    )
    pushgateway: str | None = common.option(
        "--pushgateway", metavar="URL", help="With --once: send the metrics to a Pushgateway at the end."
    )
    allow_admin: bool = common.given(common.ALLOW_ADMIN)
    accept_clock: bool = common.option(
        "--accept-clock",
        is_flag=True,
        help="Inject even if this machine's clock is more than a cycle away from the services' clocks.",
    )
    threads: int = common.option(
        "--threads",
        default=8,
        show_default=True,
        type=click.IntRange(1, 64),
        help="The number of simultaneous calls to a service.",
    )
    timeout: float = common.given(common.TIMEOUT)


@click.command(cls=common.GroupedHelp)
@common.MENUS
@common.options_of(RunOptions)
@common.WORKERS
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
    **options: Any,
) -> None:
    r"""Inject MENUS cycle after cycle until they end, then wait until none of their rules and jobs is live.

    SIGTERM, Ctrl-C or a closed terminal stops the injection; rules and jobs stay live, and the next `run`
    continues. Press Ctrl-C twice to exit at once.

    On a terminal it shows below its log how the campaign stands; --plain leaves that out. The command
    `dc-inject watch CAMPAIGN` shows more, from any other terminal.

    At its end `run` prints the same table as `dc-inject status CAMPAIGN --summary`, except with --once, and exits
    with 5 if a threshold of its menus was missed.

    \b
    Example: dc-inject run menus/cms-t0-export.yaml
    Example, for cron: dc-inject run --once --quiet /etc/dc_inject/menus
    """
    live = log_output.talk(verbose=verbose, quiet=quiet, plain=plain, fmt=log_format, file=log_file)
    closing = None if quiet or options["once"] else summary_output.show_totals
    inject(menus, RunOptions(**options), closing=closing, live=live)


def inject(
    menus: Sequence[Path],
    options: RunOptions,
    *,
    drafts: Sequence[MenuDraft] = (),
    wrap_menus: WrapMenus | None = None,
    planner: Planner | None = None,
    ends_afterwards: bool = False,
    closing: Callable[[str, Ledger], None] | None = None,
    live: bool = False,
) -> bool:
    """Do what `run` does. Return False if it was stopped, else True.

    With `drafts`, the menus are read already. `wrap_menus` may return another source of menus, which the engine
    then asks at each turn of a cycle; `planner` decides on each cycle, instead of the usual one. With
    `ends_afterwards` the caller ends what is left. `closing` shows the totals at the end, and `live` shows the
    state of the campaign on the terminal all the time.
    """
    publishing.check(options.textfile, options.pushgateway, once=options.once and not options.dry_run)
    hangup.interrupt()  # before there is anything to stop
    clock, shard = SystemClock(), options.shard
    with contextlib.ExitStack() as after, contextlib.ExitStack() as stack:
        chosen = starting.choose(
            stack,
            menus,
            named_ledger=options.ledger_path,
            shard=shard,
            once=options.once,
            dry_run=options.dry_run,
            drafts=drafts,
        )
        metrics = Metrics(chosen.path, chosen.campaign)
        start = _prepare(stack, chosen, options, clock, metrics)
        campaign, ledger = start.campaign, start.ledger
        _log_configuration(start, options)
        if options.metrics_address:
            stack.enter_context(metrics.serve(options.metrics_address))
        if options.serve_port is not None:
            stack.enter_context(
                registry.load(registry.PAGE)({campaign: start.path}, options.serve_port, metrics=metrics.app())
            )
        manager = ServiceManager(os.environ)
        executor = ThreadExecutor(clock, options.threads, heartbeat=manager.alive)
        stack.callback(executor.close)
        watching = aborting.AbortOn(options.abort_on, ledger, metrics)
        engine = starting.engine(
            start,
            clock=clock,
            executor=executor,
            observer=watching,
            timeout=options.timeout,
            shard=shard,
            drain=not options.no_drain,
            end_on_stop=options.end_on_stop,
            ends_afterwards=ends_afterwards,
            wrap_menus=wrap_menus,
            planner=planner,
        )
        watching.stop = engine.stop
        reads = any(SERVICES[name].reads for name in start.backends)
        lasting = "stay live, except readers on this machine" if reads else "stay live"
        fate = "will be ended" if ends_afterwards else lasting
        with (
            hangup.stopping(engine.stop, f"{injections(start.backends)} {fate}"),
            _shown(start.path, campaign, clock, live=live),
        ):
            manager.ready()
            with contextlib.nullcontext() if ends_afterwards or options.dry_run else _showing_what_is_left(start):
                engine.run(until=options.until, once=options.once)
        # Publish after the ledger is released, so that the run of the next cycle does not wait for it.
        group = campaign if shard is None else f"{campaign}/shard/{shard.index}"  # its name at a Pushgateway
        after.callback(publishing.publish, metrics.text, group, options.textfile, options.pushgateway)
        if closing is not None:
            closing(campaign, ledger)
        watching.judge(menus_too=not (options.once or engine.stopping))
        if options.once and engine.menus_refused:
            raise click.exceptions.Exit(MenuError.exit_code)
    return not engine.stopping


def _prepare(
    stack: contextlib.ExitStack, chosen: Chosen, options: RunOptions, clock: Clock, metrics: Metrics
) -> Start:
    """Connect to the services, of which a dry run changes nothing, and put the menus in force."""

    def connect(services: Iterable[str], **wanted: Any) -> Mapping[str, Backend]:
        backends = common.backends(services, **wanted)
        if not options.dry_run:
            return backends
        only_read = registry.load(registry.ONLY_READ)
        return {service: only_read(backend, clock) for service, backend in backends.items()}

    def accept(in_force: Campaign) -> None:
        if options.shard is None:  # another shard may have the links
            aborting.refuse_without_links(options.abort_on, [flow.key for flow in in_force.flows])

    return starting.prepare(
        stack,
        chosen,
        clock=clock,
        connect=connect,
        trust=trusting.trust(),
        observer=metrics,
        timeout=options.timeout,
        links=options.links,
        scale=options.scale,
        allow_admin=options.allow_admin,
        accept_clock=options.accept_clock,
        accept=accept,
    )


@contextlib.contextmanager
def _showing_what_is_left(start: Start) -> Iterator[None]:
    """Where the ledger fails, as on a full disk: show what is live, and let the hint name the ways to go on."""
    try:
        yield
    except LedgerBroken as error:
        in_place = start.path == ledger_files.file_of(None, start.campaign)
        place = start.campaign if in_place else shlex.quote(str(start.path.absolute()))
        summary_output.explain_stop(place, start.path, error)
        raise


def _shown(path: Path, campaign: str, clock: Clock, *, live: bool) -> contextlib.AbstractContextManager[None]:
    """Show the state of the campaign on the terminal if `live`."""
    if not live:
        return contextlib.nullcontext()
    shown: contextlib.AbstractContextManager[None] = registry.load(registry.LIVE_VIEW)(path, campaign, clock)
    return shown


def _log_configuration(start: Start, options: RunOptions) -> None:
    """Print the effective configuration to stderr: what will be done, as whom, and within which limits."""
    in_force = start.in_force
    lines = [f"campaign {in_force.name}" + (" (dry run: nothing is changed)" if options.dry_run else "")]
    lines += [
        f"{i.service} {i.version} at {i.address} as {i.account}; {describe_right(i.service, i.may_end)}"
        for i in start.identities.values()
    ]
    if options.shard is not None:
        ours = "limits are for all shards, and ours are in proportion to the rates of its links"
        lines.append(f"shard {options.shard}: {ours}")
    for one in in_force.menus:
        total, limits = rates.peak(one.flows).rate, one.limits
        window = f"{one.start:%Y-%m-%d %H:%M:%SZ} to {one.end:%Y-%m-%d %H:%M:%SZ}"
        lines.append(f"{one.name}: {window}, {units.counted(len(one.flows), 'links')}, {units.format_rate(total)}")
        lines.append(
            f"limits: {units.format_rate(limits.total)} in total, {units.format_rate(limits.per_site)} a site, "
            f"{units.counted(limits.rules_per_hour, 'rules')} an hour, "
            f"{units.counted(limits.files_in_flight, 'files')} in flight"
        )
    for line in lines:
        log.info("%s", line)
    values = {
        "campaign": in_force.name,
        "ledger": str(start.path),
        "cycle_seconds": in_force.cycle.total_seconds(),
        "dry_run": options.dry_run,
    }
    sentence = f"cycle {units.format_duration(in_force.cycle)}; ledger {start.path}"
    log.info("%s", sentence, extra={"event": "started", "fields": values})
    for line in active_overrides.standing(start.ledger):
        log.info("%s", line)
