"""Footprints added up span by span, each taken at the moment when their sum is largest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dc_inject.analysis.footprint import load, places, windows
from dc_inject.analysis.footprint.assumptions import Assumptions, mean_file
from dc_inject.analysis.footprint.load import EndLoads, Load
from dc_inject.analysis.footprint.rows import KINDS, TOTAL, Footprint, FootprintRow, Group
from dc_inject.analysis.footprint.sizes import known_items
from dc_inject.analysis.footprint.spans import Levels, Span, Stream, spans, streams
from dc_inject.model import Campaign, Flow, Item

_DAY = timedelta(days=1)


@dataclass(slots=True)
class _Sums:
    """What is added up for one group."""

    links: set[tuple[str, str, str]] = field(default_factory=set)
    peak: Load = field(default_factory=Load)
    arriving: list[tuple[datetime, datetime, float]] = field(default_factory=list)
    busiest: float = 0.0
    lasts: float = math.inf  # seconds

    def row(self, group: Group, facts: places.SiteFacts) -> FootprintRow:
        """Return what was added up."""
        peak = self.peak
        if group.by != "site":  # of them no border is told
            peak = peak._replace(ingress=peak.arriving, egress=peak.arriving)
        return FootprintRow(
            group,
            len(self.links),
            peak,
            volume=windows.volume(self.arriving),
            written=windows.most(self.arriving, _DAY),
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
    of its own. Scenarios of several campaigns are told apart. `inventory` has the items of sources by their name.
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
        self.atlas = places.Atlas(campaigns, assumed.deletion_lag)
        self.sums: dict[Group, _Sums] = {TOTAL: _Sums()}
        self._assumed = assumed
        self._inventory = inventory
        self._several = len({campaign.name for campaign in campaigns}) > 1
        self._known_items: dict[tuple[str, object], Sequence[Item] | None] = {}
        self._wholes = [self._whole(stream) for stream in flowing]
        self._arriving: dict[Levels, dict[Group, float]] = {}

    def span(self, span: Span) -> None:
        """Add what flows in one span."""
        moments = [self._moment(levels) for levels in span.moments]
        for group in {group: None for arriving in moments for group in arriving}:
            mean = math.fsum(arriving.get(group, 0.0) for arriving in moments) / len(moments)
            self.sums[group].arriving.append((span.start, span.end, mean))

    def _moment(self, levels: Levels) -> dict[Group, float]:
        """Return what arrives at each group; what its other quantities come to is noted once for equal levels."""
        arriving_here = self._arriving.get(levels)
        if arriving_here is not None:
            return arriving_here
        loads: dict[Group, list[Load]] = {}
        transfers: dict[tuple[Group, str, str], float] = {}
        into: dict[tuple[str, str], float] = {}
        for number, level in levels:
            whole = self._wholes[number]
            for group, whole_load in whole.loads.items():
                loads.setdefault(group, []).append(load.times(whole_load, level))
            for link, number_of in whole.transfers.items():
                transfers[link] = transfers.get(link, 0.0) + number_of * level
            for rse, rate in whole.into.items():
                into[rse] = into.get(rse, 0.0) + rate * level
            for group, lasts in whole.lasts.items() if level > 0 else ():
                self.sums[group].lasts = min(self.sums[group].lasts, lasts / level)
        for link, number_of in transfers.items():
            self.sums[link[0]].busiest = max(self.sums[link[0]].busiest, number_of)
        self.atlas.arriving(into)
        arriving = {}
        for group, loads_here in loads.items():
            total = load.add(loads_here)
            self.sums[group].peak = Load(*map(max, self.sums[group].peak, total))
            arriving[group] = total.arriving
        self._arriving[levels] = arriving
        return arriving

    def _whole(self, stream: Stream) -> _Whole:
        """Add the flows of a stream up."""
        loads: dict[Group, list[Load]] = {}
        whole = _Whole({}, {}, {}, {})
        for flow in stream.flows:
            source, destination, scenario = self._groups(stream.campaign, flow)
            unit, stocked = self._unit(stream.campaign, flow)
            rate = flow.rate * (1 + (flow.overhead if flow.goal is None else 0.0))
            ends = EndLoads(*(load.times(unit_load, rate) for unit_load in unit))
            for group, parts in ((source, ends[:1]), (destination, ends[1:]), (scenario, ends), (TOTAL, ends)):
                loads.setdefault(group, []).extend(parts)
            for group in {source, destination, scenario, TOTAL}:
                self.sums.setdefault(group, _Sums()).links.add((stream.campaign.name, *flow.link[:2]))
                link = group, *flow.link[:2]
                whole.transfers[link] = whole.transfers.get(link, 0.0) + ends.source.transfers_out
                if stocked is not None and rate > 0 and group != destination:
                    whole.lasts[group] = min(whole.lasts.get(group, math.inf), stocked / rate)
            rse = stream.campaign.name, flow.link.destination
            whole.into[rse] = whole.into.get(rse, 0.0) + rate
        whole.loads.update({group: load.add(loads_here) for group, loads_here in loads.items()})
        return whole

    def _groups(self, campaign: Campaign, flow: Flow) -> tuple[Group, Group, Group]:
        """Return the source, the destination and the scenario of a flow."""
        source, destination = (Group("site", self.atlas.site(campaign, rse)) for rse in flow.link[:2])
        name = f"{campaign.name} {flow.scenario}" if self._several else flow.scenario
        return source, destination, Group("scenario", name)

    def _unit(self, campaign: Campaign, flow: Flow) -> tuple[EndLoads, float | None]:
        """Return the load of one byte per second of a flow, and the bytes of its pool."""
        items = self._items_of(flow)
        source, destination, _ = self._groups(campaign, flow)
        size = mean_file(flow, items, self._assumed.mean_file)
        lag = self.atlas.lag(campaign, flow.link.destination)
        unit = load.end_loads(flow, lag, size, self._assumed, inside=source == destination)
        return unit, None if items is None else float(sum(item.bytes for item in items))

    def _items_of(self, flow: Flow) -> Sequence[Item] | None:
        """Return what a flow may take: of the inventory, or of its list where that tells all sizes."""
        key = flow.link.source, flow.datasets
        if key not in self._known_items:
            self._known_items[key] = known_items(flow, self._inventory)
        return self._known_items[key]
