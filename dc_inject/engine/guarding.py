"""Guarding: what the guards of controlled links read, and what they do to the plan of a cycle.

The guards, with their bounds, are `planning/guards.py`. Their readings are made here: availability and space
from what the services report in this cycle, and everything else from our own ledger, as for every account. Which
guards are engaged is kept beside what the controller keeps of the link (`control_records.py`), so that a restart
forgets nothing.

Where the mode is `act`, an engaged guard is the link's hold, and planning has two more signals: the deletion
lag that was measured, if it is longer than the menu's; and a part of each space that is left free, so that no
disk is filled to its last percent. Where a disk is nearly full, a plan counts on what will be deleted in its
cycle, and what goes out waits for room (`submitting.py`). All that bounds only links on which control acts:
others to the same destination get what they would get without it. Where the mode is `advise`, `status` shows what
would hold. Both report whether a disk is full or deletions are late (`Deletions` of `planning/limits.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from dc_inject.engine import controlling, spaces
from dc_inject.engine import queues as fts_queues
from dc_inject.engine.context import EngineContext, Room
from dc_inject.engine.controlling import Controlled
from dc_inject.ledger.reading import Reader
from dc_inject.model import Flow, FlowKey, Held, Hold, Link, Mode, State
from dc_inject.model.holds import beside
from dc_inject.model.ports import LinkQueue, Requests, RseFacts
from dc_inject.planning import guards, lifetime
from dc_inject.planning.control import Decision
from dc_inject.planning.guards import GuardReading
from dc_inject.planning.limits import Deletions, Destination
from dc_inject.planning.link_plan import with_overhead
from dc_inject.planning.situation import Demand, Situation

LATE = timedelta(hours=1)  # after its deletion lag, when what ended should be gone at the latest
LOOKS = 2  # cycles at least: whether it is gone is looked at once in each
MEASURED = timedelta(hours=6)  # over which the duration of deletions is measured
LATELY = 4  # cycles over which the rate of deletions is measured
STEP = 2  # transfers that FTS's optimizer adds at a time
ROOM = 0.97  # of a space, which releases wait for: services may report late what is left there

Facts = Mapping[tuple[str, str], RseFacts]


def guarded(
    context: EngineContext,
    situation: Situation,
    facts: Facts,
    controlled_links: Controlled,
    deadline: datetime,
) -> Situation:
    """Return a situation with the holds of engaged guards, and store which guards are engaged, in its records too.

    Services that report queues are asked, until `deadline`, about links with anything in flight. What the
    controller said of links from which FTS takes transfers away is decided anew with that.
    """
    controlled = [demand for demand in situation.demands if demand.flow.control.mode is not Mode.OFF]
    if not controlled:
        return situation
    start, length = situation.cycle.start, situation.cycle.length
    deletions = context.ledger.deletions(start - MEASURED, start - LATELY * length)
    records, cycle = controlled_links.records, situation.cycle
    queues, requests = fts_queues.read(context, records, cycle, controlled, deadline)
    ours, destinations = context.ledger.resident(), dict(situation.destinations)
    places = {demand.flow.link.destination for demand in controlled}
    of_places = {name: destinations[name] for name in places}
    now = context.clock.now()
    least = spaces.least(context.ledger, context.looks, situation.cycle, now, of_places, facts)
    for name, (space, age) in least.items():
        destinations[name] = replace(destinations[name], space=space, free=space - ours.get(name, 0), age=age)
    nearly_full = spaces.nearly_full(
        context.ledger, situation, {name: destinations[name] for name in places}, deletions
    )
    destinations |= nearly_full
    careful = _careful(context.ledger, situation, destinations, places, deletions)
    roomy = {name for name in places - nearly_full.keys() if destinations[name].space is not None}
    readings = _readings(
        context,
        situation,
        destinations,
        controlled,
        controlled_links.decisions,
        roomy,
        facts,
        deletions,
        queues,
        requests,
    )
    _say_unmeasured(context, readings)
    floors = {
        demand.flow.key: (queue.active + STEP) * queue.file
        for demand in controlled
        if (queue := queues.get(demand.flow.link)) is not None
    }
    transfers = fts_queues.taken_away(controlled, queues, now)
    foreseen = controlling.foreseen(controlled_links, cycle, transfers)
    leading = partial(_leading, {demand.flow.key: demand for demand in controlled}, readings, careful)
    with context.ledger.together():
        engaged = controlling.engage(context.ledger, records, cycle, foreseen, readings, floors, leading, now)
    acting: dict[FlowKey, Demand] = {}
    late: dict[str, Held] = {}
    held_back: dict[str, Destination] = {}
    for demand in controlled:
        if demand.flow.control.mode is not Mode.ACT:
            continue
        key, place = demand.flow.key, demand.flow.link.destination
        holding = engaged.get(key, {})
        if Hold.DELETION_LAG in holding and (held := guards.leading({Hold.DELETION_LAG: 0}, readings[key])):
            late[place] = held
        informed = replace(demand, decision=foreseen[key]) if key in foreseen else demand
        acting[key] = _held_by(informed, holding, readings[key], leading) if holding else informed
    rooms = {name: _room(destinations[name], careful[name]) for name in nearly_full}
    acting_on = {key.link.destination for key in acting}
    context.rooms = {key: rooms[key.link.destination] for key in acting if key.link.destination in rooms}
    for name in places:
        guarded = careful[name]
        if name in late:
            numbers = late[name].numbers
            guarded = replace(guarded, deleted=int(numbers["deleted"]), late=numbers)
        seen = replace(situation.destinations[name], deletions=guarded.deletions)
        held_back[name] = replace(seen, guarded=guarded) if name in acting_on else seen
    demands = tuple(acting.get(demand.flow.key, demand) for demand in situation.demands)
    return replace(situation, demands=demands, destinations={**situation.destinations, **held_back})


def _held_by(
    demand: Demand,
    holding: guards.Engaged,
    readings: Mapping[Hold, GuardReading],
    leading: Callable[[FlowKey, guards.Engaged], Held | None],
) -> Demand:
    """Return a demand with what the guards that hold its link make of it."""
    held = demand.held or (leading(demand.flow.key, holding) if set(holding) - guards.PACING else None)
    if Hold.FAILING not in holding:
        return replace(demand, held=held)
    return replace(demand, held=held, failing=True, failed=readings[Hold.FAILING].value)


def _leading(
    demands: Mapping[FlowKey, Demand],
    readings: Mapping[FlowKey, Mapping[Hold, GuardReading]],
    destinations: Mapping[str, Destination],
    key: FlowKey,
    holding: guards.Engaged,
) -> Held | None:
    """Return the hold of the tightest of the guards that hold a link, and beside it all others."""
    held = guards.leading(holding, readings[key])
    if held is None:
        return None
    others = [hold for hold in holding if hold is not held.hold]
    if held.hold is Hold.DESTINATION_FULL:
        lack = destinations[key.link.destination].lacks_now(demands[key].due)
        held = Held(lack.hold, {**held.numbers, **lack.numbers})
    return beside(held, others)


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
            reserve = round((1 - guards.USED) * space)
            space, free = space - reserve, free - reserve
        needed = lifetime.needed(parts[name], space, in_time, may_end=situation.may_end)
        is_late = measured is not None and measured > late[name]
        careful[name] = replace(
            destinations[name],
            space=space,
            free=free,
            deletion_lag=in_time if measured is None else max(lag, measured),
            deletions=Deletions(needed, overdue.get(name, 0), measured, is_late),
        )
    return careful


def _readings(
    context: EngineContext,
    situation: Situation,
    destinations: Mapping[str, Destination],
    demands: Sequence[Demand],
    decisions: Mapping[FlowKey, Decision],
    roomy: Container[str],
    facts: Facts,
    deletions: Mapping[str, tuple[timedelta, int]],
    queues: Mapping[Link, LinkQueue],
    in_rucio: Mapping[Link, Requests],
) -> dict[FlowKey, dict[Hold, GuardReading]]:
    """Return what each guard reads of each flow.

    Where nothing of a flow has been seen for some cycles, since its service did not answer, nobody knows either
    what has been deleted. At destinations that are `roomy`, late deletions do no harm yet.
    """
    stale, resident = _stale(context.ledger, situation, demands), context.ledger.resident()
    unknown, of_source, of_place = RseFacts(""), {}, {}
    for service, name in {(demand.flow.link.through, demand.flow.link.source) for demand in demands}:
        is_readable = facts.get((service, name), unknown).readable
        of_source[service, name] = {Hold.SOURCE_UNAVAILABLE: _closed(name, is_readable, "read")}
    for service, name in {(demand.flow.link.through, demand.flow.link.destination) for demand in demands}:
        is_writable = facts.get((service, name), unknown).writable
        of_place[service, name] = {
            Hold.DESTINATION_UNAVAILABLE: _closed(name, is_writable, "write"),
            Hold.DELETION_LAG: GuardReading(0.0, {})
            if name in roomy
            else _overdue(stale.get(name, 0), resident.get(name, 0), deletions.get(name)),
            Hold.DESTINATION_FULL: _used(destinations.get(name, Destination()), resident.get(name, 0)),
        }
    oldest = LOOKS * situation.cycle.length
    unseen = {
        key: {Hold.DELETION_LAG: GuardReading(None, {}, "inconclusive")}
        for key, decision in decisions.items()
        if decision.signals.age is not None and decision.signals.age > oldest
    }
    return {
        demand.flow.key: {
            **of_source[demand.flow.link.through, demand.flow.link.source],
            **of_place[demand.flow.link.through, demand.flow.link.destination],
            **unseen.get(demand.flow.key, {}),
            Hold.FAILING: _failing(demand),
            Hold.FTS_QUEUE: fts_queues.reading(
                demand, queues.get(demand.flow.link), in_rucio.get(demand.flow.link)
            ),
        }
        for demand in demands
    }


def _overdue(late: int, there: int, gone: tuple[timedelta, int] | None) -> GuardReading:
    """Return which part of our bytes at a destination should be gone by now, and what is deleted in a cycle."""
    lag = {} if gone is None else {"lag": round(gone[0].total_seconds())}
    value = _part(late, there) if late or gone is not None or not there else None
    deleted = 0 if gone is None else gone[1] // LATELY
    return GuardReading(value, {"bytes": late, "resident": there, "deleted": deleted, **lag})


def _closed(name: str, able: bool | None, verb: str) -> GuardReading:
    value = None if able is None else float(not able)
    return GuardReading(value, {"rse": name, "signal": f"availability_{verb}"})


def _used(destination: Destination, ours: int) -> GuardReading:
    """Return which part of a space is used, or will be by what is on its way, when the cycle ends.

    Beside it stands what of that is ours: the rest is used by others.
    """
    space, free = destination.space, destination.free
    if space is None or free is None or space <= 0:
        return GuardReading(None, {})
    numbers = {"space": space, "free": free, "resident": ours, **destination.age_numbers}
    return GuardReading(1 - (free + destination.going) / space, numbers)


def _say_unmeasured(context: EngineContext, readings: Mapping[FlowKey, Mapping[Hold, GuardReading]]) -> None:
    """Note where deletions are not measured, since none was due yet: rules live long there, or are new."""
    measured: dict[str, bool] = defaultdict(bool)
    for key, by_hold in readings.items():
        measured[key.link.destination] |= by_hold[Hold.DELETION_LAG].value is not None
    why = "inconclusive: nothing of ours there has ended long enough ago to be gone"
    context.ledger.record_signals(
        (
            ("deletions", name, "known" if is_known else None, "" if is_known else why)
            for name, is_known in measured.items()
        ),
        context.clock.now(),
    )


def _failing(demand: Demand) -> GuardReading:
    """Return the fraction of a flow's recently ended bytes that failed, as it stands in the demand."""
    return GuardReading(demand.failed, {}, "" if demand.failed is not None else "inconclusive")


def _stale(ledger: Reader, situation: Situation, demands: Iterable[Demand]) -> dict[str, int]:
    """Return our bytes at each destination that should be gone by now.

    They have an hour for that beside the deletion lag; or as long as they lived, where that is shorter: what stays
    for two lifetimes takes twice the space that was planned.
    """
    lived: dict[str, timedelta] = {}
    for demand in demands:
        name = demand.flow.link.destination
        lived[name] = max(demand.flow.lifetime_max, lived.get(name, timedelta(0)))
    late = {name: max(min(LATE, longest), LOOKS * situation.cycle.length) for name, longest in lived.items()}
    lags = {name: situation.destinations.get(name, Destination()).deletion_lag for name in late}
    return _ended_before(ledger, {name: situation.now - lags[name] - late[name] for name in late})


def _ended_before(ledger: Reader, moments: Mapping[str, datetime]) -> dict[str, int]:
    """Return our bytes at destinations that ended at these moments or before, and are not known to be gone."""
    sizes: dict[str, int] = defaultdict(int)
    for entry in ledger.entries(State.ENDED):
        name = entry.injection.link.destination
        if name in moments and entry.ended_at is not None and entry.ended_at <= moments[name]:
            sizes[name] += entry.injection.item.bytes
    return sizes


def _part(part: int, whole: int) -> float:
    return part / whole if whole > 0 else 0.0
