"""A small part of `make chaos`: kills at steps in the middle of work, and 8 % faulty calls; nothing is lost."""

from __future__ import annotations

import random
import time

import pytest

from tests.chaos import invariants
from tests.chaos.crashes import Aim
from tests.chaos.lab import Ground
from tests.chaos.parts import AFTER, KILLING
from tests.chaos.proxy import Proxy
from tests.chaos.truth import Truth
from tests.chaos.world import World

pytestmark = pytest.mark.sandbox

SEED = 4
KILLS = 6
MINUTES = 10  # in which it has to be done, on any machine


@pytest.fixture
def world(sandbox, tmp_path):
    with Proxy(sandbox.url, SEED) as proxy:
        made = World(sandbox, tmp_path / "world", f"CHAOS{SEED}", proxy, cycle=5)
        try:
            yield made
        finally:
            made.kill()


def test_killed_again_and_again_with_faulty_calls_between_it_and_rucio_nothing_is_lost(world, sandbox):
    """Six lives die at steps, each after it had made or ended rules; every invariant holds in the database."""
    world.furnish(24)
    truth = Truth(sandbox.folder / "rucio.db", "dcops")
    before = invariants.Before.of(world, truth)
    ground = Ground(world, truth, before, SEED, until=time.monotonic() + 60 * MINUTES)
    row, aim = ground.row("SIGKILL at a step"), Aim(world.folder / "deaths", random.Random(SEED), AFTER)
    ground.deaths(row, KILLING, aim, KILLS)
    assert row.violations == []
    assert row.at_work == KILLS
    assert row.kills == row.steps.total() == row.checks - 1
    assert len(row.steps) >= 3
    assert row.given > 0
    assert row.faulty > 0
