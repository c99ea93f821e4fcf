"""Planning of one cycle: from what is due and what is known, to what will be injected, when, and why not more.

Everything here is pure: the same Situation gives the same Plan, whatever the order of its parts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from dc_inject.model import Bundle, Flow, FlowKey, Injection, Item, Link, Slice, naming
from dc_inject.model.goals import SecondHop
from dc_inject.model.groups import summed
from dc_inject.model.items import label
from dc_inject.model.plan import FlowDecision, Plan
from dc_inject.planning import limits
from dc_inject.planning.limits import Constraint, Destination
from dc_inject.planning.link_plan import LinkPlan, LinkPlans
from dc_inject.planning.release import Share, releases
from dc_inject.planning.selection import choose, count_rules_left, drop_beyond_limits, set_budgets, why
from dc_inject.planning.situation import Account, Demand, Situation

__all__ = ["Account", "Demand", "Destination", "Situation", "intent", "plan", "refill"]


def plan(situation: Situation) -> Plan:
    """Decide what every demand gets in this cycle."""
    intended = summed((demand.flow.link, demand.intended) for demand in situation.demands)
    plans = LinkPlans(situation, situation.demands)
    constraints = _constraints(situation, plans.lines, intended)
    set_budgets(plans.lines, constraints)
    choose(plans.lines, constraints, plans.leaving, count_rules_left(situation))
    drop_beyond_limits(situation, plans.lines)
    return Plan(situation.cycle, tuple(map(_decision, plans.lines)), _injections(situation, plans.lines))


def refill(
    situation: Situation, room: Mapping[FlowKey, int], standing: Sequence[Injection] = ()
) -> tuple[Injection, ...]:
    """Choose more items for flows that have bytes of their budget left, in place of what could not be used.

    `room` are the bytes left. Everything in `situation.taken` is passed by; `standing` are the injections of this
    cycle that stand, which count against what is free and against the limits.
    """
    used = summed((injection.link, injection.item.bytes) for injection in standing)
    wanting = [demand for demand in situation.demands if room.get(demand.flow.key, 0) > 0 and demand.held is None]
    plans = LinkPlans(situation, wanting)
    for line in plans.lines:
        line.unspent = room[line.demand.flow.key]
    constraints = _constraints(situation, plans.lines, used)
    choose(plans.lines, constraints, plans.leaving, count_rules_left(situation, len(standing)), budgets_stand=True)
    drop_beyond_limits(situation, plans.lines, standing)
    return _injections(situation, plans.lines)


def _constraints(situation: Situation, lines: Sequence[LinkPlan], used: Mapping[Link, int]) -> list[Constraint]:
    """Return the limits for these lines, less what links have `used` of them in this cycle already."""
    gone: dict[str, int] = defaultdict(int)
    spent = defaultdict(int, situation.last_hour)
    for link, amount in used.items():
        gone[link.destination] += amount
        spent[link] += amount
    destinations = {name: destination.less(gone[name]) for name, destination in situation.destinations.items()}
    claims = [line.claim for line in lines]
    return limits.constraints(
        claims,
        situation.cycle.length,
        destinations,
        situation.sites,
        situation.site_of,
        situation.limits,
        spent,
        used,
    )


def _decision(line: LinkPlan) -> FlowDecision:
    return FlowDecision(
        key=line.demand.flow.key,
        due=line.demand.due,
        want=line.want,
        cap=line.cap,
        budget=line.budget,
        forgiven=line.forgiven,
        held=why(line),
        lifetime=line.lifetime,
        items=tuple(line.items),
        pool_items=line.free_items,
        pool_bytes=line.free_bytes,
    )


def _injections(situation: Situation, lines: Sequence[LinkPlan]) -> tuple[Injection, ...]:
    """Return the intents of all lines, mixed so that every link and all together are given bytes evenly.

    Where there is no time for all calls, those of a line go out together, and only all links together evenly.
    Recalls go out at the start of the cycle: drives would be idle while the last part of a volume is spread.
    """
    result, tapes = [], {end for site in situation.sites if site.tape for end in site.tape.ends}
    shares = {i: _share(line) for i, line in enumerate(lines) if line.items}
    at_once = {i for i in shares if lines[i].demand.flow.link.through in situation.submits}
    for i, index, moment in releases(shares, at_once, situation.cycle, situation.now):
        line = lines[i]
        flow, item = line.demand.flow, _named(situation, line, index)
        at = situation.cycle.start if flow.link.source in tapes else moment
        keeps_files = flow.job is not None and (line.goes_on or isinstance(flow.goal, SecondHop))
        result.append(intent(situation, flow, item, at, line.lifetime, keeps_files=keeps_files))
    return tuple(result)


def intent(
    situation: Situation,
    flow: Flow,
    item: Item,
    release: datetime,
    lifetime: timedelta,
    *,
    keeps_files: bool = False,
) -> Injection:
    """Return the injection of an item on a flow in this cycle, at its moment of release."""
    return Injection(
        key=naming.key(situation.campaign, flow.scenario, situation.cycle.start, flow.link, item.name),
        campaign=situation.campaign,
        cycle=situation.cycle,
        scenario=flow.scenario,
        link=flow.link,
        item=item,
        release=release,
        lifetime=lifetime,
        activity=flow.activity,
        service_priority=flow.service_priority,
        contact=situation.contact,
        job=flow.job,
        once=flow.once,
        keeps_files=keeps_files,
    )


def _share(line: LinkPlan) -> Share:
    """Return what a line is given; additions to intents of the same cycle go out evenly."""
    sizes = [item.bytes for item in line.items]
    if line.budget <= 0 or line.demand.intended:
        return Share(sizes, sum(sizes), 0, line.seed)
    return Share(sizes, line.budget, line.carried, line.seed)


def _named(situation: Situation, line: LinkPlan, index: int) -> Item:
    """Return an item that was chosen, with what its name takes from the moment at which it is intended."""
    flow, item = line.demand.flow, line.items[index]
    if isinstance(item, Bundle):
        return replace(item, label=label(item.members, situation.now, index))
    if isinstance(item, Slice) and flow.slices is not None:
        where = situation.campaign, flow.scenario, situation.cycle.start, flow.link
        return naming.build_slice(item, flow.slices, *where)
    return item
