"""Rates above limits: what exceeds the WAN of a site, or a limit of ours, in total or at a site, is held."""

from __future__ import annotations

from collections.abc import Iterator

from dc_inject.analysis.lint.capacity import Finding
from dc_inject.model import Campaign, rates, units
from dc_inject.model.errors import Problem


def over_limits(campaign: Campaign) -> tuple[str, ...]:
    """Return in words each limit, of sites and in total, that the rates of a campaign exceed at some time.

    What menus accept counts too: it is held all the same.
    """
    found = (*_sites(campaign), *_totals(campaign))
    return tuple(dict.fromkeys(problem.message for _, problem in sorted(found, key=lambda finding: finding[1])))


def findings(campaign: Campaign) -> Iterator[Finding]:
    """Yield sites, and sums of menus in force together, that exceed a limit, with the menu that may accept each.

    A menu whose own rates exceed `limits.total` is refused before; `--scale` may bring them there.
    """
    yield from _sites(campaign)
    yield from _totals(campaign)


def _totals(campaign: Campaign) -> Iterator[Finding]:
    for excess in rates.over_total(campaign.menus):
        flows = [flow for menu in excess.together for flow in menu.flows]
        _, largest = rates.peak(flows)
        place = (excess.menu.name, 1) if largest is None else (largest.menu, largest.line)
        message = f"{excess}: the rest will be held (campaign-limit)"
        yield (
            excess.menu,
            Problem(*place, message, "lower --scale, or raise limits.total if that is agreed", "total-over-limit"),
        )


def _sites(campaign: Campaign) -> Iterator[Finding]:
    sites = {site.name: site for menu in campaign.menus for site in menu.sites}
    menu_of = {id(flow): menu for menu in campaign.menus for flow in menu.flows}
    for (name, direction), flows in rates.by_site(campaign.flows, rates.site_of(sites.values())).items():
        total, largest = rates.peak(flows)
        if largest is None:
            continue
        menu, site, place = menu_of[id(largest)], sites.get(name), (largest.menu, largest.line)
        sum_here = f"{direction} of {name} sums to {units.format_rate(total)}"
        wan = site.wan if site else None
        if wan is not None and rates.exceeds(total, wan):
            message = f"{sum_here}, above its WAN, {units.format_rate(wan)}"
            hint = f"lower rates at {name}, or correct sites.{name}.wan"
            yield menu, Problem(*place, message, hint, "site-over-wan")
        own = (site.max_ingress if direction == "ingress" else site.max_egress) if site else None
        limits = {f"sites.{name}.max_{direction}": own, "limits.per_site": menu.limits.per_site}
        key, limit = min(((k, v) for k, v in limits.items() if v is not None), key=lambda item: item[1])
        if rates.exceeds(total, limit):
            message = f"{sum_here}, above {key}, {units.format_rate(limit)}: the rest will be held (site-limit)"
            yield menu, Problem(*place, message, f"if the site agrees, raise {key}", "site-over-limit")
