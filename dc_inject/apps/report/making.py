"""A report in each format: the figures of a ledger, or of a part of its time, with what they are compared with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dc_inject.apps.link import records
from dc_inject.apps.report import overlay as wan
from dc_inject.apps.report import page, pictures, text
from dc_inject.ledger import LedgerView, ledger_files
from dc_inject.model.errors import UsageError
from dc_inject.summary import figures, first_lines, standing, thresholds
from dc_inject.summary.adding import DIMENSIONS
from dc_inject.summary.figures import ReportScope
from dc_inject.system.clock import SystemClock

Report = Mapping[str, Any]
SHOWN = ("due", "injected", "moved", "not_moved", "ratio", "grade", "sign")  # of campaigns that are compared
PICTURED = ("html", "svg", "png")
FORMATS = ("md", "json", "csv", "xlsx", *PICTURED, "junit")
_MAKE: Mapping[str, Callable[[Mapping[str, Any]], str | bytes]] = {
    "json": lambda values: json.dumps(values, indent=1) + "\n",
    "html": page.html,
    "junit": thresholds.junit,
}
_MAKE_PART: Mapping[str, Callable[[Mapping[str, Any], str], str | bytes]] = {  # the part may be none but for CSV
    "md": text.markdown,
    "csv": text.table,
    "xlsx": text.workbook,
    "svg": lambda values, part: pictures.svg(pictures.alone(values, part or "over-time")) + "\n",
    "png": lambda values, part: pictures.png(pictures.alone(values, part or "over-time")),
}


class Made(NamedTuple):
    """A report in a format, what became of its thresholds, and warnings about what was asked for."""

    contents: Mapping[str, bytes]  # by their part; "" is the report as a whole, or the only part
    judgements: Sequence[dict[str, Any]]
    warnings: Sequence[str] = ()


def make(
    campaign: str,
    path: Path,
    scope: ReportScope,
    fmt: str,
    *,
    compare: str | None = None,
    overlay: Path | None = None,
    renewed_every: float = 0,
    part: str = "",
    each: bool = False,
) -> Made:
    """Return the report of a ledger (`path`) in a format.

    `compare` is another campaign, `overlay` the file with the readings of a site's WAN, and `renewed_every` after
    how many seconds a page that is served asks for the next one. `part` is the only section that is wanted; with
    `each`, every section is a content by itself, as far as the format shows it. Raises LedgerError, and UsageError
    where no cycle is in the scope, there is no such part, or a file cannot be read.
    """
    with LedgerView.open(path) as view, view.snapshot():
        name = ledger_files.campaign_in(view, campaign, path)
        if fmt == "csv" and not part and not each:  # whole, since who reads the output may take his time
            return _rows(view, name, scope)
        values = _read_figures(view, name, scope)
        if compare is not None:
            values["compared"] = compared(values, _read_other(compare))
        if overlay is not None:
            values["overlay"] = wan.overlay(_read(overlay), overlay.name, values)
        made: Mapping[str, str | bytes]
        if renewed_every:
            now = standing.shown_moment(view, SystemClock().now())
            first = first_lines.block(standing.standing(name, view, now))
            made = {"": page.html(values, renewed_every, first)}
        elif fmt in _MAKE:
            made = {"": _MAKE[fmt](values)}
        else:
            names = pictures.every(values) if fmt in PICTURED else [one.name for one in text.tables(values)]
            made = {name if each else "": _MAKE_PART[fmt](values, name) for name in (names if each else [part])}
    warnings = [
        f"no cycle of the report is in the window {window['since']}/{window['until']}"
        for window in values["excluded_windows"]
        if not window["cycles"]
    ]
    contents = {name: one.encode() if isinstance(one, str) else one for name, one in made.items()}
    return Made(contents, values["thresholds"], warnings)


def _rows(view: LedgerView, name: str, scope: ReportScope) -> Made:
    chosen = figures.period(view, scope)
    if chosen is None:
        raise _nothing(name, scope)
    content = "".join(text.lines(view, chosen, scope.by)).encode()
    return Made({"": content}, thresholds.figures(view, chosen, scope.thresholds))


def _read_figures(view: LedgerView, name: str, scope: ReportScope) -> dict[str, Any]:
    progress = records.progress(view.challenge())
    challenge = None if progress is None else progress.concluded(running=view.holder() is not None).figures()
    values = figures.report(view, scope, challenge, SystemClock().now())
    if values is None:
        raise _nothing(name, scope)
    return values


def _read_other(campaign: str) -> dict[str, Any]:
    """Return the figures of another campaign, as a whole."""
    with LedgerView.open(ledger_files.existing(campaign)) as view, view.snapshot():
        return _read_figures(view, campaign, ReportScope())


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(wan.LARGEST + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None


def _nothing(name: str, scope: ReportScope) -> UsageError:
    if scope.since is None and scope.until is None:
        return UsageError(f"{name} has had no cycle so far", "`dc-inject run MENUS` begins one")
    return UsageError(f"no cycle of {name} begins in that time", "leave out --since or --until")


def compared(report: Report, other: Report) -> dict[str, Any]:
    """Return what a report has of another campaign, which is reported as a whole: also what only one of them has.

    Differences are this campaign less the other one.
    """
    parts = {f"{part}s": _pairs(report[f"{part}s"], other[f"{part}s"]) for part in DIMENSIONS}
    return {
        "campaign": other["campaign"],
        "simulated_in": other["simulated_in"],
        "control": other["control"],
        "since": other["since"],
        "until": other["until"],
        "counted": _pair("", report["counted"], other["counted"]),
        "completion": other["completion"],
        **parts,
    }


def _pairs(ours: list[Report], theirs: list[Report]) -> list[dict[str, Any]]:
    others = {entry["name"]: entry for entry in theirs}
    pairs = [_pair(entry["name"], entry, others.pop(entry["name"], None)) for entry in ours]
    return [*pairs, *(_pair(name, None, entry) for name, entry in others.items())]


def _pair(name: str, this: Report | None, other: Report | None) -> dict[str, Any]:
    """Return both, and by how much the ratio of this one is higher."""
    ratios = [report and report["ratio"] for report in (this, other)]
    difference = None if None in ratios else ratios[0] - ratios[1]  # type: ignore[operator]  # neither is None
    return {
        "name": name,
        "this": this and {key: this[key] for key in SHOWN},
        "other": other and {key: other[key] for key in SHOWN},
        "difference": difference,
    }
