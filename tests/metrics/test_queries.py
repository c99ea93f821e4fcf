"""Every query of the dashboard and of the rules has an answer on a real Prometheus that has a campaign's metrics.

On real services `tests/e2e/test_control.py` asks most of them. Here the campaign is simulated: one link has
control, one has nothing to give, and one has files that fail. Its metrics are sampled when each cycle is closed,
and written into Prometheus as its past.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from dc_inject.backends.sim import InlineExecutor
from dc_inject.engine.engine import Engine
from dc_inject.metrics import Metrics
from dc_inject.metrics.catalogue import METRICS
from dc_inject.model import Hold, RseSpec, Site
from dc_inject.model.control import Control, Mode
from dc_inject.model.events import CycleClosed, Event, LinkTroubled
from tests.docs import dashboards
from tests.engine.world import CYCLE, GB, START, campaign, file_flow, flow, items, source_files, world
from tests.metrics import prometheus
from tests.metrics.prometheus import RULES, Prometheus
from tests.metrics.test_counters import drive
from tests.sim import SimBackend

CYCLES = 10
GROUPS = yaml.safe_load(RULES.read_text())["groups"]
RECORDED = {one["record"]: one["expr"] for group in GROUPS for one in group["rules"] if "record" in one}
ALERTS = {one["alert"]: one["expr"] for group in GROUPS for one in group["rules"] if "alert" in one}
VALUES = {"campaign": "test", "scenario": ".*", "site": ".*", "rse": ".*", "window": "1h"}


class Sample(NamedTuple):
    """What one scrape would have read, and when."""

    at: float
    lines: list[str]


def samples(path: Path) -> Iterator[Sample]:
    """Run the campaign, and read its metrics when each cycle is closed."""
    flows = [
        flow("A", "B", 1, scenario="t0", control=Control(Mode.ACT)),
        flow("D", "B", 1, scenario="dry"),
        file_flow("S", "T", 1, scenario="files"),
    ]
    made = campaign(flows, sites=(Site("KIT", rses={"B": RseSpec()}),))
    one = world(path, made, {"A": items("A", 500, 10 * GB), "D": items("D", 2, 10 * GB)})
    one.join(
        SimBackend(one.clock, source_files("S", 400), name="fts", failing=lambda file: file.name.endswith("7"))
    )
    metrics = Metrics(one.ledger.path, "test")
    metrics.in_force(made)
    until, check = one.clock.now() + timedelta(days=1), one.backend.check
    one.backend.check = lambda: replace(check(), credentials_until=until)
    found: list[Sample] = []

    class Observer:
        def event(self, event: Event) -> None:
            metrics.event(event)
            if isinstance(event, CycleClosed):
                drive(metrics)
                metrics.event(LinkTroubled(flows[1].key, Hold.POOL_DRY))
                told = metrics.text().decode().splitlines()
                found.append(Sample(one.clock.now().timestamp(), [line for line in told if line[0] != "#"]))

    Engine(
        menus=one.menus,
        ledger=one.ledger,
        backends={backend.name: backend for backend in one.backends},
        identities={backend.name: backend.check() for backend in one.backends},
        clock=one.clock,
        executor=InlineExecutor(one.clock),
        observer=Observer(),
        settings=one.settings,
    ).run(until=START + CYCLES * CYCLE)
    yield from found


def scrapes(first: float) -> Iterator[float]:
    """Yield when a value is read until the next cycle: a range is open to the left since Prometheus 3."""
    yield from (first + n * CYCLE.total_seconds() / 3 for n in range(3))


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, float]]:
    """A Prometheus that has the campaign in its past, and when that ended."""
    promtool = prometheus.needed("prometheus", "promtool")
    folder = tmp_path_factory.mktemp("queries")
    past = folder / "past.om"
    scraped = list(samples(folder))
    assert len(scraped) >= CYCLES - 1
    lines = [f"{line} {at}" for sample in scraped for at in scrapes(sample.at) for line in sample.lines]
    past.write_text("\n".join([*lines, "# EOF\n"]))
    made = [promtool, "tsdb", "create-blocks-from", "openmetrics", past, folder / "data"]
    done = subprocess.run(made, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    with prometheus.running(folder, "127.0.0.1:1", "--storage.tsdb.retention.time=100y") as real:
        yield real, scraped[-1].at


def answer(asked: tuple[Prometheus, float], query: str) -> list[Any]:
    real, at = asked
    result: list[Any] = real.get("/api/v1/query", query=query, time=str(at))["result"]
    return result


def with_records(expression: str) -> str:
    """Return an expression with what is recorded in place of the names of records."""
    for name, of_it in RECORDED.items():
        if name in expression:
            expression = expression.replace(name, f"({with_records(of_it)})")
    return expression


def test_the_queries_are_those_of_the_dashboard_as_it_is_committed() -> None:
    """Nothing that Grafana would ask is left out."""
    text = (RULES.parent / "grafana-dashboard.json").read_text()
    asked = re.findall(r'"expr": (".*"),?\n', text)
    assert sorted(map(json.loads, asked)) == sorted(dashboards.queries())
    assert set(re.findall(r'"refId": "(.*)"', text)) <= set("ABCDEF")
    variables = re.findall(r'"query": (".*"),?\n', text)
    assert {json.loads(one) for one in variables} >= {query for _, query in dashboards.VARIABLES.values()}


@pytest.mark.parametrize("query", dashboards.queries())
def test_every_query_of_the_dashboard_has_an_answer(asked: tuple[Prometheus, float], query: str) -> None:
    result = answer(asked, dashboards.plain(query, **VALUES))
    assert result, query
    assert any(math.isfinite(float(one["value"][1])) for one in result), (query, result)


@pytest.mark.parametrize("name", RECORDED)
def test_every_recording_rule_has_an_answer(asked: tuple[Prometheus, float], name: str) -> None:
    assert answer(asked, with_records(RECORDED[name]))


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_has_what_it_compares(asked: tuple[Prometheus, float], name: str) -> None:
    """A comparison with `bool` tells 0 where the alert does not fire; with `unless`, of what is before it."""
    compared = re.sub(r" (==|<|>) ", r" \1 bool ", with_records(ALERTS[name].partition(" unless ")[0]))
    assert answer(asked, compared), compared


@pytest.mark.parametrize("name", dashboards.VARIABLES)
def test_every_variable_has_values(asked: tuple[Prometheus, float], name: str) -> None:
    _, query = dashboards.VARIABLES[name]
    match = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
    assert match
    real, at = asked
    which = {"match[]": dashboards.plain(match[1], **VALUES), "start": str(at - 60), "end": str(at + 60)}
    values = real.get(f"/api/v1/label/{match[2]}/values", **which)
    expected = {
        "campaign": ["test"],
        "scenario": ["dry", "files", "t0"],
        "site": ["A", "D", "KIT", "s.example.org", "t.example.org"],
    }
    assert values == expected.get(name, values)
    assert values


def test_rules_and_dashboard_name_only_what_is_in_the_catalogue() -> None:
    """With the suffixes that counters and histograms have."""
    known = {f"dc_inject_{name}{suffix}" for name, spec in METRICS.items() for suffix in (
        ("_bucket", "_sum", "_count") if spec.type == "histogram" else ("",)
    )}  # fmt: skip
    text = " ".join([*map(with_records, [*RECORDED.values(), *ALERTS.values()]), *dashboards.queries()])
    assert set(re.findall(r"\bdc_inject_\w+", text)) <= known


def test_a_chosen_site_leaves_out_the_links_of_others(asked: tuple[Prometheus, float]) -> None:
    """As its source or its destination, in all that is about links."""
    chosen = VALUES | {"rse": "A"}
    (moved,) = (query for query in dashboards.queries() if query.startswith("sum((dc_inject_moved_bytes_total"))
    of_all, of_one = (float(answer(asked, dashboards.plain(moved, **v))[0]["value"][1]) for v in (VALUES, chosen))
    assert 0 < of_one < of_all
