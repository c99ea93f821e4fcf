"""A fixed rate, as the injectors of Data Challenge 2024 had it: what a controller is compared with.

It is a planner of the engine. In each cycle a link takes datasets in the order of their names until they sum to
what is due, and none that would make it more than 20 % too much; their rules are made one after the other. A
dataset is fresh again when the lifetime of its rule and a delay are over.

What was too little or too much in one cycle is not made up in the next, what is refused is not replaced, and
nothing that becomes of the rules changes anything.

That is the way of injecting, not one program: `WORK` and `DELAY` are assumed. An hour's delay is kind to it: it
needs a smaller pool than with the 12 hours after which datasets were used again in the challenge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from operator import attrgetter

from dc_inject.model import Campaign, Control, FlowKey, Held, Hold, Injection, Item
from dc_inject.model.errors import MenuError, Problem
from dc_inject.model.plan import FlowDecision, Plan
from dc_inject.planning.plan import intent
from dc_inject.planning.situation import Demand, Situation

MOST = 1.2  # times what is due
WORK = timedelta(seconds=0.3)  # to make a rule
DELAY = timedelta(hours=1)  # after the end of a rule


def without_control(campaign: Campaign) -> Campaign:
    """Return a campaign as a fixed rate has it: without control, and no rule is ended before its lifetime is over.

    Raises MenuError for a campaign with goals, which a fixed rate does not know.
    """
    goals = [flow for flow in campaign.flows if flow.goal is not None]
    if goals:
        message = f"{goals[0].key} has a goal, and a fixed rate knows none"
        raise MenuError([Problem(goals[0].menu, goals[0].line, message, "simulate it with --policy act")])
    menus = (
        replace(
            menu, flows=tuple(replace(flow, control=Control(), dwell=flow.lifetime_max) for flow in menu.flows)
        )
        for menu in campaign.menus
    )
    return replace(campaign, menus=tuple(menus))


class FixedRate:
    """The links of a campaign, and when each dataset is fresh again on each of them."""

    def __init__(self) -> None:
        """Begin with datasets that are all fresh."""
        self._fresh_at: dict[tuple[str, FlowKey], dict[str, datetime]] = defaultdict(dict)  # of each menu anew

    def plan(self, situation: Situation) -> Plan:
        """Return what goes out in a cycle, one rule of a link after the other; these datasets are used then."""
        pools = {pool: sorted(items, key=attrgetter("name")) for pool, items in situation.pools.items()}
        decisions = [self._decide(one, pools.get(one.flow.pool, ()), situation.now) for one in situation.demands]
        injections = tuple(
            intent(situation, demand.flow, item, situation.now + number * WORK, decision.lifetime)
            for demand, decision in zip(situation.demands, decisions, strict=True)
            for number, item in enumerate(decision.items, 1)
        )
        return Plan(situation.cycle, tuple(decisions), injections)

    def refill(
        self, situation: Situation, room: Mapping[FlowKey, int], standing: Sequence[Injection] = ()
    ) -> tuple[Injection, ...]:
        """Return nothing: what cannot be used is not replaced."""
        del situation, room, standing
        return ()

    def _decide(self, demand: Demand, pool: Sequence[Item], now: datetime) -> FlowDecision:
        flow, due = demand.flow, demand.due
        fresh_at = self._fresh_at[flow.menu, flow.key]
        fresh = [item for item in pool if fresh_at.get(item.name, now) <= now]
        chosen: list[Item] = []
        total = 0
        for item in () if demand.held else fresh:
            if total >= due:
                break
            if total + item.bytes <= MOST * due:
                chosen.append(item)
                total += item.bytes
        fresh_at |= dict.fromkeys((item.name for item in chosen), now + flow.lifetime_max + DELAY)
        return FlowDecision(
            key=flow.key,
            due=due,
            want=due,
            cap=due,
            budget=total,
            forgiven=0,
            held=demand.held or _lack(due - total, pool, fresh, chosen),
            lifetime=flow.lifetime_max,
            items=tuple(chosen),
            pool_items=len(fresh),
            pool_bytes=sum(item.bytes for item in fresh),
        )


def _lack(missing: int, pool: Sequence[Item], fresh: Sequence[Item], chosen: Sequence[Item]) -> Held | None:
    """Return why a link takes too little: all its datasets are used, or those left are too large."""
    if missing <= 0:
        return None
    left = [item.bytes for item in fresh if item not in chosen]
    if left:
        return Held(Hold.TOO_COARSE, {"left": missing, "smallest": min(left)})
    size = sum(item.bytes for item in fresh)
    resident = sum(item.bytes for item in pool) - size
    return Held(Hold.POOL_DRY, {"pool_items": len(fresh), "pool_bytes": size, "resident": resident})
