"""Injected and moved bytes of each link agree to the byte, wherever they are told, and with Rucio's own database.

Report, export, metrics and status read one ledger. Rucio's database knows none of it: there a byte is injected if
Rucio made a transfer of it for one of our rules, and moved if that rule's lock on the file is OK. A file that
others move, or that is at a destination already, has a lock and no transfer: it must not count.
"""

from __future__ import annotations

import csv
import json
import signal
import sqlite3
import urllib.request
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rucio.client import Client
from rucio.common.exception import DatabaseException

from dc_inject import sandbox as grid
from dc_inject.model import State
from dc_inject.sandbox import Sandbox
from tests.conftest import client_for
from tests.e2e.tool import Tool, add_stock, stock, this_cycle, until

pytestmark = pytest.mark.sandbox

CYCLE = 15  # seconds: a busy machine has planned before they are over
Told = dict[tuple[str, str], tuple[int, int]]  # injected and moved bytes by source and destination
_LOCKS = """
SELECT source_replica_expression, rse_expression, sum(locks.bytes),
       sum(CASE locks.state WHEN 'O' THEN locks.bytes ELSE 0 END)
FROM rules JOIN locks ON locks.rule_id = rules.id WHERE comments LIKE ? GROUP BY 1, 2
"""
_REQUESTS = """
SELECT source_replica_expression, rse_expression, sum(asked.bytes)
FROM rules JOIN (
    SELECT rule_id, scope, name, dest_rse_id, max(bytes) AS bytes
    FROM (SELECT rule_id, scope, name, dest_rse_id, bytes FROM requests
          UNION ALL SELECT rule_id, scope, name, dest_rse_id, bytes FROM requests_history)
    GROUP BY 1, 2, 3, 4
) AS asked ON asked.rule_id = rules.id
WHERE comments LIKE ? GROUP BY 1, 2
"""  # each file once, however often Rucio has tried it


def summed(records: Iterable[Mapping[str, Any]], injected: str, moved: str) -> Told:
    """Add up records of links."""
    sums: dict[str, Counter[tuple[str, str]]] = {injected: Counter(), moved: Counter()}
    for record in records:
        for name, counter in sums.items():
            counter[record["source"], record["destination"]] += int(record[name])
    return {link: (size, sums[moved][link]) for link, size in sums[injected].items()}


def of_report(tool: Tool, campaign: str) -> Told:
    """The lines of its CSV; its totals have to be their sums."""
    links = summed(
        csv.DictReader(tool.run("report", campaign, "--format", "csv").out.splitlines()), "injected", "moved"
    )
    totals = tool.run("report", campaign, "--format", "json").json["totals"]
    assert (totals["injected"], totals["moved"]) == tuple(map(sum, zip(*links.values(), strict=True)))
    return links


def of_export(tool: Tool, campaign: str) -> Told:
    lines = tool.run("export", campaign).out.splitlines()
    return summed(map(json.loads, lines), "injected_bytes", "moved_bytes")


def of_status(tool: Tool, campaign: str) -> Told:
    return summed(tool.status(campaign, "--summary")["links"], "injected", "moved")


def of_metrics(place: str) -> Told:
    with urllib.request.urlopen(f"http://{place}/metrics", timeout=60) as answer:
        families = {one.name: one for one in text_string_to_metric_families(answer.read().decode())}
    injected, failed, moved = (
        {
            (sample.labels["source"], sample.labels["destination"]): round(sample.value)
            for sample in families[f"dc_inject_{name}_bytes"].samples
            if sample.name.endswith("_total")
        }
        for name in ("injected", "failed", "moved")
    )
    return {link: (size - failed[link], moved[link]) for link, size in injected.items()}


def of_rucio(database: Path, campaign: str) -> Told:
    """What Rucio was asked for, and what has arrived; each lock of ours has to be one of a transfer for us."""
    like = [f"dc_inject/1 {campaign} %"]
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)) as db:
        locks = {(source, to): (all_, ok) for source, to, all_, ok in db.execute(_LOCKS, like)}
        asked = {(source, to): size for source, to, size in db.execute(_REQUESTS, like)}
    assert asked == {link: locked for link, (locked, _) in locks.items()}
    return {link: (asked[link], arrived) for link, (_, arrived) in locks.items()}


@dataclass
class Others:
    """What others have and do at the places of a campaign, as root."""

    sandbox: Sandbox
    root: Client

    def call(self, method: str, *args: Any, **more: Any) -> Any:
        """Call again while the database is busy with the daemons."""

        def answer() -> list[Any]:
            with suppress(DatabaseException):
                return [getattr(self.root, method)(*args, **more)]
            return []

        return until(answer, method)[0]

    def files(self, number: int, source: str) -> list[dict[str, Any]]:
        """The files of a dataset of the stock."""
        return list(self.call("list_files", "cms", stock(source)[number].name))

    def dataset(self, name: str, files: Iterable[Mapping[str, Any]], rse: str) -> None:
        """Make a dataset of files that an RSE has, and hold it there."""
        did = {"scope": "cms", "name": name}
        rows = [{"scope": file["scope"], "name": file["name"]} for file in files]
        self.call("add_dataset", "cms", name)
        self.call("attach_dids", "cms", name, rows)
        self.call("set_status", "cms", name, open=False)
        self.rule([did], rse)

    def rule(self, dids: list[dict[str, Any]], rse: str, source: str | None = None, *, wait: bool = True) -> None:
        dids = [{"scope": did["scope"], "name": did["name"]} for did in dids]
        ids = self.call("add_replication_rule", dids, 1, rse, source_replica_expression=source, grouping="DATASET")
        if wait:
            until(
                lambda: all(self.call("get_replication_rule", one)["state"] == "OK" for one in ids),
                f"rules of others at {rse}",
            )


def entangle(others: Others, source: str, second: str, one: str, two: str) -> None:
    """Let datasets share files and be at two sources, and let others bring files to both destinations.

    Datasets 0 to 3 of the stock share files with four more; a file of 4 is at `one` already; a file of 5 is on its
    way to `two` for others, and does not arrive; 6 and a file of 0 are at `second`, too.
    """
    parts = [others.files(number, source) for number in range(7)]
    for number in range(4):
        mixed = [parts[number][0], parts[(number + 1) % 4][1]]
        others.dataset(f"/E2E_{source}/v1/SHARED#{number}", mixed, source)
    others.rule([parts[4][0]], one)
    others.rule([*parts[6], parts[0][0], parts[5][0]], second)
    others.dataset(f"/E2E_{source}/v1/SECOND#0", [parts[0][0]], second)
    others.dataset(f"/E2E_{source}/v1/SECOND#6", parts[6], second)
    others.sandbox.set_links({(second, two): grid.Link(rate=1e12, latency=3600)})
    others.rule([parts[5][0]], two, second, wait=False)
    others.sandbox.settle()


def test_injected_and_moved_bytes_agree_to_the_byte_with_each_other_and_with_rucio(tool, sandbox, label):
    """When all has arrived, and before any rule ends: the run waits for an hour's dwell."""
    source, second, one, two = (f"T2_{label}_{end}" for end in ("From", "Also", "To1", "To2"))
    add_stock(sandbox, [source], [second, one, two])
    entangle(Others(sandbox, client_for(sandbox.root_config)), source, second, one, two)
    cycle, campaign = this_cycle(CYCLE), f"agree-{label}"
    rates = {(source, one): "10 Gb/s", (source, two): "6 Gb/s", (second, one): "2 Gb/s"}
    menu = tool.menu(campaign, rates, start=cycle.start, cycles=3, cycle=CYCLE, dwell=3600)
    running = tool.start("run", menu, "--metrics-address", "127.0.0.1:0", now=cycle.start)
    place = running.says("metrics at http://").split("http://")[1].removesuffix("/metrics")

    def settled():
        """Whether all that was injected is complete, and the last cycle of the menu is closed."""
        rows = tool.rows(campaign) if tool.entries(campaign) else []
        states = {entry.state for entry in tool.entries(campaign)} - {State.WITHDRAWN, State.REFUSED}
        over = [row for row in rows if row.cycle.start >= cycle.start + 2 * cycle.length and row.closed]
        return bool(over) and states == {State.COMPLETE}

    until(settled, "all of it complete")
    rucio = of_rucio(sandbox.folder / "rucio.db", campaign)
    assert set(rucio) >= {(source, one), (source, two)}
    assert all(injected == moved > 0 for injected, moved in rucio.values())
    assert of_metrics(place) == rucio
    assert of_export(tool, campaign) == rucio
    assert of_report(tool, campaign) == rucio
    assert of_status(tool, campaign) == rucio
    running.send(signal.SIGTERM)
    running.ends()
