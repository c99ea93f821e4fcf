"""One campaign from two homes, through a real Rucio: the second injector refuses, and adopts on request."""

from __future__ import annotations

import json
import re
import shlex
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from dc_inject.ledger import files
from dc_inject.ledger.check import check
from dc_inject.sandbox import Link, Sandbox
from tests.e2e.tool import ACCEPTED, Running, Tool, add_stock, rules, this_cycle, until

pytestmark = pytest.mark.sandbox

CYCLE = 6  # seconds
MANY = 1000  # cycles: longer than any machine takes


@pytest.fixture
def other(tool: Tool, tmp_path: Path) -> Tool:
    """The same account in another home."""
    (tmp_path / "other").mkdir()
    return Tool(tmp_path / "other", tool.config, running=tool.running)


def given(tool: Tool, campaign: str) -> set[str]:
    """The rules that a ledger knows."""
    return {entry.external_id for entry in tool.entries(campaign) if entry.state in ACCEPTED}


def working(tool: Tool, campaign: str, menu: Path) -> Running:
    """Start an injector, and wait for its next rules."""
    before = given(tool, campaign)
    running = tool.start("run", menu)
    until(lambda: given(tool, campaign) > before or running.process.poll() is not None, "a rule")
    return running


def stopped(running: Running) -> None:
    running.send(signal.SIGTERM)
    running.ends()


def refused(tool: Tool, menu: Path, by: Running) -> list[str]:
    """It is refused, with the process that made the others; returns the command of the hint."""
    done = tool.run("run", menu, code=3)
    assert f"process {by.process.pid}" in done.err
    found = re.search(r"`dc-inject (.*)`", done.err)
    assert found
    return shlex.split(found[1])


def test_the_second_home_refuses_and_adopts_as_it_is_told(tool: Tool, other: Tool, sandbox: Sandbox, label: str):
    source, to = f"T2_{label}_From", f"T2_{label}_To"
    add_stock(sandbox, [source], [to], count=18)
    sandbox.set_links({(source, to): Link(rate=1e12, latency=3600)})
    campaign = f"alone-{label}"
    start = this_cycle(CYCLE).start - timedelta(seconds=CYCLE)
    menu = tool.menu(campaign, {(source, to): "8 Gb/s"}, start=start, cycles=MANY, cycle=CYCLE, dwell=3600)

    first = working(tool, campaign, menu)
    command = refused(other, menu, first)
    assert files(other.ledger(campaign)) == [], "what is refused leaves nothing behind"
    found = json.loads(other.run("check", menu, "--online", "--format", "json", code=None).out)
    assert "another-injector" in {problem["code"] for problem in found}
    stopped(first)
    found = json.loads(tool.run("check", menu, "--online", "--format", "json", code=None).out)
    assert "another-injector" not in {problem["code"] for problem in found}

    other.run(*command, "--yes")
    assert given(other, campaign) == given(tool, campaign)
    second = working(other, campaign, menu)
    command = refused(tool, menu, second)
    tool.start(*command, "--yes").ends()
    stopped(second)
    tool.run(*command, "--yes")  # what was made meanwhile
    third = working(tool, campaign, menu)
    stopped(third)
    assert given(tool, campaign) == {rule["id"] for rule in rules(sandbox.config, campaign)}
    assert [finding for finding in check(tool.ledger(campaign)) if not finding.note] == []
