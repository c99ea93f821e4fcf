"""Rates of flows over a window of time: their integral, their mean, and the largest sum at any one moment.

Their sites: whose rates sum up where.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from dc_inject.model import shape, units
from dc_inject.model.goals import SecondHop, Volume
from dc_inject.model.shape import Piece, Shape
from dc_inject.model.types import Campaign, Flow, Menu

_MICROSECOND = timedelta(microseconds=1)
_ONE = Fraction(1)
_ROUNDING = 1e-6  # of sums of rates and sizes, relative


class Peak(NamedTuple):
    """The largest sum of rates (bytes per second) at any one time, and the largest flow of those that it sums."""

    rate: float
    flow: Flow | None


def area(flow: Flow, start: datetime, end: datetime) -> Fraction:
    """Return the bytes that a flow asks for in [start, end) by its rate and window, exact."""
    begin, last = max(start, flow.start), min(end, flow.end)
    if begin >= last:
        return Fraction(0)
    if flow.shape is None:
        return _constant(flow.rate, (last - begin) // _MICROSECOND)
    return Fraction(flow.rate) * shape.area(flow.shape, begin, last) / 1_000_000


@lru_cache(maxsize=1 << 14)  # a link with a constant rate has the same in each cycle
def _constant(rate: float, microseconds: int) -> Fraction:
    return Fraction(rate) * microseconds / 1_000_000


def planned(flow: Flow, start: datetime, end: datetime) -> Fraction:
    """Return what a flow will be given in [start, end) if all goes well: bytes, exact.

    A volume is given at its rate from the begin of its window until it is there.
    """
    if not isinstance(flow.goal, Volume):
        return area(flow, start, end)
    whole = Fraction(flow.goal.bytes)
    before, after = (min(area(flow, flow.start, moment), whole) for moment in (start, max(start, end)))
    return after - before


def shorten_to_goal(flow: Flow) -> Flow:
    """Return a flow with the window that it needs if all goes well: that of a volume ends when it is there."""
    if not isinstance(flow.goal, Volume):
        return flow
    size, whole = flow.goal.bytes, range((flow.end - flow.start) // _MICROSECOND)

    def suffices(length: int) -> bool:
        return area(flow, flow.start, flow.start + length * _MICROSECOND) >= size

    length = bisect_left(whole, True, key=suffices)  # the integral never falls
    return replace(flow, end=flow.start + length * _MICROSECOND)


def scaled(flow: Flow, factor: float) -> Flow:
    """Return a flow with its rate and goal multiplied."""
    goal = None if flow.goal is None else flow.goal.scaled(factor)
    return replace(flow, rate=flow.rate * factor, goal=goal)


def with_landed(flows: Iterable[Flow]) -> list[Flow]:
    """Return flows in their order, each second hop with a goal of its own: the volume of all that lands for it."""
    all_flows = list(flows)
    landed: dict[tuple[str, str, str], Fraction] = defaultdict(Fraction)
    for flow in all_flows:
        if not isinstance(flow.goal, SecondHop):
            place = flow.scenario, flow.link.destination, flow.link.through
            landed[place] += planned(flow, flow.start, flow.end)
    return [
        replace(flow, goal=Volume(int(landed[flow.scenario, flow.link.source, flow.link.through])))
        if isinstance(flow.goal, SecondHop)
        else flow
        for flow in all_flows
    ]


def at(flow: Flow, moment: datetime, *, before: bool = False) -> float:
    """Return the rate of a flow at a moment, or just before it; bytes per second, 0 outside of its window."""
    inside = flow.start < moment <= flow.end if before else flow.start <= moment < flow.end
    if not inside:
        return 0.0
    return flow.rate if flow.shape is None else flow.rate * float(flow.shape.level(moment, before=before))


def mean(flows: Iterable[Flow], start: datetime, end: datetime) -> float:
    """Return the mean of what flows are given in [start, end), bytes per second; NaN when a rate is not known."""
    all_flows = list(flows)
    if any(math.isnan(flow.rate) for flow in all_flows):
        return math.nan
    return float(sum((planned(flow, start, end) for flow in all_flows), start=Fraction(0)) / _seconds(end - start))


def peak(flows: Iterable[Flow], start: datetime | None = None, end: datetime | None = None) -> Peak:
    """Return the largest sum of rates at any one time of [start, end), or ever; NaN when a rate is not known."""
    all_flows = list(flows)
    if any(math.isnan(flow.rate) for flow in all_flows):
        return Peak(math.nan, None)
    when = _highest(all_flows, start, end)
    if when is None:
        return Peak(0.0, None)
    moment, before = when
    rates = [at(flow, moment, before=before) for flow in all_flows]
    # Summed again: the running total has gathered the rounding of all earlier changes.
    return Peak(math.fsum(rates), all_flows[max(range(len(all_flows)), key=lambda index: rates[index])])


class Excess(NamedTuple):
    """Rates of menus in force when one begins, above the lowest `limits.total` of them; bytes per second."""

    menu: Menu
    together: tuple[Menu, ...]
    rate: float
    limit: float

    def __str__(self) -> str:
        return (
            f"the rates sum to {units.format_rate(self.rate)}, above limits.total, {units.format_rate(self.limit)}"
        )


def is_above(value: float, limit: float) -> bool:
    """Return whether a rate or size is above a limit by more than rounding may add."""
    return value > limit * (1 + _ROUNDING)


def over_total(menus: Sequence[Menu]) -> Iterator[Excess]:
    """Yield what exceeds `limits.total`: where windows overlap, the lowest limit holds for the sum."""
    starts: dict[tuple[str, ...], Excess] = {}
    for menu in menus:
        together = tuple(other for other in menus if other is menu or other.start <= menu.start < other.end)
        rate = peak(flow for other in together for flow in other.flows).rate
        limit = min(other.limits.total for other in together)
        starts[tuple(other.name for other in together)] = Excess(menu, together, rate, limit)
    yield from (excess for excess in starts.values() if is_above(excess.rate, excess.limit))


def site_of(campaign: Campaign) -> dict[str, str]:
    """Return the site of every RSE that the menus place."""
    return {rse: site.name for menu in campaign.menus for site in menu.sites for rse in site.rses}


def by_site(flows: Iterable[Flow], sites: Mapping[str, str]) -> dict[tuple[str, str], list[Flow]]:
    """Return the flows into and out of each site: (site, `ingress` or `egress`); an RSE without a site is its own.

    Traffic inside of a site does not cross its WAN.
    """
    sums: dict[tuple[str, str], list[Flow]] = {}
    for flow in flows:
        source, destination = (sites.get(end, end) for end in flow.link.ends)
        if source != destination:
            sums.setdefault((source, "egress"), []).append(flow)
            sums.setdefault((destination, "ingress"), []).append(flow)
    return sums


def _highest(flows: Iterable[Flow], start: datetime | None, end: datetime | None) -> tuple[datetime, bool] | None:
    """Return when the sum of rates is highest, and whether that is just before the moment; None if it is always 0.

    The sum is a straight line between the moments at which any of the rates jumps or turns.
    """
    groups: dict[tuple[datetime, datetime, Shape | None], float] = defaultdict(float)
    for flow in flows:  # links that share a rate have one shape and one window
        first = flow.start if start is None else max(start, flow.start)
        last = flow.end if end is None else min(end, flow.end)
        groups[first, last, flow.shape] += flow.rate
    changes: dict[datetime, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))  # of the rate, and of its slope
    for (first, last, form), rate in groups.items():
        whole = [Piece(first, last, _ONE, _ONE)] if first < last else []
        for piece in whole if form is None else form.pieces(first, last):
            slope = rate * float((piece.last - piece.first) / _seconds(piece.end - piece.start))
            for moment, sign, level in ((piece.start, 1, piece.first), (piece.end, -1, piece.last)):
                jump, turn = changes[moment]
                changes[moment] = jump + sign * rate * float(level), turn + sign * slope
    return _top(changes)


def _top(changes: dict[datetime, tuple[float, float]]) -> tuple[datetime, bool] | None:
    """Go through jumps and turns of a sum that begins at 0; return where it is highest."""
    total, slope, best = 0.0, 0.0, 0.0
    last, when = None, None
    for moment in sorted(changes):
        total += slope * (moment - last).total_seconds() if last is not None and slope else 0.0
        if total > best * (1 + 1e-12):
            best, when = total, (moment, True)
        jump, turn = changes[moment]
        total, slope, last = total + jump, slope + turn, moment
        if total > best * (1 + 1e-12):
            best, when = total, (moment, False)
    return when


def _seconds(span: timedelta) -> Fraction:
    return Fraction(span // _MICROSECOND, 1_000_000)
