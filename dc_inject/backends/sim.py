"""A simulated service with its own clock and executor: for tests, for `plan`, and for dry runs.

It keeps Rucio's rules of the game: (item, destination) is unique, a submit is idempotent by key, a rule
expires by itself, bytes stay for the deletion lag after it. One that does not clean up keeps those of FTS: every
copy has its own name, nothing expires, and bytes stay until they are removed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from dc_inject.model import (
    Bundle,
    DatasetFilter,
    Entry,
    File,
    FileFilter,
    Injection,
    Item,
    Link,
    Slice,
    ports,
    units,
)
from dc_inject.model.errors import Permanent, TryOtherItem
from dc_inject.model.items import ItemId, SliceId
from dc_inject.model.services import DEFAULT, SERVICES
from dc_inject.planning import pool


class SimClock:
    """A clock that stands still until somebody advances it."""

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
        """Do nothing: nobody ever sleeps here."""

    @property
    def busy(self) -> int:
        """How many tasks have run and were not yet handed back."""
        return len(self._finished)


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
    """A service that moves bytes by arithmetic, at `speed` bytes per second a link, first come first served.

    `fault(method, subject)` is asked before every call and may raise a ServiceError; `answer` after it, when
    the call was carried out: raising there loses the answer.
    """

    clock: ports.Clock
    items: Mapping[str, Sequence[Item]]
    speed: Callable[[Link], float] = lambda _link: 1e15
    deletion_lag: timedelta = timedelta(0)
    summary_lag: timedelta = timedelta(
        0
    )  # after which the summary of a copy that was made here says that it is whole
    space: Mapping[str, int] = field(default_factory=dict)
    quota: Mapping[str, int] = field(default_factory=dict)
    served_at: Mapping[str, Sequence[ports.Endpoint]] = field(default_factory=dict)
    queued: Mapping[Link, ports.LinkQueue | ports.Missing] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)
    unwritable: set[str] = field(default_factory=set)
    undeleting: set[str] = field(default_factory=set)
    may_end: bool | None = True
    fault: Callable[[str, object], None] = lambda _method, _subject: None
    answer: Callable[[str, object], None] = lambda _method, _subject: None
    name: str = DEFAULT.name
    failing: Callable[[File], bool] = lambda _file: False  # which files of a bundle fail
    tells_unfit: bool = False  # whether those are said to fail again
    files: dict[ItemId, frozenset[int]] = field(default_factory=dict)  # of items that share some with others
    rules: dict[str, _Rule] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    _there: dict[tuple[ItemId, str], _Rule] = field(
        default_factory=dict
    )  # what is not deleted, by item, destination
    _seen: datetime | None = None
    _cut: bool = False  # whether any slice was accepted

    def __post_init__(self) -> None:
        """Index the items by source and name, and take over what the service can do whose name it has."""
        self._cleans_up = SERVICES[self.name].cleans_up
        self._named = {source: {item.name: item for item in items} for source, items in self.items.items()}

    def check(self) -> ports.Identity:
        """Return who we are: the simulated account."""
        self._call("check", None)
        return ports.Identity(self.name, "sim://", "1", "def", "sim", admin=False, may_end=self.may_end)

    def resolve(self, expression: str) -> tuple[str, ...]:
        """Only plain names and `*` mean anything here."""
        self._call("resolve", expression)
        if expression == "*":
            return tuple(sorted(self.items))
        raise Permanent(f"the simulated service knows no RSE expression {expression!r}")

    def inventory(
        self, source: str, datasets: DatasetFilter | FileFilter, note: ports.Note | None = None
    ) -> Iterator[Item]:
        """Stream the items of the source that pass the filter."""
        self._call("inventory", source)
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
        """Say which candidates are whole at the source and which are at the destination."""
        self._call("check_replicas", candidates)
        self._advance()
        return {candidate: self._replica_status(candidate) for candidate in candidates}

    def submit(self, injections: Sequence[Injection]) -> list[ports.Outcome]:
        """Accept each injection unless its (item, destination) is taken; the same key is adopted."""
        self._call("submit", injections)
        self._advance()
        outcomes = [self._accept(injection) for injection in injections]
        self.answer("submit", injections)
        return outcomes

    def observe(self, entries: Sequence[Entry], *, exact: bool = False) -> list[ports.Observation]:
        """Return how far each rule got; everything here is exact."""
        del exact
        self._call("observe", entries)
        self._advance()
        return [self._observation(entry) for entry in entries]

    def end(self, entries: Sequence[Entry]) -> list[ports.Outcome]:
        """End rules; one that is gone is a success."""
        self._call("end", entries)
        self._advance()
        for entry in entries:
            rule = self.rules.get(entry.injection.key)
            if self.may_end is False:
                denied = Permanent("the account may not end rules")
                return [ports.Outcome(entry.injection.key, error=denied) for entry in entries]
            if rule is not None and rule.ended is None:
                rule.ended = self.clock.now()
        self.answer("end", entries)
        return [ports.Outcome(entry.injection.key, entry.external_id) for entry in entries]

    def remove(self, entries: Sequence[Entry]) -> list[ports.Removal]:
        """Return whose bytes are gone; where the service does not clean up, they go now."""
        self._call("remove", entries)
        self._advance()
        for entry in entries:
            rule = self.rules.get(entry.injection.key)
            if not self._cleans_up and rule is not None and rule.ended is not None and rule.deleted is None:
                rule.deleted = self.clock.now()
                del self._there[self._place(entry.injection)]
        self.answer("remove", entries)
        left = {entry.injection.key: self._there.get(self._place(entry.injection)) for entry in entries}
        return [
            ports.Removal(key, gone=rule is None, left=int(rule.moved) if rule else 0)
            for key, rule in left.items()
        ]

    def sites(self, rses: Iterable[str]) -> Mapping[str, ports.RseFacts]:
        """Return space, quota and availability."""
        names = sorted(rses)
        self._call("sites", names)
        self._advance()
        used: dict[str, float] = dict.fromkeys(names, 0.0)
        locked: dict[str, int] = dict.fromkeys(names, 0)
        for rule in self._there.values():
            destination = rule.injection.link.destination
            if destination in used:
                used[destination] += rule.moved
            if rule.ended is None and destination in locked:
                locked[destination] += rule.injection.item.bytes
        return {
            name: ports.RseFacts(
                name,
                readable=name not in self.unreadable,
                writable=name not in self.unwritable,
                deletable=name not in self.undeleting,
                closed={"writable": "closed by its site"} if name in self.unwritable else {},
                free=max(self.space[name] - int(used[name]), 0) if name in self.space else None,
                quota_left=self.quota[name] - locked[name] if name in self.quota else None,
            )
            for name in names
        }

    def endpoints(self, rse: str) -> list[ports.Endpoint]:
        """Return where a storage is served, if it was said."""
        return list(self.served_at.get(rse, ()))

    def queues(self, links: Sequence[Link]) -> Mapping[Link, ports.LinkQueue | ports.Missing]:
        """Return the queues that were set."""
        self._call("queues", links)
        return {link: self.queued[link] for link in links if link in self.queued}

    def _call(self, method: str, subject: object) -> None:
        self.calls[method] = self.calls.get(method, 0) + 1
        self.fault(method, subject)

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
        summed_up = True
        first = self._there.get((candidate.item, candidate.link.source))
        if item is None and first is not None and first.completed is not None and first.ended is None:
            item, until = first.injection.item, first.expires  # a copy that was made here
            summed_up = first.completed + self.summary_lag <= self.clock.now()
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
            source_complete=item is not None and summed_up,
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
        members = rule.injection.item.members if isinstance(rule.injection.item, Bundle) else ()
        failed = [file for file in members if self.failing(file)] if done else []
        lost = sum(file.bytes for file in failed)
        return ports.Observation(
            key,
            ports.Status.ABSENT if rule.ended else ports.Status.COMPLETE if done else ports.Status.MOVING,
            f"sim-{key}",
            files_done=item.files - len(failed) if done else int(item.files * rule.moved / item.bytes),
            files_stuck=len(failed),
            moved=item.bytes - lost if done else int(rule.moved),
            exact=True,
            failed=lost,
            reasons={"source-missing": len(failed)} if failed else {},
            undone=tuple(file.name for file in (failed if done else members if rule.ended else ())),
            unfit=tuple(sorted({file.name for file in failed})) if self.tells_unfit else (),
            error=f"{len(failed)} of {units.counted(item.files, 'files')} failed" if failed else "",
            expires_at=rule.expires,
        )

    def _advance(self) -> None:
        """Move bytes for the time since the last look, link by link, in the order of creation."""
        now = self.clock.now()
        since = self._seen or now
        self._seen = now
        room: dict[Link, float] = {}
        for pair, rule in tuple(self._there.items()):
            link, size = rule.injection.link, rule.injection.item.bytes
            if rule.ended is None and rule.completed is None:
                left = room.setdefault(link, self.speed(link) * (now - since).total_seconds())
                step = min(left, size - rule.moved)
                room[link] = left - step
                rule.moved += step
                if rule.moved >= size and (size or rule.created < now):
                    rule.completed = now
            if not self._cleans_up:
                continue
            if rule.ended is None and rule.expires <= now:
                rule.ended = rule.expires
            deletes = rule.injection.link.destination not in self.undeleting
            if rule.ended is not None and deletes and rule.ended + self.deletion_lag <= now:
                rule.deleted = rule.ended + self.deletion_lag
                del self._there[pair]
