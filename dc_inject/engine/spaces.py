"""Spaces: how large the disk at a destination is for us, from what the service reports and what of ours is there.

A space is the sum of what is free and what is ours, both at one moment: that of the service's report, which may be
an hour old. If we found a space too large, we would fill the disk. So only those bytes count as ours that were
there for certain at that moment. Of each injection, that is the least that the observations around it show:

- the bytes that had arrived, as of the last observation before;
- of an injection that had ended by then, the bytes that the next observation found left. No service reports a
  deletion when it happens, and bytes that were deleted but still count as ours are free: they would count twice.

Without an observation, nothing counts. Later observations can only add bytes that were there for certain, so each
report is evaluated again in every cycle; and the least space of five cycles counts. Observations are kept for two
hours and stored in each round, so that a run from cron, which is a new process in each cycle, has them as well.

With a report that has no time, all bytes count that are ours now, and only once the report changes. `rooms.py`
decides how much of a space may be used; this module also decides at which destinations releases wait for room.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import ceil
from typing import Any

from dc_inject.ledger import Ledger
from dc_inject.model import Cycle, Entry, FlowKey, State
from dc_inject.model.groups import summed
from dc_inject.model.ports import Observation, Removal, RseFacts
from dc_inject.planning.limits import Destination
from dc_inject.planning.link_plan import with_overhead
from dc_inject.planning.situation import Situation

REMEMBERED = 5  # cycles of which the least space counts
KEPT = timedelta(hours=2)  # how long observations are kept: reports of free space may be that old
NEARLY = 0.8  # of a space: when so much is used, on its way or due, what goes out waits for room
OVERDUE = 2  # cycles after which a deletion that has not happened is not counted on
SPACES, LOOKS = "spaces", "looks"  # the signals that keep them


@dataclass(slots=True)
class Seen:
    """Observations of an injection at its destination: bytes by whole seconds since 1970."""

    ends: int | None = None  # when it ended, or will, at the earliest
    arrived: list[tuple[int, int]] = field(default_factory=list)
    left: list[tuple[int, int]] = field(default_factory=list)  # after its end

    def there(self, moment: float) -> int:
        """Return the bytes that were there at a moment for certain."""
        arrived = max((size for at, size in self.arrived if at <= moment), default=0)
        if self.ends is None or self.ends > moment:
            return arrived
        return min(next((left for at, left in self.left if at > moment), 0), arrived)


class Looks:
    """Observations of the bytes of injections, at destinations whose reports of free space have a time."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, Seen]] = {}  # by destination and key

    def follow(self, ledger: Ledger, names: Iterable[str], now: datetime) -> None:
        """Keep observations at these destinations from now on, and forget what was gone long ago."""
        if new := set(names) - self._seen.keys():
            stored = {signal.subject: json.loads(str(signal.value)) for signal in ledger.signals(LOOKS)}
            for name in new:
                seen = stored.get(name, {})
                self._seen[name] = {key: Seen(*fields) for key, fields in seen.items()}
        if not self._seen:
            return
        living = ledger.entries(State.LIVE, State.COMPLETE, State.ENDED)
        for entry in living:
            self._know(entry)
        living_keys, oldest = {entry.injection.key for entry in living}, (now - KEPT).timestamp()
        for name, seen in self._seen.items():
            self._seen[name] = {
                key: of_injection
                for key, of_injection in seen.items()
                if key in living_keys or (of_injection.left and of_injection.left[-1][0] >= oldest)
            }

    def observed(self, entries: Mapping[str, Entry], observations: Iterable[Observation], now: datetime) -> None:
        """Keep what had arrived by now."""
        if not self._seen:
            return
        for observation in observations:
            seen = self._of(entries[observation.key])
            if seen is not None and observation.moved:
                _add(seen.arrived, ceil(now.timestamp()), observation.moved)

    def removed(self, entries: Iterable[Entry], removals: Iterable[Removal], asked_at: datetime) -> None:
        """Keep what was left of entries at the time of asking, where the storage reports that."""
        left = {removal.key: 0 if removal.gone else removal.left for removal in removals}
        for entry in entries:
            size, seen = left.get(entry.injection.key), self._know(entry)
            if seen is not None and size is not None:
                seen.left.append((int(asked_at.timestamp()), size))

    def there(self, name: str, moment: datetime) -> int:
        """Return the bytes of ours that were at a destination at a moment for certain."""
        return sum(seen.there(moment.timestamp()) for seen in self._seen.get(name, {}).values())

    def write(self, ledger: Ledger, now: datetime) -> None:
        """Store the observations."""
        if not self._seen:
            return
        ledger.record_signals(
            (
                (LOOKS, name, json.dumps({key: (s.ends, s.arrived, s.left) for key, s in seen.items()}), "")
                for name, seen in self._seen.items()
            ),
            now,
        )

    def _of(self, entry: Entry) -> Seen | None:
        """Return the observations of an injection; None at a destination without them."""
        of_place = self._seen.get(entry.injection.link.destination)
        return None if of_place is None else of_place.setdefault(entry.injection.key, Seen())

    def _know(self, entry: Entry) -> Seen | None:
        """Take over from the ledger when an entry ended or will end, and what had arrived of it."""
        seen = self._of(entry)
        if seen is not None:
            ends = (entry.ended_at, entry.expires_at, entry.end_asked_at)
            seen.ends = min((int(end.timestamp()) for end in ends if end is not None), default=None)
            if entry.completed_at is not None:
                _add(seen.arrived, ceil(entry.completed_at.timestamp()), entry.moved)
        return seen


def _add(sizes: list[tuple[int, int]], at: int, size: int) -> None:
    if not sizes or size > sizes[-1][1]:
        sizes.append((at, size))


def least(
    ledger: Ledger,
    looks: Looks,
    cycle: Cycle,
    now: datetime,
    destinations: Mapping[str, Destination],
    facts: Mapping[tuple[str, str], RseFacts],
) -> dict[str, tuple[int, int | None]]:
    """Return the least space of each destination in the reports of the last cycles, and its age in seconds.

    Destinations whose space is not known are left out. The reports of now are stored.
    """
    granted = {name: place.space for name, place in destinations.items() if place.space is not None}
    reports: dict[str, list[RseFacts]] = {name: [] for name in granted}
    for (_, name), fact in facts.items():
        if name in reports and fact.free is not None:
            reports[name].append(fact)
    looks.follow(ledger, (name for name in reports if any(fact.free_at for fact in reports[name])), now)
    stored = {signal.subject: signal.value for signal in ledger.signals(SPACES)}
    ours, on_its_way = ledger.resident(), ledger.on_its_way()
    # what ended before it had arrived is in `ours` until it is known to be gone
    there_or_ended = ledger.entries(State.LIVE, State.COMPLETE, State.ENDED)
    arrived = summed((entry.injection.link.destination, entry.moved) for entry in there_or_ended)
    spaces: dict[str, tuple[int, int | None]] = {}
    with ledger.together():
        for name, space in granted.items():
            value = stored.get(name)
            before = {} if value is None else json.loads(str(value))
            memory = _remembered(before, cycle, now, space, reports[name], arrived[name])
            seen, at = memory["seen"], memory["at"]
            for when, free in memory["free"].items():
                seen[when] = max(free + looks.there(name, datetime.fromisoformat(at[when])), seen[when])
            ledger.signal(SPACES, name, json.dumps(memory), now)
            smallest = min(seen, key=lambda when: (seen[when], when))
            age = now - datetime.fromisoformat(at[smallest]) if smallest in at else None
            spaces[name] = seen[smallest], None if age is None else round(age.total_seconds())
            there = ours.get(name, 0) - on_its_way.get(name, 0)
            if space < min([seen[smallest], *((fact.free or 0) + there for fact in reports[name])]):
                spaces[name] = space, None  # the menu grants less
    return spaces


def _remembered(
    before: Mapping[str, Any], cycle: Cycle, now: datetime, space: int, facts: Sequence[RseFacts], arrived: int
) -> dict[str, Any]:
    """Return what to store of a destination's space: the reports of the last cycles, and the times they are of.

    `space` is what the menu grants, where nothing is reported. With a report without a time, `arrived` is what is
    ours; to those with a time, in `free`, what was ours at that time is still to be added. The latest report
    counts until another one comes: Rucio does not show when it got the same value again.
    """
    reports = sorted((fact.free or 0, fact.free_at or now, fact.free_at is not None) for fact in facts)
    name, frees = cycle.name, [free for free, _, _ in reports]
    oldest = Cycle(cycle.start - (REMEMBERED - 1) * cycle.length, cycle.length).name
    seen: dict[str, int] = before.get("seen", {})
    at: dict[str, str] = before.get("at", {})
    timed: dict[str, int] = before.get("free", {})
    if frees != before.get("told") or not frees or not seen or name in seen:
        if reports:
            free, moment, is_timed = reports[0]
            at = at | {name: moment.isoformat()}
            space = free if is_timed else free + arrived
            timed = timed | {name: free} if is_timed else timed
        seen = seen | {name: min(space, seen.get(name, space))}  # a cycle may be planned in several tries
    seen = {when: size for when, size in seen.items() if when >= oldest or when == max(seen)}
    return {
        "told": frees,
        "seen": seen,
        "at": {when: moment for when, moment in at.items() if when in seen},
        "free": {when: size for when, size in timed.items() if when in seen},
    }


def nearly_full(
    ledger: Ledger,
    situation: Situation,
    destinations: Mapping[str, Destination],
    deletions: Mapping[str, tuple[timedelta, int]],
) -> dict[str, Destination]:
    """Return destinations that are nearly full, or will be with what is due, with what goes there in the cycle."""
    dues: Counter[str] = Counter()
    stays: dict[FlowKey, timedelta] = {}
    for demand in situation.demands:
        flow = demand.flow
        dues[flow.link.destination] += with_overhead(demand.due, flow)
        if demand.completion is not None and flow.link.through in situation.may_end:
            stays[flow.key] = demand.completion + flow.dwell
    filling = {
        name: destination
        for name, destination in destinations.items()
        if destination.space is not None
        and destination.free is not None
        and destination.free - dues[name] <= (1 - NEARLY) * destination.space
    }
    lags = {
        name: max(deletions[name][0], destination.deletion_lag)
        for name, destination in filling.items()
        if name in deletions
    }
    going = _going(ledger, situation.cycle, lags, stays)
    return {name: replace(destination, going=going[name]) for name, destination in filling.items()}


def _going(
    ledger: Ledger, cycle: Cycle, lags: Mapping[str, timedelta], stays: Mapping[FlowKey, timedelta]
) -> Counter[str]:
    """Return our bytes at destinations that will be deleted by the end of a cycle, `lags` after their end.

    `stays` is how long the rules of flows stay that are ended early. Deletions that are long overdue do not count.
    """
    going: Counter[str] = Counter()
    for entry in ledger.entries(State.LIVE, State.COMPLETE, State.ENDED) if lags else ():
        injection, end = entry.injection, entry.ended_at or entry.expires_at
        lag = lags.get(injection.link.destination)
        if lag is None or end is None:
            continue
        if entry.ended_at is None and injection.flow in stays:
            end = min(end, injection.release + stays[injection.flow])
        if cycle.start - OVERDUE * cycle.length <= end + lag <= cycle.end:
            going[injection.link.destination] += injection.item.bytes
    return going
