"""Whether sources have enough for their links, and datasets that suit them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import NamedTuple

from dc_inject.analysis.lint.capacity import Found, Use, coarse, smallest
from dc_inject.model import Campaign, Flow, Item, PoolKey, RseSpec, rates, units
from dc_inject.model.errors import Problem
from dc_inject.model.goals import Keep, SecondHop, Volume
from dc_inject.planning import lifetime

HOUR = 3600.0


class PoolSize(NamedTuple):
    """What a source has for a filter: how many datasets, their bytes, and the bytes of the smallest."""

    datasets: int
    bytes: int
    smallest: int

    @classmethod
    def of(cls, items: Iterable[Item]) -> PoolSize:
        """Add items up, one by one."""
        number = total = smallest = 0
        for item in items:
            number, total = number + 1, total + item.bytes
            smallest = min(smallest or item.bytes, item.bytes)
        return cls(number, total, smallest)


def pools(campaign: Campaign, sizes: Mapping[PoolKey, PoolSize], *, may_end: bool) -> Iterator[Found]:
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
    some = [use for use in uses if sizes[use[1].pool].datasets]
    yield from _small(campaign, some, sizes, may_end=may_end)
    yield from _volumes(some, sizes)

    def least(flow: Flow) -> int:
        told, known = smallest(flow), sizes[flow.pool].smallest
        return known if rates.peak([flow]).rate * HOUR >= told else 0  # what the menu says is found without us

    yield from coarse(some, least)


def _empty(uses: Iterable[Use], sizes: Mapping[PoolKey, PoolSize]) -> Iterator[Found]:
    seen: set[PoolKey] = set()
    for menu, flow in uses:
        if not sizes[flow.pool].datasets and flow.pool not in seen:
            seen.add(flow.pool)
            what = f"{flow.link.source} has no dataset that the menu takes"
            hint = "look at `datasets`; if they come later: `accept: [no-source-files]`"
            yield menu, Problem(flow.menu, flow.line, what, hint, "no-source-files")


def _small(
    campaign: Campaign, uses: Iterable[Use], sizes: Mapping[PoolKey, PoolSize], *, may_end: bool
) -> Iterator[Found]:
    specs = {rse: spec for menu in campaign.menus for site in menu.sites for rse, spec in site.rses.items()}
    found: dict[tuple[str, str], list[tuple[float, timedelta, Use]]] = {}
    for menu, flow in uses:
        if flow.goal is not None and not isinstance(flow.goal, Keep):
            continue  # the same datasets again, or each of them once: see below
        lag = specs.get(flow.link.destination, RseSpec()).deletion_lag + campaign.cycle
        stay = lifetime.horizon(flow.lifetime_min if may_end else flow.lifetime_max, lag, flow.end - flow.start)
        need = rates.peak([flow]).rate * (1 + flow.overhead) * stay.total_seconds()
        if rates.exceeds(need, sizes[flow.pool].bytes):
            found.setdefault((flow.menu, flow.scenario), []).append((need, stay, (menu, flow)))
    for (_, scenario), some in found.items():
        need, stay, (menu, flow) = max(some, key=lambda one: one[0] / sizes[one[2][1].pool].bytes)
        there = sizes[flow.pool]
        others = f" (and {units.counted(len(some) - 1, 'more links')} of {scenario})" if len(some) > 1 else ""
        what = (
            f"{flow.link.shown}{others} needs {units.format_size(need)} of different datasets in the "
            f"{units.format_duration(stay)} until they may be used again, and {flow.link.source} has "
            f"{there.datasets} with {units.format_size(there.bytes)}: the rest will be held (pool-dry)"
        )
        yield menu, Problem(flow.menu, flow.line, what, "use more datasets, or lower the rate", "pool-small")


def _volumes(uses: Iterable[Use], sizes: Mapping[PoolKey, PoolSize]) -> Iterator[Found]:
    """Find volumes that are more than their source has: each dataset goes out once in its scenario."""
    found: dict[tuple[str, PoolKey], list[Use]] = {}
    for use in uses:
        if isinstance(use[1].goal, Volume):
            found.setdefault((use[1].scenario, use[1].pool), []).append(use)
    for (scenario, pool), some in found.items():
        need, there = sum({use[1].key: use[1].goal.bytes for use in some if use[1].goal}.values()), sizes[pool]
        if rates.exceeds(need, there.bytes):
            menu, flow = some[0]
            what = (
                f"the volumes of {scenario} from {pool.source} are {units.format_size(need)}, "
                f"each dataset once, and {pool.source} has {there.datasets} with {units.format_size(there.bytes)}"
            )
            yield (
                menu,
                Problem(flow.menu, flow.line, what, "use more datasets, or a smaller volume", "pool-small"),
            )
