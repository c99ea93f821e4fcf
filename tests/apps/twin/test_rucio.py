"""Rules, space and deletion in the twin, where arithmetic tells the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dc_inject.apps.twin.grid.description import Fault, Fts, LinkTraits, Rucio, Trouble
from dc_inject.apps.twin.grid.jobs import Job
from dc_inject.apps.twin.grid.transfers import Queue
from dc_inject.apps.twin.grid.world import World
from tests.apps.twin.grids import GB, HOUR, arrived, grid, rule, storage

QUICK = Rucio(requests=1e6)
FREE = Fts(per_storage=100_000, operations=1e6)
FAST = LinkTraits(rate=1 * GB, actives=(200, 200))


def world_of(*storages, rucio=QUICK, link=FAST, seed=1):
    return World(grid(*storages, default_link=link, fts=FREE, rucio=rucio), seed)


def test_a_disk_fills_to_its_last_byte_and_the_rest_fails():
    world = world_of(storage("A"), storage("B", space=3000 * GB))
    made = rule(world, "A", "B", 5000)
    world.advance(4 * HOUR)
    assert arrived(world) == pytest.approx(3000 * GB, rel=0.01)
    assert arrived(world) <= 3000 * GB
    assert made.job is not None
    assert world.transfers.failed[made.job] >= 1900
    assert world.storages.hours_nearly_full[1] == pytest.approx(4 - 3000 / 3600, abs=0.1)


def test_what_a_storage_had_at_most_is_known_also_between_two_samples():
    world = world_of(storage("A"), storage("B", delete_lag=30))
    rule(world, "A", "B", 100, lifetime=300)
    world.advance(3 * HOUR)
    assert world.storages.used[1] == 0
    assert world.storages.most_used[1] == 100 * GB


def test_a_rule_that_expires_drops_what_was_not_sent_and_its_files_are_deleted():
    slow = LinkTraits(rate=0.1 * GB, actives=(10, 10))
    world = world_of(storage("A"), storage("B", delete_lag=600, delete_seconds=1, deleting=1), link=slow)
    made = rule(world, "A", "B", 1000, lifetime=1 * HOUR)
    world.advance(1 * HOUR + 180)
    there = arrived(world) / GB
    assert there == pytest.approx(360, rel=0.06)
    assert made.ended is not None
    assert world.rucio.lost.unsent_files == pytest.approx(1000 - there - 10)
    assert world.rucio.lost.interrupted_bytes == pytest.approx(10 * GB)  # transfers at a time
    assert world.rucio.lost.cancelled_files == pytest.approx(1000 - there)
    assert world.transfers.active == 0
    world.advance(1 * HOUR + 600)
    assert arrived(world) == there * GB
    world.advance(1 * HOUR + 840)
    assert arrived(world) == pytest.approx((there - 180) * GB, abs=62 * GB)
    assert not made.is_gone
    assert 0 < made.left < there * GB
    world.advance(1 * HOUR + 720 + there + 120)
    assert arrived(world) == 0
    assert made.is_gone
    assert (made.left, made.doomed) == (0, None), "rules that keep each other alive would fill the memory"
    assert not world.rucio.there


@pytest.mark.parametrize("direct", [False, True])
def test_files_that_wait_for_another_attempt_when_their_rule_or_job_ends_had_begun(direct):
    """Of 20 files FTS starts 2 at a time, and nearly all attempts fail: in 10 minutes all were begun."""
    failing = LinkTraits(failures=0.9, actives=(2, 2), overhead=0, file_speed=0.1 * GB)
    ends = storage("A"), storage("B")
    world = World(grid(*ends, default_link=failing, fts=replace(FREE, retries=1000), rucio=QUICK), 1)
    queue = Queue("A", "B", "test", 3)
    if direct:
        world.jobs.submit("key", Job(queue, 20, round(20 * GB)))
        world.advance(600)
        world.jobs.end(world.jobs.jobs["key"])
        done = world.jobs.jobs["key"].done
    else:
        made = rule(world, "A", "B", 20, lifetime=600)
        world.advance(900)
        done = made.done
    lost = world.rucio.lost
    assert 0 < done < 18
    assert (lost.unsent_files, lost.unsent_bytes) == (0, 0)
    assert lost.interrupted_bytes == pytest.approx((20 - done) * GB)


def test_deletions_that_are_slower_than_arrivals_fill_a_disk():
    """With 2 s for a deletion and 1 file a second arriving, half of it stays."""
    world = world_of(storage("A"), storage("B", delete_seconds=2, deleting=1))
    for _ in range(24):
        rule(world, "A", "B", 900, lifetime=1800)
        world.advance(world.now + 900)
    assert arrived(world) == pytest.approx((6 * HOUR - 5.25 * HOUR / 2) * GB, rel=0.1)
    assert world.storages.backlog(1) > 7000


def test_the_submitter_passes_on_so_many_requests_a_second():
    world = world_of(storage("A"), storage("B"), rucio=Rucio(requests=0.5))
    made = rule(world, "A", "B", 5000)
    world.advance(2 * HOUR)
    assert world.transfers.done[made.job] == pytest.approx(0.5 * 2 * HOUR, rel=0.05)


def test_while_rucio_is_down_nothing_is_passed_on_ended_or_deleted():
    made = grid(storage("A"), storage("B"), default_link=FAST, fts=FREE)
    world = World(replace(made, troubles=(Trouble(Fault.RUCIO_DOWN, 1800, 2400),)), 1)
    short = rule(world, "A", "B", 10, lifetime=2000)
    world.advance(1900)
    late = rule(world, "A", "B", 10)
    world.advance(4100)
    assert short.ended is None
    assert late.job is None
    world.advance(4800)
    assert short.ended is not None
    assert late.completed is not None


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_seed_gives_the_same_world(seed):
    def run(number):
        world = world_of(
            storage("A"), storage("B"), link=LinkTraits(rate=1 * GB, failures=0.1, actives=(20, 20)), seed=number
        )
        for _ in range(8):
            rule(world, "A", "B", 800, lifetime=HOUR)
            world.advance(world.now + 900)
        return [*world.samples, arrived(world), world.rucio.lost]

    assert run(seed) == run(seed)
    assert run(seed) != run(seed + 10)


def test_it_does_not_matter_how_often_somebody_looks():
    worlds = [world_of(storage("A"), storage("B"), link=LinkTraits(failures=0.1)) for _ in range(2)]
    for world, step in zip(worlds, (7.0, 3600.0), strict=True):
        rule(world, "A", "B", 5000, lifetime=HOUR)
        for number in range(1, int(2 * HOUR / step) + 1):
            world.advance(number * step)
        world.advance(2 * HOUR)
    assert worlds[0].samples == worlds[1].samples
