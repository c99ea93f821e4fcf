"""Submitting a batch: intents whose moment has come go out together, and each answer is written down.

What is planned waits on disk as an intent until its moment of release (`planning/release.py`). Then the first
intents of a link whose moment has come go out together: at most 100 of them, with 2,000 files in all unless one
alone has more (`first_batch`; the limits are in `model/ports.py`). Rucio's back end makes one call of those that
are alike and can share it (`_batches`), FTS's a request for each job. That they are called is written before that
(`Injections.call`), so that a lost answer leaves them in doubt and never makes them twice. How many calls a
service gets at once follows how it answers (`call_limits.py`). What an answer makes of an entry is decided in
`model/transitions.py`; what follows a refusal here: another item in the same cycle, a later try, or none.

Where a destination is nearly full and control acts (`rooms.py`), an intent waits also for room: until what is
there and on its way leaves space for it. What is planned counts on deletions that may come late. Where control
acts, an intent waits until the windows of its link and storages have room for it (`control/`).

The call itself is `submit` of a back end, such as `backends/rucio/rules.py`.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from dc_inject.engine import preflight
from dc_inject.engine.context import EngineContext, Room
from dc_inject.engine.intents import IntentQueue, moment
from dc_inject.model import Bundle, Cycle, Entry, FlowKey, Held, Hold, Injection, State, transitions
from dc_inject.model.errors import LinkRefused, NoSlices, Permanent, ServiceError, Temporary, TryOtherItem
from dc_inject.model.events import Answered, Called, Calling, Refused
from dc_inject.model.ports import FILES_AT_ONCE, INJECTIONS_AT_ONCE, Outcome
from dc_inject.planning import plan
from dc_inject.planning.reconcile import backoff
from dc_inject.planning.release import release_times

log = logging.getLogger(__name__)

WRONG_JOBS = 3  # refused for good, after which a link waits for the next cycle
LOOK_AGAIN = 1 / 30  # of a cycle: how often it is asked whether a window has room
LONGEST_WAIT = timedelta(hours=6)  # of a pair that was refused again and again


class Submitting:
    """The intents of the current cycle: what waits, what is called, what was refused and is replaced."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._waiting = IntentQueue()
        self._called: set[str] = set()  # asked for by this process, and not answered yet
        self._submits: Counter[str] = Counter()  # calls under way, by service
        self._answers: list[tuple[Sequence[Entry], Sequence[Outcome]]] = []  # heard, and not written yet
        self._came_back = False  # whether a service answers again by one of them
        self._cycle: Cycle | None = None
        self._situation: plan.Situation | None = None
        self._budgets: dict[FlowKey, int] = {}
        self._short: set[FlowKey] = set()  # flows that lack an item which another one may replace
        self._replace_at = context.clock.now()
        self._wrong: Counter[FlowKey] = Counter()  # jobs of this cycle that were refused for good
        # Flows that waited for room in this cycle: for what, and how many bytes of ours were there.
        self.without_room: dict[FlowKey, tuple[Room, int]] = {}
        self.withheld: dict[FlowKey, Held] = {}  # flows that waited for a window in this cycle, and why last
        self._look_again: datetime | None = None  # whether windows have room
        self._tries = 0  # of replacing, in a row, for which the services did not answer

    def load(self, cycle: Cycle) -> None:
        """Take the intents of this cycle from the ledger; those of earlier cycles are withdrawn."""
        entries = self._context.ledger.entries(State.INTENDED)
        late = [entry.injection.key for entry in entries if entry.injection.cycle != cycle]
        if late:
            self._context.ledger.withdraw(late, "no injector ran until its cycle ended", self._context.clock.now())
        self._waiting.clear()
        for entry in entries:
            if entry.injection.cycle == cycle:
                self._waiting.put(entry)
        self.spread_overdue()
        if cycle != self._cycle:
            self._cycle, self._situation, self._budgets = cycle, None, {}
            self._short.clear()
            self._wrong.clear()
            self._context.refused.begin_cycle()
            self.without_room.clear()
            self.withheld.clear()
            self._tries, self._replace_at = 0, self._context.clock.now()  # a new cycle, a new chance

    def spread_overdue(self) -> None:
        """After a stop or an outage, let what is overdue go out evenly over the rest of the cycle, not at once.

        What was to go out at the start of its cycle, as recalls are, goes out at once.
        """
        now = self._context.clock.now()
        self._spread(e for e in self._waiting if e.injection.cycle.start < moment(e) < now)

    def _spread(self, entries: Iterable[Entry]) -> None:
        """Let intents go out evenly over the rest of the cycle, none before its moment."""
        in_order = sorted(entries, key=moment)
        if not in_order:
            return
        sizes, cycle = [entry.injection.item.bytes for entry in in_order], in_order[0].injection.cycle
        times = release_times(sizes, cycle, self._context.clock.now())
        for entry, later in zip(in_order, times, strict=True):
            self._waiting.put(entry.changed(not_before=later))

    def planned(self, situation: plan.Situation, budgets: dict[FlowKey, int], short: frozenset[FlowKey]) -> None:
        """Keep what replacements are chosen from, what each flow may have, and which ones lack something."""
        self._situation, self._budgets = situation, budgets
        self._lack(short)

    def next_release(self) -> datetime | None:
        """When the next intent is due to go out, or a replacement to be tried."""
        moments = [self._waiting.next_moment(), self._replace_at if self._short else None, self._look_again]
        return min((at for at in moments if at is not None), default=None)

    def withdraw(self, flows: set[FlowKey] | None, why: str) -> dict[FlowKey, int]:
        """Drop intents that wait (of these flows, or of all), and return their bytes, which stay in the debt."""
        doomed = [e.injection for e in self._waiting if flows is None or e.injection.flow in flows]
        keys = [injection.key for injection in doomed]
        if keys:
            self._context.ledger.withdraw(keys, why, self._context.clock.now())
        dropped: dict[FlowKey, int] = defaultdict(int)
        for injection in doomed:
            self._waiting.take(injection.key)
            dropped[injection.flow] += injection.item.bytes
        return dict(dropped)

    def trim(self, amounts: Mapping[FlowKey, int], why: str) -> dict[FlowKey, int]:
        """Drop the last intents that wait, up to about so many bytes of each flow; the rest is spread again.

        What is dropped is not replaced in this cycle. Returns the bytes that were dropped.
        """
        doomed: dict[FlowKey, list[Entry]] = {}
        for flow, amount in amounts.items():
            left = amount
            waiting = [entry for entry in self._waiting if entry.injection.flow == flow]
            for entry in sorted(waiting, key=moment, reverse=True):
                size = entry.injection.item.bytes
                if 2 * left >= size:  # nearer to the amount with it than without
                    doomed.setdefault(flow, []).append(entry)
                    left -= size
            if flow in self._budgets:
                self._budgets[flow] -= amount
        if keys := [entry.injection.key for entries in doomed.values() for entry in entries]:
            self._context.ledger.withdraw(keys, why, self._context.clock.now())
        for key in keys:
            self._waiting.take(key)
        for flow in doomed:
            self._spread([entry for entry in self._waiting if entry.injection.flow == flow])
        return {flow: sum(e.injection.item.bytes for e in entries) for flow, entries in doomed.items()}

    def send(self, now: datetime) -> None:
        """Call the services for intents whose moment has come: those of a link together."""
        if self._short and now >= self._replace_at:
            self._replace(now)
        batches = self._next_batches(now)
        if not batches:
            return  # an answer wakes us
        keys = [entry.injection.key for together in batches for entry in together]
        called = frozenset(self._context.ledger.call(keys, now))
        for key in keys:
            self._waiting.take(key)
        self._context.report(Calling(tuple(called)))
        released = [entry for together in batches for entry in together if entry.injection.key in called]
        self._context.governor.released(released, now)
        for together in batches:
            if batch := [transitions.called(e, now) for e in together if e.injection.key in called]:
                self._call(batch)

    def _next_batches(self, now: datetime) -> list[list[Entry]]:
        """Return what may go out: as much as may be under way at once, and as each service bears."""
        context, ready = self._context, self._waiting.ready(now)
        free = max(context.settings.submits_at_once - self._submits.total(), 0)
        rooms: dict[str, int] = {}
        spaces: dict[str, int] = {}
        batches: list[list[Entry]] = []
        self._look_again = None
        context.governor.turn(now)
        for flow in ready:
            service = flow.link.through
            if service in context.broken or context.refused.waits(flow, now):
                continue
            entries = self._with_room(flow, ready[flow], spaces)
            if not entries:
                continue
            if service not in rooms:
                at_once = context.limit(service).whole - self._submits[service]
                rooms[service] = context.breaker(service).room(now, max(min(free, at_once), 0))
            if len(batches) < free and rooms[service] > 0:
                batch = self._in_window(flow, first_batch(entries), now)
                rooms[service] -= bool(batch)
                batches += [batch] if batch else []
            elif context.breaker(service).open and flow not in context.troubles:
                context.trouble(flow, Hold.API_ERRORS, f"{service} does not answer")
        return batches

    def _with_room(self, flow: FlowKey, entries: dict[str, Entry], spaces: dict[str, int]) -> dict[str, Entry]:
        """Return the first of these for which there is room at their destination: all, where none is waited for.

        `spaces` are the bytes that are left at destinations, less what is returned.
        """
        room, place = self._context.rooms.get(flow), flow.link.destination
        if room is None:
            return entries
        if place not in spaces:
            waiting = sum(e.injection.item.bytes for e in self._waiting if e.injection.link.destination == place)
            spaces[place] = room.bytes - self._context.ledger.resident().get(place, 0) + waiting
        left = spaces[place]
        fitting: dict[str, Entry] = {}
        for key, entry in entries.items():
            spaces[place] -= entry.injection.item.bytes
            if spaces[place] < 0:
                self.without_room[flow] = room, room.bytes - left
                break
            fitting[key] = entry
        return fitting

    def _in_window(self, flow: FlowKey, entries: Iterable[Entry], now: datetime) -> list[Entry]:
        """Return the first of these for which windows have room."""
        fitting: list[Entry] = []
        self.withheld.pop(flow, None)
        for entry in entries:
            held = self._context.governor.withheld(entry, now)
            if held is not None:
                self.withheld[flow] = held
                self._look_again = now + entry.injection.cycle.length * LOOK_AGAIN
                break
            fitting.append(entry)
        return fitting

    def _call(self, entries: Sequence[Entry]) -> None:
        injections = [entry.injection for entry in entries]
        backend = self._context.backends[injections[0].link.through]
        self._called |= {injection.key for injection in injections}
        self._submits[backend.name] += 1
        began = self._context.clock.now()
        self._context.breaker(backend.name).called()
        self._context.refused.called(injections[0].flow, injections[0].cycle, began)

        def then(outcomes: list[Outcome] | None, error: ServiceError | None) -> None:
            under_way = self._submits[backend.name]
            self._submits[backend.name] -= 1
            self._context.report(Called(tuple(i.key for i in injections)))
            by_key = {outcome.key: outcome for outcome in outcomes or ()}
            silent = error or Temporary("the service did not report what became of it", lost=True)
            answers = [by_key.get(i.key) or Outcome(i.key, error=silent) for i in injections]
            errors = [answer.error for answer in answers]
            # That a service did not work shows when it worked for none of a batch.
            came_back = self._context.answered(backend.name, None if None in errors else errors[0])
            self._context.paced(backend.name, self._context.clock.now() - began, len(answers), under_way, errors)
            if not self._answers:
                self._context.calls.afterwards(self._write_answers)
            self._answers.append((entries, answers))
            self._came_back |= came_back

        self._context.calls.start(partial(backend.submit, injections), then, backend.name)

    def _write_answers(self) -> None:
        """Write down what services answered to the calls that came back together, in one transaction.

        Then decide what follows on each error.
        """
        context, now = self._context, self._context.clock.now()
        answers, self._answers = self._answers, []
        came_back, self._came_back = self._came_back, False
        entries = {entry.injection.key: entry for called, _ in answers for entry in called}
        self._called -= entries.keys()
        self._note_refused(answers, now)
        outcomes = [outcome for _, of_call in answers for outcome in of_call]
        first = context.settings.first_retry
        retry_at = {
            outcome.key: now
            + (
                self._context.refused.left(entries[outcome.key].injection.flow, now)
                if isinstance(outcome.error, LinkRefused)
                else backoff(entries[outcome.key].attempt, outcome.key, first)
            )
            for outcome in outcomes
            if outcome.error is not None
        }
        context.ledger.answer(outcomes, now, retry_at)
        for called, of_call in answers:
            for outcome in of_call:
                if outcome.error is not None:
                    entry = entries[outcome.key]
                    self._refused(entry.injection, outcome.error, now)
                    self._wait_again(self._answered(entry, outcome, now, retry_at[outcome.key]))
            context.report(Answered(called[0].injection.link.through, tuple(of_call)))
        if came_back:
            self.spread_overdue()
        if context.alone:
            context.alone.refuse_adopted(context.ledger, entries, outcomes)

    def _note_refused(self, answers: Iterable[tuple[Sequence[Entry], Sequence[Outcome]]], now: datetime) -> None:
        """Let links wait of which something was refused; what waited goes out evenly once they are taken again."""
        for called, outcomes in answers:
            injection = called[0].injection
            if any(isinstance(outcome.error, LinkRefused) for outcome in outcomes):
                self._context.refused.refused(injection.flow, injection.cycle, now)
            elif any(outcome.error is None for outcome in outcomes) and self._context.refused.accepted(
                injection.flow
            ):
                waiting = [entry for entry in self._waiting if entry.injection.flow == injection.flow]
                self._spread([entry for entry in waiting if moment(entry) < now])

    def _refused(self, injection: Injection, error: ServiceError, now: datetime) -> None:
        item, destination = injection.item.name, injection.link.destination
        match error:
            case TryOtherItem() | Permanent() if isinstance(injection.item, Bundle):
                self._refused_bundle(injection, error)
            case NoSlices():
                self._context.no_slices(injection.flow, error)
                self.withdraw({injection.flow}, error.message)
                self._short.add(injection.flow)
            case TryOtherItem():
                # At least a cycle, then growing: what is refused for replicas in deletion is refused for long.
                times = self._context.ledger.times_set_aside(item, destination) + 1
                wait = backoff(times, injection.key, 2 * injection.cycle.length, LONGEST_WAIT)
                self._context.ledger.quarantine(item, destination, error.message, now, until=now + wait)
                self._short.add(injection.flow)
            case Permanent():
                self._context.ledger.quarantine(item, destination, error.message, now)
                self._context.trouble(injection.flow, Hold.QUARANTINED, error.message)
                self._short.add(injection.flow)
                values = {"item": item, "destination": destination, "why": error.message}
                log.warning(
                    "%s will not go to %s: %s", *values.values(), extra={"event": "refused", "fields": values}
                )
            case _:
                self._context.fail(injection.link.through, error, [injection.flow])
                return
        self._context.report(Refused(injection.link.through, error.kind))

    def _refused_bundle(self, injection: Injection, error: ServiceError) -> None:
        """Leave a job that FTS does not want: it is the request that is wrong, so another one would be too.

        Its bytes stay in the debt. After a few of them the link waits for the next cycle.
        """
        self._context.trouble(injection.flow, Hold.QUARANTINED, error.message)
        self._wrong[injection.flow] += 1
        if self._wrong[injection.flow] == 1:
            log.warning("%s refuses jobs of %s: %s", injection.link.through, injection.flow, error.message)
        if self._wrong[injection.flow] >= WRONG_JOBS:
            self.withdraw({injection.flow}, f"jobs of this link are refused: {error.message}")

    def _wait_again(self, entry: Entry) -> None:
        """Let an entry wait again that is intended again after its call; not in a later cycle."""
        if entry.state is not State.INTENDED:
            return
        if entry.injection.cycle == self._cycle:
            self._waiting.put(entry)
        else:
            why = "its cycle ended before the service answered"
            self._context.ledger.withdraw([entry.injection.key], why, self._context.clock.now())

    def under_way(self, entry: Entry) -> bool:
        """Whether the call for an entry is under way, and may well be answered: it need not be looked for."""
        if entry.state is not State.CALLED or entry.injection.key not in self._called:
            return False
        now, grace = self._context.clock.now(), self._context.settings.call_grace
        return entry.called_at is not None and entry.called_at + grace > now

    def not_carried_out(self, entries: Sequence[Entry]) -> None:
        """Take back entries in doubt that the service does not know: again in this cycle, else withdrawn.

        A call of ours that is still under way may yet be carried out: it is left alone.
        """
        now = self._context.clock.now()
        entries = [entry for entry in entries if entry.injection.key not in self._called]
        if not entries:
            return
        error = Temporary("the request was lost and not carried out")
        outcomes = [Outcome(entry.injection.key, error=error) for entry in entries]
        self._context.ledger.answer(outcomes, now, {entry.injection.key: now for entry in entries})
        for entry, outcome in zip(entries, outcomes, strict=True):
            self._wait_again(self._answered(entry, outcome, now, now))

    def _answered(self, entry: Entry, outcome: Outcome, now: datetime, retry_at: datetime) -> Entry:
        """Return an entry after an answer that is an error; what was not taken is not in flight."""
        after = transitions.answered(entry, outcome, now, retry_at)
        if entry.state is State.CALLED and after.state is not State.CALLED:
            self._context.governor.returned(entry)
        return after

    def _replace(self, now: datetime) -> None:
        """Take another item for each refusal, in the same cycle."""
        flows, self._short = self._short, set()
        cycle, situation, ledger = self._cycle, self._situation, self._context.ledger
        if cycle is None or situation is None or now >= cycle.end:
            return  # planned by an earlier process: the debt makes it up in the next cycle
        entries = ledger.entries(cycle=cycle)
        standing = [e.injection for e in entries if e.state not in {State.REFUSED, State.WITHDRAWN}]
        refused = sum(entry.state is State.REFUSED for entry in entries)  # they were calls, too
        room = {flow: self._budgets[flow] for flow in flows if flow in self._budgets}
        for injection in standing:
            if injection.flow in room:
                room[injection.flow] -= injection.item.bytes
        taken, leaving = frozenset(ledger.taken(now)), frozenset(ledger.leaving())
        rules = situation.rules_last_hour + refused
        once_only = frozenset(ledger.once_only())
        situation = replace(
            situation, now=now, taken=taken, leaving=leaving, once_only=once_only, rules_last_hour=rules
        )
        situation = replace(situation, demands=self._context.with_slices(situation.demands))
        deadline = now + min(self._context.settings.planning_part * cycle.length, cycle.end - now)
        replacements = self._context.planner.refill(situation, room, standing)
        chosen, unseen = preflight.replace_unusable(
            self._context, situation, replacements, room, deadline, standing
        )
        self._tries = self._tries + 1 if unseen else 0
        self._lack(unseen)
        self.add(chosen)

    def _lack(self, flows: frozenset[FlowKey]) -> None:
        """Try again soon to choose for flows whose candidates could not be looked at."""
        self._short |= flows
        wait = backoff(self._tries, "replace", self._context.settings.first_retry) if flows else timedelta(0)
        if self._cycle is not None:
            wait = min(wait, self._cycle.length / 10)  # or what is lacking would lack for the whole cycle
        self._replace_at = self._context.clock.now() + wait

    def add(self, injections: Sequence[Injection]) -> None:
        """Put more intents of this cycle on disk, and let them wait for their release."""
        self._context.ledger.add_injections(injections, self._context.clock.now())
        for injection in injections:
            self._waiting.put(Entry(injection, State.INTENDED))


def first_batch(entries: dict[str, Entry]) -> list[Entry]:
    """Return the first of these that go out in one call: few files together, unless one alone has more."""
    batch: list[Entry] = []
    files = 0
    for entry in entries.values():
        files += entry.injection.item.files
        if batch and (files > FILES_AT_ONCE or len(batch) == INJECTIONS_AT_ONCE):
            break
        batch.append(entry)
    return batch
