"""What this process did, counted; beside it, at each scrape, the numbers of the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Histogram, make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from dc_inject.metrics import page
from dc_inject.metrics.bookkeeping import Bookkeeping
from dc_inject.metrics.live import Live
from dc_inject.model import Cycle
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


class Silent:
    """An observer that hears nothing."""

    def event(self, event: Event) -> None:
        """Let it pass."""


class Metrics:
    """An observer that counts, and a page of what it counted beside the numbers of the ledger.

    Labels come from bounded sets only: services, methods and results are words of the code, scenarios and links
    those of the menus. `event` may be called from any thread.
    """

    def __init__(self, ledger_path: Path, campaign: str = "") -> None:
        """Take the ledger's file, which is opened, read-only, at each scrape, and the campaign to name."""
        self._live = Live()
        self._campaign = campaign
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(Bookkeeping(ledger_path, self._live))
        self.counted: list[
            Counter | Histogram
        ] = []  # what this process counts, as opposed to the ledger's numbers
        self._opened: Cycle | None = None  # the newest cycle that this process has opened
        call = ("service", "method", "result")
        self._calls = self._counter("calls", "Calls to services by their result.", *call)
        self._call_seconds = self._histogram("call_seconds", "Time that calls took.", CALL_BUCKETS, *call)
        self._errors = self._counter("errors", "Errors that services answered with.", "service", "kind")
        self._refusals = self._counter("refusals", "Injections that a service refused.", "service", "kind")
        self._adopted = self._counter("adopted", "Injections found to be accepted earlier.", "service")
        self._set_aside = self._counter("set_aside", "Datasets that a last look found to be of no use.")
        self._unexpected = self._counter("unexpected_errors", "Errors that nobody foresaw.")
        self._menus_refused = self._counter("menus_refused", "Changed menus that were not taken up.")
        self._cycles = self._counter("cycles_closed", "Cycles closed by this process.")
        self._overruns = self._counter("cycle_overruns", "Cycles that took time from the next one.")
        self._planning = self._histogram(
            "cycle_planning_seconds", "Time from the start of planning to a plan on disk.", CYCLE_BUCKETS
        )
        self._lateness = self._histogram(
            "cycle_close_delay_seconds", "Time from a cycle's end to its closing.", CYCLE_BUCKETS
        )

    def event(self, event: Event) -> None:
        """Count one thing that happened; what nobody counts passes."""
        match event:
            case RequestMade():
                self._request(event)
            case ServiceFailed(service, kind):
                self._errors.labels(service, _known(kind, KINDS)).inc()
            case Refused(service, kind):
                self._refusals.labels(service, _known(kind, KINDS)).inc()
            case Answered(service, outcomes):
                self._adopted.labels(service).inc(sum(outcome.adopted for outcome in outcomes))
            case SetAside():
                self._set_aside.inc()
            case UnexpectedError():
                self._unexpected.inc()
            case LinkTroubled(flow, hold):
                self._live.trouble(flow, hold)
            case MenusRefused():
                self._menus_refused.inc()
            case Planned():
                self._planning.observe(event.seconds)
            case CycleOpened(cycle):
                self._opened = cycle
                self._live.cycle_opened()
            case CycleClosed():
                self._cycle_closed(event)

    # ------------------------------------------------------------------ what is counted

    def _request(self, request: RequestMade) -> None:
        self._live.called(request.service, answered=request.answered)
        labels = (request.service, request.method, _known(request.result, RESULTS))
        self._calls.labels(*labels).inc()
        self._call_seconds.labels(*labels).observe(request.seconds)

    def _cycle_closed(self, closed: CycleClosed) -> None:
        self._cycles.inc()
        if closed.cycle != self._opened:
            return  # left open by an earlier process: nobody worked on it meanwhile, it did not take long
        self._lateness.observe(max(closed.seconds, 0))
        if closed.seconds > LATE * closed.cycle.length.total_seconds():
            self._overruns.inc()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        made = Counter(f"dc_inject_{name}", text, labels, registry=self.registry)
        self.counted.append(made)
        return made

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        made = Histogram(f"dc_inject_{name}", text, labels, registry=self.registry, buckets=buckets)
        self.counted.append(made)
        return made

    # ------------------------------------------------------------------ the page

    def serve(self, address: str) -> AbstractContextManager[str]:
        """Serve the page at `[HOST:]PORT` for as long as the context lasts; see `page.serve`."""
        shown = CollectorRegistry(auto_describe=False)
        shown.register(OfCampaign(self.registry, self._campaign))
        return page.serve(make_wsgi_app(shown), address)


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


def _known(word: str, words: frozenset[str]) -> str:
    return word if word in words else "other"
