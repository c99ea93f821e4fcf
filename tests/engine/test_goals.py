"""Goals beside a rate: a volume that is given once and to its end, and bytes that are kept on their way."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dc_inject import naming
from dc_inject.errors import AnotherNow, Permanent
from dc_inject.goal import Again, Keep, Onward, Standing, Volume
from dc_inject.ledger.check import check as contradictions
from dc_inject.model import DatasetFilter, Exclusion, FileFilter, Hold, State
from tests.engine.world import CYCLE, GB, START, campaign, file_flow, flow, items, source_files, url, world

TB = 1000 * GB
FTS = {"name": "fts", "cleans_up": False}
bytes_ = st.integers(0, 10**15)


def sums(one):
    """All accounts together."""
    return one.ledger.totals()


def names(one):
    """How often each dataset or file was accepted and not given back."""
    given = [rule.injection for rule in one.backend.rules.values()]
    return Counter(item.name for i in given for item in i.item.members or (i.item,))


# --------------------------------------------------------------------------- arithmetic


@given(bytes_, bytes_, bytes_, bytes_, st.integers(-(10**15), 10**15))
def test_never_more_than_the_rate_nor_than_what_is_left(goal, asked, moved, coming, debt):
    at = Standing(moved, coming, debt)
    for made, left in ((Volume(goal), goal - moved - coming - debt), (Keep(goal), goal - coming - debt)):
        due = made.due(asked, asked, at)
        assert 0 <= due <= asked
        assert due == min(asked, max(left, 0))


@given(st.integers(0, 10**15), st.lists(st.integers(1, 10**12), min_size=1, max_size=30))
def test_a_steady_volume_is_spread_over_what_is_left_and_complete_at_the_end(goal, cycles):
    made, given_ = Volume(goal, steady=True), 0
    for number, asked in enumerate(cycles):
        ahead = sum(cycles[number:])
        due = made.due(asked, ahead, Standing(moved=given_))
        assert abs(due - (goal - given_) * asked / ahead) <= 1 + 1e-9 * goal
        given_ += due
    assert given_ == goal
    assert made.due(1, 0, Standing()) == 0


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
    assert len(one.ledger.given()) == len(one.backend.rules)


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
    link = flow("A", "B", 80, goal=Again())  # 9 TB a cycle, from a pool of 1 TB
    lag = timedelta(minutes=minutes)
    one = world(tmp_path, campaign([link]), {"A": items("A", 20, 50 * GB)}, deletion_lag=lag)
    one.run(cycles=24)
    rows = one.ledger.rows()
    assert sums(one).injected >= 6 * TB, "every dataset at least six times in six hours"
    assert min(names(one).values()) >= 0.6 * max(names(one).values()), "all have their turn"
    assert not [row for row in rows[1:] if row.held and row.held.hold is Hold.POOL_DRY]
    assert sum(row.forgiven for row in rows[4:]) == 0, "nothing is due that the pool cannot give"
    live = {}
    for rule in one.backend.rules.values():
        name = rule.injection.item.name
        assert name not in live or live[name].deleted <= rule.created, "never twice at a time"
        live[name] = rule


def test_a_pool_that_goes_round_keeps_to_its_rate(tmp_path):
    one = world(tmp_path, campaign([flow("A", "B", 4, goal=Again())]), {"A": items("A", 40, 50 * GB)})
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
    one.heard.at["cycle-closed"] = lambda: seen.append(sums(one).coming)
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
    assert {row.held.hold for row in one.ledger.rows() if row.held} == {Hold.GRAIN}
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
    assert one.ledger.accounts() == one.ledger.totals_from_rows()


# --------------------------------------------------------------------------- then


def hop(source, destination, gbps, **more):
    """The second hop of what lands at `source` in the scenario `test`."""
    return flow(source, destination, gbps, datasets=DatasetFilter((), landed="test"), goal=Onward(), **more)


@pytest.mark.parametrize("speed", [0.6e9, 1e15])
def test_each_dataset_goes_on_once_it_has_landed_and_its_first_copy_is_ended(tmp_path, speed):
    first, then = flow("A", "B", 4, goal=Volume(2 * TB), lifetime_max=timedelta(hours=6)), hop("B", "T", 4)
    one = world(tmp_path, campaign([first, then]), {"A": items("A", 100, 50 * GB)}, speed=lambda _link: speed)
    one.settings = replace(one.settings, drain=True)
    one.run()
    accounts = one.ledger.accounts()
    assert accounts[first.key].moved == accounts[then.key].moved == 2 * TB
    assert one.clock.now() < START + timedelta(hours=8), "the run ends when all has gone on"
    rules = {(r.injection.item.name, r.injection.link.destination): r for r in one.backend.rules.values()}
    assert len(rules) == 80
    for (name, place), rule in rules.items():
        if place == "T":
            before = rules[name, "B"]
            assert before.completed <= rule.created, "it begins with what is whole"
            assert before.ended >= rule.completed, "the first copy stays until the second one is whole"
            assert before.ended < before.expires, "and no longer"
            assert rule.expires <= before.expires, "a second hop never outlives what it reads"
            assert rule.ended >= before.ended
    assert {entry.state for entry in one.ledger.entries()} == {State.GONE}
    assert not [row.held for row in one.ledger.rows() if row.held and row.key == then.key]


def test_a_second_hop_that_is_slow_holds_the_first_copies_and_nothing_is_lost(tmp_path):
    first, then = flow("A", "B", 4, lifetime_max=timedelta(hours=6)), hop("B", "T", 1)
    one = world(tmp_path, campaign([first, then]), {"A": items("A", 400, 50 * GB)})
    one.run(cycles=8)
    rows = [row for row in one.ledger.rows() if row.key == then.key]
    assert [row.due for row in rows[1:]] == [112_500_000_000] * 7
    waiting = {
        rule.injection.item.name for rule in one.backend.rules.values() if rule.injection.link == first.link
    }
    gone_on = {rule.injection.item.name for rule in one.backend.rules.values() if rule.injection.link == then.link}
    assert gone_on < waiting
    stays = {
        r.injection.item.name for r in one.backend.rules.values() if r.injection.link == first.link and not r.ended
    }
    assert waiting - gone_on <= stays


def test_what_did_not_go_on_in_time_is_left_where_it_is(tmp_path):
    first = flow("A", "B", 4, lifetime_max=timedelta(minutes=80))
    one = world(
        tmp_path,
        campaign([first, hop("B", "T", 4, lifetime_min=timedelta(hours=1))]),
        {"A": items("A", 400, 50 * GB)},
    )
    one.backend.unwritable.add("T")
    one.run(cycles=3)
    one.backend.unwritable.clear()
    one.run(cycles=4)
    rules = one.backend.rules.values()
    first_ones = {rule.injection.item.name: rule for rule in rules if rule.injection.link == first.link}
    seconds = [rule for rule in rules if rule.injection.link != first.link]
    assert seconds
    for rule in seconds:
        assert first_ones[rule.injection.item.name].expires >= rule.created + timedelta(hours=1)
        assert rule.expires <= first_ones[rule.injection.item.name].expires


def test_what_is_too_old_to_go_on_is_ended(tmp_path):
    first = flow("A", "B", 4, end=START + CYCLE, lifetime_max=timedelta(hours=3))
    then = hop("B", "T", 4, lifetime_min=timedelta(hours=1), end=START + timedelta(hours=6))
    one = world(tmp_path, campaign([first, then]), {"A": items("A", 400, 50 * GB)})
    one.backend.unwritable.add("T")
    one.run(cycles=12)
    rules = one.backend.rules.values()
    assert rules
    assert all(timedelta(hours=2) <= rule.ended - rule.created <= timedelta(hours=2, minutes=15) for rule in rules)


def test_first_copies_that_wait_count_in_the_space_that_is_planned_with(tmp_path):
    first, then = flow("A", "B", 4, lifetime_max=timedelta(hours=6)), hop("B", "T", 4)
    one = world(
        tmp_path,
        campaign([first, then]),
        {"A": items("A", 400, 25 * GB)},
        speed=lambda _link: 1e9,
        space={"B": TB},
    )
    most = []
    one.heard.at["observed"] = lambda: most.append(one.backend.sites(["B"])["B"].free)
    one.run(cycles=24)
    assert min(most) > 0
    assert one.backend.rules
    late = [row for row in one.ledger.rows() if row.key == first.key and row.cycle.start >= START + 12 * CYCLE]
    assert min(row.injected for row in late) > 0.4 * max(row.injected for row in late), "a steady lower rate"
    assert min(row.injected for row in late) >= 100 * GB


def test_a_second_hop_that_was_refused_is_tried_again(tmp_path):
    first, then = flow("A", "B", 4, goal=Volume(TB), lifetime_max=timedelta(hours=6)), hop("B", "T", 4)
    one = world(tmp_path, campaign([first, then]), {"A": items("A", 100, 50 * GB)})
    refused = iter([True, True, True])

    def fault(method, subject):
        if method == "submit" and subject[0].link == then.link and next(refused, False):
            raise AnotherNow("replicas are still being deleted there")

    one.backend.fault = fault
    one.run(cycles=12)
    assert one.ledger.accounts()[then.key].moved == TB


def test_an_engine_that_dies_between_the_hops_goes_on(tmp_path):
    first, then = flow("A", "B", 4, goal=Volume(2 * TB), lifetime_max=timedelta(hours=6)), hop("B", "T", 4)
    one = world(tmp_path, campaign([first, then]), {"A": items("A", 100, 50 * GB)}, speed=lambda _link: 0.5e9)
    for _ in range(12):
        one.run(cycles=1)
    assert one.ledger.accounts()[then.key].moved == 2 * TB
    assert (
        max(Counter((r.injection.item.name, r.injection.link) for r in one.backend.rules.values()).values()) == 1
    )


def test_after_its_window_nothing_waits_for_a_second_hop(tmp_path):
    first, then = flow("A", "B", 4, end=START + 2 * CYCLE), hop("B", "T", 0.1, end=START + 2 * CYCLE)
    one = world(tmp_path, campaign([first, then]), {"A": items("A", 100, 50 * GB)})
    one.settings = replace(one.settings, drain=True)
    one.run()
    assert one.clock.now() < START + 2 * CYCLE + timedelta(hours=1), "not until the lifetimes are over"


# --------------------------------------------------------------------------- then, through FTS


def file_hop(source, destination, gbps, **more):
    """The second hop, through FTS, of what lands at `source` in the scenario `test`."""
    return file_flow(source, destination, gbps, datasets=FileFilter(landed="test"), goal=Onward(), **more)


def jobs_of(one, link):
    """The jobs of a link, as the service has them."""
    return [rule for rule in one.backend.rules.values() if rule.injection.link == link.link]


@pytest.mark.parametrize("speed", [0.12e9, 1e15])
def test_each_file_goes_on_once_it_has_landed_and_its_first_copy_is_deleted(tmp_path, speed):
    first = file_flow("A", "B", 0.8, goal=Volume(180 * GB), lifetime_max=timedelta(hours=6))
    then = file_hop("B", "T", 0.8)
    stock = source_files("A", 200)
    one = world(tmp_path, campaign([first, then]), stock, speed=lambda _link: speed, **FTS)
    one.settings = replace(one.settings, drain=True)
    one.run()
    accounts = one.ledger.accounts()
    assert accounts[first.key].moved == accounts[then.key].moved == 180 * GB
    assert one.clock.now() < START + timedelta(hours=8), "the run ends when all has gone on"
    before = {copy: rule for rule in jobs_of(one, first) for copy in naming.copies(rule.injection)}
    names = {file.name for file in stock[url("A")]}
    gone_on = [(file, rule) for rule in jobs_of(one, then) for file in rule.injection.item.members]
    assert sorted(file.name for file, _ in gone_on) == sorted(before), "each copy once"
    for file, rule in gone_on:
        own = before[file.name]
        member = own.injection.item.members[naming.copies(own.injection).index(file.name)]
        assert member.name in names
        assert (file.bytes, file.checksum) == (member.bytes, member.checksum)
        assert own.completed <= rule.created, "it begins with what is whole"
        assert own.deleted >= rule.completed, "the first copy stays until the second one is whole"
        assert own.deleted < own.expires, "and no longer"
        assert rule.ended >= own.ended
    assert {entry.state for entry in one.ledger.entries()} == {State.GONE}
    assert not [row.held for row in one.ledger.rows() if row.held and row.key == then.key]
    check = [found for found in contradictions(one.ledger.path) if not found.note]
    assert not check


def test_a_small_pool_goes_on_too_although_each_job_has_a_file_once(tmp_path):
    """A few files are copied again and again; which of their copies landed is told apart."""
    first, then = file_flow("A", "B", 0.8, end=START + 2 * CYCLE), file_hop("B", "T", 0.8)
    one = world(tmp_path, campaign([first, then]), source_files("A", 3), **FTS)
    one.run(cycles=6)
    accounts = one.ledger.accounts()
    assert accounts[first.key].moved == accounts[then.key].moved == 180 * GB
    for rule in one.backend.rules.values():
        names = [file.name for file in rule.injection.item.members]
        assert len(set(names)) == len(names)


def test_files_that_fail_on_either_hop_are_given_again_and_nothing_goes_on_twice(tmp_path):
    """Failed first copies come from the source again, failed second ones from where they landed."""
    first = file_flow("A", "B", 0.8, goal=Volume(90 * GB), lifetime_max=timedelta(hours=8))
    then = file_hop("B", "T", 0.8)
    bad, tries = {f"{url('A')}/data/{n:04}" for n in range(7)}, Counter()

    def failing(file):
        """Some sources fail in the first hour, and one copy of four on its way further."""
        if file.name in bad:
            return one.clock.now() < START + 4 * CYCLE
        return file.name.startswith(url("B")) and one.clock.now() < START + 8 * CYCLE and file.name[-1] in "048c"

    one = world(tmp_path, campaign([first, then]), source_files("A", 120), failing=failing, **FTS)
    one.settings = replace(one.settings, drain=True)
    one.run()
    accounts = one.ledger.accounts()
    assert accounts[then.key].failed > 10 * GB, "they did fail"
    assert accounts[first.key].moved == 90 * GB
    assert accounts[then.key].moved == 90 * GB
    for entry in one.ledger.entries():
        if entry.injection.link == then.link:
            lost = entry.failed // GB
            tries.update([lost == 0])
    assert tries[False] >= 2
    assert tries[True] >= 2
    assert {entry.state for entry in one.ledger.entries()} == {State.GONE}


def test_what_is_unfit_to_go_on_is_deleted_and_the_rest_goes_on(tmp_path):
    first = file_flow("A", "B", 0.8, goal=Volume(90 * GB), lifetime_max=timedelta(hours=8))
    then = file_hop("B", "T", 0.8)
    unfit = []

    def failing(file):
        if file.name.startswith(url("B")) and not unfit:
            unfit.append(file.name)
        return file.name in unfit

    one = world(
        tmp_path, campaign([first, then]), source_files("A", 120), failing=failing, tells_unfit=True, **FTS
    )
    one.settings = replace(one.settings, drain=True)
    one.run()
    accounts = one.ledger.accounts()
    assert accounts[then.key].moved == 89 * GB
    assert Counter(file.name for rule in jobs_of(one, then) for file in rule.injection.item.members)[unfit[0]] == 1
    assert {entry.state for entry in one.ledger.entries()} == {State.GONE}
    assert one.clock.now() < START + timedelta(hours=6), "nothing waits for its lifetime"


def test_no_first_copy_outlives_its_lifetime_for_a_second_hop_that_is_slow(tmp_path):
    """Nobody but we ends jobs; what has not gone on by then is deleted at both ends."""
    first = file_flow("A", "B", 0.8, lifetime_max=timedelta(hours=2), end=START + 2 * CYCLE)
    then = file_hop("B", "T", 0.8, lifetime_min=timedelta(minutes=30), end=START + timedelta(hours=12))
    one = world(
        tmp_path,
        campaign([first, then]),
        source_files("A", 200),
        speed=lambda link: 1e15 if link.source == url("A") else 0.002e9,
        **FTS,
    )
    one.run(cycles=20)
    assert jobs_of(one, then)
    for rule in one.backend.rules.values():
        assert rule.ended is not None
        assert rule.ended <= rule.expires + timedelta(minutes=10)
    ends = {copy: rule.expires for rule in jobs_of(one, first) for copy in naming.copies(rule.injection)}
    for rule in jobs_of(one, then):
        assert rule.expires <= min(ends[file.name] for file in rule.injection.item.members) + timedelta(minutes=5)


def test_an_engine_that_dies_between_the_hops_of_files_goes_on(tmp_path):
    first = file_flow("A", "B", 0.8, goal=Volume(180 * GB), lifetime_max=timedelta(hours=6))
    then = file_hop("B", "T", 0.8)
    one = world(tmp_path, campaign([first, then]), source_files("A", 200), speed=lambda _link: 0.11e9, **FTS)
    for _ in range(12):
        one.run(cycles=1)
    assert one.ledger.accounts()[then.key].moved == 180 * GB
    times = Counter(file.name for rule in jobs_of(one, then) for file in rule.injection.item.members)
    assert set(times.values()) == {1}
