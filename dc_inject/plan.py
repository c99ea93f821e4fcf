"""Planning of one cycle: from what is due and what is known, to what will be injected, when, and why not more.

Everything here is pure: the same Situation gives the same Plan, whatever the order of its parts.

    debt   = due x (1 + overhead) - forgiven - injected - in doubt                          (totals of the account)
    limited: what lasting limits (rates, space, pool) do not let through of this cycle's due is forgiven at once
    cap    = max(2 x largest due of the last three cycles x (1 + overhead), smallest free dataset)
    budget = clamp(debt, 0, cap), cut to what is free, and to what others leave of a limit now

What of the debt exceeds the cap is forgiven as well. Budgets are in bytes and may be smaller than a dataset:
`Pool.take` lets a dataset go out once half of it is covered, and the debt remembers the other half.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from dc_inject import holds, lifetime, naming, pace
from dc_inject.holds import Claim, Constraint, Cut, Destination
from dc_inject.model import Cycle, Flow, FlowKey, Held, Hold, Injection, Item, Limits, Link, PoolKey, Site
from dc_inject.pool import Pool, Taste

__all__ = ["Account", "Decision", "Demand", "Destination", "Plan", "Situation", "plan", "refill"]

SLACK = 0.2  # of a cycle's due, by which a cycle may inject more than its budget
QUARTER = timedelta(minutes=15)
CAP = 2  # cycles' worth of debt that a cycle may make up


@dataclass(frozen=True, slots=True)
class Account:
    """The totals of one flow key up to now, in bytes, this cycle's due included (design: debt).

    `extra` are the bytes that overheads added to the due of each cycle; None: the overhead was always today's.
    """

    due: int = 0
    injected: int = 0
    forgiven: int = 0
    in_doubt: int = 0
    extra: int | None = None


@dataclass(frozen=True, slots=True)
class Demand:
    """What one flow wants in this cycle.

    `due` is this cycle's; `recent_due` the largest of the last three cycles, this one included.
    `intended` are bytes of intents of this cycle that are already in the ledger, and not yet in the account.
    `held` is a hold that is known before planning (paused, excluded, credentials, unavailable ...): budget 0.
    `before` is the hold of the cycle before, which the debt comes from; with none (None), or with `grain`, the debt
    only waits for a dataset that it can pay for, and is not forgiven.
    `completion` is the measured time from release to completion, None while unknown (first four cycles).
    """

    flow: Flow
    due: int
    recent_due: int
    account: Account
    intended: int = 0
    held: Held | None = None
    before: Hold | None = Hold.NOT_RUNNING
    completion: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Situation:
    """All that planning knows: the frozen snapshot of one cycle.

    `rules_last_hour` and `last_hour` (bytes by link) count what was given in the cycles that began within an
    hour before the END of this cycle, this cycle not included: so that four quarters of an hour make an hour.
    """

    campaign: str
    contact: str
    cycle: Cycle
    now: datetime
    demands: tuple[Demand, ...]
    pools: Mapping[PoolKey, Sequence[Item]]
    taken: AbstractSet[tuple[str, str]] = frozenset()  # (item, destination) resident, on its way or set aside
    leaving: AbstractSet[tuple[str, str]] = frozenset()  # (item, source) that leaves that source now
    destinations: Mapping[str, Destination] = field(default_factory=dict)
    sites: tuple[Site, ...] = ()
    site_of: Mapping[str, str] = field(default_factory=dict)  # RSE -> site; an RSE without one is its own
    limits: Limits = field(default_factory=Limits)
    rules_last_hour: int = 0
    last_hour: Mapping[Link, int] = field(default_factory=dict)
    files_in_flight: int = 0
    may_end: bool = False  # complete rules can be ended early


@dataclass(frozen=True, slots=True)
class Decision:
    """What planning decided for one flow: the row of the cycle, before it is known what comes of it.

    `want` is the debt before anything of it is forgiven; `pool_items` and `pool_bytes` were free for this link.
    """

    key: FlowKey
    due: int
    want: int
    cap: int
    budget: int
    forgiven: int
    held: Held | None
    lifetime: timedelta
    items: tuple[Item, ...]
    pool_items: int
    pool_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions for every demand (sorted by flow key) and the injections that follow from them."""

    cycle: Cycle
    decisions: tuple[Decision, ...]
    injections: tuple[Injection, ...]


def plan(situation: Situation) -> Plan:
    """Decide what every demand gets in this cycle."""
    intended: dict[Link, int] = defaultdict(int)
    for demand in situation.demands:
        intended[demand.flow.link] += demand.intended
    desk = _Desk(situation, situation.demands, intended)
    desk.set_budgets()
    desk.choose()
    return Plan(situation.cycle, tuple(map(desk.decision, desk.lines)), desk.injections())


def refill(
    situation: Situation, room: Mapping[FlowKey, int], given: Sequence[Injection] = ()
) -> tuple[Injection, ...]:
    """Choose more items for flows that have bytes of their budget left, in place of what could not be used.

    `room` are the bytes left. Everything in `situation.taken` is passed by; `given` are the injections of this
    cycle that stand, which count against what is free and against the limits.
    """
    some = [demand for demand in situation.demands if room.get(demand.flow.key, 0) > 0 and demand.held is None]
    used: dict[Link, int] = defaultdict(int)
    for injection in given:
        used[injection.link] += injection.item.bytes
    desk = _Desk(situation, some, used)
    for line in desk.lines:
        line.left = room[line.demand.flow.key]
    desk.choose(rules=len(given), files=sum(injection.item.files for injection in given))
    return desk.injections()


# --------------------------------------------------------------------------- one flow, while it is decided on


@dataclass(slots=True)
class _Line:
    """What is known and decided of one demand."""

    demand: Demand
    lifetime: timedelta
    claim: Claim
    pool: Pool | None
    taken: set[str]  # what this link cannot take: at its destination, or in this plan already
    free_items: int
    free_bytes: int
    smallest: int  # bytes of the smallest free item, 0 when there is none
    seed: int
    want: int = 0
    cap: int = 0
    budget: int = 0
    limited: int = 0  # of this cycle's due: what lasting limits do not let through
    shared: int = 0  # of the budget: what others get of a limit in this cycle
    forgiven: int = 0
    left: int = 0  # bytes of the budget that no item was chosen for yet
    cuts: list[Cut] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    stopped: Held | None = None  # by a limit that datasets were too large or too many for

    @property
    def due(self) -> int:
        """What is due in this cycle, with overhead."""
        return _with_overhead(self.demand.due, self.demand.flow)


class _Desk:
    """The lines of all demands of one situation, and what they share."""

    def __init__(self, situation: Situation, demands: Iterable[Demand], used: Mapping[Link, int]) -> None:
        self._s = situation
        self._pools: dict[PoolKey, Pool] = {}
        self._free: dict[tuple[PoolKey, str], tuple[int, int, int]] = {}
        self._taken = _by_place(situation.taken)
        self._leaving = _by_place(situation.leaving)
        self._ingress: dict[str, float] = defaultdict(float)
        for demand in sorted(situation.demands, key=lambda demand: demand.flow.key):
            recent = _with_overhead(demand.recent_due, demand.flow)
            self._ingress[demand.flow.link.destination] += recent / situation.cycle.length.total_seconds()
        self.lines = [self._line(demand) for demand in sorted(demands, key=lambda demand: demand.flow.key)]
        links = {*situation.last_hour, *used}
        self._constraints = holds.constraints(
            [line.claim for line in self.lines],
            situation.cycle.length,
            _less(situation.destinations, used),
            situation.sites,
            situation.site_of,
            situation.limits,
            {link: situation.last_hour.get(link, 0) + used.get(link, 0) for link in links},
        )

    def _line(self, demand: Demand) -> _Line:
        flow, s = demand.flow, self._s
        name = flow.link.destination
        known = s.destinations.get(name, Destination())
        # What goes in the course of a cycle is free for planning at the start of the next one only: counted as lag,
        # or every stay would end with a cycle that gets nothing.
        lag = known.deletion_lag + s.cycle.length
        shortest, longest = flow.lifetime_min, flow.lifetime_max
        fitted = lifetime.fitting(known.space, self._ingress[name], lag, shortest, longest)
        r = lifetime.stay(fitted, longest, demand.completion if s.may_end else None, flow.dwell)
        pool = self._pool(flow.pool)
        # Through FTS every copy has a name of its own: only within this plan an item goes out once.
        taken = self._taken[name] if flow.link.through == "rucio" else set()
        free_items, free_bytes, smallest = self._free_of(flow.pool, pool, name, taken)
        return _Line(
            demand=demand,
            lifetime=longest if s.may_end else fitted,
            claim=Claim(
                flow.link,
                flow.priority,
                flow.pool,
                None if pool is None or flow.link.through != "rucio" else pool.bytes,
                lifetime.horizon(r, lag, flow.end - flow.start),
            ),
            pool=pool,
            taken=taken,
            free_items=free_items,
            free_bytes=free_bytes,
            smallest=smallest,
            seed=_seed(s.campaign, s.cycle.name, str(flow.link), flow.link.through),
        )

    def _pool(self, key: PoolKey) -> Pool | None:
        if key not in self._pools and key in self._s.pools:
            self._pools[key] = Pool(self._s.pools[key])
        return self._pools.get(key)

    def _free_of(self, key: PoolKey, pool: Pool | None, name: str, taken: set[str]) -> tuple[int, int, int]:
        """Return number and bytes of what a link may take, and the bytes of the smallest of it."""
        if pool is None:
            return 0, 0, 0
        place = key, name if taken else ""
        if place not in self._free:
            count, size = pool.among(taken)
            smallest = pool.smallest(taken)
            self._free[place] = len(pool) - count, pool.bytes - size, smallest.bytes if smallest else 0
        return self._free[place]

    # ------------------------------------------------------------------ how much

    def set_budgets(self) -> None:
        """Turn debts into budgets: forgive what can never be made up, and share what is scarce now."""
        claims = [line.claim for line in self.lines]
        lasting = [constraint for constraint in self._constraints if constraint.lasting]
        dues = [0 if line.demand.held else line.due for line in self.lines]
        limited, first = holds.cut(dues, claims, lasting)
        for line, due, part in zip(self.lines, dues, limited, strict=True):
            line.want = _debt(line.demand)
            line.limited = due - part
            self._cap(line)
        wants = [_claimed(line, part) for line, part in zip(self.lines, limited, strict=True)]
        parts, second = holds.cut(wants, claims, self._constraints)
        for i, (line, want, part) in enumerate(zip(self.lines, wants, parts, strict=True)):
            line.shared = want - part
            line.cuts = [cuts[i] for cuts in (first, second) if i in cuts]
            self._cap(line)

    def _cap(self, line: _Line) -> None:
        """Set the budget and what is forgiven, with the smallest dataset that is free at this moment."""
        demand, rest = line.demand, line.want - line.limited
        line.cap = max(CAP * _with_overhead(demand.recent_due, demand.flow), line.smallest)
        if demand.before in {None, Hold.GRAIN} and line.pool is not None:
            # It may have been saved up for half of a dataset that was the smallest then, and a smaller one has come
            # free: that is no reason to forgive it.
            line.cap = max(line.cap, min(rest, line.pool.largest // 2 + line.due))
        # With no pool to look at nobody knows what a debt waits for: nothing is forgiven.
        line.forgiven = line.limited + (max(0, rest - line.cap) if line.pool is not None else 0)
        line.budget = 0 if demand.held else max(0, min(rest, line.cap) - line.shared)
        line.left = line.budget - demand.intended

    # ------------------------------------------------------------------ which, and when

    def choose(self, rules: int = 0, files: int = 0) -> None:
        """Take items for every line with a budget: by priority, and of equals the poorest pool first.

        `rules` and `files` were given in this cycle already.
        """
        rooms = {c: c.room for c in self._constraints if c.room is not None}
        bounds: list[list[Constraint]] = [[] for _ in self.lines]
        for constraint in rooms:
            for i in constraint.members:
                bounds[i].append(constraint)
        ready = [i for i, line in enumerate(self.lines) if line.left > 0 and line.pool is not None]
        ready.sort(key=lambda i: (-self.lines[i].claim.priority, self.lines[i].free_bytes / self.lines[i].left, i))
        for i in ready:
            self._look_again(self.lines[i])
            tightest = min(bounds[i], key=lambda constraint: rooms[constraint])
            size = self._take(self.lines[i], tightest, rooms[tightest])
            for constraint in bounds[i]:
                rooms[constraint] -= size
        self._brake(rules, files)

    def _look_again(self, line: _Line) -> None:
        """Cap the budget by what links before this one have left over: it may have to save up for a larger item."""
        smallest = line.pool.smallest(line.taken) if line.pool else None
        if smallest is not None and smallest.bytes != line.smallest and line.want:
            line.smallest = smallest.bytes
            self._cap(line)

    def _take(self, line: _Line, tightest: Constraint, room: int) -> int:
        """Choose the items of one line, note what it leaves undone and why; return their bytes."""
        flow, pool = line.demand.flow, line.pool
        assert pool is not None
        leaving = self._leaving[flow.link.source]
        slack = int(SLACK * line.demand.due)
        taste = Taste(flow.order, int(flow.grain * line.due), line.seed)
        line.items = pool.take(line.left, slack, taste, room=room, taken=line.taken, leaving=leaving)
        names, size = {item.name for item in line.items}, sum(item.bytes for item in line.items)
        line.taken |= names
        leaving |= names
        line.left -= size
        if line.left > 0 and size < line.demand.due:
            last = pool.smallest(line.taken)
            if last and last.bytes > room - size and (last.bytes <= line.left + max(slack, line.left)):
                line.stopped = tightest.held(last.bytes, room - size)
        return size

    def _brake(self, rules: int, files: int) -> None:
        """Drop what is beyond the rules and files that the campaign may have: every link its part."""
        limits, length = self._s.limits, self._s.cycle.length
        # Pacing by the cycle keeps the hour even; short cycles may take a quarter of an hour's worth at once.
        paced = -(-limits.rules_per_hour * max(length, QUARTER) // holds.HOUR)
        rules_left = max(0, min(limits.rules_per_hour - self._s.rules_last_hour, paced) - rules)
        files_left = max(0, limits.files_in_flight - self._s.files_in_flight - files)
        numbers: tuple[dict[str, int | float | str], ...] = (
            {"limit": "rules_per_hour", "left": rules_left},
            {"limit": "files_in_flight", "left": files_left},
        )
        order = sorted(self._mixed(), key=lambda place: -self.lines[place[0]].claim.priority)
        kept: dict[int, list[int]] = defaultdict(list)
        for i, index in order:
            line = self.lines[i]
            count = line.items[index].files
            if rules_left >= 1 and files_left >= count:
                rules_left, files_left = rules_left - 1, files_left - count
                kept[i].append(index)
            else:
                which = numbers[0 if rules_left < 1 else 1]
                line.stopped = Held(Hold.CAMPAIGN_LIMIT, {**which, "wanted": len(order)})
        for i, line in enumerate(self.lines):
            line.items = [line.items[index] for index in kept[i]]

    def _mixed(self) -> list[tuple[int, int]]:
        """Return (line, index of item) of all that was chosen, every link spread evenly over the whole."""
        sizes = {i: [item.bytes for item in line.items] for i, line in enumerate(self.lines) if line.items}
        return pace.interleave(sizes, {i: self.lines[i].seed for i in sizes})

    # ------------------------------------------------------------------ what comes out

    def injections(self) -> tuple[Injection, ...]:
        """Return the intents, by the moment of their release."""
        s = self._s
        places = self._mixed()
        items = [self.lines[i].items[index] for i, index in places]
        times = pace.release_times([item.bytes for item in items], s.cycle, s.now)
        return tuple(
            self._injection(self.lines[i], item, moment)
            for (i, _), item, moment in zip(places, items, times, strict=True)
        )

    def _injection(self, line: _Line, item: Item, moment: datetime) -> Injection:
        flow, s = line.demand.flow, self._s
        return Injection(
            key=naming.key(s.campaign, flow.scenario, s.cycle.start, flow.link, item.name),
            campaign=s.campaign,
            cycle=s.cycle,
            scenario=flow.scenario,
            link=flow.link,
            item=item,
            release=moment,
            lifetime=line.lifetime,
            activity=flow.activity,
            service_priority=flow.service_priority,
            contact=s.contact,
        )

    def decision(self, line: _Line) -> Decision:
        """Return the row of one line."""
        return Decision(
            key=line.demand.flow.key,
            due=line.demand.due,
            want=line.want,
            cap=line.cap,
            budget=line.budget,
            forgiven=line.forgiven,
            held=self._held(line),
            lifetime=line.lifetime,
            items=tuple(line.items),
            pool_items=line.free_items,
            pool_bytes=line.free_bytes,
        )

    def _held(self, line: _Line) -> Held | None:
        """Return the one reason why a line gets less than its due, or why some of its debt is forgiven."""
        demand = line.demand
        if demand.held is not None:
            return demand.held
        given = demand.intended + sum(item.bytes for item in line.items)
        short = demand.due - given
        if short <= 0 and line.forgiven == 0:
            return None
        strongest = max(line.cuts, key=lambda cut: cut.bytes, default=None)
        # Debts wander by a dataset, so a limit that is just reached cuts a little now and then: not the reason.
        if strongest is not None and 2 * strongest.bytes >= short:
            return strongest.held
        if line.stopped is not None:
            return line.stopped
        if short <= 0:
            numbers = {"debt": line.want, "cap": line.cap, "forgiven": line.forgiven}
            return Held(demand.before or Hold.NOT_RUNNING, numbers)
        last = line.pool.smallest(line.taken) if line.pool else None
        if last is None:
            resident = line.pool.bytes - line.free_bytes if line.pool else 0
            numbers = {"pool_items": line.free_items, "pool_bytes": line.free_bytes, "resident": resident}
            return Held(Hold.POOL_DRY, numbers)
        return Held(Hold.GRAIN, {"budget": line.budget, "left": line.left, "smallest": last.bytes})


def _debt(demand: Demand) -> int:
    account = demand.account
    due = _with_overhead(account.due, demand.flow) if account.extra is None else account.due + account.extra
    return due - account.forgiven - account.injected - account.in_doubt


def _with_overhead(amount: int, flow: Flow) -> int:
    return round(amount * (1 + flow.overhead)) if flow.overhead else amount


def _claimed(line: _Line, part_of_due: int) -> int:
    """Return what a budget may use up of limits in this cycle.

    The debt of a coarse link grows until half a dataset is covered: that part of it is not asked of any limit
    in every cycle anew, just what is due now, and what is to be made up.
    """
    catching_up = min(line.budget - line.smallest // 2, CAP * line.due)
    return min(line.budget, max(part_of_due, catching_up))


def _by_place(pairs: AbstractSet[tuple[str, str]]) -> defaultdict[str, set[str]]:
    places: defaultdict[str, set[str]] = defaultdict(set)
    for item, place in pairs:
        places[place].add(item)
    return places


def _less(destinations: Mapping[str, Destination], used: Mapping[Link, int]) -> dict[str, Destination]:
    """Return destinations with what is free there less what links were given in this cycle."""
    gone: dict[str, int] = defaultdict(int)
    for link, some in used.items():
        gone[link.destination] += some
    return {
        name: replace(
            known,
            free=None if known.free is None else known.free - gone[name],
            quota_left=None if known.quota_left is None else known.quota_left - gone[name],
        )
        for name, known in destinations.items()
    }


def _seed(*parts: str) -> int:
    return int.from_bytes(hashlib.blake2b("\n".join(parts).encode(), digest_size=16).digest())
