"""The pool: which datasets may be injected, and which of them a link takes for its budget.

Taking is greedy in an order of preference. With `largest-first`: the largest of those of at most `preferred` bytes
first, then the smallest of the larger ones, so that traffic can be even. Sizes within 10 % count as equal and
are visited the longest unused first, of these in an order drawn from a seed, and those that leave the source now
at the end.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import translate
from functools import cached_property, lru_cache
from math import gcd
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from dc_inject.model import DatasetFilter, FileFilter, Item, Order
from dc_inject.model.items import LARGEST_DATASET

_NEVER = datetime.min.replace(tzinfo=UTC)
_Match = Callable[[str], object]
_WILDCARDS = frozenset("*?[")

# --------------------------------------------------------------------------- what is eligible


def matches(item: Item, datasets: DatasetFilter, *, in_container: bool = False) -> bool:
    """Whether an item passes a filter: by its name, its number of files and its mean file size.

    An item that a back end found in one of the filter's containers (`in_container`) needs no pattern that
    fits its name; exclusions and bounds hold for it as well. An item without files or bytes never passes, nor one
    with more bytes than a dataset can have.
    """
    if item.files <= 0 or not 0 < item.bytes <= LARGEST_DATASET:
        return False
    (fewest, most), (small, large) = datasets.files, datasets.mean_file
    if not fewest <= item.files <= most:
        return False
    # small <= bytes / files <= large, without rounding
    if not small * item.files <= item.bytes <= large * item.files:
        return False
    if _any(datasets.exclude, item.name):
        return False
    return in_container or _any(datasets.dids, item.name)


class Coverage:
    """Which entries of a filter match no dataset that a source has.

    `seen` counts the datasets of the source, `named` those that an entry or a container names.
    """

    def __init__(self, datasets: DatasetFilter) -> None:
        """Begin with all entries."""
        self.seen = self.named = 0
        self.in_containers: set[str] = set()  # names
        self._filter = datasets
        self._dids, self._exclude = _Entries(datasets.dids), _Entries(datasets.exclude)

    @property
    def dids(self) -> set[str]:
        """The entries of `dids` that match nothing so far."""
        return self._dids.left

    @property
    def exclude(self) -> set[str]:
        """The entries of `exclude` that match nothing so far."""
        return self._exclude.left

    def note(self, item: Item, *, in_container: bool) -> None:
        """Take out the entries that match a dataset, whatever its bounds."""
        self.seen += 1
        self._dids.note(item.name)
        self._exclude.note(item.name)
        if in_container:
            self.in_containers.add(item.name)
        self.named += in_container or _any(self._filter.dids, item.name)


class Unmatched(NamedTuple):
    """Entries of a filter that match no dataset of any of its sources."""

    datasets: frozenset[str]
    exclude: frozenset[str]


def unmatched(coverages: Sequence[Coverage]) -> Unmatched:
    """Return what the coverages of all sources of a filter, at least one, leave unmatched."""
    return Unmatched(
        frozenset(set.intersection(*(coverage.dids for coverage in coverages))),
        frozenset(set.intersection(*(coverage.exclude for coverage in coverages))),
    )


def is_pattern(entry: str) -> bool:
    """Whether an entry of a filter has wildcards, and does not just name one DID."""
    return not _WILDCARDS.isdisjoint(entry)


class _Entries:
    """Patterns that have matched nothing yet; a source can have many datasets, and a filter many names."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = {pattern: _compiled_one(pattern) for pattern in filter(is_pattern, patterns)}
        self._names = set(patterns) - set(self._patterns)

    @property
    def left(self) -> set[str]:
        return {*self._names, *self._patterns}

    def note(self, name: str) -> None:
        scope, rest = _parts(name)
        self._names -= {name, rest}
        matched = [
            pattern for pattern, (of_scope, of_name) in self._patterns.items() if of_scope(scope) and of_name(rest)
        ]
        for pattern in matched:
            del self._patterns[pattern]


def passes(file: Item, source: str, files: FileFilter) -> bool:
    """Whether a source file passes a filter: by its path below the source's prefix, and its size.

    Where `datasets` below `files` choose among datasets, what is asked here is a replica of one of them already.
    """
    smallest, largest = files.size
    path = file.name.removeprefix(f"{source}/")
    return smallest <= file.bytes <= largest and _glob(files.pattern)(path) is not None


@lru_cache(maxsize=1024)
def _glob(pattern: str) -> _Match:
    return re.compile(translate(pattern)).match


def _any(patterns: tuple[str, ...], name: str) -> bool:
    scope, rest = _parts(name)
    return any(in_scope(scope) and in_name(rest) for in_scope, in_name in _compiled(patterns))


def _parts(name: str) -> tuple[str, str]:
    """Return the scope and the name of a DID."""
    scope, colon, rest = name.partition(":")
    return (scope, rest) if colon else ("", name)


@lru_cache(maxsize=1024)
def _compiled(patterns: tuple[str, ...]) -> tuple[tuple[_Match, _Match], ...]:
    return tuple(map(_compiled_one, patterns))


def _compiled_one(pattern: str) -> tuple[_Match, _Match]:
    """Compile a `scope:name` pattern, each part by itself; without a colon it is one of the name."""
    scope, colon, name = pattern.partition(":")
    if not colon:
        scope, name = "*", pattern
    return re.compile(translate(scope)).match, re.compile(translate(name)).match


# --------------------------------------------------------------------------- what is taken


@dataclass(frozen=True, slots=True)
class SelectionPolicy:
    """How a link wants to choose: the order, the largest preferred size, and the seed of what is left to chance.

    `seed` comes from campaign, cycle and link: it is where a link begins among equals, so that links which
    share a source do not all want the same dataset.
    """

    order: Order
    preferred: int  # bytes: the largest of those up to here first, then the smallest of the others
    seed: int


def in_order(items: Iterable[Item]) -> list[Item]:
    """Return items as pools have them: by size, then by name; of what is so already a pool is made quickly."""
    ordered = sorted(items, key=attrgetter("bytes"))
    if len({item.bytes for item in ordered}) < len(ordered):
        ordered.sort(key=attrgetter("bytes", "name"))  # costs twice as much, and is seldom needed
    return ordered


class Pool:
    """The eligible items of a source, sorted once per cycle and shared by all links that choose from it."""

    def __init__(self, items: Iterable[Item], used: Mapping[str, datetime] = MappingProxyType({})) -> None:
        """Take the items in any order; the result does not depend on it. `used` is when some last went out."""
        self._items = in_order([item for item in items if item.bytes > 0])
        self._sizes = [item.bytes for item in self._items]
        self.bytes = sum(self._sizes)
        self.largest = max(self._sizes, default=0)
        self._named: dict[str, Item] = {}
        self._used = used
        self._by_use: dict[tuple[int, int], list[list[int]]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def count_taken(self, places: Mapping[str, Iterable[str]]) -> dict[str, tuple[int, int]]:
        """Return for each place how many of the pool's items it has, and their bytes.

        `places` are the places that have an item, by its name. One walk over the pool answers for all
        destinations, where one for each link would cost links x items.
        """
        taken: dict[str, tuple[int, int]] = {}
        for item in [item for item in self._items if item.name in places]:
            for place in places[item.name]:
                count, size = taken.get(place, (0, 0))
                taken[place] = count + 1, size + item.bytes
        return taken

    def among(self, taken: AbstractSet[str]) -> tuple[int, int]:
        """Return how many of the pool's items are taken, and their bytes."""
        sizes = [item.bytes for item in self._items if item.name in taken]
        return len(sizes), sum(sizes)

    @cached_property
    def finest(self) -> int:
        """The smallest mean file size of the items; 0 when there are none."""
        return min((item.bytes // item.files for item in self._items), default=0)

    def named(self, name: str) -> Item | None:
        """Return the item of this name."""
        if not self._named:
            self._named = {item.name: item for item in self._items}
        return self._named.get(name)

    def walk(self, seed: int, leaving: AbstractSet[str]) -> Iterator[Item]:
        """Yield all items once, in an order drawn from a seed; those that leave the source now at the end."""
        if self._items:
            yield from self._visit(0, len(self._items), seed, leaving)

    def smallest(self, taken: AbstractSet[str], chosen: AbstractSet[str] = frozenset()) -> Item | None:
        """Return the smallest item that is neither taken nor chosen; None when the pool is dry."""
        for item in self._items:
            if item.name not in taken and item.name not in chosen:
                return item
        return None

    def take(
        self,
        budget: int,
        slack: int,
        policy: SelectionPolicy,
        *,
        room: int | None = None,
        taken: AbstractSet[str] = frozenset(),
        leaving: AbstractSet[str] = frozenset(),
        over: bool = True,
    ) -> list[Item]:
        """Return the items to inject for a budget, in the order of preference; none that is in `taken`.

        Items are taken while their sum is below `budget` and with the next one at most budget + slack. When
        nothing fits any more, the smallest free item goes out if at least half of it is left of the budget.
        So what is left over is less than half of the smallest item that is still free, and what is too much at
        most slack or half of the last item; unless `over` is not wanted, then nothing is too much. Their sum never
        exceeds `room` (bytes; None: no such limit).
        """
        left = budget

        def fitting() -> int:
            most = min(left + slack, 2 * left)
            return most if room is None else min(most, room - (budget - left))

        fits = fitting()
        chosen: list[Item] = []
        if left <= 0:
            return chosen
        for low, high in self._classes(policy, fits):
            if self._sizes[low] > fits:
                continue
            for item in self._visit(low, high, policy.seed, leaving):
                if item.bytes > fits or item.name in taken:
                    continue
                chosen.append(item)
                left -= item.bytes
                fits = fitting()
                if left <= 0:
                    return chosen
        if not over:
            return chosen
        last = self.smallest(taken, {item.name for item in chosen})
        room_left = None if room is None else room - (budget - left)
        if last and last.bytes <= 2 * left and (room_left is None or last.bytes <= room_left):
            chosen.append(last)
        return chosen

    def _classes(self, policy: SelectionPolicy, fits: int) -> Iterator[tuple[int, int]]:
        """Yield slices of the items of at most `fits` bytes, each of about one size, the preferred first."""
        end = bisect_right(self._sizes, fits)
        if policy.order is Order.RANDOM:
            if end:
                yield 0, end
            return
        middle = (
            0 if policy.order is Order.SMALLEST_FIRST else min(end, bisect_right(self._sizes, policy.preferred))
        )
        high = middle
        while high > 0:
            top = self._sizes[high - 1]
            low = bisect_left(self._sizes, top - top // 10)
            yield low, high
            high = low
        low = middle
        while low < end:
            bottom = self._sizes[low]
            high = min(end, bisect_right(self._sizes, bottom + bottom // 10))
            yield low, high
            low = high

    def _visit(self, low: int, high: int, seed: int, leaving: AbstractSet[str]) -> Iterator[Item]:
        """Yield items[low:high] once each: the longest unused first, those that leave now at the end.

        Those that were last used in one cycle come in an order drawn from the seed: a walk with a step that has no
        divisor in common with the count visits everything once. It costs as much as is taken, where shuffling a
        pool for each link would cost as much as the pool holds.
        """
        later = []
        for places in self._unused_first(low, high):
            count = len(places)
            position, step = seed % count, (seed >> 64) % count or 1
            while gcd(step, count) != 1:
                step += 1
            for _ in range(count):
                item = self._items[places[position]]
                if item.name in leaving:
                    later.append(item)
                else:
                    yield item
                position = (position + step) % count
        yield from later

    def _unused_first(self, low: int, high: int) -> Sequence[Sequence[int]]:
        """Return the places of items[low:high] by their last use: never first, then the longest ago."""
        if not self._used:
            return [range(low, high)]
        places = self._by_use.get((low, high))
        if places is None:
            groups: dict[datetime, list[int]] = defaultdict(list)
            for place in range(low, high):
                groups[self._used.get(self._items[place].name, _NEVER)].append(place)
            places = self._by_use[low, high] = [groups[moment] for moment in sorted(groups)]
        return places
