"""What rates sum to: over a menu or campaign, and at each site, when most of them hold at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dc_inject.model import Flow, Site


class Peak(NamedTuple):
    """The largest sum of rates (bytes per second) at any one time, and the largest flow of those that it sums."""

    rate: float
    flow: Flow | None


def peak(flows: Iterable[Flow]) -> Peak:
    """Return the largest sum of rates at any one time; NaN when a rate is not known."""
    by_start: dict[object, list[Flow]] = {}
    some = list(flows)
    for flow in some:
        by_start.setdefault((flow.start, flow.end), []).append(flow)
    # A sum can only be largest where some window starts; windows are few, flows are many.
    windows = [(part[0].start, part[0].end, math.fsum(f.rate for f in part), part) for part in by_start.values()]
    best, members = 0.0, list[list[Flow]]()
    for moment in {start for start, _, _, _ in windows}:
        at_once = [window for window in windows if window[0] <= moment < window[1]]
        total = math.fsum(rate for _, _, rate, _ in at_once)
        if math.isnan(total):
            return Peak(math.nan, None)
        if total > best:
            best, members = total, [part for _, _, _, part in at_once]
    largest = max((flow for part in members for flow in part), key=lambda flow: flow.rate, default=None)
    return Peak(best, largest)


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
