"""Second hops: which copies have landed, which of them have gone on, and which may not be deleted yet. Pure.

Through Rucio a dataset goes on whole. Through FTS each file goes on by itself: what failed in a job is not there,
and what failed in the second one goes on again with a later job, for as long as the first copy may stay.

1. In the menu (`then:`) a second hop becomes a flow of its own (`second` in `menu/second_hops.py`). Its goal is
   `SecondHop`, which is due its rate, but no more than has landed at its source and not gone on (`due` in
   `model/goals.py`; `measure_goals` in `engine/opening.py` adds up what has).
2. `second_hops` here matches first copies with second ones. `engine/second_hops.py` feeds it from the ledger:
   `landed` is the pool of a second hop, of copies whose end is not asked for and that live at least for the `min`
   of the second hop's lifetime (`may_go_on` in `planning/lifetime.py`).
3. The last check (`engine/preflight.py`) lets a second copy end before the first one, from which it is read, by
   the time between two observations (`_within`). Where less than that `min` would be left, it is not asked for: a
   dataset is set aside, a job left out (`_fit_job`), and the trouble is `pool-dry`. A dataset that landed counts
   as complete by its rule's locks, since Rucio's summary of replicas follows minutes later (`why_not`).
4. A run does not end (`_kept_for_second_hops` in `engine/reconciler.py`) what is in `bound` here: a first copy
   that may go on still while the second hop's window is open, or that is being read; and a complete second copy,
   for as long as its first one exists. Only what is being read outlives its lifetime, where ending is up to us.
5. So a first copy is planned to stay for its own completion, a cycle of waiting, and the second's completion
   (`until_ended` in `planning/lifetime.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from dc_inject.model import Bundle, Entry, File, Flow, FlowKey, Item, State, naming
from dc_inject.model.goals import SecondHop
from dc_inject.model.groups import grouped
from dc_inject.model.items import bundled, units_of
from dc_inject.planning.lifetime import may_go_on

_Place = tuple[str, str, str]  # scenario, where something landed, service


@dataclass(frozen=True, slots=True)
class WaitingCopy:
    """A first copy, the bytes of it that wait, and complete second ones with which a part has gone on already."""

    first: Entry
    bytes: int
    gone_on: tuple[Entry, ...] = ()

    def named(self, entries: Mapping[str, Entry]) -> WaitingCopy:
        """Return it with these entries, by their keys, instead, such as entries with the names of their files."""
        gone_on = tuple(entries[second.injection.key] for second in self.gone_on)
        return WaitingCopy(entries[self.first.injection.key], self.bytes, gone_on)


@dataclass(frozen=True, slots=True)
class Hops:
    """First copies and what second hops have made of them.

    `waiting` are, by second hop, complete first copies that have not gone on, or not with all of their files.
    `read` are the keys of first copies that a second copy is made from, or about to be; `gone_on` those of
    complete second copies: they stay until the first copy is ended, so that what exists shows what has gone on.
    """

    waiting: Mapping[FlowKey, Sequence[WaitingCopy]]
    read: AbstractSet[str]
    gone_on: AbstractSet[str]

    def bound(self, now: datetime, least: Mapping[FlowKey, timedelta]) -> set[str]:
        """Return the keys of what may not be ended yet.

        `least` are the hops with which anything goes on now, and how long what goes on has to live.
        """
        able = {
            waiting.first.injection.key
            for hop, shortest in least.items()
            for waiting in self.waiting.get(hop, ())
            if may_go_on(waiting.first, now, shortest)
        }
        return able | self.read | self.gone_on


def select_second_hops(flows: Iterable[Flow]) -> dict[FlowKey, Flow]:
    """Return the second hops among flows; of the same one in several menus, that which ends last."""
    onward = sorted((flow for flow in flows if isinstance(flow.goal, SecondHop)), key=lambda flow: flow.end)
    return {flow.key: flow for flow in onward}


def second_hops(entries: Iterable[Entry], hops: Collection[FlowKey]) -> Hops:
    """Match first copies with second ones; `entries` are all that are intended, called, live or complete.

    `hops` are all second hops that there are or were: what has gone on with one does not go on with another. The
    files need not be named: there may be millions.
    """
    onward = grouped(((hop.scenario, hop.link.source, hop.link.through), hop) for hop in hops)
    firsts: list[tuple[_Place, Entry]] = []
    seconds: dict[tuple[_Place, str], list[Entry]] = defaultdict(list)
    for entry in entries if hops else ():
        (scenario, (source, destination, through)), item = entry.injection.flow, entry.injection.item
        if entry.injection.flow in onward.get((scenario, source, through), ()):
            made_of = item.copied_by if isinstance(item, Bundle) else item.name
            seconds[(scenario, source, through), made_of].append(entry)
        elif entry.state is State.COMPLETE and (scenario, destination, through) in onward:
            firsts.append(((scenario, destination, through), entry))
    waiting: dict[FlowKey, list[WaitingCopy]] = {hop: [] for hop in hops}
    read: set[str] = set()
    bound_seconds: set[str] = set()
    for place, first in firsts:
        item = first.injection.item
        gone_on = seconds[place, first.injection.key if isinstance(item, Bundle) else item.name]
        bound_seconds |= {
            second.injection.key
            for second in gone_on
            if second.state is State.COMPLETE
            and (second.moved > 0 or not isinstance(second.injection.item, Bundle))
        }
        if any(second.state is not State.COMPLETE for second in gone_on):
            read.add(first.injection.key)  # all that waits goes on together
        elif size := _lacking(first, gone_on):
            for hop in onward[place]:
                waiting[hop].append(WaitingCopy(first, size, tuple(gone_on)))
    return Hops(waiting, read, bound_seconds)


def sum_not_gone_on(
    waiting: WaitingCopy, destination: str, unfit: AbstractSet[tuple[str, str]] = frozenset()
) -> Item | None:
    """Return what has not gone on, together; None when there is nothing.

    The files of its entries have to be named. Those that are `unfit` for a destination do not wait for it: they
    would fail there again. Of second ones of which it is not known what failed none goes on twice.
    """
    first = waiting.first
    item = first.injection.item
    if not isinstance(item, Bundle):
        return None if waiting.gone_on else item
    gone: set[str] = set()
    for second in waiting.gone_on:
        gone |= set(units_of(second.injection.item)) - set(second.undone)
    files = tuple(
        file for file in copies(first) if file.name not in gone and (file.name, destination) not in unfit
    )
    return replace(bundled(files, first.injection.key), label=item.label) if files else None


def copies(first: Entry) -> tuple[File, ...]:
    """Return the files of a complete job that have arrived, as they are at its destination."""
    names = {file.name for file in arrived(first)}
    return tuple(
        File(copy, member.bytes, member.checksum)
        for member, copy in zip(_members(first), naming.copies(first.injection), strict=False)
        if member.name in names
    )


def arrived(entry: Entry) -> tuple[File, ...]:
    """Return those source files of a complete job that have arrived.

    None of them where it is not known which ones failed, or (after a rebuild) which ones there were.
    """
    lost = set(entry.undone)
    members = tuple(member for member in _members(entry) if member.name not in lost)
    return members if sum(member.bytes for member in members) == entry.moved else ()


def _members(entry: Entry) -> tuple[File, ...]:
    item = entry.injection.item
    return item.members if isinstance(item, Bundle) else ()


def _lacking(first: Entry, gone_on: Sequence[Entry]) -> int:
    """Return how many bytes second copies lack of the first; 0 where those files are not known."""
    if not isinstance(first.injection.item, Bundle):
        return 0 if gone_on else first.injection.item.bytes
    if not first.injection.keeps_files or (first.failed and not first.undone):
        return 0
    gone = sum(second.moved if second.undone else second.injection.item.bytes for second in gone_on)
    return max(first.moved - gone, 0)
