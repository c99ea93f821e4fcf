"""The demo ends with a report that outlives its grid: a page, or Markdown where nothing can draw."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dc_inject.apps.sandbox import demo
from dc_inject.ledger import Ledger
from tests.cli.ledgers import CYCLE, FNAL, GB, ME, START


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "demo" / "ledger" / "demo.sqlite"
    with Ledger.open(path, synchronous="OFF") as made:
        made.bind("demo", CYCLE.length, [ME], START)
        made.open_cycle(CYCLE, {FNAL: (GB, None)}, CYCLE.start)
        made.close_cycle(CYCLE, CYCLE.end)
    return path


def test_it_is_a_page_and_replaces_that_of_the_last_demo(ledger: Path, tmp_path: Path) -> None:
    """Beside the grid's folder, which is removed."""
    pytest.importorskip("vl_convert")
    goal = tmp_path / "demo-report.html"
    goal.write_text("of the last demo")
    assert demo.write_report(ledger, tmp_path, os.environ, pytest.fail) == goal
    assert "<h1>Report: demo</h1>" in goal.read_text()


def test_without_the_extra_it_is_markdown(ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one line says so."""
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    steps: list[str] = []
    assert demo.write_report(ledger, tmp_path, os.environ, steps.append) == tmp_path / "demo-report.md"
    assert (tmp_path / "demo-report.md").read_text().startswith("# Report: demo")
    (line,) = steps
    assert "without pictures" in line
    assert "[report]" in line
