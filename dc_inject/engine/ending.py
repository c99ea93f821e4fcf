"""Ending by hand, for `dc-inject end`: complete rules at once, unfinished ones only when asked for, and at a pace.

Ending an incomplete rule cancels its transfers; millions of cancelled transfers at once have jammed FTS. So before
each cancel comes an exact look at what the rule has moved, and between cancels a look at those that are left:
what has become complete meanwhile ends at once, what is gone needs no cancel.

`Drain` is a `Reconciler` (`reconciler.py`), as `Rounds` in a run is, but one that waits for each answer. What is
complete and what is not, it reads from `stage` in `planning/reconcile.py`; how long a rule lives without it, is in
`planning/lifetime.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from operator import itemgetter
from typing import Protocol, runtime_checkable

from dc_inject.engine.calls import Calls
from dc_inject.engine.context import EngineContext, Settings
from dc_inject.engine.deleting import BY_HAND, DeletionByHand
from dc_inject.engine.reconciler import IN_SERVICE, OBSERVE_AT_ONCE, Reconciler, observing
from dc_inject.ledger import Ledger
from dc_inject.model import Entry, FlowKey, State
from dc_inject.model.errors import NeedsOperator, ServiceError
from dc_inject.model.events import Silent
from dc_inject.model.goals import SecondHop
from dc_inject.model.groups import grouped
from dc_inject.model.ports import Backend, Clock, Executor, Outcome, Removal
from dc_inject.planning import reconcile
from dc_inject.planning.reconcile import Stage
from dc_inject.planning.second_hops import second_hops

log = logging.getLogger(__name__)

LOOK_AT_ONCE = 25  # while it cancels: rules that are gone are asked for one by one, so many calls side by side
LOOK_EVERY = timedelta(seconds=30)
LOOK_SHARE = 4  # a look that takes long is followed by so many times as much cancelling
BATCHES_AT_ONCE = 8
THREADS = BY_HAND.calls
JOBS_END_WITHIN = timedelta(minutes=1)
RULES_END_WITHIN = timedelta(seconds=90)  # Rucio's daemon that deletes rules passes once a minute by default
LOOK_AGAIN = timedelta(seconds=1)
GIVE_UP_AFTER = 5  # failures in a row: the service does not work now, the rest is for another time

Missed = Callable[[Sequence[Entry], datetime], None]


@dataclass(frozen=True, slots=True)
class ToEnd:
    """Our rules by stage (`planning/reconcile.py`), as their services see them now, and which of them will end.

    `complete` ones end at once, and the `doomed` at a pace, because that cancels their transfers. `spared` is the
    number of complete rules that second hops still read. `last` is when the last rule was cancelled, perhaps by an
    earlier process.
    """

    complete: Sequence[Entry]
    unfinished: Sequence[Entry]
    overdue: Sequence[Entry]
    ending: int
    gone: int
    in_doubt: int
    doomed: Sequence[Entry]
    spared: int
    last: datetime | None

    @property
    def work(self) -> list[Entry]:
        """All that will be ended."""
        return [*self.complete, *self.doomed]


@runtime_checkable
class Tidier(Protocol):
    """A service that leaves folders behind at destinations."""

    def tidy(self, prefix: str, campaign: str) -> ServiceError | None:
        """Delete the empty folders of a campaign of which no job is left; return what stood in the way."""


def tidy(ledger: Ledger, campaign: str, backends: Mapping[str, Backend]) -> Iterator[tuple[str, ServiceError]]:
    """Delete the empty folders of a campaign of which nothing is left; give destinations where some stay, and why.

    Those that stay hold no bytes.
    """
    unfinished = ledger.entries(State.CALLED, State.LIVE, State.COMPLETE, State.ENDED)
    if any(not entry.injection.link.service.cleans_up for entry in unfinished):
        return  # FTS makes folders for it, and they are empty before a file comes
    for service, destination in sorted({(flow.link.through, flow.link.destination) for flow in ledger.accounts()}):
        backend = backends[service]
        if isinstance(backend, Tidier) and (error := backend.tidy(destination, campaign)):
            yield destination, error


def files_left(entries: Iterable[Entry]) -> int:
    """Return how many files have not arrived: what cancelling would cancel."""
    return sum(entry.injection.item.files - entry.files_done for entry in entries)


class Drain(Reconciler):
    """Ends and deletes what a campaign has, with nothing due, while a person waits for each answer.

    How things stand, it reads from the ledger after each look, so that another process can go on from any point.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        backends: Mapping[str, Backend],
        clock: Clock,
        executor: Executor,
        covers: Callable[[FlowKey], bool] = lambda _flow: True,
        patience: timedelta = timedelta(minutes=3),
    ) -> None:
        """Take the ledger and its services, and which flows it is about (`covers`).

        `patience` is how long one round of calls may take before it counts as failed. The executor needs as many
        threads as `THREADS`.
        """
        super().__init__(
            EngineContext(
                campaign_name=ledger.campaign or "",
                ledger=ledger,
                backends=backends,
                identities={},
                clock=clock,
                calls=Calls(executor, clock),
                observer=Silent(),
                settings=Settings(call_grace=patience),
            ),
            self._withdraw,
        )
        self._covers = covers

    def ours(self, *states: State) -> list[Entry]:
        """Return the entries in these states that it is about."""
        return [e for e in self._context.ledger.entries(*states) if self._covers(e.injection.flow)]

    def look(
        self,
        entries: Sequence[Entry],
        *,
        exact: bool = False,
        at_once: int = OBSERVE_AT_ONCE,
        within: timedelta | None = None,
    ) -> dict[str, datetime]:
        """Observe entries, and write down how they stand.

        A service that does not know what it had accepted may be wrong for a moment: returns the keys of such
        entries, with the time from which on the answer may be believed. Raises the ServiceError of a service that
        does not answer, after all that is known is written.
        """
        unsure: dict[str, datetime] = {}
        batches = list(observing(self._context.backends, entries, exact=exact, at_once=at_once))
        deadline = self._clock.now() + (within or self._context.settings.call_grace)
        answers, errors = self._context.calls.gather(batches, deadline)
        for batch, observations in answers:
            seen = self._record(batch.subjects, observations)
            unsure |= {one.key: one.again_at for one in seen if one.again_at is not None}
        for _, error in errors:
            raise error
        return unsure

    def plan(self, missed: Missed, *, cancel: bool) -> ToEnd:
        """Observe our rules, and choose those to end: complete and overdue ones; with `cancel`, unfinished ones.

        Complete first copies stay while second copies read them that are unfinished, and not doomed themselves.
        `missed` is called with the rules that a service does not know for the moment, and the time of the next
        look. Raises the ServiceError of a service that does not answer.
        """
        ledger, entries = self._context.ledger, self.ours(*IN_SERVICE)
        last = max((e.end_asked_at for e in entries if e.end_asked_at and e.state is State.LIVE), default=None)
        if unsure := self.look(entries):
            missing, moment = [e for e in entries if e.injection.key in unsure], max(unsure.values())
            missed(missing, moment)
            self.wait(moment)
            self.look(missing)
        at = grouped((self._stage(entry), entry) for entry in self.ours(*IN_SERVICE))
        doomed = at[Stage.OVERDUE] + (at[Stage.UNFINISHED] if cancel else [])
        ends = {entry.injection.key for entry in doomed}
        onward = {key for key, (kind, _) in ledger.goals().items() if kind == SecondHop.kind}
        staying = [entry for entry in ledger.entries(*IN_SERVICE) if entry.injection.key not in ends]
        read = second_hops(staying, onward).read
        unread = [entry for entry in at[Stage.COMPLETE] if entry.injection.key not in read]
        return ToEnd(
            complete=unread,
            unfinished=at[Stage.UNFINISHED],
            overdue=at[Stage.OVERDUE],
            ending=len(at[Stage.ENDING]),
            gone=len(entries) - sum(map(len, at.values())),
            in_doubt=len(at[Stage.IN_DOUBT]),
            doomed=doomed,
            spared=len(at[Stage.COMPLETE]) - len(unread),
            last=last,
        )

    def carry_out(self, plan: ToEnd, per_hour: float) -> Iterator[Outcome]:
        """End what was planned; give each outcome as it comes.

        Complete rules end as fast as the services take them. The others end one by one, at most `per_hour`, each
        with a last look at what it has moved. Now and then those left are looked at again, and what has become
        complete ends at once. It stops early when the service does not work.
        """
        yield from self._end(plan.complete)
        left = {entry.injection.key: entry for entry in plan.doomed}
        last, looked, pause, failures = plan.last, self._clock.now(), LOOK_EVERY, 0
        while left:
            now = self._clock.now()
            last, looked = last and min(last, now), min(looked, now)
            moment = reconcile.compute_next_cancel(last, now, per_hour)
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

    def look_again(self, patience: timedelta) -> list[Entry]:
        """Write down what is gone by now; return the rules that were asked to end, and are not gone yet.

        Jobs whose end was asked for are waited for: their files can be deleted only when nothing writes any more.
        Rules are, too, with ever longer pauses, at most for `patience`. Raises ServiceError.
        """

        def asked(*states: State, rules: bool) -> list[Entry]:
            entries = (entry for entry in self.ours(*states) if entry.end_asked_at)
            return [entry for entry in entries if entry.injection.link.service.cleans_up is rules]

        began, pause = self._clock.now(), LOOK_AGAIN
        until_jobs, until_rules = began + JOBS_END_WITHIN, began + min(patience, RULES_END_WITHIN)
        self.look(self.ours(*IN_SERVICE))
        while asked(State.LIVE, State.COMPLETE, rules=False) and self._clock.now() < until_jobs:
            self.wait(self._clock.now() + LOOK_AGAIN)
            self.look(asked(State.LIVE, State.COMPLETE, rules=False))
        while (going := asked(*IN_SERVICE, rules=True)) and self._clock.now() < until_rules:
            self.wait(min(self._clock.now() + pause, until_rules))
            self.look(going)
            pause *= 2
        return going

    def settle(self, within: timedelta) -> None:
        """Write down which of the rules that were asked to end are gone, the last ones first.

        Raises the ServiceError of a service that does not answer in time, after all that is known is written.
        """
        asked = [(entry.end_asked_at, entry) for entry in self.ours(*IN_SERVICE) if entry.end_asked_at]
        asked.sort(key=itemgetter(0), reverse=True)
        latest = [entry for _, entry in asked[: BATCHES_AT_ONCE * OBSERVE_AT_ONCE]]
        self.look(latest, at_once=LOOK_AT_ONCE, within=within)

    def remove(
        self, entries: Iterable[Entry], patience: timedelta, waits: Callable[[str, str], None]
    ) -> Iterator[Removal]:
        """Delete the files of ended entries at destinations where no service does; yield each result at once.

        Files that are not gone are asked for again until none at their destination has made progress for
        `patience`; then they are yielded as they are. `waits` is called once with each destination that is waited
        for, and why.
        """
        deletion = DeletionByHand(self._context, entries, patience, waits)
        for removals in deletion.removals():
            yield from removals

    def wait(self, until: datetime) -> None:
        """Let time pass; when the clock is put back meanwhile, the moment moves with it."""
        now = self._clock.now()
        while now < until:
            self._context.calls.wait(until)
            before, now = now, self._clock.now()
            until -= max(before - now, timedelta(0))

    @property
    def _clock(self) -> Clock:
        return self._context.clock

    def _end(self, complete: Sequence[Entry]) -> Iterator[Outcome]:
        batches = self._ending(complete)
        while together := list(islice(batches, BATCHES_AT_ONCE)):
            deadline = self._clock.now() + self._context.settings.call_grace
            answers, errors = self._context.calls.gather(together, deadline)
            for _, outcomes in answers:
                yield from outcomes
            for batch, error in errors:
                yield from (Outcome(entry.injection.key, error=error) for entry in batch.subjects)

    def _look_over(self, left: dict[str, Entry]) -> Iterator[Outcome]:
        """Observe some of the entries in `left`: end complete ones, and take them and vanished ones out of `left`.

        Entries that were asked to end are observed too, so that the record shows their progress.
        """
        current = self._in_service()
        asked = [entry for key, entry in current.items() if entry.end_asked_at and key not in left]
        asked.sort(key=lambda entry: entry.observed_at or entry.injection.release)
        looked = {key: left[key] for key in islice(left, OBSERVE_AT_ONCE)}
        try:
            self.look(asked[:OBSERVE_AT_ONCE], at_once=LOOK_AT_ONCE)
            self.look([current[key] for key in looked if key in current])
        except ServiceError as error:
            log.info("cannot check what is left: %s", error.message)
            return  # the next one that is cancelled meets the same, and counts it
        current, complete = self._in_service(), []
        for key, before in looked.items():
            del left[key]
            stage = self._stage(entry) if (entry := current.get(key)) else Stage.ENDED
            if entry is not None and stage in {Stage.UNFINISHED, Stage.OVERDUE}:
                left[key] = entry  # to the back: next time others have their turn
            elif entry is not None and stage is Stage.COMPLETE:
                complete.append(entry)
            else:
                yield Outcome(key, before.external_id)
        yield from self._end(complete)

    def _cancel(self, entry: Entry) -> Outcome:
        key = entry.injection.key
        try:
            self.look([self._context.ledger.entry(key)], exact=True)
        except ServiceError as error:
            return Outcome(key, error=error)  # without it the bytes that it moved would be lost for the account
        after = self._context.ledger.entry(key)
        if self._stage(after) in {Stage.ENDED, Stage.ENDING}:
            return Outcome(key, entry.external_id)
        return next(self._end([after]))

    def _in_service(self) -> dict[str, Entry]:
        return {entry.injection.key: entry for entry in self.ours(*IN_SERVICE)}

    def _stage(self, entry: Entry) -> Stage:
        return reconcile.stage(entry, self._clock.now())

    def _withdraw(self, entries: Sequence[Entry]) -> None:
        keys = [entry.injection.key for entry in entries]
        self._context.ledger.withdraw(keys, "the request was lost and not carried out", self._clock.now())
