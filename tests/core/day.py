"""A campaign in which every rule is accepted at once: a day of planning in a second, with its books.

Nothing but `pace.due` and `plan.plan` is at work here. The driver does what the ledger and the services do:
it keeps accounts, and knows what is resident until lifetime and deletion lag have passed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dc_inject.model import (
    Cycle,
    Exclusion,
    Flow,
    FlowKey,
    Held,
    Hold,
    Injection,
    Item,
    Limits,
    Link,
    PoolKey,
    Site,
)
from dc_inject.model.plan import FlowDecision, Plan
from dc_inject.planning import pace
from dc_inject.planning.plan import Account, Demand, Destination, Situation, plan
from tests.core.builders import LENGTH, NO_LIMITS, START

HOUR = timedelta(hours=1)


@dataclass
class Books:
    """What a ledger would say of one flow key."""

    due: list[int] = field(default_factory=list)
    extra: list[int] = field(default_factory=list)  # what overheads add to it
    injected: list[int] = field(default_factory=list)
    forgiven: list[int] = field(default_factory=list)
    held: list[Held | None] = field(default_factory=list)
    saved: list[int] = field(default_factory=list)  # debt that a cycle left by choice
    smallest: list[int] = field(default_factory=list)  # free candidate, after the cycle was carried out
    largest: list[int] = field(default_factory=list)  # dataset chosen in the cycle

    def account(self) -> Account:
        """The totals so far."""
        return Account(sum(self.due), sum(self.injected), sum(self.forgiven), extra=sum(self.extra))


@dataclass
class Day:
    """A campaign and its services; `flows`, `held`, `paused` and `down` may change from cycle to cycle."""

    pools: Mapping[str, Sequence[Item]]  # by source
    flows: Callable[[Cycle], Sequence[Flow]]
    exclusions: Sequence[Exclusion] = ()
    held: Callable[[Cycle, Flow], Held | None] = lambda cycle, flow: None
    paused: Callable[[Cycle, Flow], bool] = lambda cycle, flow: False
    down: Callable[[Cycle], bool] = lambda cycle: False  # nothing is planned: the service is not there
    space: Mapping[str, int] = field(default_factory=dict)
    quota: Mapping[str, int] = field(default_factory=dict)
    lag: timedelta = timedelta(0)
    limits: Limits = NO_LIMITS
    sites: tuple[Site, ...] = ()
    site_of: Mapping[str, str] = field(default_factory=dict)
    turn: Callable[[Sequence[Demand]], Sequence[Demand]] = tuple  # in which order planning sees them
    books: dict[FlowKey, Books] = field(default_factory=lambda: defaultdict(Books))
    injections: list[Injection] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    resident: dict[tuple[str, str], tuple[datetime, int]] = field(default_factory=dict)

    def run(self, cycles: int = 96, start: datetime = START) -> Day:
        """Plan so many cycles and carry out everything."""
        cycle = Cycle.at(start, LENGTH)
        for _ in range(cycles):
            self.step(cycle)
            cycle = cycle.next
        return self

    def step(self, cycle: Cycle) -> None:
        """Plan one cycle and carry it out."""
        self.resident = {pair: kept for pair, kept in self.resident.items() if kept[0] > cycle.start}
        flows = [flow for flow in self.flows(cycle) if flow.start < cycle.end and cycle.start < flow.end]
        dues = pace.due(flows, self.exclusions, self.site_of, cycle.start, cycle.end)
        speaking = pace.select_flows(flows, cycle)
        demands = []
        for key, part in dues.items():
            paused = self.paused(cycle, speaking[key])
            books = self.books[key]
            books.due.append(0 if paused else part.bytes)
            books.extra.append(round(books.due[-1] * speaking[key].overhead))
            demands.append(
                Demand(
                    flow=speaking[key],
                    due=books.due[-1],
                    recent_due=max(books.due[-3:]),
                    account=books.account(),
                    held=Held(Hold.PAUSED)
                    if paused
                    else part.held
                    if not part.bytes
                    else self.held(cycle, speaking[key]),
                    before=books.held[-1].hold if books.held and books.held[-1] else None,
                    saved=books.saved[-1] if books.saved else 0,
                )
            )
        if self.down(cycle):
            for key in dues:
                self._write(key, FlowDecision(key, 0, 0, 0, 0, 0, Held(Hold.API_ERRORS), HOUR, (), 0, 0), 0)
        else:
            self._carry_out(plan(self._situation(cycle, self.turn(demands))), speaking)

    def _situation(self, cycle: Cycle, demands: Sequence[Demand]) -> Situation:
        recent = [i for i in self.injections if i.cycle.start >= cycle.end - HOUR]
        spent: dict[Link, int] = defaultdict(int)
        for injection in recent:
            spent[injection.link] += injection.item.bytes
        there: dict[str, int] = defaultdict(int)
        for (_, rse), (_, size) in self.resident.items():
            there[rse] += size
        return Situation(
            campaign="day",
            contact="me@example.org",
            cycle=cycle,
            now=cycle.start,
            demands=tuple(demands),
            pools={PoolKey(d.flow.link.source, d.flow.datasets): self.pools[d.flow.link.source] for d in demands},
            taken=frozenset(self.resident),
            destinations={
                rse: Destination(
                    space=self.space.get(rse),
                    free=self.space[rse] - there[rse] if rse in self.space else None,
                    quota_left=self.quota[rse] - there[rse] if rse in self.quota else None,
                    deletion_lag=self.lag,
                )
                for rse in {d.flow.link.destination for d in demands}
            },
            sites=self.sites,
            site_of=self.site_of,
            limits=self.limits,
            rules_last_hour=len(recent),
            last_hour=spent,
        )

    def _carry_out(self, made: Plan, speaking: Mapping[FlowKey, Flow]) -> None:
        self.plans.append(made)
        for injection in made.injections:
            pair = injection.item.name, injection.link.destination
            assert pair not in self.resident, f"{pair} exists already"
            self.resident[pair] = injection.release + injection.lifetime + self.lag, injection.item.bytes
            self.injections.append(injection)
        for decision in made.decisions:
            link = speaking[decision.key].link
            free = (i.bytes for i in self.pools[link.source] if (i.name, link.destination) not in self.resident)
            self._write(decision.key, decision, min(free, default=0))

    def _write(self, key: FlowKey, decision: FlowDecision, smallest: int) -> None:
        books = self.books[key]
        sizes = [item.bytes for item in decision.items]
        books.injected.append(sum(sizes))
        books.forgiven.append(decision.forgiven)
        books.held.append(decision.held)
        chosen = decision.held is None or decision.held.hold is Hold.TOO_COARSE
        books.saved.append(max(0, decision.want - decision.forgiven - sum(sizes)) if chosen else 0)
        books.smallest.append(smallest)
        books.largest.append(max(sizes, default=0))
