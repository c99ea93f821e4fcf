"""`dc-inject plan`: what would be injected, with a live Rucio or with an inventory file."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click

from dc_inject import menu
from dc_inject.apps.preview import foreseeing, inventory_file, plots
from dc_inject.cli.shared import common, log_output, menu_files, params, tables, trusting
from dc_inject.ledger import Row, ledger_files, shard_path
from dc_inject.model import FlowKey, Injection, units
from dc_inject.model.shards import Shard, shard_name
from dc_inject.system import files


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
    file = shard_path(ledger_files.file_of(ledger_path, campaign), shard_name(shard))
    if inventory is None:
        trusting.recall_from(file, campaign)
    foreseen = foreseeing.foresee(
        menus,
        drafts,
        at,
        cycles,
        file=file,
        inventory=None if inventory is None else inventory_file.read_inventory(inventory),
        connect=lambda: common.connect(drafts, timeout),
        admits=trusting.trust().admit if inventory is None else lambda _: None,
        links=links,
        scale=scale,
        shard=shard,
        allow_admin=allow_admin,
        note=menu_files.show,
    )
    in_force = foreseen.campaign
    if not foreseen.rows:
        begin, end = (f"{m:%Y-%m-%d %H:%M:%SZ}" for m in (in_force.start, in_force.end))
        hint = f"--at {units.format_minute(in_force.start)} plans the first cycle"
        words = f"no menu is in force at that time: the menus of {campaign} are from {begin} to {end}; {hint}"
        click.echo(words, err=True)
        if fmt == "table":
            return
    if fmt == "table":
        for line in plots.shapes(in_force.flows):
            click.echo(line, err=True)
    if datasets:
        tables.emit(fmt, DATASETS, [_dataset(entry.injection) for entry in foreseen.entries])
        return
    chosen: dict[tuple[FlowKey, datetime], list[Injection]] = defaultdict(list)
    for entry in foreseen.entries:
        chosen[entry.injection.flow, entry.injection.cycle.start].append(entry.injection)
    tables.emit(fmt, COLUMNS, [_row(row, chosen[row.key, row.cycle.start]) for row in foreseen.rows])


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


def _dataset(injection: Injection) -> dict[str, Any]:
    return {
        "release": units.format_time(injection.release),
        "scenario": injection.scenario,
        "source": injection.link.source,
        "destination": injection.link.destination,
        "bytes": injection.item.bytes,
        "files": injection.item.files,
        "dataset": injection.item.name,
    }
