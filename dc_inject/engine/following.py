"""Following what was injected: how far it got, what can be ended, what is gone, what was lost and found."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from dc_inject import reconcile
from dc_inject.engine import aiming, stalled
from dc_inject.engine.choosing import SET_ASIDE
from dc_inject.engine.desk import Desk
from dc_inject.engine.removals import InARun
from dc_inject.errors import Permanent, ServiceError, Temporary
from dc_inject.model import Entry, FlowKey, State
from dc_inject.ports import Backend, Observation, Outcome, Status

log = logging.getLogger(__name__)

OBSERVE_AT_ONCE = 50  # a service may need a call for each, and nothing of a look is known before its end
FIND_AT_ONCE = 20  # of those in doubt, for which services may need a call each
END_AT_ONCE = 20
LATEST = timedelta(hours=2)  # how long after its cycle a request that was given up is looked for
AT_FIRST = timedelta(hours=24)  # the same at the start: nobody has looked for a while
MOST_TOLD = 5  # links whose failures are named in the log after one look; the ledger counts all
LIVE = (State.CALLED, State.LIVE, State.COMPLETE)


class Following:
    """One round of observation at a time; the next begins only when the last one's calls are back."""

    def __init__(self, desk: Desk, not_carried_out: Callable[[Sequence[Entry]], None]) -> None:
        """Take what the parts share, and what to do with entries in doubt that were never carried out."""
        self._desk = desk
        self._not_carried_out = not_carried_out
        self._calls = 0  # of this round, not back yet
        self._removals = InARun(desk)
        self._look_back = AT_FIRST
        # Ends asked for by this process: how often they failed in a row, and when to ask again if so.
        self._asked: dict[str, tuple[int, datetime | None]] = {}
        self.dwell: dict[FlowKey, timedelta] = {}
        self.hops: dict[
            FlowKey, tuple[datetime, timedelta]
        ] = {}  # until when anything goes on, and how long it lives

    def round(self, now: datetime, every: timedelta) -> None:
        """Observe all that is in a service, and end what is complete."""
        self._removals.delete(now)
        if self._calls:
            return  # the services are slower than the rounds: do not pile up
        entries = [e for e in self._desk.ledger.entries(*LIVE) if self._known(e)]
        known = {e.injection.key for e in entries}
        self._asked = {key: asked for key, asked in self._asked.items() if key in known}
        last_chance = {e.injection.key for e in reconcile.to_settle(entries, now, every * 1.5)}
        settle = [entry for entry in entries if entry.injection.key in last_chance]
        self._observe([e for e in entries if e.injection.key not in last_chance], exact=False)
        self._observe(settle, exact=True)
        dwell = {e.injection.key: self.dwell.get(e.injection.flow, timedelta(0)) for e in entries}
        bound = self._bound(entries, now)
        due = reconcile.to_end(
            [self._as_asked(entry, now) for entry in entries if entry.injection.key not in bound],
            now,
            lambda e: dwell[e.injection.key],
            lambda e: not self._cleans_up(e),
            max(reconcile.ASK_AGAIN, 2.5 * every),  # the next round but one has seen what became of it
        )
        paced = reconcile.at_a_pace([e for e in due if not self._cleans_up(e)], every)
        self.end([e for e in due if self._cleans_up(e)] + paced)

    def _bound(self, entries: Sequence[Entry], now: datetime) -> set[str]:
        """Return the keys of what may not be ended yet for the sake of a second hop.

        What is about to go on reads from its first copy as well as what is on its way. Such a copy may outlive its
        lifetime, by the time that it takes to cancel what reads from it; nothing else does.
        """
        least = {key: lifetime for key, (end, lifetime) in self.hops.items() if now < end}
        intents = self._desk.ledger.entries(State.INTENDED)
        found = aiming.going_on(self._desk, [*entries, *intents], self.hops)
        over = {e.injection.key for e in entries if e.expires_at is not None and e.expires_at <= now}
        return (found.bound(now, least) - over) | found.read

    def ending(self) -> bool:
        """Whether files of jobs that were asked to end are not known to be gone, and are ours to delete."""
        some = self._desk.ledger.entries(*LIVE, State.ENDED)
        return any(e.end_asked_at is not None and self._known(e) and not self._cleans_up(e) for e in some)

    def once_a_cycle(self, now: datetime) -> None:
        """Look whether ended bytes are gone, and once more for requests that were given up.

        A service may carry a request out later than anybody waits for it.
        """
        self._removals.look(now)
        given_up = [
            entry
            for entry in self._desk.ledger.entries(State.WITHDRAWN, since=now - self._look_back)
            if entry.called_at is not None and self._known(entry)
        ]
        self._look_back = LATEST
        self._observe(given_up, exact=False)

    def end(self, entries: Sequence[Entry]) -> None:
        """Ask the services to end rules or jobs, where we may."""
        for service, some in _by_service(entries).items():
            if self._desk.identities[service].may_end is False:
                continue
            for part in _parts(some, END_AT_ONCE):
                keys = [entry.injection.key for entry in part]
                self._desk.ledger.end_asked(keys, self._desk.clock.now())
                self._asked |= {key: (self._asked.get(key, (0, None))[0], None) for key in keys}
                self._desk.tell("ending", keys=tuple(keys))
                self._start(partial(_end, self._desk.backends[service], part), self._ended, service)

    def _observe(self, entries: Sequence[Entry], *, exact: bool) -> None:
        for service, some in _by_service(entries).items():
            backend = self._desk.backends[service]
            doubtful = [entry for entry in some if entry.state is State.CALLED]
            certain = [entry for entry in some if entry.state is not State.CALLED]
            for part in [*_parts(certain, OBSERVE_AT_ONCE), *_parts(doubtful, FIND_AT_ONCE)]:

                def then(observations: list[Observation], _service: str, part: Sequence[Entry] = part) -> None:
                    self._seen(part, observations)

                self._start(partial(backend.observe, part, exact=exact), then, service)

    def _seen(self, entries: Sequence[Entry], observations: Sequence[Observation]) -> None:
        desk, now = self._desk, self._desk.clock.now()
        before = {entry.injection.key: entry for entry in entries}
        # The answer to a call may have come after the look began, and then "absent" is older than "accepted".
        stale = {key for key, entry in before.items() if desk.ledger.entry(key).state is not entry.state}
        observations = [seen for seen in observations if seen.key not in stale]
        observations = [stalled.told(before[seen.key], seen, now) for seen in observations]
        desk.ledger.observe(observations, now)
        self._end_stalled(before, observations, now)
        for entry in (before[seen.key] for seen in observations if seen.present and not before[seen.key].present):
            item, destination = entry.injection.item.name, entry.injection.link.destination
            why = "files of it were at the destination already"
            desk.ledger.quarantine(item, destination, why, now, until=now + SET_ASIDE)
        self._say_what_failed(before, observations)
        self._set_unfit_aside(before, observations, now)
        absent = [before[seen.key] for seen in observations if seen.status is Status.ABSENT]
        self._not_carried_out([e for e in absent if reconcile.given_up(e, now, desk.settings.call_grace)])
        desk.tell("observed", observations=tuple(observations))

    def _end_stalled(
        self, before: Mapping[str, Entry], observations: Sequence[Observation], now: datetime
    ) -> None:
        """Let rules end that do nothing; of what they did before, the bytes are added up first."""
        some = [seen for seen in observations if stalled.is_stalled(before[seen.key], seen, now)]
        for seen in some:
            item, destination = before[seen.key].injection.item.name, before[seen.key].injection.link.destination
            self._desk.ledger.quarantine(item, destination, seen.error, now, until=now + SET_ASIDE)
        self._observe([before[seen.key] for seen in some if seen.files_done and not seen.exact], exact=True)
        ready = [self._as_asked(before[seen.key], now) for seen in some if seen.exact or not seen.files_done]
        self.end([e for e in ready if e.end_asked_at is None or e.end_asked_at + reconcile.ASK_AGAIN <= now])

    def _say_what_failed(self, before: Mapping[str, Entry], observations: Sequence[Observation]) -> None:
        """Name what will not arrive, when it is told first: of a flow the first reason, of a look a few flows."""
        told: dict[FlowKey, Observation] = {}
        for seen in observations:
            entry = before[seen.key]
            over = seen.status in {Status.COMPLETE, Status.ABSENT} and entry.state is State.LIVE
            if over and seen.error and (seen.failed or seen.status is Status.ABSENT):
                told.setdefault(entry.injection.flow, seen)
        for flow, seen in sorted(told.items(), key=lambda item: item[0])[:MOST_TOLD]:
            self._desk.warn((flow, frozenset(seen.reasons)), f"{flow}: {seen.error}")

    def _set_unfit_aside(
        self, before: Mapping[str, Entry], observations: Sequence[Observation], now: datetime
    ) -> None:
        """Take source files that would fail again out of the pool, until the next inventory may have others."""
        unfit = {
            (file, before[seen.key].injection.link.destination): seen.error
            for seen in observations
            for file in seen.unfit
            if before[seen.key].state in {State.CALLED, State.LIVE}  # told of once
        }
        until = now + self._desk.settings.inventory_age
        with self._desk.ledger.together():  # there may be thousands
            for (file, destination), why in sorted(unfit.items()):
                self._desk.ledger.quarantine(file, destination, why or "it failed at its source", now, until=until)

    def _ended(self, outcomes: list[Outcome], service: str) -> None:
        desk, now = self._desk, self._desk.clock.now()
        desk.tell("end-called", keys=tuple(outcome.key for outcome in outcomes))
        done = [outcome.key for outcome in outcomes if outcome.error is None]
        self._ask_again(outcomes, now)
        for outcome in outcomes:
            if isinstance(outcome.error, Permanent):
                log.warning("%s: %s; what cannot be ended is left to its lifetime", service, outcome.error.message)
                break
        for outcome in outcomes:
            if outcome.error is not None:
                desk.fail(service, outcome.error)
        desk.tell("ended", keys=tuple(done), at=now)

    def _ask_again(self, outcomes: Sequence[Outcome], now: datetime) -> None:
        """Let ends that failed for the moment be asked for again soon; what was accepted is waited for."""
        first = self._desk.settings.first_retry
        for outcome in outcomes:
            if isinstance(outcome.error, Temporary):
                times = self._asked.get(outcome.key, (0, None))[0] + 1
                again_at = now + reconcile.backoff(times, outcome.key, first, reconcile.ASK_AGAIN)
                self._asked[outcome.key] = times, again_at

    def _as_asked(self, entry: Entry, now: datetime) -> Entry:
        """Return the entry, as if its end had never been asked for when that failed, or is not known to have left.

        A process that died may have done so between the ledger and the call.
        """
        _, again_at = self._asked.get(entry.injection.key, (0, now))
        return entry if again_at is None or again_at > now else replace(entry, end_asked_at=None)

    def _cleans_up(self, entry: Entry) -> bool:
        return self._desk.backends[entry.injection.link.through].cleans_up

    def _start(self, task: Callable[[], object], done: Callable[..., None], service: str) -> None:
        self._calls += 1

        def then(result: object, error: ServiceError | None) -> None:
            self._calls -= 1
            if error is not None:
                self._desk.fail(service, error)
            else:
                done(result, service)

        self._desk.calls.start(task, then)

    def _known(self, entry: Entry) -> bool:
        service = entry.injection.link.through
        return service in self._desk.backends and service not in self._desk.broken


def _end(backend: Backend, entries: Sequence[Entry]) -> list[Outcome]:
    try:
        return backend.end(entries)
    except ServiceError as error:
        return [Outcome(entry.injection.key, error=error) for entry in entries]


def _by_service(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    result: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        result[entry.injection.link.through].append(entry)
    return result


def _parts(entries: Sequence[Entry], size: int) -> list[Sequence[Entry]]:
    return [entries[start : start + size] for start in range(0, len(entries), size)]
