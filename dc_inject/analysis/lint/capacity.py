"""Findings on capacity: too little space or quota, and datasets that are too few or too coarse."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

from dc_inject.analysis.footprint.adding import footprint
from dc_inject.analysis.footprint.load import Assumptions, list_known_items
from dc_inject.model import Campaign, DatasetFilter, Flow, Item, Menu, PoolKey, RseSpec, Site, rates, units
from dc_inject.model.errors import Problem
from dc_inject.model.goals import Keep, SecondHop, Volume
from dc_inject.model.groups import grouped
from dc_inject.planning import lifetime

Finding = tuple[Menu, Problem]
Use = tuple[Menu, Flow]
HOUR = 3600.0


def capacity_findings(campaign: Campaign) -> Iterator[Finding]:
    """Yield findings with the menu that may accept each."""
    uses = [(of, flow) for of in campaign.menus for flow in of.flows]
    yield from _spaces(campaign, uses)
    yield from _buffers(campaign)
    yield from coarse(uses, smallest)


def _spaces(campaign: Campaign, uses: Sequence[Use]) -> Iterator[Finding]:
    """Find RSEs that would be overfilled even if all rules had the shortest lifetime."""
    specs = [spec for of in campaign.menus for site in of.sites for spec in site.rses.values()]
    if all(spec.space is None for spec in specs):
        return
    for row in footprint([split_sites(campaign)], Assumptions()).by("site"):
        if row.space is None or not rates.is_above(row.peak.shortest, row.space):
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


def _buffers(campaign: Campaign) -> Iterator[Finding]:
    """Find tape systems whose buffer does not hold what their drives read in two cycles: drives stand idle."""
    for of in campaign.menus:
        for site in of.sites:
            recalls = [(of, flow) for flow in of.flows if site.tape and flow.link.source in site.tape.ends]
            if site.tape is None or not recalls:
                continue
            rate = min(site.tape.rate, rates.peak(flow for _, flow in recalls).rate)
            if rates.is_above(needed := rate * 2 * of.cycle.total_seconds(), site.tape.buffer):
                message = f"recalls from {site.name} need {units.format_size(needed)} of its tape buffer for two "
                message += f"cycles, and `buffer` is {units.format_size(site.tape.buffer)}: drives will stand idle"
                _, flow = largest(recalls)
                hint = "ask for a larger buffer, lower the rate, or shorten the cycle"
                yield of, Problem(flow.menu, flow.line, message, hint, "tape-buffer")


def space_findings(
    campaign: Campaign, free: Mapping[str, int], quota: Mapping[str, int], expired: Mapping[str, int]
) -> Iterator[Finding]:
    """Yield findings about RSEs with too little room; each mapping has bytes of the RSEs of which they are known.

    `free` is space that is not filled, `quota` what the account may still put there, `expired` what may be
    deleted and is still there.
    """
    uses = [(of, flow) for of in campaign.menus for flow in of.flows]
    for row in footprint([split_sites(campaign)]).by("site"):
        rse, peak = row.group.name, row.peak
        if not peak.arriving:
            continue
        of, flow = largest(use for use in uses if use[1].link.destination == rse)
        needs = f"{units.format_rate(peak.arriving)} into {rse} need"
        place = flow.menu, flow.line
        if rse in free and rates.is_above(peak.shortest, free[rse]):
            message = f"{needs} {units.format_size(peak.shortest)} even with the shortest lifetime, and "
            message += f"{units.format_size(free[rse])} are free"
            hint = "ask the site to free space, or lower the rates"
            yield of, Problem(*place, message, hint, "free-space")
        if rse in quota and rates.is_above(peak.quota, quota[rse]):
            message = f"{needs} a quota of {units.format_size(peak.quota)} and one dataset more, and "
            message += f"{units.format_size(quota[rse])} of it are left"
            hint = "ask for a larger limit there, or shorten the rules' lifetime"
            yield of, Problem(*place, message, hint, "account-limit")
        if expired.get(rse, 0) > peak.arriving * HOUR:
            message = f"{rse} has {units.format_size(expired[rse])} that have expired and are not deleted yet, "
            message += f"more than the campaign brings there in an hour, {units.format_size(peak.arriving * HOUR)}"
            hint = "ask the site to delete it before the start, since it would delay our deletions"
            yield of, Problem(*place, message, hint, "expired-data")


def split_sites(campaign: Campaign) -> Campaign:
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
        if flow.slices is None and hour > 0 and rates.is_above(least, hour):
            slow.setdefault((flow.menu, flow.scenario), []).append((hour, least, use))
    for (_, scenario), slow_uses in slow.items():
        hour, least, (of, flow) = min(slow_uses, key=lambda slow_use: slow_use[0] / slow_use[1])
        message = (
            f"{flow.link.shown}{add_rest(len(slow_uses) - 1, scenario)} moves "
            f"{units.format_size(hour)} an hour, less than the smallest dataset or file that it may take, "
            f"{units.format_size(least)}: it will have traffic only from time to time"
        )
        hint = "allow smaller datasets for this link, or `slices` of them"
        yield of, Problem(flow.menu, flow.line, message, hint, "coarse-datasets")


def add_rest(number: int, scenario: str) -> str:
    """Return what a finding about one link adds for so many more of its scenario."""
    return f" (and {units.counted(number, 'more links')} of {scenario})" if number else ""


def smallest(flow: Flow) -> int:
    """Return the bytes of the smallest dataset or file that a flow may take, as far as its menu shows."""
    items = list_known_items(flow, None)
    if items:
        return min(item.bytes for item in items)
    if isinstance(flow.datasets, DatasetFilter):
        return flow.datasets.files[0] * flow.datasets.mean_file[0]
    return flow.datasets.size[0]


def largest(uses: Iterable[Use]) -> Use:
    """Return the flow with the highest rate: the place where a finding about several is reported."""
    return max(uses, key=lambda use: use[1].rate)


class PoolSize(NamedTuple):
    """What a source has for a filter: how many datasets, their bytes, and the bytes of the smallest.

    `named` are those that the filter names, within its bounds and exclusions or not (None: not known).
    """

    datasets: int
    bytes: int
    smallest: int
    named: int | None = None

    @classmethod
    def of(cls, items: Iterable[Item]) -> PoolSize:
        """Add items up, one by one."""
        number = total = smallest = 0
        for item in items:
            number, total = number + 1, total + item.bytes
            smallest = min(smallest or item.bytes, item.bytes)
        return cls(number, total, smallest)


def pool_findings(campaign: Campaign, sizes: Mapping[PoolKey, PoolSize], *, may_end: bool) -> Iterator[Finding]:
    """Yield findings about links through Rucio whose source has too little, or nothing small enough.

    A dataset goes to a destination again only when it is gone there, so that a link needs rate x (lifetime + lag):
    the shortest lifetime where rules may be ended as they complete, else the longest. What goes on in a second hop
    comes with the first one, whatever is there now.
    """
    uses = [
        (menu, flow)
        for menu in campaign.menus
        for flow in menu.flows
        if flow.link.service.unique and flow.pool in sizes and not isinstance(flow.goal, SecondHop)
    ]
    yield from _empty(uses, sizes)
    stocked = [use for use in uses if sizes[use[1].pool].datasets]
    yield from _small(campaign, stocked, sizes, may_end=may_end)
    yield from _volumes(stocked, sizes)

    def least(flow: Flow) -> int:
        of_menu, of_source = smallest(flow), sizes[flow.pool].smallest
        # Findings of the menu alone come from elsewhere.
        return of_source if rates.peak([flow]).rate * HOUR >= of_menu else 0

    yield from coarse(stocked, least)


def _empty(uses: Iterable[Use], sizes: Mapping[PoolKey, PoolSize]) -> Iterator[Finding]:
    empty: set[PoolKey] = set()
    for menu, flow in uses:
        if not sizes[flow.pool].datasets and flow.pool not in empty:
            empty.add(flow.pool)
            named = sizes[flow.pool].named
            message = f"{flow.link.source} has no dataset that the menu takes"
            chosen = flow.pool.datasets
            of = chosen if isinstance(chosen, DatasetFilter) else chosen.datasets
            if named and of is not None:
                low, high = map(units.format_size, of.mean_file)
                message += (
                    f": {units.counted(named, 'datasets')} have the names, and none is within `files` "
                    f"({of.files[0]:,} to {of.files[1]:,}), `mean_file` ({low} to {high}) and `exclude`"
                )
            where = "`files`, `mean_file` and `exclude`" if named else "`datasets`"
            hint = f"look at {where}; if they come later: `accept: [no-source-files]`"
            yield menu, Problem(flow.menu, flow.line, message, hint, "no-source-files")


def _small(
    campaign: Campaign, uses: Iterable[Use], sizes: Mapping[PoolKey, PoolSize], *, may_end: bool
) -> Iterator[Finding]:
    specs = {rse: spec for menu in campaign.menus for site in menu.sites for rse, spec in site.rses.items()}
    short: dict[tuple[str, str], list[tuple[float, timedelta, Use]]] = {}
    for menu, flow in uses:
        if flow.goal is not None and not isinstance(flow.goal, Keep):
            continue  # the same datasets again, or each of them once: see below
        lag = specs.get(flow.link.destination, RseSpec()).deletion_lag + campaign.cycle
        stay = lifetime.horizon(flow.lifetime_min if may_end else flow.lifetime_max, lag, flow.end - flow.start)
        need = rates.peak([flow]).rate * (1 + flow.overhead) * stay.total_seconds()
        if rates.is_above(need, sizes[flow.pool].bytes):
            short.setdefault((flow.menu, flow.scenario), []).append((need, stay, (menu, flow)))
    for (_, scenario), short_here in short.items():
        need, stay, (menu, flow) = max(short_here, key=lambda link: link[0] / sizes[link[2][1].pool].bytes)
        size = sizes[flow.pool]
        message = (
            f"{flow.link.shown}{add_rest(len(short_here) - 1, scenario)} needs {units.format_size(need)} of "
            f"different datasets in the {units.format_duration(stay)} until they may be used again, and "
            f"{flow.link.source} has {size.datasets} with {units.format_size(size.bytes)}: the rest will be held "
            "(pool-dry)"
        )
        yield menu, Problem(flow.menu, flow.line, message, "use more datasets, or lower the rate", "pool-small")


def _volumes(uses: Iterable[Use], sizes: Mapping[PoolKey, PoolSize]) -> Iterator[Finding]:
    """Find volumes that are more than their source has: each dataset goes out once in its scenario."""
    volumes = (use for use in uses if isinstance(use[1].goal, Volume))
    for (scenario, pool), sharing in grouped(((use[1].scenario, use[1].pool), use) for use in volumes).items():
        need, size = sum({use[1].key: use[1].goal.bytes for use in sharing if use[1].goal}.values()), sizes[pool]
        if rates.is_above(need, size.bytes):
            menu, flow = sharing[0]
            message = (
                f"the volumes of {scenario} from {pool.source} are {units.format_size(need)}, "
                f"each dataset once, and {pool.source} has {size.datasets} with {units.format_size(size.bytes)}"
            )
            yield (
                menu,
                Problem(flow.menu, flow.line, message, "use more datasets, or a smaller volume", "pool-small"),
            )
