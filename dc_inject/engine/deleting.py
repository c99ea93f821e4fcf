"""Deleting: what has ended is gone once nothing of it is left at its destination.

Rucio deletes by itself what its rules leave; it is asked one cycle later whether the bytes are gone, and at once
where room is waited for (`rooms.py`). FTS deletes nothing: the files of ended jobs are deleted here, at
their destinations (which files those are, and that they are ours, is settled in `model/deletion.py`). Deleting is
slow and storages may hang, so every destination has its own pace: one that does not answer
is asked by one call at a time, with waits between, and the others go on. That bytes are gone is written down as
soon as it is known.

`Deletions` is the one way to do this: `DeletionRounds` in a run, a part of it each round, and `DeletionByHand` for
`dc-inject end`, to the end or until a destination does not get on.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from dc_inject.engine.calls import by_service
from dc_inject.engine.context import EngineContext
from dc_inject.model import Entry, State, units
from dc_inject.model.errors import NeedsOperator, ServiceError, Temporary
from dc_inject.model.events import RemoveCalled, Removed, Removing
from dc_inject.model.ports import Removal, in_parts
from dc_inject.model.services import SERVICES
from dc_inject.planning.reconcile import backoff

log = logging.getLogger(__name__)

CHECKS_AT_ONCE = 200  # of what a service has deleted by itself, in one call
A_FILE = timedelta(seconds=3)  # that each file of a job adds to how long its call is waited for
LOG_AFTER = timedelta(seconds=10)  # without a word from a destination

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
# A job a call: what is gone is known at once. A storage's answer about one job does not affect the others.
BY_HAND = Pace(1, 8, 8, timedelta(seconds=5), timedelta(seconds=5), (Temporary, NeedsOperator))


@dataclass(eq=False, slots=True)
class Call:
    """A call under way."""

    place: Place
    entries: Sequence[Entry]
    since: datetime


@dataclass(slots=True)
class _Queue:
    """What waits at a place, and how it went there."""

    waiting: deque[Entry] = field(default_factory=deque)
    answers: bool = False  # whether its last call went well
    failures: int = 0  # in a row
    not_before: datetime | None = None


class Deletions(ABC):
    """Hands jobs out to calls: no more than there is room for, where the fewest are under way first."""

    def __init__(self, context: EngineContext, pace: Pace) -> None:
        """Take what the parts share, and how fast it goes."""
        self._context = context
        self._pace = pace
        self._queues: dict[Place, _Queue] = defaultdict(_Queue)
        self._under_way: list[Call] = []

    @abstractmethod
    def _answered(self, place: Place, removals: Sequence[Removal], error: ServiceError | None) -> None:
        """Do what follows on what a place has answered about its jobs, and on the error there."""

    def _write(self, removals: Sequence[Removal]) -> None:
        gone = [removal.key for removal in removals if removal.gone]
        self._context.report(RemoveCalled(tuple(removal.key for removal in removals)))
        self._context.ledger.gone(gone, self._context.clock.now())
        self._context.report(Removed(tuple(gone)))

    def _put(self, entries: Iterable[Entry]) -> None:
        """Let these wait for their turn."""
        for entry in entries:
            self._queues[place_of(entry)].waiting.append(entry)

    @property
    def _free(self) -> int:
        """How many calls there is room for; one that hangs keeps its thread."""
        return self._pace.calls - len(self._under_way)

    def _go_on(self) -> None:
        """Start the calls that there is room for."""
        while self._free > 0 and (place := self._next()):
            self._ask(place)

    def _next(self) -> Place | None:
        now, busy = self._context.clock.now(), Counter(call.place for call in self._under_way)
        ready = [
            (busy[place], len(queue.waiting), place)
            for place, queue in self._queues.items()
            if queue.waiting
            and busy[place] < (self._pace.each if queue.answers else 1)
            and (queue.not_before is None or queue.not_before <= now)
        ]
        return min(ready)[2] if ready else None

    def _ask(self, place: Place) -> None:
        waiting = self._queues[place].waiting
        part = [waiting.popleft() for _ in range(min(self._pace.jobs, len(waiting)))]
        call = Call(place, part, self._context.clock.now())
        self._under_way.append(call)
        self._context.report(Removing(tuple(entry.injection.key for entry in part)))
        remove = partial(self._context.backends[place[0]].remove, part)
        self._context.calls.start(remove, partial(self._then, call), "removals")

    def _then(self, call: Call, removals: list[Removal] | None, error: ServiceError | None) -> None:
        self._under_way.remove(call)
        removals = removals or [Removal(entry.injection.key, gone=False, error=error) for entry in call.entries]
        errors = [removal.error for removal in removals if isinstance(removal.error, self._pace.minds)]
        queue = self._queues[call.place]
        queue.answers = not errors
        queue.failures = queue.failures + 1 if errors else 0
        queue.not_before = None
        if errors:
            wait = backoff(queue.failures, call.place[1], self._pace.first_wait, self._pace.longest_wait)
            queue.not_before = self._context.clock.now() + wait
        self._write(removals)
        self._answered(call.place, removals, errors[0] if errors else None)


class DeletionRounds(Deletions):
    """Deletes in a run: round by round, until what has ended is known to be gone."""

    def __init__(self, context: EngineContext) -> None:
        super().__init__(context, IN_A_RUN)
        self._checking: set[str] = set()  # keys that services are asked about that delete by themselves
        self._in_the_way: dict[Place, str] = {}  # as it was logged last
        self._again_at: dict[str, datetime] = {}  # by key: when to ask again

    def check_cleaned_up(self, now: datetime, places: AbstractSet[str] | None = None) -> None:
        """Ask services that delete by themselves what is gone, one cycle after a rule has ended.

        That is asked of all destinations, or of some; there, what was complete is asked for without that wait. A
        ghost, a replica row without a file, may stay for a while: it counts as gone one cycle later.
        """
        if places is not None and not places:
            return
        due = [
            e
            for e in self._ended(cleans_up=True)
            if e.ended_at
            and (
                e.ended_at + e.injection.cycle.length <= now or (places is not None and e.completed_at is not None)
            )
            and (places is None or e.injection.link.destination in places)
            and e.injection.key not in self._checking
        ]
        for service, entries in sorted(by_service(due).items()):
            for part in in_parts(entries, CHECKS_AT_ONCE):
                self._checking |= {entry.injection.key for entry in part}
                call = partial(self._context.backends[service].remove, part)
                self._context.calls.start(call, partial(self._checked, service, part, now), service)

    def round(self, now: datetime) -> None:
        """Delete what no service deletes: every destination goes on from where it is.

        Where room is waited for, look as often at what services delete.
        """
        self.check_cleaned_up(now, {flow.link.destination for flow in self._context.rooms})
        for queue in self._queues.values():
            queue.waiting.clear()
        asked_for = {entry.injection.key for call in self._under_way for entry in call.entries}
        self._put(
            entry
            for entry in self._ended(cleans_up=False)
            if entry.injection.key not in asked_for and self._again_at.get(entry.injection.key, now) <= now
        )
        self._go_on()

    def _answered(self, place: Place, removals: Sequence[Removal], error: ServiceError | None) -> None:
        for removal in removals:
            self._again_at.pop(removal.key, None)
            if removal.again_at is not None and not removal.gone:
                self._again_at[removal.key] = removal.again_at
        self._note(place, error.message if error else "")
        self._go_on()

    def _checked(
        self,
        service: str,
        entries: Sequence[Entry],
        asked_at: datetime,
        removals: list[Removal] | None,
        error: ServiceError | None,
    ) -> None:
        self._checking -= {entry.injection.key for entry in entries}
        if error is not None:
            self._context.fail(service, error)
        else:
            self._write(removals or [])
            self._context.looks.removed(entries, removals or [], asked_at)

    def _note(self, place: Place, message: str) -> None:
        """Remember what stands in the way at a destination, and log it when it has changed."""
        if SERVICES[place[0]].reads:
            return  # records of readers may stay
        if message:
            self._context.undeletable[place] = message
            if message != self._in_the_way.get(place):
                was_logged = self._context.warn(("removal", place), f"files of ours stay at {place[1]}: {message}")
                self._in_the_way |= {place: message} if was_logged else {}
        else:
            self._context.undeletable.pop(place, None)
            if self._in_the_way.pop(place, None):
                log.info("files of ours are deleted at %s again", place[1])

    def _ended(self, *, cleans_up: bool) -> list[Entry]:
        """Return what has ended; storages are asked also while the service that fills them is broken."""
        backends = self._context.backends
        if all(SERVICES[service].cleans_up is not cleans_up for service in backends):
            return []
        return [
            entry
            for entry in self._context.ledger.entries(State.ENDED)
            if (service := entry.injection.link.through) in backends
            and SERVICES[service].cleans_up is cleans_up
            and not (cleans_up and service in self._context.broken)
        ]


class DeletionByHand(Deletions):
    """Deletes for `end`: each job's result is given as it arrives, and a stuck place is given up.

    A call that does not come back in time is no longer waited for, but never repeated while it still holds its
    thread.
    """

    def __init__(
        self,
        context: EngineContext,
        entries: Iterable[Entry],
        patience: timedelta,
        waits: Callable[[str, str], None] = lambda _destination, _why: None,
    ) -> None:
        """Take what is to be deleted.

        A place at which nothing has got on for `patience` is given up. `waits` is called once with each
        destination that is waited for, and why.
        """
        super().__init__(context, BY_HAND)
        self._patience = patience
        self._waits = waits
        self._left = {entry.injection.key: entry for entry in entries}  # not given back yet
        self._later: dict[str, datetime] = {}  # keys to ask for again, and when
        self._last: dict[str, Removal] = {}  # the last answer of each
        self._ready: list[Removal] = []  # to be given back now
        self._until: dict[Place, datetime] = {}  # when a place is given up unless it gets on
        self._heard_at: dict[Place, datetime] = {}  # when an answer came from a place
        self._logged: set[Place] = set()

    def removals(self) -> Iterator[list[Removal]]:
        """Give what is known of each, some at a time as it comes.

        What is not gone is asked for again until its place is given up; then it is given as it is, at the end.
        """
        self._put(self._left.values())
        while self._has_more():
            self._go_on()
            for call in self._under_way:
                self._until.setdefault(call.place, call.since + self._patience)
            self._context.calls.wait(self._next_moment())
            self._log_quiet_places()
            ready, self._ready = self._ready, []
            yield ready
        yield [self._as_known(entry) for entry in self._left.values()]

    def _has_more(self) -> bool:
        """Let come back what is to be asked for again, give up places; return whether anything is left to do."""
        now = self._context.clock.now()
        for key in [key for key, moment in self._later.items() if moment <= now]:
            del self._later[key]
            self._put([self._left[key]])
        in_time = {call.place for call in self._under_way if self._late_at(call) > now}
        for place in [place for place, until in self._until.items() if until <= now and place not in in_time]:
            self._queues[place].waiting.clear()
            self._later = {k: at for k, at in self._later.items() if place_of(self._left[k]) != place}
        return bool(in_time) or (
            self._free > 0 and bool(self._later or any(queue.waiting for queue in self._queues.values()))
        )

    def _next_moment(self) -> datetime:
        now = self._context.clock.now()
        quiet = [since + LOG_AFTER for place, since in self._quiet().items() if place not in self._logged]
        calls = [self._late_at(call) for call in self._under_way]
        waiting = [queue.not_before for queue in self._queues.values() if queue.waiting and queue.not_before]
        moments = [*quiet, *calls, *self._later.values(), *waiting, *self._until.values()]
        return min((moment for moment in moments if moment > now), default=now)

    def _late_at(self, call: Call) -> datetime:
        files = sum(entry.injection.item.files for entry in call.entries)
        return call.since + self._context.settings.call_grace + files * A_FILE

    def _answered(self, place: Place, removals: Sequence[Removal], error: ServiceError | None) -> None:
        now = self._context.clock.now()
        self._heard_at[place] = now
        for removal in removals:
            is_first = removal.key not in self._last
            if removal.gone or (is_first and error is None):
                self._until[place] = now + self._patience
            self._last[removal.key] = removal
            next_try = max(removal.again_at or now, now + BY_HAND.first_wait)
            if removal.gone or next_try > self._until[place]:
                del self._left[removal.key]
                self._ready.append(removal)
            else:
                self._later[removal.key] = next_try
            if removal.error is not None:
                self._log(place, removal.error.message)

    def _quiet(self) -> dict[Place, datetime]:
        """Return since when nothing was heard of each place that is asked."""
        since: dict[Place, datetime] = {}
        for call in reversed(self._under_way):  # the first one is the oldest
            since[call.place] = max(call.since, self._heard_at.get(call.place, call.since))
        return since

    def _log_quiet_places(self) -> None:
        now = self._context.clock.now()
        for place, since in self._quiet().items():
            if since + LOG_AFTER <= now:
                self._log(place, f"nothing heard of it for {LOG_AFTER.seconds} s")

    def _log(self, place: Place, why: str) -> None:
        if place not in self._logged:
            self._logged.add(place)
            self._waits(place[1], why)

    def _as_known(self, entry: Entry) -> Removal:
        """Return the last answer about an entry, or why there was none."""
        key, where = entry.injection.key, entry.injection.link.destination
        if answer := self._last.get(key):
            return answer
        if any(entry in call.entries for call in self._under_way):
            why = f"deleting at {where} takes too long: no answer yet"
        elif place_of(entry) in self._until:
            why = f"not asked to delete at {where}: deletions made no progress there"
        else:
            why = f"not asked to delete at {where}: calls that take too long hold all threads"
        return Removal(key, gone=False, error=Temporary(why, lost=True))


def place_of(entry: Entry) -> Place:
    """Return the service and the destination of an entry."""
    return entry.injection.link.through, entry.injection.link.destination


def choose_files_to_delete(context: EngineContext, entries: Iterable[Entry]) -> list[Entry]:
    """Return those whose bytes no service deletes; reads leave none."""
    links = ((entry, entry.injection.link) for entry in entries if not entry.injection.link.service.reads)
    return [entry for entry, link in links if link.through in context.backends and not link.service.cleans_up]


def report_files_left(context: EngineContext) -> None:
    """Log which files of ours stay undeleted now that we leave."""
    staying = [entry.injection for entry in choose_files_to_delete(context, context.ledger.entries(State.ENDED))]
    if not staying:
        return
    places = sorted({injection.link.destination for injection in staying})
    log.warning(
        "files of %s are not known to be gone from %s: the next run, or `dc-inject end %s`, deletes them",
        units.counted(len(staying), "jobs"),
        units.some(places, 3),
        context.campaign_name,
    )
