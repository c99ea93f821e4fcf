"""Opening a cycle: dues are written, services are asked, and the plan is made and put on disk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from dc_inject.engine import preflight, queues, rooms, second_hops
from dc_inject.engine.calls import Batch
from dc_inject.engine.context import EngineContext
from dc_inject.engine.inventories import Inventories
from dc_inject.engine.situation import SituationReader, account_of, booked
from dc_inject.ledger import Pause, Totals
from dc_inject.ledger.inventory import Reading
from dc_inject.model import (
    Campaign,
    Cycle,
    Exclusion,
    Flow,
    FlowKey,
    Held,
    Hold,
    Item,
    Link,
    Mode,
    PoolKey,
    State,
    overrides,
    units,
)
from dc_inject.model.errors import Permanent, ServiceError, Temporary
from dc_inject.model.events import Intended
from dc_inject.model.goals import GoalAccount, Recycle, SecondHop
from dc_inject.model.items import ItemId
from dc_inject.model.ports import RseFacts, in_parts
from dc_inject.model.rates import site_of
from dc_inject.planning import pace, plan

LAGS_AFTER = timedelta(hours=1)  # since when files have to be deletable no more for a destination to be held
RSES_AT_ONCE = 50
UNSEEN = timedelta(days=1)  # for which ended injections may not have been observed
DELETIONS_OFF = "Rucio deletes nothing there (availability_delete)"


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
        self._context = context
        self._inventories = Inventories(context)
        self._situations = SituationReader(context)
        self._extras: dict[FlowKey, int] = {}  # what links are due in the open cycle on top of their dues

    def dues(self, campaign: Campaign, cycle: Cycle, since: datetime, hold: Held | None = None) -> None:
        """Write what each link is due in this cycle; a pause makes it nothing. A repetition changes nothing."""
        menus = campaign.in_force(cycle.start, cycle.end)
        # Of a cycle that was missed: who had paused it then, not now.
        pauses = self._context.ledger.pauses(None if hold is None else cycle.start)
        dues: dict[FlowKey, tuple[int, Held | None]] = {}
        flows = tuple(flow for menu in menus for flow in menu.flows)
        exclusions = tuple(exclusion for menu in menus for exclusion in menu.exclusions)
        due = booked(campaign, cycle.start, cycle.end, since)
        current_flows = pace.select_flows(flows, cycle)
        remaining = measure_goals(self._context, current_flows, exclusions, site_of(campaign), cycle, since)
        for key, part in due.items():
            pause = paused(pauses, key)
            if pause is not None:
                dues[key] = 0, Held(Hold.PAUSED, {"by": pause.who, **({"why": pause.why} if pause.why else {})})
            else:
                amount = remaining[key](part.bytes) if key in remaining else part.bytes
                dues[key] = amount, hold or (part.held if part.bytes == 0 else None)
        amounts = {key: amount for key, (amount, _) in dues.items()}
        goal_of = {key: flow.goal for key, flow in current_flows.items()}
        lost = {} if hold is not None else self._lost(cycle, current_flows)
        self._extras = {
            key: round(amount * current_flows[key].overhead) + (lost.get(key, 0) if amount else 0)
            for key, amount in amounts.items()
        }
        self._context.ledger.open_cycle(cycle, dues, self._context.clock.now(), self._extras, goal_of)

    def _lost(self, cycle: Cycle, flows: Mapping[FlowKey, Flow]) -> dict[FlowKey, int]:
        """Return what expired or stayed stuck since the last planned cycle on links where control acts.

        It is due again. A goal is what is to arrive: it is due again by itself.
        """
        ledger = self._context.ledger
        last = ledger.last_planned()
        since = last.start if last is not None and last < cycle else cycle.start - cycle.length
        acting = {key: f for key, f in flows.items() if f.control.mode is Mode.ACT and f.goal is None}
        begun = since - max((flow.lifetime_max for flow in acting.values()), default=timedelta(0)) - UNSEEN
        lost: dict[FlowKey, int] = defaultdict(int)
        for ended in (ledger.expired(since, begun), ledger.stuck_until_ended(since, begun)) if acting else ():
            for key in acting.keys() & ended.keys():
                lost[key] += sum(size for at, size in ended[key] if since <= at < cycle.start)
        return lost

    def drain(self, cycle: Cycle) -> None:
        """Open a cycle in which nothing is due, so that bytes that still arrive have a row."""
        entries = self._context.ledger.entries(State.CALLED, State.LIVE, State.COMPLETE)
        if entries:
            dues = {entry.injection.flow: (0, None) for entry in entries}
            self._context.ledger.open_cycle(cycle, dues, self._context.clock.now())

    def decide(self, campaign: Campaign, cycle: Cycle, *, last_try: bool) -> Opened:
        """Ask the services, plan, look once more at what was chosen, and write the plan down.

        Raises a ServiceError if it is worth trying again later in the cycle. With `last_try` it plans without the
        missing answers of a service, and holds those links. When nothing answers at all it always raises, since a
        plan would only waste the cycle.
        """
        context, now = self._context, self._context.clock.now()
        rows = self._situations.rows(cycle)
        dues = {row.key: row for row in rows if row.cycle.start == cycle.start}
        current_flows = pace.select_flows(campaign.flows, cycle)
        # A menu may have lost a link since its due was written: then nothing speaks for it any more.
        flows = {key: current_flows[key] for key in dues if key in current_flows}
        deadline = max(now + cycle.length * context.settings.planning_part, now + timedelta(seconds=1))
        self._refuse_broken({flow.link.through for flow in flows.values()}, last_try=last_try)
        facts = self._ask_facts(flows.values(), deadline, last_try=last_try)
        self._refuse_broken({flow.link.through for flow in flows.values()}, last_try=last_try)
        pools, unread = self._read_pools(flows.values(), deadline, last_try=last_try)
        self._refuse_broken({flow.link.through for flow in flows.values()}, last_try=last_try)
        held = {key: self._held(flow, dues[key].held, facts, unread.get(flow.pool)) for key, flow in flows.items()}
        demands = self._situations.demands(cycle, rows, flows, held, self._extras)
        situation = self._situations.read(campaign, cycle, demands, facts, pools)
        queues.record(context, situation.demands, deadline)
        situation = context.governor.govern(rooms.with_rooms(context, situation, facts))
        decided = context.planner.plan(situation)
        budgets = {decision.key: decision.budget for decision in decided.decisions}
        chosen, unseen = preflight.replace_unusable(context, situation, decided.injections, budgets, deadline)
        decided = replace(decided, injections=tuple(chosen))
        context.ledger.record_plan(decided, context.clock.now())
        context.report(Intended(tuple(injection.key for injection in chosen)))
        return Opened(situation, budgets, unseen)

    def _refuse_broken(self, services: set[str], *, last_try: bool) -> None:
        """Raise Temporary while services stand still: with the others we go on after a while."""
        broken = {service: why for service in services if (why := self._context.stands_still(service))}
        if broken and (not last_try or set(broken) == services):
            reasons = "; ".join(f"{service}: {why.message}" for service, why in sorted(broken.items()))
            raise Temporary(f"waiting for {reasons}")

    def _ask_facts(
        self, flows: Collection[Flow], deadline: datetime, *, last_try: bool
    ) -> dict[tuple[str, str], RseFacts]:
        context = self._context
        names: dict[str, set[str]] = {}
        sources = {(flow.link.through, flow.link.source) for flow in flows}
        for flow in flows:
            names.setdefault(flow.link.through, set()).update(flow.link.ends)
        batches = [
            Batch(service, part, partial(context.backends[service].sites, part))
            for service in sorted(set(names) - set(context.broken))
            for part in in_parts(sorted(names[service]), RSES_AT_ONCE)
        ]
        answers, errors = context.calls.gather(batches, deadline)
        self._complain([(batch.service, error) for batch, error in errors], last_try=last_try and bool(answers))
        facts = {(batch.service, name): fact for batch, known in answers for name, fact in known.items()}
        readings: list[Reading] = [
            ("availability", name, None, error.message) for batch, error in errors for name in batch.subjects
        ]
        for (service, name), fact in facts.items():
            readings += [(signal, name, None, why) for signal, why in fact.missing.items()]
            readings.append(("availability", name, "known", ""))
            if fact.deletable is not None:
                undeleted = self._undeleted(fact)
                why = f"{DELETIONS_OFF}, and {units.format_size(undeleted)} of ours stays there"
                readings.append(("deletion", fact.name, None if undeleted else "known", why if undeleted else ""))
            for signal in ("free", "quota_left", "readable", "writable", "site"):
                if (value := getattr(fact, signal)) is None or signal in fact.missing:
                    continue
                # Nothing reads at a destination, and its folder need not exist.
                if value or signal != "readable" or (service, name) in sources:
                    readings.append((signal, name, int(value) if isinstance(value, bool) else value, ""))
        context.ledger.record_signals(readings, context.clock.now())
        return facts

    def _read_pools(
        self, flows: Iterable[Flow], deadline: datetime, *, last_try: bool
    ) -> tuple[dict[PoolKey, list[Item]], dict[PoolKey, ServiceError]]:
        """Read pools that are too old; returns what each holds, and which could not be read (yet)."""
        broken = self._context.broken
        able = [flow for flow in flows if flow.link.through not in broken]
        wanted = {flow.pool: flow.link.through for flow in able if not isinstance(flow.goal, SecondHop)}
        failed = set(self._inventories.failed)  # one that fails again holds its own links only
        pools, never = self._inventories.refresh(wanted, deadline)
        landed = second_hops.landed(self._context, able)
        pools |= {flow.pool: landed[flow.key] for flow in able if flow.key in landed}
        new = {pool: e for pool, e in never.items() if not pools or pool not in failed}
        self._complain([(wanted[pool], e) for pool, e in new.items()], last_try=last_try and bool(pools))
        return pools, never

    def _complain(self, errors: Sequence[tuple[str, ServiceError]], *, last_try: bool) -> None:
        for service, error in errors:
            self._context.fail(service, error)
        temporary = [error for _, error in errors if isinstance(error, Temporary)]
        if temporary and not last_try:
            raise temporary[0]

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
            return Held(self._context.outage(service), {"signal missing": "availability"})
        for place, hold in (source, Hold.SOURCE_UNAVAILABLE), (destination, Hold.DESTINATION_UNAVAILABLE):
            if not facts[service, place].exists:
                return Held(hold, {"rse": place, "message": f"{service} knows no RSE {place}"})
            if why := facts[service, place].ambiguity:
                return Held(hold, {"rse": place, "message": why[:200]})
        if facts[service, source].readable is False:
            return _closed(Hold.SOURCE_UNAVAILABLE, "read", facts[service, source])
        if facts[service, destination].writable is False:
            return _closed(Hold.DESTINATION_UNAVAILABLE, "write", facts[service, destination])
        if undeleted := self._undeleted(facts[service, destination]):
            return Held(Hold.DELETION_LAG, {"bytes": undeleted, "message": DELETIONS_OFF})
        if lag := self._lag(flow.link):
            return lag
        if unread is not None:
            refused = Hold.QUARANTINED if isinstance(unread, Permanent) else Hold.API_ERRORS
            hold = Hold(getattr(unread, "hold", refused))
            return Held(hold, {"inventory": source, "message": unread.message[:200]})
        return None

    def _undeleted(self, fact: RseFacts) -> int:
        """Return the bytes of ended injections at an RSE whose deletions are off; 0 where they are not."""
        if fact.deletable is not False:
            return 0
        ended = (entry.injection for entry in self._context.ledger.entries(State.ENDED))
        return sum(injection.item.bytes for injection in ended if injection.link.destination == fact.name)

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


def _closed(hold: Hold, verb: str, fact: RseFacts) -> Held:
    """Return the hold of an end that is down or closed, with what is known of it."""
    why = fact.closed.get("readable" if verb == "read" else "writable", "")[:200]
    return Held(hold, {"rse": fact.name, "signal": f"availability_{verb}"} | ({"message": why} if why else {}))


def measure_goals(
    context: EngineContext,
    current_flows: Mapping[FlowKey, Flow],
    exclusions: Sequence[Exclusion],
    sites: Mapping[str, str],
    cycle: Cycle,
    since: datetime,
) -> dict[FlowKey, Callable[[int], int]]:
    """Return, for flows with a goal, what makes of the bytes that a rate asks for what is due toward it."""
    goals = {key: goal for key, flow in current_flows.items() if (goal := flow.goal) is not None}
    if not goals:
        return {}
    accounts, extras = context.ledger.accounts(), context.ledger.extras()
    end = max(flow.end for flow in current_flows.values())
    ahead = pace.due(current_flows.values(), exclusions, sites, cycle.start, end, since)
    round_ = any(isinstance(goal, Recycle) for goal in goals.values())
    taken = context.ledger.taken(context.clock.now()) if round_ else set()
    onward = second_hops.able(context, current_flows.values())
    toward: dict[FlowKey, Callable[[int], int]] = {}
    for key, aim in goals.items():
        at = accounts.get(key, Totals())
        account = account_of(at, extras.get(key, 0))
        free = None
        if isinstance(aim, SecondHop):
            landed = ((waiting.first.injection.item.id, waiting.bytes) for waiting in onward[key])
            free = sum(size for item, size in landed if (item, key.link.destination) not in taken)
        elif isinstance(aim, Recycle):
            free = _free(context, current_flows[key], taken)
        standing = GoalAccount(at.moved, at.coming, account.debt(0.0), free)
        toward[key] = partial(aim.due, ahead=ahead[key].bytes, at=standing)
    return toward


def _free(context: EngineContext, flow: Flow, taken: AbstractSet[tuple[ItemId, str]]) -> int | None:
    """Return how many bytes of a flow's pool are not at its destination; None when it was never read."""
    ledger, service = context.ledger, flow.link.through
    if ledger.inventory_read_at(service, flow.pool) is None:
        return None
    items = ledger.inventory(service, flow.pool)
    return sum(item.bytes for item in items if (item.id, flow.link.destination) not in taken)
