"""Plans of links on which control acts: what its window lets out, for how long debt is kept, what is blamed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dc_inject.model import Control, Hold, Mode
from dc_inject.planning.plan import Account, plan
from tests.core.builders import GB, demand, flow, items, situation

WORTH = 1000 * GB


@pytest.mark.parametrize(("made_up", "hold"), [(False, Hold.API_ERRORS), (True, Hold.BACKLOG)])
def test_an_outage_is_blamed_in_the_first_cycle_after_it_only(made_up, hold):
    """What the window does not let through then is forgiven as well, for as long as the link is slow."""
    numbers = {"window": 3 * WORTH, "in_flight": 2 * WORTH}
    books = {"account": Account(19 * WORTH), "coming": 2 * WORTH, "releasable": WORTH // 10, "window": numbers}
    owes = demand(flow(control=Control(Mode.ACT)), WORTH, before=Hold.API_ERRORS, made_up=made_up, **books)
    (row,) = plan(situation([owes], items(*[WORTH // 10] * 20))).decisions
    assert row.forgiven > WORTH
    assert row.held is not None
    assert row.held.hold is hold


@pytest.mark.parametrize("mode", Mode)
def test_a_window_bounds_only_a_link_on_which_control_acts(mode):
    books = {"account": Account(3 * WORTH), "releasable": WORTH // 10, "window": {"window": WORTH}}
    owes = demand(flow(control=Control(mode)), WORTH, **books)
    (row,) = plan(situation([owes], items(*[WORTH // 10] * 40))).decisions
    assert (len(row.items) <= 2) == (mode is Mode.ACT)


@pytest.mark.parametrize(("hours", "kept"), [(3, 12), (1, 4), (0.25, 1.5)])
def test_a_debt_is_kept_for_catch_up_and_made_up_by_half_a_cycles_worth_in_each(hours, kept):
    """Where control does not act it is two cycles' worth, and made up at once."""
    books = {"account": Account(20 * WORTH)}
    pool = items(*[WORTH // 10] * 60)
    acting = Control(Mode.ACT, timedelta(hours=hours))
    one = flow(rate=8 * WORTH / 900e9, control=acting)
    (row,) = plan(situation([demand(one, WORTH, **books)], pool)).decisions
    assert (row.want - row.forgiven, row.budget) == (kept * WORTH, 1.5 * WORTH)
    (row,) = plan(situation([demand(flow(), WORTH, **books)], pool)).decisions
    assert (row.want - row.forgiven, row.budget) == (2 * WORTH, 2 * WORTH)


def test_a_pause_is_no_reason_to_forgive_debt_that_is_kept():
    one = flow(rate=8 * WORTH / 900e9, control=Control(Mode.ACT))
    owes = demand(one, 0, account=Account(5 * WORTH), recent_due=0)
    (row,) = plan(situation([owes], items(*[WORTH // 10] * 60))).decisions
    assert row.want - row.forgiven == 5 * WORTH
