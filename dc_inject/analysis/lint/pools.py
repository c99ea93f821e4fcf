"""Whether sources have enough for their links, and datasets that suit them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import NamedTuple

from dc_inject.analysis.lint.capacity import Finding, Use, and_more, coarse, smallest
from dc_inject.model import Campaign, Flow, Item, PoolKey, RseSpec, rates, units
from dc_inject.model.errors import Problem
from dc_inject.model.goals import Keep, SecondHop, Volume
from dc_inject.planning import lifetime

HOUR = 3600.0


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
        return (
            of_source if rates.peak([flow]).rate * HOUR >= of_menu else 0
        )  # what the menu says is found without us

    yield from coarse(stocked, least)


def _empty(uses: Iterable[Use], sizes: Mapping[PoolKey, PoolSize]) -> Iterator[Finding]:
    empty: set[PoolKey] = set()
    for menu, flow in uses:
        if not sizes[flow.pool].datasets and flow.pool not in empty:
            empty.add(flow.pool)
            named = sizes[flow.pool].named
            message = f"{flow.link.source} has no dataset that the menu takes"
            if named:
                message += f": {units.counted(named, 'datasets')} have the names, and none is within its bounds"
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
        if rates.exceeds(need, sizes[flow.pool].bytes):
            short.setdefault((flow.menu, flow.scenario), []).append((need, stay, (menu, flow)))
    for (_, scenario), short_here in short.items():
        need, stay, (menu, flow) = max(short_here, key=lambda link: link[0] / sizes[link[2][1].pool].bytes)
        size = sizes[flow.pool]
        message = (
            f"{flow.link.shown}{and_more(len(short_here) - 1, scenario)} needs {units.format_size(need)} of "
            f"different datasets in the {units.format_duration(stay)} until they may be used again, and "
            f"{flow.link.source} has {size.datasets} with {units.format_size(size.bytes)}: the rest will be held "
            "(pool-dry)"
        )
        yield menu, Problem(flow.menu, flow.line, message, "use more datasets, or lower the rate", "pool-small")


def _volumes(uses: Iterable[Use], sizes: Mapping[PoolKey, PoolSize]) -> Iterator[Finding]:
    """Find volumes that are more than their source has: each dataset goes out once in its scenario."""
    uses_of: dict[tuple[str, PoolKey], list[Use]] = {}
    for use in uses:
        if isinstance(use[1].goal, Volume):
            uses_of.setdefault((use[1].scenario, use[1].pool), []).append(use)
    for (scenario, pool), sharing in uses_of.items():
        need, size = sum({use[1].key: use[1].goal.bytes for use in sharing if use[1].goal}.values()), sizes[pool]
        if rates.exceeds(need, size.bytes):
            menu, flow = sharing[0]
            message = (
                f"the volumes of {scenario} from {pool.source} are {units.format_size(need)}, "
                f"each dataset once, and {pool.source} has {size.datasets} with {units.format_size(size.bytes)}"
            )
            yield (
                menu,
                Problem(flow.menu, flow.line, message, "use more datasets, or a smaller volume", "pool-small"),
            )
