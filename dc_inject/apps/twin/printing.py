"""What `dc-inject simulate` prints: the results of one seed or of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from dc_inject.apps.twin import forecast, several_seeds
from dc_inject.apps.twin.several_seeds import SeedRun
from dc_inject.cli.shared import summary_output, tables
from dc_inject.cli.shared.summary_output import MOST_ROWS
from dc_inject.ledger import Reader
from dc_inject.model import units
from dc_inject.summary import advice, closing

if TYPE_CHECKING:
    from dc_inject.apps.twin.simulation import Simulated

MOST_STORAGES = 20  # the fullest ones; JSON has all

STORAGES = (
    tables.Column("storage", "storage"),
    tables.Column("site", "site", spare=1),
    tables.Column("space", "space", units.format_size, right=True),
    tables.Column("most_used", "most used", units.format_size, right=True),
    tables.Column("most_filled", "filled", units.percent, right=True),
    tables.Column("hours_nearly_full", "hours above 98 %", lambda hours: f"{hours:.1f}", right=True),
    tables.Column("to_delete", "files to delete at the end", right=True, spare=2),
)
SHORT_LINKS = (
    tables.Column("scenario", "will be short", name=True, heading=True),
    tables.Column("source", "source", name=True),
    tables.Column("destination", "destination", name=True),
    tables.Column("due", "due", units.format_size, right=True),
    tables.Column("moved", "moved", units.format_size, right=True, spare=1),
    tables.Column("missing", "missing", units.format_size, right=True),
    tables.Column("moved_of_due", "moved/due", units.percent, right=True),
    tables.Column("why", "why", below=True),
)
QUEUES = (
    tables.Column("queue", "files that"),
    tables.Column("mean", "mean", units.grouped, right=True),
    tables.Column("most", "most", right=True),
    tables.Column("at", "at"),
)
TYPICAL = (
    tables.Column("figure", "figure"),
    tables.Column("median", "median", right=True),
    tables.Column("least", "least", right=True),
    tables.Column("most", "most", right=True),
)
INCONCLUSIVE = (
    tables.Column("scenario", "inconclusive", name=True, heading=True),
    tables.Column("source", "source", name=True),
    tables.Column("destination", "destination", name=True),
    tables.Column("why", "why", below=True),
)
SHORT = (
    *(column for column in SHORT_LINKS if column.key in {"scenario", "source", "destination"}),
    tables.Column("seeds", "seeds", right=True),
    tables.Column("missing", "missing", units.format_size, right=True),
    tables.Column("moved_of_due", "moved/due", units.percent, right=True),
    tables.Column("why", "why, with most seeds", below=True),
)


def show(fmt: str, ledger: Reader, made: Simulated, seed: int, policy: str | None = None) -> None:
    """Print the results of one seed: as tables, as one JSON object, or the closing table as CSV."""
    if fmt == "csv":
        links = closing.totals(made.campaign, ledger)["links"]
        tables.emit("csv", summary_output.SUMMARY, links)
        return
    report = forecast.results(ledger, made, seed, policy)
    if fmt == "json":
        tables.emit_json(report)
        return
    many = len(report["links"]) > MOST_ROWS
    rows = [report["total"]] if many else [*report["links"], report["total"]]
    subject = f"closing table of {made.campaign}, seed {seed},"
    title = forecast.title(subject, report["grid"], policy, made.control)
    tables.emit("table", summary_output.SUMMARY, rows, title)
    if many:
        click.echo(f"{units.counted(len(report['links']), 'links')}; --format csv has a row for each")
    summary_output.show_reasons(report["holds"])
    summary_output.show_advice(advice.advised(ledger).given, report["advice"])
    _show_storages(report["storages"])
    if queued := [row for row in report["queues"] if row["most"]]:
        click.echo()
        tables.emit("table", QUEUES, queued)
    if report["forecast"]:
        click.echo()
        tables.emit_first(SHORT_LINKS, report["forecast"], MOST_ROWS, "links")
    _show_inconclusive(report["inconclusive"])
    click.echo()
    tables.console().print(forecast.sentence(report))
    show_without_space(forecast.without_space(made.world))


def show_seeds(fmt: str, runs: Sequence[SeedRun], policy: str | None) -> None:
    """Print medians and ranges, why links were held, and which are short; as CSV a row for each seed."""
    if fmt == "csv":
        rows = several_seeds.rows(runs)
        tables.emit("csv", [tables.Column(key, key) for key in rows[0]], rows)
        return
    report = several_seeds.results(runs, policy)
    if fmt == "json":
        tables.emit_json(report)
        return
    seeds = units.counted(len(runs), "seeds")
    click.echo(forecast.title(f"{seeds} of {report['campaign']}", report["grid"], policy, report["control"]))
    tables.emit("table", TYPICAL, several_seeds.typical(runs))
    medians_of = f", medians of {seeds}"
    summary_output.show_reasons(report["holds"], f"why links were held{medians_of}")
    summary_output.show_advice(any(run.advice.given for run in runs), report["advice"], seeds=medians_of)
    if report["forecast"]:
        click.echo()
        tables.emit_first(SHORT, report["forecast"], MOST_ROWS, "links")
    _show_inconclusive(report["inconclusive"])
    if disks := forecast.above_98(report["nearly_full"]):
        click.echo(f"\nin the median, {disks}")
    if report["without_space"]:
        click.echo()
        show_without_space(report["without_space"])


def show_without_space(names: Sequence[str]) -> None:
    """Print of which disks a forecast knows nothing."""
    if sentence := forecast.sentence_without_space(names):
        click.echo(sentence)


def _show_inconclusive(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print of which links the simulation says nothing, and why."""
    if rows:
        click.echo()
        tables.emit_first(INCONCLUSIVE, rows, MOST_ROWS, "links")


def _show_storages(rows: Sequence[dict[str, Any]]) -> None:
    """Print the fullest storages as a table, and count the others that were used."""
    used = [row for row in rows if row["most_used"]]
    limited = sorted((row for row in used if row["space"]), key=lambda row: -row["most_filled"])
    shown, rest = limited[:MOST_STORAGES], limited[MOST_STORAGES:]
    if shown:
        click.echo()
        tables.emit("table", STORAGES, shown)
    if rest:
        fullest = units.percent(rest[0]["most_filled"])
        click.echo(f"and {units.counted(len(rest), 'storages')} more, filled to {fullest} at most")
