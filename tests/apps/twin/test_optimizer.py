"""The rules of FTS's optimizer, one by one."""

from __future__ import annotations

import numpy as np
import pytest

from dc_inject.apps.twin.grid import optimizer as o
from dc_inject.apps.twin.grid.description import Fts, LinkTraits, Mode, Rucio
from dc_inject.apps.twin.grid.world import World
from tests.apps.twin.grids import GB, HOUR, grid, rule, storage


class Link:
    """One link at the optimizer: each run is told what the minute before brought."""

    def __init__(self, least=2, most=130, mode=Mode.NORMAL):
        self.optimizer = o.Optimizer(mode)
        self.optimizer.add(least, most)
        self.now = 0.0

    def run(self, *, mb_s=100.0, done=100, failed=0, queued=1000, active=50, size=2e9, seconds=100.0, retries=0):
        counts = {
            o.BYTES: mb_s * 60e6,
            o.FILES: done,
            o.SIZES: done * size,
            o.SECONDS: done * seconds,
            o.FAILED: failed,
            o.RETRIES: retries,
        }
        for what, amount in counts.items():
            self.optimizer.count(what, np.array([float(amount)]))
        self.now += 60
        self.optimizer.run(self.now, np.array([queued]), np.array([active]))
        return int(self.optimizer.value[0])


@pytest.mark.parametrize(("least", "most", "first"), [(2, 130, 66), (2, 200, 101), (10, 11, 10), (5, 5, 5)])
def test_it_starts_half_way_in_its_range(least, most, first):
    assert Link(least, most).run() == first


@pytest.mark.parametrize(("mode", "step"), [(Mode.CONSERVATIVE, 1), (Mode.NORMAL, 2)])
def test_it_goes_up_each_minute_to_the_end_of_its_range(mode, step):
    link = Link(2, 80, mode)
    values = [link.run() for _ in range(60)]
    assert values[:4] == [41, 41 + step, 41 + 2 * step, 41 + 3 * step]
    assert max(values) == min(80, 41 + 59 * step)


def test_it_holds_on_while_fewer_are_queued_than_it_has_slots():
    link = Link(2, 100)
    assert [link.run(queued=40) for _ in range(5)] == [51] * 5
    assert link.run(queued=51) == 53


@pytest.mark.parametrize(("failed", "steps"), [(2, 2), (3, 2), (4, -1), (50, -1)])
def test_under_97_percent_of_success_it_goes_down(failed, steps):
    link = Link(2, 100)
    link.run()
    link.optimizer._counts[:] = 0
    assert link.run(done=100 - failed, failed=failed) == 51 + steps


def test_it_stays_while_successes_improve_from_low_on():
    link = Link(2, 100)
    link.run(done=90, failed=10)
    assert link.run(done=90, failed=10) == 50
    link.optimizer._counts[:] = 0
    assert link.run(done=96, failed=4) == 50
    link.optimizer._counts[:] = 0
    assert link.run(done=96, failed=4) == 49


def test_it_takes_nothing_away_from_a_link_on_which_less_than_a_tenth_of_its_slots_waits():
    """In its normal mode, however many fail; the conservative one takes them away all the same."""
    link = Link(2, 100)
    assert [link.run(done=80, failed=20, queued=4) for _ in range(5)] == [51] * 5
    assert link.run(done=80, failed=20, queued=5) == 50
    link = Link(2, 100, Mode.CONSERVATIVE)
    assert [link.run(done=80, failed=20, queued=0) for _ in range(3)] == [51, 50, 49]


def test_it_tells_what_moved_in_the_last_five_minutes_but_for_what_failed():
    link = Link(2, 100)
    for mb_s in (900, 900, 100, 100, 100, 100, 100):
        link.run(mb_s=mb_s, done=80, failed=20, active=20)
    lately = link.optimizer.lately(0)
    assert lately.rate == pytest.approx(0.8 * 100e6)
    assert (lately.file, lately.at) == (2e9, 7 * 60)


def test_all_that_fails_leads_to_the_least_with_a_step_every_five_minutes_while_nothing_changes():
    link = Link(2, 20)
    values = [link.run(done=0, failed=20, mb_s=0) for _ in range(60)]
    assert values[:13] == [11] * 5 + [10] * 5 + [9] * 3
    assert values[-1] == 2


def test_less_throughput_stops_its_growth_and_a_tenth_of_it_takes_a_slot():
    link = Link(2, 1000)
    for _ in range(60):
        growing = link.run(mb_s=200)
    assert growing == 501 + 59 * 2
    values = [link.run(mb_s=1) for _ in range(60)]
    assert values[20] == values[10]  # less, but not by much yet
    assert values[-1] == values[20] - 2  # once for each order of magnitude


def test_throughput_is_an_exponential_mean_with_a_tenth_for_the_newest():
    link = Link()
    link.run(mb_s=150, seconds=100)  # in windows of 15 minutes
    link.run(mb_s=150)
    assert link.optimizer._mean[0] == pytest.approx(0.9 * 150e6 / 15 + 0.1 * 2 * 150e6 / 15)


@pytest.mark.parametrize(("seconds", "window"), [(10, 5), (100, 15), (1000, 30)])
def test_the_window_follows_the_time_that_files_take(seconds, window):
    link = Link()
    for _ in range(40):
        link.run(mb_s=60, seconds=seconds)
    minutes, _ = link.optimizer._windows()
    assert minutes[0] == window
    assert link.optimizer._mean[0] == pytest.approx(60e6, rel=0.2)


def test_a_link_without_work_is_left_alone():
    link = Link(2, 100)
    link.run()
    before = link.run()
    assert [link.run(mb_s=0, done=0, queued=0, active=0) for _ in range(3)] == [before] * 3


def test_in_the_world_a_full_queue_grows_by_two_a_minute_and_an_empty_one_does_not():
    far = storage("A"), storage("B")
    fts = Fts(actives=(2, 130), per_storage=1000)
    grown = {}
    for files in (20, 1000):
        world = World(
            grid(*far, default_link=LinkTraits(file_speed=0.02 * GB), fts=fts, rucio=Rucio(requests=1e6)), 1
        )
        for _ in range(80):
            rule(world, "A", "B", files)
            world.advance(world.now + 60)
        grown[files] = int(world.transfers.optimizer.value[0])
    assert grown == {20: 66, 1000: 130}
    assert world.now < 2 * HOUR
