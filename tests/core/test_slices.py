"""Slices: the volume that is due to within half a file, and no file twice at a destination at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dc_inject.model import Dataset, Hold
from dc_inject.model.items import ItemId, Range, SliceId, Slicing, read_id
from dc_inject.model.plan import Plan
from dc_inject.planning.plan import Situation, plan

from .builders import CYCLE, GB, TB, demand, flow, situation

OURS = Slicing("user.dcops")
COARSE = [Dataset(f"cms:/data#{n}", 5 * TB, 1000) for n in range(3)]


def files_of(ids: Iterable[ItemId], totals: dict[str, int]) -> Counter[tuple[str, int]]:
    """Count the files that items have."""
    count: Counter[tuple[str, int]] = Counter()
    for item in ids:
        part = item.range if isinstance(item, SliceId) else Range(item, 1, totals[item], totals[item])
        count.update((part.parent, number) for number in range(part.first, part.last + 1))
    return count


def names(done: Plan) -> list[str]:
    return [injection.item.name for injection in done.injections]


def ids(done: Plan) -> list[ItemId]:
    return [injection.item.id for injection in done.injections]


def test_a_coarse_link_gets_its_due_within_half_a_file() -> None:
    """112.5 GB of datasets of 5 TB, in slices of at most a quarter of a cycle's worth: 23 files of 5 GB."""
    asked = demand(flow(rate=1, slices=OURS), 112_500_000_000)
    done = plan(situation([asked], COARSE))
    chosen = done.injections
    assert abs(sum(one.item.bytes for one in chosen) - 112_500_000_000) <= 5 * GB / 2
    assert all(one.item.bytes <= 112_500_000_000 / 4 for one in chosen)
    assert done.decisions[0].held is None
    assert len({one.range.parent for one in ids(done) if isinstance(one, SliceId)}) == 1
    assert max(files_of(ids(done), {}).values()) == 1
    assert all(name.startswith("user.dcops:dc_inject-") for name in names(done))


def test_without_the_option_a_coarse_link_saves_up() -> None:
    done = plan(situation([demand(flow(rate=1), 112_500_000_000)], COARSE))
    assert done.decisions[0].held is not None
    assert done.decisions[0].held.hold is Hold.TOO_COARSE


def test_the_same_cycle_gives_the_same_slices() -> None:
    asked = demand(flow(rate=1, slices=OURS), 112_500_000_000)
    assert plan(situation([asked], COARSE)) == plan(situation([asked], list(reversed(COARSE))))


def test_whole_datasets_go_out_where_they_fit() -> None:
    pool = [*COARSE, Dataset("cms:/small", 20 * GB, 4)]
    done = plan(situation([demand(flow(rate=1, slices=OURS), 112_500_000_000)], pool))
    assert "cms:/small" in names(done)
    assert abs(sum(one.item.bytes for one in done.injections) - 112_500_000_000) <= 5 * GB / 2


def test_a_parent_at_the_destination_blocks_its_slices_and_a_slice_its_parent() -> None:
    (parent,) = COARSE[:1]
    asked = demand(flow(rate=1, slices=OURS), 112_500_000_000)
    there = plan(situation([asked], [parent], taken=frozenset({(parent.name, "B")})))
    assert not there.injections
    assert there.decisions[0].held is not None
    assert there.decisions[0].held.hold is Hold.POOL_DRY
    part = SliceId(Range(parent.name, 1, 10, 1000), "user.dcops:dc_inject-1")
    whole = plan(situation([demand(flow(), 10 * TB)], [parent], taken=frozenset({(part, "B")})))
    assert not whole.injections
    elsewhere = plan(situation([demand(flow(), 10 * TB)], [parent], taken=frozenset({(part, "C")})))
    assert names(elsewhere) == [parent.name]


def test_slices_of_a_parent_with_another_number_of_files_block_all_of_it() -> None:
    part = SliceId(Range(COARSE[0].name, 1, 10, 999))
    asked = demand(flow(rate=1, slices=OURS), 112_500_000_000)
    assert not plan(situation([asked], COARSE[:1], taken=frozenset({(part, "B")}))).injections


def test_at_most_bounds_a_slice_and_room_all_of_them() -> None:
    asked = demand(flow(rate=1, slices=replace(OURS, at_most=10 * GB)), 112_500_000_000)
    done = plan(situation([asked], COARSE))
    assert {one.item.bytes for one in done.injections} <= {5 * GB, 10 * GB}


@pytest.mark.parametrize(
    "text", ["cms:/a", "3 files 0123456789ab", "cms:/a files 3-2 of 9", "cms:/a files 1-10 of 9"]
)
def test_what_is_no_slice_is_not_taken_for_one(text: str) -> None:
    assert read_id(text) == text


PARENTS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 40)), min_size=1, max_size=4)


@given(
    PARENTS,
    st.lists(st.tuples(st.booleans(), st.integers(1, 400), st.booleans()), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_no_file_is_twice_at_a_destination(
    parents: list[tuple[int, int]], asks: list[tuple[bool, int, bool]], chance: object
) -> None:
    """Cycle after cycle, links with slices and without share pools and a destination; some of it goes again."""
    pool = [Dataset(f"cms:/data#{n}", files * size * GB, files) for n, (files, size) in enumerate(parents)]
    totals = {item.name: item.files for item in pool}
    there: set[ItemId] = set()
    for cut, due, keep in asks:
        first = demand(flow(rate=1, scenario="one", slices=OURS if cut else None), due * GB)
        other = demand(flow("A2", rate=1, scenario="two", slices=OURS), due * GB)
        known: Situation = situation([first, other], pool, taken=frozenset((item, "B") for item in there))
        before = set(there)
        chosen = ids(plan(replace(known, cycle=CYCLE)))
        assert before.isdisjoint(chosen)
        there.update(chosen)
        assert max(files_of(there, totals).values(), default=0) <= 1
        if not keep:
            there = {item for item in sorted(there, key=str) if chance.random() < 0.5}  # type: ignore[attr-defined]
