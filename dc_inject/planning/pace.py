"""What is due when: the integral of the menu's rates over a cycle.

    due(flow, cycle) = integral of rate(flow, t) dt over the cycle

where rate(flow, t) is the menu's rate times the level of its shape inside the flow's window and outside
exclusions, else 0, plus its part of what `redistribute` takes from other flows of its scenario. Between borders
(of windows, exclusions and the cycle) the integral is exact (`rates.area`); what is redistributed there is
divided as the others' own integrals are. It is summed in fractions and rounded once, to the nearest byte.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise

from dc_inject.model import Cycle, Exclusion, Flow, FlowKey, Held, Hold, Link, rates
from dc_inject.model.groups import grouped

QUICKER, FASTER = 1.25, 2.0  # times what there was time for: after a cycle with too little of it, and another one

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Due:
    """Bytes due in a cycle; `held` is the hold that took time away, if any: all of it when `bytes` is 0."""

    bytes: int
    held: Held | None = None


@dataclass(slots=True)
class _Sum:
    """What is added up for one flow key: bytes, and microseconds lost."""

    amount: Fraction = Fraction(0)
    inside: int = 0
    excluded: int = 0
    reason: str = ""


def due(
    flows: Iterable[Flow],
    exclusions: Iterable[Exclusion],
    site_of: Mapping[str, str],
    start: datetime,
    end: datetime,
    since: datetime | None = None,
) -> dict[FlowKey, Due]:
    """Return what every flow key is due in [start, end); nothing is due before `since`, the first run.

    `site_of` gives the site of an RSE; an RSE without one is its own. Flows of one key with different windows
    (menus that follow each other) are added up. Keys come sorted.
    """
    begin = start if since is None else min(max(start, since), end)
    sums = _sums(flows, exclusions, site_of, begin, end)
    late, whole = (begin - start) // _MICROSECOND, (end - start) // _MICROSECOND
    return {key: _due(sums[key], late, whole) for key in sorted(sums)}


def rate(
    flows: Iterable[Flow], exclusions: Iterable[Exclusion], site_of: Mapping[str, str], moment: datetime
) -> dict[FlowKey, float]:
    """Return the rate of every flow key at one moment, in bytes per second: the target that metrics show."""
    sums = _sums(flows, exclusions, site_of, moment, moment + _MICROSECOND)
    return {key: float(sums[key].amount * 1_000_000) for key in sorted(sums)}


def select_flows(flows: Iterable[Flow], cycle: Cycle) -> dict[FlowKey, Flow]:
    """Return which flow speaks for each key in this cycle: the one that overlaps it most, of equals the later."""
    best: dict[FlowKey, tuple[timedelta, datetime, Flow]] = {}
    for flow in flows:
        overlap = max(min(flow.end, cycle.end) - max(flow.start, cycle.start), timedelta(0))
        best_so_far = best.get(flow.key)
        if best_so_far is None or (overlap, flow.start) >= best_so_far[:2]:
            best[flow.key] = overlap, flow.start, flow
    return {key: flow for key, (_, _, flow) in best.items()}


def time_for(counts: Sequence[tuple[int, int]]) -> int | None:
    """Return for how many rules or jobs there will be time in a cycle; None when that was no matter of late.

    `counts` are of the last cycles, the last one at the end: how many were made, and for how many there was no
    time. The most that were made count, and a quarter more, so that it shows when a service becomes faster; twice
    as many after a cycle that was given all. The backlog of an outage does not show how fast a service is.
    """
    most = max((submitted for submitted, _ in counts), default=0)
    if not most or not any(unsent for _, unsent in counts):
        return None
    return math.ceil(most * (QUICKER if counts[-1][1] else FASTER))


# --------------------------------------------------------------------------- the integral


def _sums(
    flows: Iterable[Flow],
    exclusions: Iterable[Exclusion],
    site_of: Mapping[str, str],
    start: datetime,
    end: datetime,
) -> dict[FlowKey, _Sum]:
    sums: dict[FlowKey, _Sum] = {}
    ours = [exclusion for exclusion in exclusions if exclusion.start < end and start < exclusion.end]
    for scenario in grouped((flow.scenario, flow) for flow in flows).values():
        for flow in scenario:
            sums.setdefault(flow.key, _Sum())  # every flow has a row, also one that is due nothing
        for left, right in _segments(scenario, ours, start, end):
            _add(sums, scenario, [e for e in ours if e.start <= left < e.end], site_of, left, right)
    return sums


def _segments(
    flows: Iterable[Flow], exclusions: Iterable[Exclusion], start: datetime, end: datetime
) -> Iterator[tuple[datetime, datetime]]:
    """Yield the parts of [start, end) in which no window or exclusion begins or ends."""
    borders = {start, end}
    for part in [(p.start, p.end) for p in flows] + [(p.start, p.end) for p in exclusions]:
        borders.update(border for border in part if start < border < end)
    yield from pairwise(sorted(borders))


def _add(
    sums: Mapping[FlowKey, _Sum],
    flows: Iterable[Flow],
    exclusions: Sequence[Exclusion],
    site_of: Mapping[str, str],
    left: datetime,
    right: datetime,
) -> None:
    """Add what the flows of one scenario are due in [left, right), in which nothing begins or ends."""
    span = (right - left) // _MICROSECOND
    given, freed = [], Fraction(0)
    for flow in flows:
        if not (flow.start <= left < flow.end):
            continue
        part = sums[flow.key]
        part.inside += span
        why = [e for e in exclusions if covers(e, flow.scenario, flow.link, site_of)]
        if not why:
            given.append(flow)
            continue
        part.excluded += span
        part.reason = why[0].reason
        if any(exclusion.redistribute for exclusion in why):
            freed += rates.area(flow, left, right)
    parts = [rates.area(flow, left, right) for flow in given]
    if freed and any(parts):
        more = 1 + freed / sum(parts)
        parts = [own * more for own in parts]
    for flow, own in zip(given, parts, strict=True):
        sums[flow.key].amount += own


def covers(exclusion: Exclusion, scenario: str, link: Link, site_of: Mapping[str, str]) -> bool:
    """Whether an exclusion is about a link in a scenario; `site_of` gives the site of an RSE."""
    ends = link.ends
    return (
        (exclusion.scenario != "" and exclusion.scenario == scenario)
        or (exclusion.link != "" and exclusion.link == str(link))
        or (exclusion.rse != "" and exclusion.rse in ends)
        or (exclusion.site != "" and exclusion.site in {site_of.get(end, end) for end in ends})
    )


def _due(part: _Sum, late: int, whole: int) -> Due:
    """Round one sum to bytes, and name what took most of the time away."""
    lost = {Hold.NOT_RUNNING: late, Hold.OUTSIDE_WINDOW: whole - late - part.inside, Hold.EXCLUDED: part.excluded}
    hold = max(lost, key=lambda which: lost[which])
    held = None
    if lost[hold] > 0:
        numbers: dict[str, int | float | str] = {"seconds": lost[hold] / 1e6, "of": whole / 1e6}
        if hold is Hold.EXCLUDED:
            numbers["reason"] = part.reason
        held = Held(hold, numbers)
    return Due(round(part.amount), held)
