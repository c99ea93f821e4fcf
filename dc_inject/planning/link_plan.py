"""The plan of a link while it is made (a line): one demand; and the lines of all demands of a situation.

A line begins with what is known of its link: what the link may not take (uniqueness), whether it gets slices, the
lifetime of its rules, and what constraints have to know of it. `selection.py` fills in budgets and
items.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import timedelta

from dc_inject.model import FileFilter, Flow, Held, Item, Mode, Numbers, PoolKey
from dc_inject.model.goals import Recycle, SecondHop, Volume
from dc_inject.model.items import Range, SliceId, blocked
from dc_inject.planning import lifetime
from dc_inject.planning.limits import Claim, Cut, Destination
from dc_inject.planning.pool import Pool
from dc_inject.planning.situation import Demand, Situation
from dc_inject.planning.slices import TakenRanges

FAILING = 0.5  # the part of transfers that fail from which a link counts as failing
ODD = 1000  # a file this many times smaller than the largest of its source is not injected
PROBE = 0.1  # of what is due: what it is still given

_Shelf = tuple[Pool | None, Mapping[str, tuple[int, int]]]


class Taken(AbstractSet[str]):
    """What may not be taken for any of several reasons; what is taken counts for each of them."""

    def __init__(self, *reasons: set[str]) -> None:
        """Take the sets, which others may share."""
        self._reasons = reasons

    def __contains__(self, name: object) -> bool:
        return any(name in reason for reason in self._reasons)

    def __iter__(self) -> Iterator[str]:
        return iter(set[str]().union(*self._reasons))

    def __len__(self) -> int:
        return len(set[str]().union(*self._reasons))

    def update(self, names: Iterable[str]) -> None:
        """Take these."""
        taken = set(names)
        for reason in self._reasons:
            reason.update(taken)


@dataclass(slots=True)
class LinkPlan:
    """What is known and decided of one demand; bytes everywhere."""

    demand: Demand
    cycle: timedelta  # its length
    lifetime: timedelta
    claim: Claim
    pool: Pool | None
    taken: set[str] | Taken  # what this link cannot take: at its destination, or given to it in this plan; shared
    free_items: int
    free_bytes: int
    smallest: int  # bytes of the smallest free item, 0 when there is none
    seed: int
    limited: int = 0  # of this cycle's due: what lasting limits do not let through
    shared: int = 0  # of the budget: what others get of a limit in this cycle
    cap: int = 0
    budget: int = 0
    forgiven: int = 0
    unspent: int = 0  # of the budget: what no item was chosen for yet
    forgone: list[Cut] = field(default_factory=list)  # of this cycle's due, by lasting limits
    cuts: list[Cut] = field(default_factory=list)  # of the budget, by all limits
    items: list[Item] = field(default_factory=list)
    stopped: Held | None = None  # by a limit that datasets are too large or too many for
    ranges: TakenRanges | None = None  # of datasets that are taken at its destination, if they may be cut; shared
    goes_on: bool = False  # what lands has a second hop

    @property
    def due(self) -> int:
        """What is due in this cycle, with overhead."""
        return with_overhead(self.demand.due, self.demand.flow)

    @property
    def carried(self) -> int:
        """The debt in bytes that it carries into the cycle, negative when it is ahead."""
        return self.want - (self.due if self.demand.extra is None else self.demand.due + self.demand.extra)

    @property
    def next_size(self) -> int | None:
        """Bytes of the smallest that may still be chosen."""
        return next_size(self.pool, self.taken, self.ranges)

    @property
    def want(self) -> int:
        """The debt in bytes, before anything of it is forgiven."""
        return self.demand.account.debt(self.demand.flow.overhead)


class LinkPlans:
    """The lines of a situation, and what they share: pools, and what is taken where."""

    def __init__(self, situation: Situation, demands: Iterable[Demand]) -> None:
        """Lay out lines for some of the demands, sorted."""
        self._s, self._cycle = situation, situation.cycle.name
        self._pools: dict[PoolKey, _Shelf] = {}
        self._taken: defaultdict[str, set[str]] = defaultdict(set)
        self._places: dict[str, list[str]] = {}  # by item: where it is taken
        self._once_only: defaultdict[str, set[str]] = defaultdict(set)  # by scenario: what goes out once, and did
        self.leaving: defaultdict[str, set[str]] = defaultdict(set)
        hops = [demand.flow for demand in situation.demands if isinstance(demand.flow.goal, SecondHop)]
        self._onward = {(hop.scenario, hop.link.source, hop.link.through) for hop in hops}
        self._ranges: dict[str, TakenRanges] = {}
        self._parts: defaultdict[str, list[Range]] = defaultdict(list)  # by place
        for item, place in situation.taken:
            if isinstance(item, SliceId):
                self._parts[place].append(item.range)
            for name in blocked(item):
                if name not in self._taken[place]:
                    self._taken[place].add(name)
                    self._places.setdefault(name, []).append(place)
        for name, scenario in situation.once_only:
            self._once_only[scenario].add(name)
        for item, place in situation.leaving:
            self.leaving[place].update(blocked(item))
        self._ingress: dict[str, float] = defaultdict(float)
        seconds = situation.cycle.length.total_seconds()
        for demand in sorted(situation.demands, key=_key):
            recent = with_overhead(demand.recent_due, demand.flow)
            self._ingress[demand.flow.link.destination] += recent / seconds
        self.lines = [self._line(demand) for demand in sorted(demands, key=_key)]

    def _line(self, demand: Demand) -> LinkPlan:
        flow, s = demand.flow, self._s
        name, unique = flow.link.destination, flow.link.service.unique
        pool, at_places = self._pool(flow.pool)
        # Where items are not unique, every copy has a name of its own, so that a file may go out again at once:
        # only what is set aside counts as taken, and what one link takes is not taken for others.
        taken: set[str] | Taken = self._taken[name] if unique else set(self._taken[name])
        count, size = at_places.get(name, (0, 0))
        if flow.once and pool:
            taken = Taken(self._taken[name] if unique else set(self._taken[name]), self._once_only[flow.scenario])
            count, size = pool.among(taken)
        has_slices = flow.slices and flow.link.service.has_slices and not flow.once
        ranges = self._ranges_at(name) if has_slices else None
        if ranges and pool:
            size -= ranges.free_bytes(pool)
        smallest = next_size(pool, taken, ranges)
        life = self._life(demand)
        # While it is not known how soon datasets come back, a pool is not paced: it is no harm when it runs dry.
        # Nor where a goal decides how often one goes out: once, or whenever it is back.
        unknown = flow.link.through in s.may_end and demand.completion is None
        bounded = isinstance(flow.goal, Volume | Recycle)
        deliverable, why = _deliverable(demand)
        reusable = None if pool is None or unknown or not unique or bounded else pool.bytes
        return LinkPlan(
            demand=demand,
            cycle=s.cycle.length,
            lifetime=life.lifetime,
            claim=Claim(
                flow.link,
                flow.priority,
                flow.pool,
                reusable,
                life.horizon,
                with_overhead(demand.due, flow),
                probe=_probe(demand, smallest),
                failed=demand.failed,
                deliverable_bytes=deliverable,
                backlog=why,
                guarded=_guarded(flow),
                coming=demand.coming,
            ),
            pool=pool,
            taken=taken,
            free_items=len(pool) - count if pool else 0,
            free_bytes=pool.bytes - size if pool else 0,
            smallest=_least(flow, pool, smallest),
            ranges=ranges,
            goes_on=(flow.scenario, name, flow.link.through) in self._onward,
            seed=_seed(s.campaign, self._cycle, str(flow.link), flow.link.through),
        )

    def _ranges_at(self, place: str) -> TakenRanges:
        """Return what is taken of datasets at a destination; shared by its lines."""
        if place not in self._ranges:
            parts = self._parts[place]
            whole = {part.parent for part in parts if (part.parent, place) in self._s.taken}
            self._ranges[place] = TakenRanges(parts, whole, self._taken[place])
        return self._ranges[place]

    def _life(self, demand: Demand) -> lifetime.Life:
        flow, s = demand.flow, self._s
        unguarded = s.destinations.get(flow.link.destination, Destination())
        destination = (unguarded.guarded if _guarded(flow) else None) or unguarded
        lag, ingress = destination.deletion_lag, self._ingress[flow.link.destination]
        if destination is unguarded:
            # Planning can use space that is freed in the course of a cycle only at the start of the next one. That
            # counts as lag, or every stay would end with a cycle that gets nothing. A guarded link counts on it.
            lag += s.cycle.length
        may_end = flow.link.through in s.may_end
        return lifetime.planned(flow, destination.space, ingress, lag, demand.completion, may_end=may_end)

    def _pool(self, key: PoolKey) -> _Shelf:
        """Return a pool, and number and bytes of what is taken of it by destination."""
        if key not in self._pools:
            items, used = self._s.pools.get(key), self._s.used.get(key.source, {})
            pool = None if items is None else Pool(_worth_copying(key, items), used)
            self._pools[key] = pool, pool.count_taken(self._places) if pool else {}
        return self._pools[key]


def _least(flow: Flow, pool: Pool | None, smallest: int | None) -> int:
    """Return the bytes of what a debt may wait for: the smallest that is free, 0 when there is none.

    Toward a goal what is less than any item waits too, so that it is not due again and again.
    """
    if smallest is None and flow.goal is not None and pool is not None:
        least = pool.smallest(frozenset())
        smallest = least.bytes if least else 0
    return smallest or 0


def _worth_copying(key: PoolKey, items: Sequence[Item]) -> Sequence[Item]:
    """Return the items without the odd small files that folders have next to their data, such as a README.

    Whoever wants small files has a folder, a list or a pattern of them alone.
    """
    if not isinstance(key.datasets, FileFilter) or key.datasets.landed:
        return items
    largest = max((item.bytes for item in items), default=0)
    return [item for item in items if item.bytes * ODD >= largest]


def next_size(pool: Pool | None, taken: AbstractSet[str], ranges: TakenRanges | None) -> int | None:
    """Return the bytes of the smallest that may be chosen: a dataset, or a file of one that may be cut."""
    if pool is None:
        return None
    if ranges is not None:
        return pool.finest if any(any(ranges.gaps(item)) for item in pool.walk(0, frozenset())) else None
    smallest = pool.smallest(taken)
    return smallest.bytes if smallest else None


def _guarded(flow: Flow) -> bool:
    return flow.control.mode is Mode.ACT


def _probe(demand: Demand, smallest: int | None) -> int | None:
    """Return what a link may have while most of its transfers fail (hold `failing`); None while they do not."""
    if (demand.failed or 0.0) <= FAILING:
        return None
    return max(int(PROBE * demand.due), smallest or 0)


def _deliverable(demand: Demand) -> tuple[int | None, Numbers]:
    """Return how many bytes more would arrive in time, None where that is not known or not bounded, and why.

    That is the hold `backlog`. Where control acts it is what its window has room for.
    """
    if _guarded(demand.flow):
        return demand.releasable, demand.window
    most = lifetime.deliverable_bytes(demand.flow, demand.arriving, demand.coming)
    return most, {} if most is None else {"coming": demand.coming, "deliverable": most}


def with_overhead(amount: int, flow: Flow) -> int:
    """Return bytes with the overhead of a flow, to the nearest byte."""
    return amount + round(amount * flow.overhead)


def _key(demand: Demand) -> tuple[object, ...]:
    return demand.flow.key


def _seed(*parts: str) -> int:
    """Draw a number of 128 bits: the only chance that there is in planning, the same for the same parts."""
    return int.from_bytes(hashlib.blake2b("\n".join(parts).encode(), digest_size=16).digest())
