"""The terms of a link: its own settings, then its scenario's, then the menu's defaults; and the shape of its rate.

Each key comes from the most specific level that has it, also inside `lifetime`, `datasets`, `files` and `jobs`.
A level that names datasets or files (`did`, `containers`, `file`; `list`; `folder`) replaces the names of all
other levels. `build_shape` turns ramps, steps, pulses and daily curves into rates over time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate, cycle, islice, pairwise
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from dc_inject.menu.nodes import Complain, Place
from dc_inject.menu.schema import Datasets, Defaults, Document, Settings, ShapeEntry, Windowed
from dc_inject.menu.validation import MenuModel
from dc_inject.menu.values import Level
from dc_inject.model import (
    Control,
    DatasetFilter,
    FileFilter,
    Flow,
    JobOptions,
    Link,
    Order,
    ReadOptions,
    rates,
    units,
)
from dc_inject.model.items import MARK, Slicing
from dc_inject.model.services import DEFAULT, SERVICES, Service, titles
from dc_inject.model.shape import Point, Shape
from dc_inject.model.types import LONGEST, SHORTEST

ANY = (1, 2**63 - 1)  # bounds that let all pass
HIGHEST_SERVICE_PRIORITY = 3  # the default of Rucio and FTS: production is not overtaken


class Terms(NamedTuple):
    """A flow that has all but its scenario, ends and rate, and how its rate goes over time."""

    flow: Flow
    shape: ShapeEntry | None

    @property
    def service(self) -> Service:
        """The service that its bytes go through."""
        return self.flow.link.service


def terms(document: Document, levels: Sequence[Settings], place: Place, complain: Complain) -> Terms:
    """Put the terms of a link or scenario together; `levels` begin with the most special one."""
    start, end = _window(document, levels, complain)
    settings = _merged(levels)
    lifetime = _merged(level.lifetime for level in levels)
    shortest, longest = lifetime.get("min", SHORTEST), lifetime.get("max", LONGEST)
    if shortest > longest:
        complain(
            next(level.lifetime.place for level in levels if level.lifetime is not None),
            f"`lifetime`: min, {units.format_duration(shortest)}, is above max, {units.format_duration(longest)}",
            "write both: lifetime: {min: 1 h, max: 2 h}",
        )
    service: Service = settings.get("through", DEFAULT)
    files = {candidate for candidate in SERVICES.values() if candidate.takes_files}
    keys = {"files": files, "jobs": files, "reads": {one for one in files if one.reads}}
    _refuse_keys(levels[0], service, keys, complain)
    reads = _reads(levels) if service.reads else None
    datasets = (
        _files(levels, reads, place, complain) if service.takes_files else _datasets(levels, place, complain)
    )
    if settings.get("service_priority", 0) > HIGHEST_SERVICE_PRIORITY and not document.above_production:
        complain(
            next(level.at("service_priority") for level in levels if level.service_priority is not None),
            f"`service_priority` {settings['service_priority']} would overtake production",
            f"take {HIGHEST_SERVICE_PRIORITY} or less, or agree on it and write `above_production: true`",
        )
    flow = Flow(
        scenario="",
        link=Link("", "", service.name),
        rate=math.nan,
        start=start,
        end=end,
        datasets=datasets,
        order=_merged(level.datasets for level in levels).get("order", Order.LARGEST_FIRST),
        lifetime_min=shortest,
        lifetime_max=longest,
        job=JobOptions(**_merged(level.jobs for level in levels), reading=reads) if service.takes_files else None,
        slices=_slices(levels, service, complain),
        control=Control(**_merged(level.control for level in levels)),
        **{key: settings[key] for key in _AS_THEY_ARE if key in settings},
    )
    return Terms(flow, next((level.shape for level in levels if level.written("shape")), None))


_AS_THEY_ARE = ("grain", "type", "activity", "priority", "service_priority", "dwell", "overhead")


def window(document: Document) -> tuple[datetime, datetime]:
    """Return the menu's window; one that was not understood (and complained of) is taken as endless."""
    return document.start or datetime.min.replace(tzinfo=UTC), document.end or datetime.max.replace(tzinfo=UTC)


def _merged(models: Iterable[MenuModel | None]) -> dict[str, Any]:
    """Return the values of all models together; the first one that has a key counts."""
    written = [model for model in models if model is not None]
    return {key: value for model in reversed(written) for key, value in model if value is not None}


def _window(document: Document, levels: Sequence[Settings], complain: Complain) -> tuple[datetime, datetime]:
    earliest, latest = window(document)
    start, end = earliest, latest
    for level in reversed(levels):
        if not isinstance(level, Windowed):
            continue
        start, end = level.start or start, level.end or end
        if level.start is not None and not earliest <= level.start < latest:
            complain(level.at("start"), "`start` lies outside of the menu's window", "begin within it")
        elif level.end is not None and not earliest < level.end <= latest:
            complain(level.at("end"), "`end` lies outside of the menu's window", "end within it")
        elif (level.start or level.end) and start >= end:
            complain(
                level.at("end" if level.end else "start"),
                "the window ends before it starts",
                "`end` is later than `start`",
            )
    return start, end


def _slices(levels: Sequence[Settings], service: Service, complain: Complain) -> Slicing | None:
    """Return how datasets may be cut: not at all unless the menu has `slices`."""
    level = next(
        (
            candidate
            for candidate in levels
            if candidate.datasets is not None and candidate.datasets.slices is not None
        ),
        None,
    )
    slices = level.datasets.slices if level is not None and level.datasets is not None else None
    if level is None or slices is None or slices.never:
        return None
    if not service.has_slices:
        if not isinstance(level, Defaults):
            able = titles(candidate for candidate in SERVICES.values() if candidate.has_slices)
            hint = f"{service.title} takes as many {service.items} as fit: remove `slices`"
            complain(slices.place, f"`slices` is only for links through {able}", hint)
        return None
    if slices.scope is None and not slices.written("scope"):
        hint = "slices: {scope: user.dcops}, a scope in which the account may make datasets"
        complain(slices.place, "`slices` has no scope", hint)
    return None if slices.scope is None else Slicing(slices.scope, slices.name or MARK, slices.at_most or 0)


def _datasets(levels: Sequence[Settings], place: Place, complain: Complain) -> DatasetFilter:
    """Return which datasets are taken through Rucio."""
    chosen = next((level.datasets for level in levels if level.datasets and _selects(level.datasets)), None)
    if chosen is None and not any(level.written("datasets") and level.datasets is None for level in levels):
        hint = 'write `datasets: {did: "scope:pattern"}`, here or in `defaults`'
        complain(place, "no datasets are named for it", hint)
    return _filter(chosen or Datasets.model_construct(), levels)


def _selects(datasets: Datasets) -> bool:
    """Return whether datasets are named: a level with one of the three keys replaces all above it."""
    return any(map(datasets.written, ("did", "containers", "file")))


def _filter(chosen: Datasets, levels: Sequence[Settings], **bounds: tuple[int, int]) -> DatasetFilter:
    """Return a filter by name with the bounds of the levels, else those that are given."""
    settings = _merged(level.datasets for level in levels)
    return DatasetFilter(
        dids=tuple(sorted({*(chosen.did or ()), *(chosen.file or ())})),
        containers=tuple(sorted(set(chosen.containers or ()))),
        exclude=tuple(sorted(set(settings.get("exclude", ())))),
        **bounds | {key: settings[key] for key in ("files", "mean_file") if key in settings},
    )


def _reads(levels: Sequence[Settings]) -> ReadOptions:
    """Return how files are read by workers."""
    options = _merged(level.reads for level in levels)
    if "think" in options:
        options["think"] = options["think"].total_seconds()
    return ReadOptions(**options)


def _files(levels: Sequence[Settings], reads: ReadOptions | None, place: Place, complain: Complain) -> FileFilter:
    """Return which files are taken through FTS: of a list, of a folder, or of datasets that Rucio knows."""
    filters = _merged(level.files for level in levels)
    common: Any = {"pattern": filters.get("pattern", "*"), "size": filters.get("size", ANY), "reading": reads}
    for level in levels:
        files, datasets = level.files, level.datasets
        if files is not None and files.written("list"):
            if files.written("folder"):
                complain(files.at("folder"), "`files` has a list and a folder", "keep one of them")
            return FileFilter(listing=files.list_, **common)
        if files is not None and files.written("folder"):
            return FileFilter(folder=files.folder, **common)
        if datasets is not None and _selects(datasets):
            # Files are taken one by one, so the bounds of datasets do not matter unless the menu has them.
            return FileFilter(datasets=_filter(datasets, levels, files=ANY, mean_file=ANY), **common)
    if not any(level.written("files") and level.files is None for level in levels):
        complain(
            place,
            "no source files are named for it",
            "write `files: {list: sources.csv}`, `files: {folder: data}`, or `datasets: {did: ...}` of Rucio",
        )
    return FileFilter(**common)


def _refuse_keys(level: Settings, service: Service, able: Mapping[str, set[Service]], complain: Complain) -> None:
    """Complain of keys for a link or scenario whose service has no use for them; `defaults` may serve several."""
    for key, services in able.items():
        if service not in services and level.written(key) and not isinstance(level, Defaults):
            fitting = [one for one in SERVICES.values() if one in services]
            hint = f"write `through: {fitting[0].name}`, or remove `{key}`"
            complain(level.at(key), f"`{key}` is only for links through {titles(fitting)}", hint)


MOST_ROUNDS = 10_000  # of pulses or repeated steps in one window
DAY, SECOND = timedelta(days=1), timedelta(seconds=1)

_WAYS = ("constant", "ramp", "steps", "burst", "daily")
_ONLY_WITH = {"from": "ramp", "hold": "steps", "repeat": "steps", "pause": "burst", "low": "burst"}


def build_shape(terms: Terms, rate: float, zone: ZoneInfo, complain: Complain) -> Shape | None:
    """Return the shape of a rate, or None for a constant one, and after complaints.

    `rate` (bytes per second) is what levels that are written as rates are parts of.
    """
    entry, start, end = terms.shape, terms.flow.start, terms.flow.end
    if entry is None or not _is_one(entry, complain):
        return None
    way = next(way for way in _WAYS if entry.written(way))
    build = _BUILD.get(way)
    understood = not math.isnan(rate) and start.year >= 2000 and end.year < 2200
    if build is None or not understood:  # a constant; or something else was complained of
        return None
    shape = build(_Levels(entry, rate, zone, complain), start)
    if shape is None or not _fits(shape, end - start, entry, complain):
        return None
    if not any(point.level for point in shape.points):
        complain(entry.at(way), "the shape has no level above 0", "remove the link, or `exclude` it for a time")
        return None
    return _by_the_clock(shape, start, end, zone) if way == "daily" else shape


def _is_one(entry: ShapeEntry, complain: Complain) -> bool:
    """Complain unless a shape is of one kind, with no key of another one."""
    ways = [way for way in _WAYS if entry.written(way)]
    if not ways and entry.keys:
        return False  # an unknown key, perhaps: complained of
    if len(ways) != 1:
        message = f"the shape has {' and '.join(f'`{way}`' for way in ways)}" if ways else "the shape is empty"
        complain(entry.place, message, "write one of `ramp`, `steps`, `burst` and `daily`, or `shape: constant`")
        return False
    for key, way in _ONLY_WITH.items():
        if entry.written(key) and not entry.written(way):
            complain(entry.at(key), f"`{key}` cannot go with `{ways[0]}`", f"it goes with `{way}`")
            return False
    return True


class _Levels:
    """A shape's entry with its levels as parts of a rate."""

    def __init__(self, entry: ShapeEntry, rate: float, zone: ZoneInfo, complain: Complain) -> None:
        self.entry = entry
        self.zone = zone
        self._rate = rate
        self._complain = complain

    def as_fractions(self, key: str, *levels: Level | None) -> list[float]:
        """Return levels as parts of the rate, which is the highest."""
        parts = []
        for level in levels:
            part = 0.0 if level is None else level.part
            if level is not None and level.rate is not None:
                if rates.is_above(level.rate, self._rate):
                    message = f"{units.format_rate(level.rate)} is above the rate, {units.format_rate(self._rate)}"
                    self.complain(key, message, "`rate` is the highest level of a shape: raise it")
                part = min(level.rate / self._rate, 1.0)
            parts.append(part or 0.0)
        return parts

    def complain(self, key: str, message: str, hint: str) -> None:
        """Complain at a key of the shape."""
        self._complain(self.entry.at(key), f"`{key}`: {message}", hint)


def _ramp(levels: _Levels, start: datetime) -> Shape | None:
    entry = levels.entry
    if entry.ramp is None:
        return None
    (low,) = levels.as_fractions("from", entry.from_)
    return Shape(start, (Point(timedelta(0), low), Point(entry.ramp, 1.0)), kind="ramp")


def _steps(levels: _Levels, start: datetime) -> Shape | None:
    entry = levels.entry
    if not entry.steps:
        return None
    if not entry.written("hold"):
        levels.complain("steps", "there is no `hold`", "write how long a step lasts: `hold: 1 h`, or a list")
        return None
    if not entry.hold:
        return None
    wanted = len(entry.steps) - (0 if entry.repeat else 1)
    held = list(islice(cycle(entry.hold), wanted)) if len(entry.hold) == 1 else list(entry.hold)
    if len(held) != wanted:
        more = "one for each step" if entry.repeat else "one for each step but the last, which stays"
        levels.complain(
            "hold",
            f"{units.counted(len(held), 'times')} for {units.counted(len(entry.steps), 'steps')}",
            f"write one time, or {more}",
        )
        return None
    shape = _stairs(start, levels.as_fractions("steps", *entry.steps), held, "steps")
    return shape if entry.repeat else Shape(start, shape.points, kind="steps")


def _pulses(levels: _Levels, start: datetime) -> Shape | None:
    entry = levels.entry
    if entry.burst is None:
        return None
    if entry.pause is None:
        if not entry.written("pause"):
            levels.complain("burst", "there is no `pause`", "write how long it is: `pause: 1 h`")
        return None
    (low,) = levels.as_fractions("low", entry.low)
    return _stairs(start, [1.0, low], [entry.burst, entry.pause], "pulses")


def _daily(levels: _Levels, start: datetime) -> Shape | None:
    """Make a curve that goes by the clock of the zone as it is when the window begins, day after day."""
    entry = levels.entry
    if not entry.daily:
        return None
    daily = sorted(entry.daily.items())
    if len(daily) == 1:
        levels.complain("daily", "there is only one time", 'write two or more: {"06:00": 30 %, "12:00": 100 %}')
        return None
    parts = levels.as_fractions("daily", *(level for _, level in daily))
    points = [Point(at, part) for (at, _), part in zip(daily, parts, strict=True)]
    first, last = points[0], points[-1]
    midnight = last.level + (first.level - last.level) * ((DAY - last.at) / (DAY - last.at + first.at))
    if first.at:
        points.insert(0, Point(timedelta(0), midnight))
    local = start.astimezone(levels.zone).replace(tzinfo=None)
    begin = start - (local - local.replace(hour=0, minute=0, second=0, microsecond=0))
    return Shape(begin, (*points, Point(DAY, points[0].level)), DAY, "daily")


def _by_the_clock(shape: Shape, start: datetime, end: datetime, zone: ZoneInfo) -> Shape:
    """Let a daily curve jump where clocks are changed within its window; an hour may come twice in it."""
    turns = list(_turns(start, end, zone))
    if not turns:
        return shape
    points: list[Point] = []
    for first, last in pairwise([start, *turns, end]):
        later = _offset(first, zone) - _offset(start, zone)
        part = replace(shape, begin=shape.begin - later)
        points += [Point(at - start, float(part.level(at))) for at in (first, *part.corners(first, last))]
        points.append(Point(last - start, float(part.level(last, before=True))))
    return Shape(start, tuple(points), kind=shape.kind)


def _turns(start: datetime, end: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    """Yield the moments in (start, end) at which clocks are changed, to the second."""
    while start < end:
        low, high = start, min(start + DAY, end)
        start = high
        while _offset(low, zone) != _offset(high, zone):
            if high - low <= SECOND:
                yield high
                break
            middle = low + (high - low) // 2 // SECOND * SECOND
            low, high = (low, middle) if _offset(low, zone) != _offset(middle, zone) else (middle, high)


def _offset(moment: datetime, zone: ZoneInfo) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta(0)


def _stairs(start: datetime, parts: Sequence[float], held: Sequence[timedelta], kind: str) -> Shape:
    """Return levels that hold for a time each and come again; of one without its time only the begin counts."""
    ats = [timedelta(0), *accumulate(held)]
    points = [Point(ats[0], parts[0])]
    for at, before, after in zip(ats[1:], parts, [*parts[1:], None], strict=False):
        points.append(Point(at, before))
        if after is not None:
            points.append(Point(at, after))
    return Shape(start, tuple(points), ats[-1], kind)


def _fits(shape: Shape, window: timedelta, entry: ShapeEntry, complain: Complain) -> bool:
    """Complain of a shape that its window is too short or too long for."""
    last = shape.points[-1].at
    if window <= timedelta(0):
        return False
    if shape.period is not None and window / shape.period > MOST_ROUNDS:
        message = f"the shape comes {window // shape.period} times within its window"
        complain(entry.place, message, f"write longer times: at most {MOST_ROUNDS} are possible")
        return False
    if shape.period is None and last >= window:
        message = f"the shape needs {units.format_duration(last)} to its highest level, and its window is "
        complain(entry.place, message + units.format_duration(window), "shorten its times, or lengthen the window")
        return False
    return True


_BUILD: dict[str, Callable[[_Levels, datetime], Shape | None]] = {
    "ramp": _ramp,
    "steps": _steps,
    "burst": _pulses,
    "daily": _daily,
}
