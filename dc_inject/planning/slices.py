"""Slices: parts of a dataset, as large as the budget, where whole datasets are too coarse for a link.

A budget is met to within half a file, by the mean size of a dataset's files: which bytes the chosen ones really
have is seen just before they go out, and the next cycle makes up for it. What is at a place is known by ranges of
files, so a slice keeps its parent and whatever overlaps with it from that place, and a parent all of its slices
(`blocked` in `model/items.py`).

`model/items.py` defines a slice, by its name and its range of files. Whole datasets come first; `cut` here
fills what is left of the budget (`_take_whole_and_cut` in `selection.py`). When it is intended, a slice becomes a
temporary dataset (`build_slice` in `model/naming.py`), which the last check weighs and `submit` makes
(`backends/rucio/slice_datasets.py`).

Nothing is cut for a volume, of which each dataset goes out once as a whole, nor through a service that has no
temporary datasets (`has_slices` in `model/services.py`): `_line` in `link_plan.py` decides that. Second hops have
no slices (`menu/second_hops.py`). Where Rucio refuses a slice, the link takes whole datasets for a while
(`no_slices` in `engine/context.py`).

A temporary dataset goes an hour after its rule was ended (`ended` in `slice_datasets.py`, `SLICE_AFTER` in
`lifetime.py`). If nothing deletes it, as when a rule expires by itself, its own lifetime ends it a day after its
rule's (`SLICE_LONGER`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from itertools import chain

from dc_inject.model import Item, Slice
from dc_inject.model.items import Range, SliceId
from dc_inject.planning.pool import Pool

MOST_FILES = 1000  # of one slice, which is made in one call
_TRIES = 50  # datasets that one line looks at in vain before it gives up


class TakenRanges:
    """What is taken of datasets at one place: whole ones, and ranges of the files of others."""

    def __init__(self, parts: Iterable[Range], whole: AbstractSet[str], taken: set[str]) -> None:
        """Take the ranges at the place, which of their parents are there as well, and all that is taken there.

        The last is shared with whoever takes whole datasets, and added to.
        """
        self._whole, self._taken = whole, taken
        self._ranges: dict[str, list[Range]] = defaultdict(list)
        for part in parts:
            self.add(part)

    def add(self, part: Range) -> None:
        """Let a range be taken, and with it its parent."""
        self._ranges[part.parent].append(part)
        self._taken.add(part.parent)

    @property
    def parents(self) -> Iterable[str]:
        """The datasets of which slices are taken, in the order of their names."""
        return sorted(self._ranges)

    def gaps(self, parent: Item) -> Iterator[tuple[int, int]]:
        """Yield the ranges of a dataset's files (first, last) that are free, in their order."""
        parts = self._ranges.get(parent.name, ())
        whole = parent.name in self._whole or (parent.name in self._taken and not parts)
        if whole or any(part.of != parent.files for part in parts):
            return
        following = 1
        for part in sorted(parts, key=lambda part: part.first):
            if following < part.first:
                yield following, part.first - 1
            following = max(following, part.last + 1)
        if following <= parent.files:
            yield following, parent.files

    def free_bytes(self, pool: Pool) -> int:
        """Return the bytes that are free of the datasets in a pool of which slices are taken."""
        begun = [item for name in self._ranges if (item := pool.named(name))]
        return sum(_bytes(item, last - first + 1) for item in begun for first, last in self.gaps(item))


def cut(
    pool: Pool, ranges: TakenRanges, *, left: int, room: int, at_most: int, seed: int, leaving: AbstractSet[str]
) -> list[Slice]:
    """Cut slices for `left` bytes, each of at most `at_most` bytes or one file, within `room`, and take them.

    Datasets that are cut at this place already come first, so that few are.
    """
    chosen: list[Slice] = []
    begun = [item for name in ranges.parents if (item := pool.named(name))]
    tries = _TRIES
    for parent in chain(begun, pool.walk(seed, leaving)):
        if 2 * left < pool.finest or tries == 0:
            break
        before = left
        for gap, last in list(ranges.gaps(parent)):
            first = gap
            while first <= last and (files := _files(parent, left, room, at_most)):  # a gap may make more than one
                part = Range(parent.name, first, min(first + files - 1, last), parent.files)
                item = Slice(SliceId(part), _bytes(parent, part.files))
                chosen.append(item)
                ranges.add(part)
                left, room, first = left - item.bytes, room - item.bytes, part.last + 1
        tries -= left == before
    return chosen


def _files(parent: Item, left: int, room: int, at_most: int) -> int:
    """Return how many files of a dataset come next: to within half a file of what is left."""
    mean = max(parent.bytes / parent.files, 1)
    wanted = int(left / mean + 0.5)
    return max(0, min(wanted, max(1, int(at_most / mean)), int(room / mean), MOST_FILES))


def _bytes(parent: Item, files: int) -> int:
    return parent.bytes * files // parent.files
