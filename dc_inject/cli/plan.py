"""`dc-inject plan`: what would be injected, with a live Rucio or with an inventory file."""

from __future__ import annotations

import contextlib
import csv
import io
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click

from dc_inject.analysis.footprint import Assumptions
from dc_inject.backends.dry import DryBackend
from dc_inject.backends.sim import InlineExecutor, SimBackend, SimClock
from dc_inject.cli import active_overrides, common, footprint, footprint_options, params, plots, tables, trusting
from dc_inject.engine import Engine, Settings, admission
from dc_inject.engine.menus import Menus
from dc_inject.ledger import Ledger, Row
from dc_inject.menu import nodes
from dc_inject.metrics import Silent
from dc_inject.model import Campaign, Cycle, Dataset, Entry, File, FlowKey, Injection, Item, units
from dc_inject.model.errors import DcInjectError, MenuError, Problem, ServiceError, UsageError
from dc_inject.model.ports import Backend
from dc_inject.system import files
from dc_inject.system.clock import SystemClock


def _lifetime(seconds: float) -> str:
    return units.format_duration(timedelta(seconds=seconds))


COLUMNS = (
    tables.Column("cycle", "cycle"),
    tables.Column("scenario", "scenario"),
    tables.Column("source", "source"),
    tables.Column("destination", "destination"),
    tables.Column("due", "due", units.format_size, right=True),
    tables.Column("budget", "budget", units.format_size, right=True, spare=5),
    tables.Column("planned", "planned", units.format_size, right=True),
    tables.Column("datasets", "datasets, jobs", right=True),
    tables.Column("files", "files", right=True, spare=4),
    tables.Column("lifetime", "lifetime", _lifetime, right=True, spare=3),
    tables.Column("held", "held"),
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

LARGEST = 256_000_000  # bytes of an inventory
OFFLINE = "without one, --inventory plans with a CSV of datasets, and --footprint tells what menus mean for sites"
CYCLES_ONLY = ("at", "cycles", "datasets", "ledger_path", "allow_admin", "timeout")  # not for a footprint


@click.command()
@common.MENUS
@click.option("--at", type=params.TIME, default="now", show_default=True, help="The time to plan for.")
@click.option("--cycles", default=1, show_default=True, type=click.IntRange(1, 2000), help="The number of cycles.")
@click.option(
    "--inventory",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Plan offline with the datasets in this CSV file: source,name,bytes,files.",
)
@click.option("--datasets", is_flag=True, help="List every dataset with its release time.")
@common.LEDGER
@common.LINKS
@common.SCALE
@click.option("--allow-admin", is_flag=True, help="Accept an administrator's account.")
@common.TIMEOUT
@footprint_options.options
@common.FORMAT
@click.pass_context
def plan(
    ctx: click.Context,
    /,
    menus: tuple[Path, ...],
    at: datetime,
    cycles: int,
    inventory: Path | None,
    datasets: bool,
    ledger_path: Path | None,
    links: tuple[str, ...],
    scale: float,
    allow_admin: bool,
    timeout: float,
    whole: bool,
    fmt: str,
    **assumptions: Any,
) -> None:
    r"""Show what MENUS would inject from a given time on, without changing anything.

    With --footprint: what whole menus require of each site, for each scenario and in total; the menus may belong
    to several campaigns. This works offline.

    If the campaign has a ledger, the plan starts from what is resident and owed there. After the first cycle it
    assumes that rules complete at once. Tables come with a drawing of each shape of a rate.

    \b
    Example: dc-inject plan menus/cms-t0-export.yaml --at 2027-02-08T10:00Z --cycles 4
    Example, offline: dc-inject plan menus/cms-t0-export.yaml --inventory datasets.csv
    Example: dc-inject plan --footprint cms/ atlas/ --mean-file 3GB --format csv
    """
    common.talk(quiet=True)
    drafts = files.read_menus(menus)
    if whole:
        footprint_options.refuse(ctx, CYCLES_ONLY, "cannot be together with --footprint")
        items = None if inventory is None else read_inventory(inventory)
        footprint.show(fmt, drafts, Assumptions(**assumptions), items, links=links, scale=scale)
        return
    footprint_options.refuse(ctx, footprint_options.NAMES, "needs --footprint")
    campaign = common.one_campaign(drafts)
    services = {service for draft in drafts for service in draft.services}
    clock = SimClock(at)
    backends: dict[str, Backend]
    admits: Callable[[Campaign], None] = trusting.admit if inventory is None else lambda _: None
    if inventory is not None:
        stock = read_inventory(inventory)
        backends = {service: _simulated(service, clock, stock) for service in services}
    else:
        trusting.recall_from(common.ledger_file(ledger_path, campaign), campaign)
        with _asking(ServiceError, UsageError):
            live = common.backends(
                services,
                campaign=campaign,
                clock=SystemClock(),
                observer=Silent(),
                timeout=timeout,
                endpoint=common.menus_endpoint(drafts),
            )
        backends = {service: DryBackend(backend, clock) for service, backend in live.items()}
    with contextlib.ExitStack() as stack:
        stack.enter_context(_asking(ServiceError))
        path = stack.enter_context(common.copy_of(common.ledger_file(ledger_path, campaign)))
        ledger = stack.enter_context(Ledger.open(path))
        for line in active_overrides.standing(ledger):
            click.echo(line, err=True)
        identities = admission.identities(backends, allow_admin=allow_admin)
        source = Menus(
            menus, ledger=ledger, backends=backends, clock=clock, links=links, scale=scale, admits=admits
        )
        first = Cycle.at(at, source().cycle)
        _stand_at(ledger, first, clock.now())
        ledger.begin(first.start)  # a new campaign is shown from the start of the cycle, not from within it
        engine = Engine(
            menus=source,
            ledger=ledger,
            backends=backends,
            identities=identities,
            clock=clock,
            executor=InlineExecutor(clock),
            observer=Silent(),
            settings=Settings(drain=False, poll=first.length),
        )
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


@contextlib.contextmanager
def _asking(*errors: type[DcInjectError]) -> Iterator[None]:
    """Say what can be planned without a service, where one cannot be asked."""
    try:
        yield
    except errors as error:
        error.hint = f"{error.hint}; {OFFLINE}" if error.hint else OFFLINE
        raise


def _simulated(service: str, clock: SimClock, items: dict[str, list[Item]]) -> SimBackend:
    return SimBackend(clock, items, name=service)


def read_inventory(path: Path) -> dict[str, list[Item]]:
    """Read an inventory: a CSV with the heads source, name, bytes (a bare number of bytes) and files.

    Raises MenuError with every line that cannot be used.
    """
    items: dict[str, list[Item]] = defaultdict(list)
    problems = []
    reader = csv.DictReader(io.StringIO(_text(path), newline=""))
    try:
        if not {"source", "name", "bytes", "files"} <= set(reader.fieldnames or ()):
            raise MenuError(
                [
                    Problem(
                        str(path),
                        1,
                        "the column names are not source,name,bytes,files",
                        "add them as the first line",
                    )
                ]
            )
        for row in reader:
            try:
                size, count = int(row["bytes"]), int(row["files"])
            except (TypeError, ValueError):
                size = count = 0
            if size > 0 and count > 0 and row["source"] and row["name"]:
                items[row["source"]].append(_item(row["name"], size, count))
            else:
                message = "a dataset needs a source, a name, and bytes and files that are whole numbers above 0"
                problems.append(Problem(str(path), reader.line_num, message))
    except csv.Error as error:
        problems.append(Problem(str(path), reader.line_num, f"this is not CSV: {error}", "mend the syntax here"))
    if problems:
        raise MenuError(problems)
    return dict(items)


def _item(name: str, size: int, files: int) -> Item:
    """Return a source file, which a URL names, or a dataset."""
    return File(name, size) if "://" in name else Dataset(name, size, files)


def _text(path: Path) -> str:
    """Return the text of a regular file of bounded size; raises MenuError."""
    problems: list[Problem] = []

    def complain(place: nodes.Place, message: str, hint: str) -> None:
        problems.append(Problem(place.file, place.line, message, hint))

    try:
        text = nodes.decode(files.load(str(path), LARGEST + 1), str(path), complain, LARGEST)
    except OSError as error:
        raise MenuError([Problem(str(path), 0, f"cannot be read: {error.strerror or error}")]) from None
    if text is None:
        raise MenuError(problems)
    return text


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
