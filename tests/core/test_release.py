"""Releases are flat: every link is given its bytes evenly, and so are all together."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject.planning import release
from tests.core.builders import CYCLE, LENGTH, START

MINUTE = timedelta(minutes=1)
CALM = settings(deadline=None, derandomize=True)


@given(
    st.dictionaries(st.integers(0, 20), st.lists(st.integers(1, 1000), min_size=1, max_size=8), min_size=1),
    st.integers(0, 2**32),
)
@CALM
def test_sequences_are_mixed_in_proportion(sizes: dict[int, list[int]], seed: int) -> None:
    """At any point every sequence has had the same part of its bytes, to within one of its parts."""
    places = release.interleave(sizes, {name: (name * 7919 + seed) % 101 for name in sizes})
    assert sorted(places) == sorted((name, i) for name, parts in sizes.items() for i in range(len(parts)))
    before = dict.fromkeys(sizes, 0)
    last = 0.0
    for name, index in places:
        u = (before[name] + sizes[name][index] / 2) / sum(sizes[name])
        assert u >= last - 1e-9
        last, before[name] = u, before[name] + sizes[name][index]


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=60), st.floats(0, 14.9))
@CALM
def test_bytes_are_released_on_a_straight_line(sizes: list[int], late: float) -> None:
    """From now to 2 % before the end, to within a tick and the part itself; never before now."""
    now = START + late * MINUTE
    times = release.release_times(sizes, CYCLE, now)
    assert times == sorted(times)
    end = CYCLE.end - LENGTH * 0.02
    span = max(end - now, timedelta(0))
    before = 0
    for size, moment in zip(sizes, times, strict=True):
        first, last = now + span * (before / sum(sizes)), now + span * ((before + size) / sum(sizes))
        assert max(now, first - LENGTH / 30 - MINUTE / 60000) <= moment <= max(now, last + MINUTE / 60000)
        before += size


def test_releases_lie_on_thirty_ticks() -> None:
    """So that items of one link can go out in one call."""
    times = release.release_times([1] * 300, CYCLE, START)
    assert {(moment - START) % (LENGTH / 30) for moment in times} == {timedelta(0)}
    assert len(set(times)) == 30
    assert all(10 <= times.count(moment) <= 11 for moment in sorted(set(times))[:-1])
