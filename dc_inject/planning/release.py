"""The release inside a cycle: at which moment each rule or job goes out, so that traffic is even. Pure.

Everything that a cycle injects is known when it is planned. Going out at once it would be a burst every 15
minutes. So each item waits for its moment: when half of it is due. With the debt c that a link carries into the
cycle and the budget W that it may have at its end, a straight line is what it should have been given by when,
as a fraction t of the cycle:

    T(t) = c + (W - c) t          c at most half of its largest item; more debt is worked off evenly

An item of s bytes after b others is due at T = b + s / 2, and may go out while T lies between b + s - L and b + L,
with L the largest item of the link: then what is injected is never more than L away from the line. So any time in
which ten of L are due sees at most twelve.

This leaves room to keep all links together even: those with one dataset a cycle would otherwise all go out in
its middle. The items of all links are sorted by when they are due and laid out so that the sum of bytes is a
straight line too; an item for which that line is too far from its own time is moved back into it.

Calls cost time, so small items that follow each other go out together up to L, and moments lie on a grid. Where
that would be more than `CALLS` for all links together, each link has its part of them (`LEAST_MOMENTS` at least).
What goes out together goes out when half of it is due: so a link strays by no more than L while that is at most
2 L. A link for which it is more has more calls, if all such links take few on top (`EXTRA_CALLS`). A link in
`at_once`, where there is no time for all calls, has one.

What is late, as after an outage, is spread again over the rest of the cycle (`engine/submitting.py`, which
also waits for the moments). What has not gone out at the end of its cycle is withdrawn, and its debt remains.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from dc_inject.model import Cycle

MARGIN = 0.02  # of a cycle, at its end, in which nothing is released that may go out before
TICKS = 300  # moments of release in a cycle
CALLS = 90  # in a cycle, of all links together: half a call for each rule costs as much as observing it
LEAST_MOMENTS = 3  # of release that a link with so many items has in a cycle
EXTRA_CALLS = 0.25  # more calls at most, for links that would stray by more than their largest item

_T = TypeVar("_T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Share:
    """What a link is given in a cycle, in bytes: its items in their order, its budget, and the debt it carried in.

    `tie` orders what is due at the same moment; it should be random, so that no link always comes first.
    """

    sizes: Sequence[int]
    budget: int
    carried: int
    tie: int


@dataclass(frozen=True, slots=True)
class _Part:
    """Items of a link that go out together: when they are due, at the earliest, at the latest, from 0 to 1."""

    indices: Sequence[int]
    bytes: int
    due: float
    earliest: float = 0.0
    latest: float = 1.0


def releases(
    shares: Mapping[_T, Share], at_once: Collection[_T], cycle: Cycle, now: datetime
) -> Iterator[tuple[_T, int, datetime]]:
    """Yield link, index and moment of release of all items, in the order in which they go out."""
    begin = max(now, cycle.start)
    parts = _parts(shares, at_once)
    placed = [
        (part.due, share.tie, number, link, part)
        for link, share in shares.items()
        for number, part in enumerate(parts[link])
    ]
    placed.sort(key=lambda placing: placing[:3])
    times = _laid_out([part for *_, part in placed], begin, cycle)
    moments = sorted(zip(times, range(len(placed)), strict=True))
    for moment, place in moments:
        *_, link, part = placed[place]
        for index in part.indices:
            yield link, index, moment


def _laid_out(parts: Sequence[_Part], begin: datetime, cycle: Cycle) -> list[datetime]:
    """Return a moment for each part, in the order in which they are due: even in sum, and each in its own time."""
    tick, length = cycle.length / TICKS, cycle.end - begin
    last = cycle.end - tick
    times = []
    for part, moment in zip(parts, _straight([part.bytes for part in parts], begin, cycle), strict=True):
        own = min(max(moment, begin + part.earliest * length), begin + part.latest * length)
        nearest = cycle.start + (own - cycle.start + tick / 2) // tick * tick
        times.append(max(min(nearest, last), begin))
    return times


def _straight(sizes: Sequence[int], begin: datetime, cycle: Cycle) -> list[datetime]:
    """Return moments from `begin` on for parts of these bytes, so that their sum is a straight line."""
    span = max(cycle.end - cycle.length * MARGIN - begin, timedelta(0))
    total, before = sum(sizes), 0
    times = []
    for size in sizes:
        times.append(begin + span * ((2 * before + size) / (2 * total) if total else 0.5))
        before += size
    return times


def release_times(sizes: Sequence[int], cycle: Cycle, now: datetime) -> list[datetime]:
    """Return moments for items of these bytes, in order, so that bytes per minute are flat from now on.

    They lie on the grid, and never before now.
    """
    begin, tick = max(now, cycle.start), cycle.length / TICKS
    times = _straight(sizes, begin, cycle)
    return [max(cycle.start + (moment - cycle.start) // tick * tick, begin) for moment in times]


# --------------------------------------------------------------------------- what goes out together


def _parts(shares: Mapping[_T, Share], at_once: Collection[_T]) -> dict[_T, list[_Part]]:
    """Return the parts of each link: items up to its largest, or fewer where that would be too many calls."""
    groups = {link: _grouped(share.sizes, _largest(share)) for link, share in shares.items()}
    calls = sum(len(indices) for link, indices in groups.items() if link not in at_once)
    for link, share in shares.items():
        most = 1 if link in at_once else max(len(groups[link]) * CALLS // max(calls, CALLS), LEAST_MOMENTS)
        if len(groups[link]) > most:
            groups[link] = _divided(share.sizes, most)
    groups |= _nearer(shares, {link: indices for link, indices in groups.items() if link not in at_once})
    return {link: list(_placed(shares[link], groups[link], free=link in at_once)) for link in shares}


def _nearer(shares: Mapping[_T, Share], groups: Mapping[_T, list[list[int]]]) -> dict[_T, list[list[int]]]:
    """Return finer groups for links that would stray by more than their largest item, if that costs few calls.

    A group goes out when half of it is due, so a link strays by half of its largest group.
    """
    most = {link: 2 * _largest(shares[link]) for link in groups}
    nearer = {
        link: _grouped(shares[link].sizes, most[link])
        for link, indices in groups.items()
        if any(sum(shares[link].sizes[index] for index in group) > most[link] for group in indices)
    }
    more = sum(max(len(nearer[link]) - len(groups[link]), 0) for link in nearer)
    affordable = more <= EXTRA_CALLS * sum(map(len, groups.values()))
    return {link: finer for link, finer in nearer.items() if affordable or len(finer) <= len(groups[link])}


def _largest(share: Share) -> int:
    return max(share.sizes, default=0)


def _divided(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Return the indices of items in order, in at most so many groups of about the same bytes."""
    total, before = sum(sizes), 0
    groups: dict[int, list[int]] = defaultdict(list)
    for index, size in enumerate(sizes):
        groups[most * (2 * before + size) // (2 * total) if total else 0].append(index)
        before += size
    return list(groups.values())


def _grouped(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Return the indices of items that follow each other in groups of at most so many bytes."""
    groups: list[list[int]] = []
    full = 0
    for index, size in enumerate(sizes):
        if not groups or full + size > most:
            groups.append([])
            full = 0
        groups[-1].append(index)
        full += size
    return groups


def _placed(share: Share, groups: Sequence[Sequence[int]], *, free: bool) -> Iterator[_Part]:
    """Yield the parts of a link with the times at which they are due; a `free` one may go out at any time."""
    sizes = [sum(share.sizes[index] for index in group) for group in groups]
    largest = _largest(share)
    owed = min(share.carried, largest // 2)
    slope = share.budget - owed  # bytes in a whole cycle
    before = 0

    def time(given: float) -> float:
        return min(max((given - owed) / slope, 0.0), 1.0)

    for group, size in zip(groups, sizes, strict=True):
        if free or slope <= 0:
            yield _Part(group, size, 0.5 if free else 0.0)
        else:
            astray = max(largest - slope / TICKS, size / 2)  # the grid adds to it
            times = time(before + size / 2), time(before + size - astray), time(before + astray)
            yield _Part(group, size, *times)
        before += size
