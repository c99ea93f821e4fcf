"""What is planned is what is then done, and planning does nothing."""

from __future__ import annotations

import re

import pytest

from dc_inject.ledger import Ledger
from tests.e2e.tool import HERE, add_stock, given, rules, this_cycle

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
    assert "dry run" in dry.ends().err
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


EXPRESSIONS = """\
menu: 1
campaign: expressions
contact: e2e@example.org
start: 2027-02-08 10:00
end: 2027-02-08 14:00
defaults: {datasets: {did: "cms:*", mean_file: 1 GB..4 GB}}
scenarios:
  us: {from: T2_CH_CERN, to: "tier=2&country=US", rate: 9 Gb/s}   # whatever is there
"""


def test_expressions_are_written_out_as_rucio_means_them_now_and_the_menu_is_right_there(tool, wording):
    menu, links = tool.state / "m.yaml", tool.state / "links.yaml"
    menu.write_text(EXPRESSIONS)
    wording(tool.run("menu", "expand", menu, code=2).err)
    tool.run("menu", "expand", "--online", menu, "-o", links)
    written = re.findall(r"- {from: T2_CH_CERN, to: (\S+), rate: 3 Gb/s}", links.read_text())
    assert written == ["T2_US_Caltech", "T2_US_MIT", "T2_US_Nebraska"]
    checked = tool.run("check", "--online", links)
    assert "T2_CH_CERN" in checked.out + checked.err


def test_the_plan_of_the_docs_plans_something_on_the_sandbox(tool):
    """A first-time user tries it there."""
    page = (HERE / "docs" / "how-to" / "run-with-rucio.md").read_text()
    line = re.search(r"^dc-inject (plan menus/\S+ --at \S+)", page, re.MULTILINE)
    assert line is not None
    done = tool.run(*line[1].split(), "--format", "json")
    assert sum(row["planned"] for row in done.json) > 0
