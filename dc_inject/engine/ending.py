"""Ending on demand: complete rules at once, unfinished ones only when that is asked for, and at a pace.

Ending an incomplete rule cancels its transfers; millions of cancelled transfers at once have jammed FTS.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, Protocol

from dc_inject.engine.calls import Calls
from dc_inject.engine.clearing import Clearing
from dc_inject.engine.removals import ON_DEMAND
from dc_inject.model import Entry, State
from dc_inject.model.errors import NeedsOperator, ServiceError
from dc_inject.model.ports import Backend, Clock, Executor, Observation, Outcome, Removal, Status
from dc_inject.planning.reconcile import given_up

log = logging.getLogger(__name__)

OBSERVE_AT_ONCE = 200
LOOK_AT_ONCE = 25  # while it cancels: rules that are gone are asked for one by one, so many calls side by side
LOOK_EVERY = timedelta(seconds=30)
LOOK_SHARE = 4  # a look that takes long is followed by so many times as much cancelling
END_AT_ONCE = 20
BATCHES_AT_ONCE = 8
THREADS = ON_DEMAND.calls
GIVE_UP_AFTER = 5  # failures in a row: the service does not work now, the rest is for another time


Missed = Callable[[Sequence[Entry], datetime], None]


class Record(Protocol):
    """What is written down of an ending: a ledger, or nothing where there is none."""

    def end_asked(self, keys: Sequence[str], now: datetime) -> None:
        """Write that these are about to be ended."""
        ...

    def observe(self, observations: Sequence[Observation], now: datetime) -> None:
        """Write how these stand; what is absent has ended."""
        ...

    def withdraw(self, keys: Sequence[str], why: str, now: datetime) -> None:
        """Write that these, which were in doubt, were never carried out."""
        ...

    def gone(self, keys: Sequence[str], now: datetime) -> None:
        """Write that the bytes of these ended ones are gone from their destinations."""
        ...


@dataclass(frozen=True, slots=True)
class Standing:
    """Our rules as a service sees them now.

    `overdue` are unfinished ones past their lifetime that nobody ends but we, `ending` have just been ended or
    have expired, `in_doubt` are those of lost answers that are not known there.
    """

    complete: tuple[Entry, ...]
    unfinished: tuple[Entry, ...]
    overdue: tuple[Entry, ...]
    ending: int
    gone: int
    in_doubt: int


def files_left(entries: Iterable[Entry]) -> int:
    """Return how many files have not arrived: what cancelling would cancel."""
    return sum(entry.injection.item.files - entry.files_done for entry in entries)


def next_moment(last: datetime | None, now: datetime, per_hour: float) -> datetime:
    """Return when the next rule may be cancelled: an hour / `per_hour` after the last one, or now.

    Time lost is not made up: after an outage there is no burst. A last one in the future was written by a clock
    that was ahead.
    """
    return now if last is None else max(now, min(last, now) + timedelta(hours=1) / per_hour)


class Ending:
    """Ends rules of ours, with the record written before each call and after what is seen of it."""

    def __init__(
        self,
        *,
        backends: Mapping[str, Backend],
        clock: Clock,
        executor: Executor,
        record: Record | None,
        patience: timedelta = timedelta(minutes=3),
    ) -> None:
        """Take the services, and how long (`patience`) one round of calls may take before it counts as failed.

        The executor needs as many threads as `THREADS`.
        """
        self._backends = backends
        self._clock = clock
        self._executor = executor
        self._calls = Calls(executor, clock)
        self._record = record
        self._patience = patience
        self._asked: dict[str, Entry] = {}  # asked to end, and not seen to be gone

    def look(self, entries: Sequence[Entry], missed: Missed | None = None) -> Standing:
        """Ask how entries stand and write it down; raises the ServiceError of a service that does not tell.

        A service that does not know what it had accepted may be wrong for a moment. With `missed`, which is told
        of that and of the moment to come, such entries are looked at again when it may be believed.
        """
        seen = self._observe(entries)
        again_at = {key: one.again_at for key, one in seen.items() if one.again_at is not None}
        unsure = [entry for entry in entries if entry.injection.key in again_at]
        if unsure and missed is not None:
            moment = max(again_at.values())
            missed(unsure, moment)
            self.wait(moment)
            seen |= self._observe(unsure)
        now = self._clock.now()
        complete, unfinished, overdue, ending, gone, in_doubt, never = [], [], [], 0, 0, 0, []
        for before in entries:
            entry = _updated(before, seen[before.injection.key])
            if entry.state is State.CALLED and given_up(entry, now, self._patience):
                never.append(entry.injection.key)
            elif entry.state is State.CALLED:
                in_doubt += 1
            elif entry.state is State.ENDED:
                gone += 1
            elif self._is_ending(entry, entry.expires_at, now):
                ending += 1
            elif entry.state is State.COMPLETE:
                complete.append(entry)
            elif self._overdue(entry, now):
                overdue.append(entry)
            else:
                unfinished.append(entry)
        if never and self._record is not None:
            self._record.withdraw(never, "the request was lost and not carried out", now)
        sorts = tuple(complete), tuple(unfinished), tuple(overdue)
        return Standing(*sorts, ending, gone + len(never), in_doubt)

    def wait(self, until: datetime) -> None:
        """Let time pass; when the clock is put back meanwhile, the moment moves with it."""
        now = self._clock.now()
        while now < until:
            self._calls.wait(until)
            before, now = now, self._clock.now()
            until -= max(before - now, timedelta(0))

    def end(self, complete: Sequence[Entry]) -> Iterator[Outcome]:
        """End complete rules as fast as the services take them; gives each outcome as it comes."""
        batches = [
            (service, some[start : start + END_AT_ONCE])
            for service, some in _by_service(complete).items()
            for start in range(0, len(some), END_AT_ONCE)
        ]
        for start in range(0, len(batches), BATCHES_AT_ONCE):
            yield from self._end(batches[start : start + BATCHES_AT_ONCE])

    def cancel(
        self, unfinished: Sequence[Entry], per_hour: float, last: datetime | None = None
    ) -> Iterator[Outcome]:
        """End unfinished rules one by one, at most `per_hour`, each with a last look at what it has moved.

        `last` is when the one before was cancelled, perhaps by an earlier process. Now and then those left are
        looked at again, and what has become complete ends at once. Gives each outcome as it comes; stops early
        when the service does not work.
        """
        left = {entry.injection.key: entry for entry in unfinished}
        looked, pause = self._clock.now(), LOOK_EVERY
        failures = 0
        while left:
            now = self._clock.now()
            last, looked = last and min(last, now), min(looked, now)
            moment = next_moment(last, now, per_hour)
            if looked + pause < moment:
                self.wait(looked + pause)
                began = self._clock.now()
                yield from self._look_over(left)
                looked = self._clock.now()
                pause = max(LOOK_EVERY, LOOK_SHARE * (looked - began))
                continue
            self.wait(moment)
            last = self._clock.now()
            outcome = self._cancel(left.pop(next(iter(left))))
            yield outcome
            failures = failures + 1 if outcome.error else 0
            if failures >= GIVE_UP_AFTER or isinstance(outcome.error, NeedsOperator):
                return

    def settle(self, within: timedelta) -> None:
        """Write down which of those that were asked to end are gone, the last ones first.

        Raises the ServiceError of a service that does not tell in time, when all that is known is written.
        """
        some = list(islice(reversed(self._asked.values()), BATCHES_AT_ONCE * OBSERVE_AT_ONCE))
        self._observe(some, at_once=LOOK_AT_ONCE, within=within)

    def remove(
        self, entries: Iterable[Entry], patience: timedelta, waits: Callable[[str, str], None]
    ) -> Iterator[Removal]:
        """Delete what ended ones left at their destinations, where no service does; gives each as it is known.

        Those that are not gone are asked for again until none has got on at their destination for `patience`; then
        they are given as they are. `waits` is told once of each destination that is waited for, and why.
        """
        clearing = Clearing(
            [entry for entry in entries if not self._backends[entry.injection.link.through].cleans_up],
            self._backends,
            self._calls,
            self._clock,
            patience=self._patience,
            waits=waits,
        )
        for told in clearing.told(patience):
            gone = [removal.key for removal in told if removal.gone]
            if gone and self._record is not None:
                self._record.gone(gone, self._clock.now())
            yield from told

    def _overdue(self, entry: Entry, now: datetime) -> bool:
        """Whether the lifetime of an entry is over that lives on in its service."""
        lives_on = not self._backends[entry.injection.link.through].cleans_up
        return lives_on and entry.expires_at is not None and entry.expires_at <= now

    def _is_ending(self, entry: Entry, expires_at: datetime | None, now: datetime) -> bool:
        """Whether a rule has been ended, or has expired, and its service takes its time to let it go."""
        cleans_up = self._backends[entry.injection.link.through].cleans_up
        return cleans_up and expires_at is not None and expires_at <= now

    def _look_over(self, left: dict[str, Entry]) -> Iterator[Outcome]:
        """Look at some of what is `left`: end what is complete, and take it and what is gone away from there.

        What was asked to end is looked at, too, so that the record tells how far it is.
        """
        some, asked = (list(islice(those.values(), OBSERVE_AT_ONCE)) for those in (left, self._asked))
        try:
            self._observe(asked, at_once=LOOK_AT_ONCE)
            standing = self.look(some)
        except ServiceError as error:
            log.info("what is left could not be looked at: %s", error.message)
            return  # the next one that is cancelled meets the same, and counts it
        for entry in asked:  # to the back: next time others have their turn
            if self._asked.pop(entry.injection.key, None):
                self._asked[entry.injection.key] = entry
        for entry in some:
            del left[entry.injection.key]
        left |= {entry.injection.key: entry for entry in (*standing.overdue, *standing.unfinished)}
        complete = {entry.injection.key for entry in standing.complete}
        over = [e for e in some if e.injection.key not in left and e.injection.key not in complete]
        yield from (Outcome(entry.injection.key, entry.external_id) for entry in over)
        yield from self.end(standing.complete)

    def _cancel(self, entry: Entry) -> Outcome:
        key = entry.injection.key
        try:
            seen = self._observe([entry], exact=True)[key]
        except ServiceError as error:
            return Outcome(key, error=error)  # without it the bytes that it moved would be lost for the account
        if seen.status is Status.ABSENT or self._is_ending(entry, seen.expires_at, self._clock.now()):
            return Outcome(key, entry.external_id)
        return self._end([(entry.injection.link.through, [entry])])[0]

    def _end(self, batches: Sequence[tuple[str, Sequence[Entry]]]) -> list[Outcome]:
        now = self._clock.now()
        asked = {e.injection.key: replace(e, end_asked_at=now) for _, part in batches for e in part}
        if self._record is not None:
            self._record.end_asked(list(asked), now)
        self._asked |= asked
        tasks: dict[tuple[str, int], Callable[[], Any]] = {}
        for number, (service, part) in enumerate(batches):
            backend = self._backends[service]
            tasks[service, number] = partial(backend.end, part)
        results, errors = self._gather(tasks)
        outcomes: list[Outcome] = []
        for number, (service, part) in enumerate(batches):
            failed = [Outcome(entry.injection.key, error=errors.get((service, number))) for entry in part]
            outcomes += results.get((service, number), failed)
        return outcomes

    def _observe(
        self,
        entries: Sequence[Entry],
        *,
        exact: bool = False,
        at_once: int = OBSERVE_AT_ONCE,
        within: timedelta | None = None,
    ) -> dict[str, Observation]:
        tasks: dict[tuple[str, int], Callable[[], Any]] = {}
        for service, some in _by_service(entries).items():
            backend = self._backends[service]
            for start in range(0, len(some), at_once):
                part = some[start : start + at_once]
                tasks[service, start] = partial(backend.observe, part, exact=exact)
        results, errors = self._gather(tasks, within)
        observations = [observation for some in results.values() for observation in some]
        if self._record is not None:
            self._record.observe(observations, self._clock.now())
        for seen in observations:
            if seen.status is Status.ABSENT:
                self._asked.pop(seen.key, None)
        for error in errors.values():
            raise error
        return {observation.key: observation for observation in observations}

    def _gather(
        self, tasks: Mapping[tuple[str, int], Callable[[], Any]], within: timedelta | None = None
    ) -> tuple[dict[tuple[str, int], Any], dict[tuple[str, int], ServiceError]]:
        deadline = self._clock.now() + (within or self._patience)
        return self._calls.gather(tasks, deadline, lambda name: name[0])


def _updated(entry: Entry, seen: Observation) -> Entry:
    """Return an entry as it was seen; one in doubt that was not found stays in doubt."""
    if seen.status is Status.UNKNOWN:
        return entry
    if seen.status is Status.ABSENT:
        return entry if entry.state is State.CALLED else replace(entry, state=State.ENDED)
    return replace(
        entry,
        state=State.COMPLETE if seen.status is Status.COMPLETE else State.LIVE,
        external_id=seen.external_id or entry.external_id,
        files_done=seen.files_done,
        present=entry.present if seen.present is None else seen.present,
        expires_at=seen.expires_at or entry.expires_at,
    )


def _by_service(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    result: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        result[entry.injection.link.through].append(entry)
    return result
