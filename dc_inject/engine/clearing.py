"""Clearing up on demand: all that ended jobs have left is deleted in one go, as far as destinations let it be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from dc_inject.engine.calls import Calls
from dc_inject.engine.removals import ON_DEMAND, Call, Place, Removals, place_of
from dc_inject.model import Entry
from dc_inject.model.errors import ServiceError, Temporary
from dc_inject.model.ports import Backend, Clock, Removal

A_FILE = timedelta(seconds=3)  # that each file of a job adds to how long its call is waited for
TELL_AFTER = timedelta(seconds=10)  # without a word from a destination


class Clearing:
    """Removals to their end: each job is known as soon as it is told, a place that does not get on is given up.

    A call that does not come back in time is waited for no longer, but never made again beside itself: it still
    holds its thread. `waits` is told, once for each destination, that it is waited for, and why.
    """

    def __init__(
        self,
        entries: Iterable[Entry],
        backends: Mapping[str, Backend],
        calls: Calls,
        clock: Clock,
        *,
        patience: timedelta,
        waits: Callable[[str, str], None] = lambda _destination, _why: None,
    ) -> None:
        """Take what is to be deleted, and how long (`patience`) the call of a job without files may take."""
        self._clock = clock
        self._calls = calls
        self._patience = patience
        self._waits = waits
        self._removals = Removals(backends, calls, clock, ON_DEMAND, self._begun, self._answered)
        self._left = {entry.injection.key: entry for entry in entries}  # not told of yet
        self._later: dict[str, datetime] = {}  # keys to ask for again, and when
        self._heard: dict[str, Removal] = {}  # the last answer of each
        self._known: list[Removal] = []  # to be told of now
        self._until: dict[Place, datetime] = {}  # when a place is given up unless it gets on
        self._heard_of: dict[Place, datetime] = {}  # when an answer came from a place
        self._said: set[Place] = set()

    def told(self, patience: timedelta) -> Iterator[list[Removal]]:
        """Give what is known of each, some at a time as it comes.

        What is not gone is asked for again until nothing has got on at its place for `patience`; then it is given
        as it is, at the end.
        """
        self._getting_on = patience
        self._removals.put(self._left.values())
        while self._goes_on():
            self._removals.go_on()
            self._calls.wait(self._next_moment())
            self._say_what_is_quiet()
            known, self._known = self._known, []
            yield known
        yield [self._untold(entry) for entry in self._left.values()]

    def _goes_on(self) -> bool:
        """Let come back what is to be asked for again, give up places; return whether anything is left to do."""
        now = self._clock.now()
        for key in [key for key, moment in self._later.items() if moment <= now]:
            del self._later[key]
            self._removals.put([self._left[key]])
        in_time = {call.place for call in self._removals.under_way if self._late_at(call) > now}
        for place in [place for place, until in self._until.items() if until <= now and place not in in_time]:
            self._removals.take_back(place)
            self._later = {k: at for k, at in self._later.items() if place_of(self._left[k]) != place}
        return bool(in_time) or (self._removals.free > 0 and bool(self._later or self._removals.waiting()))

    def _next_moment(self) -> datetime:
        now = self._clock.now()
        quiet = [since + TELL_AFTER for place, since in self._quiet().items() if place not in self._said]
        calls = [self._late_at(call) for call in self._removals.under_way]
        waiting = self._removals.waiting()
        moments = [*quiet, *calls, *self._later.values(), *waiting.values(), *self._until.values()]
        return min((moment for moment in moments if moment > now), default=now)

    def _late_at(self, call: Call) -> datetime:
        files = sum(entry.injection.item.files for entry in call.entries)
        return call.since + self._patience + files * A_FILE

    def _begun(self, call: Call) -> None:
        self._until.setdefault(call.place, call.since + self._getting_on)

    def _answered(self, place: Place, removals: Sequence[Removal], error: ServiceError | None) -> None:
        now = self._clock.now()
        self._heard_of[place] = now
        for removal in removals:
            first = removal.key not in self._heard
            if removal.gone or (first and error is None):
                self._until[place] = now + self._getting_on
            self._heard[removal.key] = removal
            again = max(removal.again_at or now, now + ON_DEMAND.first_wait)
            if removal.gone or again > self._until[place]:
                del self._left[removal.key]
                self._known.append(removal)
            else:
                self._later[removal.key] = again
            if removal.error is not None:
                self._say(place, removal.error.message)

    def _quiet(self) -> dict[Place, datetime]:
        """Return since when nothing was heard of each place that is asked."""
        since: dict[Place, datetime] = {}
        for call in reversed(self._removals.under_way):  # the first one is the oldest
            since[call.place] = max(call.since, self._heard_of.get(call.place, call.since))
        return since

    def _say_what_is_quiet(self) -> None:
        now = self._clock.now()
        for place, since in self._quiet().items():
            if since + TELL_AFTER <= now:
                self._say(place, f"nothing heard of it for {TELL_AFTER.seconds} s")

    def _say(self, place: Place, why: str) -> None:
        if place not in self._said:
            self._said.add(place)
            self._waits(place[1], why)

    def _untold(self, entry: Entry) -> Removal:
        key, where = entry.injection.key, entry.injection.link.destination
        if known := self._heard.get(key):
            return known
        if any(entry in call.entries for call in self._removals.under_way):
            why = f"deleting at {where} takes too long: no answer yet"
        elif place_of(entry) in self._until:
            why = f"not asked to delete at {where}: nothing got on there"
        else:
            why = f"not asked to delete at {where}: calls that take too long hold all threads"
        return Removal(key, gone=False, error=Temporary(why, lost=True))
