"""Shapes of rates as menus write them: ramp, steps, pulses or a daily curve become levels over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import accumulate, cycle, islice, pairwise
from zoneinfo import ZoneInfo

from dc_inject.menu.nodes import Complain
from dc_inject.menu.schema import ShapeEntry
from dc_inject.menu.terms import Terms
from dc_inject.menu.values import Level
from dc_inject.model import rates, units
from dc_inject.model.shape import Point, Shape

MOST_ROUNDS = 10_000  # of pulses or repeated steps in one window
DAY, SECOND = timedelta(days=1), timedelta(seconds=1)

_WAYS = ("constant", "ramp", "steps", "burst", "daily")
_BESIDE = {"from": "ramp", "hold": "steps", "repeat": "steps", "pause": "burst", "low": "burst"}


def build_shape(terms: Terms, rate: float, zone: ZoneInfo, complain: Complain) -> Shape | None:
    """Return the shape of a rate, or None for a constant one, and after complaints.

    `rate` (bytes per second) is what levels that are told as rates are parts of.
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
    for key, way in _BESIDE.items():
        if entry.written(key) and not entry.written(way):
            complain(entry.at(key), f"`{key}` cannot go with `{ways[0]}`", f"it goes with `{way}`")
            return False
    return True


class _Levels:
    """A shape's entry with what its levels mean beside a rate."""

    def __init__(self, entry: ShapeEntry, rate: float, zone: ZoneInfo, complain: Complain) -> None:
        self.entry = entry
        self.zone = zone
        self._rate = rate
        self._complain = complain

    def as_fractions(self, key: str, *levels: Level | None, otherwise: float = 0.0) -> list[float]:
        """Return levels as parts of the rate, which is the highest."""
        parts = []
        for level in levels:
            part = otherwise if level is None else level.part
            if level is not None and level.rate is not None:
                if rates.exceeds(level.rate, self._rate):
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
        levels.complain("steps", "there is no `hold`", "say how long a step lasts: `hold: 1 h`, or a list")
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
            levels.complain("burst", "there is no `pause`", "say how long it is: `pause: 1 h`")
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
