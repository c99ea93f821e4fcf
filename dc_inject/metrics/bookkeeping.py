"""The ledger's numbers for Prometheus, read at each scrape with the same view as `status`."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dc_inject import __version__
from dc_inject.ledger import ControlDecision, LedgerView, Row, Totals
from dc_inject.metrics.live import Live
from dc_inject.model import Cycle, FlowKey, Hold, Mode, State
from dc_inject.model.errors import LedgerError
from dc_inject.planning.guards import GUARDS

log = logging.getLogger(__name__)

LINK = ("scenario", "source", "destination", "service")

# Totals of a flow's account: field -> (name, text). The first are counters, the others go up and down.
COUNTED = {
    "due": ("due_bytes", "Bytes that links should have been given."),
    "accepted": ("injected_bytes", "Bytes of accepted rules and jobs, less what was there already."),
    "failed": ("failed_bytes", "Bytes of those that failed for good, and went back to the debt."),
    "moved": ("moved_bytes", "Bytes that arrived, estimated where a rule is not complete."),
    "forgiven": ("forgiven_bytes", "Bytes of due that will not be made up."),
    "rules": ("rules_made", "Rules that a service accepted."),
}
GAUGED = {
    "resident": ("resident_bytes", "Bytes injected and not known to be gone from their destination."),
    "in_doubt": ("in_doubt_bytes", "Bytes of calls whose answer was lost and that were not looked up yet."),
    "estimated": ("moved_estimated_bytes", "The part of moved that is an estimate."),
}


class Bookkeeping(Collector):
    """Reads one ledger, read-only, at each scrape; one that cannot be read is told as `dc_inject_ledger_up 0`."""

    def __init__(self, path: Path, live: Live) -> None:
        """Take the ledger's file, which need not exist yet, and what this process has heard itself."""
        self._path = path
        self._live = live
        self._told: dict[tuple[str, FlowKey], int] = {}

    def collect(self) -> Iterator[Metric]:
        """Give all numbers as they stand in one state of the ledger."""
        build = GaugeMetricFamily("dc_inject_build_info", "The version at work.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        up = GaugeMetricFamily("dc_inject_ledger_up", "Whether the ledger could be read at this scrape.")
        try:
            with LedgerView.open(self._path) as view, view.snapshot():
                metrics = [
                    *self._accounts(view.accounts()),
                    _failures(view),
                    *_cycles(view, self._live),
                    *_campaign(view),
                    _services(view, self._live),
                ]
        except LedgerError as error:
            log.warning("metrics: %s", error.message)
            metrics = []
        up.add_metric([], bool(metrics))
        yield up
        yield from metrics

    def _accounts(self, accounts: Mapping[FlowKey, Totals]) -> Iterator[Metric]:
        for field, (name, text) in COUNTED.items():
            counted = CounterMetricFamily(f"dc_inject_{name}", text, labels=LINK)
            for key, totals in accounts.items():
                counted.add_metric(_labels(key), self._risen(field, key, getattr(totals, field)))
            yield counted
        for field, (name, text) in GAUGED.items():
            yield _by_link(name, text, {key: getattr(totals, field) for key, totals in accounts.items()})

    def _risen(self, field: str, key: FlowKey, value: int) -> int:
        """Return a counter's value, never lower than told before.

        An estimate can turn out to have been too high; Prometheus would take a fall for a restart from 0 and add
        the whole value once more to every rate.
        """
        risen = max(value, self._told.get((field, key), 0))
        self._told[field, key] = risen
        return risen


def _failures(view: LedgerView) -> Metric:
    text = "Files that failed for good, by the class of the reason."
    failed = CounterMetricFamily("dc_inject_failed_files", text, labels=(*LINK, "reason"))
    for key, reasons in view.failures().items():
        for reason, files in reasons.items():
            failed.add_metric([*_labels(key), reason], files)
    return failed


def _services(view: LedgerView, live: Live) -> Metric:
    """Tell of each service whether it answers: as the last calls of this process say, and the ledger."""
    told = {signal.subject: signal.value is not None for signal in view.signals() if signal.name == "service"}
    answering = live.services()
    family = GaugeMetricFamily(
        "dc_inject_service_up", "Whether the service answers, and knows us.", labels=["service"]
    )
    for service in sorted(told.keys() | answering.keys()):
        family.add_metric([service], told.get(service, True) and answering.get(service, True))
    return family


def _cycles(view: LedgerView, live: Live) -> Iterator[Metric]:
    last, planned = view.last_cycle(), view.last_planned()
    start = GaugeMetricFamily(
        "dc_inject_last_cycle_timestamp_seconds", "When the last cycle that was opened began."
    )
    if last is not None:
        start.add_metric([], last.start.timestamp())
    yield start
    length = GaugeMetricFamily("dc_inject_cycle_seconds", "The length of a cycle.")
    if last is not None:
        length.add_metric([], last.length.total_seconds())
    yield length
    current = () if last is None else view.rows(cycle=last)
    yield _by_link(
        "target_bytes_per_second",
        "What is due in the last cycle, by the length of a cycle.",
        {row.key: row.due / row.cycle.length.total_seconds() for row in current},
    )
    yield _holds(current, live)
    yield from _control(() if planned is None else view.decisions(planned.start))
    yield from _plans(view, planned)


def _control(decisions: Iterable[ControlDecision]) -> Iterator[Metric]:
    """Give what control decided or advised in the last plan, of links that have it."""
    made = {one.key: one for one in decisions}
    for name, text in (("window", "The most that a link may have in flight."),
                       ("in_flight", "What it had in flight when its window was set.")):  # fmt: skip
        sizes = {key: float(one.numbers[name]) for key, one in made.items()}
        yield _by_link(f"control_{name}_bytes", text, sizes)
    bias = "What control adds to what a link is due, as a part of it."
    yield _by_link("control_bias", bias, {key: one.bias for key, one in made.items()})
    guards = "How many guards hold a link, or would hold it where control only advises."
    yield _by_link("control_guards", guards, {key: len(one.guards) for key, one in made.items()})
    held = Counter((one.hold, one.mode) for one in made.values())
    family = GaugeMetricFamily(
        "dc_inject_control_held_links",
        "Links that control holds, or with `advise` would hold, by the leading reason.",
        labels=["hold", "mode"],
    )
    for hold in (Hold.BACKLOG, *(guard.hold for guard in GUARDS)):
        for mode in (Mode.ADVISE.value, Mode.ACT.value):
            family.add_metric([hold.value, mode], held[hold, mode])
    yield family


def _holds(rows: Iterable[Row], live: Live) -> Metric:
    """Give all reasons of the list, so that no series vanishes.

    A row has its reason when it is planned or closed; what has gone wrong since is told by this process.
    """
    arisen, up = live.troubles(), live.services()
    held: Counter[Hold] = Counter()
    for row in rows:
        if row.held is not None:
            held[Hold(row.held.hold)] += 1
        elif row.key in arisen:
            held[arisen[row.key]] += 1
        elif row.due and not up.get(row.key.link.through, True):
            held[Hold.API_ERRORS] += 1
    family = GaugeMetricFamily(
        "dc_inject_held_links",
        "Links that are held in the last cycle, by their leading reason, and whether it is harmless.",
        labels=["hold", "harmless"],
    )
    for hold in Hold:
        family.add_metric([hold.value, str(hold.harmless).lower()], held[hold])
    return family


def _plans(view: LedgerView, planned: Cycle | None) -> Iterator[Metric]:
    rows = () if planned is None else view.rows(cycle=planned)
    debt = "What the last plan wanted, overhead included, less what was injected and forgiven since."
    yield _by_link("debt_bytes", debt, {row.key: row.want - row.injected - row.forgiven for row in rows})
    for name, text in (("pool_items", "Datasets that the last plan could choose from."),
                       ("pool_bytes", "Their bytes.")):  # fmt: skip
        sizes = {row.key: getattr(row, name) for row in rows}
        yield _by_link(name, text, {key: size for key, size in sizes.items() if size is not None})


def _campaign(view: LedgerView) -> Iterator[Metric]:
    counts = view.state_counts()
    rules = GaugeMetricFamily("dc_inject_rules", "Injections by their state.", labels=["state"])
    for state in State:
        rules.add_metric([state.value], counts.get(state, (0, 0))[0])
    yield rules
    pauses = GaugeMetricFamily("dc_inject_pauses", "Stops by people that are in force.")
    pauses.add_metric([], len(view.pauses()))
    yield pauses
    missing = GaugeMetricFamily("dc_inject_signals_missing", "Signals that cannot be read.", labels=["signal"])
    signals = view.signals()
    unread = Counter(signal.name for signal in signals if signal.value is None)
    for name in sorted({signal.name for signal in signals}):
        missing.add_metric([name], unread[name])
    yield missing
    expiry = GaugeMetricFamily(
        "dc_inject_credentials_expiry_timestamp_seconds", "Until when credentials are good.", labels=["service"]
    )
    for known in view.identities():
        if known.credentials_until is not None:
            expiry.add_metric([known.service], known.credentials_until.timestamp())
    yield expiry


def _by_link(name: str, text: str, values: Mapping[FlowKey, float]) -> Metric:
    family = GaugeMetricFamily(f"dc_inject_{name}", text, labels=LINK)
    for key, value in values.items():
        family.add_metric(_labels(key), value)
    return family


def _labels(key: FlowKey) -> list[str]:
    return [key.scenario, key.link.source, key.link.destination, key.link.through]
