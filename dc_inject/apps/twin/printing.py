"""What `dc-inject simulate` prints: the results of one seed or of several, or of a calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from dc_inject.apps.twin import forecast, several_seeds
from dc_inject.apps.twin.calibrating import OF_FORECAST, Made
from dc_inject.apps.twin.own_menus import OwnForecast
from dc_inject.apps.twin.several_seeds import SeedRun
from dc_inject.cli.shared import summary_output, tables
from dc_inject.cli.shared.summary_output import MOST_ROWS
from dc_inject.ledger import Reader
from dc_inject.model import units
from dc_inject.summary import advice, closing

if TYPE_CHECKING:
    from dc_inject.apps.twin.grid.calibration import Calibrated
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
    tables.emit("table", TYPICAL, several_seeds.summarize_seeds(runs))
    medians_of = f", medians of {seeds}"
    summary_output.show_reasons(report["holds"], f"why links were held{medians_of}")
    summary_output.show_advice(any(run.advice.given for run in runs), report["advice"], seeds=medians_of)
    if report["forecast"]:
        click.echo()
        tables.emit_first(SHORT, report["forecast"], MOST_ROWS, "links")
    _show_inconclusive(report["inconclusive"])
    if disks := forecast.find_full_disks(report["nearly_full"]):
        click.echo(f"\nin the median, {disks}")
    if report["without_space"]:
        click.echo()
        show_without_space(report["without_space"])


def show_without_space(names: Sequence[str]) -> None:
    """Print the disks of which no forecast is possible."""
    if sentence := forecast.sentence_without_space(names):
        click.echo(sentence)


def _show_inconclusive(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the links for which the simulation is inconclusive, and why."""
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


MOST_NAMED = 5  # links in one line
# ruff: noqa: PLC0415  what needs numpy is imported late

ERRORS = (
    tables.Column("source", "source"),
    tables.Column("destination", "destination"),
    tables.Column("moved", "moved", units.format_size, right=True),
    tables.Column("predicted", "predicted", units.format_size, right=True),
    tables.Column("error", "error", units.percent, right=True),
    tables.Column("by_cycle", "by cycle", units.percent, right=True, spare=1),
)

FORECAST = (
    tables.Column("source", "source", name=True),
    tables.Column("destination", "destination", name=True),
    tables.Column("due", "due", units.format_size, right=True, spare=1),
    tables.Column("moved", "moved", units.format_size, right=True),
    tables.Column("forecast", "forecast", units.format_size, right=True),
    tables.Column("error", "error", units.percent, right=True),
)


def show_calibration(fmt: str, made: Made) -> None:
    """Print what was fitted, how well held-out cycles were predicted, and what a forecast is worth."""
    if fmt == "csv":
        columns = (*ERRORS, *(tables.Column(key, key) for key in (*OF_FORECAST, "inconclusive")))
        tables.emit("csv", columns, made.rows())
    elif fmt == "json":
        tables.emit_json(made.figures())
    else:
        _show_fit(made.calibrated, made.errors())
        click.echo()
        _show_forecast(made.forecast)
        click.echo()
        _show_unpredicted(made)


def _show_fit(calibrated: Calibrated, rows: Sequence[Mapping[str, Any]]) -> None:
    from dc_inject.apps.twin.grid import grid_text, replay

    fit, links = calibrated.fit, len(calibrated.fit.links)
    fitted, at_times = grid_text.kinds(fit), grid_text.full_at_times(fit)
    click.echo(f"{fit.past.name}: {units.counted(links, 'links')} in {fit.past.cycles} cycles; fitted are")
    for key, what in (
        ("capacity", "capacities, of the link or of what is full in its place (elsewhere bounds)"),
        ("speed", "times of files (elsewhere assumed)"),
        ("failures", "failures of attempts (elsewhere too few files failed for good: bounds)"),
    ):
        click.echo(f"  {fitted[key]} of {links} {what}")
    if at_times:
        names = ", ".join(f"{source} -> {destination}" for source, destination in at_times[:MOST_NAMED])
        more = f" and {len(at_times) - MOST_NAMED} more" if len(at_times) > MOST_NAMED else ""
        click.echo(
            f"full at times only, which the grid does not do by itself: {names}{more}\n"
            "hint: find out why, and write it into the file, such as `troubles` or `failures`"
        )
    click.echo()
    errors = replay.summary(calibrated.errors)
    if errors is None:
        click.echo(f"nothing moved in the last {calibrated.held_out} cycles, so no error of the fit is known")
        return
    last = units.counted(calibrated.held_out, "cycles")
    click.echo(f"fit: bytes moved in the last {last}, held out; the fit knows what was injected in them")
    tables.emit_first(ERRORS, rows, MOST_ROWS, "links")
    median, worst = units.percent(errors.median), units.percent(errors.worst)
    click.echo(f"error of the fit by link: median {median}, worst {worst}")


def _show_forecast(forecast: OwnForecast | str) -> None:
    if isinstance(forecast, str):
        click.echo(f"no forecast of its own menus is possible, so its error is not known: {forecast}")
        return
    click.echo(forecast.title)
    tables.emit_first(FORECAST, forecast.rows(), MOST_ROWS, "links")
    for sentence in forecast.sentences():
        click.echo(sentence)


def _show_unpredicted(made: Made) -> None:
    """Print which links the grid does not predict, and what that means for forecasts."""
    from dc_inject.apps.twin.grid.replay import MOST_MISSED

    most, links = f"{100 * MOST_MISSED:.0f} %", units.counted(len(made.calibrated.fit.links), "links")
    if not made.inconclusive:
        unknown = ", but no forecast shows what it is worth" if isinstance(made.forecast, str) else ""
        click.echo(f"the grid predicts each link within {most}{unknown}")
        return
    click.echo(
        f"simulations in this grid are inconclusive for {len(made.inconclusive)} of {links}: it misses what they "
        f"moved by more than {most}, or that is not known"
    )
    tables.emit_first(INCONCLUSIVE[1:], made.find_doubtful_links(), MOST_ROWS, "links")
    click.echo(
        "hint: find out what happened, and write it into the file, such as `troubles`, `production`, `failures`.\n"
        "Figures of these links, their storages and sites were fitted as if nothing had happened: replace or\n"
        "remove them, too, and only then remove the links from `inconclusive`"
    )
