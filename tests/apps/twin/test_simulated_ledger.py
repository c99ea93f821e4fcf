"""The ledger of a simulation: it can be read and noted on, but there is nothing to stop, change or go on with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dc_inject.ledger import LedgerView
from dc_inject.model.errors import LedgerError
from tests.cli import ledgers
from tests.cli.ledgers import FNAL, make, run

MENU = """
menu: 1
campaign: dc27
description: One link
contact: dc-ops@example.org
timezone: UTC
start: 2027-02-08 10:00
end: 2027-02-09 10:00
target: 4 Gb/s
defaults: {datasets: {did: ["*:*"]}}
scenarios: {t0-export: {from: T2_CH_CERN, to: T1_US_FNAL_Disk, rate: 4 Gb/s}}
"""


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(ledgers, "ME", replace(ledgers.ME, address="twin://one-link"))
    return make(tmp_path / "kept.sqlite", {FNAL: 1}).path


@pytest.mark.parametrize(
    "words",
    [
        ["stop", "LEDGER"],
        ["pause", "LEDGER", "t0-export"],
        ["resume", "LEDGER"],
        ["set", "LEDGER", "t0-export", "scale", "0.5"],
        ["unset", "LEDGER", "t0-export"],
        ["end", "LEDGER", "--cancel", "--yes"],
        ["run", "MENU", "--ledger", "LEDGER"],
        ["health", "LEDGER"],
    ],
    ids=lambda words: words[0],
)
def test_what_would_act_on_a_simulation_is_refused(
    words: list[str], ledger: Path, tmp_path: Path, wording
) -> None:
    menu = tmp_path / "menu.yaml"
    menu.write_text(MENU)
    error = run(*({"LEDGER": ledger, "MENU": menu}.get(word, word) for word in words)).exception
    assert isinstance(error, LedgerError)
    wording(error.message)
    wording(error.hint)
    with LedgerView.open(ledger) as view:
        assert view.pauses() == view.overrides() == view.changes() == ()


def test_status_says_that_it_is_a_simulation(ledger: Path) -> None:
    """Right below the five lines with which every view begins."""
    lines = run("status", ledger).stdout.splitlines()
    assert "simulated in the grid one-link: no real transfer is in it" in lines[5:7]
    assert json.loads(run("status", ledger, "--format", "json").stdout)["simulated_in"] == "one-link"


def test_it_can_be_read_and_noted_on(ledger: Path) -> None:
    assert run("note", ledger, "the disk was too small").exit_code == 0
    assert "the disk was too small" in run("status", ledger).stdout
