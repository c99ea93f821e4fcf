"""Transfers in the twin, where arithmetic tells the answer."""

from __future__ import annotations

import pytest

from dc_inject.apps.twin.grid.description import Fts, LinkTraits, Overload, Path, Production, Rucio, Site
from dc_inject.apps.twin.grid.world import World
from tests.apps.twin.grids import GB, HOUR, arrived, grid, rule, storage

MANY = (500, 500)  # transfers on a link, whatever the optimizer thinks
FREE = Fts(per_storage=100_000, operations=1e6)
QUICK = Rucio(requests=1e6)


def one_link(traits, **how):
    return grid(storage("A", **how), storage("B"), links={"A:B": traits}, fts=FREE, rucio=QUICK)


@pytest.mark.parametrize("size", [0.1 * GB, 1 * GB, 10 * GB])
@pytest.mark.parametrize("step", [10.0, 30.0, 60.0])
def test_one_link_carries_what_it_can_whatever_the_size_of_files_and_the_step(size, step):
    world = World(
        one_link(LinkTraits(rate=1 * GB, file_speed=0.1 * GB, overhead=0.0, actives=(100, 100))), 1, step
    )
    rule(world, "A", "B", int(10_000 * GB / size), size)
    world.advance(2 * HOUR)
    assert arrived(world) == pytest.approx(2 * HOUR * 1 * GB, rel=0.01 + 100 * size / (2 * HOUR * GB))


@pytest.mark.parametrize("size", [0.1 * GB, 1 * GB, 10 * GB])
def test_files_are_as_fast_as_their_speed_and_overhead_allow(size):
    world = World(one_link(LinkTraits(file_speed=0.02 * GB, overhead=10.0, actives=(20, 20))), 1)
    rule(world, "A", "B", 100_000, size)
    world.advance(10 * HOUR)
    one_after_the_other = 10 * HOUR / (10 + size / (0.02 * GB))
    assert arrived(world) / size == pytest.approx(20 * one_after_the_other, rel=0.02)


@pytest.mark.parametrize("step", [10.0, 30.0, 60.0])
def test_small_files_behind_large_ones_take_their_own_time(step):
    world = World(one_link(LinkTraits(file_speed=0.02 * GB, overhead=10.0, actives=(20, 20))), 1, step)
    rules = [rule(world, "A", "B", *files) for _ in range(20) for files in ((20, 4 * GB), (1000, 0.005 * GB))]
    while any(one.completed is None for one in rules):
        world.advance(world.now + 60)
    in_slots = 20 * (20 * (10 + 4 / 0.02) + 1000 * (10 + 0.005 / 0.02)) / 20
    assert max(one.completed or 0.0 for one in rules) == pytest.approx(in_slots, rel=0.02)


def test_one_file_takes_as_long_as_its_speed_and_overhead_say():
    world = World(one_link(LinkTraits(file_speed=0.01 * GB, overhead=20.0)), 1)
    made = rule(world, "A", "B", 1, 6 * GB)
    while made.completed is None:
        world.advance(world.now + 60)
    assert 620 <= made.completed <= 620 + 3 * 60  # passed on, started, and seen within a step or pass each


def test_a_link_at_a_part_of_what_is_asked_carries_that_part():
    world = World(one_link(LinkTraits(rate=0.7 * GB, actives=MANY)), 1)
    for _ in range(24):
        rule(world, "A", "B", 900, 1 * GB)  # 1 GB/s
        world.advance(world.now + 900)
    assert arrived(world) == pytest.approx(0.7 * GB * 6 * HOUR, rel=0.02)


def test_a_queue_drains_in_what_is_queued_by_the_rate():
    world = World(one_link(LinkTraits(rate=1 * GB, file_speed=0.05 * GB, actives=(100, 100))), 1)
    rules = [rule(world, "A", "B", 1000, 1 * GB) for _ in range(5)]
    world.advance(2 * HOUR)
    ends = [one.completed for one in rules]
    assert ends == sorted(ends)
    assert ends == pytest.approx([1000, 2000, 3000, 4000, 5000], abs=150)
    assert world.transfers.active == 0


def test_what_is_under_way_is_rate_times_time_as_little_says():
    world = World(one_link(LinkTraits(file_speed=0.01 * GB, overhead=0.0, actives=(2000, 2000))), 1)
    active = []
    for _ in range(240):
        rule(world, "A", "B", 60, 10 * GB)  # 1 a second, 1000 s each
        world.advance(world.now + 60)
        active.append(world.transfers.active)
    assert sum(active[60:]) / len(active[60:]) == pytest.approx(1000, rel=0.03)


def test_two_links_share_a_bottleneck_by_their_transfers():
    traits = {
        "A:C": LinkTraits(file_speed=1 * GB, actives=(100, 100)),
        "B:C": LinkTraits(file_speed=1 * GB, actives=(300, 300)),
    }
    far = [storage("A"), storage("B"), storage("C", write=2 * GB)]
    world = World(grid(*far, links=traits, fts=FREE, rucio=QUICK), 1)
    first, second = rule(world, "A", "C", 50_000), rule(world, "B", "C", 50_000)
    world.advance(4 * HOUR)
    first, second = (world.transfers.done[one.job] for one in (first, second))
    assert first + second == pytest.approx(2 * 4 * HOUR, rel=0.02)
    assert second / first == pytest.approx(3, rel=0.03)


def test_a_wan_and_a_path_are_shared_and_a_site_s_own_traffic_passes_neither():
    made = grid(
        storage("A"),
        storage("B"),
        storage("C"),
        default_link=LinkTraits(file_speed=1 * GB, actives=MANY),
        paths=(Path("cable", 3 * GB, ("A:*",)),),
        fts=FREE,
        rucio=QUICK,
    )
    sites = {**made.sites, "site of B": Site("site of B", wan_in=1 * GB)}
    storages = {**made.storages, "B2": storage("B2")}
    storages["B2"] = type(storages["B2"])("B2", "site of B", fts_in=10_000, fts_out=10_000)
    made = type(made)("test", sites, storages, {}, made.default_link, made.paths, FREE, QUICK)
    world = World(made, 1)
    to_b, to_c, inside = (rule(world, *ends, 100_000) for ends in (("A", "B"), ("A", "C"), ("B", "B2")))
    world.advance(1 * HOUR)
    to_b, to_c, inside = (world.transfers.done[one.job] for one in (to_b, to_c, inside))
    assert to_b == pytest.approx(1 * HOUR, rel=0.2)
    assert to_c == pytest.approx(2 * HOUR, rel=0.2)
    assert inside > 20 * HOUR


def test_fts_keeps_to_the_limit_of_a_storage_and_shares_it_among_links():
    far = [storage("A"), storage("B"), storage("C", fts_in=50)]
    made = grid(*far, default_link=LinkTraits(actives=(200, 200)), fts=FREE, rucio=QUICK)
    world = World(made, 1)
    rule(world, "A", "C", 50_000)
    world.advance(1 * HOUR)
    rule(world, "B", "C", 50_000)
    for _ in range(60):
        world.advance(world.now + 60)
        assert world.transfers.active <= 50
    assert sorted(world.transfers.actives().tolist()) == pytest.approx([25, 25], abs=6)


def test_the_highest_waiting_priority_of_a_link_goes_first():
    world = World(one_link(LinkTraits(rate=1 * GB, actives=(50, 50))), 1)
    low, high = rule(world, "A", "B", 1000, priority=2), rule(world, "A", "B", 1000, priority=4)
    world.advance(900)
    assert world.transfers.done[high.job] > 500
    assert world.transfers.done[low.job] == 0


def test_activities_share_the_slots_of_a_link_by_their_weights():
    fts = Fts(per_storage=10_000, operations=1e6, shares={"ours": 1, "theirs": 3})
    made = grid(
        storage("A"), storage("B"), default_link=LinkTraits(rate=1 * GB, actives=(80, 80)), fts=fts, rucio=QUICK
    )
    world = World(made, 1)
    ours, theirs = (rule(world, "A", "B", 20_000, activity=one) for one in ("ours", "theirs"))
    world.advance(4 * HOUR)
    assert world.transfers.done[theirs.job] / world.transfers.done[ours.job] == pytest.approx(3, rel=0.15)


def test_production_takes_its_part_of_a_link():
    production = (Production("A", "B", 0.5 * GB),)
    made = grid(
        storage("A"),
        storage("B"),
        default_link=LinkTraits(rate=1 * GB, actives=(80, 80)),
        production=production,
        fts=FREE,
        rucio=QUICK,
    )
    world = World(made, 1)
    made = rule(world, "A", "B", 20_000)
    world.advance(6 * HOUR)
    assert world.transfers.done[made.job] == pytest.approx(0.5 * 6 * HOUR, rel=0.1)
    assert arrived(world) == pytest.approx(world.transfers.done[made.job] * GB)  # others' files are not counted


@pytest.mark.parametrize("part", [0.1, 0.4])
def test_a_part_of_the_transfers_fails_and_is_tried_again(part):
    world = World(one_link(LinkTraits(failures=part, actives=MANY)), 1)
    made = rule(world, "A", "B", 200_000)
    world.advance(60 * HOUR)
    assert world.transfers.left[made.job] == 0
    assert world.transfers.failed[made.job] == pytest.approx(200_000 * part**4, rel=0.3)


def test_a_storage_with_too_many_connections_slows_or_fails():
    moved = {}
    for limit, how in ((200, Overload.SLOWS), (400, Overload.SLOWS), (400, Overload.FAILS)):
        far = [storage("A"), storage("B", connections=200, overload=how)]
        traits = LinkTraits(file_speed=0.01 * GB, overhead=0.0, actives=(limit, limit))
        world = World(grid(*far, default_link=traits, fts=FREE, rucio=QUICK), 1)
        rule(world, "A", "B", 100_000)
        world.advance(4 * HOUR)
        moved[limit, how] = arrived(world)
    assert moved[200, Overload.SLOWS] == pytest.approx(2 * GB * 4 * HOUR, rel=0.05)
    assert moved[400, Overload.SLOWS] == pytest.approx(moved[200, Overload.SLOWS] / 2, rel=0.05)
    assert moved[400, Overload.FAILS] == pytest.approx(moved[200, Overload.SLOWS], rel=0.1)


def test_cancelled_files_keep_fts_from_starting_others():
    fts = Fts(actives=(500, 500), per_storage=10_000, operations=2.0)
    made = grid(storage("A"), storage("B"), fts=fts, rucio=QUICK)
    started = {}
    for cancelled in (0, 50_000):
        world = World(made, 1)
        if cancelled:
            rule(world, "A", "B", cancelled, lifetime=120)
        world.advance(300)
        late = rule(world, "A", "B", 20_000)
        world.advance(300 + 2 * HOUR)
        started[cancelled] = world.transfers.done[late.job]
        assert world.transfers.cancelled == pytest.approx(cancelled, rel=0.05)
    assert started[50_000] == pytest.approx(started[0] / 2, rel=0.1)
