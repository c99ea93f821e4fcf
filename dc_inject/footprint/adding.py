"""Footprints added up, span by span, at the moment of each at which most of it comes together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dc_inject.footprint import load, places, windows
from dc_inject.footprint.assumptions import Assumptions, mean_file
from dc_inject.footprint.load import Ends, Load
from dc_inject.footprint.rows import KINDS, TOTAL, Footprint, Group, Row
from dc_inject.footprint.spans import Rate, Span, spans
from dc_inject.footprint.stocks import stock
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

    def add(self, span: Span, moments: Sequence[Load]) -> None:
        """Add the loads at the begin and at the end of a span; between them they grow or shrink evenly."""
        self.peak = Load(*map(max, self.peak, *moments))
        self.arriving.append((span.start, span.end, math.fsum(one.arriving for one in moments) / len(moments)))

    def row(self, group: Group, told: places.Told) -> Row:
        """Return what was added up."""
        peak = self.peak
        if group.by != "site":  # of them no border is told
            peak = peak._replace(ingress=peak.arriving, egress=peak.arriving)
        return Row(
            group,
            len(self.links),
            peak,
            volume=windows.volume(self.arriving),
            written=windows.most(self.arriving, _DAY),
            busiest=self.busiest,
            wan=told.wan,
            max_ingress=told.max_ingress,
            max_egress=told.max_egress,
            space=told.space,
            fits=told.fits,
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
    adding = _Adding(ordered, assumed or Assumptions(), inventory)
    for span in spans(ordered):
        adding.span(span)
    groups = sorted(adding.sums, key=lambda group: (KINDS.index(group.by), group.name))
    return Footprint(tuple(adding.sums[group].row(group, adding.atlas.told(group)) for group in groups))


class _Adding:
    """Adds spans up, one after the other."""

    def __init__(
        self,
        campaigns: Sequence[Campaign],
        assumed: Assumptions,
        inventory: Mapping[str, Sequence[Item]] | None,
    ) -> None:
        self.atlas = places.Atlas(campaigns, assumed.deletion_lag)
        self.sums: dict[Group, _Sums] = {TOTAL: _Sums()}
        self._assumed = assumed
        self._inventory = inventory
        self._several = len({campaign.name for campaign in campaigns}) > 1
        self._units: dict[int, tuple[Ends, float | None]] = {}  # of flows, which live as long as the campaigns
        self._stocks: dict[tuple[str, object], list[Item] | None] = {}

    def span(self, span: Span) -> None:
        """Add what flows in one span."""
        moments = [self._moment(rates) for rates in span.moments]
        for group in {group for loads in moments for group in loads}:
            self.sums[group].add(span, [loads.get(group, Load()) for loads in moments])

    def _moment(self, rates: Sequence[Rate]) -> dict[Group, Load]:
        """Return the load of each group at one moment; note how its links and its pools stand."""
        loads: dict[Group, list[Load]] = {}
        transfers: dict[tuple[Group, str, str], float] = {}
        into: dict[tuple[str, str], float] = {}
        for campaign, flow, rate in rates:
            unit, stocked = self._unit(campaign, flow)
            both = Ends(*(load.times(one, rate) for one in unit))
            source, destination, scenario = self._groups(campaign, flow)
            for group, parts in ((source, both[:1]), (destination, both[1:]), (scenario, both), (TOTAL, both)):
                loads.setdefault(group, []).extend(parts)
            for group in {source, destination, scenario, TOTAL}:
                sums, link = self.sums.setdefault(group, _Sums()), (group, *flow.link[:2])
                sums.links.add((campaign.name, *flow.link[:2]))
                transfers[link] = transfers.get(link, 0.0) + both.source.transfers_out
                sums.busiest = max(sums.busiest, transfers[link])
                if stocked is not None and rate > 0 and group != destination:
                    sums.lasts = min(sums.lasts, stocked / rate)
            rse = campaign.name, flow.link.destination
            into[rse] = into.get(rse, 0.0) + rate
        self.atlas.arriving(into)
        return {group: load.add(some) for group, some in loads.items()}

    def _groups(self, campaign: Campaign, flow: Flow) -> tuple[Group, Group, Group]:
        """Return the source, the destination and the scenario of a flow."""
        source, destination = (Group("site", self.atlas.site(campaign, rse)) for rse in flow.link[:2])
        name = f"{campaign.name} {flow.scenario}" if self._several else flow.scenario
        return source, destination, Group("scenario", name)

    def _unit(self, campaign: Campaign, flow: Flow) -> tuple[Ends, float | None]:
        """Return the load of one byte per second of a flow, and the bytes of its pool."""
        known = self._units.get(id(flow))
        if known is None:
            items = self._stock(flow)
            source, destination, _ = self._groups(campaign, flow)
            size = mean_file(flow, items, self._assumed.mean_file)
            lag = self.atlas.lag(campaign, flow.link.destination)
            bytes_ = None if items is None else float(sum(item.bytes for item in items))
            known = load.ends(flow, lag, size, self._assumed, inside=source == destination), bytes_
            self._units[id(flow)] = known
        return known

    def _stock(self, flow: Flow) -> list[Item] | None:
        """Return what a flow may take: of the inventory, or of its list where that tells all sizes."""
        key = flow.link.source, flow.datasets
        if key not in self._stocks:
            self._stocks[key] = stock(flow, self._inventory)
        return self._stocks[key]
