"""What changes from one campaign, or menu, to another: rates and volumes of links, scenarios, sites, and all."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeAlias

from dc_inject.model import Campaign, Flow, FlowKey, rates, units, urls
from dc_inject.model.groups import grouped

NEAR = 1e-9  # to which rates and volumes are compared: what floats may lose

Subject: TypeAlias = tuple[str, str, str]  # kind (link, scenario, site or total), scenario or direction, name
_TERMS = {field.name for field in dataclasses.fields(Flow)} - {
    *("scenario", "link", "rate", "goal", "start", "end", "shape", "menu", "line", "stated"),
}


@dataclass(frozen=True, slots=True)
class Difference:
    """What changes for one subject: its highest rate (bytes per second), and its volume (bytes) over all its time.

    `kind` is link, scenario, site or total; `scenario` is that of a link; `direction` is that of a site.
    """

    kind: str
    name: str
    before: float
    after: float
    volume_before: float
    volume_after: float
    scenario: str = ""
    direction: str = ""


def changes(before: Campaign, after: Campaign) -> tuple[Difference, ...]:
    """Return what changes, nothing that stays: links first, then scenarios, sites and the total."""
    left, right = _subjects(before), _subjects(after)
    changed = []
    for subject in sorted({*left, *right}, key=lambda subject: (_KINDS.index(subject[0]), subject)):
        kind, more, name = subject
        amounts = [_amounts(flows.get(subject, [])) for flows in (left, right)]
        if not all(near(old, new) for old, new in zip(*amounts, strict=True)):
            (rate, volume), (new_rate, new_volume) = amounts
            scenario, direction = (more, "") if kind == "link" else ("", more)
            changed.append(Difference(kind, name, rate, new_rate, volume, new_volume, scenario, direction))
    return tuple(changed)


def others(before: Campaign, after: Campaign) -> Iterator[str]:
    """Yield in words what else differs: times, shapes, terms of links, exclusions and limits.

    Of two campaigns of the same length, times count from the start of each, as days are compared.
    """
    later = after.start - before.start
    shift = later if before.end + later == after.end else timedelta(0)
    if shift:
        yield f"it begins {units.format_duration(abs(shift))} {'later' if shift > timedelta(0) else 'earlier'}"
    left, right = _by_key(before.flows), _by_key(after.flows)
    times, terms = set(), set()
    names: set[str] = set()
    for key in left.keys() & right.keys():
        if len(left[key]) != len(right[key]):
            times.add(key)
            continue
        for flow, other in zip(left[key], right[key], strict=True):
            if (flow.start + shift, flow.end + shift) != (other.start, other.end) or not _alike(
                flow, other, shift
            ):
                times.add(key)
            differing = {term for term in _TERMS if getattr(flow, term) != getattr(other, term)}
            if not same_goal(flow, other):
                differing.add("volume or keep")
            if differing:
                terms.add(key)
                names |= differing
    if times:
        yield f"{units.counted(len(times), 'links')} at other times or with other shapes"
    if terms:
        yield f"{units.counted(len(terms), 'links')} with other terms: {', '.join(sorted(names))}"
    for what in ("exclusions", "limits"):
        if [getattr(menu, what) for menu in before.menus] != [getattr(menu, what) for menu in after.menus]:
            yield f"other {what}"


def sentence(before: Campaign, after: Campaign, most: int = 5) -> str:
    """Return one line on what changes: at most so many links with their rates, and other differences."""
    links = [change for change in changes(before, after) if change.kind == "link"]
    parts = [
        f"{change.scenario} {urls.arrow(change.name)} {_rate(change.before)} -> {_rate(change.after)}"
        for change in links[:most]
    ]
    if len(links) > most:
        parts.append(f"and {units.counted(len(links) - most, 'links')} more")
    total = [rates.peak(campaign.flows).rate for campaign in (before, after)]
    if not near(*total):
        parts.append(f"in total {_rate(total[0])} -> {_rate(total[1])}")
    return "; ".join([*parts, *others(before, after)]) or "nothing in their links"


def _rate(rate: float) -> str:
    return units.format_rate(rate) if rate else "nothing"


_KINDS = ("link", "scenario", "site", "total")


def _subjects(campaign: Campaign) -> dict[Subject, list[Flow]]:
    carried = rates.with_landed(campaign.flows)
    flows_of: dict[Subject, list[Flow]] = {("total", "", "total"): carried}
    flows_of |= grouped((("link", flow.scenario, str(flow.link)), flow) for flow in carried)
    flows_of |= grouped((("scenario", "", flow.scenario), flow) for flow in carried)
    sites = rates.site_of(campaign)
    for (name, direction), flows in rates.by_site(carried, sites).items():
        flows_of["site", direction, name] = flows
    return flows_of


def _amounts(flows: list[Flow]) -> tuple[float, float]:
    """Return the highest rate of some flows, and what they will be given if all goes well."""
    volume = sum(rates.planned(flow, flow.start, flow.end) for flow in flows)
    return rates.peak(flows).rate, float(volume)


def _by_key(flows: Iterable[Flow]) -> dict[FlowKey, list[Flow]]:
    return grouped((flow.key, flow) for flow in sorted(flows, key=lambda flow: flow.start))


def _alike(flow: Flow, other: Flow, shift: timedelta) -> bool:
    """Return whether two shapes are the same, but for what floats may lose."""
    if flow.shape is None or other.shape is None:
        return flow.shape == other.shape
    pairs = list(zip(flow.shape.points, other.shape.points, strict=False))
    return (
        (flow.shape.begin + shift, flow.shape.period) == (other.shape.begin, other.shape.period)
        and len(flow.shape.points) == len(other.shape.points)
        and all(a.at == b.at and abs(a.level - b.level) <= NEAR for a, b in pairs)
    )


def same_goal(flow: Flow, other: Flow) -> bool:
    """Return whether two flows have the same goal, but for what rounding may lose."""
    if flow.goal is None or other.goal is None:
        return flow.goal == other.goal
    return replace(flow.goal, bytes=0) == replace(other.goal, bytes=0) and near(flow.goal.bytes, other.goal.bytes)


def near(first: float, second: float) -> bool:
    """Return whether two rates or volumes are the same, but for what floats may lose, and a byte."""
    return abs(first - second) <= NEAR * max(first, second) + 1
