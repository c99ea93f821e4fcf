"""What control advised in a simulation: which links `act` would have held, and by how much."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dc_inject.cli.shared import summary_output
from dc_inject.ledger import ControlDecision, Ledger
from dc_inject.model import Cycle, FlowKey, Hold
from dc_inject.summary import advice
from dc_inject.summary.why import HeldLink
from tests.cli import ledgers
from tests.cli.ledgers import CYCLE, GB, KIT, MESH


@pytest.fixture
def ledger(tmp_path: Path):
    """A cycle in which each of two links was given 100 GB."""
    ledgers.make(tmp_path / "made.sqlite", {KIT: 1, MESH: 1})
    with Ledger.open(tmp_path / "made.sqlite", synchronous="OFF") as made:
        made.close_cycle(CYCLE, CYCLE.end)
        yield made


def decided(
    ledger: Ledger, *decisions: tuple[FlowKey, str, Hold | None, int], cycle: Cycle = CYCLE, arrives: int = 0
) -> None:
    """Let control decide: by which hold, and with which window; 50 GB are in flight."""
    ledger.record_decisions(
        ControlDecision(cycle, key, mode, hold, 1.0, {"in_flight": 50 * GB, "window": window, "arrives": arrives})
        for key, mode, hold, window in decisions
    )


def test_held_back_is_what_was_in_flight_beyond_the_window_once_injected(ledger):
    """A link of which nothing would have been held back is left out: its window was wide enough."""
    decided(ledger, (KIT, "advise", Hold.BACKLOG, 75 * GB), (MESH, "advise", Hold.BACKLOG, 900 * GB))
    (only,) = advice.advised(ledger).held
    assert only == HeldLink(KIT, Hold.BACKLOG, Hold.BACKLOG.short, 1, 75 * GB)
    (row,) = advice.rows(advice.advised(ledger).held)
    assert (row["hold"], row["links"], row["cycles"], row["held_back"]) == ("backlog", 1, 1, 75 * GB)


def test_what_is_beyond_the_window_in_two_cycles_would_have_been_held_back_once(tmp_path):
    ledgers.make(tmp_path / "made.sqlite", {KIT: 1})
    with Ledger.open(tmp_path / "made.sqlite", synchronous="OFF") as ledger:
        ledger.close_cycle(CYCLE, CYCLE.end)
        ledger.open_cycle(CYCLE.next, {KIT: (GB, None)}, CYCLE.end)
        ledger.close_cycle(CYCLE.next, CYCLE.next.end)
        for cycle, window in ((CYCLE, 90 * GB), (CYCLE.next, 20 * GB)):
            decided(ledger, (KIT, "advise", Hold.BACKLOG, window), cycle=cycle)
        (link,) = advice.advised(ledger).held
    assert (link.cycles, link.missing) == (2, 60 * GB)


@pytest.mark.parametrize(("arrives", "missing"), [(30, 45), (100, 0), (900, 0)])
def test_what_arrives_in_the_cycle_makes_room_for_as_much(ledger, arrives, missing):
    """Of 100 GB that were injected, with a window of 75 GB: what is more is beyond it."""
    decided(ledger, (KIT, "advise", Hold.BACKLOG, 75 * GB), arrives=arrives * GB)
    assert sum(link.missing for link in advice.advised(ledger).held) == missing * GB


def test_holds_of_old_ledgers_that_no_window_gives_take_all_that_was_injected(ledger):
    """As guards of dc_inject 0.1.0 did, such as `fts-queue`."""
    decided(ledger, (KIT, "advise", Hold.FTS_QUEUE, 900 * GB))
    assert [(link.hold, link.missing) for link in advice.advised(ledger).held] == [(Hold.FTS_QUEUE, 100 * GB)]


def test_what_acts_is_no_advice_and_what_would_not_be_held_is_none(ledger, capsys, wording):
    decided(ledger, (KIT, "act", Hold.BACKLOG, 0), (MESH, "advise", None, 0))
    assert advice.advised(ledger) == (True, [])
    summary_output.show_advice(*advice.advised(ledger))
    wording(capsys.readouterr().out)


def test_where_nothing_is_advised_nothing_is_said(ledger, capsys):
    decided(ledger, (KIT, "act", Hold.BACKLOG, 0))
    summary_output.show_advice(*advice.advised(ledger))
    assert capsys.readouterr().out == ""


def test_the_summary_of_a_campaign_tells_what_was_advised(ledger):
    decided(ledger, (KIT, "advise", Hold.BACKLOG, 75 * GB))
    shown = ledgers.run("status", ledger.path, "--summary").stdout
    assert "would have" in shown
    assert "--policy" not in shown
    (told,) = json.loads(ledgers.run("status", ledger.path, "--summary", "--format", "json").stdout)["advice"]
    assert (told["hold"], told["held_back"]) == ("backlog", 75 * GB)
