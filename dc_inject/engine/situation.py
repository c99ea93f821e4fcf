"""The situation of a cycle, from which its plan is made: read from the ledger, the menus and services' answers.

A plan needs, for each link, its account, what is on its way and how fast it arrives, and how much of late failed;
for each destination the space that is left; for the campaign its limits, and what the last hour took of them. What
is in force at once is combined to the strictest: the smallest limit and space, the longest deletion lag.
`planning/plan.py` makes the plan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from dc_inject.engine.context import EngineContext
from dc_inject.ledger import Row, Totals, failing
from dc_inject.model import (
    Campaign,
    Cycle,
    Flow,
    FlowKey,
    Held,
    Hold,
    Item,
    Limits,
    Menu,
    PoolKey,
    RseSpec,
    Site,
    State,
    transitions,
    urls,
)
from dc_inject.model.groups import summed
from dc_inject.model.held import is_of_earlier_cycles
from dc_inject.model.items import blocked
from dc_inject.model.ports import RseFacts
from dc_inject.model.rates import site_of
from dc_inject.planning import lifetime, pace, plan, shards

SUBMITS_CYCLES = 8  # in which it is looked for how many rules and jobs there was time
RECENT = 3  # cycles of which the largest due counts, the one that is planned included
HOUR = timedelta(hours=1)
REMEMBERED = timedelta(hours=12)  # for how long it counts when an item last went out


class SituationReader:
    """Reads the situation of a cycle; it remembers which items went out lately from one cycle to the next."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._used: dict[str, dict[str, datetime]] = {}  # source -> item -> the cycle in which it last went out
        self._used_read: datetime | None = None

    def rows(self, cycle: Cycle) -> tuple[Row, ...]:
        """Return the rows of a cycle, and of those before it that its plan looks back at."""
        return self._context.ledger.rows(since=cycle.start - lifetime.UNKNOWN_CYCLES * cycle.length)

    def demands(
        self,
        cycle: Cycle,
        rows: Sequence[Row],
        flows: Mapping[FlowKey, Flow],
        held: Mapping[FlowKey, Held | None],
        extras: Mapping[FlowKey, int],
    ) -> tuple[plan.Demand, ...]:
        """Return what is known of each flow: its account, and how its bytes went lately, as its rows show.

        `extras` are the bytes on top of what flows are due in this cycle.
        """
        ledger, now = self._context.ledger, self._context.clock.now()
        accounts, all_extras = ledger.accounts(), ledger.extras()
        of_flow: dict[FlowKey, dict[datetime, Row]] = defaultdict(dict)
        for row in rows:
            of_flow[row.key][row.cycle.start] = row
        last = cycle.start - cycle.length
        before = {key: of_cycle[last] for key, of_cycle in of_flow.items() if last in of_cycle}
        held_before = {key: row.held for key, row in before.items() if row.held is not None}
        since = ledger.since or now
        settled = (cycle.start - since) / cycle.length >= lifetime.UNKNOWN_CYCLES
        completion = ledger.completion_times(now - lifetime.MEASURED_OVER) if settled else {}
        until_ended = lifetime.until_ended(completion, flows, cycle)
        arriving = self._arriving(cycle, flows, of_flow)
        stuck = failing.stuck_bytes(ledger)
        failed = failing.Failing(ledger, cycle, rows, flows, stuck, now).compute_parts()
        refused = self._context.refused.flows
        return tuple(
            plan.Demand(
                flow=flow,
                due=of_flow[key][cycle.start].due,
                recent_due=recent_due(cycle, of_flow[key]),
                account=account_of(accounts[key], all_extras[key]),
                held=held[key],
                before=held_before[key].hold if key in held_before else None,
                made_up=key in held_before and is_of_earlier_cycles(held_before[key]),
                saved=_saved(before[key]) if key in before else 0,
                completion=until_ended[key],
                failed=failed[key],
                # What its service has given up for now is in no queue, and may not move before it expires.
                coming=max(accounts[key].coming - stuck.get(key, 0), 0),
                arriving=arriving.get(key),
                extra=extras.get(key),
                refused=key in refused,
            )
            for key, flow in flows.items()
        )

    def read(
        self,
        campaign: Campaign,
        cycle: Cycle,
        demands: tuple[plan.Demand, ...],
        facts: Mapping[tuple[str, str], RseFacts],
        pools: Mapping[PoolKey, list[Item]],
    ) -> plan.Situation:
        """Return all that the plan of a cycle starts from; `facts` are by service and end of a link."""
        ledger, now = self._context.ledger, self._context.clock.now()
        flows = [demand.flow for demand in demands]
        earlier = ledger.given_in(cycle.end - HOUR, cycle.start)
        last_hour = summed((key.link, injected) for key, (injected, _) in earlier.items())
        submitted = ledger.submitted(cycle.start - SUBMITS_CYCLES * cycle.length, cycle.start)
        submits = {service: pace.time_for(counts) for service, counts in submitted.items()}
        withdrawn = ledger.entries(State.WITHDRAWN, cycle=Cycle(cycle.start - cycle.length, cycle.length))
        menus = campaign.in_force(cycle.start, cycle.end)
        limits, sites = _limits(menus, cycle, site_of(campaign))
        may_end = frozenset(name for name, identity in self._context.identities.items() if identity.may_end)
        return plan.Situation(
            campaign=campaign.name,
            contact=campaign.contact,
            cycle=cycle,
            now=now,
            demands=self._context.with_slices(demands),
            pools=pools,
            taken=frozenset(ledger.taken(now)),
            once_only=frozenset(ledger.once_only()) if any(flow.once for flow in flows) else frozenset(),
            leaving=frozenset(ledger.leaving()),
            used=self._note_last_used(cycle),
            destinations=self._destinations(menus, demands, facts, may_end),
            sites=sites,
            site_of=site_of(campaign),
            limits=limits,
            rules_last_hour=sum(rules for _, rules in earlier.values()),
            withheld=sum(entry.error == transitions.WITHHELD for entry in withdrawn),
            last_hour=last_hour,
            files_in_flight=ledger.files_in_flight(),
            submits={service: count for service, count in submits.items() if count is not None},
            may_end=may_end,
        )

    def _note_last_used(self, cycle: Cycle) -> Mapping[str, Mapping[str, datetime]]:
        """Read when items last left their sources, as far back as matters; old cycles are read once."""
        oldest = cycle.start - REMEMBERED
        for source, used in self._used.items():
            self._used[source] = {item: at for item, at in used.items() if at >= oldest}
        # What changed in the last cycles since they were read is read again: answers may come late.
        since = oldest if self._used_read is None else max(oldest, self._used_read - cycle.length)
        for item, source, at in self._context.ledger.used(since):
            for name in blocked(item):
                last = self._used.setdefault(source, {})
                last[name] = max(at, last.get(name, at))
        self._used_read = cycle.start
        return self._used

    def _arriving(
        self, cycle: Cycle, flows: Mapping[FlowKey, Flow], rows: Mapping[FlowKey, Mapping[datetime, Row]]
    ) -> dict[FlowKey, float]:
        """Return at which rate bytes arrived on each flow in the last cycles, in bytes per second.

        Only of flows that had something on its way all that time: where nothing was asked for, nothing can arrive.
        The time is four cycles, or half of the lifetime where that is shorter. It is not known where something was
        not looked at in the last cycle, since bytes count as moved when they are seen.
        """
        oldest = self._context.ledger.on_their_way_since()
        arriving = {}
        for key, (begin, arrived) in oldest.items():
            if key not in flows or arrived < cycle.start - cycle.length:
                continue
            count = max(1, min(lifetime.UNKNOWN_CYCLES, int(flows[key].lifetime_max / 2 / cycle.length)))
            since = cycle.start - count * cycle.length
            if begin <= since:
                moved = sum(row.moved for start, row in rows[key].items() if since <= start < cycle.start)
                arriving[key] = moved / (cycle.start - since).total_seconds()
        return arriving

    def _destinations(
        self,
        menus: Iterable[Menu],
        demands: Sequence[plan.Demand],
        facts: Mapping[tuple[str, str], RseFacts],
        may_end: Container[str],
    ) -> dict[str, plan.Destination]:
        """Combine what the menu grants, what the service sees, and what was measured of each destination."""
        specs = _specs(menus)
        resident, on_its_way = self._context.ledger.resident(), self._context.ledger.on_its_way()
        # several prefixes may be of one disk
        together = summed((urls.host_of(name), size) for name, size in on_its_way.items())
        unmeasured = {
            demand.flow.link.destination
            for demand in demands
            if demand.completion is None and demand.recent_due and demand.flow.link.through in may_end
        }
        result = {}
        for service, name in {(demand.flow.link.through, demand.flow.link.destination) for demand in demands}:
            spec, fact = specs.get(name, RseSpec()), facts.get((service, name), RseFacts(name))
            ours, coming = resident.get(name, 0), together[urls.host_of(name)]
            spaces = [spec.space, None if fact.free is None else fact.free - coming + ours]
            frees = [
                None if spec.space is None else spec.space - ours,
                None if fact.free is None else fact.free - coming,
            ]
            result[name] = plan.Destination(
                space=min((s for s in spaces if s is not None), default=None),
                free=min((f for f in frees if f is not None), default=None),
                quota_left=fact.quota_left,
                deletion_lag=spec.deletion_lag,
                measured=name not in unmeasured,
            )
        return result


def booked(
    campaign: Campaign, start: datetime, end: datetime, since: datetime | None = None
) -> dict[FlowKey, pace.Due]:
    """Return what the rates of menus make due in [start, end), before goals, pauses and control.

    What an exclusion redistributes goes to flows of other shards as well.
    """
    menus = campaign.in_force(start, end)
    exclusions = tuple(exclusion for menu in menus for exclusion in menu.exclusions)
    ours = {flow.key for menu in menus for flow in menu.flows}
    everyone = tuple(flow for menu in menus for flow in (*menu.flows, *menu.elsewhere))
    due = pace.due(everyone, exclusions, site_of(campaign), start, end, since)
    return {key: part for key, part in due.items() if key in ours}


def account_of(totals: Totals, extra: int) -> plan.Account:
    """Return an account as plans look at it."""
    return plan.Account(totals.due, totals.injected, totals.forgiven, totals.in_doubt, extra)


def recent_due(cycle: Cycle, rows: Mapping[datetime, Row]) -> int:
    """Return the largest due of a flow in the last cycles of the grid, this one included; rows are by start."""
    oldest = cycle.start - (RECENT - 1) * cycle.length
    return max(row.due for start, row in rows.items() if oldest <= start <= cycle.start)


def _saved(row: Row) -> int:
    """Return what a flow left of its debt by choice in a cycle, to save up for a dataset."""
    if row.held is not None and row.held.hold is not Hold.TOO_COARSE:
        return 0
    return max(0, row.want - row.forgiven - row.injected)


def _specs(menus: Iterable[Menu]) -> dict[str, RseSpec]:
    """Return what the menus grant of each RSE: of several the smallest space and the longest lag."""
    specs: dict[str, RseSpec] = {}
    for name, spec in ((n, s) for menu in menus for site in menu.sites for n, s in site.rses.items()):
        other = specs.get(name, spec)
        spaces = [space for space in (other.space, spec.space) if space is not None]
        specs[name] = RseSpec(min(spaces, default=None), max(other.deletion_lag, spec.deletion_lag))
    return specs


def _limits(menus: Sequence[Menu], cycle: Cycle, site_of: Mapping[str, str]) -> tuple[Limits, tuple[Site, ...]]:
    """Return the limits of a cycle, of a campaign in shards our part of them; the strictest of all menus."""
    limits, sites = strictest(menu.limits for menu in menus), tuple(site for menu in menus for site in menu.sites)
    elsewhere = _flows_in(cycle, (flow for menu in menus for flow in menu.elsewhere))
    if not elsewhere:
        return limits, sites
    flows = _flows_in(cycle, (flow for menu in menus for flow in menu.flows))
    return shards.divided(limits, sites, site_of, flows, elsewhere)


def _flows_in(cycle: Cycle, flows: Iterable[Flow]) -> list[Flow]:
    return [flow for flow in flows if flow.start < cycle.end and cycle.start < flow.end]


def strictest(limits: Iterable[Limits]) -> Limits:
    """Combine the limits of menus in force at once: a brake is as strong as the strongest of them."""
    in_force = list(limits) or [Limits()]
    return Limits(
        total=min(limit.total for limit in in_force),
        per_site=min(limit.per_site for limit in in_force),
        rules_per_hour=min(limit.rules_per_hour for limit in in_force),
        files_in_flight=min(limit.files_in_flight for limit in in_force),
    )
