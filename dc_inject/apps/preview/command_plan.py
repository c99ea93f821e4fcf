"""`dc-inject plan`: what would be injected, with a live Rucio or with an inventory file."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click

from dc_inject import menu
from dc_inject.apps.preview import inventory_file, plots
from dc_inject.backends.dry import DryBackend
from dc_inject.backends.sim import InlineExecutor, SimBackend, SimClock
from dc_inject.cli.shared import common, log_output, params, tables, trusting
from dc_inject.engine import Engine, Settings, admission
from dc_inject.engine.context import Planner
from dc_inject.engine.menus import Menus
from dc_inject.ledger import Ledger, Row, ledger_files
from dc_inject.ledger import place as ledger_place
from dc_inject.menu import MenuDraft
from dc_inject.model import Campaign, Cycle, Entry, FlowKey, Injection, units
from dc_inject.model.errors import DcInjectError, ServiceError, UsageError
from dc_inject.model.events import Silent
from dc_inject.model.ports import Backend, Identity
from dc_inject.model.shards import Shard
from dc_inject.summary import active_overrides
from dc_inject.system import files
from dc_inject.system.clock import SystemClock


def _cycle(start: str) -> str:
    return f"{start[5:16]}Z"


def _lifetime(seconds: float) -> str:
    return units.format_duration(timedelta(seconds=seconds))


COLUMNS = (
    tables.Column("cycle", "cycle", _cycle, heading=True),
    tables.Column("scenario", "scenario", name=True),
    tables.Column("source", "source", name=True),
    tables.Column("destination", "destination", name=True),
    tables.Column("due", "due", units.format_size, right=True),
    tables.Column("budget", "budget", units.format_size, right=True, spare=5),
    tables.Column("planned", "planned", units.format_size, right=True),
    tables.Column("datasets", "datasets/jobs", right=True, spare=2),
    tables.Column("files", "files", right=True, spare=4),
    tables.Column("lifetime", "lifetime", _lifetime, right=True, spare=3),
    tables.Column("held", "held", name=True),
    tables.Column("numbers", "why", lambda n: " ".join(f"{k}={v}" for k, v in n.items()), spare=1),
)

DATASETS = (
    tables.Column("release", "release (UTC)"),
    tables.Column("scenario", "scenario"),
    tables.Column("source", "source"),
    tables.Column("destination", "destination"),
    tables.Column("bytes", "size", units.format_size, right=True),
    tables.Column("files", "files", right=True),
    tables.Column("dataset", "dataset, job"),
)

OFFLINE = (
    "without one, --inventory plans with a CSV of datasets; `dc-inject footprint MENUS` shows what menus require"
)


@click.command()
@common.MENUS
@click.option("--at", type=params.TIME, default="now", show_default=True, help="The time to plan for.")
@click.option("--cycles", default=1, show_default=True, type=click.IntRange(1, 2000), help="The number of cycles.")
@click.option(
    "--inventory",
    type=params.FILE,
    help="Plan offline with the datasets in this CSV file: source,name,bytes,files.",
)
@click.option("--datasets", is_flag=True, help="List every dataset with its release time.")
@common.LEDGER
@common.LINKS
@common.SHARD
@common.SCALE
@common.ALLOW_ADMIN
@common.TIMEOUT
@common.FORMAT
def plan(
    menus: tuple[Path, ...],
    at: datetime,
    cycles: int,
    inventory: Path | None,
    datasets: bool,
    ledger_path: Path | None,
    links: tuple[str, ...],
    shard: Shard | None,
    scale: float,
    allow_admin: bool,
    timeout: float,
    fmt: str,
) -> None:
    r"""Show what MENUS would inject from a given time on, without changing anything.

    If the campaign has a ledger, the plan starts from what is resident and owed there. After the first cycle it
    assumes that rules complete at once. Tables come with a drawing of each shape of a rate.

    \b
    Example: dc-inject plan menus/cms-t0-export.yaml --at 2027-02-08T10:00Z --cycles 4
    Example, offline: dc-inject plan menus/cms-t0-export.yaml --inventory datasets.csv
    """
    log_output.talk(quiet=True)
    drafts = files.read_menus(menus)
    campaign = menu.one_campaign(drafts)
    clock, file = SimClock(at), ledger_place(ledger_files.file_of(ledger_path, campaign), common.shard_name(shard))
    admits: Callable[[Campaign], None] = trusting.admit if inventory is None else lambda _: None
    if inventory is not None:
        backends = _offline(drafts, inventory, clock)
    else:
        trusting.recall_from(file, campaign)
        backends = _online(drafts, campaign, clock, timeout)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_asking(ServiceError))
        path = stack.enter_context(ledger_files.copy_of(file))
        ledger = stack.enter_context(Ledger.open(path))
        for line in active_overrides.standing(ledger):
            click.echo(line, err=True)
        identities = admission.identities(backends, allow_admin=allow_admin)
        source = Menus(
            menus,
            ledger=ledger,
            backends=backends,
            clock=clock,
            links=links,
            scale=scale,
            shard=shard,
            admits=admits,
        )
        first = Cycle.at(at, source().cycle)
        _stand_at(ledger, first, clock.now())
        ledger.begin(first.start)  # a new campaign is shown from the start of the cycle, not from within it
        engine = simulated_engine(source, ledger, backends, identities, clock, poll=first.length, drain=False)
        engine.run(until=first.start + cycles * first.length)
        entries = [e for e in ledger.entries() if e.injection.cycle >= first]
        chosen: dict[tuple[FlowKey, datetime], list[Injection]] = defaultdict(list)
        for entry in entries:
            chosen[entry.injection.flow, entry.injection.cycle.start].append(entry.injection)
        rows = [_row(row, chosen[row.key, row.cycle.start]) for row in ledger.rows(since=first.start)]
    if not rows:
        begin, end = (f"{m:%Y-%m-%d %H:%M:%SZ}" for m in (source().start, source().end))
        click.echo(
            f"no menu is in force at that time: the menus of {campaign} are from {begin} to {end}", err=True
        )
        if fmt == "table":
            return
    if fmt == "table":
        for line in plots.shapes(source().flows):
            click.echo(line, err=True)
    if datasets:
        tables.emit(fmt, DATASETS, [_dataset(entry) for entry in entries])
    else:
        tables.emit(fmt, COLUMNS, rows)


def simulated_engine(
    menus: Callable[[], Campaign],
    ledger: Ledger,
    backends: Mapping[str, Backend],
    identities: Mapping[str, Identity],
    clock: SimClock,
    *,
    poll: timedelta,
    drain: bool = True,
    planner: Planner | None = None,
) -> Engine:
    """Return an engine for simulated time: it does all in one thread, and tells nobody."""
    return Engine(
        menus=menus,
        ledger=ledger,
        backends=backends,
        identities=identities,
        clock=clock,
        executor=InlineExecutor(clock),
        observer=Silent(),
        settings=Settings(poll=poll, drain=drain),
        planner=planner,
    )


@contextlib.contextmanager
def _asking(*errors: type[DcInjectError]) -> Iterator[None]:
    """Say what can be planned without a service, where one cannot be asked."""
    try:
        yield
    except errors as error:
        error.hint = f"{error.hint}; {OFFLINE}" if error.hint else OFFLINE
        raise


def _offline(drafts: Iterable[MenuDraft], inventory: Path, clock: SimClock) -> dict[str, Backend]:
    """Return simulated services, whose sources have the datasets of a CSV file."""
    items = inventory_file.read_inventory(inventory)
    return {service: SimBackend(clock, items, name=service) for service in _services(drafts)}


def _online(drafts: Sequence[MenuDraft], campaign: str, clock: SimClock, timeout: float) -> dict[str, Backend]:
    """Return the services of menus as they are now; what would change anything there is only simulated."""
    with _asking(ServiceError, UsageError):
        backends = common.backends(
            _services(drafts),
            campaign=campaign,
            clock=SystemClock(),
            observer=Silent(),
            timeout=timeout,
            endpoint=menu.endpoint_of(drafts),
        )
    return {service: DryBackend(backend, clock) for service, backend in backends.items()}


def _services(drafts: Iterable[MenuDraft]) -> set[str]:
    return {service for draft in drafts for service in draft.services}


def _stand_at(ledger: Ledger, first: Cycle, now: datetime) -> None:
    """Take the cycles between the ledger's last one and the first that is planned as if all went well."""
    before = Cycle(first.start - first.length, first.length)
    last = ledger.last_cycle()
    if last is not None and last < before:
        ledger.open_cycle(before, {}, now)
        ledger.close_cycle(before, now)


def _row(row: Row, chosen: list[Injection]) -> dict[str, Any]:
    return {
        "cycle": row.cycle.name,
        "scenario": row.key.scenario,
        "source": row.key.link.source,
        "destination": row.key.link.destination,
        "due": row.due,
        "budget": row.budget,
        "planned": sum(injection.item.bytes for injection in chosen),
        "datasets": len(chosen),
        "files": sum(injection.item.files for injection in chosen),
        "lifetime": row.lifetime.total_seconds() if row.lifetime else None,
        "held": str(row.held.hold) if row.held else "",
        "numbers": dict(row.held.numbers) if row.held else {},
    }


def _dataset(entry: Entry) -> dict[str, Any]:
    injection = entry.injection
    return {
        "release": injection.release.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "scenario": injection.scenario,
        "source": injection.link.source,
        "destination": injection.link.destination,
        "bytes": injection.item.bytes,
        "files": injection.item.files,
        "dataset": injection.item.name,
    }
