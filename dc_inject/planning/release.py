"""The release inside a cycle: at which moment each rule or job goes out, so that bytes per minute stay flat. Pure.

Everything that a cycle injects is known when it is planned. Going out at once it would be a burst every 15
minutes, and at the pace of the calls a different one on each link. So each item gets a moment: the items of each
link are mixed with those of all others in proportion to their bytes (`interleave`), and the whole sequence is laid
out evenly over the rest of the cycle (`release_times`). Moments lie on a grid of `TICKS` per cycle, so that items
of one link with the same moment go out in one call.

What is late, after an outage say, is laid out anew over what is left of the cycle (`engine/submitting.py`, which
also waits for the moments). What has not gone out at the end of its cycle is withdrawn, and its debt remains.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from dc_inject.model import Cycle

MARGIN = 0.02  # of a cycle, at its end, in which nothing new is released
TICKS = 30  # moments of release in a cycle
LEAST_MOMENTS = 3  # of release that a link with so many items has in a cycle

_T = TypeVar("_T", bound=Hashable)


def releases(
    sizes: Mapping[_T, Sequence[int]], tie: Mapping[_T, int], at_once: Collection[_T], cycle: Cycle, now: datetime
) -> Iterator[tuple[_T, int, datetime]]:
    """Yield link, index and moment of release of all items of these bytes, in the order in which they go out.

    Items of a link that go out together share a call. So the more links there are, the fewer moments each has:
    three at least, but one for each link in `at_once`, where there is no time for all calls. `tie` orders what
    would go out at the same moment.
    """
    moments = max(LEAST_MOMENTS, TICKS // max(len(sizes), 1))
    parts = {link: parted(some, 1 if link in at_once else moments) for link, some in sizes.items()}
    together = {link: [sum(sizes[link][index] for index in part) for part in parts[link]] for link in sizes}
    places = interleave(together, tie)
    times = release_times([together[link][number] for link, number in places], cycle, now)
    for (link, number), moment in zip(places, times, strict=True):
        for index in parts[link][number]:
            yield link, index, moment


def interleave(sizes: Mapping[_T, Sequence[int]], tie: Mapping[_T, int]) -> list[tuple[_T, int]]:
    """Mix sequences evenly: return (sequence, index) sorted by how far into its own sequence each part lies.

    A part's place is u = (sum of the parts before it + half of it) / sum of its sequence; equal places are
    ordered by `tie`, which should be random, so that no sequence always comes first.
    """
    places = []
    for name, parts in sizes.items():
        total, before = sum(parts), 0
        for index, size in enumerate(parts):
            places.append(((2 * before + size) / (2 * total) if total else 0.5, tie[name], index, name))
            before += size
    places.sort(key=lambda place: place[:3])
    return [(name, index) for _, _, index, name in places]


def parted(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Return the indices of parts of these bytes, in order, in at most so many groups of about the same bytes."""
    if len(sizes) <= most:
        return [[index] for index in range(len(sizes))]
    total, before = sum(sizes), 0
    groups: dict[int, list[int]] = defaultdict(list)
    for index, size in enumerate(sizes):
        groups[most * (2 * before + size) // (2 * total) if total else 0].append(index)
        before += size
    return list(groups.values())


def release_times(sizes: Sequence[int], cycle: Cycle, now: datetime) -> list[datetime]:
    """Return moments for parts of these bytes, in order, so that bytes per minute are flat from now on.

    The cumulated bytes (to the middle of each part) over all bytes is the fraction of the time between now (or
    the cycle's start) and the cycle's end less `MARGIN`. Moments are rounded down to 1/`TICKS` of the
    cycle, and never lie before now.
    """
    begin = max(now, cycle.start)
    span = max(cycle.end - cycle.length * MARGIN - begin, timedelta(0))
    tick, total, before = cycle.length / TICKS, sum(sizes), 0
    times = []
    for size in sizes:
        exact = begin + span * ((2 * before + size) / (2 * total) if total else 0.5)
        times.append(max(cycle.start + (exact - cycle.start) // tick * tick, begin))
        before += size
    return times
