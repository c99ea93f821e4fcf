"""How fast the twin is: `python -m tests.bench.bench_twin [LINKS [SITES [DAYS]]]`: 1200, 70 and 1.

Rules come in every quarter of an hour on every link, as many bytes as HL-LHC's flexible model asks for; every site
shares its WAN in each direction, and its storage too. Prints the time of a simulated day, and how much was moved.
"""

from __future__ import annotations

import random
import resource
import sys
import time

from dc_inject.apps.twin.grid.description import Fts, Grid, LinkTraits, Rucio, Site, Storage
from dc_inject.apps.twin.grid.rucio import Rule
from dc_inject.apps.twin.grid.transfers import Queue
from dc_inject.apps.twin.grid.world import World

LINKS, SITES, DAYS = 1200, 70, 1
RATE = 300e9  # bytes a second of all links together: 2.4 Tb/s
CYCLE, HOUR = 900, 3600


def grid(sites: int) -> Grid:
    """Sites with a storage each; some WANs are too small for what is asked."""
    dice = random.Random(1)
    made = {f"S{n}": Site(f"S{n}", *[dice.choice([2e9, 5e9, 10e9])] * 2) for n in range(sites)}
    storages = {f"R{n}": Storage(f"R{n}", f"S{n}", fts_in=400, fts_out=400) for n in range(sites)}
    return Grid("bench", made, storages, default_link=LinkTraits(failures=0.01), fts=Fts((2, 200)), rucio=Rucio())


def main(links: int, sites: int, days: float) -> None:
    """Run it once."""
    world, dice = World(grid(sites), 1), random.Random(2)
    pairs = dice.sample([(a, b) for a in range(sites) for b in range(sites) if a != b], links)
    begin, number = time.process_time(), 0
    for cycle in range(int(days * 86400 / CYCLE)):
        for source, destination in pairs:
            size, files = RATE / links * CYCLE, max(int(RATE / links * CYCLE / 3e9), 1)
            number += 1
            queue = Queue(f"R{source}", f"R{destination}", "Data Challenge", 3)
            now = float(cycle * CYCLE)
            world.rucio.add(Rule(f"{number}", f"d{number}", queue, files, int(size), now, now + 2 * HOUR))
        world.advance((cycle + 1) * CYCLE)
    took = (time.process_time() - begin) / days
    done, lost = sum(sample.active for sample in world.samples) / len(world.samples), world.rucio.lost
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"{links} links, {sites} sites: {took:.1f} s of CPU for a simulated day, {memory:.0f} MB")
    print(f"{number} rules, {done:.0f} transfers at a time, {lost.cancelled_files} files cancelled")


if __name__ == "__main__":
    words = [*sys.argv[1:], *map(str, (LINKS, SITES, DAYS)[len(sys.argv) - 1 :])]
    main(int(words[0]), int(words[1]), float(words[2]))
