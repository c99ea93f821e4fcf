"""What control advised in a simulation: which links `act` would have held, and by how much."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dc_inject.cli.shared import summary_output
from dc_inject.ledger import ControlDecision, Ledger
from dc_inject.model import Cycle, FlowKey, Hold, Link
from dc_inject.model.holds import IN_SHORT
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
    ledger: Ledger, *decisions: tuple[FlowKey, str, Hold | None, int], cycle: Cycle = CYCLE, deleted: int = 0
) -> None:
    """Let control decide: by which hold, and with which window; 50 GB are in flight."""
    guards = {Hold.DELETION_LAG: {"deleted": deleted}}
    ledger.record_decisions(
        ControlDecision(cycle, key, mode, hold, 1.0, 0.0, {"in_flight": 50 * GB, "window": window}, guards)
        for key, mode, hold, window in decisions
    )


def test_held_back_is_what_was_in_flight_beyond_the_window_once_injected(ledger):
    """A link of which nothing would have been held back is left out: its window was wide enough."""
    decided(ledger, (KIT, "advise", Hold.BACKLOG, 75 * GB), (MESH, "advise", Hold.BACKLOG, 900 * GB))
    (only,) = advice.advised(ledger).held
    assert only == HeldLink(KIT, Hold.BACKLOG, IN_SHORT[Hold.BACKLOG], 1, 75 * GB)
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


def test_a_guard_that_gives_a_link_nothing_takes_all_whatever_the_window_allows(ledger):
    decided(ledger, (KIT, "advise", Hold.DESTINATION_FULL, 90 * GB), (MESH, "advise", Hold.FAILING, 140 * GB))
    assert {link.hold: link.missing for link in advice.advised(ledger).held} == {
        Hold.DESTINATION_FULL: 100 * GB,
        Hold.FAILING: 55 * GB,  # it is left a tenth of the 450 GB that it was due
    }


def test_links_to_a_destination_that_deletes_late_share_what_it_deletes(tmp_path):
    """Both are held however much their windows allow."""
    to_kit = FlowKey("other", Link("T1_US_FNAL_Disk", KIT.link.destination))
    ledgers.make(tmp_path / "made.sqlite", {KIT: 1, to_kit: 1})
    with Ledger.open(tmp_path / "made.sqlite", synchronous="OFF") as ledger:
        ledger.close_cycle(CYCLE, CYCLE.end)
        held = [(key, "advise", Hold.DELETION_LAG, 900 * GB) for key in (KIT, to_kit)]
        decided(ledger, *held, deleted=50 * GB)
        assert [link.missing for link in advice.advised(ledger).held] == [75 * GB, 75 * GB]


def test_a_guard_is_left_out_where_nothing_was_injected_anyway(tmp_path):
    """In the cycles of `deletion-lag` the plan without control gave the link nothing either."""
    ledgers.make(tmp_path / "made.sqlite", {KIT: 1})
    with Ledger.open(tmp_path / "made.sqlite", synchronous="OFF") as ledger:
        ledger.close_cycle(CYCLE, CYCLE.end)
        ledger.open_cycle(CYCLE.next, {KIT: (GB, None)}, CYCLE.end)
        ledger.close_cycle(CYCLE.next, CYCLE.next.end)
        decided(ledger, (KIT, "advise", Hold.DELETION_LAG, 90 * GB), cycle=CYCLE.next)
        assert advice.advised(ledger) == (True, [])


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
