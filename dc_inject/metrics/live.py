"""What this process has observed since it started: which services answer, and which links are in trouble now.

The ledger has reasons when a cycle is planned and when it is closed; what arises in between is told here.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from dc_inject.model import Campaign, FlowKey, Hold, rates
from dc_inject.model.urls import host_of

DOWN_AFTER = 3  # calls in a row that failed: one or two may be an accident


class Live:
    """Counts calls that failed in a row, by service, and notes the first trouble of each link in this cycle.

    All may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures: dict[str, int] = {}
        self._troubles: dict[FlowKey, Hold] = {}
        self._sites: Mapping[str, str] = {}

    def called(self, service: str, *, answered: bool) -> None:
        """Hear of a call: `answered` is true also where the service refused, since that is an answer."""
        with self._lock:
            self._failures[service] = 0 if answered else self._failures.get(service, 0) + 1

    def trouble(self, flow: FlowKey, hold: Hold) -> None:
        """Hear why a link gets less than its due; the first reason of a cycle leads."""
        with self._lock:
            self._troubles.setdefault(flow, hold)

    def cycle_opened(self) -> None:
        """Forget the troubles of the last cycle."""
        with self._lock:
            self._troubles.clear()

    def in_force(self, campaign: Campaign) -> None:
        """Hear which menus are in force, and know the site of each end of their links, as reports do."""
        sites = rates.site_of(site for menu in campaign.menus for site in menu.sites)
        ends = {end for flow in campaign.flows for end in (flow.link.source, flow.link.destination)}
        with self._lock:
            self._sites = {end: sites.get(end) or host_of(end) for end in ends}

    def sites(self) -> Mapping[str, str]:
        """Return the site of each RSE or URL prefix of the menus in force."""
        with self._lock:
            return self._sites

    def services(self) -> Mapping[str, bool]:
        """Return whether each service that was called answers."""
        with self._lock:
            return {service: count < DOWN_AFTER for service, count in self._failures.items()}

    def troubles(self) -> Mapping[FlowKey, Hold]:
        """Return the links that are in trouble in this cycle, each with the reason."""
        with self._lock:
            return dict(self._troubles)
