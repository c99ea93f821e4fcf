"""Where RSEs are and what menus say of these places, over all campaigns that are added up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from dc_inject.analysis.footprint.rows import Group
from dc_inject.model import Campaign, RseSpec, Site
from dc_inject.model.rates import site_of


class SiteFacts(NamedTuple):
    """What menus say of a group's places, None where none does, and the lifetime that just fills their space."""

    wan: float | None = None
    max_ingress: float | None = None
    max_egress: float | None = None
    space: int | None = None
    fits: timedelta | None = None


class Atlas:
    """Which site has which RSE, how large and how slow they are, and how much comes to each."""

    def __init__(self, campaigns: Sequence[Campaign], deletion_lag: timedelta | None) -> None:
        """Take the campaigns, and the deletion lag that holds for all of them, if one is assumed."""
        self._sites = {c.name: site_of(site for menu in c.menus for site in menu.sites) for c in campaigns}
        self._cycles = {campaign.name: campaign.cycle for campaign in campaigns}
        self._specs: dict[tuple[str, str], RseSpec] = {}
        self._sites_by_name: dict[str, list[tuple[str, Site]]] = {}
        self._per_site = {c.name: min(m.limits.per_site for m in c.menus) for c in campaigns}
        self._touched = {
            (c.name, self.site(c, rse)) for c in campaigns for flow in c.flows for rse in flow.link[:2]
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
        """Return what is said of a site; of scenarios and all only which lifetime fits everywhere."""
        if group.by != "site":
            return SiteFacts(fits=self._fits(self._into) if group.by == "total" else None)
        rses = [rse for rse in self._into if self._sites[rse[0]].get(rse[1], rse[1]) == group.name]
        spaces = [self._specs.get(rse, RseSpec()).space for rse in rses]
        sites = [site for _, site in self._sites_by_name.get(group.name, ())]
        known_spaces = [space for space in spaces if space is not None]
        return SiteFacts(
            _lowest(site.wan for site in sites),
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


def _lowest(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)
