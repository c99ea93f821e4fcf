"""Rooms: how much of a disk links may use on which control acts, and at which disks releases wait for room.

A part of each space is left free, so that no disk is filled to its last percent. Where a disk is nearly full, a
plan counts on what will be deleted in its cycle, and what goes out waits for room (`submitting.py`). Deletions
take as long as was measured, if that is longer than in the menu. All of that bounds only links on which control
acts: others to the same destination get what they would get without it. For all controlled links it is noted
whether a disk is full or deletions are late (`Deletions` of `planning/limits.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from dc_inject.engine import spaces
from dc_inject.engine.context import EngineContext, Room
from dc_inject.ledger import Reader
from dc_inject.model import Flow, Mode, State
from dc_inject.model.ports import RseFacts
from dc_inject.planning import lifetime
from dc_inject.planning.limits import Deletions, Destination
from dc_inject.planning.link_plan import with_overhead
from dc_inject.planning.situation import Situation

USED = 0.98  # of a space: what is never exceeded where a link is controlled
LOOKS = 2  # cycles at least: whether what ended is gone is looked at once in each
MEASURED = timedelta(hours=6)  # over which the duration of deletions is measured
LATELY = 4  # cycles over which the rate of deletions is measured
ROOM = 0.97  # of a space, which releases wait for: services may report late what is left there

Facts = Mapping[tuple[str, str], RseFacts]


def with_rooms(context: EngineContext, situation: Situation, facts: Facts) -> Situation:
    """Return a situation with what controlled links may use of spaces; note for which room they wait."""
    context.rooms = {}
    controlled = [demand.flow for demand in situation.demands if demand.flow.control.mode is not Mode.OFF]
    if not controlled:
        return situation
    start, length, now = situation.cycle.start, situation.cycle.length, context.clock.now()
    deletions = context.ledger.deletions(start - MEASURED, start - LATELY * length)
    ours, destinations = context.ledger.resident(), dict(situation.destinations)
    of_places = {flow.link.destination: destinations[flow.link.destination] for flow in controlled}
    least = spaces.least(context.ledger, context.looks, situation.cycle, now, of_places, facts)
    for name, (space, age) in least.items():
        destinations[name] = replace(destinations[name], space=space, free=space - ours.get(name, 0), age=age)
    nearly_full = spaces.nearly_full(
        context.ledger, situation, {name: destinations[name] for name in of_places}, deletions
    )
    destinations |= nearly_full
    careful = _careful(context.ledger, situation, destinations, of_places, deletions)
    rooms = {name: _room(destinations[name], careful[name]) for name in nearly_full}
    acting = [flow for flow in controlled if flow.control.mode is Mode.ACT]
    context.rooms = {flow.key: rooms[flow.link.destination] for flow in acting if flow.link.destination in rooms}
    acting_on = {flow.link.destination for flow in acting}
    seen = {name: replace(situation.destinations[name], deletions=careful[name].deletions) for name in of_places}
    bounded = {name: replace(seen[name], guarded=careful[name]) for name in acting_on}
    return replace(situation, destinations={**situation.destinations, **seen, **bounded})


def _room(destination: Destination, careful: Destination) -> Room:
    """Return for what there is room at a destination that is nearly full."""
    space = destination.space or 0
    return Room(round(ROOM * space), {"space": space, **destination.age_numbers}, careful)


def _careful(
    ledger: Reader,
    situation: Situation,
    destinations: Mapping[str, Destination],
    names: Iterable[str],
    deletions: Mapping[str, tuple[timedelta, int]],
) -> dict[str, Destination]:
    """Return destinations less a reserve, so that no disk is filled to its last percent, with their deletions.

    A measured lag includes the time until the deletion was observed. As elsewhere in planning, deletions are in
    time until one cycle after the menu's lag; they are late after two.
    """
    length = situation.cycle.length
    lags = {name: destinations[name].deletion_lag for name in names}
    late = {name: lag + LOOKS * length for name, lag in lags.items()}
    overdue = _ended_before(ledger, {name: situation.now - lag for name, lag in late.items()})
    parts: dict[str, list[tuple[Flow, float, timedelta | None]]] = defaultdict(list)
    for demand in situation.demands:
        rate = with_overhead(demand.recent_due, demand.flow) / length.total_seconds()
        parts[demand.flow.link.destination].append((demand.flow, rate, demand.completion))
    careful = {}
    for name, lag in lags.items():
        in_time, measured = lag + length, deletions[name][0] if name in deletions else None
        space, free = destinations[name].space, destinations[name].free
        if space is not None and free is not None:
            reserve = round((1 - USED) * space)
            space, free = space - reserve, free - reserve
        needed = lifetime.needed(parts[name], space, in_time, may_end=situation.may_end)
        is_late = name in overdue or (measured is not None and measured > late[name])
        careful[name] = replace(
            destinations[name],
            space=space,
            free=free,
            deletion_lag=in_time if measured is None else max(lag, measured),
            deletions=Deletions(needed, overdue.get(name, 0), measured, is_late),
        )
    return careful


def _ended_before(ledger: Reader, moments: Mapping[str, datetime]) -> dict[str, int]:
    """Return our bytes at destinations that ended at these moments or before, and are not known to be gone."""
    sizes: dict[str, int] = defaultdict(int)
    for entry in ledger.entries(State.ENDED):
        name = entry.injection.link.destination
        if name in moments and entry.ended_at is not None and entry.ended_at <= moments[name]:
            sizes[name] += entry.injection.item.bytes
    return sizes
