"""Second hops: which copies have landed, which of them have gone on, and which may not be deleted yet. Pure.

Through Rucio a dataset goes on whole. Through FTS each file goes on by itself: what failed in a job is not there,
and what failed in the second one goes on again with a later job, for as long as the first copy may stay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta

from dc_inject import naming
from dc_inject.model import Entry, FlowKey, Item, State


@dataclass(frozen=True, slots=True)
class Waiting:
    """A first copy, and what of it has not gone on: its dataset, or a bundle of those of its files."""

    first: Entry
    item: Item


@dataclass(frozen=True, slots=True)
class Hops:
    """What second hops make of what has landed.

    `waiting` are, by second hop, complete first copies that have not gone on, or not with all of their files.
    `bound` are the keys of entries that may not be ended yet: first copies until the second ones are complete, and
    those then until the first is ended, so that what has gone on is known by what exists.
    """

    waiting: Mapping[FlowKey, Sequence[Waiting]]
    bound: AbstractSet[str]


def second_hops(
    entries: Iterable[Entry], hops: Collection[FlowKey], unfit: AbstractSet[tuple[str, str]] = frozenset()
) -> Hops:
    """Match first copies with second ones; `entries` are all that are intended, called, live or complete.

    Files that are `unfit` for a destination do not wait: they would fail there again.
    """
    known = list(entries) if hops else []
    landed: dict[tuple[str, str, str], list[Entry]] = defaultdict(list)
    carriers: dict[FlowKey, dict[str, Entry]] = {key: {} for key in hops}
    for entry in known:
        flow = entry.injection.flow
        if flow in carriers:
            whole = entry.injection.item
            names = arrived(entry) if entry.state is State.COMPLETE else whole.members or (whole,)
            carriers[flow] |= {item.name: entry for item in names}
        elif entry.state is State.COMPLETE:
            landed[flow.scenario, flow.link.destination, flow.link.through].append(entry)
    waiting: dict[FlowKey, list[Waiting]] = {}
    bound: set[str] = set()
    for hop, gone_on in carriers.items():
        waiting[hop] = []
        for first in landed[hop.scenario, hop.link.source, hop.link.through]:
            left = []
            for item in copies(first):
                second = gone_on.get(item.name)
                if second is None and (item.name, hop.link.destination) in unfit and first.injection.job:
                    continue
                if second is None:
                    left.append(item)
                there = second is not None and second.state is State.COMPLETE
                bound.add(second.injection.key if second is not None and there else first.injection.key)
            if left:
                waiting[hop].append(Waiting(first, _whole(first, left)))
    return Hops(waiting, bound)


def may_go_on(entry: Entry, now: datetime, least: timedelta) -> bool:
    """Whether a first copy lives long enough for a second hop that lives `least`, and reads from it."""
    return entry.end_asked_at is None and (entry.expires_at is None or entry.expires_at >= now + least)


def copies(first: Entry) -> tuple[Item, ...]:
    """Return what of a complete injection is at its destination: its dataset, or the files that have arrived."""
    injection = first.injection
    if injection.job is None:
        return (injection.item,)
    there = {item.name for item in arrived(first)}
    return tuple(
        Item(copy, member.bytes, 1, member.checksum)
        for member, copy in zip(injection.item.members, naming.copies(injection), strict=False)
        if member.name in there
    )


def arrived(entry: Entry) -> tuple[Item, ...]:
    """Return the dataset of a complete injection, or those of its source files that have arrived.

    None of the files where it is not known which ones failed, or (after a rebuild) which ones there were.
    """
    injection = entry.injection
    if injection.job is None:
        return (injection.item,)
    lost = set(entry.undone)
    there = tuple(member for member in injection.item.members if member.name not in lost)
    return there if sum(member.bytes for member in there) == entry.moved else ()


def first_of(item: Item, source: str) -> str:
    """Return the key of the injection whose copies a bundle of a second hop is made of."""
    copy = naming.read_copy(source, item.members[0].name)
    assert copy is not None, "only copies of ours go on"
    return copy.key


def _whole(first: Entry, left: Sequence[Item]) -> Item:
    """Return what goes on together, named as the first copy is."""
    item = first.injection.item
    if first.injection.job is None:
        return item
    return Item(item.name, sum(file.bytes for file in left), len(left), members=tuple(left))
