"""`simulate --policy fixed`: what `grid/fixed_rate.py` chooses goes to the twin's Rucio, and into a ledger.

So it ends with the tables of any simulation. The ledger's rows have no budget, no hold and nothing forgiven, since
nobody plans; why too little was injected is counted beside it, in bytes (`not_injected`).
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from dc_inject.ledger import Ledger
from dc_inject.model import Campaign, Cycle, Dataset, Flow, FlowKey, Injection, naming, rates
from dc_inject.model.errors import MenuError, Problem, ServiceError
from dc_inject.model.ports import Observation, Status
from dc_inject.planning import pace

if TYPE_CHECKING:
    from dc_inject.apps.twin.backend import TwinBackend, TwinClock
    from dc_inject.apps.twin.grid.fixed_rate import FixedRate
    from dc_inject.apps.twin.grid.rucio import Rule
    from dc_inject.apps.twin.grid.world import World

NotInjected = Mapping[FlowKey, Mapping[str, int]]  # bytes, by reason


class FixedRates:
    """All links of a campaign, each at its own pace, and the rules that they made."""

    def __init__(
        self, campaign: Campaign, ledger: Ledger, world: World, backend: TwinBackend, clock: TwinClock
    ) -> None:
        """Take a campaign of rates; raises MenuError for one with goals."""
        goals = [flow for flow in campaign.flows if flow.goal is not None]
        if goals:
            message = f"{goals[0].key} has a goal, and a fixed rate knows none"
            raise MenuError([Problem(goals[0].menu, goals[0].line, message, "simulate it with --policy act")])
        self._campaign, self._ledger, self._world = campaign, ledger, world
        self._backend, self._clock = backend, clock
        self._flows: dict[FlowKey, list[Flow]] = defaultdict(list)
        for flow in campaign.flows:
            self._flows[flow.key].append(flow)
        self._wakes = [(min(flow.start for flow in flows), key) for key, flows in sorted(self._flows.items())]
        heapq.heapify(self._wakes)
        self.not_injected: dict[FlowKey, Counter[str]] = defaultdict(Counter)
        self._links: dict[tuple[FlowKey, str], FixedRate] = {}  # of each menu: the next one begins anew
        self._moving: dict[str, Rule] = {}
        self._complete: dict[str, Rule] = {}
        self._exclusions = tuple(exclusion for menu in campaign.menus for exclusion in menu.exclusions)
        self._sites = rates.site_of(site for menu in campaign.menus for site in menu.sites)

    def run(self, end: datetime) -> None:
        """Inject until then, and wait until all rules have ended."""
        self._ledger.begin(self._clock.now())
        cycle = Cycle.at(self._clock.now(), self._campaign.cycle)
        while cycle.start < end or self._moving or self._complete:
            self._open(cycle, end)
            while self._wakes and self._wakes[0][0] < min(cycle.end, end):
                moment, key = heapq.heappop(self._wakes)
                self._clock.advance(moment)
                took = self._inject(key, cycle)
                heapq.heappush(self._wakes, (moment + took + self._campaign.cycle, key))
            self._clock.advance(cycle.end)
            self._close(cycle)
            cycle = cycle.next

    def _open(self, cycle: Cycle, end: datetime) -> None:
        """Write what links are due in a cycle: their rates, as for any policy."""
        menus = self._campaign.in_force(cycle.start, cycle.end) if cycle.start < end else ()
        flows = [flow for menu in menus for flow in menu.flows]
        exclusions = [exclusion for menu in menus for exclusion in menu.exclusions]
        dues = pace.due(flows, exclusions, self._sites, cycle.start, cycle.end)
        rows = {key: (due.bytes, due.held if due.bytes == 0 else None) for key, due in dues.items()}
        self._ledger.open_cycle(cycle, rows, self._clock.now())

    def _inject(self, key: FlowKey, cycle: Cycle) -> timedelta:
        """Make the rules of one link for one interval; returns how long that takes."""
        from dc_inject.apps.twin.grid import fixed_rate  # noqa: PLC0415  beside what needs numpy

        now = self._clock.now()
        flow = next((candidate for candidate in self._flows[key] if candidate.start <= now < candidate.end), None)
        if flow is None:
            return timedelta(0)
        amount = pace.rate([flow], self._exclusions, self._sites, now)[key] * self._campaign.cycle.total_seconds()
        try:
            if (key, flow.menu) not in self._links:
                lifetime = flow.lifetime_max.total_seconds()
                self._links[key, flow.menu] = fixed_rate.FixedRate(self._datasets(flow), lifetime)
            chosen = self._links[key, flow.menu].choose(amount, self._clock.seconds(now))
            self._submit([self._injection(flow, cycle, dataset, now) for dataset in chosen.datasets], now)
        except ServiceError as error:  # what was chosen is left out for good
            self.not_injected[key][error.message] += round(amount)
            return timedelta(0)
        if chosen.lack is not None:
            self.not_injected[key][chosen.lack] += round(chosen.missing)
        return timedelta(seconds=fixed_rate.WORK * len(chosen.datasets))

    def _datasets(self, flow: Flow) -> Sequence[Dataset]:
        """Return what a source holds, in its order."""
        items = self._backend.inventory(flow.link.source, flow.datasets)
        return [item for item in items if isinstance(item, Dataset)]

    def _injection(self, flow: Flow, cycle: Cycle, dataset: Dataset, now: datetime) -> Injection:
        name = self._campaign.name
        return Injection(
            key=naming.key(name, flow.scenario, cycle.start, flow.link, dataset.name),
            campaign=name,
            cycle=cycle,
            scenario=flow.scenario,
            link=flow.link,
            item=dataset,
            release=now,
            lifetime=flow.lifetime_max,
            activity=flow.activity,
            service_priority=flow.service_priority,
            contact=self._campaign.contact,
        )

    def _submit(self, injections: Sequence[Injection], now: datetime) -> None:
        """Make rules; what is refused is left out for good."""
        outcomes = {outcome.key: outcome for outcome in self._backend.submit(injections)}
        for injection in injections:
            if outcomes[injection.key].error is not None:
                self.not_injected[injection.flow][self._refusal(injection)] += injection.item.bytes
        made = [injection for injection in injections if outcomes[injection.key].error is None]
        if made:
            keys = [injection.key for injection in made]
            with self._ledger.together():
                self._ledger.add_injections(made, now)
                self._ledger.call(keys, now)
                self._ledger.answer([outcomes[key] for key in keys], now, {})
            self._moving |= {key: self._world.rucio.rules[key] for key in keys}

    def _refusal(self, injection: Injection) -> str:
        """Say why Rucio refused a rule: its dataset was at the destination, and whether it was to be deleted."""
        destination = injection.link.destination
        rule = self._world.rucio.there[str(injection.item.id), destination]
        if rule.ended is None:
            return f"Rucio refused datasets for which there was a rule at {destination} already"
        return f"Rucio refused datasets that {destination} had not deleted yet"

    def _close(self, cycle: Cycle) -> None:
        """Write what became of the rules in a cycle."""
        now = self._clock.now()
        over = list(self._over())
        with self._ledger.together():
            self._ledger.observe([seen for seen, _ in over], now)
            self._ledger.ended([seen.key for seen, ended in over if ended], now)
            self._ledger.close_cycle(cycle, now)

    def _over(self) -> Iterator[tuple[Observation, bool]]:
        """Yield how far what moves got, and whether it has ended; what is complete or over leaves its list."""
        for rules in (self._moving, self._complete):
            for key, rule in list(rules.items()):
                self._world.rucio.look(rule)
                whole, ended = rule.completed is not None, rule.ended is not None
                if rules is self._moving or ended:
                    status = Status.COMPLETE if whole else Status.MOVING
                    exact = whole or ended
                    yield Observation(key, status, key, rule.done, rule.failed, rule.arrived, exact), ended
                if ended or (whole and rules is self._moving):
                    del rules[key]
                    if not ended:
                        self._complete[key] = rule
