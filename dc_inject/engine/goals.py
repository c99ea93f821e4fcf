"""Goals: what flows with a goal, second hops among them, are due in a cycle, given their accounts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from functools import partial

from dc_inject.engine import second_hops
from dc_inject.engine.context import EngineContext
from dc_inject.ledger import Totals
from dc_inject.model import Cycle, Exclusion, Flow, FlowKey
from dc_inject.model.goals import GoalAccount, Recycle, SecondHop
from dc_inject.model.items import ItemId
from dc_inject.planning import pace, plan


def remaining(
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
        account = plan.Account(at.due, at.injected, at.forgiven, at.in_doubt, extras.get(key, 0))
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
