"""Metrics from the ledger, read at each scrape, and from what this process has seen since it started.

The ledger has holds when a cycle is planned and when it is closed; `Live` has those that arise in between.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from dc_inject import __version__
from dc_inject.ledger import ControlDecision, LedgerView, Row, Totals
from dc_inject.metrics.catalogue import family
from dc_inject.model import Campaign, Cycle, FlowKey, Hold, Mode, State, rates
from dc_inject.model.errors import LedgerError
from dc_inject.model.holds import Trait
from dc_inject.model.urls import host_of

log = logging.getLogger(__name__)

# Totals of a flow's account, and their metrics. The first are counters, the others go up and down.
COUNTED = {
    "due": "due_bytes_total",
    "accepted": "injected_bytes_total",
    "failed": "failed_bytes_total",
    "moved": "moved_bytes_total",
    "forgiven": "forgiven_bytes_total",
    "rules": "rules_made_total",
}
GAUGED = {
    "resident": "resident_bytes",
    "in_doubt": "in_doubt_bytes",
    "estimated": "moved_estimated_bytes",
    "not_moved": "not_moved_bytes",
}


class Bookkeeping(Collector):
    """Reads one ledger, read-only, at each scrape; one that cannot be read is `dc_inject_ledger_up 0`."""

    def __init__(self, path: Path, live: Live) -> None:
        """Take the ledger's file, which need not exist yet, and what this process has heard itself."""
        self._path = path
        self._live = live
        self._highest: dict[tuple[str, FlowKey], int] = {}

    def collect(self) -> Iterator[Metric]:
        """Give all numbers as they stand in one state of the ledger."""
        yield _filled("build_info", [([__version__], 1)])
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
        yield _unlabelled("ledger_up", bool(metrics))
        yield from metrics
        yield from _disk(self._path)
        yield _filled("rse_info", (([rse, site], 1) for rse, site in sorted(self._live.sites().items())))

    def _accounts(self, accounts: Mapping[FlowKey, Totals]) -> Iterator[Metric]:
        for field, name in COUNTED.items():
            yield _by_link(
                name, {key: self._risen(field, key, getattr(totals, field)) for key, totals in accounts.items()}
            )
        for field, name in GAUGED.items():
            yield _by_link(name, {key: getattr(totals, field) for key, totals in accounts.items()})

    def _risen(self, field: str, key: FlowKey, value: int) -> int:
        """Return a counter's value, never lower than before.

        An estimate can turn out to have been too high; Prometheus would take a fall for a restart from 0 and add
        the whole value once more to every rate.
        """
        risen = max(value, self._highest.get((field, key), 0))
        self._highest[field, key] = risen
        return risen


def _disk(path: Path) -> Iterator[Metric]:
    """Give the size of the ledger and what is free on its disk; nothing of what cannot be asked."""
    with contextlib.suppress(OSError):
        yield _unlabelled("ledger_disk_free_bytes", shutil.disk_usage(path.parent).free)
        files = [file for file in (path, path.with_name(f"{path.name}-wal")) if file.exists()]
        yield _unlabelled("ledger_bytes", sum(file.stat().st_size for file in files))


def _failures(view: LedgerView) -> Metric:
    failed = view.failures().items()
    rows = (([*_labels(key), reason], files) for key, reasons in failed for reason, files in reasons.items())
    return _filled("failed_files_total", rows)


def _services(view: LedgerView, live: Live) -> Metric:
    """Return whether each service answers, by the last calls of this process and by the ledger."""
    working = {signal.subject: signal.value is not None for signal in view.signals() if signal.name == "service"}
    answering = live.services()
    services = sorted(working.keys() | answering.keys())
    up = (([service], working.get(service, True) and answering.get(service, True)) for service in services)
    return _filled("service_up", up)


def _cycles(view: LedgerView, live: Live) -> Iterator[Metric]:
    last, planned, turned = view.last_cycle(), view.last_planned(), view.last_turn()
    if turned is not None:
        yield _unlabelled("last_cycle_timestamp_seconds", turned.timestamp())
    silent, closed = view.silent_since(), view.last_closed()
    length = (closed.end - silent).total_seconds() if silent and closed else 0.0
    yield _unlabelled("nothing_arrived_seconds", length)
    if view.cycle_length is not None:
        yield _unlabelled("cycle_seconds", view.cycle_length.total_seconds())
    current = () if last is None else view.rows(cycle=last)
    targets = {row.key: row.due / row.cycle.length.total_seconds() for row in current}
    yield _by_link("target_bytes_per_second", targets)
    yield from _holds(current, live)
    yield from _control(() if planned is None else view.decisions(planned.start))
    yield from _plans(view, planned)


def _control(decisions: Iterable[ControlDecision]) -> Iterator[Metric]:
    """Give what control decided or advised in the last plan, of links that have it."""
    made = {decision.key: decision for decision in decisions}
    for name in ("window", "in_flight"):
        yield _by_link(
            f"control_{name}_bytes", {key: float(decision.numbers[name]) for key, decision in made.items()}
        )
    held = Counter((decision.hold, decision.mode) for decision in made.values())
    holds = [hold for hold in Hold if Trait.CONTROL in hold.traits]
    modes = (Mode.ADVISE.value, Mode.ACT.value)
    yield _filled(
        "control_held_links", (([hold.value, mode], held[hold, mode]) for hold, mode in product(holds, modes))
    )


def _holds(rows: Iterable[Row], live: Live) -> Iterator[Metric]:
    """Give the links that are held, and the number of each reason of the list, so that no series vanishes.

    A row has its reason when it is planned or closed; trouble since then is known to this process.
    """
    arisen, up = live.troubles(), live.services()
    held: dict[FlowKey, Hold] = {}
    for row in rows:
        if row.held is not None:
            held[row.key] = Hold(row.held.hold)
        elif row.key in arisen:
            held[row.key] = arisen[row.key]
        elif row.due and not up.get(row.key.link.through, True):
            held[row.key] = Hold.API_ERRORS
    yield _filled("link_held", (([*_labels(key), *_words(hold)], 1) for key, hold in held.items()))
    counts = Counter(held.values())
    yield _filled("held_links", ((_words(hold), counts[hold]) for hold in Hold))


def _words(hold: Hold) -> list[str]:
    return [hold.value, str(hold.harmless).lower()]


def _plans(view: LedgerView, planned: Cycle | None) -> Iterator[Metric]:
    rows = () if planned is None else view.rows(cycle=planned)
    yield _by_link("debt_bytes", {row.key: row.want - row.injected - row.forgiven for row in rows})
    for name in ("pool_items", "pool_bytes"):
        sizes = {row.key: getattr(row, name) for row in rows}
        yield _by_link(name, {key: size for key, size in sizes.items() if size is not None})


def _campaign(view: LedgerView) -> Iterator[Metric]:
    counts = view.state_counts()
    yield _filled("rules", (([state.value], counts.get(state, (0, 0))[0]) for state in State))
    yield _unlabelled("pauses", len(view.pauses()))
    unread: Counter[str] = Counter()
    for signal in view.signals():
        unread[signal.name] += signal.value is None
    yield _filled("signals_missing", (([name], count) for name, count in sorted(unread.items())))
    until = {identity.service: identity.credentials_until for identity in view.identities()}
    expiry = (([service], moment.timestamp()) for service, moment in until.items() if moment is not None)
    yield _filled("credentials_expiry_timestamp_seconds", expiry)


def _unlabelled(name: str, value: float) -> Metric:
    return _filled(name, [([], value)])


def _by_link(name: str, values: Mapping[FlowKey, float]) -> Metric:
    return _filled(name, ((_labels(key), value) for key, value in values.items()))


def _filled(name: str, rows: Iterable[tuple[list[str], float]]) -> Metric:
    """Return a family of the catalogue with a value for each row of labels."""
    made = family(name)
    for labels, value in rows:
        made.add_metric(labels, value)
    return made


def _labels(key: FlowKey) -> list[str]:
    return [key.scenario, key.link.source, key.link.destination, key.link.through]


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
        sites = rates.site_of(campaign)
        ends = {end for flow in campaign.flows for end in flow.link.ends}
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
