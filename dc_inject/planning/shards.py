"""Shards: one campaign in several injectors, each with the destinations that fall to it.

    shard of a destination  =  SHA-256 of its name, modulo the number of shards

The menus are the same everywhere, so each injector knows what all others do without asking them. Destinations are
disjoint, and with them links, accounts and rules: uniqueness holds, and sums over all ledgers are those of one.

**What belongs together stays together.** Prefixes of one host have one disk. A second hop goes on with what its
ledger saw landing, so where it ends is in the shard in which it begins. A volume sends each dataset once in its
scenario, so all its destinations are in one shard. Such a group counts by its first name (`assigned`). A ledger
keeps what was assigned, and an edited menu that would move a destination is refused (`engine/menus.py`).

**A limit on all is divided** (`divided`): the limits of the campaign and of sites, in proportion to
the rates of the flows of a cycle. What belongs to a destination (space, quota, deletions) is in one shard and
stays whole, as do signals of a link. What is shared out among links (a rate set for a scenario, what an exclusion
redistributes) is computed over all flows, those of other shards included (`Menu.elsewhere`).
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from dc_inject.model import Campaign, Flow, Limits, Link, Menu, Site, urls
from dc_inject.model.goals import SecondHop
from dc_inject.model.groups import summed
from dc_inject.model.shards import Shard
from dc_inject.planning.limits import place_of, site_limit, strictest


def assigned(flows: Iterable[Flow], count: int) -> dict[str, int]:
    """Return the shard of each place that flows end at: of an RSE, or of the host of a URL."""
    groups: dict[str, set[str]] = {}
    for together in _together(list(flows)):
        group = together.union(*(groups.get(place, set()) for place in together))
        groups.update(dict.fromkeys(group, group))
    return {place: _hash(min(group)) % count for place, group in sorted(groups.items())}


def part(campaign: Campaign, shard: Shard) -> Campaign:
    """Return a campaign with only the flows of a shard; each menu keeps the others as `elsewhere`."""
    shard_of = assigned(campaign.flows, shard.count)

    def split(menu: Menu) -> Menu:
        ours = tuple(flow for flow in menu.flows if shard_of[_end(flow)] == shard.index)
        others = tuple(flow for flow in menu.flows if shard_of[_end(flow)] != shard.index)
        return replace(menu, flows=ours, elsewhere=others)

    return replace(campaign, menus=tuple(map(split, campaign.menus)))


def member(campaign: Campaign, shard: Shard) -> Callable[[Link], bool]:
    """Return a function that decides whether a link is in a shard, even if it has left the menus."""
    shard_of = assigned((flow for menu in campaign.menus for flow in (*menu.flows, *menu.elsewhere)), shard.count)

    def is_ours(link: Link) -> bool:
        place = urls.host_of(link.destination)
        return shard_of.get(place, _hash(place) % shard.count) == shard.index

    return is_ours


def divided(
    limits: Limits,
    sites: Iterable[Site],
    site_of: Mapping[str, str],
    flows: Iterable[Flow],
    elsewhere: Iterable[Flow],
) -> tuple[Limits, tuple[Site, ...]]:
    """Return what of limits is for `flows`: their part of the rates of these and those `elsewhere`.

    Of each place that they have to do with, one site limits what may go in and out. At least one rule an hour and
    one file in flight are left, so that no shard stands still.
    """
    ours, others = list(flows), list(elsewhere)
    share = _shares(ours, others, lambda _: "").get("", 1.0)
    into = _shares(ours, others, lambda flow: place_of(flow.link.destination, site_of))
    out_of = _shares(ours, others, lambda flow: place_of(flow.link.source, site_of))
    strict = strictest(sites)
    places = tuple(
        Site(
            name,
            max_ingress=site_limit(strict.get(name), "in", limits) * into.get(name, 1.0),
            max_egress=site_limit(strict.get(name), "out", limits) * out_of.get(name, 1.0),
            tape=tape.part(out_of.get(name, 1.0)) if (tape := strict.get(name, Site(name)).tape) else None,
        )
        for name in sorted(into.keys() | out_of.keys())
    )
    own = replace(
        limits,
        total=limits.total * share,
        rules_per_hour=max(int(limits.rules_per_hour * share), 1),
        files_in_flight=max(int(limits.files_in_flight * share), 1),
    )
    return own, places


def _shares(ours: Iterable[Flow], others: Iterable[Flow], name: Callable[[Flow], str]) -> dict[str, float]:
    """Return, for each name that our flows have, which part of the rates under it is theirs."""
    own = summed((name(flow), flow.rate) for flow in ours)
    theirs = summed((name(flow), flow.rate) for flow in others)
    return {key: rate / (rate + theirs[key]) if rate + theirs[key] else 1.0 for key, rate in own.items()}


def _together(flows: Iterable[Flow]) -> Iterator[set[str]]:
    """Yield places that have to be in one shard."""
    once: dict[str, set[str]] = defaultdict(set)
    for flow in flows:
        yield {_end(flow)}
        if isinstance(flow.goal, SecondHop):
            yield {urls.host_of(flow.link.source), _end(flow)}
        if flow.once:
            once[flow.scenario].add(_end(flow))
    yield from once.values()


def _end(flow: Flow) -> str:
    return urls.host_of(flow.link.destination)


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest())
