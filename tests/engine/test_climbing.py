"""Climbing with the engine: a link of the simulated service is found, its rates set and taken back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject import climb
from dc_inject.climb import Ladder, Next
from dc_inject.engine.climbing import Climbing
from dc_inject.model import Campaign, State
from tests.engine.world import CYCLE, GB, START, campaign, file_flow, flow, items, source_files, world

HOUR = timedelta(hours=1)  # four cycles
GBPS = 1e9 / 8


def climbing(tmp_path, *, capacity, ladder, stock=None, link=None, until=START + 20 * HOUR, **more):
    """An engine that climbs a link of a capacity (Gb/s), run to its end."""
    link = link or flow("A", "B", ladder.first / GBPS, end=until)
    made = campaign([link])
    made = replace(made, menus=tuple(replace(menu, end=until + 3 * CYCLE) for menu in made.menus))
    one = world(
        tmp_path, made, stock or {"A": items("A", 3000, 20 * GB)}, speed=lambda _link: capacity * GBPS, **more
    )
    climbs = Climbing(
        lambda: made, ledger=one.ledger, clock=one.clock, ladder=ladder, who="a test", until=until
    )  # fmt: skip
    one.menus = climbs
    one.run()
    climbs.finish(one.ledger, link.key)
    return one, climbs


def ladder(first, step, highest, **more):
    return Ladder(first * GBPS, HOUR, step * GBPS, highest * GBPS, **{"saturate": True, **more})


@pytest.mark.parametrize("capacity", [7, 13.5])
def test_a_link_is_found_within_a_step(tmp_path, capacity):
    """It goes up, back and stops; nothing stays set, and nothing is due after the end."""
    one, climbs = climbing(tmp_path, capacity=capacity, ladder=ladder(4, 4, 40))
    found = climb.stands(climbs.verdicts) / GBPS
    assert capacity - 4 <= found <= capacity * 1.05
    assert [decision.what for decision in climbs.decisions][-2:] == [Next.BACK, Next.STOP]
    assert one.ledger.overrides() == ()
    over = climbs.verdicts[-1].end
    assert not any(row.due for row in one.ledger.rows() if row.cycle.start >= over)
    assert one.clock.now() <= over + 3 * CYCLE
    said = [change.what for change in one.ledger.changes(100)]
    assert f"set A:B rate {climbs.verdicts[1].rate / GBPS:g} Gb/s" in said
    rates = {round(row.due * 8 / CYCLE.total_seconds() / 1e9, 3) for row in one.ledger.rows()}
    assert rates <= {0, 4, 8, 12, 16, 20, 24, 28}


def test_a_link_that_takes_all_is_stopped_at_the_most(tmp_path):
    one, climbs = climbing(tmp_path, capacity=1000, ladder=ladder(4, 4, 10))
    assert [round(one.rate / GBPS) for one in climbs.verdicts] == [4, 8, 10]
    assert all(one.good for one in climbs.verdicts)
    assert {entry.state for entry in one.ledger.entries()} <= {State.GONE, State.ENDED, State.WITHDRAWN}


def test_fixed_steps_end_with_their_time(tmp_path):
    """And the last one is judged as the others are."""
    _, climbs = climbing(tmp_path, capacity=9, ladder=ladder(4, 4, 100, saturate=False), until=START + 3 * HOUR)
    assert [(round(one.rate / GBPS), one.good) for one in climbs.verdicts] == [(4, True), (8, True), (12, False)]
    assert climbs.verdicts[-1].end == START + 3 * HOUR
    assert 0.6 < climbs.verdicts[-1].ratio < 0.8


def test_a_pool_that_is_dry_is_not_taken_for_a_link_that_is_full(tmp_path):
    stock = {"A": items("A", 250, 20 * GB)}
    _, climbs = climbing(tmp_path, capacity=1000, ladder=ladder(4, 8, 100), stock=stock, may_end=False)
    assert climbs.verdicts[-1].ours
    assert "pool-dry" in climb.conclusion(ladder(4, 8, 100), climbs.verdicts)


@pytest.mark.parametrize("saturate", [True, False])
def test_a_source_with_nothing_that_fits_ends_it_after_two_cycles(tmp_path, saturate):
    steps = ladder(4, 4, 100, saturate=saturate)
    one, climbs = climbing(tmp_path, capacity=1000, ladder=steps, stock={"A": []})
    (only,) = climbs.verdicts
    assert (only.why, only.early) == ("not asked for: pool-dry, ended early", True)
    assert [decision.what for decision in climbs.decisions] == [Next.STOP]
    assert one.clock.now() <= START + 4 * CYCLE


def test_files_that_fail_never_count(tmp_path):
    """A third of them fails: nothing stands, whatever else moves."""
    link = file_flow("A", "B", 4, end=START + 20 * HOUR)
    fts = {"name": "fts", "cleans_up": False, "failing": lambda file: file.name.endswith(("0", "3", "6"))}
    _, climbs = climbing(
        tmp_path, capacity=1000, ladder=ladder(4, 4, 40), stock=source_files("A", 4000), link=link, **fts
    )  # fmt: skip
    assert climb.stands(climbs.verdicts) is None
    assert "failed" in climb.conclusion(ladder(4, 4, 40), climbs.verdicts)


def test_a_step_that_was_cut_short_says_so_where_it_was_not_reached(tmp_path):
    """Nobody should blame the link for what had no time to move."""
    link, until = flow("A", "B", 4, end=START + 20 * HOUR), START + 20 * HOUR
    stock = {"A": items("A", 300, 20 * GB)}
    made = campaign([link])
    one = world(tmp_path, made, stock, speed=lambda _link: GBPS)
    climbs = Climbing(
        lambda: made,
        ledger=one.ledger, clock=one.clock, ladder=ladder(4, 4, 40, saturate=False), who="", until=until,
    )  # fmt: skip
    one.menus = climbs
    one.run(cycles=2)
    climbs.finish(one.ledger, link.key)
    (last,) = climbs.verdicts
    assert last.early
    assert last.why.endswith(", ended early")


def test_a_step_that_somebody_ends_early_is_judged_as_far_as_it_got(tmp_path):
    made: list[Campaign] = []
    _, climbs = climbing(tmp_path, capacity=1000, ladder=ladder(4, 4, 40), until=START + HOUR)
    one = climbs.verdicts[0]
    assert one.end - one.start == HOUR
    climbs = Climbing(
        lambda: made[0], ledger=climbs._ledger, clock=climbs._clock, ladder=ladder(4, 4, 40), who="", until=START
    )
    climbs.finish(climbs._ledger, flow("A", "B", 1).key)
    assert climbs.verdicts == []
