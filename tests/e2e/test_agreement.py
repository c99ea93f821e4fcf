"""Injected and moved bytes of each link agree to the byte, wherever they are told, and with Rucio's own database.

Report, export, metrics and status read one ledger. Rucio's database knows none of it: there a byte is injected if
a lock of one of our rules is for it, and moved if that lock is OK.
"""

from __future__ import annotations

import csv
import json
import signal
import sqlite3
import urllib.request
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dc_inject.model import State
from tests.e2e.tool import Tool, add_stock, this_cycle, until

pytestmark = pytest.mark.sandbox

CYCLE = 5  # seconds
Told = dict[tuple[str, str], tuple[int, int]]  # injected and moved bytes by source and destination
_LOCKS = """
SELECT source_replica_expression, rse_expression, sum(locks.bytes),
       sum(CASE locks.state WHEN 'O' THEN locks.bytes ELSE 0 END)
FROM rules JOIN locks ON locks.rule_id = rules.id WHERE comments LIKE ? GROUP BY 1, 2
"""


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
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)) as db:
        rows = db.execute(_LOCKS, [f"dc_inject/1 {campaign} %"]).fetchall()
    return {(source, destination): (injected, moved) for source, destination, injected, moved in rows}


def test_injected_and_moved_bytes_agree_to_the_byte_with_each_other_and_with_rucio(tool, sandbox, label):
    """When all has arrived, and before any rule ends: the run waits for an hour's dwell."""
    source, one, two = (f"T2_{label}_{end}" for end in ("From", "To1", "To2"))
    add_stock(sandbox, [source], [one, two])
    cycle, campaign = this_cycle(CYCLE), f"agree-{label}"
    rates = {(source, one): "10 Gb/s", (source, two): "6 Gb/s"}
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
    assert set(rucio) == {(source, one), (source, two)}
    assert all(injected == moved > 0 for injected, moved in rucio.values())
    assert of_metrics(place) == rucio
    assert of_export(tool, campaign) == rucio
    assert of_report(tool, campaign) == rucio
    assert of_status(tool, campaign) == rucio
    running.send(signal.SIGTERM)
    running.ends()
