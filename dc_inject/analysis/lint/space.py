"""What RSEs and quotas have room for, as a service told it, beside what a campaign needs there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dc_inject.analysis.footprint import footprint
from dc_inject.analysis.lint.capacity import Finding, by_rse, largest
from dc_inject.model import Campaign, rates, units
from dc_inject.model.errors import Problem

HOUR = 3600.0


def space_findings(
    campaign: Campaign, free: Mapping[str, int], quota: Mapping[str, int], expired: Mapping[str, int]
) -> Iterator[Finding]:
    """Yield findings about RSEs with too little room; each mapping has bytes of the RSEs of which they are known.

    `free` is space that nobody has filled, `quota` what the account may still put there, `expired` what may be
    deleted and is still there.
    """
    uses = [(of, flow) for of in campaign.menus for flow in of.flows]
    for row in footprint([by_rse(campaign)]).by("site"):
        rse, peak = row.group.name, row.peak
        if not peak.arriving:
            continue
        of, flow = largest(use for use in uses if use[1].link.destination == rse)
        needs = f"{units.format_rate(peak.arriving)} into {rse} need"
        place = flow.menu, flow.line
        if rse in free and rates.exceeds(peak.shortest, free[rse]):
            message = f"{needs} {units.format_size(peak.shortest)} even with the shortest lifetime, and "
            message += f"{units.format_size(free[rse])} are free"
            hint = "ask the site to free space, or lower the rates"
            yield of, Problem(*place, message, hint, "free-space")
        if rse in quota and rates.exceeds(peak.quota, quota[rse]):
            message = f"{needs} a quota of {units.format_size(peak.quota)} and one dataset more, and "
            message += f"{units.format_size(quota[rse])} of it are left"
            hint = "ask for a larger limit there, or shorten the rules' lifetime"
            yield of, Problem(*place, message, hint, "account-limit")
        if expired.get(rse, 0) > peak.arriving * HOUR:
            message = f"{rse} has {units.format_size(expired[rse])} that have expired and are not deleted yet, "
            message += f"more than the campaign brings there in an hour, {units.format_size(peak.arriving * HOUR)}"
            hint = "ask the site to delete it before the start, since it would delay our deletions"
            yield of, Problem(*place, message, hint, "expired-data")
