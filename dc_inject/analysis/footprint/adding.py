"""Footprints of campaigns: loads added up over time and over places.

A footprint takes the moment when the sum of all loads is largest. `spans` cut the time of all campaigns where a
rate jumps or turns, and `Atlas` knows where RSEs are and which limits menus set there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from dc_inject.analysis.footprint.load import (
    KINDS,
    TOTAL,
    Assumptions,
    EndLoads,
    Footprint,
    FootprintRow,
    Group,
    Load,
    add,
    end_loads,
    list_known_items,
    mean_file,
    most,
    times,
    volume,
)
from dc_inject.model import Campaign, Flow, FlowKey, Item, RseSpec, Site, rates
from dc_inject.model.rates import site_of
from dc_inject.planning import pace

_DAY = timedelta(days=1)


@dataclass(slots=True)
class _Sums:
    """What is added up for one group."""

    links: set[tuple[str, str, str]] = field(default_factory=set)
    peak: Load = field(default_factory=Load)
    arriving: list[tuple[datetime, datetime, float]] = field(default_factory=list)
    written: list[tuple[datetime, datetime, float]] = field(default_factory=list)
    busiest: float = 0.0
    lasts: float = math.inf  # seconds

    def row(self, group: Group, facts: SiteFacts) -> FootprintRow:
        """Return what was added up."""
        peak = self.peak
        if group.by != "site":  # only sites have a border
            peak = peak._replace(ingress=peak.arriving, egress=peak.arriving)
        return FootprintRow(
            group,
            len(self.links),
            peak,
            volume=volume(self.arriving),
            written=most(self.written, _DAY),
            busiest=self.busiest,
            wan=facts.wan,
            max_ingress=facts.max_ingress,
            max_egress=facts.max_egress,
            space=facts.space,
            fits=facts.fits,
            pool_lasts=timedelta(seconds=self.lasts) if math.isfinite(self.lasts) else None,
        )


def footprint(
    campaigns: Sequence[Campaign],
    assumed: Assumptions | None = None,
    inventory: Mapping[str, Sequence[Item]] | None = None,
) -> Footprint:
    """Return the footprint of campaigns that run at their own times; what they do at once adds up.

    Sites are added by their name, each campaign's RSEs through its own map: an RSE that no menu places is a site
    of its own. Scenarios of several campaigns are kept apart. `inventory` has the items of sources by their name.
    """
    ordered = sorted(campaigns, key=lambda campaign: campaign.name)  # sums are rounded the same in any order
    flowing = streams(ordered)
    adding = _Adding(ordered, flowing, assumed or Assumptions(), inventory)
    for span in spans(ordered, flowing):
        adding.span(span)
    groups = sorted(adding.sums, key=lambda group: (KINDS.index(group.by), group.name))
    return Footprint(tuple(adding.sums[group].row(group, adding.atlas.facts(group)) for group in groups))


@dataclass(frozen=True, slots=True)
class _Whole:
    """What a stream lays on everything when all of its rates flow."""

    loads: dict[Group, Load]
    transfers: dict[tuple[Group, str, str], float]  # at a time, of each link in each group
    lasts: dict[Group, float]  # seconds until the poorest pool has to be used again
    into: dict[tuple[str, str], float]  # bytes per second into RSEs of campaigns


class _Adding:
    """Adds spans up, one after the other."""

    def __init__(
        self,
        campaigns: Sequence[Campaign],
        flowing: Sequence[Stream],
        assumed: Assumptions,
        inventory: Mapping[str, Sequence[Item]] | None,
    ) -> None:
        self.atlas = Atlas(campaigns, assumed.deletion_lag)
        self.sums: dict[Group, _Sums] = {TOTAL: _Sums()}
        self._assumed = assumed
        self._inventory = inventory
        self._several = len({campaign.name for campaign in campaigns}) > 1
        self._known_items: dict[tuple[str, object], Sequence[Item] | None] = {}
        self._wholes = [self._whole(stream) for stream in flowing]
        self._loads: dict[Levels, dict[Group, Load]] = {}

    def span(self, span: Span) -> None:
        """Add what flows in one span."""
        moments = [self._moment(levels) for levels in span.moments]
        for group in {group: None for loads in moments for group in loads}:
            here = [loads[group] for loads in moments if group in loads]
            arriving, written = (
                math.fsum(map(rate, here)) / len(moments)
                for rate in (lambda one: one.arriving, lambda one: one.written)
            )
            self.sums[group].arriving.append((span.start, span.end, arriving))
            self.sums[group].written.append((span.start, span.end, written))

    def _moment(self, levels: Levels) -> dict[Group, Load]:
        """Return the load of each group; what its other quantities come to is noted once for equal levels."""
        known = self._loads.get(levels)
        if known is not None:
            return known
        loads: dict[Group, list[Load]] = {}
        transfers: dict[tuple[Group, str, str], float] = {}
        into: dict[tuple[str, str], float] = {}
        for number, level in levels:
            whole = self._wholes[number]
            for group, whole_load in whole.loads.items():
                loads.setdefault(group, []).append(times(whole_load, level))
            for link, number_of in whole.transfers.items():
                transfers[link] = transfers.get(link, 0.0) + number_of * level
            for rse, rate in whole.into.items():
                into[rse] = into.get(rse, 0.0) + rate * level
            for group, lasts in whole.lasts.items() if level > 0 else ():
                self.sums[group].lasts = min(self.sums[group].lasts, lasts / level)
        for link, number_of in transfers.items():
            self.sums[link[0]].busiest = max(self.sums[link[0]].busiest, number_of)
        self.atlas.arriving(into)
        self._loads[levels] = {group: add(loads_here) for group, loads_here in loads.items()}
        for group, total in self._loads[levels].items():
            self.sums[group].peak = Load(*map(max, self.sums[group].peak, total))
        return self._loads[levels]

    def _whole(self, stream: Stream) -> _Whole:
        """Add the flows of a stream up."""
        loads: dict[Group, list[Load]] = {}
        whole = _Whole({}, {}, {}, {})
        for flow in stream.flows:
            source, destination, scenario = self._groups(stream.campaign, flow)
            unit, stocked = self._unit(stream.campaign, flow)
            rate = flow.rate * (1 + (flow.overhead if flow.goal is None else 0.0))
            ends = EndLoads(*(times(unit_load, rate) for unit_load in unit))
            for group, parts in ((source, ends[:1]), (destination, ends[1:]), (scenario, ends), (TOTAL, ends)):
                loads.setdefault(group, []).extend(parts)
            for group in {source, destination, scenario, TOTAL}:
                self.sums.setdefault(group, _Sums()).links.add((stream.campaign.name, *flow.link.ends))
                link = group, *flow.link.ends
                whole.transfers[link] = whole.transfers.get(link, 0.0) + ends.source.transfers_out
                if stocked is not None and rate > 0 and group != destination:
                    whole.lasts[group] = min(whole.lasts.get(group, math.inf), stocked / rate)
            rse = stream.campaign.name, flow.link.destination
            whole.into[rse] = whole.into.get(rse, 0.0) + rate
        whole.loads.update({group: add(loads_here) for group, loads_here in loads.items()})
        return whole

    def _groups(self, campaign: Campaign, flow: Flow) -> tuple[Group, Group, Group]:
        """Return the source, the destination and the scenario of a flow."""
        source, destination = (Group("site", self.atlas.site(campaign, rse)) for rse in flow.link.ends)
        name = f"{campaign.name} {flow.scenario}" if self._several else flow.scenario
        return source, destination, Group("scenario", name)

    def _unit(self, campaign: Campaign, flow: Flow) -> tuple[EndLoads, float | None]:
        """Return the load of one byte per second of a flow, and the bytes of its pool."""
        items = self._items_of(flow)
        source, destination, _ = self._groups(campaign, flow)
        size = mean_file(flow, items, self._assumed.mean_file)
        lag = self.atlas.lag(campaign, flow.link.destination)
        unit = end_loads(flow, lag, size, self._assumed, inside=source == destination)
        return unit, None if items is None else float(sum(item.bytes for item in items))

    def _items_of(self, flow: Flow) -> Sequence[Item] | None:
        """Return what a flow may take: of the inventory, or of its list where that has all sizes."""
        key = flow.link.source, flow.datasets
        if key not in self._known_items:
            self._known_items[key] = list_known_items(flow, self._inventory)
        return self._known_items[key]


class SiteFacts(NamedTuple):
    """The menus' terms of a group's places (None: no term), and the lifetime that just fills their space."""

    wan: float | None = None
    max_ingress: float | None = None
    max_egress: float | None = None
    space: int | None = None
    fits: timedelta | None = None


class Atlas:
    """Which site has which RSE, how large and how slow they are, and how much comes to each."""

    def __init__(self, campaigns: Sequence[Campaign], deletion_lag: timedelta | None) -> None:
        """Take the campaigns, and the deletion lag that holds for all of them, if one is assumed."""
        self._sites = {c.name: site_of(c) for c in campaigns}
        self._cycles = {campaign.name: campaign.cycle for campaign in campaigns}
        self._specs: dict[tuple[str, str], RseSpec] = {}
        self._sites_by_name: dict[str, list[tuple[str, Site]]] = {}
        self._per_site = {c.name: min(m.limits.per_site for m in c.menus) for c in campaigns}
        self._touched = {
            (c.name, self.site(c, rse)) for c in campaigns for flow in c.flows for rse in flow.link.ends
        }
        self._lag = deletion_lag
        self._into: dict[tuple[str, str], float] = {}
        for campaign in campaigns:
            for menu in campaign.menus:
                for site in menu.sites:
                    self._sites_by_name.setdefault(site.name, []).append((campaign.name, site))
                    self._specs |= {(campaign.name, rse): spec for rse, spec in site.rses.items()}

    def site(self, campaign: Campaign, rse: str) -> str:
        """Return the site of an RSE, which is the RSE itself where no menu of the campaign places it."""
        return self._sites[campaign.name].get(rse, rse)

    def lag(self, campaign: Campaign, rse: str) -> timedelta:
        """Return how long bytes stay after their rule: the deletion lag, and the cycle until that is seen."""
        return self._lag_of((campaign.name, rse))

    def _lag_of(self, rse: tuple[str, str]) -> timedelta:
        lag = self._specs.get(rse, RseSpec()).deletion_lag if self._lag is None else self._lag
        return lag + self._cycles[rse[0]]

    def arriving(self, rates: Mapping[tuple[str, str], float]) -> None:
        """Take the rates (bytes per second) into the RSEs of campaigns at one time."""
        for rse, rate in rates.items():
            self._into[rse] = max(self._into.get(rse, 0.0), rate)

    def facts(self, group: Group) -> SiteFacts:
        """Return the terms of a site; for scenarios and in total only the lifetime that fits everywhere."""
        if group.by != "site":
            return SiteFacts(fits=self._fits(self._into) if group.by == "total" else None)
        rses = [rse for rse in self._into if self._sites[rse[0]].get(rse[1], rse[1]) == group.name]
        spaces = [self._specs.get(rse, RseSpec()).space for rse in rses]
        sites = [site for _, site in self._sites_by_name.get(group.name, ())]
        known_spaces = [space for space in spaces if space is not None]
        return SiteFacts(
            min((site.wan for site in sites if site.wan is not None), default=None),
            self._limit(group.name, "max_ingress"),
            self._limit(group.name, "max_egress"),
            sum(known_spaces) if known_spaces and len(known_spaces) == len(spaces) else None,
            self._fits(rses),
        )

    def _limit(self, site: str, direction: str) -> float:
        """Return our limit at a site: of each campaign that goes there the lowest, and all campaigns together."""
        total = 0.0
        for campaign, default in self._per_site.items():
            if (campaign, site) not in self._touched:
                continue
            of_site = self._sites_by_name.get(site, ())
            own = [getattr(described, direction) for name, described in of_site if name == campaign]
            total += min([default, *(limit for limit in own if limit is not None)])
        return total

    def _fits(self, rses: Iterable[tuple[str, str]]) -> timedelta | None:
        lifetimes = []
        for rse in rses:
            space, rate = self._specs.get(rse, RseSpec()).space, self._into[rse]
            if space is not None and rate > 0:
                lifetimes.append(timedelta(seconds=space / rate) - self._lag_of(rse))
        return max(min(lifetimes), timedelta(0)) if lifetimes else None


_MICROSECOND, _SECOND = timedelta(microseconds=1), timedelta(seconds=1)


class Stream(NamedTuple):
    """Flows of one scenario whose rates go up and down together: with one window, shape, and exclusions."""

    campaign: Campaign
    flows: tuple[Flow, ...]

    @property
    def first(self) -> Flow:
        """A flow that has the rates of all together, for what is the same for each of them."""
        return replace(self.flows[0], rate=math.fsum(flow.rate for flow in self.flows))


Levels = tuple[tuple[int, float], ...]  # the number of a stream, and the part of its rates that flows


class Span(NamedTuple):
    """A span of time, and the streams that flow in it.

    `moments` are their levels at its begin and just before its end: between them they go in straight lines. There
    is only one where nothing changes.
    """

    start: datetime
    end: datetime
    moments: tuple[Levels, ...]


def streams(campaigns: Sequence[Campaign]) -> list[Stream]:
    """Return what flows in campaigns; volumes end when they are there, to the second: shares of one at once.

    Second hops end when all that lands has gone on, at their rates.
    """
    together: dict[tuple[object, ...], list[Flow]] = {}
    campaign_of: dict[tuple[object, ...], Campaign] = {}
    for number, campaign in enumerate(campaigns):
        sites = site_of(campaign)
        exclusions = list(enumerate(exclusion for menu in campaign.menus for exclusion in menu.exclusions))
        for flow, bounded in zip(campaign.flows, rates.with_landed(campaign.flows), strict=True):
            end = (rates.shorten_to_goal(bounded).end + _SECOND / 2).replace(microsecond=0)  # to the second
            ended = flow if flow.goal is None else replace(flow, end=end)
            out = tuple(
                n for n, exclusion in exclusions if pace.covers(exclusion, flow.scenario, flow.link, sites)
            )
            key = number, flow.scenario, ended.start, ended.end, flow.shape, out
            together.setdefault(key, []).append(ended)
            campaign_of[key] = campaign
    return [Stream(campaign_of[key], tuple(flows)) for key, flows in together.items()]


def spans(campaigns: Sequence[Campaign], flowing: Sequence[Stream]) -> Iterator[Span]:
    """Yield the spans between the first start and the last end of all campaigns, whose streams are `flowing`."""
    firsts = [stream.first for stream in flowing]
    borders = {moment for first in firsts for moment in (first.start, first.end)}
    for shape, start, end in {(first.shape, first.start, first.end) for first in firsts}:
        borders |= set() if shape is None else set(shape.corners(start, end))
    for campaign in campaigns:
        ends = {
            moment
            for menu in campaign.menus
            for exclusion in menu.exclusions
            for moment in (exclusion.start, exclusion.end)
        }
        borders |= {moment for moment in ends if campaign.start < moment < campaign.end}
    for start, end in pairwise(sorted(borders)):
        now = [n for n, first in enumerate(firsts) if first.start < end and start < first.end]
        moments = [start] if all(firsts[n].shape is None for n in now) else [start, end - _MICROSECOND]
        levels = [
            _levels(campaigns, flowing, {n: firsts[n] for n in now}, (start, end), moment) for moment in moments
        ]
        yield Span(start, end, tuple(levels))


def _levels(
    campaigns: Sequence[Campaign],
    flowing: Sequence[Stream],
    firsts: Mapping[int, Flow],
    span: tuple[datetime, datetime],
    moment: datetime,
) -> Levels:
    """Return the levels of streams at a moment of a span in which none begins or ends."""
    levels: list[tuple[int, float]] = []
    for campaign in campaigns:
        own = {n: first for n, first in firsts.items() if flowing[n].campaign is campaign and first.rate > 0}
        exclusions = [exclusion for menu in campaign.in_force(*span) for exclusion in menu.exclusions]
        rate_of: Mapping[FlowKey, float] = pace.rate(own.values(), exclusions, site_of(campaign), moment)
        levels += [(n, rate_of[first.key] / first.rate) for n, first in own.items()]
    return tuple((n, float(f"{level:.12g}")) for n, level in levels)
