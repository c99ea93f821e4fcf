"""Second hops as the ledger has them: what may go on now, and what may not be ended for their sake.

What follows from the entries alone is in `planning/second_hops.py`, with the essay.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import accumulate

from dc_inject.engine.context import EngineContext
from dc_inject.model import Bundle, Entry, Flow, FlowKey, Item, State
from dc_inject.model.goals import SecondHop
from dc_inject.planning import lifetime
from dc_inject.planning.second_hops import Hops, WaitingCopy, second_hops, select_second_hops, sum_not_gone_on
from dc_inject.planning.selection import MOST_FILES

FAR = datetime.max.replace(tzinfo=UTC)


def landed(context: EngineContext, flows: Iterable[Flow]) -> dict[FlowKey, list[Item]]:
    """Return what has landed and may go on, for each second hop; what is too old for it stays where it is.

    Where jobs have more files than one cycle can have, it is what will be deleted first.
    """
    onward: dict[FlowKey, list[Item]] = {}
    for key, waiting in able(context, flows).items():
        waiting.sort(key=lambda copy: (copy.first.expires_at or FAR, copy.first.injection.key))
        items = (copy.first.injection.item for copy in waiting)
        files = accumulate(item.files if isinstance(item, Bundle) else 0 for item in items)
        onward[key] = [item for _, item in _left(context, key, waiting[: bisect(list(files), MOST_FILES) + 1])]
    return onward


def able(context: EngineContext, flows: Iterable[Flow]) -> dict[FlowKey, list[WaitingCopy]]:
    """Return what waits for second hops and lives long enough to go on."""
    onward = select_second_hops(flows)
    if not onward:
        return {}
    now = context.clock.now()
    entries = context.ledger.entries(State.INTENDED, State.CALLED, State.LIVE, State.COMPLETE)
    waiting = going_on(context, entries, onward).waiting
    return {
        key: [copy for copy in waiting[key] if lifetime.may_go_on(copy.first, now, flow.lifetime_min)]
        for key, flow in onward.items()
    }


def going_on(context: EngineContext, entries: Iterable[Entry], onward: Iterable[FlowKey]) -> Hops:
    """Return what second hops make of what exists: those of the menus, and those that a menu had.

    Where files are known that would fail again it is looked which ones are left: those do not wait.
    """
    menus = set(onward)
    hops = second_hops(entries, menus | find_past_hops(context))
    waiting = dict(hops.waiting)
    minding = {place for _, place in context.ledger.quarantined(context.clock.now())} if menus else set()
    for hop in menus:
        if hop.link.destination in minding:
            again = _left(context, hop, [copy for copy in waiting[hop] if copy.gone_on])
            untouched = [copy for copy in waiting[hop] if not copy.gone_on]
            waiting[hop] = untouched + [replace(copy, bytes=item.bytes) for copy, item in again]
    return replace(hops, waiting=waiting)


def find_past_hops(context: EngineContext) -> set[FlowKey]:
    """Return the second hops that a menu has or had since the campaign began."""
    return {key for key, (kind, _) in context.ledger.goals().items() if kind == SecondHop.kind}


def _left(context: EngineContext, hop: FlowKey, waiting: Sequence[WaitingCopy]) -> list[tuple[WaitingCopy, Item]]:
    """Return those of which anything has not gone on and may, with what that is."""
    if not waiting:
        return []
    keys = [entry.injection.key for copy in waiting for entry in (copy.first, *copy.gone_on)]
    named, unfit = context.ledger.with_files(keys), context.ledger.quarantined(context.clock.now()).keys()
    items = ((copy, sum_not_gone_on(copy.named(named), hop.link.destination, unfit)) for copy in waiting)
    return [(copy, item) for copy, item in items if item is not None]
