"""A run is put together: its campaign, its engine, the metrics, and the conditions that end it."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dc_inject import registry
from dc_inject.assembly import starting
from dc_inject.assembly.starting import AppParts, RunOptions, ServiceAccess, Start
from dc_inject.engine.engine import Engine
from dc_inject.metrics import Metrics, publishing
from dc_inject.model import Campaign, rates, units
from dc_inject.model.ports import Backend
from dc_inject.model.services import SERVICES, describe_right, injections
from dc_inject.summary import aborting, active_overrides
from dc_inject.summary.aborting import AbortOn
from dc_inject.system.executor import ThreadExecutor
from dc_inject.system.service_manager import ServiceManager

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Run:
    """A run that is ready; `fate` is what becomes of its rules or jobs when it is stopped."""

    start: Start
    engine: Engine
    fate: str
    _options: RunOptions
    _metrics: Metrics
    _watching: AbortOn
    _manager: ServiceManager

    def carry_out(self) -> None:
        """Inject until the end, or until the engine is stopped."""
        self._manager.ready()
        self.engine.run(until=self._options.until, once=self._options.once)

    def publish(self) -> None:
        """Publish the metrics; the ledger has to be released, for which the run of the next cycle waits."""
        shard, campaign = self._options.shard, self.start.campaign
        group = campaign if shard is None else f"{campaign}/shard/{shard.index}"  # its name at a Pushgateway
        publishing.publish(self._metrics.text, group, self._options.textfile, self._options.pushgateway)

    def judge(self) -> None:
        """Raise the error of a condition that stopped it, or of the menus' thresholds at its end."""
        self._watching.judge(menus_too=not (self._options.once or self.engine.stopping))


def assemble(
    stack: contextlib.ExitStack,
    menus: Sequence[Path],
    options: RunOptions,
    parts: AppParts,
    access: ServiceAccess,
) -> Run:
    """Put a run together, which lasts until the stack is closed, and log its effective configuration.

    Raises UsageError, MenuError, LedgerError and ServiceError.
    """
    publishing.check(options.textfile, options.pushgateway, once=options.once and not options.dry_run)
    chosen = starting.choose(stack, menus, options, parts.drafts)
    metrics, clock = Metrics(chosen.path, chosen.campaign), access.clock

    def connect(services: Iterable[str], **wanted: Any) -> Mapping[str, Backend]:
        only_read = registry.load(registry.ONLY_READ)
        return {name: only_read(backend, clock) for name, backend in access.connect(services, **wanted).items()}

    def accept(in_force: Campaign) -> None:
        if options.shard is None:  # another shard may have the links
            aborting.refuse_without_links(options.abort_on, [flow.key for flow in in_force.flows])

    reached = replace(access, connect=connect) if options.dry_run else access
    start = starting.prepare(stack, chosen, reached, observer=metrics, accept=accept)
    _log_configuration(start, options)
    if options.metrics_address:
        stack.enter_context(metrics.serve(options.metrics_address))
    if options.serve_port is not None:
        serve = registry.load(registry.PAGE)
        stack.enter_context(serve({start.campaign: start.path}, options.serve_port, metrics=metrics.app()))
    manager = ServiceManager(os.environ)
    executor = ThreadExecutor(clock, options.threads, heartbeat=manager.alive)
    stack.callback(executor.close)
    watching = AbortOn(options.abort_on, start.ledger, metrics)
    engine = starting.engine(start, options, parts, clock=clock, executor=executor, observer=watching)
    watching.stop = engine.stop
    reads = any(SERVICES[name].reads for name in start.backends)
    lasting = "stay live, except readers on this machine" if reads else "stay live"
    fate = f"{injections(start.backends)} {'will be ended' if parts.ends_afterwards else lasting}"
    return Run(start, engine, fate, options, metrics, watching, manager)


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
