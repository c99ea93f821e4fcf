"""The alerts of docs/reference/prometheus-rules.yaml fire in a real Prometheus when they should, not before."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from dc_inject.metrics import Metrics
from dc_inject.model.events import RequestMade
from dc_inject.summary.criteria import ENOUGH
from tests.engine.world import GB, campaign, flow, items, world
from tests.metrics import prometheus
from tests.metrics.prometheus import RULES, until

NAMES = re.findall(r"alert: (\w+)", RULES.read_text())

CASES = Path(__file__).parent / "rules.test.yaml"


@pytest.fixture(scope="module")
def tools() -> Path:
    """Where Prometheus is; without it tests are skipped, in CI they fail."""
    return prometheus.needed("prometheus", "promtool").parent


def test_every_alert_fires_when_it_should_and_not_before(tools: Path) -> None:
    """Judged by Prometheus's own test tool, over hours that it does not wait for."""
    fires: dict[bool, set[str]] = {True: set(), False: set()}
    for case in yaml.safe_load(CASES.read_text())["tests"]:
        for one in case["alert_rule_test"]:
            fires[bool(one["exp_alerts"])].add(one["alertname"])
    assert fires[True] == fires[False] == set(NAMES)
    done = subprocess.run(
        [tools / "promtool", "test", "rules", str(CASES)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_alerts_of_the_docs_are_those_of_the_rules() -> None:
    """docs/reference/metrics.md has a row for each."""
    text = (RULES.parent / "metrics.md").read_text()
    assert re.findall(r"^\| `(DcInject\w+)` \|", text, re.MULTILINE) == NAMES


def test_a_ratio_is_low_where_views_call_a_link_short() -> None:
    """In the rules, and on the page that explains them."""
    (bound,) = re.findall(r"expr: campaign_scenario:dc_inject_moved_by_due:ratio1h < (\S+)", RULES.read_text())
    (percent,) = re.findall(
        r"`DcInjectRatioLow` \|.* less than (\d+) %", (RULES.parent / "metrics.md").read_text()
    )
    assert (float(bound), int(percent) / 100) == (ENOUGH, ENOUGH)


def test_an_outage_fires_its_alert_while_the_cycle_lasts_and_no_longer_than_it_does(
    tools: Path, tmp_path: Path
) -> None:
    """A service that does not answer in the middle of a cycle is told by the next scrape."""
    one = world(tmp_path, campaign([flow("A", "B", 1.0)]), {"A": items("A", 20, 10 * GB)})
    metrics = Metrics(one.ledger.path, one.menus().name)

    def called(*, answered: bool) -> None:
        metrics.event(RequestMade("rucio", "x", 1.0, "ok", answered))

    with metrics.serve("0") as place, prometheus.running(tmp_path / "prometheus", place) as real:
        name = ("DcInjectServiceDown", one.menus().name)
        called(answered=True)
        until(lambda: real.get("/api/v1/query", query="dc_inject_service_up == 1")["result"], "a scrape")
        assert name not in real.firing()
        for _ in range(3):
            called(answered=False)
        until(lambda: name in real.firing(), "the alert")
        called(answered=True)
        until(lambda: name not in real.firing(), "its end")
