"""What rates sum to: over a menu or campaign, and at each site, when most of them hold at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from dc_inject.model import Flow, Site


class Peak(NamedTuple):
    """The largest sum of rates (bytes per second) at any one time, and the largest flow of those that it sums."""

    rate: float
    flow: Flow | None


def peak(flows: Iterable[Flow]) -> Peak:
    """Return the largest sum of rates at any one time; NaN when a rate is not known."""
    some = list(flows)
    changes: dict[datetime, float] = {}
    for flow in some:
        changes[flow.start] = changes.get(flow.start, 0.0) + flow.rate
        changes[flow.end] = changes.get(flow.end, 0.0) - flow.rate
    if any(math.isnan(change) for change in changes.values()):
        return Peak(math.nan, None)
    total, best, when = 0.0, 0.0, None
    for moment in sorted(changes):
        total += changes[moment]
        if total > best:
            best, when = total, moment
    if when is None:
        return Peak(0.0, None)
    at_once = [flow for flow in some if flow.start <= when < flow.end]
    # Summed anew: the running total has gathered the rounding of all changes before.
    return Peak(math.fsum(flow.rate for flow in at_once), max(at_once, key=lambda flow: flow.rate))


def site_of(sites: Iterable[Site]) -> dict[str, str]:
    """Return the site of every RSE that is listed."""
    return {rse: site.name for site in sites for rse in site.rses}


def by_site(flows: Iterable[Flow], sites: Mapping[str, str]) -> dict[tuple[str, str], list[Flow]]:
    """Return the flows into and out of each site: (site, `ingress` or `egress`); an RSE without a site is its own.

    Traffic inside of a site does not cross its WAN.
    """
    found: dict[tuple[str, str], list[Flow]] = {}
    for flow in flows:
        source = sites.get(flow.link.source, flow.link.source)
        destination = sites.get(flow.link.destination, flow.link.destination)
        if source != destination:
            found.setdefault((source, "egress"), []).append(flow)
            found.setdefault((destination, "ingress"), []).append(flow)
    return found
