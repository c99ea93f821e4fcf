"""The HL-LHC in the twin: `python -m tests.bench.bench_hllhc [LINKS [PERCENT [HOURS]]]`: 1200, 100 and 3.

Without the engine: each link gets a rule in each cycle of 15 minutes, as large as what it is due. 1,200 links are
those of menus/hllhc/full.yaml, any other number is a mesh with the same rate on each. Files have 5 GB and 6 MB/s,
rules live for two hours, and no WAN or storage is short: so what breaks is FTS or Rucio. Prints a row with the
defaults of grid files, one with FTS's limits of links and storages lifted, and one with Rucio's and FTS's pace
lifted too: what the last hour moved of its target, transfers at a time, requests that wait for Rucio's submitter,
files that wait in FTS, what most held links back, and the CPU time.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

from dc_inject.apps.twin.grid.description import Fts, Grid, LinkTraits, Rucio, Site, Storage
from dc_inject.apps.twin.grid.rucio import Rule
from dc_inject.apps.twin.grid.transfers import Queue
from dc_inject.apps.twin.grid.world import World
from dc_inject.menu import campaign
from dc_inject.system import files

MENU = Path(__file__).resolve().parents[2] / "menus" / "hllhc" / "full.yaml"
FILE, SPEED, CYCLE, LIFETIME = 5e9, 6e6, 900.0, 7200.0
TOTAL = 9.6e12 / 8  # bytes a second
LIFTED = Fts(actives=(2, 10_000), per_storage=1_000_000)
QUICK = replace(LIFTED, operations=2000.0), Rucio(requests=2000.0)


def rates(links: int) -> dict[tuple[str, str], float]:
    """Return the links with their rates at 100 %, in bytes per second."""
    if links == 1200:
        flows = campaign([draft.resolve({}) for draft in files.read_menus([MENU])]).flows
        found: dict[tuple[str, str], float] = defaultdict(float)
        for flow in flows:
            found[flow.link.source, flow.link.destination] += flow.rate
        return found
    ends = [(f"S{a}", f"S{b}") for a in range(101) for b in range(101) if a != b][:links]
    return dict.fromkeys(ends, TOTAL / links)


def run(wanted: dict[tuple[str, str], float], fts: Fts, rucio: Rucio, hours: int) -> str:
    """Run it once; returns what the last hour was like."""
    begin = time.process_time()
    names = sorted({end for link in wanted for end in link})
    grid = Grid(
        "hllhc",
        {name: Site(name) for name in names},
        {name: Storage(name, name, delete_seconds=1.0, deleting=1000) for name in names},
        default_link=LinkTraits(file_speed=SPEED),
        fts=fts,
        rucio=rucio,
    )
    world, owed, number, before = World(grid, 1), dict.fromkeys(wanted, 0.0), 0, 0.0
    for cycle in range(4 * hours):
        now = cycle * CYCLE
        if cycle == 4 * (hours - 1):
            before = world.storages.arrived
            world.held_back.clear()
        for link, rate in wanted.items():
            owed[link] += rate * CYCLE / FILE
            count = int(owed[link])
            owed[link] -= count
            if count:
                number += 1
                queue = Queue(*link, "Data Challenge", 3)
                name = str(number)
                world.rucio.add(Rule(name, name, queue, count, int(count * FILE), now, now + LIFETIME))
        world.advance(now + CYCLE)
    moved = (world.storages.arrived - before) / (3600 * sum(wanted.values()))
    last = world.samples[-4:]
    causes: Counter[str] = Counter()
    for some in world.held_back.values():
        for cause, waits in some.items():
            causes[cause.split(" of transfers")[0].split(" carries")[0]] += len(waits.at)
    why = ", ".join(f"{cause} ({n})" for cause, n in causes.most_common(2))
    took = (time.process_time() - begin) / hours
    return (
        f"moved {100 * moved:.0f} % of target; {sum(s.active for s in last) / 4:,.0f} transfers, "
        f"{last[-1].unsent:,} unsent, {last[-1].queued:,} queued; {why or 'nothing waits'}; "
        f"{took:.1f} s of CPU for a simulated hour"
    )


def main(links: int, percent: float, hours: int) -> None:
    """Run it with default limits, and with lifted ones."""
    wanted = {link: rate * percent / 100 for link, rate in rates(links).items()}
    settings = {"defaults": (Fts(), Rucio()), "limits lifted": (LIFTED, Rucio()), "pace lifted too": QUICK}
    for words, (fts, rucio) in settings.items():
        print(f"{len(wanted)} links, {percent:g} %, {words}: {run(wanted, fts, rucio, hours)}", flush=True)


if __name__ == "__main__":
    words = [*sys.argv[1:], *("1200", "100", "3")[len(sys.argv) - 1 :]]
    main(int(words[0]), float(words[1]), int(words[2]))
