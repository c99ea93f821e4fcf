"""Observing and ending: a rule or job from the moment it may exist until its service does not have it any more.

What was asked for is *observed* in rounds: it is found by its key if its answer was lost, it gets on, and it is
complete. It is *ended* early when it is complete and has dwelt, when it is stalled, or when a person asks for it;
else it ends with its lifetime. What it leaves at its destination is *deleted* (`deleting.py`).

- How long a lifetime is: `planning/lifetime.py`.
- What each piece of news makes of an entry: `model/transitions.py`.
- How an entry stands, and what to do about it: `planning/reconcile.py`.
- The calls: `observe` and `end` of a back end, such as `backends/rucio/rules.py`.

`Reconciler` is the one way to do this. That an end is asked for is written down before the call leaves, and what
was seen before anything follows on it, so that a process may die between any two steps. `Rounds` drives it in a
run, where calls must not keep the engine waiting: `round` decides what is ended, and `_end_stalled` does for what
is stalled. `Drain` (`ending.py`) drives it for `dc-inject end`, where a person waits for each answer.
`ledger rebuild` makes the same calls (`observing`) for a ledger that does not exist yet.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from dc_inject.engine import second_hops
from dc_inject.engine.calls import Batch, by_service
from dc_inject.engine.context import EngineContext
from dc_inject.engine.deleting import DeletionRounds
from dc_inject.engine.preflight import SET_ASIDE
from dc_inject.model import Entry, Flow, FlowKey, State, transitions, units
from dc_inject.model.errors import Permanent, ServiceError, Temporary
from dc_inject.model.events import EndCalled, Ended, EndRequested, Observed, SetAside
from dc_inject.model.ports import Backend, Observation, Outcome, Status, in_parts
from dc_inject.planning import reconcile
from dc_inject.planning.second_hops import select_second_hops

log = logging.getLogger(__name__)

OBSERVE_AT_ONCE = 200  # as many as bulk calls take
FIND_AT_ONCE = 20  # of those in doubt, for which services may need a call each
END_AT_ONCE = 20
LATEST = timedelta(hours=2)  # how long after its cycle a request that was given up is looked for
AT_FIRST = timedelta(hours=24)  # the same at the start, after a time without observations
MOST_NAMED = 5  # links whose failures are named in the log after one observation; the ledger counts all
SILENT_ROUNDS = 5  # without anything seen of a service, after which its links hold: a cycle's rounds
IN_SERVICE = (State.CALLED, State.LIVE, State.COMPLETE)  # what a service has, or may have

T = TypeVar("T")


class Reconciler:
    """Makes the calls that observe and end entries, and writes down what is asked and what is seen.

    Whoever drives it makes the calls of its batches, in parallel or not, and hands the answers back.
    """

    def __init__(self, context: EngineContext, not_carried_out: Callable[[Sequence[Entry]], None]) -> None:
        """Take what the parts share, and what to do with entries in doubt that were never carried out."""
        self._context = context
        self._not_carried_out = not_carried_out

    def _record(self, entries: Iterable[Entry], observations: Iterable[Observation]) -> list[Observation]:
        """Write down how entries stand, and what follows for the account; returns the observations as written."""
        context, now = self._context, self._context.clock.now()
        before = {entry.injection.key: entry for entry in entries}
        # The answer to a call may have come after the look began, and then "absent" is older than "accepted".
        states = context.ledger.states(before)
        current = [
            reconcile.with_stalled_named(before[observation.key], observation, now)
            for observation in observations
            if states[observation.key] is before[observation.key].state
        ]
        with context.ledger.together():  # what has arrived is reported once
            context.ledger.observe(current, now)
            context.looks.observed(before, current, now)
            context.governor.observed(before, current, now)
        grace = context.settings.call_grace
        lost = [s.key for s in current if reconcile.is_never_carried_out(before[s.key], s, now, grace)]
        self._not_carried_out([before[key] for key in lost])
        return current

    def _ending(self, entries: Iterable[Entry]) -> Iterator[Batch[Entry, list[Outcome]]]:
        """Give the calls that end entries; that it was asked for is written down before each is given."""
        for service, of_service in by_service(entries).items():
            for part in in_parts(of_service, END_AT_ONCE):
                now, keys = self._context.clock.now(), tuple(entry.injection.key for entry in part)
                self._context.ledger.end_asked(keys, now)
                self._context.report(EndRequested(keys))
                requested = [transitions.end_asked(entry, now) for entry in part]
                yield Batch(service, requested, partial(_end, self._context.backends[service], requested))


@dataclass(slots=True)
class Silence:
    """Since when nothing has been seen of a service, in how many rounds, and why."""

    since: datetime
    rounds: int = 0
    why: str = "its answers do not come"


class Rounds(Reconciler):
    """Observes and ends in a run: a round every few minutes, the next one of a service when its calls are back.

    Services have rounds of their own: one that does not answer keeps no other from being observed.
    """

    def __init__(
        self,
        context: EngineContext,
        not_carried_out: Callable[[Sequence[Entry]], None],
        under_way: Callable[[Entry], bool],
    ) -> None:
        """Take what the parts share, and what to do with entries in doubt that were never carried out.

        `under_way` are those whose answer is waited for.
        """
        super().__init__(context, not_carried_out)
        self._deletion = DeletionRounds(context)
        self._under_way = under_way
        self._calls: Counter[str] = Counter()  # of each service's round, not back yet
        self._silent: dict[str, Silence] = {}  # services of which nothing has been seen since
        self._seen: set[str] = set()  # an earlier process may have written that nothing was seen of them
        self._look_back = AT_FIRST
        # Ends asked for by this process: how often they failed in a row, and when to ask again if so.
        self._asked: dict[str, tuple[int, datetime | None]] = {}
        self._dwell: dict[FlowKey, timedelta] = {}
        self._hops: dict[FlowKey, Flow] = {}

    def take_up(self, flows: Sequence[Flow]) -> None:
        """Take over dwell and second hops of changed menus."""
        self._dwell = {flow.key: flow.dwell for flow in flows}
        self._hops = select_second_hops(flows)

    def round(self, now: datetime, every: timedelta) -> None:
        """Observe all that is in a service, and end what is complete."""
        self._deletion.round(now)
        self._context.looks.write(self._context.ledger, now)
        of_service = by_service(self._context.ledger.entries(*IN_SERVICE))
        of_service = {service: entries for service, entries in of_service.items() if self._works(service)}
        in_service = list(chain.from_iterable(of_service.values()))
        under_way = {entry.injection.key for entry in in_service if self._under_way(entry)}
        waited_for = {s for s in of_service if any(e.injection.key not in under_way for e in of_service[s])}
        self._count_rounds(waited_for, now)
        keys = {entry.injection.key for entry in in_service}
        self._asked = {key: requested for key, requested in self._asked.items() if key in keys}
        # A service that is slower than the rounds: do not pile up.
        entries = list(chain.from_iterable(of_service[s] for s in of_service if not self._calls[s]))
        settle = reconcile.select_to_settle(entries, now, every * 1.5)
        elsewhere = under_way.union(entry.injection.key for entry in settle)
        self._observe([entry for entry in entries if entry.injection.key not in elsewhere])
        self._observe(settle, exact=True)
        bound = self._kept_for_second_hops(in_service, now)
        free = [entry for entry in entries if entry.injection.key not in bound] if bound else entries
        due = reconcile.select_to_end(
            [self._as_asked(entry, now) for entry in free],
            now,
            lambda entry: self._dwell.get(entry.injection.flow, timedelta(0)),
            max(reconcile.ASK_AGAIN, 2.5 * every),  # the next round but one has seen what became of it
        )
        paced = reconcile.select_at_pace([e for e in due if not e.injection.link.service.cleans_up], every)
        self.end([e for e in due if e.injection.link.service.cleans_up] + paced)

    def once_a_cycle(self, now: datetime) -> None:
        """Look whether ended bytes are gone, and once more for requests that were given up.

        A service may carry a request out later than anybody waits for it.
        """
        self._deletion.check_cleaned_up(now)
        given_up = [
            entry
            for entry in self._context.ledger.entries(State.WITHDRAWN, since=now - self._look_back)
            if entry.called_at is not None and self._works(entry.injection.link.through)
        ]
        self._look_back = LATEST
        self._observe(given_up)

    def end(self, entries: Iterable[Entry]) -> None:
        """Ask the services to end rules or jobs, where we may."""
        identities = self._context.identities
        able = (e for e in entries if identities[e.injection.link.through].may_end is not False)
        for batch in self._ending(able):
            keys = [entry.injection.key for entry in batch.subjects]
            self._asked |= {key: (self._asked.get(key, (0, None))[0], None) for key in keys}
            self._start(batch, self._ended)

    def ends_are_open(self) -> bool:
        """Whether files of jobs that were asked to end are not known to be gone, and are ours to delete."""
        entries = self._context.ledger.entries(*IN_SERVICE, State.ENDED)
        return any(
            e.end_asked_at and self._works(e.injection.link.through) and not e.injection.link.service.cleans_up
            for e in entries
        )

    # ------------------------------------------------------------------ what was seen

    def _observe(self, entries: Sequence[Entry], *, exact: bool = False) -> None:
        for batch in observing(self._context.backends, entries, exact=exact):
            self._start(batch, self._observed, observes=True)

    def _observed(self, batch: Batch[Entry, list[Observation]], observations: Sequence[Observation]) -> None:
        context, now = self._context, self._context.clock.now()
        if not all(observation.silent for observation in observations):
            self._note_reported(batch.service)
        elif batch.service in self._silent:
            self._silent[batch.service].why = "its answers show nothing of what was injected"
        before = {entry.injection.key: entry for entry in batch.subjects}
        current = self._record(batch.subjects, observations)
        self._end_stalled(before, current, now)
        self._report_moved_by_others(before, current, now)
        self._log_failures(before, current)
        self._set_unfit_aside(before, current, now)
        context.report(Observed(tuple(current)))

    def _report_moved_by_others(
        self, before: Mapping[str, Entry], observations: Sequence[Observation], now: datetime
    ) -> None:
        """Set aside, and log, what others brought to a destination between our last check and our rule."""
        for observation in observations:
            injection = before[observation.key].injection
            if not observation.present or before[observation.key].present:
                continue
            item, destination, size = injection.item.name, injection.link.destination, observation.present
            why = f"others brought {units.format_size(size)} of it to the destination before its rule was made"
            self._context.ledger.quarantine(item, destination, why, now, until=now + SET_ASIDE)
            self._context.report(SetAside(item, destination, why))
            fields = {"item": item, "destination": destination, "bytes": size}
            extra = {"event": "moved-by-others", "fields": fields}
            log.warning("%s to %s: %s; these bytes are not counted", item, destination, why, extra=extra)

    def _end_stalled(
        self, before: Mapping[str, Entry], observations: Sequence[Observation], now: datetime
    ) -> None:
        """Let rules end that do nothing; of what they did before, the bytes are added up first."""
        stalled = [
            observation
            for observation in observations
            if reconcile.is_stalled(before[observation.key], observation, now)
        ]
        for observation in stalled:
            injection = before[observation.key].injection
            until = now + SET_ASIDE
            self._context.ledger.quarantine(
                injection.item.name, injection.link.destination, observation.error, now, until=until
            )
        self._observe(
            [
                before[observation.key]
                for observation in stalled
                if observation.files_done and not observation.exact
            ],
            exact=True,
        )
        ready = [
            self._as_asked(before[observation.key], now)
            for observation in stalled
            if observation.exact or not observation.files_done
        ]
        self.end([e for e in ready if e.end_asked_at is None or e.end_asked_at + reconcile.ASK_AGAIN <= now])

    def _log_failures(self, before: Mapping[str, Entry], observations: Sequence[Observation]) -> None:
        """Name what will not arrive, when it is first seen: the first reason of a flow, and a few flows."""
        failures: dict[FlowKey, Observation] = {}
        for observation in observations:
            entry = before[observation.key]
            over = observation.status in {Status.COMPLETE, Status.ABSENT} and entry.state is State.LIVE
            if over and observation.error and (observation.failed or observation.status is Status.ABSENT):
                failures.setdefault(entry.injection.flow, observation)
        for flow, observation in sorted(failures.items(), key=lambda failure: failure[0])[:MOST_NAMED]:
            self._context.warn((flow, frozenset(observation.reasons)), f"{flow}: {observation.error}")

    def _set_unfit_aside(
        self, before: Mapping[str, Entry], observations: Sequence[Observation], now: datetime
    ) -> None:
        """Take source files that would fail again out of the pool, until the next inventory may have others."""
        unfit = {
            (file, before[observation.key].injection.link.destination): observation.error
            or "it failed at its source"
            for observation in observations
            for file in observation.unfit
            if before[observation.key].state in {State.CALLED, State.LIVE}  # each is named once
        }
        if not unfit:
            return
        until = now + self._context.settings.inventory_age
        with self._context.ledger.together():  # there may be thousands
            for (file, destination), why in sorted(unfit.items()):
                self._context.ledger.quarantine(file, destination, why, now, until=until)

    # ------------------------------------------------------------------ what was ended

    def _ended(self, batch: Batch[Entry, list[Outcome]], outcomes: Sequence[Outcome]) -> None:
        context, now = self._context, self._context.clock.now()
        context.report(EndCalled(tuple(outcome.key for outcome in outcomes)))
        errors = {outcome.key: outcome.error for outcome in outcomes if outcome.error is not None}
        refused = next((error for error in errors.values() if isinstance(error, Permanent)), None)
        if refused is not None:
            log.warning("%s: %s; what cannot be ended is left to its lifetime", batch.service, refused.message)
        for key, error in errors.items():
            if isinstance(error, Temporary):  # what was accepted is waited for
                times = self._asked.get(key, (0, None))[0] + 1
                wait = reconcile.backoff(times, key, context.settings.first_retry, reconcile.ASK_AGAIN)
                self._asked[key] = times, now + wait
            context.fail(batch.service, error)
        context.report(Ended(tuple(outcome.key for outcome in outcomes if outcome.error is None)))

    def _as_asked(self, entry: Entry, now: datetime) -> Entry:
        """Return the entry, as if its end had never been asked for when that failed, or is not known to have left.

        A process that died may have done so between the ledger and the call.
        """
        if entry.end_asked_at is None:
            return entry
        _, again_at = self._asked.get(entry.injection.key, (0, now))
        return entry if again_at is None or again_at > now else entry.changed(end_asked_at=None)

    def _kept_for_second_hops(self, entries: Sequence[Entry], now: datetime) -> set[str]:
        """Return the keys of what may not be ended yet for the sake of a second hop.

        What is about to go on reads from its first copy as well as what is on its way. Such a copy may outlive its
        lifetime, by the time that it takes to cancel what reads from it; nothing else does.
        """
        if not (self._hops or second_hops.find_past_hops(self._context)):
            return set()
        least = {key: hop.lifetime_min for key, hop in self._hops.items() if now < hop.end}
        intents = self._context.ledger.entries(State.INTENDED)
        hops = second_hops.going_on(self._context, [*entries, *intents], self._hops)
        over = {e.injection.key for e in entries if e.expires_at is not None and e.expires_at <= now}
        return (hops.bound(now, least) - over) | hops.read

    # ------------------------------------------------------------------ calls, and services that are silent

    def _start(
        self, batch: Batch[Entry, T], answered: Callable[[Batch[Entry, T], T], None], *, observes: bool = False
    ) -> None:
        service = batch.service
        self._calls[service] += 1

        def then(answer: Any, error: ServiceError | None) -> None:  # noqa: ANN401  as `Calls` hands it over
            self._calls[service] -= 1
            if error is not None:
                if observes and service in self._silent:
                    self._silent[service].why = error.message
                self._context.fail(service, error)
                return
            self._context.answers(service)
            answered(batch, answer)

        # There may be hundreds of them in a round: what is planned and released does not wait behind.
        self._context.calls.start(batch.call, then, f"{service} rounds")

    def _count_rounds(self, services: set[str], now: datetime) -> None:
        """Count the rounds in which nothing was seen of a service; after some of them its links hold."""
        for service in [*self._silent]:
            if service not in services:
                self._note_reported(service)  # nothing of ours is there to be seen, or a person has to repair it
        for service in sorted(services):
            silence = self._silent.setdefault(service, Silence(now))
            silence.rounds += 1
            if silence.rounds > SILENT_ROUNDS:
                since = units.format_time(silence.since)
                why = f"nothing has been seen of {service} since {since}: {silence.why}"
                hint, hold = "what was injected goes on; nothing is added to it", self._context.outage(service)
                self._context.unobserved(service, Temporary(why, hint, hold=hold.value))

    def _note_reported(self, service: str) -> None:
        """Note that a service has reported how something stands."""
        self._silent.pop(service, None)
        if service in self._context.unseen or service not in self._seen:
            self._seen.add(service)
            self._context.observed(service)

    def _works(self, service: str) -> bool:
        """Whether a service is known and not waiting for a person to repair it."""
        return service in self._context.backends and service not in self._context.broken


def observing(
    backends: Mapping[str, Backend],
    entries: Iterable[Entry],
    *,
    exact: bool = False,
    at_once: int = OBSERVE_AT_ONCE,
) -> Iterator[Batch[Entry, list[Observation]]]:
    """Give the calls that observe entries, `at_once` in each: what is in doubt apart, in smaller ones."""
    for service, of_service in by_service(entries).items():
        in_doubt = [entry for entry in of_service if entry.state is State.CALLED]
        accepted = [entry for entry in of_service if entry.state is not State.CALLED]
        for part in [*in_parts(accepted, at_once), *in_parts(in_doubt, min(FIND_AT_ONCE, at_once))]:
            yield Batch(service, part, partial(backends[service].observe, part, exact=exact))


def _end(backend: Backend, entries: Sequence[Entry]) -> list[Outcome]:
    try:
        return backend.end(entries)
    except ServiceError as error:
        return [Outcome(entry.injection.key, error=error) for entry in entries]
