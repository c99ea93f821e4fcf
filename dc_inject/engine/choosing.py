"""From what planning chose to what can be used: one more look at every item, and another one in its place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from dc_inject import plan
from dc_inject.engine.desk import Desk
from dc_inject.model import FlowKey, Injection
from dc_inject.ports import Candidate, Sight

ROUNDS = 4  # of looking and taking another one; what is still missing then stays in the debt
LOOK_AT_ONCE = 400  # candidates in one bulk call, as measured with Rucio
SET_ASIDE = timedelta(hours=1)  # how long an item that is there already, or not whole, is not looked at again


def usable(
    desk: Desk,
    situation: plan.Situation,
    chosen: Sequence[Injection],
    budgets: Mapping[FlowKey, int],
    deadline: datetime,
    given: Sequence[Injection] = (),
) -> list[Injection]:
    """Return injections that will cause transfers: the chosen ones, or others for those that would not.

    `budgets` are bytes for each flow, which the result keeps to as `plan.refill` does; `given` are injections of
    this cycle that stand already. Raises the ServiceError of a look that failed: without it nothing is known.
    """
    good: list[Injection] = []
    taken = set(situation.taken)
    for _ in range(ROUNDS):
        if not chosen:
            break
        taken |= {(injection.item.name, injection.link.destination) for injection in chosen}
        sights = _look(desk, chosen, deadline)
        short: set[FlowKey] = set()
        for injection in chosen:
            sight = sights.get(Candidate(injection.item.name, injection.link))
            why = why_not(sight, injection)
            if why or sight is None or sight.item is None:
                _set_aside(desk, injection, why)
                short.add(injection.flow)
            else:
                good.append(replace(injection, item=sight.item))
        room = {flow: budgets[flow] - _bytes(good, flow) for flow in short}
        leaving = situation.leaving | {(injection.item.name, injection.link.source) for injection in good}
        again = replace(situation, now=desk.clock.now(), taken=frozenset(taken), leaving=leaving)
        chosen = plan.refill(again, room, (*given, *good)) if short else ()
    return good


def why_not(sight: Sight | None, injection: Injection) -> str:
    """Return why an item would cause no traffic, or could be lost under way; empty when it is usable."""
    if sight is None or sight.item is None:
        return "it does not exist any more"
    if not sight.closed:
        return "it is still open"
    if not sight.item.bytes or not sight.source_complete:
        return "it is not complete at the source"
    if not sight.source_locked:
        return "nothing holds it at the source"
    if sight.source_until is not None and sight.source_until < injection.release + injection.lifetime:
        return "the source may lose it before its rule ends"
    if sight.destination_bytes or sight.destination_locked:
        return "it is at the destination already"
    return ""


def _look(desk: Desk, chosen: Sequence[Injection], deadline: datetime) -> dict[Candidate, Sight]:
    by_service: dict[str, list[Candidate]] = defaultdict(list)
    for injection in chosen:
        by_service[injection.link.through].append(Candidate(injection.item.name, injection.link))
    tasks = {}
    for service, candidates in by_service.items():
        for start in range(0, len(candidates), LOOK_AT_ONCE):
            part = candidates[start : start + LOOK_AT_ONCE]
            tasks[service, start] = partial(desk.backends[service].look, part)
    results, errors = desk.calls.gather(tasks, deadline)
    for (service, _), error in errors.items():
        desk.fail(service, error)
        raise error
    return {candidate: sight for result in results.values() for candidate, sight in result.items()}


def _set_aside(desk: Desk, injection: Injection, why: str) -> None:
    now = desk.clock.now()
    item, destination = injection.item.name, injection.link.destination
    desk.ledger.quarantine(item, destination, why, now, until=now + SET_ASIDE)
    desk.tell("set-aside", item=item, destination=destination, why=why)


def _bytes(injections: Sequence[Injection], flow: FlowKey) -> int:
    return sum(injection.item.bytes for injection in injections if injection.flow == flow)
