"""`dc-inject footprint`: what menus require of sites, computed offline.

Figures that no menu has are assumed; each assumption is an option, and the last line of the output lists them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from dc_inject import menu
from dc_inject.analysis.footprint.adding import footprint as footprint_of
from dc_inject.analysis.footprint.load import KINDS, Assumptions, FootprintRow, Load
from dc_inject.apps.preview import inventory_file
from dc_inject.cli.shared import common, log_output, params, tables
from dc_inject.cli.shared.tables import Column
from dc_inject.menu import MenuDraft
from dc_inject.model import units
from dc_inject.model.transfers import LIMITS_OF
from dc_inject.system import files

HOUR = 3600.0  # seconds
GBIT = 1e9 / 8  # bytes
GB, TB = 1e9, 1e12  # bytes: decimal, as networks and storage are sold


def _number(value: float) -> str:
    """Write a number as people read it: four digits, all of those before the point, thousands apart."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _column(key: str, head: str) -> Column:
    return Column(key, head, _number, right=True)


_NAME = Column("name", "name")

TOPICS = {
    "Network (decimal units: 1 Gb/s = 1e9 bit/s, 1 GB/s = 8 Gb/s)": (
        _column("links", "links"),
        _column("ingress_Gbit_s", "ingress Gb/s"),
        _column("ingress_GB_s", "ingress GB/s"),
        _column("egress_Gbit_s", "egress Gb/s"),
        _column("egress_GB_s", "egress GB/s"),
        _column("inside_Gbit_s", "inside Gb/s"),
        _column("wan_Gbit_s", "WAN Gb/s"),
        _column("wan_in_percent", "in / WAN %"),
        _column("wan_out_percent", "out / WAN %"),
        _column("limit_in_Gbit_s", "limit in Gb/s"),
        _column("limit_out_Gbit_s", "limit out Gb/s"),
    ),
    "Space (decimal units: 1 TB = 1e12 bytes)": (
        _column("volume_TB", "in all TB"),
        _column("written_24h_TB", "written TB/24 h"),
        _column("resident_TB", "resident TB"),
        _column("shortest_TB", "at shortest lifetime TB"),
        _column("space_TB", "space TB"),
        _column("lifetime_fits_h", "lifetime that fits h"),
        _column("quota_TB", "quota TB"),
        _column("cancelled_TB", "cancelled TB"),
        _column("pool_lasts_h", "pool lasts h"),
    ),
    "Files": (
        _column("files_per_h", "files/h"),
        _column("deletions_per_h", "deletions/h"),
        _column("parallel_deletions", "deletions at a time"),
        _column("transfers_in", "transfers in at a time"),
        _column("transfers_out", "transfers out at a time"),
        _column("transfers_busiest_link", "on the busiest link"),
        _column("transfers_link_limit", "FTS's limit of a link"),
    ),
    "Services": (
        _column("rules_per_h", "rules/h"),
        _column("rules", "rules at a time"),
        _column("locks", "locks at a time"),
        _column("calls_per_h", "REST calls/h"),
        _column("tokens_per_h", "token requests/h (estimate)"),
    ),
}
COLUMNS = (Column("by", "by"), _NAME, *(column for columns in TOPICS.values() for column in columns))
_TITLES = {"site": "Sites", "scenario": "Scenarios", "total": "Total"}

DEFAULT = Assumptions()

_ASSUMPTIONS = common.options(
    click.option(
        "--mean-file",
        type=params.SIZE,
        help="Mean file size [default: from the inventory or list, else 5 GB].",
    ),
    click.option(
        "--dataset-files",
        type=click.IntRange(1),
        default=DEFAULT.dataset_files,
        show_default=True,
        help="The number of files of a dataset, within the menu's bounds.",
    ),
    click.option(
        "--file-speed",
        type=params.RATE,
        default="6 MB/s",
        show_default=True,
        help="The speed of one file.",
    ),
    click.option(
        "--deletion-seconds",
        type=params.FiniteRange("0.3 for three in a second", min=0),
        default=DEFAULT.deletion_seconds,
        show_default=True,
        help="Seconds that a site needs to delete one file.",
    ),
    click.option(
        "--deletion-lag",
        type=params.LAG,
        help="Time from a rule's end to free space; a cycle is added [default: the menu's].",
    ),
    click.option("--lifetime", type=params.DURATION, help="The lifetime of rules [default: the menu's longest]."),
    click.option(
        "--link-limit",
        type=click.IntRange(1),
        default=DEFAULT.link_limit,
        show_default=True,
        help=f"Transfers that FTS allows on a link; the default is that of {LIMITS_OF}.",
    ),
)


@click.command()
@common.MENUS
@click.option(
    "--inventory",
    type=params.FILE,
    help="Datasets at the sources, in this CSV file: source,name,bytes,files.",
)
@common.LINKS
@common.SCALE
@_ASSUMPTIONS
@common.FORMAT
def footprint(
    menus: tuple[Path, ...],
    inventory: Path | None,
    links: tuple[str, ...],
    scale: float,
    fmt: str,
    **assumptions: Any,
) -> None:
    r"""Show what MENUS require of each site, for each scenario and in total: rates, space, deletions, transfers.

    The menus may belong to several campaigns, and are added up at the sites that they share. Works offline.

    \b
    Example: dc-inject footprint menus/cms-t0-export.yaml
    Example: dc-inject footprint cms/ atlas/ --mean-file 3GB --format csv
    """
    log_output.talk(quiet=True)
    drafts = files.read_menus(menus)
    items = None if inventory is None else inventory_file.read_inventory(inventory)
    assumed = Assumptions(**assumptions)
    campaigns = menu.gather_campaigns([draft.preview for draft in drafts], links, scale)
    whole = footprint_of(campaigns, assumed, items)
    rows = [_row(row, assumed) for row in whole.rows]
    if fmt == "table":
        for title, columns in TOPICS.items():
            click.echo(f"{title}\n")
            filled = [column for column in columns if any(row[column.key] is not None for row in rows)]
            tables.write(tables.table((Column("by", ""), _NAME, *filled), list(_once(rows))))
            click.echo()
    else:
        tables.emit(fmt, COLUMNS, rows)
    for sentence in (_describe(assumed), *_unresolved(drafts)):
        click.echo(sentence, err=True)


def _describe(assumed: Assumptions) -> str:
    """Return what was assumed, in one sentence."""
    file = (
        "files of 5 GB where none is known" if assumed.mean_file is None else units.format_size(assumed.mean_file)
    )
    life = "the menus' longest" if assumed.lifetime is None else units.format_duration(assumed.lifetime)
    lag = "the menus'" if assumed.deletion_lag is None else units.format_duration(assumed.deletion_lag)
    return (
        f"assumed: {file}, {assumed.dataset_files} of them in a dataset (smaller ones take more rules), moving at "
        f"{units.format_size(assumed.file_speed)}/s each; {assumed.deletion_seconds:g} s to delete one; "
        f"lifetime {life}; deletion lag {lag} and a cycle"
    )


def _row(row: FootprintRow, assumed: Assumptions) -> dict[str, Any]:
    """Return a row as it is printed; each key names its unit, and what is unknown is None."""
    peak, site = row.peak, row.group.by == KINDS[0]
    numbers: dict[str, float | None] = {
        "links": row.links,
        **_network(row, site=site),
        "volume_TB": row.volume / TB,
        "written_24h_TB": row.written / TB,
        "resident_TB": peak.resident / TB,
        "shortest_TB": peak.shortest / TB,
        "space_TB": _in(row.space, TB),
        "lifetime_fits_h": _hours(row.fits),
        "quota_TB": peak.quota / TB,
        "cancelled_TB": peak.cancelled / TB,
        "pool_lasts_h": _hours(row.pool_lasts),
        **_work(peak, assumed),
        "transfers_busiest_link": row.busiest,
        "transfers_link_limit": assumed.link_limit,
    }
    rounded = {key: float(f"{value:.9g}") if isinstance(value, float) else value for key, value in numbers.items()}
    return {column.key: rounded.get(column.key) for column in COLUMNS} | {
        "by": row.group.by,
        "name": row.group.name,
    }


def _network(row: FootprintRow, *, site: bool) -> dict[str, float | None]:
    peak = row.peak
    return {
        "ingress_Gbit_s": peak.ingress / GBIT,
        "ingress_GB_s": peak.ingress / GB,
        "egress_Gbit_s": peak.egress / GBIT,
        "egress_GB_s": peak.egress / GB,
        "inside_Gbit_s": peak.inside / GBIT if site else None,
        "wan_Gbit_s": _in(row.wan, GBIT),
        "wan_in_percent": None if not row.wan else 100 * peak.ingress / row.wan,
        "wan_out_percent": None if not row.wan else 100 * peak.egress / row.wan,
        "limit_in_Gbit_s": _in(row.max_ingress, GBIT),
        "limit_out_Gbit_s": _in(row.max_egress, GBIT),
    }


def _work(peak: Load, assumed: Assumptions) -> dict[str, float | None]:
    return {
        "files_per_h": peak.files * HOUR,
        "deletions_per_h": peak.files * HOUR,
        "parallel_deletions": peak.files * assumed.deletion_seconds,
        "transfers_in": peak.transfers_in,
        "transfers_out": peak.transfers_out,
        "rules_per_h": peak.rules * HOUR,
        "rules": peak.live_rules,
        "locks": peak.locks,
        "calls_per_h": peak.calls * HOUR,
        "tokens_per_h": peak.tokens * HOUR,
    }


def _unresolved(drafts: Sequence[MenuDraft]) -> list[str]:
    number = len({expression for draft in drafts for expression in draft.expressions})
    return [f"RSE expressions ({number}) are counted as one RSE each, until `run` resolves them"] if number else []


def _once(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the rows; only the first of each kind names its kind."""
    before = None
    for row in rows:
        yield row | {"by": "" if row["by"] == before else _TITLES[row["by"]]}
        before = row["by"]


def _in(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def _hours(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds() / HOUR
