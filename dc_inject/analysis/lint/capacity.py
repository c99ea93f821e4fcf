"""What a campaign asks of spaces, quotas and datasets, and whether they can give it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from dc_inject.analysis.footprint import Assumptions, footprint, known_items
from dc_inject.model import Campaign, DatasetFilter, Flow, Menu, Site, rates, units
from dc_inject.model.errors import Problem

Finding = tuple[Menu, Problem]
Use = tuple[Menu, Flow]
HOUR = 3600.0


def findings(campaign: Campaign) -> Iterator[Finding]:
    """Yield findings with the menu that may accept each."""
    uses = [(of, flow) for of in campaign.menus for flow in of.flows]
    yield from _spaces(campaign, uses)
    yield from coarse(uses, smallest)


def _spaces(campaign: Campaign, uses: Sequence[Use]) -> Iterator[Finding]:
    """Find RSEs that would be overfilled even if all rules had the shortest lifetime."""
    specs = [spec for of in campaign.menus for site in of.sites for spec in site.rses.values()]
    if all(spec.space is None for spec in specs):
        return
    for row in footprint([by_rse(campaign)], Assumptions()).by("site"):
        if row.space is None or not rates.exceeds(row.peak.shortest, row.space):
            continue
        of, flow = largest(use for use in uses if use[1].link.destination == row.group.name)
        needed = f"{units.format_size(row.peak.shortest)} of {units.format_size(row.space)}"
        shortest = units.format_duration(flow.lifetime_min)
        message = (
            f"{units.format_rate(row.peak.arriving)} into {row.group.name} need {needed}, even with the shortest "
            f"lifetime, {shortest}: the rest will be held (destination-full)"
        )
        hint = "lower the rates, shorten `lifetime: {min: ...}`, or ask the site for space"
        yield of, Problem(flow.menu, flow.line, message, hint, "space-overfilled")


def space_findings(
    campaign: Campaign, free: Mapping[str, int], quota: Mapping[str, int], expired: Mapping[str, int]
) -> Iterator[Finding]:
    """Yield findings about RSEs with too little room; each mapping has bytes of the RSEs of which they are known.

    `free` is space that nobody has filled, `quota` what the account may still put there, `expired` what may be
    deleted and is still there.
    """
    uses = [(of, flow) for of in campaign.menus for flow in of.flows]
    for row in footprint([by_rse(campaign)]).by("site"):
        rse, peak = row.group.name, row.peak
        if not peak.arriving:
            continue
        of, flow = largest(use for use in uses if use[1].link.destination == rse)
        needs = f"{units.format_rate(peak.arriving)} into {rse} need"
        place = flow.menu, flow.line
        if rse in free and rates.exceeds(peak.shortest, free[rse]):
            message = f"{needs} {units.format_size(peak.shortest)} even with the shortest lifetime, and "
            message += f"{units.format_size(free[rse])} are free"
            hint = "ask the site to free space, or lower the rates"
            yield of, Problem(*place, message, hint, "free-space")
        if rse in quota and rates.exceeds(peak.quota, quota[rse]):
            message = f"{needs} a quota of {units.format_size(peak.quota)} and one dataset more, and "
            message += f"{units.format_size(quota[rse])} of it are left"
            hint = "ask for a larger limit there, or shorten the rules' lifetime"
            yield of, Problem(*place, message, hint, "account-limit")
        if expired.get(rse, 0) > peak.arriving * HOUR:
            message = f"{rse} has {units.format_size(expired[rse])} that have expired and are not deleted yet, "
            message += f"more than the campaign brings there in an hour, {units.format_size(peak.arriving * HOUR)}"
            hint = "ask the site to delete it before the start, since it would delay our deletions"
            yield of, Problem(*place, message, hint, "expired-data")


def by_rse(campaign: Campaign) -> Campaign:
    """Return the campaign with each RSE as a site of its own, so that a footprint has rows for them."""
    menus = []
    for menu in campaign.menus:
        specs = [pair for site in menu.sites for pair in site.rses.items()]
        menus.append(replace(menu, sites=tuple(Site(rse, rses={rse: spec}) for rse, spec in specs)))
    return replace(campaign, menus=tuple(menus))


def coarse(uses: Iterable[Use], smallest_of: Callable[[Flow], int]) -> Iterator[Finding]:
    """Find links too slow for one dataset an hour, of what they may take; one finding for a scenario."""
    slow: dict[tuple[str, str], list[tuple[float, int, Use]]] = {}
    for use in uses:
        flow, least = use[1], smallest_of(use[1])
        hour = rates.peak([flow]).rate * (1 + flow.overhead) * 3600
        if flow.slices is None and hour > 0 and rates.exceeds(least, hour):
            slow.setdefault((flow.menu, flow.scenario), []).append((hour, least, use))
    for (_, scenario), slow_uses in slow.items():
        hour, least, (of, flow) = min(slow_uses, key=lambda slow_use: slow_use[0] / slow_use[1])
        message = (
            f"{flow.link.shown}{and_more(len(slow_uses) - 1, scenario)} moves "
            f"{units.format_size(hour)} an hour, less than the smallest dataset or file that it may take, "
            f"{units.format_size(least)}: it will have traffic only from time to time"
        )
        hint = "allow smaller datasets for this link, or `slices` of them"
        yield of, Problem(flow.menu, flow.line, message, hint, "coarse-datasets")


def and_more(number: int, scenario: str) -> str:
    """Return what a finding about one link adds for so many more of its scenario."""
    return f" (and {units.counted(number, 'more links')} of {scenario})" if number else ""


def smallest(flow: Flow) -> int:
    """Return the bytes of the smallest dataset or file that a flow may take, as far as its menu tells."""
    items = known_items(flow, None)
    if items:
        return min(item.bytes for item in items)
    if isinstance(flow.datasets, DatasetFilter):
        return flow.datasets.files[0] * flow.datasets.mean_file[0]
    return flow.datasets.size[0]


def largest(uses: Iterable[Use]) -> Use:
    """Return the flow with the highest rate: the place where a finding about several is told."""
    return max(uses, key=lambda use: use[1].rate)
