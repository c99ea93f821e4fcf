"""Aiming: what flows with a goal are due toward it, and what second hops may take of what has landed."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate

from dc_inject.engine.context import EngineContext
from dc_inject.ledger import Totals
from dc_inject.model import Bundle, Cycle, Entry, Exclusion, Flow, FlowKey, Item, State
from dc_inject.model.goals import Recycle, SecondHop, Standing
from dc_inject.model.items import ItemId
from dc_inject.planning import lifetime, pace, plan, second_hops
from dc_inject.planning.selection import MOST_FILES

FAR = datetime.max.replace(tzinfo=UTC)


def remaining(
    context: EngineContext,
    speaking: Mapping[FlowKey, Flow],
    exclusions: Sequence[Exclusion],
    sites: Mapping[str, str],
    cycle: Cycle,
    since: datetime,
) -> dict[FlowKey, Callable[[int], int]]:
    """Return, for flows with a goal, what makes of the bytes that a rate asks for what is due toward it."""
    goals = {key: goal for key, flow in speaking.items() if (goal := flow.goal) is not None}
    if not goals:
        return {}
    accounts, extras = context.ledger.accounts(), context.ledger.extras()
    end = max(flow.end for flow in speaking.values())
    ahead = pace.due(speaking.values(), exclusions, sites, cycle.start, end, since)
    round_ = any(isinstance(goal, Recycle) for goal in goals.values())
    taken = context.ledger.taken(context.clock.now()) if round_ else set()
    onward = _able(context, speaking.values())
    toward: dict[FlowKey, Callable[[int], int]] = {}
    for key, aim in goals.items():
        at = accounts.get(key, Totals())
        account = plan.Account(at.due, at.injected, at.forgiven, at.in_doubt, extras.get(key, 0))
        free = None
        if isinstance(aim, SecondHop):
            landed = ((waiting.first.injection.item.id, waiting.bytes) for waiting in onward[key])
            free = sum(size for item, size in landed if (item, key.link.destination) not in taken)
        elif isinstance(aim, Recycle):
            free = _free(context, speaking[key], taken)
        standing = Standing(at.moved, at.coming, account.debt(0.0), free)
        toward[key] = partial(aim.due, ahead=ahead[key].bytes, at=standing)
    return toward


def landed(context: EngineContext, flows: Iterable[Flow]) -> dict[FlowKey, list[Item]]:
    """Return what has landed and may go on, for each second hop; what is too old for it stays where it is.

    Where jobs have more files than one cycle can have, it is what will be deleted first.
    """
    onward: dict[FlowKey, list[Item]] = {}
    for key, waiting in _able(context, flows).items():
        waiting.sort(key=lambda copy: (copy.first.expires_at or FAR, copy.first.injection.key))
        files = accumulate(_files(copy.first.injection.item) for copy in waiting)
        onward[key] = [item for _, item in _left(context, key, waiting[: bisect(list(files), MOST_FILES) + 1])]
    return onward


def _files(item: Item) -> int:
    return item.files if isinstance(item, Bundle) else 0


def _able(context: EngineContext, flows: Iterable[Flow]) -> dict[FlowKey, list[second_hops.Waiting]]:
    """Return what waits for second hops and lives long enough to go on."""
    onward = {flow.key: flow for flow in flows if isinstance(flow.goal, SecondHop)}
    if not onward:
        return {}
    now = context.clock.now()
    entries = context.ledger.entries(State.INTENDED, State.CALLED, State.LIVE, State.COMPLETE)
    waiting = going_on(context, entries, onward).waiting
    return {
        key: [copy for copy in waiting[key] if lifetime.may_go_on(copy.first, now, flow.lifetime_min)]
        for key, flow in onward.items()
    }


def going_on(context: EngineContext, entries: Iterable[Entry], onward: Iterable[FlowKey]) -> second_hops.Hops:
    """Return what second hops make of what exists: those of the menus, and those that a menu had.

    Where files are known that would fail again it is looked which ones are left: those do not wait.
    """
    menus, had = set(onward), _had(context)
    hops = second_hops.second_hops(entries, menus | had)
    waiting = dict(hops.waiting)
    minding = {place for _, place in context.ledger.quarantined(context.clock.now())} if menus else set()
    for hop in menus:
        if hop.link.destination in minding:
            again = _left(context, hop, [copy for copy in waiting[hop] if copy.gone_on])
            untouched = [copy for copy in waiting[hop] if not copy.gone_on]
            waiting[hop] = untouched + [replace(copy, bytes=item.bytes) for copy, item in again]
    return replace(hops, waiting=waiting)


def any_hop(context: EngineContext, onward: Iterable[FlowKey]) -> bool:
    """Whether there is any second hop: in the menus, or one that a menu had."""
    return any(True for _ in onward) or bool(_had(context))


def _had(context: EngineContext) -> set[FlowKey]:
    return {key for key, (kind, _) in context.ledger.goals().items() if kind == SecondHop.kind}


def _left(
    context: EngineContext, hop: FlowKey, waiting: Sequence[second_hops.Waiting]
) -> list[tuple[second_hops.Waiting, Item]]:
    """Return those of which anything has not gone on and may, with what that is."""
    if not waiting:
        return []
    keys = [entry.injection.key for copy in waiting for entry in (copy.first, *copy.gone_on)]
    named, unfit = context.ledger.with_files(keys), context.ledger.quarantined(context.clock.now())
    left = ((copy, second_hops.left(copy.named(named), hop.link.destination, unfit)) for copy in waiting)
    return [(copy, item) for copy, item in left if item is not None]


def _free(context: EngineContext, flow: Flow, taken: AbstractSet[tuple[ItemId, str]]) -> int | None:
    """Return how many bytes of a flow's pool are not at its destination; None when it was never read."""
    ledger, service = context.ledger, flow.link.through
    if ledger.inventory_read_at(service, flow.pool) is None:
        return None
    items = ledger.inventory(service, flow.pool)
    return sum(item.bytes for item in items if (item.id, flow.link.destination) not in taken)
