"""Rebuild a ledger from what the services still have: rules and jobs of ours become injections again.

What was due is not known any more. So that nothing is made up and nothing is taken back, each past cycle is
written as if it had been due what was found of it; the cycle in which this happens is the last of them.

A backup knows all until it was made. It is brought to the present in the same way: what the services have and it
does not is added, its open intents are dropped unless they are found, and what it still owes is forgiven, because
it is unknown how much of that was injected since then.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

from dc_inject.engine.calls import Batch, Calls
from dc_inject.engine.reconciler import observing
from dc_inject.ledger import Ledger, failing
from dc_inject.model import (
    Bundle,
    Campaign,
    Cycle,
    Entry,
    File,
    Flow,
    FlowKey,
    Held,
    Hold,
    Injection,
    Item,
    JobOptions,
    State,
    naming,
    transitions,
    urls,
)
from dc_inject.model.errors import LedgerError
from dc_inject.model.goals import SecondHop
from dc_inject.model.items import sized
from dc_inject.model.plan import Plan
from dc_inject.model.ports import (
    Backend,
    Candidate,
    Clock,
    Executor,
    FoundInjection,
    Observation,
    Outcome,
    Status,
    in_parts,
)
from dc_inject.planning import lifetime

AT_ONCE = 200  # datasets that one call asks for
NOT_FOUND = "its service did not have it when the ledger was rebuilt from a backup"

_ACCEPTED = transitions.ALIVE | {State.ENDED, State.GONE}  # a ledger knows that a service has or had it

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was found and written: injections and bytes, how many are complete, and flows that no menu has."""

    injections: int
    bytes: int
    complete: int
    strangers: tuple[FlowKey, ...]


class Rebuilding:
    """Asks the services about what was found, and writes it into a new ledger."""

    def __init__(
        self,
        *,
        campaign: Campaign,
        backends: Mapping[str, Backend],
        clock: Clock,
        executor: Executor,
        patience: timedelta,
    ) -> None:
        """Take the campaign of the menus, the services, and how long (`patience`) a round of calls may take."""
        self._campaign = campaign
        self._backends = backends
        self._clock = clock
        self._calls = Calls(executor, clock)
        self._patience = patience

    def rebuild(self, ledger: Ledger, existing: Sequence[FoundInjection]) -> Rebuilt:
        """Write what services have of ours (`existing`) into a ledger that is bound, and empty or a backup.

        Raises LedgerError for what was made on another grid of cycles, ServiceError if a service does not answer.
        """
        self._observe_again(ledger)
        for origin in {injected.origin for injected in existing} - {None}:
            if origin:
                ledger.started(origin.start, origin.who, self._clock.now())
        states = ledger.states([injected.key for injected in existing])
        existing = [injected for injected in existing if states.get(injected.key) not in _ACCEPTED]
        entries = {injected.key: self._entry(injected) for injected in self._sized(existing)}
        observations = self._observe(entries.values())
        moments = {injected.key: self._seen_at(injected, observations[injected.key]) for injected in existing}
        after = {
            key: transitions.observed(entry, observations[key], moments[key]) for key, entry in entries.items()
        }
        cycles: dict[Cycle, list[Entry]] = {cycle: [] for cycle in self._unfinished(ledger)}
        last = max(cycles, default=None)
        for entry in entries.values():
            cycles.setdefault(entry.injection.cycle, []).append(entry)
        for cycle in sorted(cycles):
            dues: Counter[FlowKey] = Counter()
            for entry in cycles[cycle]:
                dues[entry.injection.flow] += after[entry.injection.key].injected
            with ledger.together():
                self._write(ledger, cycle, dues, cycles[cycle], observations, moments, last=cycle == last)
        failing.remember(ledger, self._clock.now())
        flows = {flow.key for flow in self._campaign.flows}
        return Rebuilt(
            injections=len(entries),
            bytes=sum(entry.injected for entry in after.values()),
            complete=sum(entry.state is State.COMPLETE for entry in after.values()),
            strangers=tuple(sorted({entry.injection.flow for entry in entries.values()} - flows)),
        )

    def _write(
        self,
        ledger: Ledger,
        cycle: Cycle,
        dues: Mapping[FlowKey, int],
        entries: Iterable[Entry],
        observations: Mapping[str, Observation],
        moments: Mapping[str, datetime],
        *,
        last: bool,
    ) -> None:
        """Let a cycle happen once more, with the times at which it did; with the `last` of a backup, settle it."""
        now = self._clock.now()
        owing = ledger.accounts() if last else {}
        ledger.open_cycle(cycle, {flow: (dues.get(flow, 0), None) for flow in {*owing, *dues}}, now)
        for moment, group in groupby(sorted(entries, key=_age), key=_accepted):
            part = list(group)
            keys = [entry.injection.key for entry in part]
            ledger.add_injections([entry.injection for entry in part], moment)
            ledger.call(keys, moment)
            ledger.answer([Outcome(e.injection.key, e.external_id) for e in part], moment, {})
            for key in keys:
                ledger.observe([observations[key]], moments[key])
        ledger.record_plan(Plan(cycle, (), ()), now)
        if last:
            asked = [entry.injection.key for entry in ledger.entries(*transitions.UNASKED)]
            ledger.withdraw(asked, NOT_FOUND, now)
            ledger.forgive(cycle, _debts(ledger))
        gone = Held(Hold.NOT_RUNNING, {"since": cycle.name})
        ledger.close_cycle(cycle, now, dict.fromkeys(ledger.accounts(), gone))

    # ------------------------------------------------------------------ what a backup has

    def _observe_again(self, ledger: Ledger) -> None:
        """Observe what was live when a backup was made: what has ended since makes room for what came after it."""
        entries = [e for e in ledger.entries(*transitions.ALIVE) if e.injection.link.through in self._backends]
        ledger.observe(list(self._observe(entries).values()), self._clock.now())

    def _unfinished(self, ledger: Ledger) -> list[Cycle]:
        """Return the cycles of a backup that are open, and those from its last one to the current one."""
        last, cycles = ledger.last_cycle(), list(ledger.unclosed())
        if last is not None:
            now, slot = self._clock.now(), last.next
            while slot.start <= now:
                cycles.append(slot)
                slot = slot.next
        return cycles

    # ------------------------------------------------------------------ what was found, as a ledger has it

    def _entry(self, injected: FoundInjection) -> Entry:
        """Return what was found as it was when it had just been accepted."""
        cycle, flow = Cycle(injected.cycle, self._campaign.cycle), self._flow(injected)
        if Cycle.at(injected.cycle, cycle.length) != cycle:
            raise LedgerError(
                f"{injected.item} was injected in the cycle {cycle}, which is not one of these menus",
                "use menus with the campaign's cycle length",
            )
        lives = lifetime.estimate_found_lifetime(flow, injected.created_at, injected.expires_at)
        bundled = injected.link.service.takes_files
        injection = Injection(
            key=injected.key,
            campaign=injected.campaign,
            cycle=cycle,
            scenario=injected.scenario,
            link=flow.link if flow else injected.link,
            item=_bundle(injected, flow) if bundled else sized(injected.item, injected.bytes or 0, injected.files),
            release=injected.created_at,
            lifetime=lives,
            activity=flow.activity if flow else "",
            service_priority=flow.service_priority if flow else 3,
            contact=injected.contact or self._campaign.contact,
            job=((flow.job if flow else None) or JobOptions()) if bundled else None,
            once=flow is not None and flow.once,
        )
        return Entry(
            injection,
            State.LIVE,
            injected.external_id,
            accepted_at=injected.created_at,
            expires_at=injected.created_at + lives,
        )

    def _flow(self, injected: FoundInjection) -> Flow | None:
        """Return the flow of the menus that it was injected for; None when they have none.

        A job has its files, but not its link's source: it is the nearest of the prefixes above all of them.
        """
        flows = [flow for flow in self._campaign.flows if flow.scenario == injected.scenario]
        if not injected.sources:
            return next((flow for flow in reversed(flows) if flow.link == injected.link), None)
        fit = [
            flow
            for flow in flows
            if flow.link[1:] == injected.link[1:]
            and all(urls.is_below(flow.link.source, url) for url in injected.sources)
        ]
        return max(fit, key=lambda flow: len(flow.link.source), default=None)

    def _seen_at(self, injected: FoundInjection, observation: Observation) -> datetime:
        """Return when it became what it is: a complete one was that before we looked."""
        now = self._clock.now()
        if observation.status is not Status.COMPLETE or injected.changed_at is None:
            return now
        return min(max(injected.changed_at, injected.created_at), now)

    # ------------------------------------------------------------------ questions

    def _sized(self, existing: Sequence[FoundInjection]) -> list[FoundInjection]:
        """Return the same with sizes: Rucio has none for a rule that it has not begun with."""
        unsized: dict[str, list[Candidate]] = defaultdict(list)
        for injected in existing:
            if injected.bytes is None or not injected.files:
                unsized[injected.link.through].append(_candidate(injected))
        answers = self._ask(
            Batch(service, part, partial(self._backends[service].check_replicas, part))
            for service, candidates in unsized.items()
            for part in in_parts(candidates, AT_ONCE)
        )
        items = {candidate: status.item for answer in answers for candidate, status in answer.items()}
        return [_with_size(injected, items.get(_candidate(injected))) for injected in existing]

    def _observe(self, entries: Iterable[Entry]) -> dict[str, Observation]:
        answers = self._ask(observing(self._backends, entries))
        return {observation.key: observation for answer in answers for observation in answer}

    def _ask(self, batches: Iterable[Batch[Any, A]]) -> list[A]:
        """Make calls side by side; raises the ServiceError of one that failed."""
        calls = list(batches)
        answers, errors = self._calls.gather(calls, self._clock.now() + self._patience * len(calls))
        for _, error in errors:
            raise error
        return [answer for _, answer in answers]


def _bundle(injected: FoundInjection, flow: Flow | None) -> Bundle:
    """Return the files of a job: named where each goes out once, and of copies with the key of their job."""
    members = tuple(File(name, 0) for name in injected.sources) if flow and flow.once else ()
    copy = None
    if flow and isinstance(flow.goal, SecondHop) and injected.sources:
        copy = naming.read_copy(flow.link.source, injected.sources[0])
    return Bundle(str(injected.item), injected.bytes or 0, injected.files, members, copy.key if copy else "")


def _with_size(injected: FoundInjection, item: Item | None) -> FoundInjection:
    return (
        replace(injected, bytes=item.bytes, moving=item.files - injected.done - injected.stuck)
        if item
        else injected
    )


def _candidate(injected: FoundInjection) -> Candidate:
    return Candidate(injected.item, injected.link)


def _debts(ledger: Ledger) -> dict[FlowKey, int]:
    """Return what each link was due and did not get."""
    extras = ledger.extras()
    return {
        key: account.due + extras[key] - account.forgiven - account.injected - account.in_doubt
        for key, account in ledger.accounts().items()
    }


def _accepted(entry: Entry) -> datetime:
    return entry.accepted_at or entry.injection.release


def _age(entry: Entry) -> tuple[datetime, str]:
    return _accepted(entry), entry.injection.key
