"""A simulated service with its own clock and executor, for `plan` and for dry runs.

It keeps Rucio's rules of the game: (item, destination) is unique, a submit is idempotent by key, a rule expires
by itself, and its bytes go with it. One that does not clean up keeps those of FTS: every copy has its own name,
nothing expires, and bytes stay until they are removed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dc_inject.model import (
    DatasetFilter,
    Entry,
    FileFilter,
    Injection,
    Item,
    Link,
    Slice,
    ports,
)
from dc_inject.model.errors import Permanent, TryOtherItem
from dc_inject.model.items import ItemId, SliceId
from dc_inject.model.services import DEFAULT, SERVICES
from dc_inject.planning import pool


class SimClock:
    """A clock that stands still until it is advanced."""

    def __init__(self, start: datetime) -> None:
        """Start at an aware instant."""
        self._now = start

    def now(self) -> datetime:
        """Return the simulated instant."""
        return self._now

    def advance(self, moment: datetime) -> None:
        """Move on to `moment`; never back."""
        self._now = max(self._now, moment)


class InlineExecutor:
    """Runs each task at once, in the caller's thread; waiting advances the simulated clock."""

    def __init__(self, clock: SimClock) -> None:
        """Take the clock that `wait` moves."""
        self._clock = clock
        self._finished: deque[ports.Finished] = deque()

    def submit(self, tag: Hashable, task: Callable[[], Any], lane: str = "") -> None:
        """Run the task now; its end is handed back by the next `wait`."""
        del lane
        try:
            done = ports.Finished(tag, task(), None)
        except Exception as error:  # noqa: BLE001  handed to the engine, which decides
            done = ports.Finished(tag, None, error)
        self._finished.append(done)

    def wait(self, until: datetime) -> list[ports.Finished]:
        """Hand back what has run; with nothing to hand back, let the time until `until` pass."""
        if not self._finished:
            self._clock.advance(until)
        finished = list(self._finished)
        self._finished.clear()
        return finished

    def wake(self) -> None:
        """Do nothing: simulated time does not pass."""


@dataclass
class _Rule:
    """A rule of the simulated service, and how far it got."""

    injection: Injection
    created: datetime
    expires: datetime
    moved: float = 0.0
    completed: datetime | None = None
    ended: datetime | None = None
    deleted: datetime | None = None


@dataclass
class SimBackend:
    """A service that moves bytes at once, for rules and jobs that exist only here."""

    clock: ports.Clock
    items: Mapping[str, Sequence[Item]]
    name: str = DEFAULT.name
    files: dict[ItemId, frozenset[int]] = field(default_factory=dict)  # of items that share some with others
    rules: dict[str, _Rule] = field(default_factory=dict)
    _there: dict[tuple[ItemId, str], _Rule] = field(default_factory=dict)  # not deleted, by item and destination
    _cut: bool = False  # whether any slice was accepted

    def __post_init__(self) -> None:
        """Index the items by source and name, and take over what the service can do whose name it has."""
        self._cleans_up = SERVICES[self.name].cleans_up
        self._named = {source: {item.name: item for item in items} for source, items in self.items.items()}

    def check(self) -> ports.Identity:
        """Return who we are: the simulated account."""
        return ports.Identity(self.name, "sim://", "1", "def", "sim", admin=False, may_end=True)

    def resolve(self, expression: str) -> tuple[str, ...]:
        """Only plain names and `*` mean anything here."""
        if expression == "*":
            return tuple(sorted(self.items))
        raise Permanent(f"the simulated service knows no RSE expression {expression!r}")

    def inventory(
        self, source: str, datasets: DatasetFilter | FileFilter, note: ports.Note | None = None
    ) -> Iterator[Item]:
        """Stream the items of the source that pass the filter."""
        items = self.items.get(source, ())
        if isinstance(datasets, FileFilter):
            return (item for item in items if pool.passes(item, source, datasets))
        if note is not None:
            for item in items:
                note(item, in_container=False)
        return (item for item in items if pool.matches(item, datasets))

    def check_replicas(
        self, candidates: Sequence[ports.Candidate]
    ) -> Mapping[ports.Candidate, ports.ReplicaStatus]:
        """Return which candidates are whole at the source and which are at the destination."""
        self._advance()
        return {candidate: self._replica_status(candidate) for candidate in candidates}

    def submit(self, injections: Sequence[Injection]) -> list[ports.Outcome]:
        """Accept each injection unless its (item, destination) is taken; the same key is adopted."""
        self._advance()
        return [self._accept(injection) for injection in injections]

    def observe(self, entries: Sequence[Entry], *, exact: bool = False) -> list[ports.Observation]:
        """Return how far each rule got; everything here is exact."""
        del exact
        self._advance()
        return [self._observation(entry) for entry in entries]

    def end(self, entries: Sequence[Entry]) -> list[ports.Outcome]:
        """End rules; one that is gone is a success."""
        self._advance()
        for entry in entries:
            rule = self.rules.get(entry.injection.key)
            if rule is not None and rule.ended is None:
                rule.ended = self.clock.now()
        return [ports.Outcome(entry.injection.key, entry.external_id) for entry in entries]

    def remove(self, entries: Sequence[Entry]) -> list[ports.Removal]:
        """Return whose bytes are gone; where the service does not clean up, they go now."""
        self._advance()
        for entry in entries:
            rule = self.rules.get(entry.injection.key)
            if not self._cleans_up and rule is not None and rule.ended is not None and rule.deleted is None:
                rule.deleted = self.clock.now()
                del self._there[self._place(entry.injection)]
        left = {entry.injection.key: self._there.get(self._place(entry.injection)) for entry in entries}
        return [
            ports.Removal(key, gone=rule is None, left=int(rule.moved) if rule else 0)
            for key, rule in left.items()
        ]

    def sites(self, rses: Iterable[str]) -> Mapping[str, ports.RseFacts]:
        """Return that every RSE can be used, without any limit."""
        return {name: ports.RseFacts(name, readable=True, writable=True, deletable=True) for name in rses}

    def endpoints(self, rse: str) -> list[ports.Endpoint]:
        """Return nothing: a simulated storage is served nowhere."""
        del rse
        return []

    def queues(self, links: Sequence[Link]) -> Mapping[Link, ports.LinkQueue | ports.Missing]:
        """Return nothing: nothing ever waits."""
        del links
        return {}

    def _accept(self, injection: Injection) -> ports.Outcome:
        rule = self.rules.get(injection.key)
        if rule is not None:
            return ports.Outcome(injection.key, f"sim-{injection.key}", adopted=True)
        pair = self._place(injection)
        if pair in self._there or self._overlapping(*pair):
            return ports.Outcome(injection.key, error=TryOtherItem(f"{pair[0]} is at {pair[1]} already"))
        now = self.clock.now()
        self._cut = self._cut or isinstance(injection.item, Slice)
        self.rules[injection.key] = self._there[pair] = _Rule(injection, now, now + injection.lifetime)
        return ports.Outcome(injection.key, f"sim-{injection.key}")

    def _overlapping(self, item: ItemId, destination: str) -> list[_Rule]:
        """Return the rules at a destination that have files of a slice, or of a parent of slices."""
        part = item.range if isinstance(item, SliceId) else None
        overlapping = []
        for (other, place), rule in self._there.items() if part or self._cut else ():
            there = other.range if isinstance(other, SliceId) else None
            if place == destination and (part.parent if part else item) == (there.parent if there else other):
                overlapping += [rule] if part is None or there is None or part.overlaps(there) else []
        return overlapping

    def _place(self, injection: Injection) -> tuple[ItemId, str]:
        """Return what can be at a destination once only: an item, or the copies of one injection."""
        return (injection.item.id if self._cleans_up else injection.key, injection.link.destination)

    def _replica_status(self, candidate: ports.Candidate) -> ports.ReplicaStatus:
        wanted, until = candidate.item, None
        item = None if isinstance(wanted, SliceId) else self._named.get(candidate.link.source, {}).get(wanted)
        first = self._there.get((candidate.item, candidate.link.source))
        if item is None and first is not None and first.completed is not None and first.ended is None:
            item, until = first.injection.item, first.expires  # a copy that was made here
        rule = self._there.get((candidate.item, candidate.link.destination))
        if isinstance(wanted, SliceId):
            files = wanted.range
            parent = self._named.get(candidate.link.source, {}).get(files.parent)
            if parent is not None and parent.files == files.of:
                item = Slice(wanted, parent.bytes * files.files // parent.files)
            rule = next(iter(self._overlapping(wanted, candidate.link.destination)), None)
        return ports.ReplicaStatus(
            item=item,
            closed=True,
            source_complete=item is not None,
            source_locked=item is not None,
            source_until=until,
            destination_bytes=int(rule.moved) if rule else 0,
            destination_locked=rule is not None and rule.ended is None,
            destination_busy=self.is_busy(candidate),
            files=self.files.get(wanted, frozenset()),
        )

    def is_busy(self, candidate: ports.Candidate) -> bool:
        """Whether the destination has files of a candidate by rules of other items."""
        files, destination = self.files.get(candidate.item, frozenset()), candidate.link.destination
        others = (self.files.get(item, frozenset()) for item, place in self._there if place == destination)
        return bool(files) and not all(files.isdisjoint(other) for other in others)

    def _observation(self, entry: Entry) -> ports.Observation:
        key, item = entry.injection.key, entry.injection.item
        rule = self.rules.get(key)
        if rule is None or (rule.ended is not None and self._cleans_up):
            return ports.Observation(key, ports.Status.ABSENT)
        done = rule.completed is not None
        whole = ports.Status.COMPLETE if done else ports.Status.MOVING
        return ports.Observation(
            key,
            ports.Status.ABSENT if rule.ended else whole,
            f"sim-{key}",
            files_done=item.files if done else 0,
            moved=item.bytes if done else 0,
            exact=True,
            expires_at=rule.expires,
        )

    def _advance(self) -> None:
        """Complete, end and delete what has had its time since the last look."""
        now = self.clock.now()
        for pair, rule in tuple(self._there.items()):
            if rule.ended is None and rule.completed is None and rule.created < now:
                rule.moved, rule.completed = rule.injection.item.bytes, now
            if self._cleans_up and rule.ended is None and rule.expires <= now:
                rule.ended = rule.expires
            if self._cleans_up and rule.ended is not None:
                rule.deleted = rule.ended
                del self._there[pair]
