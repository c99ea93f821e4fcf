"""A line: one demand while it is decided on; and the table of all lines of a situation."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import timedelta

from dc_inject import lifetime
from dc_inject.holds import Claim, Cut, Destination
from dc_inject.model import Flow, Held, Item, PoolKey
from dc_inject.plan.situation import Demand, Situation
from dc_inject.pool import Pool


@dataclass(slots=True)
class Line:
    """What is known and decided of one demand; bytes everywhere."""

    demand: Demand
    lifetime: timedelta
    claim: Claim
    pool: Pool | None
    taken: set[str]  # what this link cannot take: at its destination, or given to it in this plan; shared
    free_items: int
    free_bytes: int
    smallest: int  # bytes of the smallest free item, 0 when there is none
    seed: int
    limited: int = 0  # of this cycle's due: what lasting limits do not let through
    shared: int = 0  # of the budget: what others get of a limit in this cycle
    cap: int = 0
    budget: int = 0
    forgiven: int = 0
    left: int = 0  # of the budget: what no item was chosen for yet
    cuts: list[Cut] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    stopped: Held | None = None  # by a limit that datasets are too large or too many for

    @property
    def due(self) -> int:
        """What is due in this cycle, with overhead."""
        return with_overhead(self.demand.due, self.demand.flow)

    @property
    def want(self) -> int:
        """The debt, before anything of it is forgiven."""
        return self.demand.account.debt(self.demand.flow.overhead)


class Table:
    """The lines of a situation, and what they share: pools, and what is taken where."""

    def __init__(self, situation: Situation, demands: Iterable[Demand], *, anew: bool = True) -> None:
        """Lay out lines for some of the demands, sorted; not `anew` when this cycle's plan is just added to."""
        self._s, self._anew = situation, anew
        self._pools: dict[PoolKey, Pool] = {}
        self._free: dict[tuple[PoolKey, str], tuple[int, int, int]] = {}
        self._taken = _by_place(situation.taken)
        self.leaving = _by_place(situation.leaving)
        self._ingress: dict[str, float] = defaultdict(float)
        seconds = situation.cycle.length.total_seconds()
        for demand in sorted(situation.demands, key=_key):
            recent = with_overhead(demand.recent_due, demand.flow)
            self._ingress[demand.flow.link.destination] += recent / seconds
        self.lines = [self._line(demand) for demand in sorted(demands, key=_key)]

    def _line(self, demand: Demand) -> Line:
        flow, s = demand.flow, self._s
        name, unique = flow.link.destination, flow.link.through == "rucio"
        pool = self._pool(flow.pool)
        # Through FTS every copy has a name of its own, so that an item may go out again with the next cycle.
        taken = self._taken[name] if unique or not self._anew else set()
        free_items, free_bytes, smallest = self._free_of(flow.pool, pool, name, taken)
        life, horizon = self._stays(demand)
        reusable = None if pool is None or not unique else pool.bytes
        return Line(
            demand=demand,
            lifetime=life,
            claim=Claim(flow.link, flow.priority, flow.pool, reusable, horizon),
            pool=pool,
            taken=taken,
            free_items=free_items,
            free_bytes=free_bytes,
            smallest=smallest,
            seed=_seed(s.campaign, s.cycle.name, str(flow.link), flow.link.through),
        )

    def _stays(self, demand: Demand) -> tuple[timedelta, timedelta]:
        """Return the lifetime of rules, and for how long each takes up space and keeps its dataset from others."""
        flow, s = demand.flow, self._s
        known = s.destinations.get(flow.link.destination, Destination())
        # What goes in the course of a cycle is free for planning at the start of the next one only: that counts
        # as lag, or every stay would end with a cycle that gets nothing.
        lag = known.deletion_lag + s.cycle.length
        shortest, longest = flow.lifetime_min, flow.lifetime_max
        ingress = self._ingress[flow.link.destination]
        fitted = lifetime.fitting(known.space, ingress, lag, shortest, longest)
        r = lifetime.stay(fitted, longest, demand.completion if s.may_end else None, flow.dwell)
        return longest if s.may_end else fitted, lifetime.horizon(r, lag, flow.end - flow.start)

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


def with_overhead(amount: int, flow: Flow) -> int:
    """Return bytes with the overhead of a flow, to the nearest byte."""
    return amount + round(amount * flow.overhead)


def _key(demand: Demand) -> tuple[object, ...]:
    return demand.flow.key


def _by_place(pairs: AbstractSet[tuple[str, str]]) -> defaultdict[str, set[str]]:
    places: defaultdict[str, set[str]] = defaultdict(set)
    for item, place in pairs:
        places[place].add(item)
    return places


def _seed(*parts: str) -> int:
    """Draw a number of 128 bits: the only chance that there is in planning, the same for the same parts."""
    return int.from_bytes(hashlib.blake2b("\n".join(parts).encode(), digest_size=16).digest())
