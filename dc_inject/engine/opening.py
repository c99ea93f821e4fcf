"""Opening a cycle: dues are written, services are asked, and the plan is made and put on disk."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from dc_inject import overrides, pace, plan, urls
from dc_inject.engine import aiming, choosing
from dc_inject.engine.desk import Desk
from dc_inject.engine.inventories import Inventories
from dc_inject.errors import ServiceError, Temporary
from dc_inject.goal import Onward
from dc_inject.ledger import Pause, Row
from dc_inject.model import (
    Campaign,
    Cycle,
    Flow,
    FlowKey,
    Held,
    Hold,
    Item,
    Limits,
    Link,
    Menu,
    PoolKey,
    RseSpec,
    State,
)
from dc_inject.ports import RseFacts

log = logging.getLogger(__name__)

UNKNOWN_CYCLES = 4  # observed rates are unknown in the first cycles (design 3)
FAILED_CYCLES = 3  # how far back failures count
LAGS_AFTER = timedelta(hours=1)  # since when files have to be deletable no more for a destination to be held
COMPLETION_WINDOW = timedelta(hours=6)
HOUR = timedelta(hours=1)
RSES_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Opened:
    """A plan that is on disk, and what later replacements are chosen from."""

    situation: plan.Situation
    budgets: dict[FlowKey, int]
    unseen: frozenset[FlowKey]  # flows for which nothing could be chosen yet, since a service did not answer


def paused(pauses: Iterable[Pause], flow: FlowKey) -> Pause | None:
    """Return the pause that stops this flow, if there is one: of the campaign, its scenario or its link."""
    return next((p for p in pauses if overrides.covers(p.subject, flow)), None)


class Opening:
    """What happens once per cycle, before anything is released."""

    def __init__(self, desk: Desk) -> None:
        """Take what the engine's parts share."""
        self._desk = desk
        self._inventories = Inventories(desk)

    def dues(self, campaign: Campaign, cycle: Cycle, since: datetime, hold: Held | None = None) -> None:
        """Write what each link is due in this cycle; a pause makes it nothing. Twice is the same as once."""
        menus = campaign.in_force(cycle.start, cycle.end)
        # Of a cycle that was missed: who had paused it then, not now.
        pauses = self._desk.ledger.pauses(None if hold is None else cycle.start)
        dues: dict[FlowKey, tuple[int, Held | None]] = {}
        flows = tuple(flow for menu in menus for flow in menu.flows)
        exclusions = tuple(exclusion for menu in menus for exclusion in menu.exclusions)
        due = pace.due(flows, exclusions, site_of(campaign), cycle.start, cycle.end, since)
        speaking = pace.flows_now(flows, cycle)
        left = aiming.left(self._desk, speaking, exclusions, site_of(campaign), cycle, since)
        for key, part in due.items():
            pause = paused(pauses, key)
            if pause is not None:
                dues[key] = 0, Held(Hold.PAUSED, {"by": pause.who, **({"why": pause.why} if pause.why else {})})
            else:
                amount = left[key](part.bytes) if key in left else part.bytes
                dues[key] = amount, hold or (part.held if part.bytes == 0 else None)
        extras = {key: round(amount * speaking[key].overhead) for key, (amount, _) in dues.items()}
        goals = {key: flow.goal for key, flow in speaking.items()}
        self._desk.ledger.open_cycle(cycle, dues, self._desk.clock.now(), extras, goals)

    def drain(self, cycle: Cycle) -> None:
        """Open a cycle in which nothing is due, so that what still arrives has a row to be told in."""
        live = self._desk.ledger.entries(State.CALLED, State.LIVE, State.COMPLETE)
        if live:
            self._desk.ledger.open_cycle(
                cycle, {e.injection.flow: (0, None) for e in live}, self._desk.clock.now()
            )

    def told_off(self, cycle: Cycle) -> None:
        """Open a cycle that is over and in which we ran only to see what was left go: nobody was missing in it.

        One that was opened already stays as it is.
        """
        self._desk.ledger.open_cycle(cycle, {}, self._desk.clock.now())

    def decide(self, campaign: Campaign, cycle: Cycle, *, last_try: bool) -> Opened:
        """Ask the services, plan, look once more at what was chosen, and write the plan down.

        Raises the ServiceError for which it is worth to try again later in the cycle; with `last_try` it
        plans without what a service does not tell, and those links hold. When nothing answers at all, a
        plan would only waste the cycle: then it always raises.
        """
        desk, now = self._desk, self._desk.clock.now()
        dues = {row.key: row for row in desk.ledger.rows(cycle=cycle)}
        speaking = pace.flows_now(campaign.flows, cycle)
        # A menu may have lost a link since its due was written: then nothing speaks for it any more.
        flows = {key: speaking[key] for key in dues if key in speaking}
        deadline = max(now + cycle.length * desk.settings.planning_part, now + timedelta(seconds=1))
        self._refuse_broken({flow.link.through for flow in flows.values()}, last_try=last_try)
        facts = self._facts(flows.values(), deadline, last_try=last_try)
        self._refuse_broken({flow.link.through for flow in flows.values()}, last_try=last_try)
        pools, unread = self._pools(flows.values(), deadline, last_try=last_try)
        self._refuse_broken({flow.link.through for flow in flows.values()}, last_try=last_try)
        held = {key: self._held(flow, dues[key].held, facts, unread.get(flow.pool)) for key, flow in flows.items()}
        situation = self._situation(campaign, cycle, flows, held, facts, pools)
        made = plan.plan(situation)
        budgets = {decision.key: decision.budget for decision in made.decisions}
        chosen, unseen = choosing.usable(desk, situation, made.injections, budgets, deadline)
        made = replace(made, injections=tuple(chosen))
        desk.ledger.record_plan(made, desk.clock.now())
        desk.tell("intended", keys=tuple(injection.key for injection in chosen))
        return Opened(situation, budgets, unseen)

    def _refuse_broken(self, services: set[str], *, last_try: bool) -> None:
        """Raise Temporary while services wait for a person: with the others we go on after a while."""
        broken = services & set(self._desk.broken)
        if broken and (not last_try or broken == services):
            what = "; ".join(f"{service}: {self._desk.broken[service].message}" for service in sorted(broken))
            raise Temporary(f"waiting for {what}")

    def _facts(
        self, flows: Iterable[Flow], deadline: datetime, *, last_try: bool
    ) -> dict[tuple[str, str], RseFacts]:
        desk, tasks = self._desk, {}
        names: dict[str, set[str]] = {}
        for flow in flows:
            names.setdefault(flow.link.through, set()).update(flow.link[:2])
        for service in sorted(set(names) - set(desk.broken)):
            rses = sorted(names[service])
            for start in range(0, len(rses), RSES_AT_ONCE):
                part = rses[start : start + RSES_AT_ONCE]
                tasks[service, start] = partial(desk.backends[service].sites, part)
        results, errors = desk.calls.gather(tasks, deadline, lambda name: name[0])
        self._complain(errors, last_try=last_try and bool(results))
        facts = {(service, name): fact for (service, _), some in results.items() for name, fact in some.items()}
        now = desk.clock.now()
        with desk.ledger.together():
            for (service, start), error in errors.items():
                for name in sorted(names[service])[start : start + RSES_AT_ONCE]:
                    desk.ledger.signal("availability", name, None, now, error.message)
            for (_, name), fact in facts.items():
                for signal, why in fact.missing.items():
                    desk.ledger.signal(signal, name, None, now, why)
                desk.ledger.signal("availability", name, "known", now)
                for signal in ("free", "quota_left", "readable", "writable", "site"):
                    value = getattr(fact, signal)
                    if signal not in fact.missing and value is not None:
                        desk.ledger.signal(signal, name, int(value) if isinstance(value, bool) else value, now)
        return facts

    def _pools(
        self, flows: Iterable[Flow], deadline: datetime, *, last_try: bool
    ) -> tuple[dict[PoolKey, list[Item]], dict[PoolKey, ServiceError]]:
        """Return what each pool holds, and which could not be read (yet)."""
        broken = self._desk.broken
        some = [flow for flow in flows if flow.link.through not in broken]
        wanted = {flow.pool: flow.link.through for flow in some if not isinstance(flow.goal, Onward)}
        pools, never = self._inventories.refresh(wanted, deadline)
        landed = aiming.landed(self._desk, some)
        pools |= {flow.pool: landed[flow.key] for flow in some if flow.key in landed}
        last_try = last_try and bool(pools)
        self._complain(
            {(wanted[pool], n): error for n, (pool, error) in enumerate(never.items())}, last_try=last_try
        )
        return pools, never

    def _complain(self, errors: Mapping[tuple[str, int], ServiceError], *, last_try: bool) -> None:
        for (service, _), error in errors.items():
            self._desk.fail(service, error)
        again = [error for error in errors.values() if isinstance(error, Temporary)]
        if again and not last_try:
            raise again[0]

    def _held(
        self,
        flow: Flow,
        held: Held | None,
        facts: Mapping[tuple[str, str], RseFacts],
        unread: ServiceError | None,
    ) -> Held | None:
        service, source, destination = flow.link.through, flow.link.source, flow.link.destination
        broken = self._desk.broken.get(service)
        if held is not None or broken is not None:
            return held or Held(Hold(broken.hold if broken else "api-errors"), {"message": str(broken)[:200]})
        if (service, source) not in facts or (service, destination) not in facts:
            # A site's own brake is honoured in every cycle: without a word of it nothing goes there.
            return Held(Hold.API_ERRORS, {"signal missing": "availability"})
        if facts[service, source].readable is False:
            return _closed(Hold.SOURCE_UNAVAILABLE, "read", facts[service, source])
        if facts[service, destination].writable is False:
            return _closed(Hold.DESTINATION_UNAVAILABLE, "write", facts[service, destination])
        if lag := self._lag(flow.link):
            return lag
        if unread is not None:
            hold = Hold(getattr(unread, "hold", Hold.API_ERRORS))
            return Held(hold, {"inventory": source, "message": unread.message[:200]})
        return None

    def _lag(self, link: Link) -> Held | None:
        """Return the hold of a destination from which our files do not go: it would only be filled."""
        why = self._desk.undeletable.get((link.through, link.destination))
        if why is None:
            return None
        late = self._desk.clock.now() - LAGS_AFTER
        stay = [
            entry.injection.item.bytes
            for entry in self._desk.ledger.entries(State.ENDED)
            if entry.injection.link.destination == link.destination and entry.ended_at and entry.ended_at <= late
        ]
        return Held(Hold.DELETION_LAG, {"bytes": sum(stay), "message": why[:200]}) if stay else None

    def _situation(
        self,
        campaign: Campaign,
        cycle: Cycle,
        flows: Mapping[FlowKey, Flow],
        held: Mapping[FlowKey, Held | None],
        facts: Mapping[tuple[str, str], RseFacts],
        pools: Mapping[PoolKey, list[Item]],
    ) -> plan.Situation:
        ledger, now = self._desk.ledger, self._desk.clock.now()
        accounts, recent = ledger.accounts(), ledger.recent_due(cycle)
        earlier = [row for row in ledger.rows(since=cycle.end - HOUR) if row.cycle < cycle]
        before = {row.key: row for row in ledger.rows(cycle=Cycle(cycle.start - cycle.length, cycle.length))}
        extras = ledger.extras()
        last_hour: dict[Link, int] = defaultdict(int)
        for row in earlier:
            last_hour[row.key.link] += row.injected
        since = ledger.begin(now)
        known = (cycle.start - since) / cycle.length >= UNKNOWN_CYCLES
        completion = ledger.completion_times(now - COMPLETION_WINDOW) if known else {}
        stays = aiming.stays(completion, flows, cycle)
        arriving = self._arriving(cycle, flows)
        failed = ledger.failed_parts(cycle.start - FAILED_CYCLES * cycle.length)
        dues = {row.key: row.due for row in ledger.rows(cycle=cycle)}
        demands = tuple(
            plan.Demand(
                flow=flow,
                due=dues[key],
                recent_due=recent[key],
                account=plan.Account(
                    accounts[key].due,
                    accounts[key].injected,
                    accounts[key].forgiven,
                    accounts[key].in_doubt,
                    extras[key],
                ),
                held=held[key],
                before=held_before.hold if key in before and (held_before := before[key].held) else None,
                saved=_saved(before[key]) if key in before else 0,
                completion=stays[key],
                failed=failed.get(key, 0.0),
                coming=accounts[key].coming,
                arriving=arriving.get(key),
            )
            for key, flow in flows.items()
        )
        menus = campaign.in_force(cycle.start, cycle.end)
        services = {flow.link.through for flow in flows.values()} - set(self._desk.broken)
        return plan.Situation(
            campaign=campaign.name,
            contact=campaign.contact,
            cycle=cycle,
            now=now,
            demands=self._desk.with_slices(demands),
            pools=pools,
            taken=frozenset(ledger.taken(now)),
            given=frozenset(ledger.given()) if any(flow.once for flow in flows.values()) else frozenset(),
            leaving=frozenset(ledger.leaving()),
            destinations=self._destinations(menus, flows.values(), facts),
            sites=tuple(site for menu in menus for site in menu.sites),
            site_of=site_of(campaign),
            limits=strictest(menu.limits for menu in menus),
            rules_last_hour=sum(row.rules for row in earlier),
            last_hour=last_hour,
            files_in_flight=ledger.files_in_flight(),
            may_end=all(self._desk.identities[service].may_end for service in services),
        )

    def _arriving(self, cycle: Cycle, flows: Mapping[FlowKey, Flow]) -> dict[FlowKey, float]:
        """Return at which rate bytes arrived on each flow in the last cycles, in bytes per second.

        Only of flows that had something on its way all that time: where nothing was asked for, nothing can arrive.
        The time is four cycles, or half of the lifetime where that is shorter. It is not known where something was
        not looked at in the last cycle, since bytes count as moved when they are seen.
        """
        oldest = self._desk.ledger.on_their_way_since()
        rows = self._desk.ledger.rows(since=cycle.start - UNKNOWN_CYCLES * cycle.length)
        arriving = {}
        for key, (first, seen) in oldest.items():
            if key not in flows or seen < cycle.start - cycle.length:
                continue
            count = max(1, min(UNKNOWN_CYCLES, int(flows[key].lifetime_max / 2 / cycle.length)))
            since = cycle.start - count * cycle.length
            if first <= since:
                moved = sum(row.moved for row in rows if row.key == key and since <= row.cycle.start < cycle.start)
                arriving[key] = moved / (cycle.start - since).total_seconds()
        return arriving

    def _destinations(
        self, menus: Iterable[Menu], flows: Iterable[Flow], facts: Mapping[tuple[str, str], RseFacts]
    ) -> dict[str, plan.Destination]:
        """Combine what the menu grants and what the service sees of each destination."""
        specs = _specs(menus)
        resident, on_its_way = self._desk.ledger.resident(), self._desk.ledger.on_its_way()
        together: dict[str, int] = defaultdict(int)  # several prefixes may be of one disk
        for name, size in on_its_way.items():
            together[urls.host_of(name)] += size
        result = {}
        for service, name in {(flow.link.through, flow.link.destination) for flow in flows}:
            spec, fact = specs.get(name, RseSpec()), facts.get((service, name), RseFacts(name))
            ours, coming = resident.get(name, 0), together[urls.host_of(name)]
            spaces = [spec.space, None if fact.free is None else fact.free - coming + ours]
            frees = [
                None if spec.space is None else spec.space - ours,
                None if fact.free is None else fact.free - coming,
            ]
            result[name] = plan.Destination(
                space=min((s for s in spaces if s is not None), default=None),
                free=min((f for f in frees if f is not None), default=None),
                quota_left=fact.quota_left,
                deletion_lag=spec.deletion_lag,
            )
        return result


def _saved(row: Row) -> int:
    """Return what a flow left of its debt by choice in a cycle, to save up for a dataset."""
    if row.held is not None and row.held.hold is not Hold.GRAIN:
        return 0
    return max(0, row.want - row.forgiven - row.injected)


def _specs(menus: Iterable[Menu]) -> dict[str, RseSpec]:
    """Return what the menus grant of each RSE: of several the smallest space and the longest lag."""
    specs: dict[str, RseSpec] = {}
    for name, spec in ((n, s) for menu in menus for site in menu.sites for n, s in site.rses.items()):
        known = specs.get(name, spec)
        spaces = [space for space in (known.space, spec.space) if space is not None]
        specs[name] = RseSpec(min(spaces, default=None), max(known.deletion_lag, spec.deletion_lag))
    return specs


def site_of(campaign: Campaign) -> dict[str, str]:
    """Return the site of every RSE that the menus place."""
    return {rse: site.name for menu in campaign.menus for site in menu.sites for rse in site.rses}


def strictest(limits: Iterable[Limits]) -> Limits:
    """Combine the limits of menus in force at once: a brake is as strong as the strongest of them."""
    some = list(limits) or [Limits()]
    return Limits(
        total=min(limit.total for limit in some),
        per_site=min(limit.per_site for limit in some),
        rules_per_hour=min(limit.rules_per_hour for limit in some),
        files_in_flight=min(limit.files_in_flight for limit in some),
    )


def _closed(hold: Hold, verb: str, fact: RseFacts) -> Held:
    """Return the hold of an end that is down or closed, with what is told of it."""
    why = fact.closed.get("readable" if verb == "read" else "writable", "")
    told = {"message": why[:200]} if why else {}
    return Held(hold, {"rse": fact.name, "signal": f"availability_{verb}", **told})
