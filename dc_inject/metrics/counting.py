"""What this process did, counted; beside it, at each scrape, the numbers of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from dc_inject.metrics import page
from dc_inject.metrics.bookkeeping import Bookkeeping
from dc_inject.metrics.live import Live
from dc_inject.model import Cycle

RESULTS = frozenset({"ok", "temporary", "another-now", "permanent", "fatal", "lost"})
KINDS = frozenset({"temporary", "anothernow", "permanent", "fatal"})
CALL_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
CYCLE_BUCKETS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 900)
LATE = 0.1  # of a cycle: what is closed later than this after its end has taken time from the next one


class Silent:
    """An observer that hears nothing."""

    def event(self, name: str, **numbers: Any) -> None:
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
        self._heard: dict[str, Callable[..., None]] = {
            "call": self._call,
            "error": self._error,
            "another-now": lambda service, **_: self._refusals.labels(service, "another-now").inc(),
            "permanent": lambda service, **_: self._refusals.labels(service, "permanent").inc(),
            "answered": self._answered,
            "set-aside": lambda **_: self._set_aside.inc(),
            "unexpected": lambda **_: self._unexpected.inc(),
            "trouble": lambda flow, hold, **_: self._live.trouble(flow, hold),
            "menus-refused": lambda **_: self._menus_refused.inc(),
            "planned": lambda seconds, **_: self._planning.observe(seconds),
            "cycle-opened": self._cycle_opened,
            "cycle-closed": self._cycle_closed,
        }

    def event(self, name: str, **numbers: Any) -> None:
        """Count one thing that happened; what nobody counts passes."""
        heard = self._heard.get(name)
        if heard is not None:
            heard(**numbers)

    # ------------------------------------------------------------------ what is counted

    def _call(
        self, *, service: str, method: str, seconds: float, result: str, answered: bool, **_: object
    ) -> None:
        self._live.called(service, answered=answered)
        labels = (service, method, _known(result, RESULTS))
        self._calls.labels(*labels).inc()
        self._call_seconds.labels(*labels).observe(seconds)

    def _error(self, *, service: str, kind: str, **_: object) -> None:
        self._errors.labels(service, _known(kind, KINDS)).inc()

    def _answered(self, *, service: str, outcomes: Iterable[Any], **_: object) -> None:
        self._adopted.labels(service).inc(sum(outcome.adopted for outcome in outcomes))

    def _cycle_opened(self, *, cycle: Cycle, **_: object) -> None:
        self._opened = cycle
        self._live.cycle_opened()

    def _cycle_closed(self, *, cycle: Cycle, seconds: float, **_: object) -> None:
        self._cycles.inc()
        if cycle != self._opened:
            return  # left open by an earlier process: nobody worked on it meanwhile, it did not take long
        self._lateness.observe(max(seconds, 0))
        if seconds > LATE * cycle.length.total_seconds():
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
