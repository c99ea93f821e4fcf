"""What is planned is what is then done, and planning does nothing."""

from __future__ import annotations

import pytest

from dc_inject.ledger import Ledger
from tests.e2e.tool import add_stock, given, rules, this_cycle

pytestmark = pytest.mark.sandbox

CYCLE = 15  # seconds: a busy machine has planned before they are over


def test_a_plan_and_a_dry_run_change_nothing_and_choose_what_once_then_injects(tool, sandbox, label):
    source, one, two = (f"T2_{label}_{end}" for end in ("From", "To1", "To2"))
    add_stock(sandbox, [source], [one, two])
    cycle, campaign = this_cycle(CYCLE), f"plan-{label}"
    menu = tool.menu(campaign, {(source, one): "20 Gb/s", (source, two): "9 Gb/s"}, start=cycle.start, cycle=CYCLE)
    plan = ("plan", menu, "--at", cycle.start.isoformat(), "--datasets", "--format", "json")

    first = tool.start(*plan)
    dry = tool.start("run", "--once", "--dry-run", menu, now=cycle.start + cycle.length / 2)
    first = first.ends().json
    assert "nothing is changed" in dry.ends().err
    assert first
    assert not tool.ledger(campaign).exists()
    assert rules(sandbox.config, campaign) == []

    with Ledger.open(tool.ledger(campaign)) as ledger:
        ledger.begin(cycle.start)  # so that what is due does not hang on how fast a process starts
    second = tool.run(*plan).json
    assert second == first
    assert tool.entries(campaign) == []
    assert rules(sandbox.config, campaign) == []

    tool.run("run", "--once", menu, now=cycle.start)
    assert given(tool.entries(campaign)) == sorted((p["dataset"], p["destination"], p["source"]) for p in first)

    tool.run("run", "--once", menu, now=cycle.end - cycle.length / 4)  # twice is the same as once
    assert len(given(tool.entries(campaign))) == len(first)
