"""Following what was injected: how far it got, what can be ended, what is gone, what was lost and found."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from dc_inject.engine import aiming, stalled
from dc_inject.engine.context import EngineContext
from dc_inject.engine.preflight import SET_ASIDE
from dc_inject.engine.removals import InARun
from dc_inject.model import Entry, FlowKey, State
from dc_inject.model.errors import Permanent, ServiceError, Temporary
from dc_inject.model.ports import Backend, Observation, Outcome, Status
from dc_inject.planning import reconcile

log = logging.getLogger(__name__)

OBSERVE_AT_ONCE = 200  # as many as bulk calls take
FIND_AT_ONCE = 20  # of those in doubt, for which services may need a call each
END_AT_ONCE = 20
LATEST = timedelta(hours=2)  # how long after its cycle a request that was given up is looked for
AT_FIRST = timedelta(hours=24)  # the same at the start: nobody has looked for a while
MOST_TOLD = 5  # links whose failures are named in the log after one look; the ledger counts all
SILENT_ROUNDS = 5  # without anything seen of a service, after which its links hold: a cycle's looks
LIVE = (State.CALLED, State.LIVE, State.COMPLETE)


@dataclass(slots=True)
class Silence:
    """Since when nothing has been seen of a service, in how many rounds, and why."""

    since: datetime
    rounds: int = 0
    why: str = "its answers do not come"


class Following:
    """One round of observation of a service at a time; the next begins when the last one's calls are back.

    Services have rounds of their own: one that does not answer keeps no other from being observed.
    """

    def __init__(
        self,
        context: EngineContext,
        not_carried_out: Callable[[Sequence[Entry]], None],
        under_way: Callable[[Entry], bool],
    ) -> None:
        """Take what the parts share, and what to do with entries in doubt that were never carried out.

        `under_way` tells those whose answer is waited for.
        """
        self._context = context
        self._not_carried_out = not_carried_out
        self._under_way = under_way
        self._calls: Counter[str] = Counter()  # of each service's round, not back yet
        self._silent: dict[str, Silence] = {}  # services of which nothing has been seen since
        self._heard_of: set[str] = set()  # an earlier process may have written that nothing was seen of them
        self._removals = InARun(context)
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
        live = [e for e in self._context.ledger.entries(*LIVE) if self._known(e)]
        known = {e.injection.key for e in live}
        self._count_rounds({e.injection.link.through for e in live if not self._under_way(e)}, now)
        # A service that is slower than the rounds: do not pile up.
        entries = [e for e in live if not self._calls[e.injection.link.through]]
        self._asked = {key: asked for key, asked in self._asked.items() if key in known}
        last_chance = {e.injection.key for e in reconcile.to_settle(entries, now, every * 1.5)}
        settle = [entry for entry in entries if entry.injection.key in last_chance]
        asked = [e for e in entries if e.injection.key not in last_chance and not self._under_way(e)]
        self._observe(asked, exact=False)
        self._observe(settle, exact=True)
        dwell = {e.injection.key: self.dwell.get(e.injection.flow, timedelta(0)) for e in entries}
        bound = self._bound(live, now)
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
        if not aiming.any_hop(self._context, self.hops):
            return set()
        intents = self._context.ledger.entries(State.INTENDED)
        found = aiming.going_on(self._context, [*entries, *intents], self.hops)
        over = {e.injection.key for e in entries if e.expires_at is not None and e.expires_at <= now}
        return (found.bound(now, least) - over) | found.read

    def ending(self) -> bool:
        """Whether files of jobs that were asked to end are not known to be gone, and are ours to delete."""
        some = self._context.ledger.entries(*LIVE, State.ENDED)
        return any(e.end_asked_at is not None and self._known(e) and not self._cleans_up(e) for e in some)

    def once_a_cycle(self, now: datetime) -> None:
        """Look whether ended bytes are gone, and once more for requests that were given up.

        A service may carry a request out later than anybody waits for it.
        """
        self._removals.look(now)
        given_up = [
            entry
            for entry in self._context.ledger.entries(State.WITHDRAWN, since=now - self._look_back)
            if entry.called_at is not None and self._known(entry)
        ]
        self._look_back = LATEST
        self._observe(given_up, exact=False)

    def end(self, entries: Sequence[Entry]) -> None:
        """Ask the services to end rules or jobs, where we may."""
        for service, some in _by_service(entries).items():
            if self._context.identities[service].may_end is False:
                continue
            for part in _parts(some, END_AT_ONCE):
                keys = [entry.injection.key for entry in part]
                self._context.ledger.end_asked(keys, self._context.clock.now())
                self._asked |= {key: (self._asked.get(key, (0, None))[0], None) for key in keys}
                self._context.tell("ending", keys=tuple(keys))
                self._start(partial(_end, self._context.backends[service], part), self._ended, service, sees=False)

    def _observe(self, entries: Sequence[Entry], *, exact: bool) -> None:
        for service, some in _by_service(entries).items():
            backend = self._context.backends[service]
            doubtful = [entry for entry in some if entry.state is State.CALLED]
            certain = [entry for entry in some if entry.state is not State.CALLED]
            for part in [*_parts(certain, OBSERVE_AT_ONCE), *_parts(doubtful, FIND_AT_ONCE)]:

                def then(observations: list[Observation], _service: str, part: Sequence[Entry] = part) -> None:
                    self._seen(part, observations)

                self._start(partial(backend.observe, part, exact=exact), then, service)

    def _seen(self, entries: Sequence[Entry], observations: Sequence[Observation]) -> None:
        context, now = self._context, self._context.clock.now()
        before = {entry.injection.key: entry for entry in entries}
        # The answer to a call may have come after the look began, and then "absent" is older than "accepted".
        states = context.ledger.states(before)
        observations = [seen for seen in observations if states[seen.key] is before[seen.key].state]
        observations = [stalled.told(before[seen.key], seen, now) for seen in observations]
        context.ledger.observe(observations, now)
        self._end_stalled(before, observations, now)
        for entry in (before[seen.key] for seen in observations if seen.present and not before[seen.key].present):
            item, destination = entry.injection.item.name, entry.injection.link.destination
            why = "files of it were at the destination already"
            context.ledger.quarantine(item, destination, why, now, until=now + SET_ASIDE)
        self._say_what_failed(before, observations)
        self._set_unfit_aside(before, observations, now)
        absent = [before[seen.key] for seen in observations if seen.status is Status.ABSENT]
        self._not_carried_out([e for e in absent if reconcile.given_up(e, now, context.settings.call_grace)])
        context.tell("observed", observations=tuple(observations))

    def _end_stalled(
        self, before: Mapping[str, Entry], observations: Sequence[Observation], now: datetime
    ) -> None:
        """Let rules end that do nothing; of what they did before, the bytes are added up first."""
        some = [seen for seen in observations if stalled.is_stalled(before[seen.key], seen, now)]
        for seen in some:
            item, destination = before[seen.key].injection.item.name, before[seen.key].injection.link.destination
            self._context.ledger.quarantine(item, destination, seen.error, now, until=now + SET_ASIDE)
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
            self._context.warn((flow, frozenset(seen.reasons)), f"{flow}: {seen.error}")

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
        until = now + self._context.settings.inventory_age
        with self._context.ledger.together():  # there may be thousands
            for (file, destination), why in sorted(unfit.items()):
                self._context.ledger.quarantine(
                    file, destination, why or "it failed at its source", now, until=until
                )

    def _ended(self, outcomes: list[Outcome], service: str) -> None:
        context, now = self._context, self._context.clock.now()
        context.tell("end-called", keys=tuple(outcome.key for outcome in outcomes))
        done = [outcome.key for outcome in outcomes if outcome.error is None]
        self._ask_again(outcomes, now)
        for outcome in outcomes:
            if isinstance(outcome.error, Permanent):
                log.warning("%s: %s; what cannot be ended is left to its lifetime", service, outcome.error.message)
                break
        for outcome in outcomes:
            if outcome.error is not None:
                context.fail(service, outcome.error)
        context.tell("ended", keys=tuple(done), at=now)

    def _ask_again(self, outcomes: Sequence[Outcome], now: datetime) -> None:
        """Let ends that failed for the moment be asked for again soon; what was accepted is waited for."""
        first = self._context.settings.first_retry
        for outcome in outcomes:
            if isinstance(outcome.error, Temporary):
                times = self._asked.get(outcome.key, (0, None))[0] + 1
                again_at = now + reconcile.backoff(times, outcome.key, first, reconcile.ASK_AGAIN)
                self._asked[outcome.key] = times, again_at

    def _as_asked(self, entry: Entry, now: datetime) -> Entry:
        """Return the entry, as if its end had never been asked for when that failed, or is not known to have left.

        A process that died may have done so between the ledger and the call.
        """
        if entry.end_asked_at is None:
            return entry
        _, again_at = self._asked.get(entry.injection.key, (0, now))
        return entry if again_at is None or again_at > now else replace(entry, end_asked_at=None)

    def _cleans_up(self, entry: Entry) -> bool:
        return self._context.backends[entry.injection.link.through].cleans_up

    def _start(
        self, task: Callable[[], object], done: Callable[..., None], service: str, *, sees: bool = True
    ) -> None:
        self._calls[service] += 1

        def then(result: object, error: ServiceError | None) -> None:
            self._calls[service] -= 1
            if error is not None:
                if sees and service in self._silent:
                    self._silent[service].why = error.message
                self._context.fail(service, error)
                return
            if sees:
                self._heard(service)
            done(result, service)

        # There may be hundreds of them in a round: what is planned and released does not wait behind.
        self._context.calls.start(task, then, f"{service} rounds")

    def _count_rounds(self, services: set[str], now: datetime) -> None:
        """Count the rounds in which nothing was seen of a service; after some of them its links hold."""
        for service in [*self._silent]:
            if service not in services:
                self._heard(service)  # nothing of ours is there to be seen, or a person has to repair it
        for service in sorted(services):
            silence = self._silent.setdefault(service, Silence(now))
            silence.rounds += 1
            if silence.rounds > SILENT_ROUNDS:
                since = f"{silence.since:%Y-%m-%dT%H:%M:%SZ}"
                why = f"nothing has been seen of {service} since {since}: {silence.why}"
                self._context.unobserved(
                    service, Temporary(why, "what was injected goes on; nothing is added to it")
                )

    def _heard(self, service: str) -> None:
        """Note that a service has told how something stands."""
        self._silent.pop(service, None)
        if service in self._context.unseen or service not in self._heard_of:
            self._heard_of.add(service)
            self._context.observed(service)

    def _known(self, entry: Entry) -> bool:
        service = entry.injection.link.through
        return service in self._context.backends and service not in self._context.broken


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
