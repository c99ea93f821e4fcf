"""On a grid of its own, which a test may disturb: no right to end rules; a Rucio that goes away and comes back."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dc_inject.model import State
from dc_inject.sandbox import Sandbox
from tests.e2e.tool import Tool, add_stock, asked, given, rules, this_cycle, until

pytestmark = pytest.mark.sandbox

GRID = """
seed: 1
scopes: [cms]
account: {name: dcops, quota: 400 TB}
rses: {}
default_link: {rate: 10 Tb/s}
"""
CYCLE = 6  # seconds


@pytest.fixture(scope="module")
def grid(sandbox_env, tmp_path_factory):
    """A sandbox with Rucio's generic permissions."""
    folder = tmp_path_factory.mktemp("generic")
    (folder / "grid.yaml").write_text(GRID)
    made = Sandbox(folder / "sandbox")
    made.up(grid=folder / "grid.yaml", policy="generic", env=sandbox_env)
    add_stock(made, ["T2_XX_From"], ["T2_XX_To1", "T2_XX_To2"], count=16)
    try:
        yield made
    finally:
        made.down()


@pytest.fixture
def tool(grid, tmp_path):
    made = Tool(tmp_path, grid.config)
    try:
        yield made
    finally:
        made.kill()


def test_without_the_right_to_end_rules_it_says_so_and_does_the_rest(tool, grid):
    cycle = this_cycle(CYCLE)
    menu = tool.menu("norights", {("T2_XX_From", "T2_XX_To1"): "6 Gb/s"}, start=cycle.start, cycle=CYCLE)
    (identity,) = tool.run("ping", "--format", "json").json
    assert identity["may_end"] is False
    assert "may NOT end rules early" in tool.run("run", "--once", menu, now=cycle.start).err
    shown = tool.status("norights")
    assert [right["may_end"] for right in shown["rights"]] == [False]
    assert "may NOT end rules early" in tool.run("status", "norights").out
    made = given(tool.entries("norights"))
    assert made
    until(lambda: all(rule["state"] == "OK" for rule in rules(grid.config, "norights")), "all have arrived")
    tool.run("run", "--once", menu, now=cycle.start + timedelta(seconds=4))  # sees that they are complete
    assert {e.state for e in tool.entries("norights")} == {State.COMPLETE}
    assert "may not end rules" in tool.run("end", "norights", "--yes", code=4).err
    assert asked(rules(grid.config, "norights")) == made  # left to their lifetime
    assert not [e for e in tool.entries("norights") if e.end_asked_at]


def test_a_rucio_that_goes_away_costs_nothing_and_doubles_nothing(tool, grid):
    cycle = this_cycle(CYCLE)
    menu = tool.menu("outage", {("T2_XX_From", "T2_XX_To2"): "6 Gb/s"}, start=cycle.start, cycles=5, cycle=CYCLE)
    running = tool.start("run", "--no-drain", menu, "--timeout", 3, now=cycle.start)
    until(lambda: given(tool.entries("outage")), "a rule")
    grid.stop_server()
    try:
        running.says("is not planned yet")  # so a cycle has begun meanwhile
    finally:
        grid.start_server()
    running.ends()
    tool.run("run", "--once", menu, "--timeout", 3, now=cycle.start + timedelta(seconds=5.5 * CYCLE))

    entries, there = tool.entries("outage"), asked(rules(grid.config, "outage"))
    assert given(entries) == there
    assert not [e for e in entries if e.state is State.CALLED]
    starts = sorted({e.injection.cycle.start for e in entries})
    assert all((start - cycle.start) % timedelta(seconds=CYCLE) == timedelta(0) for start in starts)
    (link,) = tool.status("outage", "--summary")["links"]
    assert link["cycles"] == 5
    largest = max(e.injection.item.bytes for e in entries)
    assert abs(link["injected"] + link["forgiven"] - link["due"]) <= largest
    assert link["injected"] == sum(e.injection.item.bytes for e in entries if e.external_id)
