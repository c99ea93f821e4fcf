"""Counts of what this process did, and at each scrape the numbers of the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from dc_inject.metrics import page
from dc_inject.metrics.bookkeeping import Bookkeeping, Live
from dc_inject.metrics.catalogue import PROCESS, Spec
from dc_inject.model import Campaign, Cycle
from dc_inject.model.events import (
    Answered,
    CycleClosed,
    CycleOpened,
    Event,
    LinkTroubled,
    MenusRefused,
    Planned,
    Refused,
    RequestMade,
    ServiceFailed,
    SetAside,
    UnexpectedError,
)

RESULTS = frozenset({"ok", "temporary", "another-now", "permanent", "fatal", "lost"})
KINDS = frozenset({"temporary", "another-now", "permanent", "fatal"})
CALL_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
CYCLE_BUCKETS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 900)
LATE = 0.1  # of a cycle: what is closed later than this after its end has taken time from the next one


class Metrics:
    """An observer that counts, and a page of its counts and the numbers of the ledger.

    Labels come from bounded sets only: services, methods and results are words of the code, scenarios and links
    those of the menus. `event` may be called from any thread.
    """

    def __init__(self, ledger_path: Path, campaign: str = "") -> None:
        """Take the ledger's file, which is opened, read-only, at each scrape, and the campaign to name."""
        self._live = Live()
        self._campaign = campaign
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(Bookkeeping(ledger_path, self._live))
        self.counted: dict[str, Any] = {spec.name: self._make(spec) for spec in PROCESS}  # not read of the ledger
        self._opened: Cycle | None = None  # the newest cycle that this process has opened

    def in_force(self, campaign: Campaign) -> None:
        """Hear which menus are in force, for the sites of their links."""
        self._live.in_force(campaign)

    def event(self, event: Event) -> None:
        """Count one event, if there is a counter for it."""
        match event:
            case RequestMade():
                self._request(event)
            case ServiceFailed(service, kind):
                self.counted["errors_total"].labels(service, _bounded(kind, KINDS)).inc()
            case Refused(service, kind):
                self.counted["refusals_total"].labels(service, _bounded(kind, KINDS)).inc()
            case Answered(service, outcomes):
                self.counted["adopted_total"].labels(service).inc(sum(outcome.adopted for outcome in outcomes))
            case SetAside():
                self.counted["set_aside_total"].inc()
            case UnexpectedError():
                self.counted["unexpected_errors_total"].inc()
            case LinkTroubled(flow, hold):
                self._live.trouble(flow, hold)
            case MenusRefused():
                self.counted["menus_refused_total"].inc()
            case Planned():
                self.counted["cycle_planning_seconds"].observe(event.seconds)
            case CycleOpened(cycle):
                self._opened = cycle
                self._live.cycle_opened()
            case CycleClosed():
                self._cycle_closed(event)

    # ------------------------------------------------------------------ what is counted

    def _request(self, request: RequestMade) -> None:
        self._live.called(request.service, answered=request.answered)
        labels = (request.service, request.method, _bounded(request.result, RESULTS))
        self.counted["calls_total"].labels(*labels).inc()
        self.counted["call_seconds"].labels(*labels).observe(request.seconds)

    def _cycle_closed(self, closed: CycleClosed) -> None:
        self.counted["cycles_closed_total"].inc()
        if closed.cycle != self._opened:
            return  # left open by an earlier process: its time is no measure of work
        self.counted["cycle_close_delay_seconds"].observe(max(closed.seconds, 0))
        if closed.seconds > LATE * closed.cycle.length.total_seconds():
            self.counted["cycle_overruns_total"].inc()

    def _make(self, spec: Spec) -> Counter | Histogram:
        """Return what counts a metric, registered."""
        name, registry = f"dc_inject_{spec.name}", self.registry
        if spec.type == "counter":
            return Counter(name, spec.text, spec.labels, registry=registry)
        buckets = CALL_BUCKETS if spec.labels else CYCLE_BUCKETS
        return Histogram(name, spec.text, spec.labels, registry=registry, buckets=buckets)

    # ------------------------------------------------------------------ the page

    def serve(self, address: str) -> AbstractContextManager[str]:
        """Serve the page at `[HOST:]PORT` for as long as the context lasts; see `page.serve`."""
        return page.serve(self.app(), address)

    def app(self) -> page.App:
        """Return what answers a scrape, as WSGI has it."""
        app: page.App = make_wsgi_app(self._shown())
        return app

    def text(self) -> bytes:
        """Return what the page would show now."""
        return generate_latest(self._shown())

    def _shown(self) -> CollectorRegistry:
        shown = CollectorRegistry(auto_describe=False)
        shown.register(OfCampaign(self.registry, self._campaign))
        return shown


class OfCampaign(Collector):
    """All metrics of a registry, each series with the campaign's name as one label more."""

    def __init__(self, registry: CollectorRegistry, campaign: str) -> None:
        """Take what to read at each scrape, and the name; without a name nothing is added."""
        self._registry = registry
        self._more = {"campaign": campaign} if campaign else {}

    def collect(self) -> Iterator[Metric]:
        """Give the metrics."""
        for metric in self._registry.collect():
            metric.samples = [sample._replace(labels=self._more | sample.labels) for sample in metric.samples]
            yield metric


def _bounded(word: str, words: frozenset[str]) -> str:
    return word if word in words else "other"
