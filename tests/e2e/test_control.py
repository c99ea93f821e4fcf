"""Holds of controlled links on real services: each one comes, says why with its numbers, and lets go.

One campaign through Rucio and FTS has a link for each trouble: transfers that fail, links that are slow through
either service, a destination that somebody else fills, and ends that their sites close. All of it happens at once,
and ends at once. A real Prometheus scrapes the injector, and
answers what the dashboard asks.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dc_inject.ledger import LedgerView
from dc_inject.metrics import Metrics
from dc_inject.model import Cycle, FlowKey, Hold
from dc_inject.sandbox import Link, Rse, Sandbox, make_datasets
from dc_inject.sandbox.state import write_private
from dc_inject.summary.standing import standing
from tests.backends.support import fts3_or_skip
from tests.conftest import client_for
from tests.docs import dashboards
from tests.e2e.tool import GB, Tool, rules, until
from tests.metrics import prometheus
from tests.metrics.prometheus import Prometheus

pytestmark = pytest.mark.sandbox

# Seconds. Services on a machine with many times its work do not answer within a part of a short cycle.
CYCLE = int(min(max(6.0, 3.0 * os.getloadavg()[0] / (os.cpu_count() or 1)), 30.0))
PATIENCE = 900.0
PAUSE = 1.0  # seconds between two looks, of which each asks and writes to services
FILE = 500_000  # bytes, of those that go through FTS
SLOW = 250_000  # bytes per second: what the slow storage takes
SPACE = 10**13  # bytes of each RSE

MENU = """\
menu: 1
campaign: {campaign}
contact: e2e@example.org
start: {start}
end: {end}
limits: {{total: 1000 Gb/s, per_site: 1000 Gb/s, rules_per_hour: 1000000}}
defaults: {{control: act, cycle: {cycle} s}}
scenarios:
  rules:
    lifetime: {{min: 600 s, max: 600 s}}
    dwell: 600 s
    datasets: {{did: ["cms:*"], files: 1..10, mean_file: 0.1..1 GB}}
    links:
      - {{from: {open}, to: {label}_failing, rate: 0.8 Gb/s}}
      - {{from: {open}, to: {label}_backlog, rate: 0.8 Gb/s, lifetime: {{min: {long} s, max: {long} s}}}}
      - {{from: {open}, to: {label}_destination-full, rate: 0.8 Gb/s}}
      - {{from: {open}, to: {label}_destination-unavailable, rate: 0.8 Gb/s}}
      - {{from: {closed}, to: {label}_source-unavailable, rate: 0.8 Gb/s}}
  files:
    through: fts
    lifetime: {{min: {queued} s, max: {queued} s}}
    files: {{folder: src}}
    jobs: {{files: 10, longest_transfer: 1 s}}
    links:
      - {{from: "{files}", to: "{files_to}/{label}_backlog", rate: 48 Mb/s}}
"""

# Of each hold: numbers that say why, with what each has to be at least.
NUMBERS: Mapping[Hold, Mapping[str, float | str]] = {
    Hold.FAILING: {"failed": 0.5, "probe": 1},
    Hold.BACKLOG: {"in_flight": 0, "window": 1},
    Hold.DESTINATION_FULL: {},
    Hold.DESTINATION_UNAVAILABLE: {},
    Hold.SOURCE_UNAVAILABLE: {},
}


@dataclass
class Trouble:
    """All that goes wrong, and the end of it."""

    grid: Sandbox
    label: str

    def __post_init__(self) -> None:
        self.root = client_for(self.grid.root_config)
        self.open, self.closed = f"{self.label}_Open", f"{self.label}_Closed"

    def place(self, hold: Hold) -> str:
        """The destination of the link that meets with this trouble."""
        return f"{self.label}_{hold.value}"

    def furnish(self) -> None:
        """Make sources and destinations."""
        of_rucio = [self.place(hold) for hold in NUMBERS]
        stock = {
            name: make_datasets(name, count, files=(1, 1), file_size=(GB // 4, GB // 4), seed=name)
            for name, count in ((self.open, 120), (self.closed, 20))
        }
        self.grid.add([Rse(name, SPACE) for name in (*stock, *of_rucio)], stock)
        for number in range(20):
            self.grid.put("XRD1", f"/{self.label}/src/{number:02}", FILE + number, seed=number)

    def begin(self) -> None:
        """Let it all go wrong, but for the destination that is filled when something of ours is there."""
        fast = Link(rate=1e12)
        self.grid.set_links(
            {
                (self.open, self.place(Hold.FAILING)): Link(rate=1e12, failures=1),
                (self.open, self.place(Hold.BACKLOG)): Link(rate=4e6),
                **{
                    (self.open, self.place(hold)): fast
                    for hold in (Hold.DESTINATION_FULL, Hold.DESTINATION_UNAVAILABLE)
                },
                (self.closed, self.place(Hold.SOURCE_UNAVAILABLE)): fast,
            }
        )
        self.grid.slow_daemon("judge-repairer", 10)  # it would try again and again what always fails
        self.root.update_rse(self.place(Hold.DESTINATION_UNAVAILABLE), {"availability_write": False})
        self.root.update_rse(self.closed, {"availability_read": False})
        self._fts({"link_active": 2})
        self.grid.throttle("XRD2", SLOW)

    def fill(self) -> bool:
        """Let somebody else fill a destination at which something of ours is; false while nothing is."""
        name = self.place(Hold.DESTINATION_FULL)
        usage = {row["source"]: row for row in self.root.get_rse_usage(name)}
        used = usage.get("rucio", {}).get("used") or 0
        if used < GB:
            return False
        self.root.set_rse_usage(name, "storage", used, free=GB // 100)
        return True

    def empty(self) -> None:
        """Let that somebody delete it all again."""
        self.root.set_rse_usage(self.place(Hold.DESTINATION_FULL), "storage", 0, free=SPACE)

    def end(self) -> None:
        """Repair all of it."""
        for hold in (Hold.FAILING, Hold.BACKLOG):
            self.grid.set_links({(self.open, self.place(hold)): Link(rate=1e12)})
        self.empty()
        self.grid.slow_daemon("judge-repairer", 2)
        self.root.update_rse(self.place(Hold.DESTINATION_UNAVAILABLE), {"availability_write": True})
        self.root.update_rse(self.closed, {"availability_read": True})
        self._fts({})
        self.grid.throttle("XRD2", None)

    def _fts(self, settings: Mapping[str, Any]) -> None:
        write_private(self.grid.folder / "fts" / "settings.json", json.dumps(settings))


@pytest.fixture
def trouble(storage_grid: Sandbox, label: str) -> Iterator[Trouble]:
    made = Trouble(storage_grid, label)
    made.furnish()
    try:
        made.begin()
        yield made
    finally:
        made.end()


@pytest.fixture
def tool(storage_grid: Sandbox, tmp_path: Path) -> Iterator[Tool]:
    fts3_or_skip()
    made = Tool(tmp_path, storage_grid.config, {"DC_INJECT_FTS_ENDPOINT": storage_grid.fts_url})
    try:
        yield made
    finally:
        made.kill()


def trouble_of(key: FlowKey) -> Hold:
    """The trouble that a link's destination stands for."""
    return Hold(key.link.destination.rpartition("_")[2])


def told(ledger: Path) -> Iterator[tuple[str, Hold]]:
    """Who tells now that a link is held by its trouble: ledger, status, decisions, metrics."""
    with LedgerView.open(ledger) as view, view.snapshot():
        last = view.last_planned()
        rows = view.rows(cycle=last) if last else ()
        yield from (("ledger", row.held.hold) for row in rows if row.held and row.held.hold is trouble_of(row.key))
        shown = standing(view.campaign, view, datetime.now(UTC))["rows"]
        yield from (("status", Hold(row["held"])) for row in shown if row["held"])
        made = view.decisions(last.start) if last else ()
        yield from (("decisions", one.hold) for one in made if one.hold is trouble_of(one.key))
    for family in text_string_to_metric_families(generate_latest(Metrics(ledger).registry).decode()):
        for sample in family.samples:
            if sample.name == "dc_inject_held_links" and sample.value:
                yield "metrics", Hold(sample.labels["hold"])


# Of these, this campaign has nothing: tests/metrics/test_queries.py asks for them.
WITHOUT = (
    "dc_inject_credentials_expiry_timestamp_seconds",
    "dc_inject_errors_total",
    "dc_inject_failed_files_total",
    "offset 30m",  # the campaign is younger
)


def still_unanswered(scraper: Prometheus, missing: set[str], campaign: str) -> set[str]:
    """Ask the dashboard's queries, and keep those that have no answer yet: some are of what has ended."""
    chosen = {"campaign": campaign, "scenario": ".*", "site": ".*", "rse": ".*", "window": "1h"}
    missing -= {q for q in missing if scraper.get("/api/v1/query", query=dashboards.plain(q, **chosen))["result"]}
    return missing


def test_each_hold_comes_says_why_and_lets_go(tool, trouble):
    campaign, grid = f"control-{trouble.label}", trouble.grid
    start = Cycle.at(datetime.now(UTC), timedelta(seconds=CYCLE)).start

    stamp, menu = "%Y-%m-%dT%H:%M:%SZ", tool.state / "control.yaml"
    text = MENU.format(
        campaign=campaign, start=start.strftime(stamp), end=(start + timedelta(hours=1)).strftime(stamp),
        cycle=CYCLE, long=7 * CYCLE, queued=20 * CYCLE, label=trouble.label,
        open=trouble.open, closed=trouble.closed,
        files=f"{grid.storages['XRD1']}/{trouble.label}", files_to=grid.storages["XRD2"],
    )  # fmt: skip
    menu.write_text(text)
    prometheus.needed("prometheus")
    address = prometheus.free_address()
    run = tool.start("run", menu, "--timeout", 10, "--metrics-address", address)
    until(trouble.fill, "something of ours at the destination that is filled")
    heard: set[tuple[str, Hold]] = set()
    everywhere = {(who, hold) for who in ("ledger", "status", "decisions", "metrics") for hold in NUMBERS}

    def each_told() -> bool:
        trouble.fill()  # again, since the sandbox may have told meanwhile what it had read before
        heard.update(told(tool.ledger(campaign)))
        return heard >= everywhere

    with prometheus.running(tool.state / "prometheus", address) as scraper:
        try:
            until(each_told, "each link is held by its trouble, and everybody tells it", PATIENCE, PAUSE)
        except AssertionError as late:
            raise AssertionError(f"never told: {sorted(everywhere - heard)}") from late
        missing = {query for query in dashboards.queries() if not any(name in query for name in WITHOUT)}
        try:
            until(lambda: not still_unanswered(scraper, missing, campaign), "each query is answered", pause=PAUSE)
        except AssertionError as late:
            raise AssertionError(f"never answered: {sorted(missing)}") from late
    rows = [row for row in tool.rows(campaign) if row.held and row.held.hold is trouble_of(row.key)]
    first = {row.held.hold: row.held.numbers for row in reversed(rows)}
    for hold, numbers in NUMBERS.items():
        for name, least in numbers.items():
            value = first[hold][name]
            assert value == least if isinstance(least, str) else value >= least, (hold, first[hold])

    trouble.end()
    ended = datetime.now(UTC)

    def let_go() -> set[Hold]:
        trouble.empty()
        after = [row for row in tool.rows(campaign) if row.cycle.start > ended and row.injected > 0]
        return {
            trouble_of(row.key) for row in after if row.held is None or row.held.hold is not trouble_of(row.key)
        }

    until(
        lambda: let_go() == set(NUMBERS),
        "each link gets something again, and is not held any more",
        PATIENCE,
        PAUSE,
    )
    run.send(signal.SIGTERM)
    run.ends()
    # The files go, and what is stuck in Rucio, which it would try again and again; the rest with its lifetime.
    tool.run("end", campaign, "files", "--yes", "--cancel", "--cancel-rate", "36000/h")
    for rule in rules(grid.config, campaign):
        if rule["state"] == "STUCK":
            trouble.root.delete_replication_rule(rule["id"])
