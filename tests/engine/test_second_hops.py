"""Second hops: what has landed goes on once, through Rucio or FTS, and its first copy is ended after it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.ledger.check import check as contradictions
from dc_inject.model import DatasetFilter, FileFilter, State, naming
from dc_inject.model.errors import TryOtherItem
from dc_inject.model.events import Observed
from dc_inject.model.goals import SecondHop, Volume
from tests.engine.world import CYCLE, GB, START, campaign, file_flow, flow, items, source_files, url, world

TB = 1000 * GB
FTS = {"name": "fts"}

# --------------------------------------------------------------------------- through Rucio


def hop(source, destination, gbps, **more):
    """The second hop of what lands at `source` in the scenario `test`."""
    return flow(source, destination, gbps, datasets=DatasetFilter((), landed="test"), goal=SecondHop(), **more)


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


@pytest.mark.parametrize("lag", [CYCLE / 2, timedelta(days=2)])
def test_what_has_landed_is_judged_by_its_rule_and_not_by_a_summary_that_lags(tmp_path, lag):
    """Rucio sums up what a dataset has at a place some time after the rule's locks say that all of it is there."""
    first, then = flow("A", "B", 4, goal=Volume(TB), lifetime_max=timedelta(hours=3)), hop("B", "T", 4)
    one = world(tmp_path, campaign([first, then]), {"A": items("A", 100, 50 * GB)}, summary_lag=lag)
    one.settings = replace(one.settings, drain=True)
    one.run()
    assert one.ledger.accounts()[then.key].moved == TB
    assert not one.ledger.quarantined(START)
    assert one.clock.now() < START + timedelta(hours=2), "nothing waits for the summary"


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
    one.heard.at[Observed] = lambda: most.append(one.backend.sites(["B"])["B"].free)
    one.run(cycles=18)
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
            raise TryOtherItem("replicas are still being deleted there")

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


# --------------------------------------------------------------------------- through FTS


def file_hop(source, destination, gbps, **more):
    """The second hop, through FTS, of what lands at `source` in the scenario `test`."""
    return file_flow(source, destination, gbps, datasets=FileFilter(landed="test"), goal=SecondHop(), **more)


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
        assert rule.expires <= min(ends[file.name] for file in rule.injection.item.members)


def test_an_engine_that_dies_between_the_hops_of_files_goes_on(tmp_path):
    first = file_flow("A", "B", 0.8, goal=Volume(180 * GB), lifetime_max=timedelta(hours=6))
    then = file_hop("B", "T", 0.8)
    one = world(tmp_path, campaign([first, then]), source_files("A", 200), speed=lambda _link: 0.11e9, **FTS)
    for _ in range(12):
        one.run(cycles=1)
    assert one.ledger.accounts()[then.key].moved == 180 * GB
    times = Counter(file.name for rule in jobs_of(one, then) for file in rule.injection.item.members)
    assert set(times.values()) == {1}
