"""Releases are even: every link is given its bytes as they are due, and so are all together."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject.planning import release
from dc_inject.planning.release import CALLS, MARGIN, TICKS, Share, releases
from tests.core.builders import CYCLE, LENGTH, START

MINUTE = timedelta(minutes=1)
TICK = LENGTH / TICKS
CALM = settings(deadline=None, derandomize=True)


@st.composite
def shares(draw: st.DrawFn) -> Share:
    """A link that is given its budget, to half an item; ten of them have no more items than there are calls."""
    sizes = draw(st.lists(st.integers(100, 1000), min_size=1, max_size=9))
    largest, total = max(sizes), sum(sizes)
    budget = total + draw(st.integers(-largest // 2, sizes[-1] // 2))
    carried = draw(st.integers(-largest, largest // 2))
    return Share(sizes, max(budget, sizes[-1] // 2), carried, draw(st.integers(0, 2**64)))


def line(share: Share, moment: datetime) -> float:
    """What a link should have been given by then, counted from the begin of the cycle."""
    first = min(share.carried, max(share.sizes) // 2)
    return first + (share.budget - first) * ((moment - START) / LENGTH)


@given(st.lists(shares(), min_size=1, max_size=10))
@CALM
def test_no_link_is_ever_further_than_its_largest_item_from_what_is_due(some: list[Share]) -> None:
    """However many others there are, and however large theirs; in order, and none after the cycle's end."""
    given_ = [0] * len(some)
    before = [START] * len(some)
    seen: list[tuple[int, int]] = []
    for link, index, moment in releases(dict(enumerate(some)), (), CYCLE, START):
        share = some[link]
        largest = max(share.sizes) * 1.01 + 1
        assert before[link] <= moment <= CYCLE.end - TICK
        before[link] = moment
        if moment < CYCLE.end - TICK:
            assert line(share, moment) - given_[link] <= largest
        given_[link] += share.sizes[index]
        if moment > START:
            assert given_[link] - line(share, moment) <= largest
        seen.append((link, index))
    assert sorted(seen) == [(n, index) for n, share in enumerate(some) for index in range(len(share.sizes))]


def test_links_with_one_item_each_do_not_all_go_out_in_the_middle() -> None:
    """Each is due there, and has time until the next one is."""
    draw = random.Random(1)
    some = {link: Share([1000], 1000, 0, draw.getrandbits(64)) for link in range(150)}
    moments = [moment for *_, moment in releases(some, (), CYCLE, START)]
    assert len(set(moments)) == 150
    assert max(b - a for a, b in pairwise(moments)) <= 3 * TICK


def test_small_items_of_a_link_do_not_wait_for_large_ones_of_another() -> None:
    """What is one large item elsewhere is hours of this link."""
    some = {"fine": Share([1] * 100, 100, 0, 1), "coarse": Share([100_000], 100_000, 0, 2)}
    fine = [moment for link, _, moment in releases(some, (), CYCLE, START) if link == "fine"]
    gaps = [b - a for a, b in pairwise(fine)]
    assert max(gaps) <= LENGTH / 100 + 2 * TICK
    assert fine[0] <= START + LENGTH / 50
    assert fine[-1] >= CYCLE.end - LENGTH / 50


def test_more_debt_than_half_an_item_is_worked_off_evenly() -> None:
    """After an outage too there is no burst."""
    share = Share([100] * 20, 2000, 1000, 1)
    moments = [moment for *_, moment in releases({"A": share}, (), CYCLE, START)]
    halves = sum(moment < START + LENGTH / 2 for moment in moments)
    assert 9 <= halves <= 11


def test_what_is_planned_late_goes_out_in_the_rest_of_the_cycle() -> None:
    now = START + 10 * MINUTE
    share = Share([100] * 10, 1000, 0, 1)
    moments = [moment for *_, moment in releases({"A": share}, (), CYCLE, now)]
    assert moments[0] >= now
    assert sum(moment < now + 2.5 * MINUTE for moment in moments) == 5


def test_where_there_is_no_time_for_all_calls_a_link_has_one() -> None:
    some = {link: Share([100] * 10, 1000, 0, link) for link in range(10)}
    moments = [(link, moment) for link, _, moment in releases(some, set(range(5)), CYCLE, START)]
    calls = [len({moment for other, moment in moments if other == link}) for link in range(10)]
    assert calls == [1] * 5 + [10] * 5


@pytest.mark.parametrize(
    ("links", "items", "calls"), [(1, 900, CALLS), (3, 90, 30), (24, 8, 3), (3000, 9, 3), (40, 3, 3)]
)
def test_items_share_calls_where_there_would_be_too_many(links: int, items: int, calls: int) -> None:
    """All links together have so many calls, and each three at least."""
    some = {link: Share([1] * items, items, 0, link) for link in range(links)}
    parts = release._parts(some, ())
    assert {len(groups) for groups in parts.values()} == {calls}
    moments = {moment for *_, moment in releases({0: some[0]}, (), CYCLE, START)}
    assert all((moment - START) % TICK == timedelta(0) for moment in moments)


def test_items_smaller_than_the_largest_share_calls() -> None:
    """Together they are no more than it."""
    parts = release._parts({"A": Share([10, 4, 3, 2, 1, 1], 21, 0, 1)}, ())
    assert [part.indices for part in parts["A"]] == [[0], [1, 2, 3, 4], [5]]


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=60), st.floats(0, 14.9))
@CALM
def test_what_is_late_is_released_on_a_straight_line(sizes: list[int], late: float) -> None:
    """From now to 2 % before the end, to within a tick and the item itself; never before now."""
    now = START + late * MINUTE
    times = release.release_times(sizes, CYCLE, now)
    assert times == sorted(times)
    span = max(CYCLE.end - LENGTH * MARGIN - now, timedelta(0))
    before = 0
    for size, moment in zip(sizes, times, strict=True):
        first, last = now + span * (before / sum(sizes)), now + span * ((before + size) / sum(sizes))
        assert max(now, first - TICK - MINUTE / 60000) <= moment <= max(now, last + MINUTE / 60000)
        before += size
