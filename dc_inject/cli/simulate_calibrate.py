"""`dc-inject simulate --calibrate`: a grid file from the ledger of a past campaign.

`twin/calibration.py` says what is fitted and how. Here the ledger is read, and no service is asked. Two errors are
reported: that of the fit in held-out cycles, and that of a forecast (`simulate_own_menus.py`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dc_inject.cli import ledger_files, simulate_own_menus, tables
from dc_inject.cli.simulate_own_menus import Ends, OwnForecast, OwnMenus, grid_ends, grid_name
from dc_inject.engine import Settings
from dc_inject.ledger import LedgerView
from dc_inject.ledger.reading import Reader
from dc_inject.ledger.series import Accepted, CycleKind, Period
from dc_inject.model import Cycle, Hold, units, urls
from dc_inject.model.errors import UsageError
from dc_inject.system import files

if TYPE_CHECKING:
    from dc_inject.twin.calibration import Calibrated, Passed
    from dc_inject.twin.replay import Past, Sent

MOST_NAMED = 5  # links in one line
MOST_ROWS = 40  # links whose errors are shown to people, the worst ones
LEAST = 9  # cycles: fewer cannot be held out in part
FITTING = 0.8  # of the work; the rest is the forecast
# ruff: noqa: PLC0415  what needs numpy is imported late

ERRORS = (
    tables.Column("source", "source"),
    tables.Column("destination", "destination"),
    tables.Column("moved", "moved", units.format_size, right=True),
    tables.Column("predicted", "predicted", units.format_size, right=True),
    tables.Column("error", "error", tables.percent, right=True),
    tables.Column("by_cycle", "by cycle", tables.percent, right=True, spare=1),
)
OF_FORECAST = {  # columns of CSV beside them, and what each is called in a forecast
    "campaign_due": "due",
    "campaign_moved": "moved",
    "forecast_due": "due_now",
    "forecast": "forecast",
    "forecast_error": "error",
}


@dataclass(frozen=True, slots=True)
class Made:
    """The results of a calibration; `forecast` is a reason where there is none."""

    calibrated: Calibrated
    forecast: OwnForecast | str


def calibrate(campaign: str, output: Path, passed: Passed, *, force: bool) -> Made:
    """Fit a grid to a campaign's ledger, and write its file; raises UsageError and LedgerError."""
    if find_spec("numpy") is None:
        raise UsageError(
            "calibrating needs numpy, which is not installed", "install it with `pip install '.[twin]'`"
        )
    from dc_inject.twin import calibration, grid_file, grid_text

    files.refuse_existing(output, force=force)
    files.need_folder(output)
    with tempfile.TemporaryDirectory(prefix="dc_inject-") as name:
        folder = Path(name)
        with LedgerView.open(ledger_files.existing(campaign)) as view, view.snapshot():
            past, own = read(view), _own_menus(view, folder)
        made = calibration.calibrated(
            past,
            lambda fit: grid_file.read(grid_text.text(fit).encode(), "grid"),
            lambda part: passed(FITTING * part),
        )
        forecast = _forecast(
            own, grid_text.text(made.fit), folder, lambda part: passed(FITTING + part * (1 - FITTING))
        )
    words = [f"no forecast: {forecast}"] if isinstance(forecast, str) else list(forecast.sentences())
    files.write_whole(output, grid_text.text(made.fit, made, words), force=force)
    click.echo(f"wrote {output}", err=True)
    click.echo(f"warning: {grid_text.NO_SPACE}", err=True)
    return Made(made, forecast)


def _own_menus(view: Reader, folder: Path) -> OwnMenus | str:
    """Return the campaign's own menus, or why there are none."""
    try:
        return simulate_own_menus.own_menus(view, closed_cycles(view), folder)
    except UsageError as error:
        return error.message


def _forecast(own: OwnMenus | str, grid: str, folder: Path, passed: Passed) -> OwnForecast | str:
    """Return what they move in a grid, or why there is no forecast."""
    if isinstance(own, str):
        return own
    try:
        return own.forecast(grid, folder, passed)
    except UsageError as error:
        return error.message


def closed_cycles(view: Reader) -> list[Cycle]:
    """Return the closed cycles that count; raises UsageError where there are too few."""
    name = view.campaign or view.path.stem
    first, last = view.first_cycle(), view.last_cycle()
    if first is None or last is None:
        raise UsageError(f"{name} has had no cycle so far", "calibrate from a campaign that ran")
    cycles = view.cycles(Period(first.start, last.end))
    closed = [cycle for cycle, kind in cycles if kind is CycleKind.COUNTED]
    if len(closed) < LEAST:
        message = (
            f"{name} has {units.counted(len(closed), 'closed cycles')}: too few to fit some and predict others"
        )
        raise UsageError(message, f"calibrate from a campaign of at least {LEAST} cycles")
    return closed


def read(view: Reader) -> Past:
    """Return a campaign's past from its ledger. Raises UsageError where that is too little."""
    from dc_inject.twin import arrays
    from dc_inject.twin.replay import Past

    name, closed = view.campaign or view.path.stem, closed_cycles(view)
    first, period = closed[0], Period(closed[0].start, closed[-1].end)
    length, count = first.length, round((closed[-1].end - first.start) / first.length)
    sent = [
        _sent(accepted, first.start)
        for accepted in view.accepted()
        if accepted.bytes > 0 and accepted.accepted_at < closed[-1].end
    ]
    if not sent:
        raise UsageError(f"{name} has injected nothing", "calibrate from a campaign that injected")
    moved: dict[Ends, list[int]] = {rule.link: [0] * count for rule in sent}
    for span in view.spans(period, length):
        ends, number = grid_ends(span.key.link), round((span.start - first.start) / length)
        if span.kind is CycleKind.COUNTED and ends in moved:
            moved[ends][number] += span.sums.moved
    held: dict[Ends, list[bool]] = {ends: [False] * count for ends in moved}
    for key, start, _ in view.held_in(Hold.BACKLOG):
        number = round((start - first.start) / length)
        if grid_ends(key.link) in held and number < count:
            held[grid_ends(key.link)][number] = True
    ends_of = {end for key in view.accounts() for end in grid_ends(key.link)}
    urls_ = {end for key in view.accounts() for end in (key.link.source, key.link.destination) if urls.is_url(end)}
    sites = {
        signal.subject: str(signal.value)
        for signal in view.signals()
        if signal.name == "site" and signal.value is not None
    }
    return Past(
        name,
        length.total_seconds(),
        count,
        length.total_seconds() / Settings().observations_per_cycle,
        sent,
        {ends: arrays.floats(cycles) for ends, cycles in moved.items()},
        {end: sites[end] for end in ends_of if end in sites},
        {
            grid_name(source): sizes
            for source, sizes in view.sizes_at_sources().items()
            if grid_name(source) in ends_of
        },
        {grid_name(url): urls.host_of(url) for url in urls_},
        all(identity.may_end is not False for identity in view.identities()),
        frozenset(ends_of),
        {ends: arrays.flags(cycles) for ends, cycles in held.items()},
    )


def _sent(rule: Accepted, start: datetime) -> Sent:
    from dc_inject.twin.replay import Sent

    def at(moment: datetime | None) -> float | None:
        return None if moment is None else (moment - start).total_seconds()

    accepted, ended = (rule.accepted_at - start).total_seconds(), at(rule.ended_at)
    expires = (rule.expires_at - start).total_seconds()
    if rule.completed_at is None and ended is not None:
        expires = ended
    return Sent(
        grid_ends(rule.key.link),
        rule.activity,
        rule.service_priority,
        rule.bytes,
        max(rule.files, 1),
        accepted,
        max(expires, accepted),
        at(rule.completed_at),
        ended,
        at(rule.gone_at),
        rule.files_done,
        rule.files_stuck,
        not rule.key.link.service.cleans_up,
    )


def show(fmt: str, made: Made) -> None:
    """Print what was fitted, how well held-out cycles were predicted, and what a forecast is worth."""
    rows = [
        {
            "source": error.link[0],
            "destination": error.link[1],
            "moved": round(error.moved),
            "predicted": round(error.predicted),
            "error": error.error,
            "by_cycle": error.by_cycle,
        }
        for error in sorted(made.calibrated.errors, key=lambda error: -error.error)
    ]
    if fmt == "csv":
        _emit_csv(rows, made.forecast)
    elif fmt == "json":
        tables.emit_json(_figures(made, rows))
    else:
        _show_fit(made.calibrated, rows)
        click.echo()
        _show_forecast(made.forecast)


def _emit_csv(rows: Iterable[Mapping[str, Any]], forecast: OwnForecast | str) -> None:
    """Print one row for each link: the error of the fit, and beside it that of the forecast."""
    by_ends: dict[Ends, dict[str, Any]] = {(row["source"], row["destination"]): dict(row) for row in rows}
    for row in () if isinstance(forecast, str) else forecast.rows():
        ends = {key: row[key] for key in ("source", "destination")}
        cells = by_ends.setdefault((row["source"], row["destination"]), ends)
        cells |= {key: row[name] for key, name in OF_FORECAST.items()}
    columns = (*ERRORS, *(tables.Column(key, key) for key in OF_FORECAST))
    tables.emit("csv", columns, list(by_ends.values()))


def _figures(made: Made, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return all figures for `--format json`."""
    from dc_inject.twin import grid_text

    fit, errors, forecast = made.calibrated.fit, made.calibrated.errors, made.forecast
    median, worst = grid_text.summary(errors) if errors else (None, None)
    return {
        "campaign": fit.past.name,
        "cycles": fit.past.cycles,
        "held_out": made.calibrated.held_out,
        "links": len(fit.links),
        "fitted": dict(grid_text.kinds(fit)),
        "full_at_times": [
            {"source": source, "destination": destination} for source, destination in grid_text.full_at_times(fit)
        ],
        "median_error": median,
        "worst_error": None if worst is None else worst.error,
        "errors": rows,
        "forecast": {"why_not": forecast} if isinstance(forecast, str) else forecast.figures(),
    }


def _show_fit(calibrated: Calibrated, rows: Sequence[Mapping[str, Any]]) -> None:
    from dc_inject.twin import grid_text

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
    if not calibrated.errors:
        click.echo(f"nothing moved in the last {calibrated.held_out} cycles, so no error of the fit is known")
        return
    median, worst = grid_text.summary(calibrated.errors)
    last = units.counted(calibrated.held_out, "cycles")
    click.echo(f"fit: bytes moved in the last {last}, held out; what was injected in them is told")
    tables.emit_first(ERRORS, rows, MOST_ROWS, "links")
    click.echo(f"error of the fit by link: median {tables.percent(median)}, worst {tables.percent(worst.error)}")


def _show_forecast(forecast: OwnForecast | str) -> None:
    if isinstance(forecast, str):
        click.echo(f"no forecast of its own menus is possible, so its error is not known: {forecast}")
        return
    click.echo(forecast.title)
    tables.emit_first(simulate_own_menus.FORECAST, forecast.rows(), MOST_ROWS, "links")
    for sentence in forecast.sentences():
        click.echo(sentence)
