"""Which datasets are eligible, and which are taken for a budget."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject.model import Dataset, DatasetFilter, Item, Order
from dc_inject.planning.pool import Pool, SelectionPolicy, matches
from tests.core.builders import ALL, GB, items

CALM = settings(deadline=None, derandomize=True)
RAW = "cms:/Zero/Run2026A/RAW#7"

MATCHES = [
    ("*:*", RAW, True),
    ("cms:/*/RAW#*", RAW, True),
    ("cms:/*/RAW#?", RAW, True),
    ("cms:/*/AOD#*", RAW, False),
    ("c*:*", RAW, True),
    ("user.*:*", RAW, False),
    ("*:/Zero/*", RAW, True),
    ("cms*:/Zero/*", "cms:x:/Zero/1", False),  # only the first colon ends the scope
    ("CMS:*", RAW, False),  # names are case sensitive
    ("[cu]ms:/Zero/*", RAW, True),
    ("data*", "cms:data1", True),  # no colon: a pattern of the name
    ("*#7", RAW, True),
    ("cms:/Zero", RAW, False),  # all of it has to fit
]


@pytest.mark.parametrize(("pattern", "name", "expected"), MATCHES)
def test_patterns_have_wildcards_in_either_part(pattern: str, name: str, expected: bool) -> None:
    """A shell pattern for the scope, another for the name."""
    assert matches(Dataset(name, 100 * GB, 20), DatasetFilter((pattern,), mean_file=(1, 10**15))) is expected


BOUNDS = [
    (100 * GB, 10, True),
    (100 * GB, 101, False),  # mean file below 1 GB
    (100 * GB, 5, True),
    (100 * GB, 4, False),  # mean file above 20 GB
    (99 * GB, 100, False),
    (100 * GB, 100, True),
    (20 * GB, 1, True),
    (20_000 * GB, 1000, True),
    (20_001 * GB, 1001, False),  # too many files
    (0, 10, False),
    (100 * GB, 0, False),
]


@pytest.mark.parametrize(("size", "files", "expected"), BOUNDS)
def test_bounds_on_files_and_their_mean_size_are_inclusive(size: int, files: int, expected: bool) -> None:
    """1 to 1000 files of 1 to 20 GB in the mean, unless the menu says otherwise."""
    assert matches(Dataset(RAW, size, files), DatasetFilter(("*:*",))) is expected


def test_exclusions_win_and_containers_need_no_pattern() -> None:
    """What a back end found in a container passes without a name that fits, but not against an exclusion."""
    some = DatasetFilter(("cms:*",), containers=("data:big",), exclude=("*:*bad*",), mean_file=(1, 10**15))
    assert matches(Dataset("cms:good", GB, 1), some)
    assert not matches(Dataset("cms:bad", GB, 1), some)
    assert not matches(Dataset("data:one", GB, 1), some)
    assert matches(Dataset("data:one", GB, 1), some, in_container=True)
    assert not matches(Dataset("data:bad", GB, 1), some, in_container=True)


# --------------------------------------------------------------------------- taking


def sizes(chosen: list[Item]) -> list[int]:
    """What was taken, in GB."""
    return [item.bytes // GB for item in chosen]


def take(
    pool: list[int], budget: float, slack: float = 0, order: Order = Order.LARGEST_FIRST, **more
) -> list[int]:
    """Take from a pool of datasets of these sizes, everything in GB; 25 are preferred."""
    taste = SelectionPolicy(order, 25 * GB, 2**100 + 12345)
    return sizes(Pool(items(*(s * GB for s in pool))).take(int(budget * GB), int(slack * GB), taste, **more))


TAKEN = [
    ([10, 20, 30], 20, 0, [20], "what just fits"),
    ([10, 20, 30], 30, 0, [20, 10], "largest first among those that are preferred"),
    ([30, 40, 50], 75, 0, [30, 40], "then the smallest of the larger ones"),
    ([10, 30], 45, 0, [10, 30], "small ones before larger ones"),
    ([20, 20, 20, 20, 20, 20], 90, 20, [20] * 5, "as long as the sum is below the budget and fits with the slack"),
    ([20, 20, 20, 20, 20, 20], 90, 9, [20] * 5, "by the slack, or by half of the smallest"),
    ([100], 49, 0, [], "less than half of the smallest is covered"),
    ([100], 50, 0, [100], "half of the smallest is covered"),
    ([100, 300], 149, 0, [100], "the first fits, and of the next not even half is covered"),
    ([100, 100], 150, 0, [100, 100], "the first fits, and of the next half is covered"),
    ([100], 0, 1000, [], "no budget, no dataset"),
    ([], 100, 10, [], "a dry pool"),
]


@pytest.mark.parametrize(("pool", "budget", "slack", "expected", "why"), TAKEN, ids=[row[-1] for row in TAKEN])
def test_what_is_taken_for_a_budget(pool, budget, slack, expected, why) -> None:
    """Sizes in GB, of which up to 25 GB are preferred."""
    assert take(pool, budget, slack) == expected


def test_other_orders_where_the_menu_means_it() -> None:
    """Smallest first is smallest first; random is neither."""
    pool = list(range(1, 60))
    assert take(pool, 28, order=Order.SMALLEST_FIRST) == [1, 2, 3, 4, 5, 6, 7]
    mixed = take(pool, 500, order=Order.RANDOM)
    assert mixed != sorted(mixed)
    assert mixed != sorted(mixed, reverse=True)


def test_what_leaves_the_source_now_comes_last_among_its_size() -> None:
    """Another dataset of the same size is preferred, but a smaller one is not."""
    pool = Pool(items(20 * GB, 20 * GB, 20 * GB, 10 * GB))
    taste = SelectionPolicy(Order.LARGEST_FIRST, 25 * GB, 5)
    leaving = {"cms:/data#0000", "cms:/data#0001"}
    (first,) = pool.take(20 * GB, 0, taste, leaving=leaving)
    assert first.name == "cms:/data#0002"
    (second,) = pool.take(20 * GB, 0, taste, leaving=leaving, taken={"cms:/data#0002"})
    assert second.bytes == 20 * GB


def test_links_begin_at_different_places_among_equals() -> None:
    """A hundred seeds do not all take the same dataset."""
    pool = Pool(items(*[GB] * 50))
    first = {
        pool.take(GB, 0, SelectionPolicy(Order.LARGEST_FIRST, GB, seed * 2**64 // 7))[0].name
        for seed in range(100)
    }
    assert len(first) > 25


POOLS = st.lists(st.integers(1, 200), min_size=0, max_size=60)


@given(
    pool=POOLS,
    budget=st.integers(-5, 2000),
    slack=st.integers(0, 400),
    grain=st.integers(0, 100),
    room=st.none() | st.integers(0, 2000),
    order=st.sampled_from(Order),
    seed=st.integers(0, 2**128 - 1),
    taken=st.sets(st.integers(0, 59)),
)
@CALM
def test_taking_keeps_its_promises(pool, budget, slack, grain, room, order, seed, taken) -> None:
    """Nothing twice, nothing taken, never beyond room; left over less than half of the smallest that is free."""
    some = items(*pool)
    gone = {some[i].name for i in taken if i < len(some)}
    shelf = Pool(some)
    chosen = shelf.take(budget, slack, SelectionPolicy(order, grain, seed), room=room, taken=gone)
    names, total = {item.name for item in chosen}, sum(item.bytes for item in chosen)
    assert len(names) == len(chosen)
    assert not names & gone
    assert room is None or total <= room
    if not chosen:
        total = 0
    else:
        assert total - chosen[-1].bytes < budget
        assert total <= budget + slack or 2 * (total - budget) <= chosen[-1].bytes
    left = shelf.smallest(gone | names)
    if total < budget and left is not None and (room is None or total + left.bytes <= room):
        assert 2 * (budget - total) < left.bytes


@given(pool=POOLS, seed=st.integers(0, 2**128 - 1), mixed=st.randoms(use_true_random=False))
@CALM
def test_the_order_of_the_pool_does_not_matter(pool, seed, mixed) -> None:
    """The same items in another order give the same choice."""
    some, taste = items(*pool), SelectionPolicy(Order.LARGEST_FIRST, 50, seed)
    other = list(some)
    mixed.shuffle(other)
    assert Pool(some).take(300, 60, taste) == Pool(other).take(300, 60, taste)


def test_a_pool_knows_what_is_taken_of_it_and_where() -> None:
    """Numbers and bytes by place, in one walk."""
    pool = Pool(items(1, 2, 3))
    places = {"cms:/data#0000": ["X"], "cms:/data#0002": ["X", "Y"], "other": ["Z"]}
    assert pool.count_taken(places) == {"X": (2, 4), "Y": (1, 3)}
    assert (len(pool), pool.bytes, pool.largest) == (3, 6, 3)
    assert ALL.dids == ("*:*",)
