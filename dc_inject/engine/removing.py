"""Removing: the files of ended jobs are deleted where no service does it, and bytes count as gone once they are.

Deleting is slow and storages may hang, so it has its own pace: one call for a destination, a few in all, beside
everything else.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

from dc_inject.engine.desk import Desk
from dc_inject.errors import ServiceError
from dc_inject.model import Entry, State
from dc_inject.ports import Removal
from dc_inject.reconcile import backoff

log = logging.getLogger(__name__)

LOOKS_AT_ONCE = 200  # of what a service has deleted by itself, in one call
JOBS_AT_ONCE = 5  # whose files one call deletes
CALLS_AT_ONCE = 3  # so that there are threads left for what is more urgent

FIRST_WAIT, LONGEST_WAIT = timedelta(seconds=15), timedelta(minutes=15)  # after trouble at a destination

_Place = tuple[str, str]  # service and destination


class Removing:
    """Asks for what has ended until it is known to be gone."""

    def __init__(self, desk: Desk) -> None:
        """Take what the engine's parts share."""
        self._desk = desk
        self._waiting: dict[_Place, deque[Entry]] = {}
        self._under_way: set[_Place] = set()
        self._looking = 0  # calls under way to services that delete by themselves
        self._again_at: dict[str, datetime] = {}  # by key: when to ask again
        self._told: dict[_Place, str] = {}  # what stands in the way, said once
        self._failures: dict[_Place, int] = {}  # in a row
        self._not_before: dict[_Place, datetime] = {}

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
                self._desk.calls.start(
                    partial(self._desk.backends[service].remove, some), partial(self._looked, service)
                )

    def delete(self, now: datetime) -> None:
        """Delete what no service deletes: every destination goes on from where it is."""
        waiting: dict[_Place, deque[Entry]] = defaultdict(deque)
        for entry in self._ended(cleans_up=False):
            if self._again_at.get(entry.injection.key, now) <= now:
                waiting[entry.injection.link.through, entry.injection.link.destination].append(entry)
        self._waiting = {place: some for place, some in waiting.items() if place not in self._under_way}
        self._go_on()

    def _go_on(self) -> None:
        now = self._desk.clock.now()
        for place in sorted(self._waiting, key=lambda place: (len(self._waiting[place]), place)):
            if len(self._under_way) >= CALLS_AT_ONCE:
                return
            if place in self._under_way or self._not_before.get(place, now) > now:
                continue
            some = self._waiting[place]
            part = [some.popleft() for _ in range(min(JOBS_AT_ONCE, len(some)))]
            if not some:
                del self._waiting[place]
            self._under_way.add(place)
            self._desk.tell("removing", keys=tuple(entry.injection.key for entry in part))
            self._desk.calls.start(
                partial(self._desk.backends[place[0]].remove, part), partial(self._deleted, place)
            )

    def _deleted(self, place: _Place, removals: list[Removal] | None, error: ServiceError | None) -> None:
        self._under_way.discard(place)
        self._book(removals or [])
        troubles = [error] if error is not None else [r.error for r in removals or () if r.error is not None]
        self._note(place, troubles[0].message if troubles else "")
        self._go_on()

    def _looked(self, service: str, removals: list[Removal] | None, error: ServiceError | None) -> None:
        self._looking -= 1
        if error is not None:
            self._desk.fail(service, error)
        else:
            self._book(removals or [])

    def _book(self, removals: Sequence[Removal]) -> None:
        desk, now = self._desk, self._desk.clock.now()
        desk.tell("remove-called", keys=tuple(removal.key for removal in removals))
        gone = [removal.key for removal in removals if removal.gone]
        desk.ledger.gone(gone, now)
        for removal in removals:
            self._again_at.pop(removal.key, None)
            if removal.again_at is not None and not removal.gone:
                self._again_at[removal.key] = removal.again_at
        desk.tell("removed", keys=tuple(gone))

    def _note(self, place: _Place, message: str) -> None:
        """Remember what stands in the way at a destination, which is left alone for a while then."""
        self._failures[place] = self._failures.get(place, 0) + 1 if message else 0
        if message:
            wait = backoff(self._failures[place], place[1], FIRST_WAIT, LONGEST_WAIT)
            self._not_before[place] = self._desk.clock.now() + wait
            self._desk.undeletable[place] = message
        else:
            self._desk.undeletable.pop(place, None)
        if message and message != self._told.get(place):
            log.warning("files of ours stay at %s: %s", place[1], message)
        elif not message and self._told.get(place):
            log.info("files of ours are deleted at %s again", place[1])
        self._told[place] = message

    def _ended(self, *, cleans_up: bool) -> list[Entry]:
        """Return what has ended; storages are asked also while the service that fills them is broken."""
        backends = self._desk.backends
        return [
            entry
            for entry in self._desk.ledger.entries(State.ENDED)
            if (service := entry.injection.link.through) in backends
            and backends[service].cleans_up is cleans_up
            and not (cleans_up and service in self._desk.broken)
        ]
