"""Planning time and memory for 1,200 links and for ten times as many, and the footprint of the former.

`python -m tests.bench.bench_plan`.

200 RSEs, 2,000 candidates at each, what eight cycles injected still resident. Inventories are read already: what
is measured is what planning needs on top. Figures depend on the machine; the last line is a proportion.
"""

from __future__ import annotations

import gc
import random
import time
import tracemalloc
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from dc_inject.analysis.footprint.adding import footprint
from dc_inject.analysis.footprint.load import Footprint
from dc_inject.model import Campaign, Cycle, Dataset, DatasetFilter, Flow, Item, Limits, Link, Menu, PoolKey
from dc_inject.model.plan import Plan
from dc_inject.planning.plan import Account, Demand, Situation, plan

RSES, CANDIDATES, LINKS, CYCLES = 200, 2000, 1200, 8
ALL = DatasetFilter(("*:*",), mean_file=(1, 10**15))
CYCLE = Cycle.at(datetime(2027, 2, 8, 10, tzinfo=UTC), timedelta(minutes=15))
NO_LIMITS = Limits(total=1e15, per_site=1e15, rules_per_hour=10**9, files_in_flight=10**9)


def inventories() -> dict[PoolKey, list[Item]]:
    """Datasets of 0.05 to 8 TB, as many of each decade."""
    draw = random.Random(1)
    return {
        PoolKey(f"RSE{rse}", ALL): [
            Dataset(f"cms:/Primary{rse}/Era-v1/RAW#{number}", int(5e10 * 160 ** draw.random()), 100)
            for number in range(CANDIDATES)
        ]
        for rse in range(RSES)
    }


def situation(links: int, pools: Mapping[PoolKey, Sequence[Item]]) -> Situation:
    """Links between pairs of RSEs, most of 1 to 10 Gb/s, each with the residents of eight cycles."""
    draw, demands, taken = random.Random(2), [], set()
    pairs = draw.sample([(a, b) for a in range(RSES) for b in range(RSES) if a != b], links)
    for source, destination in pairs:
        rate = 1e9 / 8 * 10 ** draw.random()
        link = Link(f"RSE{source}", f"RSE{destination}")
        flow = Flow("bench", link, rate, CYCLE.start, CYCLE.start + timedelta(days=1), ALL)
        due = int(rate * CYCLE.length.total_seconds())
        demands.append(Demand(flow, due, due, Account(due=due)))
        resident = draw.sample(pools[flow.pool], 4 * CYCLES)
        taken.update((item.name, link.destination) for item in resident)
    return Situation(
        "bench", "nobody", CYCLE, CYCLE.start, tuple(demands), pools, frozenset(taken), limits=NO_LIMITS
    )


def measure(links: int, pools: Mapping[PoolKey, Sequence[Item]]) -> tuple[float, int, Plan]:
    """Return seconds of one core (best of three), peak bytes on top of what was there, and the plan."""
    now, best = situation(links, pools), float("inf")
    for _ in range(3):
        gc.collect()
        start = time.process_time()
        made = plan(now)
        best = min(best, time.process_time() - start)
    tracemalloc.start()
    plan(now)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return best, peak, made


def whole(pools: Mapping[PoolKey, Sequence[Item]] | None, links: Sequence[Flow]) -> tuple[float, Footprint]:
    """Return seconds of one core (best of three) for the footprint of links, with inventories or without."""
    menu = Menu("bench", "bench", "nobody", links[0].start, links[0].end, tuple(links), limits=NO_LIMITS)
    campaign = Campaign("bench", "nobody", CYCLE.length, (menu,))
    stock = None if pools is None else {pool.source: items for pool, items in pools.items()}
    best = float("inf")
    for _ in range(3):
        gc.collect()
        start = time.process_time()
        made = footprint([campaign], inventory=stock)
        best = min(best, time.process_time() - start)
    return best, made


def main() -> None:
    """Print the measurements, and what ten times the links cost."""
    pools = inventories()
    seconds = {}
    links = [demand.flow for demand in situation(LINKS, pools).demands]
    took, made = whole(None, links)
    stocked, _ = whole(pools, links)
    print(
        f"{LINKS:>6} links: footprint of {len(made.rows)} sites, scenarios and the total in {took:.2f} s, "
        f"with inventories in {stocked:.2f} s"
    )
    for number in (LINKS, 10 * LINKS):
        seconds[number], peak, planned = measure(number, pools)
        print(
            f"{number:>6} links, {RSES} RSEs, {CANDIDATES} candidates a source: {len(planned.injections)} "
            f"injections planned in {seconds[number]:.2f} s, {peak / 1e6:.0f} MB on top of the inventory"
        )
    print(f"{LINKS} links planned with their footprint: {seconds[LINKS] + took:.2f} s (aim: under 2 s)")
    print(f"ten times the links: {seconds[10 * LINKS] / seconds[LINKS]:.1f} times the time")


if __name__ == "__main__":
    main()
