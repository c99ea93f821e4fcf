"""The last check of every chosen item just before its release, and another item in place of an unusable one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from dc_inject.engine.calls import Batch
from dc_inject.engine.context import EngineContext
from dc_inject.model import Bundle, Flow, FlowKey, Hold, Injection, Item, Slice
from dc_inject.model.events import SetAside
from dc_inject.model.groups import grouped
from dc_inject.model.items import ItemId, units_of
from dc_inject.model.ports import Candidate, ReplicaStatus, in_parts
from dc_inject.model.transitions import UNASKED
from dc_inject.planning import lifetime, plan
from dc_inject.planning.second_hops import select_second_hops

ROUNDS = 4  # of looking and taking another one; what is still missing then stays in the debt
CHECK_AT_ONCE = 400  # candidates in one bulk call, as measured with Rucio
GROWN = 1.05  # the largest factor by which an item may have grown since it was weighed
UNEVEN = 2.0  # the same of a slice, which was weighed by its parent's mean file
SET_ASIDE = timedelta(hours=1)  # how long an item that cannot be used is not looked at again
NOT_WHOLE = "it is not complete at the source"
NOT_LISTED = "its files cannot be listed, or are not those of the inventory any more"
THERE = "it is at the destination already"
ON_ITS_WAY = "files of it are on their way to the destination for another rule, or being deleted there"
SHARED = "it has files of another dataset that is about to go to this destination"
OF_DESTINATION = frozenset({THERE, ON_ITS_WAY, SHARED})  # reasons that are no fault of the source
NOT_HELD = "nothing holds it at the source"
_SOON = frozenset({NOT_WHOLE, NOT_HELD})  # what Rucio may report of a dataset for a while after a change


def replace_unusable(
    context: EngineContext,
    situation: plan.Situation,
    chosen: Sequence[Injection],
    budgets: Mapping[FlowKey, int],
    deadline: datetime,
    standing: Sequence[Injection] = (),
) -> tuple[list[Injection], frozenset[FlowKey]]:
    """Check the chosen injections once more, and replace those that would cause no transfer by others.

    Returns the injections that will cause transfers, and the flows whose candidates a service gave no answer
    about: these are left out, and the caller has to try again.

    `budgets` are bytes for each flow, which the result keeps to as `refill` of a planner does; `standing` are
    injections of this cycle that stand already.
    """
    good: list[Injection] = []
    unseen: set[FlowKey] = set()
    taken, once_only = set(situation.taken), set(situation.once_only)
    onward = select_second_hops(demand.flow for demand in situation.demands)
    claims = FileClaims(context)
    unread = claims.unread({injection.link.destination for injection in chosen})
    for _ in range(ROUNDS):
        if not chosen:
            break
        # Files for FTS are not looked at: their copies have names of their own, and FTS reports the fate of each.
        bundles = (
            _fit_job(context, onward.get(intent.flow), intent)
            for intent in chosen
            if isinstance(intent.item, Bundle)
        )
        good += [bundle for bundle in bundles if bundle is not None]
        chosen = [injection for injection in chosen if not isinstance(injection.item, Bundle)]
        taken |= {(injection.item.id, injection.link.destination) for injection in chosen}
        once_only |= {
            (item, intent.scenario) for intent in (*good, *chosen) if intent.once for item in units_of(intent.item)
        }
        statuses, failed = _check(context, (*chosen, *unread), deadline)
        failed &= {injection.flow for injection in chosen}
        unseen |= failed
        for injection in unread:  # files of intents of an earlier process, as far as they could be listed
            if (listed := statuses.get(Candidate(injection.item.id, injection.link))) is not None:
                claims.add(injection, listed)
        unread = ()
        short: set[FlowKey] = set()
        for injection in chosen:
            if injection.flow in failed:
                continue
            status = statuses.get(Candidate(injection.item.id, injection.link))
            until = status.source_until if status else None
            bounded = _within(context, onward.get(injection.flow), until, injection)
            ends_at, landed = bounded.release + bounded.lifetime, injection.flow in onward
            why = why_not(status, bounded.item, ends_at, landed=landed) or claims.why_not(injection, status)
            if why or status is None or status.item is None:
                taken |= _set_aside(context, injection, why)
                short.add(injection.flow)
            else:
                claims.add(injection, status)
                good.append(bounded if status.item == bounded.item else replace(bounded, item=status.item))
        room = {
            flow: budgets[flow] - sum(injection.item.bytes for injection in good if injection.flow == flow)
            for flow in short
        }
        leaving = situation.leaving | {(injection.item.id, injection.link.source) for injection in good}
        remaining = replace(
            situation,
            now=context.clock.now(),
            taken=frozenset(taken),
            leaving=leaving,
            once_only=frozenset(once_only),
        )
        chosen = context.planner.refill(remaining, room, (*standing, *good)) if short else ()
    return good, frozenset(unseen)


def _fit_job(context: EngineContext, hop: Flow | None, injection: Injection) -> Injection | None:
    """Return a job as it can be used; None for one of a second hop whose first copies end too soon after it."""
    if hop is None or not isinstance(injection.item, Bundle):
        return injection
    until = context.ledger.entry(injection.item.copied_by).expires_at
    bounded = _within(context, hop, until, injection)
    if lifetime.is_outliving(bounded.release + bounded.lifetime, until):
        context.trouble(injection.flow, Hold.POOL_DRY, "what has landed will be deleted too soon")
        return None
    return bounded


def _within(context: EngineContext, hop: Flow | None, until: datetime | None, injection: Injection) -> Injection:
    """Return the injection of a second hop that ends one observation before its first copy."""
    if hop is None or until is None:
        return injection
    spacing = injection.cycle.length / context.settings.observations_per_cycle
    return replace(injection, lifetime=lifetime.limit_second_copy(injection, until - spacing, hop.lifetime_min))


def why_not(status: ReplicaStatus | None, item: Item, ends_at: datetime, *, landed: bool = False) -> str:
    """Return why an item would cause no traffic, or could be lost before its rule ends; empty when it is usable.

    What has `landed` by a rule of ours is complete when that rule's locks show it, which is why it was chosen;
    Rucio's summary of what is where follows minutes later.
    """
    if status is None or status.item is None:
        return NOT_LISTED if isinstance(item, Slice) else "it does not exist any more"
    if not status.closed:
        return "it is still open"
    if status.files is None:
        return NOT_LISTED
    most = UNEVEN if isinstance(item, Slice) else GROWN
    if status.item.bytes > most * item.bytes or status.item.files > GROWN * item.files:
        return "it has grown since the inventory was read"  # bounds, space and quota were weighed for what it was
    if not status.item.bytes or not (status.source_complete or (landed and status.source_locked)):
        return NOT_WHOLE
    if not status.source_locked:
        return NOT_HELD
    if lifetime.is_outliving(ends_at, status.source_until):
        return "the source may lose it before its rule ends"
    if status.destination_bytes or status.destination_locked:
        return THERE
    return ON_ITS_WAY if status.destination_busy else ""


class FileClaims:
    """Files that will be on their way to destinations by rules of ours that are not made yet.

    Once a rule is made, Rucio lists a replica of each of its files at the destination. Until then only we know
    that another dataset with one of these files would cause no transfer of it.
    """

    def __init__(self, context: EngineContext) -> None:
        """Take over what is claimed by intents without a rule."""
        self._unasked = {entry.injection.key: entry.injection for entry in context.ledger.entries(*UNASKED)}
        self._kept = context.claimed
        for key in self._kept.keys() - self._unasked.keys():
            del self._kept[key]
        self._claimed: dict[str, set[int]] = defaultdict(set)  # destination -> files
        for key, files in self._kept.items():
            self._claimed[self._unasked[key].link.destination] |= files

    def unread(self, destinations: Container[str]) -> tuple[Injection, ...]:
        """Return the intents for destinations whose files are not known: those of an earlier process."""
        return tuple(
            injection
            for key, injection in self._unasked.items()
            if key not in self._kept
            and injection.link.destination in destinations
            and injection.link.service.unique
        )

    def why_not(self, injection: Injection, status: ReplicaStatus | None) -> str:
        """Return why an item would bring files that another one brings; empty if it would not."""
        files = status.files if status else None
        return SHARED if files and not files.isdisjoint(self._claimed[injection.link.destination]) else ""

    def add(self, injection: Injection, status: ReplicaStatus) -> None:
        """Claim the files of an item that will go out."""
        if status.files:
            self._kept[injection.key] = status.files
            self._claimed[injection.link.destination] |= status.files


def _check(
    context: EngineContext, chosen: Sequence[Injection], deadline: datetime
) -> tuple[dict[Candidate, ReplicaStatus], set[FlowKey]]:
    """Look in bulk, source by source, so that trouble at one source is no trouble of the others."""
    by_source = grouped(((injection.link.through, injection.link.source), injection) for injection in chosen)
    batches = [
        Batch(service, part, partial(context.backends[service].check_replicas, candidates))
        for (service, _), injections in by_source.items()
        for part in in_parts(injections, CHECK_AT_ONCE)
        for candidates in [[Candidate(injection.item.id, injection.link) for injection in part]]
    ]
    answers, errors = context.calls.gather(batches, deadline)
    failed: set[FlowKey] = set()
    for batch, error in errors:
        flows = {injection.flow for injection in batch.subjects}
        context.fail(batch.service, error, sorted(flows))
        failed |= flows
    return {candidate: status for _, answer in answers for candidate, status in answer.items()}, failed


def _set_aside(context: EngineContext, injection: Injection, why: str) -> set[tuple[ItemId, str]]:
    """Set an item aside for its destination, with a slice also the dataset that it is of; returns them."""
    now, destination = context.clock.now(), injection.link.destination
    # Of a dataset whose files cannot be listed, another slice would be chosen next, again and again.
    item = injection.item
    aside: list[ItemId] = [item.id]
    if isinstance(item, Slice) and why not in OF_DESTINATION:
        aside.append(item.range.parent)
    for name in map(str, aside):
        until = now + SET_ASIDE
        if why in _SOON:  # it is looked at in the next cycle, and then ever less often
            cycle, times = injection.cycle, context.ledger.times_set_aside(name, destination)
            more: timedelta = (2 ** min(times, 20) - 1) * cycle.length
            until = max(cycle.end, min(cycle.end + more, until))
        context.ledger.quarantine(name, destination, why, now, until=until)
    context.trouble(injection.flow, Hold.POOL_DRY, why)
    context.report(SetAside(injection.item.name, destination, why))
    return {(item_id, destination) for item_id in aside}
