"""Aiming: what flows with a goal are due toward it, and what second hops may take of what has landed."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import accumulate

from dc_inject import hops, pace, plan
from dc_inject.engine.desk import Desk
from dc_inject.goal import Again, Onward, Standing
from dc_inject.ledger import Totals
from dc_inject.model import Cycle, Entry, Exclusion, Flow, FlowKey, Item, State
from dc_inject.plan.choice import MOST_FILES

FAR = datetime.max.replace(tzinfo=UTC)


def left(
    desk: Desk,
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
    accounts, extras = desk.ledger.accounts(), desk.ledger.extras()
    end = max(flow.end for flow in speaking.values())
    ahead = pace.due(speaking.values(), exclusions, sites, cycle.start, end, since)
    round_ = any(isinstance(goal, Again) for goal in goals.values())
    taken = desk.ledger.taken(desk.clock.now()) if round_ else set()
    onward = _able(desk, speaking.values())
    toward: dict[FlowKey, Callable[[int], int]] = {}
    for key, aim in goals.items():
        at = accounts.get(key, Totals())
        account = plan.Account(at.due, at.injected, at.forgiven, at.in_doubt, extras.get(key, 0))
        free = None
        if isinstance(aim, Onward):
            names = ((one.first.injection.item.name, one.bytes) for one in onward[key])
            free = sum(size for name, size in names if (name, key.link.destination) not in taken)
        elif isinstance(aim, Again):
            free = _free(desk, speaking[key], taken)
        standing = Standing(at.moved, at.coming, account.debt(0.0), free)
        toward[key] = partial(aim.due, ahead=ahead[key].bytes, at=standing)
    return toward


def landed(desk: Desk, flows: Iterable[Flow]) -> dict[FlowKey, list[Item]]:
    """Return what has landed and may go on, for each second hop; what is too old for it stays where it is.

    Where jobs have more files than one cycle can have, it is what will be deleted first.
    """
    found: dict[FlowKey, list[Item]] = {}
    for key, some in _able(desk, flows).items():
        some.sort(key=lambda one: (one.first.expires_at or FAR, one.first.injection.key))
        files = accumulate(one.first.injection.item.files if one.first.injection.job else 0 for one in some)
        found[key] = [item for _, item in _left(desk, key, some[: bisect(list(files), MOST_FILES) + 1])]
    return found


def _able(desk: Desk, flows: Iterable[Flow]) -> dict[FlowKey, list[hops.Waiting]]:
    """Return what waits for second hops and lives long enough to go on."""
    onward = {flow.key: flow for flow in flows if isinstance(flow.goal, Onward)}
    if not onward:
        return {}
    now = desk.clock.now()
    entries = desk.ledger.entries(State.INTENDED, State.CALLED, State.LIVE, State.COMPLETE)
    waiting = going_on(desk, entries, onward).waiting
    return {
        key: [one for one in waiting[key] if hops.may_go_on(one.first, now, flow.lifetime_min)]
        for key, flow in onward.items()
    }


def going_on(desk: Desk, entries: Iterable[Entry], onward: Iterable[FlowKey]) -> hops.Hops:
    """Return what second hops make of what exists: those of the menus, and those that a menu had.

    Where files are known that would fail again it is looked which ones are left: those do not wait.
    """
    menus = set(onward)
    had = {key for key, (kind, _) in desk.ledger.goals().items() if kind == Onward.kind}
    found = hops.second_hops(entries, menus | had)
    waiting = dict(found.waiting)
    minding = {place for _, place in desk.ledger.quarantined(desk.clock.now())} if menus else set()
    for hop in menus:
        if hop.link.destination in minding:
            again = _left(desk, hop, [one for one in waiting[hop] if one.gone_on])
            untouched = [one for one in waiting[hop] if not one.gone_on]
            waiting[hop] = untouched + [replace(one, bytes=item.bytes) for one, item in again]
    return replace(found, waiting=waiting)


def _left(desk: Desk, hop: FlowKey, waiting: Sequence[hops.Waiting]) -> list[tuple[hops.Waiting, Item]]:
    """Return those of which anything has not gone on and may, with what that is."""
    if not waiting:
        return []
    keys = [entry.injection.key for one in waiting for entry in (one.first, *one.gone_on)]
    named, unfit = desk.ledger.with_files(keys), desk.ledger.quarantined(desk.clock.now())
    left = ((one, hops.left(one.named(named), hop.link.destination, unfit)) for one in waiting)
    return [(one, item) for one, item in left if item is not None]


def _free(desk: Desk, flow: Flow, taken: AbstractSet[tuple[str, str]]) -> int | None:
    """Return how many bytes of a flow's pool are not at its destination; None when it was never read."""
    ledger, service = desk.ledger, flow.link.through
    if ledger.inventory_read_at(service, flow.pool) is None:
        return None
    items = ledger.inventory(service, flow.pool)
    return sum(item.bytes for item in items if (item.name, flow.link.destination) not in taken)


def stays(
    completion: Mapping[FlowKey, timedelta], flows: Mapping[FlowKey, Flow], cycle: Cycle
) -> dict[FlowKey, timedelta | None]:
    """Return the measured times until data of flows may be ended, None while that is unknown.

    A first copy waits for the next plan of its second hop, and for that to complete.
    """
    onward = {(key.scenario, key.link.source): key for key, flow in flows.items() if isinstance(flow.goal, Onward)}
    found: dict[FlowKey, timedelta | None] = {}
    for key in flows:
        own, hop = completion.get(key), onward.get((key.scenario, key.link.destination))
        second = timedelta(0) if hop is None else completion.get(hop)
        wait = timedelta(0) if hop is None else cycle.length
        found[key] = None if own is None or second is None else own + wait + second
    return found
