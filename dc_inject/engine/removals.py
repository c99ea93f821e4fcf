"""Removals: the files of ended jobs are deleted where no service does it, and bytes count as gone once they are.

Deleting is slow and storages may hang, so every destination has its own pace, beside everything else: one that
does not answer is asked by one call at a time, with waits between, and the others go on.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from dc_inject.engine.calls import Calls
from dc_inject.engine.context import EngineContext
from dc_inject.model import Entry, State
from dc_inject.model.errors import NeedsOperator, ServiceError, Temporary
from dc_inject.model.ports import Backend, Clock, Removal
from dc_inject.planning.reconcile import backoff

log = logging.getLogger(__name__)

LOOKS_AT_ONCE = 200  # of what a service has deleted by itself, in one call

Place = tuple[str, str]  # service and destination


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast it goes: jobs in a call, calls at once in all and to one place, and waits after trouble there.

    `minds` are the errors that are the place's trouble and not only the job's.
    """

    jobs: int
    calls: int
    each: int
    first_wait: timedelta
    longest_wait: timedelta
    minds: tuple[type[ServiceError], ...]


# Few calls, so that there are threads left for what is more urgent.
IN_A_RUN = Pace(5, 3, 1, timedelta(seconds=15), timedelta(minutes=15), (ServiceError,))
# A job a call: what is gone is known at once. What a storage says of one job is no trouble of the others.
ON_DEMAND = Pace(1, 8, 8, timedelta(seconds=5), timedelta(seconds=5), (Temporary, NeedsOperator))


@dataclass(eq=False, slots=True)
class Call:
    """A call under way."""

    place: Place
    entries: Sequence[Entry]
    since: datetime


@dataclass(slots=True)
class _Line:
    """What waits at a place, and how it went there."""

    waiting: deque[Entry] = field(default_factory=deque)
    well: bool = False  # not before it has answered
    failures: int = 0  # in a row
    not_before: datetime | None = None


class Removals:
    """Hands jobs out to calls: no more than there is room for, where the fewest are under way first.

    `begins` is told of each call before it is made, `heard` of its end: the place, what is known of its jobs, and
    what stands in the way there.
    """

    def __init__(
        self,
        backends: Mapping[str, Backend],
        calls: Calls,
        clock: Clock,
        pace: Pace,
        begins: Callable[[Call], None],
        heard: Callable[[Place, Sequence[Removal], ServiceError | None], None],
    ) -> None:
        """Take the services, what runs their calls, how fast, and who is told of them."""
        self._backends = backends
        self._calls = calls
        self._clock = clock
        self._pace = pace
        self._begins = begins
        self._heard = heard
        self._lines: dict[Place, _Line] = defaultdict(_Line)
        self.under_way: list[Call] = []

    def put(self, entries: Iterable[Entry]) -> None:
        """Let these wait for their turn."""
        for entry in entries:
            self._lines[place_of(entry)].waiting.append(entry)

    def take_back(self, place: Place | None = None) -> list[Entry]:
        """Return what waits, at one place or at all, which is not asked for then."""
        lines = self._lines.values() if place is None else [self._lines[place]]
        back = [entry for line in lines for entry in line.waiting]
        for line in lines:
            line.waiting.clear()
        return back

    def waiting(self) -> dict[Place, datetime]:
        """Return the places where something waits, and from when on it may be asked for."""
        now = self._clock.now()
        return {place: line.not_before or now for place, line in self._lines.items() if line.waiting}

    @property
    def free(self) -> int:
        """How many calls there is room for; one that hangs keeps its thread."""
        return self._pace.calls - len(self.under_way)

    def go_on(self) -> None:
        """Start the calls that there is room for."""
        while self.free > 0 and (place := self._next()):
            self._ask(place)

    def _next(self) -> Place | None:
        now, busy = self._clock.now(), Counter(call.place for call in self.under_way)
        ready = [
            (busy[place], len(line.waiting), place)
            for place, line in self._lines.items()
            if line.waiting
            and busy[place] < (self._pace.each if line.well else 1)
            and (line.not_before is None or line.not_before <= now)
        ]
        return min(ready)[2] if ready else None

    def _ask(self, place: Place) -> None:
        waiting = self._lines[place].waiting
        part = [waiting.popleft() for _ in range(min(self._pace.jobs, len(waiting)))]
        call = Call(place, part, self._clock.now())
        self.under_way.append(call)
        self._begins(call)
        self._calls.start(
            partial(self._backends[place[0]].remove, part), partial(self._answered, call), "removals"
        )

    def _answered(self, call: Call, removals: list[Removal] | None, error: ServiceError | None) -> None:
        self.under_way.remove(call)
        told = removals or [Removal(entry.injection.key, gone=False, error=error) for entry in call.entries]
        errors = [removal.error for removal in told if isinstance(removal.error, self._pace.minds)]
        line = self._lines[call.place]
        line.well = not errors
        line.failures = line.failures + 1 if errors else 0
        line.not_before = None
        if errors:
            wait = backoff(line.failures, call.place[1], self._pace.first_wait, self._pace.longest_wait)
            line.not_before = self._clock.now() + wait
        self._heard(call.place, told, errors[0] if errors else None)


class InARun:
    """Removals of a run: round by round, until what has ended is known to be gone."""

    def __init__(self, context: EngineContext) -> None:
        """Take what the engine's parts share."""
        self._context = context
        self._removals = Removals(
            context.backends, context.calls, context.clock, IN_A_RUN, self._deleting, self._deleted
        )
        self._looking = 0  # calls under way to services that delete by themselves
        self._told: dict[Place, str] = {}  # what stands in the way, as it was said
        self._again_at: dict[str, datetime] = {}  # by key: when to ask again

    def look(self, now: datetime) -> None:
        """Ask services that delete by themselves, one cycle after a rule has ended.

        A ghost, a replica row without a file, may stay for a while: it counts as gone one cycle later.
        """
        if self._looking:
            return
        due = [
            e for e in self._ended(cleans_up=True) if e.ended_at and e.ended_at + e.injection.cycle.length <= now
        ]
        for start in range(0, len(due), LOOKS_AT_ONCE):
            part = due[start : start + LOOKS_AT_ONCE]
            for service in sorted({entry.injection.link.through for entry in part}):
                some = [entry for entry in part if entry.injection.link.through == service]
                self._looking += 1
                self._context.calls.start(
                    partial(self._context.backends[service].remove, some), partial(self._looked, service), service
                )

    def delete(self, now: datetime) -> None:
        """Delete what no service deletes: every destination goes on from where it is."""
        self._removals.take_back()
        asked = {entry.injection.key for call in self._removals.under_way for entry in call.entries}
        self._removals.put(
            entry
            for entry in self._ended(cleans_up=False)
            if entry.injection.key not in asked and self._again_at.get(entry.injection.key, now) <= now
        )
        self._removals.go_on()

    def _deleting(self, call: Call) -> None:
        self._context.tell("removing", keys=tuple(entry.injection.key for entry in call.entries))

    def _deleted(self, place: Place, removals: Sequence[Removal], error: ServiceError | None) -> None:
        self._book(removals)
        self._note(place, error.message if error else "")
        self._removals.go_on()

    def _looked(self, service: str, removals: list[Removal] | None, error: ServiceError | None) -> None:
        self._looking -= 1
        if error is not None:
            self._context.fail(service, error)
        else:
            self._book(removals or [])

    def _book(self, removals: Sequence[Removal]) -> None:
        context, now = self._context, self._context.clock.now()
        context.tell("remove-called", keys=tuple(removal.key for removal in removals))
        gone = [removal.key for removal in removals if removal.gone]
        context.ledger.gone(gone, now)
        for removal in removals:
            self._again_at.pop(removal.key, None)
            if removal.again_at is not None and not removal.gone:
                self._again_at[removal.key] = removal.again_at
        context.tell("removed", keys=tuple(gone))

    def _note(self, place: Place, message: str) -> None:
        """Remember what stands in the way at a destination, and say it when it is another thing than before."""
        if message:
            self._context.undeletable[place] = message
            if message != self._told.get(place):
                said = self._context.warn(("removal", place), f"files of ours stay at {place[1]}: {message}")
                self._told |= {place: message} if said else {}
        else:
            self._context.undeletable.pop(place, None)
            if self._told.pop(place, None):
                log.info("files of ours are deleted at %s again", place[1])

    def _ended(self, *, cleans_up: bool) -> list[Entry]:
        """Return what has ended; storages are asked also while the service that fills them is broken."""
        backends = self._context.backends
        if all(backend.cleans_up is not cleans_up for backend in backends.values()):
            return []
        return [
            entry
            for entry in self._context.ledger.entries(State.ENDED)
            if (service := entry.injection.link.through) in backends
            and backends[service].cleans_up is cleans_up
            and not (cleans_up and service in self._context.broken)
        ]


def place_of(entry: Entry) -> Place:
    """Return the service and the destination of an entry."""
    return entry.injection.link.through, entry.injection.link.destination
