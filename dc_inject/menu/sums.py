"""Whose rates sum up where: the sites of RSEs, and the flows into and out of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dc_inject.model import Flow, Site


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
