"""The pictures of a report, as Vega-Lite specifications: data about what to draw, and no drawing.

vl-convert draws them, without a browser and without a network; it has its home here, and is an extra. One
specification gives the drawing in the page, and SVG and PNG.

Colours are chosen so that pictures can be read by people who see no difference between red and green, on paper,
and on dark pages: text and axes have the colour of the text around them (`currentColor`, which is black in a file
of its own).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from math import ceil
from typing import Any, TypeVar

from dc_inject.apps.report import day_tables
from dc_inject.apps.report.sections import heading, title
from dc_inject.apps.report.tables import Report, Section
from dc_inject.model import units
from dc_inject.model.errors import UsageError
from dc_inject.summary.adding import DIMENSIONS
from dc_inject.summary.criteria import LIGHT
from dc_inject.summary.days import ONE
from dc_inject.summary.figures import OTHERS, SERIES

WIDE, HIGH, LOW = 900, 220, 130
INK, GREY = "currentColor", "#888888"
MOVED, INJECTED, SHADE = "#56B4E9", "#D55E00", "#999999"  # of Okabe and Ito
CLOSE = 0.04  # part of the time between two labels, at least
NARROW = 100  # steps
MOST_DATES = 14  # on an axis
LINE = 110  # characters of a heading
MOST_LABEL = 40  # characters of a name in a legend
INSTALL = "install it with `pip install '.[report]'` in the clone, or take --format md, json or csv"
SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"  # a name; nothing is fetched
CONFIG: Mapping[str, Any] = {
    "font": "DejaVu Sans, Verdana, sans-serif",
    "axis": {
        **{f"{part}Color": INK for part in ("label", "title")},
        **{f"{part}Color": GREY for part in ("domain", "tick", "grid")},
        "gridOpacity": 0.3,
        "labelFontSize": 11,
        "titleFontWeight": "normal",
    },
    "legend": {"labelColor": INK, "titleColor": INK, "labelLimit": 320, "symbolOpacity": 1},
    "title": {"color": INK, "subtitleColor": INK, "anchor": "start"},
    "view": {"stroke": None},
}
Spec = dict[str, Any]
T = TypeVar("T")


def pictures(report: Report) -> Iterator[tuple[str, Spec]]:
    """Yield the section that each picture belongs to, and the picture; of a single name it would be the first."""
    yield "over-time", _over_time(report)
    for dimension in DIMENSIONS:
        if len(report["series"][dimension]) > 1:
            yield f"{dimension}s", _stacked(report, dimension)
    if report["overlay"]:
        yield "wan", _wan(report)
    if report["holds"]:
        yield "holds", _holds(report)


def svg(spec: Spec) -> str:
    """Return a picture as SVG; raises UsageError where the library is not installed."""
    drawn: str = library().vegalite_to_svg(_whole(spec), allowed_base_urls=[])
    return drawn


def png(spec: Spec) -> bytes:
    """Return a picture as PNG, on white, in twice its size; raises UsageError as `svg` does."""
    whole = {**_whole(spec), "background": "white"}
    drawn: bytes = library().vegalite_to_png(whole, scale=2, allowed_base_urls=[])
    return drawn


def alone(report: Report, part: str) -> Spec:
    """Return one picture, or the table of a section as one, with what it is of: for a file. Raises UsageError."""
    drawn = every(report)
    if part not in drawn:
        raise UsageError(f"the report has no picture {part!r}", f"--part takes one of {', '.join(drawn)}")
    name = report["campaign"] if report["simulated_in"] is None else title(report)
    heads = {"text": name, "subtitle": textwrap.wrap(heading(report), LINE), "offset": 12}
    return {"vconcat": [drawn[part]], "title": heads}


def every(report: Report) -> dict[str, Spec]:
    """Return all pictures of which a file may have one, with those of the tables of days."""
    return dict(pictures(report)) | {one.name: _grid(one) for one in day_tables.sections(report)}


def library() -> Any:  # noqa: ANN401  a module, which may be missing
    """Return what draws; raises UsageError where it, or what writes the page, is not installed."""
    try:
        import jinja2  # noqa: F401, PLC0415  for `page.py`, of the same extra
        import vl_convert  # noqa: PLC0415  an extra, and large
    except ImportError as missing:
        raise UsageError(f"{missing.name}, which reports with pictures need, is not installed", INSTALL) from None
    return vl_convert


def _whole(spec: Spec) -> Spec:
    return {"$schema": SCHEMA, "background": None, "config": CONFIG, "padding": 4, **spec}


# --------------------------------------------------------------------------- what is drawn


def _over_time(report: Report) -> Spec:
    """Moved as an area, target and injected as lines, with excluded windows, open cycles and numbered marks."""
    rows = [
        {"at": at, "what": name, "rate": rate}
        for field, name in SERIES.items()
        for at, rate in _rates(report, [step[field] for step in report["steps"]])
    ]
    names = [*SERIES.values()]
    colour = {
        "field": "what",
        "title": None,
        "scale": {"domain": names, "range": [INK, INJECTED, MOVED]},
        "legend": {"orient": "top"},
    }
    y = {"field": "rate", **_rate_axis()}
    encoding = {"x": _time(report), "y": y, "color": colour}
    area = {"type": "area", "interpolate": "step-after", "opacity": 0.6}
    line = {"type": "line", "interpolate": "step-after", "strokeWidth": 2}
    dashes = {"field": "what", "scale": {"domain": names, "range": [[1, 0], [5, 3], [1, 0]]}, "legend": None}
    layers: list[Spec] = [
        {"transform": [{"filter": "datum.what == 'moved'"}], "mark": area, "encoding": encoding},
        {
            "transform": [{"filter": "datum.what != 'moved'"}],
            "mark": line,
            "encoding": {**encoding, "strokeDash": dashes},
        },
        *_bands(report),
        *_marks(report),
    ]
    return {**_frame("Target, injected and moved", report, marked=True), "data": {"values": rows}, "layer": layers}


def _stacked(report: Report, dimension: str) -> Spec:
    """Target, injected and moved below each other, each stacked by name, the largest at the bottom."""
    series: Sequence[Report] = report["series"][dimension]
    names = [_label(row["name"], number) for number, row in enumerate(series)]
    scale: Spec = {"domain": names, "scheme": "tableau20"}
    if series[-1]["name"].startswith(OTHERS):
        scale = {"domain": names, "range": [*TABLEAU[: len(names) - 1], GREY]}
    colour = {"field": "name", "title": dimension, "scale": scale, "legend": {"symbolLimit": 0}}
    due = [{"at": at, "rate": rate} for at, rate in _rates(report, [step["due"] for step in report["steps"]])]
    rates = {
        field: [_rates(report, [max(value, 0) for value in row[field]]) for row in series] for field in SERIES
    }
    highest = max(sum(rate for _, rate in step) for rows in rates.values() for step in zip(*rows, strict=True))
    y = {"field": "rate", **_rate_axis(), "scale": {"domain": [0, highest or 1]}}
    parts = []
    for field, word in SERIES.items():
        x = {**_time(report), "title": "UTC" if field == "moved" else None}
        encoding = {"x": x, "y": {**y, "title": word}}
        line = {
            "data": {"values": due},
            "mark": {"type": "line", "interpolate": "step-after", "color": INK, "strokeWidth": 1.5},
            "encoding": encoding,
        }
        rows = [
            {"at": at, "name": name, "rank": rank, "rate": rate}
            for rank, (name, points) in enumerate(zip(names, rates[field], strict=True))
            for at, rate in points
        ]
        area = {
            "mark": _stack(report),
            "encoding": {
                **encoding,
                "y": {**encoding["y"], "stack": "zero"},
                "color": colour,
                "order": {"field": "rank"},
            },
        }
        layer = [area, *([] if field == "due" else [line]), *_bands(report)]
        parts.append({"width": WIDE, "height": LOW, "data": {"values": rows}, "layer": layer})
    title = _title(f"Target (line), injected and moved by {dimension}", report)
    return {"title": title, "vconcat": parts, "spacing": 12}


def _grid(section: Section) -> Spec:
    """Return a table of ratios as a picture: a square for each, with its colour, its number and its sign."""
    table = section.table
    assert table is not None
    rows = [": ".join(cell.text for cell in row[: table.texts] if cell.text) for row in table.rows]
    heads = table.heads[table.texts :]
    values = [
        {"row": name, "column": head, "text": cell.text, "grade": cell.grade}
        for name, row in zip(rows, table.rows, strict=True)
        for head, cell in zip(heads, row[table.texts :], strict=True)
    ]
    bare = {"domain": False, "ticks": False, "title": None}
    x = {
        "field": "column",
        "type": "nominal",
        "sort": list(heads),
        "axis": {**bare, "orient": "top", "labelAngle": -35},
    }
    y = {"field": "row", "type": "nominal", "sort": rows, "axis": {**bare, "labelLimit": 560}}
    scale = {"domain": [*LIGHT], "range": [f"#{shade}" for shade in LIGHT.values()]}
    filled = {"field": "grade", "type": "nominal", "scale": scale, "legend": None}
    layers = [
        {"transform": [{"filter": "datum.grade"}], "mark": "rect", "encoding": {"color": filled}},
        {"mark": {"type": "text", "color": "black"}, "encoding": {"text": {"field": "text"}}},
    ]
    encoding, size = {"x": x, "y": y}, {"width": {"step": 64}, "height": {"step": 26}}
    return {"title": section.title, "data": {"values": values}, **size, "encoding": encoding, "layer": layers}


def _holds(report: Report) -> Spec:
    """In how many rows each hold led, stacked."""
    holds: Sequence[Report] = report["holds"]
    rows = [
        {"at": at, "hold": row["hold"], "rank": rank, "rows": count}
        for rank, row in enumerate(holds)
        for at, count in _steps(report, row["by_step"])
    ]
    colours = {"domain": [row["hold"] for row in holds], "range": TABLEAU[: len(holds)]}
    whole = {"tickMinStep": 1, "format": ",d"}
    encoding = {
        "x": _time(report),
        "y": {"field": "rows", "type": "quantitative", "stack": "zero", "title": "links x cycles", "axis": whole},
        "color": {"field": "hold", "title": "hold", "scale": colours, "legend": {"symbolLimit": 0}},
        "order": {"field": "rank"},
    }
    layer = {"mark": _stack(report), "encoding": encoding}
    return {**_frame("Holds", report), "data": {"values": rows}, "layer": [layer, *_bands(report)]}


def _wan(report: Report) -> Spec:
    """What a site measured into and out of its WAN, over what moved; nothing where it did not measure."""
    names = {"in": "WAN in", "out": "WAN out"}
    starts = [at for at, _ in _steps(report, range(len(report["steps"])))]
    rows = [
        {"at": at, "to": to, "what": names[way], "rate": round(8 * rate)}
        for way in names
        for (at, to), rate in zip(pairwise(starts), report["overlay"][way], strict=True)
        if rate is not None
    ]
    moved = [
        {"at": at, "what": "moved", "rate": rate}
        for at, rate in _rates(report, [row["moved"] for row in report["steps"]])
    ]
    y = {"field": "rate", **_rate_axis()}
    scale = {"domain": [*names.values(), "moved"], "range": [INK, INJECTED, MOVED]}
    encoding = {
        "x": _time(report),
        "y": y,
        "color": {"field": "what", "title": None, "scale": scale, "legend": {"orient": "top"}},
    }
    dashes = {
        "field": "what",
        "scale": {"domain": scale["domain"], "range": [[1, 0], [5, 3], [1, 0]]},
        "legend": None,
    }
    area = {"type": "area", "interpolate": "step-after", "opacity": 0.6}
    ends = {"x2": {"field": "to"}, "strokeDash": dashes}
    layers: list[Spec] = [
        {"data": {"values": moved}, "mark": area, "encoding": encoding},
        {"data": {"values": rows}, "mark": {"type": "rule", "strokeWidth": 2}, "encoding": encoding | ends},
        *_bands(report),
    ]
    return {**_frame("Moved, and a site's WAN", report), "layer": layers}


# --------------------------------------------------------------------------- parts of them


# Vega's scheme tableau20, spelled out so that a grey can follow.
_TABLEAU20 = """4c78a8 9ecae9 f58518 ffbf79 54a24b 88d27a b79a20 f2cf5b 439894 83bcb6
    e45756 ff9d98 79706e bab0ac d67195 fcbfd2 b279a2 d6a5c9 9e765f d8b5a5"""
TABLEAU = [f"#{colour}" for colour in _TABLEAU20.split()]


def _stack(report: Report) -> Spec:
    """Return how areas that are stacked are drawn: apart from each other, unless their steps are too narrow."""
    line = 0.4 if len(report["steps"]) <= NARROW else 0
    return {"type": "area", "interpolate": "step-after", "stroke": "white", "strokeWidth": line}


def _frame(title: str, report: Report, *, marked: bool = False) -> Spec:
    """Return the size of a picture, and its title."""
    return {"title": _title(title, report, marked=marked), "width": WIDE, "height": HIGH}


def _title(title: str, report: Report, *, marked: bool = False) -> str | Spec:
    """Return the title of a picture, and below it what its bands and marks are, where it has some."""
    signs = {
        "grey: left out of averages": _excluded(report),
        "dashed box: not over yet": _open(report),
        "dotted lines: what happened, by number": _marked(report) if marked else (),
    }
    words = "; ".join(sign for sign, places in signs.items() if places)
    return {"text": title, "subtitle": words} if words else title


def _time(report: Report) -> Spec:
    """Return the axis of time: hours; of more than a day hours with dates, of more than two days dates."""
    since, until = (datetime.fromisoformat(report[end]) for end in ("since", "until"))
    days = (until - since) / ONE
    minutes = "utcseconds(datum.value) ? '%H:%M:%S' : '%H:%M'"  # of short cycles, ticks are seconds apart
    midnight = "utchours(datum.value) + utcminutes(datum.value) + utcseconds(datum.value) == 0"
    label, ticks = f"utcFormat(datum.value, {midnight} ? '%a %d %b' : {minutes})", {}
    if days > 1:
        label = "[utcFormat(datum.value, '%H:%M'), utcFormat(datum.value, '%a %d %b')]"
    if days > 2:
        label = "utcFormat(datum.value, '%d %b')"
        ticks = {"tickCount": {"interval": "day", "step": ceil(days / MOST_DATES)}}
    axis = {"labelOverlap": True, "labelSeparation": 8, "grid": False, "labelExpr": label, **ticks}
    return {"field": "at", "type": "temporal", "title": "UTC", "scale": {"type": "utc"}, "axis": axis}


def _rate_axis() -> Spec:
    axis = {
        "labelExpr": "datum.value == 0 ? '0' : replace(format(datum.value, '~s'), /([a-zA-Z]?)$/, ' $1b/s')",
        "tickCount": 5,
    }
    return {"type": "quantitative", "title": None, "axis": axis}


def _steps(report: Report, values: Iterable[T]) -> list[tuple[str, T]]:
    """Return values with the times of their steps, and the last one once more where its step ends."""
    points = [(step["start"], value) for step, value in zip(report["steps"], values, strict=True)]
    return [*points, (report["steps"][-1]["end"], points[-1][1])]


def _rates(report: Report, sizes: Sequence[int]) -> list[tuple[str, float]]:
    """Return mean rates in bits per second of steps."""
    seconds = [step["seconds"] for step in report["steps"]]
    rates = [round(8 * size / time) if time else 0 for size, time in zip(sizes, seconds, strict=True)]
    return [(at, float(rate)) for at, rate in _steps(report, rates)]


def _bands(report: Report) -> Iterator[Spec]:
    """Yield layers of what does not count in averages: excluded windows, and steps that are not over."""
    grey = {"type": "rect", "color": SHADE, "opacity": 0.4}
    dashed = {"type": "rect", "fillOpacity": 0, "stroke": INK, "strokeDash": [4, 3], "strokeWidth": 1.5}
    for bands, mark in ((_excluded(report), grey), (_open(report), dashed)):
        if bands:
            x = {"x": {**_time(report), "field": "from"}, "x2": {"field": "to"}}
            yield {"data": {"values": bands}, "mark": mark, "encoding": x}


def _excluded(report: Report) -> list[Spec]:
    """Return the windows in which everything is left out, as far as they are in the report's time."""
    since, until = report["since"], report["until"]
    return [
        {"from": max(row["since"], since), "to": min(row["until"], until)}
        for row in report["excluded_windows"]
        if not row["of"] and row["since"] < until and row["until"] > since
    ]


def _open(report: Report) -> list[Spec]:
    """Return from when to when steps are not over: one time, since they are the last ones."""
    ends = zip(report["steps"], pairwise(at for at, _ in _steps(report, report["steps"])), strict=True)
    times = [time for step, time in ends if step["open"]]
    return [{"from": times[0][0], "to": times[-1][1]}] if times else []


def _marked(report: Report) -> list[tuple[int, datetime]]:
    """Return the numbers and times of what happened in the report's time."""
    since, until = (datetime.fromisoformat(report[end]) for end in ("since", "until"))
    times = ((number, datetime.fromisoformat(row["at"])) for number, row in enumerate(report["marks"], start=1))
    return [(number, at) for number, at in times if since <= at <= until]


def _marks(report: Report) -> Iterator[Spec]:
    """Yield a layer of lines with the numbers of what happened, as the table of marks has them.

    Numbers that would stand on each other are one label: `3-7`.
    """
    since, until = (datetime.fromisoformat(report[end]) for end in ("since", "until"))
    marks = [{"at": units.format_time(at)} for _, at in _marked(report)]
    groups: list[tuple[datetime, int, int]] = []  # when the first one was, its number, and that of the last
    for number, at in _marked(report):
        if groups and at - groups[-1][0] < CLOSE * (until - since):
            groups[-1] = (*groups[-1][:2], number)
        else:
            groups.append((at, number, number))
    labels = [
        {"at": units.format_time(at), "number": str(first) if first == last else f"{first}-{last}"}
        for at, first, last in groups
    ]
    if marks:
        x = {"x": _time(report)}
        rule = {"type": "rule", "strokeDash": [2, 2], "color": INK, "opacity": 0.7}
        text = {"type": "text", "align": "center", "fontSize": 10, "color": INK, "fontWeight": "bold"}
        yield {"data": {"values": marks}, "mark": rule, "encoding": x}
        yield {
            "data": {"values": labels},
            "mark": text,
            "encoding": {**x, "y": {"value": -6}, "text": {"field": "number"}},
        }


def _label(name: str, number: int) -> str:
    """Return a name that fits into a legend; cut ones are numbered, so that they stay apart."""
    return name if len(name) <= MOST_LABEL else f"{number + 1}: {name[: MOST_LABEL - 7]}..."
