"""Opening a cycle: dues are written, services are asked, and the plan is made and put on disk."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from dc_inject.engine import controlling, goals, guarding, preflight, second_hops
from dc_inject.engine.calls import in_parts
from dc_inject.engine.context import EngineContext
from dc_inject.engine.controlling import Controlled
from dc_inject.engine.inventories import Inventories
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
    urls,
)
from dc_inject.model.errors import ServiceError, Temporary
from dc_inject.model.events import Intended
from dc_inject.model.goals import SecondHop
from dc_inject.model.items import blocked
from dc_inject.model.ports import RseFacts
from dc_inject.planning import lifetime, overrides, pace, plan

log = logging.getLogger(__name__)

SUBMITS_CYCLES = 8  # in which it is looked for how many rules and jobs there was time
FAILED_CYCLES = 3  # how far back failures count
LAGS_AFTER = timedelta(hours=1)  # since when files have to be deletable no more for a destination to be held
HOUR = timedelta(hours=1)
REMEMBERED = timedelta(hours=12)  # for how long it counts when an item last went out
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

    def __init__(self, context: EngineContext) -> None:
        """Take what the engine's parts share."""
        self._context = context
        self._inventories = Inventories(context)
        self._controlled = Controlled()  # in the open cycle
        self._used: dict[str, dict[str, datetime]] = {}  # source -> item -> the cycle in which it last went out
        self._used_read: datetime | None = None

    def dues(self, campaign: Campaign, cycle: Cycle, since: datetime, hold: Held | None = None) -> None:
        """Write what each link is due in this cycle; a pause makes it nothing. Twice is the same as once."""
        menus = campaign.in_force(cycle.start, cycle.end)
        # Of a cycle that was missed: who had paused it then, not now.
        pauses = self._context.ledger.pauses(None if hold is None else cycle.start)
        dues: dict[FlowKey, tuple[int, Held | None]] = {}
        flows = tuple(flow for menu in menus for flow in menu.flows)
        exclusions = tuple(exclusion for menu in menus for exclusion in menu.exclusions)
        due = pace.due(flows, exclusions, site_of(campaign), cycle.start, cycle.end, since)
        current_flows = pace.flows_now(flows, cycle)
        remaining = goals.remaining(self._context, current_flows, exclusions, site_of(campaign), cycle, since)
        for key, part in due.items():
            pause = paused(pauses, key)
            if pause is not None:
                dues[key] = 0, Held(Hold.PAUSED, {"by": pause.who, **({"why": pause.why} if pause.why else {})})
            else:
                amount = remaining[key](part.bytes) if key in remaining else part.bytes
                dues[key] = amount, hold or (part.held if part.bytes == 0 else None)
        amounts = {key: amount for key, (amount, _) in dues.items()}
        goal_of = {key: flow.goal for key, flow in current_flows.items()}
        with self._context.ledger.together():
            controlled = (
                controlling.decide(self._context, cycle, current_flows, amounts) if hold is None else Controlled()
            )
            extras = {
                key: round(amount * controlled.overhead(current_flows[key])) + controlled.added.get(key, 0)
                for key, amount in amounts.items()
            }
            if self._context.ledger.open_cycle(cycle, dues, self._context.clock.now(), extras, goal_of):
                self._context.ledger.forgive(cycle, controlled.forgiven)
            self._controlled = controlled

    def drain(self, cycle: Cycle) -> None:
        """Open a cycle in which nothing is due, so that what still arrives has a row to be told in."""
        entries = self._context.ledger.entries(State.CALLED, State.LIVE, State.COMPLETE)
        if entries:
            dues = {entry.injection.flow: (0, None) for entry in entries}
            self._context.ledger.open_cycle(cycle, dues, self._context.clock.now())

    def record_idle(self, cycle: Cycle) -> None:
        """Open a cycle that is over and in which we ran only to see what was left go: nobody was missing in it.

        One that was opened already stays as it is.
        """
        self._context.ledger.open_cycle(cycle, {}, self._context.clock.now())

    def decide(self, campaign: Campaign, cycle: Cycle, *, last_try: bool) -> Opened:
        """Ask the services, plan, look once more at what was chosen, and write the plan down.

        Raises the ServiceError for which it is worth to try again later in the cycle; with `last_try` it
        plans without what a service does not tell, and those links hold. When nothing answers at all, a
        plan would only waste the cycle: then it always raises.
        """
        context, now = self._context, self._context.clock.now()
        dues = {row.key: row for row in context.ledger.rows(cycle=cycle)}
        current_flows = pace.flows_now(campaign.flows, cycle)
        # A menu may have lost a link since its due was written: then nothing speaks for it any more.
        flows = {key: current_flows[key] for key in dues if key in current_flows}
        deadline = max(now + cycle.length * context.settings.planning_part, now + timedelta(seconds=1))
        self._refuse_broken({flow.link.through for flow in flows.values()}, last_try=last_try)
        facts = self._ask_facts(flows.values(), deadline, last_try=last_try)
        self._refuse_broken({flow.link.through for flow in flows.values()}, last_try=last_try)
        pools, unread = self._read_pools(flows.values(), deadline, last_try=last_try)
        self._refuse_broken({flow.link.through for flow in flows.values()}, last_try=last_try)
        held = {key: self._held(flow, dues[key].held, facts, unread.get(flow.pool)) for key, flow in flows.items()}
        situation = self._situation(campaign, cycle, flows, held, facts, pools)
        situation = guarding.guarded(context, situation, facts, deadline)
        made = plan.plan(situation)
        budgets = {decision.key: decision.budget for decision in made.decisions}
        chosen, unseen = preflight.replace_unusable(context, situation, made.injections, budgets, deadline)
        made = replace(made, injections=tuple(chosen))
        context.ledger.record_plan(made, context.clock.now())
        context.tell(Intended(tuple(injection.key for injection in chosen)))
        return Opened(situation, budgets, unseen)

    def _refuse_broken(self, services: set[str], *, last_try: bool) -> None:
        """Raise Temporary while services stand still: with the others we go on after a while."""
        broken = {service: why for service in services if (why := self._context.stands_still(service))}
        if broken and (not last_try or set(broken) == services):
            what = "; ".join(f"{service}: {why.message}" for service, why in sorted(broken.items()))
            raise Temporary(f"waiting for {what}")

    def _ask_facts(
        self, flows: Iterable[Flow], deadline: datetime, *, last_try: bool
    ) -> dict[tuple[str, str], RseFacts]:
        context = self._context
        names: dict[str, set[str]] = {}
        for flow in flows:
            names.setdefault(flow.link.through, set()).update(flow.link[:2])
        parts = {
            (service, number): part
            for service in sorted(set(names) - set(context.broken))
            for number, part in enumerate(in_parts(sorted(names[service]), RSES_AT_ONCE))
        }
        tasks = {name: partial(context.backends[name[0]].sites, part) for name, part in parts.items()}
        results, errors = context.calls.gather(tasks, deadline, lambda name: name[0])
        self._complain(errors, last_try=last_try and bool(results))
        facts = {(part[0], name): fact for part, found in results.items() for name, fact in found.items()}
        now = context.clock.now()
        with context.ledger.together():
            for failed, error in errors.items():
                for name in parts[failed]:
                    context.ledger.signal("availability", name, None, now, error.message)
            for (_, name), fact in facts.items():
                for signal, why in fact.missing.items():
                    context.ledger.signal(signal, name, None, now, why)
                context.ledger.signal("availability", name, "known", now)
                for signal in ("free", "quota_left", "readable", "writable", "site"):
                    value = getattr(fact, signal)
                    if signal not in fact.missing and value is not None:
                        context.ledger.signal(signal, name, int(value) if isinstance(value, bool) else value, now)
        return facts

    def _read_pools(
        self, flows: Iterable[Flow], deadline: datetime, *, last_try: bool
    ) -> tuple[dict[PoolKey, list[Item]], dict[PoolKey, ServiceError]]:
        """Read pools that are too old; returns what each holds, and which could not be read (yet)."""
        broken = self._context.broken
        able = [flow for flow in flows if flow.link.through not in broken]
        wanted = {flow.pool: flow.link.through for flow in able if not isinstance(flow.goal, SecondHop)}
        pools, never = self._inventories.refresh(wanted, deadline)
        landed = second_hops.landed(self._context, able)
        pools |= {flow.pool: landed[flow.key] for flow in able if flow.key in landed}
        last_try = last_try and bool(pools)
        self._complain(
            {(wanted[pool], n): error for n, (pool, error) in enumerate(never.items())}, last_try=last_try
        )
        return pools, never

    def _complain(self, errors: Mapping[tuple[str, int], ServiceError], *, last_try: bool) -> None:
        for (service, _), error in errors.items():
            self._context.fail(service, error)
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
        broken = self._context.stands_still(service)
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
        why = self._context.undeletable.get((link.through, link.destination))
        if why is None:
            return None
        late = self._context.clock.now() - LAGS_AFTER
        stay = [
            entry.injection.item.bytes
            for entry in self._context.ledger.entries(State.ENDED)
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
        ledger, now = self._context.ledger, self._context.clock.now()
        accounts, recent = ledger.accounts(), ledger.recent_due(cycle)
        earlier = ledger.given_in(cycle.end - HOUR, cycle.start)
        before = {row.key: row for row in ledger.rows(cycle=Cycle(cycle.start - cycle.length, cycle.length))}
        extras = ledger.extras()
        last_hour: dict[Link, int] = defaultdict(int)
        for key, (injected, _) in earlier.items():
            last_hour[key.link] += injected
        submitted = ledger.submitted(cycle.start - SUBMITS_CYCLES * cycle.length, cycle.start)
        submits = {service: pace.time_for(counts) for service, counts in submitted.items()}
        since = ledger.since or now
        known = (cycle.start - since) / cycle.length >= lifetime.UNKNOWN_CYCLES
        completion = ledger.completion_times(now - lifetime.MEASURED_OVER) if known else {}
        until_ended = lifetime.until_ended(completion, flows, cycle)
        arriving = self._arriving(cycle, flows)
        failed = ledger.failed_parts(cycle.start - FAILED_CYCLES * cycle.length)
        rows = {row.key: row for row in ledger.rows(cycle=cycle)}
        demands = tuple(
            plan.Demand(
                flow=flow,
                due=rows[key].due,
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
                completion=until_ended[key],
                failed=failed.get(key, 0.0),
                coming=accounts[key].coming,
                arriving=arriving.get(key),
                decision=self._controlled.acting(flow),
                moved_over=rows[key].forgiven,
            )
            for key, flow in flows.items()
        )
        menus = campaign.in_force(cycle.start, cycle.end)
        return plan.Situation(
            campaign=campaign.name,
            contact=campaign.contact,
            cycle=cycle,
            now=now,
            demands=self._context.with_slices(demands),
            pools=pools,
            taken=frozenset(ledger.taken(now)),
            once_only=frozenset(ledger.once_only()) if any(flow.once for flow in flows.values()) else frozenset(),
            leaving=frozenset(ledger.leaving()),
            used=self._note_last_used(cycle),
            destinations=self._destinations(menus, flows.values(), facts),
            sites=tuple(site for menu in menus for site in menu.sites),
            site_of=site_of(campaign),
            limits=strictest(menu.limits for menu in menus),
            rules_last_hour=sum(rules for _, rules in earlier.values()),
            last_hour=last_hour,
            files_in_flight=ledger.files_in_flight(),
            submits={service: count for service, count in submits.items() if count is not None},
            may_end=frozenset(name for name, identity in self._context.identities.items() if identity.may_end),
        )

    def _note_last_used(self, cycle: Cycle) -> Mapping[str, Mapping[str, datetime]]:
        """Read when items last left their sources, as far back as matters; old cycles are read once."""
        oldest = cycle.start - REMEMBERED
        for source, used in self._used.items():
            self._used[source] = {item: at for item, at in used.items() if at >= oldest}
        # What changed in the last cycles since they were read is read anew: answers may come late.
        since = oldest if self._used_read is None else max(oldest, self._used_read - cycle.length)
        for item, source, at in self._context.ledger.used(since):
            for name in blocked(item):
                last = self._used.setdefault(source, {})
                last[name] = max(at, last.get(name, at))
        self._used_read = cycle.start
        return self._used

    def _arriving(self, cycle: Cycle, flows: Mapping[FlowKey, Flow]) -> dict[FlowKey, float]:
        """Return at which rate bytes arrived on each flow in the last cycles, in bytes per second.

        Only of flows that had something on its way all that time: where nothing was asked for, nothing can arrive.
        The time is four cycles, or half of the lifetime where that is shorter. It is not known where something was
        not looked at in the last cycle, since bytes count as moved when they are seen.
        """
        oldest = self._context.ledger.on_their_way_since()
        rows: dict[FlowKey, list[Row]] = defaultdict(list)
        for row in self._context.ledger.rows(since=cycle.start - lifetime.UNKNOWN_CYCLES * cycle.length):
            rows[row.key].append(row)
        arriving = {}
        for key, (first, seen) in oldest.items():
            if key not in flows or seen < cycle.start - cycle.length:
                continue
            count = max(1, min(lifetime.UNKNOWN_CYCLES, int(flows[key].lifetime_max / 2 / cycle.length)))
            since = cycle.start - count * cycle.length
            if first <= since:
                moved = sum(row.moved for row in rows[key] if since <= row.cycle.start < cycle.start)
                arriving[key] = moved / (cycle.start - since).total_seconds()
        return arriving

    def _destinations(
        self, menus: Iterable[Menu], flows: Iterable[Flow], facts: Mapping[tuple[str, str], RseFacts]
    ) -> dict[str, plan.Destination]:
        """Combine what the menu grants and what the service sees of each destination."""
        specs = _specs(menus)
        resident, on_its_way = self._context.ledger.resident(), self._context.ledger.on_its_way()
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
    if row.held is not None and row.held.hold is not Hold.TOO_COARSE:
        return 0
    return max(0, row.want - row.forgiven - row.injected)


def _specs(menus: Iterable[Menu]) -> dict[str, RseSpec]:
    """Return what the menus grant of each RSE: of several the smallest space and the longest lag."""
    specs: dict[str, RseSpec] = {}
    for name, spec in ((n, s) for menu in menus for site in menu.sites for n, s in site.rses.items()):
        other = specs.get(name, spec)
        spaces = [space for space in (other.space, spec.space) if space is not None]
        specs[name] = RseSpec(min(spaces, default=None), max(other.deletion_lag, spec.deletion_lag))
    return specs


def site_of(campaign: Campaign) -> dict[str, str]:
    """Return the site of every RSE that the menus place."""
    return {rse: site.name for menu in campaign.menus for site in menu.sites for rse in site.rses}


def strictest(limits: Iterable[Limits]) -> Limits:
    """Combine the limits of menus in force at once: a brake is as strong as the strongest of them."""
    in_force = list(limits) or [Limits()]
    return Limits(
        total=min(limit.total for limit in in_force),
        per_site=min(limit.per_site for limit in in_force),
        rules_per_hour=min(limit.rules_per_hour for limit in in_force),
        files_in_flight=min(limit.files_in_flight for limit in in_force),
    )


def _closed(hold: Hold, verb: str, fact: RseFacts) -> Held:
    """Return the hold of an end that is down or closed, with what is told of it."""
    why = fact.closed.get("readable" if verb == "read" else "writable", "")
    message = {"message": why[:200]} if why else {}
    return Held(hold, {"rse": fact.name, "signal": f"availability_{verb}", **message})
