"""Goals beside a rate: a volume that is given once and to its end, and bytes that are kept on their way."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dc_inject.model import Exclusion, Hold, State
from dc_inject.model.errors import Permanent
from dc_inject.model.events import CycleClosed
from dc_inject.model.goals import GoalAccount, Keep, Recycle, Volume
from dc_inject.model.items import units_of
from tests.engine.world import CYCLE, GB, START, campaign, file_flow, flow, items, source_files, url, world

from ..ledger.world import totals_from_rows

TB = 1000 * GB
FTS = {"name": "fts"}
bytes_ = st.integers(0, 10**15)


def sums(one):
    """All accounts together."""
    return one.ledger.totals()


def names(one):
    """How often each dataset or file was accepted and not given back."""
    given = [rule.injection for rule in one.backend.rules.values()]
    return Counter(name for i in given for name in units_of(i.item))


# --------------------------------------------------------------------------- arithmetic


@given(bytes_, bytes_, bytes_, bytes_, st.integers(-(10**15), 10**15))
def test_never_more_than_the_rate_nor_than_what_is_left(goal, asked, moved, coming, debt):
    at = GoalAccount(moved, coming, debt)
    for made, left in ((Volume(goal), goal - moved - coming - debt), (Keep(goal), goal - coming - debt)):
        due = made.due(asked, asked, at)
        assert 0 <= due <= asked
        assert due == min(asked, max(left, 0))


@given(st.integers(0, 10**15), st.lists(st.integers(1, 10**12), min_size=1, max_size=30))
def test_a_steady_volume_is_spread_over_what_is_left_and_complete_at_the_end(goal, cycles):
    made, given_ = Volume(goal, steady=True), 0
    for number, asked in enumerate(cycles):
        ahead = sum(cycles[number:])
        due = made.due(asked, ahead, GoalAccount(moved=given_))
        assert abs(due - (goal - given_) * asked / ahead) <= 1 + 1e-9 * goal
        given_ += due
    assert given_ == goal
    assert made.due(1, 0, GoalAccount()) == 0


# --------------------------------------------------------------------------- volumes


def test_a_volume_is_given_at_its_rate_once_and_then_the_run_ends(tmp_path):
    links = [flow("A", to, 4, goal=Volume(part * TB)) for to, part in (("B", 2), ("C", 1))]
    one = world(tmp_path, campaign(links), {"A": items("A", 200, 50 * GB)})
    one.settings = replace(one.settings, drain=True)
    one.run()
    moved = {key.link.destination: account.moved for key, account in one.ledger.accounts().items()}
    assert moved == {"B": 2 * TB, "C": TB}
    assert max(names(one).values()) == 1, "each dataset goes to one of the links"
    assert {entry.state for entry in one.ledger.entries()} == {State.GONE}
    rows = [row for row in one.ledger.rows() if row.key.link.destination == "B"]
    assert [row.due for row in rows[:5]] == [450 * GB] * 4 + [200 * GB]
    assert not any(row.due or row.held for row in rows[5:])
    assert one.clock.now() < START + 10 * CYCLE, "not at the end of the window"
    assert one.ledger.goals() == {link.key: ("volume", link.goal.bytes) for link in links}


def test_a_volume_without_a_rate_is_even_and_makes_up_for_what_was_excluded(tmp_path):
    steady = flow("A", "B", 1, end=START + 8 * CYCLE, goal=Volume(800 * GB, steady=True))
    off = Exclusion(START + 2 * CYCLE, START + 4 * CYCLE, "downtime", rse="B")
    made = campaign([steady], exclusions=(off,))
    one = world(tmp_path, made, {"A": items("A", 200, 10 * GB)})
    one.run(cycles=8)
    assert [round(row.due / GB) for row in one.ledger.rows()] == [133, 133, 0, 0, 133, 133, 133, 133]
    assert sums(one).injected == 800 * GB


def test_what_is_lost_while_nobody_runs_is_made_up_at_the_rate(tmp_path):
    link = flow("A", "B", 4, goal=Volume(3 * TB))
    one = world(tmp_path, campaign([link]), {"A": items("A", 200, 50 * GB)})
    one.run(cycles=2)
    one.clock.advance(START + 20 * CYCLE)
    one.run(cycles=10)
    assert sums(one).moved == 3 * TB
    assert max(row.injected for row in one.ledger.rows()) <= 2 * 450 * GB + 50 * GB


def test_a_rule_that_expires_before_it_is_complete_is_given_again(tmp_path):
    link = flow(
        "A", "B", 4, goal=Volume(TB), lifetime_max=timedelta(minutes=30), lifetime_min=timedelta(minutes=20)
    )
    slow = [True]
    one = world(
        tmp_path, campaign([link]), {"A": items("A", 20, 50 * GB)}, may_end=False,
        speed=lambda _link: 1.0 if slow[0] else 1e15,
    )  # fmt: skip
    one.run(cycles=4)
    assert sums(one).moved < GB
    slow[0] = False
    one.run(cycles=12)
    account = sums(one)
    assert account.moved >= TB
    assert account.moved - TB < GB
    assert max(names(one).values()) >= 2, "there are just as many datasets as the volume needs"


def test_a_volume_is_done_within_half_a_dataset_also_when_that_empties_the_pool(tmp_path):
    links = [flow("A", to, 4, goal=Volume(round(part * 50 * GB))) for to, part in (("B", 7.4), ("C", 12.6))]
    one = world(tmp_path, campaign(links), {"A": items("A", 20, 50 * GB)})
    one.settings = replace(one.settings, drain=True)
    one.run()
    assert {key.link.destination: a.moved // (50 * GB) for key, a in one.ledger.accounts().items()} == {
        "B": 7,
        "C": 13,
    }
    assert one.clock.now() < START + 8 * CYCLE
    late = [row for row in one.ledger.rows() if row.cycle.start >= START + 3 * CYCLE]
    assert not any(row.held or row.due or row.forgiven for row in late)


def test_a_volume_that_is_done_stays_so_while_others_are_not(tmp_path):
    links = [flow("A", "B", 4, goal=Volume(370 * GB)), flow("X", "C", 1, goal=Volume(2 * TB), scenario="other")]
    one = world(tmp_path, campaign(links), {"A": items("A", 7, 50 * GB), "X": items("X", 200, 10 * GB)})
    one.run(cycles=12)
    late = [row for row in one.ledger.rows() if row.key == links[0].key][2:]
    assert len(late) == 10
    assert not any(row.held or row.due or row.forgiven for row in late)


def test_a_dataset_that_has_gone_is_not_given_again_and_the_pool_is_dry(tmp_path):
    link = flow("A", "B", 4, goal=Volume(2 * TB))
    one = world(tmp_path, campaign([link]), {"A": items("A", 20, 50 * GB)})
    one.settings = replace(one.settings, drain=True)
    one.run(cycles=12)
    assert sums(one).injected == TB
    assert max(names(one).values()) == 1
    late = [row for row in one.ledger.rows() if row.cycle.start >= START + 4 * CYCLE]
    assert {row.held.hold for row in late if row.held} == {Hold.POOL_DRY}
    assert all(row.held for row in late), "a volume that is not complete says why in every cycle"


def test_a_refused_dataset_is_replaced_and_goes_out_later(tmp_path):
    link = flow("A", "B", 4, goal=Volume(TB))
    one = world(tmp_path, campaign([link]), {"A": items("A", 20, 50 * GB)})
    refused = iter([True, True])

    def fault(method, subject):
        if method == "submit" and next(refused, False):
            raise Permanent("not now")

    one.backend.fault = fault
    one.run(cycles=8)
    assert sums(one).injected < TB, "what is refused for good is set aside"
    assert len(one.ledger.once_only()) == len(one.backend.rules)


def test_files_of_a_volume_go_out_once_and_failed_ones_again(tmp_path):
    bad = {f"{url('A')}/data/{n:04}" for n in range(5)}
    fail = [True]
    links = [file_flow("A", to, 0.8, goal=Volume(90 * GB)) for to in "BC"]
    made = campaign(links)
    stock = source_files("A", 180)
    one = world(tmp_path, made, stock, failing=lambda file: fail[0] and file.name in bad, **FTS)
    one.run(cycles=2)
    fail[0] = False
    one.settings = replace(one.settings, drain=True)
    one.run()
    assert sums(one).moved == 180 * GB
    given_ = names(one)
    assert set(given_) == {file.name for file in stock[url("A")]}
    assert {name for name, times in given_.items() if times > 1} <= bad
    assert all(given_[name] >= 2 for name in bad)
    assert {entry.state for entry in one.ledger.entries()} == {State.GONE}
    assert one.clock.now() < START + timedelta(hours=20)


def test_an_engine_that_dies_gives_nothing_twice(tmp_path):
    links = [file_flow("A", to, 0.8, goal=Volume(90 * GB)) for to in "BC"]
    one = world(tmp_path, campaign(links), source_files("A", 180), **FTS)
    for _ in range(8):
        one.run(cycles=1)
    assert max(names(one).values()) == 1
    assert sums(one).moved == 180 * GB


def test_a_larger_volume_goes_on_from_where_it_stands(tmp_path):
    goal = [TB]
    one = world(
        tmp_path, lambda: campaign([flow("A", "B", 4, goal=Volume(goal[0]))]), {"A": items("A", 200, 50 * GB)}
    )
    one.run(cycles=6)
    assert sums(one).moved == TB
    goal[0] = 2 * TB
    one.run(cycles=6)
    assert sums(one).moved == 2 * TB
    assert max(names(one).values()) == 1


# --------------------------------------------------------------------------- again


@pytest.mark.parametrize("minutes", [4, 20])
def test_a_pool_goes_round_as_fast_as_its_datasets_come_back_and_nothing_is_held(tmp_path, minutes):
    link = flow("A", "B", 80, goal=Recycle())  # 9 TB a cycle, from a pool of 1 TB
    lag = timedelta(minutes=minutes)
    one = world(tmp_path, campaign([link]), {"A": items("A", 20, 50 * GB)}, deletion_lag=lag)
    one.run(cycles=14)
    rows = one.ledger.rows()
    assert sums(one).injected >= 6 * TB, "every dataset at least six times in three and a half hours"
    assert min(names(one).values()) >= 0.6 * max(names(one).values()), "all have their turn"
    assert not [row for row in rows[1:] if row.held and row.held.hold is Hold.POOL_DRY]
    assert sum(row.forgiven for row in rows[4:]) == 0, "nothing is due that the pool cannot give"
    live = {}
    for rule in one.backend.rules.values():
        name = rule.injection.item.name
        assert name not in live or live[name].deleted <= rule.created, "never twice at a time"
        live[name] = rule


def test_a_pool_that_goes_round_keeps_to_its_rate(tmp_path):
    one = world(tmp_path, campaign([flow("A", "B", 4, goal=Recycle())]), {"A": items("A", 40, 50 * GB)})
    one.run(cycles=12)
    assert [row.due for row in one.ledger.rows()] == [450 * GB] * 12


# --------------------------------------------------------------------------- keep


@pytest.mark.parametrize("through", ["rucio", "fts"])
def test_bytes_on_their_way_are_kept_however_fast_they_drain(tmp_path, through):
    keep = Keep(200 * GB)
    if through == "fts":
        link, stock, more = file_flow("A", "B", 8, goal=keep), source_files("A", 400), FTS
    else:
        link, stock, more = flow("A", "B", 8, goal=keep), {"A": items("A", 400, 10 * GB)}, {}
    speed = [0.1e9]  # 90 GB a cycle
    one = world(tmp_path, campaign([link]), stock, speed=lambda _link: speed[0], **more)
    seen = []
    one.heard.at[CycleClosed] = lambda: seen.append(sums(one).coming)
    one.run(cycles=8)
    assert all(100 * GB <= coming <= 200 * GB for coming in seen[1:]), seen
    speed[0] = 1e15
    one.run(cycles=4)
    late = [row for row in one.ledger.rows() if row.cycle.start >= START + 9 * CYCLE]
    assert late
    assert all(160 * GB <= row.injected <= 210 * GB for row in late), "refilled in every cycle"


def test_a_keep_never_exceeds_its_rate(tmp_path):
    link = flow("A", "B", 1, goal=Keep(10 * TB))
    one = world(tmp_path, campaign([link]), {"A": items("A", 400, 10 * GB)})
    one.run(cycles=4)
    assert [row.due for row in one.ledger.rows()] == [112_500_000_000] * 4


def test_nothing_is_made_up_for_bytes_that_were_not_kept(tmp_path):
    link = flow("A", "B", 8, goal=Keep(200 * GB))
    one = world(tmp_path, campaign([link]), {"A": items("A", 400, 10 * GB)}, speed=lambda _link: 0.01e9)
    one.run(cycles=1)
    one.clock.advance(START + 6 * CYCLE)
    one.run(cycles=2)
    assert sums(one).coming <= 200 * GB
    assert sums(one).injected <= 270 * GB


def test_a_keep_that_is_smaller_than_half_a_dataset_says_so(tmp_path):
    link = flow("A", "B", 8, goal=Keep(10 * GB))
    one = world(tmp_path, campaign([link]), {"A": items("A", 4, 100 * GB)})
    one.run(cycles=4)
    assert sums(one).injected == 0
    assert {row.held.hold for row in one.ledger.rows() if row.held} == {Hold.TOO_COARSE}
    assert all(row.held for row in one.ledger.rows())


def test_a_goal_that_is_taken_out_of_the_menu_is_forgotten(tmp_path):
    goal = [Keep(200 * GB)]
    one = world(tmp_path, lambda: campaign([flow("A", "B", 1, goal=goal[0])]), {"A": items("A", 400, 10 * GB)})
    one.run(cycles=1)
    assert one.ledger.goals() == {flow("A", "B", 1).key: ("keep", 200 * GB)}
    goal[0] = None
    one.run(cycles=1)
    assert one.ledger.goals() == {}


def test_rows_sum_to_the_account_with_any_goal(tmp_path):
    links = [
        flow("A", "B", 4, goal=Volume(TB)),
        flow("A", "C", 4, goal=Keep(300 * GB)),
        flow("A", "D", 4),
    ]
    one = world(tmp_path, campaign(links), {"A": items("A", 400, 30 * GB)}, speed=lambda _link: 0.3e9)
    one.run(cycles=10)
    for link in links:
        rows = [row for row in one.ledger.rows() if row.key == link.key]
        account = one.ledger.accounts()[link.key]
        for name in ("due", "forgiven", "injected", "moved"):
            assert sum(getattr(row, name) for row in rows) == getattr(account, name)
        assert all(later.cycle.start - row.cycle.start == CYCLE for row, later in pairwise(rows))
    assert one.ledger.accounts() == totals_from_rows(one.ledger)
