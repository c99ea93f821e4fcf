"""Ending by hand, for `dc-inject end`: complete rules at once, unfinished ones only when asked for, and at a pace.

Ending an incomplete rule cancels its transfers; millions of cancelled transfers at once have jammed FTS. So before
each cancel comes an exact look at what the rule has moved, and between cancels a look at those that are left:
what has become complete meanwhile ends at once, what is gone needs no cancel.

`ManualEnd` drives the `Reconciler` (`reconciler.py`), which makes the calls, and waits for the answers. What is
complete and what is not, it reads from `stage` in `planning/reconcile.py`; how long a rule lives without it, is in
`planning/lifetime.py`.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Protocol, TypeVar, runtime_checkable

from dc_inject.engine.calls import Calls
from dc_inject.engine.deleting import BY_HAND, DeletionByHand
from dc_inject.engine.reconciler import IN_SERVICE, OBSERVE_AT_ONCE, Batch, Reconciler, Record
from dc_inject.ledger import Ledger
from dc_inject.ledger.reading import Reader
from dc_inject.model import Entry, State, transitions
from dc_inject.model.errors import NeedsOperator, ServiceError
from dc_inject.model.goals import SecondHop
from dc_inject.model.ports import Backend, Clock, Executor, Observation, Outcome, Removal, Status
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
Ours = Callable[..., list[Entry]]  # our entries in some states
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RulesByStage:
    """Our rules as a service sees them now, by how far they are (`planning/reconcile.py`)."""

    complete: tuple[Entry, ...]
    unfinished: tuple[Entry, ...]
    overdue: tuple[Entry, ...]
    ending: int
    gone: int
    in_doubt: int


@dataclass(frozen=True, slots=True)
class ToEnd:
    """Which of our rules will be ended: the complete ones, and the `doomed`, whose transfers are cancelled.

    `standing` are our rules by stage, without the complete ones that second hops still read; `spared` is their
    number. `last` is when the last rule was cancelled, perhaps by an earlier process.
    """

    standing: RulesByStage
    doomed: tuple[Entry, ...]
    spared: int
    last: datetime | None

    @property
    def work(self) -> list[Entry]:
        """All that will be ended."""
        return [*self.standing.complete, *self.doomed]


@runtime_checkable
class Tidier(Protocol):
    """A service that leaves folders behind at destinations."""

    def tidy(self, prefix: str, campaign: str) -> ServiceError | None:
        """Delete the empty folders of a campaign of which no job is left; tell what stood in the way."""
        ...


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


class ManualEnd:
    """Ends rules of ours, with the record written before each call and after what is seen of it."""

    def __init__(
        self,
        *,
        backends: Mapping[str, Backend],
        clock: Clock,
        executor: Executor,
        record: Record,
        patience: timedelta = timedelta(minutes=3),
    ) -> None:
        """Take the services, and how long (`patience`) one round of calls may take before it counts as failed.

        The executor needs as many threads as `THREADS`.
        """
        self._backends = backends
        self._clock = clock
        self._calls = Calls(executor, clock)
        self._record = record
        self._patience = patience
        self._reconciler = Reconciler(backends, clock, record)
        self._asked: dict[str, Entry] = {}  # asked to end, and not seen to be gone
        self._gone: set[str] = set()  # seen to be gone

    def observe(self, entries: Sequence[Entry], missed: Missed | None = None) -> RulesByStage:
        """Ask for the state of entries and store it. Raises the ServiceError of a service that does not answer.

        A service that does not know what it had accepted may be wrong for a moment. With `missed`, which is called
        with these entries and the time of the next try, they are observed again once the answer may be believed.
        """
        observations = self._observe(entries)
        again_at = {
            key: observation.again_at
            for key, observation in observations.items()
            if observation.again_at is not None
        }
        unsure = [entry for entry in entries if entry.injection.key in again_at]
        if unsure and missed is not None:
            moment = max(again_at.values())
            missed(unsure, moment)
            self.wait(moment)
            observations |= self._observe(unsure)
        at: dict[Stage, list[Entry]] = defaultdict(list)
        for entry in entries:
            stage, after = self._stage(entry, observations[entry.injection.key])
            at[stage].append(after)
        never = [entry.injection.key for entry in at[Stage.NEVER_CARRIED_OUT]]
        if never:
            self._record.withdraw(never, "the request was lost and not carried out", self._clock.now())
        return RulesByStage(
            complete=tuple(at[Stage.COMPLETE]),
            unfinished=tuple(at[Stage.UNFINISHED]),
            overdue=tuple(at[Stage.OVERDUE]),
            ending=len(at[Stage.ENDING]),
            gone=len(at[Stage.ENDED]) + len(never),
            in_doubt=len(at[Stage.IN_DOUBT]),
        )

    def plan(
        self, entries: Sequence[Entry], ledger: Reader, missed: Missed | None = None, *, cancel: bool
    ) -> ToEnd:
        """Observe entries, and choose those to end: complete and overdue ones, with `cancel` unfinished ones, too.

        Complete first copies stay while second copies read them that are unfinished, and not doomed themselves.
        """
        standing = self.observe(entries, missed)
        doomed = standing.overdue + (standing.unfinished if cancel else ())
        onward = {key for key, (kind, _) in ledger.goals().items() if kind == SecondHop.kind}
        ends = {entry.injection.key for entry in doomed}
        staying = [entry for entry in ledger.entries(*IN_SERVICE) if entry.injection.key not in ends]
        read = second_hops(staying, onward).read
        unread = tuple(entry for entry in standing.complete if entry.injection.key not in read)
        last = max((e.end_asked_at for e in entries if e.end_asked_at and e.state is State.LIVE), default=None)
        return ToEnd(replace(standing, complete=unread), doomed, len(standing.complete) - len(unread), last)

    def carry_out(self, plan: ToEnd, per_hour: float) -> Iterator[Outcome]:
        """End what was planned, unfinished rules at most `per_hour`; give each outcome as it comes."""
        yield from self.end(plan.standing.complete)
        yield from self.cancel(plan.doomed, per_hour, plan.last)

    def look_again(self, ours: Ours, patience: timedelta) -> list[Entry]:
        """Write down what is gone by now; return the rules that were asked to end, and are not gone yet.

        Jobs whose end was asked for are waited for: their files can be deleted only when nothing writes any more.
        Rules are, too, with ever longer pauses, at most for `patience`. Raises ServiceError.
        """

        def asked(*states: State, rules: bool) -> list[Entry]:
            return [e for e in ours(*states) if e.end_asked_at and e.injection.link.service.cleans_up is rules]

        began, pause = self._clock.now(), LOOK_AGAIN
        until_jobs, until_rules = began + JOBS_END_WITHIN, began + min(patience, RULES_END_WITHIN)
        self.observe(ours(*IN_SERVICE))
        while asked(State.LIVE, State.COMPLETE, rules=False) and self._clock.now() < until_jobs:
            self.wait(self._clock.now() + LOOK_AGAIN)
            self.observe(asked(State.LIVE, State.COMPLETE, rules=False))
        while (going := asked(*IN_SERVICE, rules=True)) and self._clock.now() < until_rules:
            self.wait(min(self._clock.now() + pause, until_rules))
            self.observe(going)
            pause *= 2
        return going

    def wait(self, until: datetime) -> None:
        """Let time pass; when the clock is put back meanwhile, the moment moves with it."""
        now = self._clock.now()
        while now < until:
            self._calls.wait(until)
            before, now = now, self._clock.now()
            until -= max(before - now, timedelta(0))

    def end(self, complete: Sequence[Entry]) -> Iterator[Outcome]:
        """End complete rules as fast as the services take them; gives each outcome as it comes."""
        batches = self._reconciler.ending(complete)
        while together := list(islice(batches, BATCHES_AT_ONCE)):
            self._asked |= {entry.injection.key: entry for batch in together for entry in batch.entries}
            for batch, outcomes, error in self._gather(together):
                failed = [Outcome(entry.injection.key, error=error) for entry in batch.entries]
                yield from failed if outcomes is None else outcomes

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
            moment = reconcile.next_cancel(last, now, per_hour)
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

    def known(self, work: Iterable[Entry]) -> tuple[int, int, list[Entry]]:
        """Return how many entries were seen to be gone, how many were asked to end besides, and the others."""
        keys = {entry.injection.key: entry for entry in work}
        asked = keys.keys() & self._asked.keys()
        left = [entry for key, entry in keys.items() if key not in self._gone and key not in asked]
        return len(keys) - len(left) - len(asked), len(asked), left

    def settle(self, within: timedelta) -> None:
        """Write down which of the entries that were asked to end are gone, the last ones first.

        Raises the ServiceError of a service that does not answer in time, after all that is known is written.
        """
        latest = list(islice(reversed(self._asked.values()), BATCHES_AT_ONCE * OBSERVE_AT_ONCE))
        self._observe(latest, at_once=LOOK_AT_ONCE, within=within)

    def remove(
        self, entries: Iterable[Entry], patience: timedelta, waits: Callable[[str, str], None]
    ) -> Iterator[Removal]:
        """Delete the files of ended entries at destinations where no service does; yield each result at once.

        Files that are not gone are asked for again until none at their destination has made progress for
        `patience`; then they are yielded as they are. `waits` is called once with each destination that is waited
        for, and why.
        """
        deletion = DeletionByHand(
            [entry for entry in entries if not entry.injection.link.service.cleans_up],
            self._backends,
            self._calls,
            self._clock,
            patience=patience,
            call_patience=self._patience,
            waits=waits,
        )
        for removals in deletion.removals():
            gone = [removal.key for removal in removals if removal.gone]
            if gone:
                self._record.gone(gone, self._clock.now())
            yield from removals

    def _look_over(self, left: dict[str, Entry]) -> Iterator[Outcome]:
        """Observe some of the entries in `left`: end complete ones, and take them and vanished ones out of `left`.

        Entries that were asked to end are observed too, so that the record shows their progress.
        """
        remaining, asked = (list(islice(entries.values(), OBSERVE_AT_ONCE)) for entries in (left, self._asked))
        try:
            self._observe(asked, at_once=LOOK_AT_ONCE)
            standing = self.observe(remaining)
        except ServiceError as error:
            log.info("cannot check what is left: %s", error.message)
            return  # the next one that is cancelled meets the same, and counts it
        for entry in asked:  # to the back: next time others have their turn
            if self._asked.pop(entry.injection.key, None):
                self._asked[entry.injection.key] = entry
        for entry in remaining:
            del left[entry.injection.key]
        left |= {entry.injection.key: entry for entry in (*standing.overdue, *standing.unfinished)}
        complete = {entry.injection.key for entry in standing.complete}
        over = [e for e in remaining if e.injection.key not in left and e.injection.key not in complete]
        yield from (Outcome(entry.injection.key, entry.external_id) for entry in over)
        yield from self.end(standing.complete)

    def _cancel(self, entry: Entry) -> Outcome:
        key = entry.injection.key
        try:
            observation = self._observe([entry], exact=True)[key]
        except ServiceError as error:
            return Outcome(key, error=error)  # without it the bytes that it moved would be lost for the account
        stage, after = self._stage(entry, observation)
        if stage in {Stage.ENDED, Stage.ENDING}:
            return Outcome(key, entry.external_id)
        return next(self.end([after]))

    def _stage(self, entry: Entry, observation: Observation) -> tuple[Stage, Entry]:
        """Return how far an entry is, and the entry as it stands, after it was seen."""
        now = self._clock.now()
        after = transitions.observed(entry, observation, now)
        return reconcile.stage(after, observation, now, self._patience), after

    def _observe(
        self,
        entries: Sequence[Entry],
        *,
        exact: bool = False,
        at_once: int = OBSERVE_AT_ONCE,
        within: timedelta | None = None,
    ) -> dict[str, Observation]:
        """Return the state of entries, after writing it down. Raises a ServiceError if any got no answer."""
        by_key: dict[str, Observation] = {}
        errors: list[ServiceError] = []
        batches = list(self._reconciler.observing(entries, exact=exact, at_once=at_once))
        for batch, observations, error in self._gather(batches, within):
            before = {entry.injection.key: entry for entry in batch.entries}
            written = self._reconciler.observed(before, observations or [])
            by_key |= {observation.key: observation for observation in written}
            errors += [error] if error else []
        for key, observation in by_key.items():
            if observation.status is Status.ABSENT:
                self._asked.pop(key, None)
                self._gone.add(key)
        for error in errors:
            raise error
        return by_key

    def _gather(
        self, batches: Sequence[Batch[T]], within: timedelta | None = None
    ) -> Iterator[tuple[Batch[T], list[T] | None, ServiceError | None]]:
        """Make calls side by side; give each with its answer, or with why there was none in time."""
        deadline = self._clock.now() + (within or self._patience)
        calls = {number: batch.call for number, batch in enumerate(batches)}
        answers, errors = self._calls.gather(calls, deadline, lambda number: batches[number].service)
        for number, batch in enumerate(batches):
            yield batch, answers.get(number), errors.get(number)
