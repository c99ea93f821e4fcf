"""What `simulate --calibrate` prints: what was fitted, how far off it is, and which links it does not predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from dc_inject.apps.twin.calibrating import OF_FORECAST, Made
from dc_inject.apps.twin.own_menus import OwnForecast
from dc_inject.cli.shared import tables
from dc_inject.model import units

if TYPE_CHECKING:
    from dc_inject.apps.twin.grid.calibration import Calibrated

MOST_NAMED = 5  # links in one line
MOST_ROWS = 40  # links whose errors are shown to people, the worst ones
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
INCONCLUSIVE = (
    tables.Column("source", "source", name=True),
    tables.Column("destination", "destination", name=True),
    tables.Column("why", "why", below=True),
)


def show(fmt: str, made: Made) -> None:
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
        _show_inconclusive(made)


def _show_fit(calibrated: Calibrated, rows: Sequence[Mapping[str, Any]]) -> None:
    from dc_inject.apps.twin.grid import grid_text, prediction_errors

    fit, links = calibrated.fit, len(calibrated.fit.links)
    fitted, at_times = grid_text.kinds(fit), grid_text.full_at_times(fit)
    click.echo(f"{fit.past.name}: {units.counted(links, 'links')} in {fit.past.cycles} cycles; fitted are")
    for key, what in (
        ("capacity", "capacities, of the link or of what is full in its place (elsewhere bounds)"),
        ("speed", "speeds and overheads of files"),
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
    errors = prediction_errors.summary(calibrated.errors)
    if errors is None:
        click.echo(f"nothing moved in the last {calibrated.held_out} cycles, so no error of the fit is known")
        return
    last = units.counted(calibrated.held_out, "cycles")
    click.echo(f"fit: bytes moved in the last {last}, held out; what was injected in them is told")
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


def _show_inconclusive(made: Made) -> None:
    """Say which links the grid does not predict, and what that means for forecasts."""
    from dc_inject.apps.twin.grid.prediction_errors import MOST_MISSED

    most, links = f"{100 * MOST_MISSED:.0f} %", units.counted(len(made.calibrated.fit.links), "links")
    if not made.inconclusive:
        unknown = ", but no forecast shows what it is worth" if isinstance(made.forecast, str) else ""
        click.echo(f"the grid predicts each link within {most}{unknown}")
        return
    click.echo(
        f"simulations in this grid are inconclusive for {len(made.inconclusive)} of {links}: it misses what they "
        f"moved by more than {most}, or that is not known"
    )
    tables.emit_first(INCONCLUSIVE, made.doubts(), MOST_ROWS, "links")
    click.echo(
        "hint: find out what happened, and write it into the file, such as `troubles`, `production`, `failures`.\n"
        "Figures of these links, their storages and sites were fitted as if nothing had happened: replace or\n"
        "remove them, too, and only then remove the links from `inconclusive`"
    )
