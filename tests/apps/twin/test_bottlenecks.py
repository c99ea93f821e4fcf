"""What holds back a link is told by its cause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dc_inject.apps.twin.grid import world as bottlenecks
from dc_inject.apps.twin.grid.description import Fault, Fts, LinkTraits, Overload, Path, Rucio, Site, Trouble
from dc_inject.apps.twin.grid.world import World, find_held_back
from tests.apps.twin.grids import GB, grid, rule, storage

WIDE = LinkTraits(file_speed=0.02 * GB, actives=(100, 100))
FREE = Fts(per_storage=10_000)


def two(a=None, b=None, link=WIDE, **more):
    ends = storage("A", **(a or {})), storage("B", **(b or {}))
    return grid(*ends, default_link=link, **{"fts": FREE, "rucio": Rucio(requests=1e6), **more})


def down(fault, subject=""):
    return replace(two(), troubles=(Trouble(fault, 300, 9e5, subject),))


def held_back(world: World) -> dict[tuple[str, str], str]:
    return {link: why for link, why, _ in find_held_back(world.transfers, world.network, world.storages)}


SITES = {"site of A": Site("site of A", wan_out=GB), "site of B": Site("site of B")}


@pytest.mark.parametrize(
    "made",
    [
        two(link=replace(WIDE, rate=GB)),
        replace(two(), sites=SITES),
        two(b={"write": GB}),
        two(paths=(Path("cable", GB, ("*:B",)),)),
        two(b={"space": 100 * GB}),
        two(b={"connections": 50, "overload": Overload.SLOWS}),
        two(b={"fts_in": 50}),
        two(a={"fts_out": 50}),
        two(),
        two(link=LinkTraits(failures=0.5, actives=(2, 6))),
        down(Fault.FTS_DOWN),
        down(Fault.STORAGE_DOWN, "A"),
    ],
)  # fmt: skip
def test_a_link_on_which_files_wait_tells_what_holds_it_back(made, wording):
    world = World(made, 1)
    rule(world, "A", "B", 100_000)
    world.advance(3600)
    (why,) = held_back(world).values()
    wording(why)


def test_the_other_reasons_in_words(wording):
    wording([bottlenecks.RETRIED, bottlenecks.NOT_STARTED, bottlenecks.FEWER.format("B")])


@pytest.mark.parametrize(("failures", "why"), [(0.01, set()), (0.5, {bottlenecks.RETRIED})])
def test_files_that_came_or_failed_since_fts_last_started_any_are_not_held_back(failures, why):
    """They wait for a step of 30 s at most, but transfers are free; where many failed, that is why they wait."""
    world = World(two(link=LinkTraits(failures=failures, actives=(150, 150))), 1)
    waited, whys = 0, set()
    for step in range(240):
        if step % 4 == 0:
            rule(world, "A", "B", 40)
        world.advance(world.now + world.step)
        waited += world.transfers.queued()[0] > 0
        whys |= set(held_back(world).values())
        assert world.transfers.actives()[0] < 150
    assert waited > 10
    assert whys == why


def test_files_that_fts_does_not_start_wait_for_it_although_transfers_are_free():
    """It starts one a second."""
    world = World(two(fts=replace(FREE, operations=1)), 1)
    rule(world, "A", "B", 100_000)
    world.advance(900)
    assert world.transfers.actives()[0] < 100
    assert held_back(world) == {("A", "B"): bottlenecks.NOT_STARTED}


def test_files_of_many_small_jobs_begin_as_soon_as_those_of_a_large_one():
    world = World(two(link=LinkTraits(file_speed=0.001 * GB, actives=(100, 100))), 1)
    for _ in range(80):
        rule(world, "A", "B", 1)
    world.advance(120)
    assert world.transfers.actives()[0] == 80
    assert held_back(world) == {}


@pytest.mark.parametrize(
    ("more", "whys"),
    [
        ({}, set()),
        ({"rucio": Rucio(requests=0.1)}, {"submitter"}),
        ({"troubles": (Trouble(Fault.RUCIO_DOWN, 300, 3600),)}, {"down"}),
    ],
)
def test_requests_that_rucio_does_not_pass_on_are_held_back_by_it(more, whys):
    """A sample sees rules of the last minute, too, which wait for the submitter's next pass."""
    world = World(two(**more), 1)
    for step in range(60):
        if step % 4 == 3:
            rule(world, "A", "B", 40)
        world.advance(world.now + world.step)
    seen = world.held_back.get(("A", "B"), {}).keys()
    assert {word for why in seen for word in ("submitter", "down") if word in why} == whys
    assert len(seen) == len(whys)


def test_transfers_that_fts_took_away_because_many_failed_are_missing_for_that_until_it_gives_them_back():
    """Also in the minutes in which none fails: few transfers are few attempts."""
    failing = Trouble(Fault.FAILURES, 0, 3600, "B", part=0.5)
    world = World(replace(two(link=LinkTraits(actives=(2, 60))), troubles=(failing,)), 1)
    rule(world, "A", "B", 100_000)
    world.advance(3600)
    few, many = bottlenecks.FEW, bottlenecks.IN_USE
    for minutes, why in ((0, few), (45, few), (480, many)):
        world.advance(3600 + 60 * minutes)
        assert held_back(world) == {("A", "B"): why}
        assert bool(world.transfers.optimizer.failing[0]) is (minutes == 0)
        assert bool(world.transfers.optimizer.before_failing[0]) is (why == few)


def test_after_a_disk_was_full_few_transfers_are_its_fault_and_not_that_of_fts():
    """FTS took them away while all failed, and gives them back one by one, long after the last failure."""
    world = World(two(b={"space": 100 * GB}, link=LinkTraits(actives=(2, 60))), 1)
    rule(world, "A", "B", 100_000)
    world.advance(3600)
    world.storages.space[:] = 1e18
    for minutes, why in (
        (5, bottlenecks.FEWER.format("B")),
        (480, bottlenecks.IN_USE),
    ):
        world.advance(3600 + 60 * minutes)
        assert held_back(world) == {("A", "B"): why}


B, C = ("A", "B"), ("A", "C")
FROM_A, TO_B = bottlenecks.FROM.format("A"), bottlenecks.TO.format("B")
CABLE = bottlenecks.FULL.format("cable")


@pytest.mark.parametrize(
    ("a", "b", "more", "whys"),
    [
        ({"fts_out": 60}, {"fts_in": 10}, {}, {B: TO_B, C: FROM_A}),
        ({"fts_out": 20}, {"fts_in": 20}, {}, {B: FROM_A, C: FROM_A}),
        ({}, {"fts_in": 5}, {"paths": (Path("cable", GB, ("A:*",)),)}, {B: TO_B, C: CABLE}),
        ({}, {}, {"paths": (Path("cable", GB, ("A:*",)),)}, {B: CABLE, C: CABLE}),
        (
            {"fts_out": 60},
            {},
            {"links": {"A:B": replace(WIDE, actives=(10, 10))}},
            {B: bottlenecks.IN_USE, C: FROM_A},
        ),
        (
            {"fts_out": 60},
            {"connections": 10, "overload": Overload.FAILS},
            {},
            {B: bottlenecks.CONNECTIONS.format("B"), C: FROM_A},
        ),
    ],
)
def test_of_limits_that_are_all_reached_the_one_is_told_that_would_give_the_link_more(a, b, more, whys):
    """A source that other links fill, too, is not why a link is slow that its destination lets have less."""
    ends = storage("A", **a), storage("B", **b), storage("C")
    world = World(grid(*ends, default_link=WIDE, fts=FREE, rucio=Rucio(requests=1e6), **more), 1)
    for destination in "BC":
        rule(world, "A", destination, 100_000)
    world.advance(3600)
    assert held_back(world) == whys


@pytest.mark.parametrize(
    ("a", "b", "link"),
    [
        ({"fts_out": 50}, {"fts_in": 50}, WIDE),
        ({}, {"fts_in": 50}, replace(WIDE, actives=(50, 50))),
        (
            {},
            {"write": GB},
            replace(WIDE, rate=GB),
        ),
    ],
)
def test_limits_of_which_none_alone_would_give_the_link_more_are_told_together(a, b, link, wording):
    world = World(two(a, b, link), 1)
    rule(world, "A", "B", 100_000)
    world.advance(3600)
    (why,) = held_back(world).values()
    wording(why)


def test_a_link_on_which_nothing_waits_is_not_held_back():
    world = World(two(), 1)
    rule(world, "A", "B", 10)
    world.advance(3600)
    assert held_back(world) == {}
