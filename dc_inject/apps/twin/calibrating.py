"""`dc-inject simulate --calibrate`: a grid file from the ledger of a past campaign.

`grid/calibration.py` fits. Here the ledger is read, and no service is asked. Two errors are
reported: that of the fit in held-out cycles, and that of a forecast (`own_menus.py`).
"""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dc_inject.apps.twin import own_menus
from dc_inject.apps.twin.own_menus import Ends, OwnForecast, OwnMenus, grid_ends, grid_name
from dc_inject.engine.context import Settings
from dc_inject.ledger import LedgerView, Reader, ledger_files
from dc_inject.ledger.series import Accepted, CycleKind, Period
from dc_inject.model import Cycle, Hold, units, urls
from dc_inject.model.errors import UsageError
from dc_inject.system import files

if TYPE_CHECKING:
    from dc_inject.apps.twin.grid.calibration import Calibrated, Passed
    from dc_inject.apps.twin.grid.replay import Past, Sent

LEAST = 9  # cycles: fewer cannot be held out in part
FITTING = 0.8  # of the work; the rest is the forecast
OF_FORECAST = {  # keys of a row, and what each is called in a forecast
    "campaign_due": "due",
    "campaign_moved": "moved",
    "forecast_due": "due_now",
    "forecast": "forecast",
    "forecast_error": "error",
}
# ruff: noqa: PLC0415  what needs numpy is imported late


@dataclass(frozen=True, slots=True)
class Made:
    """The results of a calibration; `forecast` is a reason where there is none.

    `inconclusive` has the links that the grid does not predict, and why; `notes` are for stderr.
    """

    calibrated: Calibrated
    forecast: OwnForecast | str
    inconclusive: Mapping[Ends, str]
    notes: Sequence[str]

    def errors(self) -> list[dict[str, Any]]:
        """Return the error of the fit of each link, those that are missed most first."""
        rows: list[dict[str, Any]] = [
            {
                "source": error.link[0],
                "destination": error.link[1],
                "moved": round(error.prediction.moved),
                "predicted": round(error.prediction.predicted),
                "error": error.prediction.error,
                "by_cycle": error.by_cycle,
            }
            for error in self.calibrated.errors
        ]
        return sorted(rows, key=lambda row: -(math.inf if row["error"] is None else row["error"]))

    def find_doubtful_links(self) -> list[dict[str, Any]]:
        """Return the links that the grid does not predict, and why."""
        return [
            {"source": source, "destination": destination, "why": why}
            for (source, destination), why in self.inconclusive.items()
        ]

    def rows(self) -> list[dict[str, Any]]:
        """Return for each link the error of the fit, that of the forecast, and why it is inconclusive."""
        by_ends: dict[Ends, dict[str, Any]] = {(row["source"], row["destination"]): row for row in self.errors()}

        def row_of(source: str, destination: str) -> dict[str, Any]:
            return by_ends.setdefault((source, destination), {"source": source, "destination": destination})

        for row in () if isinstance(self.forecast, str) else self.forecast.rows():
            cells = row_of(row["source"], row["destination"])
            cells |= {key: row[name] for key, name in OF_FORECAST.items()}
        for ends, reason in self.inconclusive.items():
            row_of(*ends)["inconclusive"] = reason
        return list(by_ends.values())

    def figures(self) -> dict[str, Any]:
        """Return all figures as JSON has them."""
        from dc_inject.apps.twin.grid import grid_text, replay

        fit, forecast = self.calibrated.fit, self.forecast
        errors = replay.summary(self.calibrated.errors)
        return {
            "campaign": fit.past.name,
            "cycles": fit.past.cycles,
            "held_out": self.calibrated.held_out,
            "links": len(fit.links),
            "fitted": dict(grid_text.kinds(fit)),
            "full_at_times": [
                {"source": source, "destination": destination}
                for source, destination in grid_text.full_at_times(fit)
            ],
            "median_error": None if errors is None else errors.median,
            "worst_error": None if errors is None else errors.worst,
            "errors": self.errors(),
            "forecast": {"why_not": forecast} if isinstance(forecast, str) else forecast.figures(),
            "inconclusive": self.find_doubtful_links(),
        }


def calibrate(campaign: str, output: Path, passed: Passed, *, force: bool) -> Made:
    """Fit a grid to a campaign's ledger, and write its file; raises UsageError and LedgerError."""
    if find_spec("numpy") is None:
        raise UsageError(
            "calibrating needs numpy, which is not installed", "install it with `pip install '.[twin]'`"
        )
    from dc_inject.apps.twin.grid import calibration, grid_file, grid_text, replay

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
    compared = {} if isinstance(forecast, str) else forecast.compare_links()
    forecasts = {ends: replay.Prediction(*bytes_) for ends, bytes_ in compared.items()}
    at_times = grid_text.at_times(made.fit)
    inconclusive = replay.inconclusive(past, made.errors, forecasts, at_times)
    files.write_whole(output, grid_text.text(made.fit, made, words, inconclusive), force=force)
    return Made(made, forecast, inconclusive, (f"wrote {output}", f"warning: {grid_text.NO_SPACE}"))


def _own_menus(view: Reader, folder: Path) -> OwnMenus | str:
    """Return the campaign's own menus, or why there are none."""
    try:
        return own_menus.write_own_menus(view, closed_cycles(view), folder)
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
    from dc_inject.apps.twin.grid import arrays
    from dc_inject.apps.twin.grid.replay import Past

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
    urls_ = {end for key in view.accounts() for end in key.link.ends if urls.is_url(end)}
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
        {source: sizes for source, sizes in _stocks(view, sent).items() if source in ends_of},
        {grid_name(url): urls.host_of(url) for url in urls_},
        all(identity.may_end is not False for identity in view.identities()),
        frozenset(ends_of),
        {ends: arrays.flags(cycles) for ends, cycles in held.items()},
    )


def _stocks(view: Reader, sent: Sequence[Sent]) -> dict[str, list[tuple[int, int]]]:
    """Return files and bytes of what each source held; of one that was never listed, of what it sent."""
    as_sent: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for rule in sent:
        as_sent[rule.link[0]].add((rule.files, rule.bytes))
    listed = {grid_name(source): sizes for source, sizes in view.sizes_at_sources().items() if sizes}
    return {source: sorted(sizes) for source, sizes in as_sent.items()} | listed


def _sent(rule: Accepted, start: datetime) -> Sent:
    from dc_inject.apps.twin.grid.replay import Sent

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
