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

_Place = tuple[str, str, str]  # scenario, where something landed, service


@dataclass(frozen=True, slots=True)
class Waiting:
    """A first copy, and what of it has not gone on: its dataset, or a bundle of those of its files."""

    first: Entry
    item: Item


@dataclass(frozen=True, slots=True)
class Hops:
    """What second hops make of what has landed.

    `waiting` are, by second hop, complete first copies that have not gone on, or not with all of their files.
    `read` are the keys of first copies that a second one is made of, or about to be; `kept` those of second ones
    that are complete: they stay until the first is ended, so that what has gone on is known by what exists.
    """

    waiting: Mapping[FlowKey, Sequence[Waiting]]
    read: AbstractSet[str]
    kept: AbstractSet[str]

    def bound(self, now: datetime, least: Mapping[FlowKey, timedelta]) -> set[str]:
        """Return the keys of what may not be ended yet.

        `least` are the hops with which anything goes on now, and how long what goes on has to live.
        """
        able = {
            one.first.injection.key
            for hop, lifetime in least.items()
            for one in self.waiting.get(hop, ())
            if may_go_on(one.first, now, lifetime)
        }
        return able | self.read | self.kept


def second_hops(
    entries: Iterable[Entry], hops: Collection[FlowKey], unfit: AbstractSet[tuple[str, str]] = frozenset()
) -> Hops:
    """Match first copies with second ones; `entries` are all that are intended, called, live or complete.

    `hops` are all second hops that there are or were: what has gone on with one does not go on with another. Files
    that are `unfit` for a destination do not wait for it: they would fail there again.
    """
    onward: dict[_Place, list[FlowKey]] = defaultdict(list)
    for hop in hops:
        onward[hop.scenario, hop.link.source, hop.link.through].append(hop)
    firsts: list[tuple[_Place, Entry]] = []
    seconds: dict[tuple[_Place, str], list[Entry]] = defaultdict(list)
    for entry in entries if hops else ():
        (scenario, (source, destination, through)) = entry.injection.flow
        if entry.injection.flow in onward.get((scenario, source, through), ()):
            seconds[(scenario, source, through), _made_of(entry)].append(entry)
        elif entry.state is State.COMPLETE and (scenario, destination, through) in onward:
            firsts.append(((scenario, destination, through), entry))
    waiting: dict[FlowKey, list[Waiting]] = {hop: [] for hop in hops}
    read: set[str] = set()
    kept: set[str] = set()
    for place, first in firsts:
        gone_on = seconds[place, first.injection.item.name if first.injection.job is None else first.injection.key]
        kept |= {one.injection.key for one in gone_on if one.state is State.COMPLETE and _anything(one)}
        if any(one.state is not State.COMPLETE for one in gone_on):
            read.add(first.injection.key)  # all that waits goes on together
            continue
        for hop in onward[place]:
            left = _left(first, gone_on, hop.link.destination, unfit)
            if left is not None:
                waiting[hop].append(Waiting(first, left))
    return Hops(waiting, read, kept)


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


def _made_of(second: Entry) -> str:
    """Return what a second copy is made of: a dataset, or the job with this key."""
    item = second.injection.item
    copy = naming.read_copy(second.injection.link.source, item.members[0].name) if item.members else None
    return copy.key if copy else item.name


def _anything(second: Entry) -> bool:
    """Whether anything of a complete second copy has arrived."""
    return second.injection.job is None or second.moved > 0


def _left(
    first: Entry, gone_on: Sequence[Entry], destination: str, unfit: AbstractSet[tuple[str, str]]
) -> Item | None:
    """Return what has not gone on, together and named as the first copy is; None when there is nothing.

    Of second ones of which it is not known what failed, all files have gone on: none goes on twice.
    """
    item = first.injection.item
    if first.injection.job is None:
        return None if gone_on else item
    gone: set[str] = set()
    for one in gone_on:
        gone |= {file.name for file in one.injection.item.members} - set(one.undone)
    left = tuple(file for file in copies(first) if file.name not in gone and (file.name, destination) not in unfit)
    return Item(item.name, sum(file.bytes for file in left), len(left), members=left) if left else None
