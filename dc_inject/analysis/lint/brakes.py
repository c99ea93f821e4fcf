"""The limits of menus that hold a part of what is asked for, once people have changed rates over the menus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dc_inject import menu
from dc_inject.model import Campaign, rates, units

ROUNDING = 1e-6
SITES = frozenset({"site-over-wan", "site-over-limit"})


def over_limits(campaign: Campaign) -> tuple[str, ...]:
    """Return in words each limit, of sites and in total, that the rates of a campaign exceed at some time.

    What menus accept counts too: it is held all the same.
    """
    strict = replace(campaign, menus=tuple(replace(one, accept=frozenset()) for one in campaign.menus))
    sites = (problem.message for problem in menu.findings(strict) if problem.code in SITES)
    return tuple(dict.fromkeys([*sites, *_totals(campaign)]))


def _totals(campaign: Campaign) -> Iterator[str]:
    """Compare what menus ask for together with the lowest `total` of those that are in force at once."""
    for one in campaign.menus:
        together = [other for other in campaign.menus if other.start <= one.start < other.end]
        limit = min(other.limits.total for other in together)
        total = rates.peak(flow for other in together for flow in other.flows).rate
        if total > limit * (1 + ROUNDING):
            said = f"the rates sum to {units.format_rate(total)}, above limits.total, {units.format_rate(limit)}"
            yield f"{said}: the rest will be held (campaign-limit)"
