"""How near searches for saturation come in the twin: `python -m tests.apps.twin.saturated SEARCHES MINUTES TIMES`.

Each is `dc-inject link --until-saturated` on one steady link, whose capacity is known, with Rucio's daemons that
pass about once a minute, and FTS's optimizer: its menu, engine, ledger, readings and verdict, all as they are. Of
the searches' links, files, datasets and rates, those of a number are always the same: SEARCHES is how many of
them, from number 0 on, or the numbers themselves, such as 100-123. MINUTES is `--every`.

With TIMES, such as 1.5, the destination fails what is beyond so many times the connections that the link's
capacity takes, as storages do when too much waits for them.

Each is compared with the time of the steps that the search replaced: up by a step until less than 90 % moved, then
back until it did.
"""

from __future__ import annotations

import logging
import math
import random
import sys
import tempfile
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from statistics import fmean

from dc_inject import menu
from dc_inject.apps.link import mini_challenge
from dc_inject.apps.link.judging.progress import Conclusion, Progress, conclusion
from dc_inject.apps.link.judging.steps import Ladder
from dc_inject.apps.link.options import LinkOptions
from dc_inject.apps.link.running import Climbing
from dc_inject.apps.twin.backend import TwinBackend, TwinClock
from dc_inject.apps.twin.grid import grid_file
from dc_inject.apps.twin.grid.world import World, choose_step_length
from dc_inject.backends.sim import InlineExecutor
from dc_inject.engine import admission
from dc_inject.engine.context import Settings
from dc_inject.engine.engine import Engine
from dc_inject.engine.menus import Menus
from dc_inject.ledger import Ledger
from dc_inject.model import Link
from dc_inject.system import files
from tests.apps.link.test_saturation import steps_of_before
from tests.engine.world import START

GBPS = 1e9 / 8
MINUTE = timedelta(minutes=1)
LONGEST = timedelta(hours=6)
DATASETS = (
    "files: 2..4, file_size: 1..3 GB",
    "files: 5..20, file_size: 1..3 GB",
    "files: 20..60, file_size: 1..4 GB",
)
ACCEPT = ("fts-ramp", "fts-link-limit", "pool-small", "rate-outlier")
GRID = """\
grid: 1
name: steady-link
fts: {{actives: 2..200, per_storage: 400}}
sites:
  A: {{storages: {{A_Disk: {{}}}}}}
  B: {{storages: {{B_Disk: {{{storage}}}}}}}
links:
  "A_Disk:B_Disk": {{rate: {capacity} Gb/s, file_speed: {file_speed} MB/s}}
datasets:
  - {{sources: [A_Disk], count: 20000, {datasets}}}
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A link and what is asked of it; rates in Gb/s, the speed of a file in MB/s."""

    capacity: float
    file_speed: int
    datasets: str
    first: float
    step: float
    highest: float
    seed: int
    connections: int | None = None

    @classmethod
    def numbered(cls, number: int, times: float | None = None) -> Case:
        """Return the case of a number, where connections are `times` those that it takes, if that is said."""
        draw = random.Random(number)
        case = cls(
            capacity=round(draw.uniform(3.5, 15), 1),
            file_speed=draw.choice([10, 25, 50]),
            datasets=draw.choice(DATASETS),
            first=draw.choice([2.0, 3.0, 5.0]),
            step=draw.choice([1.0, 1.5, 2.0]),
            highest=draw.choice([20.0, 60.0]),
            seed=number,
        )
        takes = case.capacity * GBPS / (case.file_speed * 1e6)
        return case if times is None else replace(case, connections=math.ceil(times * takes))

    @property
    def grid(self) -> str:
        """The text of its grid file."""
        limit = "" if self.connections is None else f"connections: {self.connections}, overload: fails"
        return GRID.format(
            capacity=self.capacity, file_speed=self.file_speed, datasets=self.datasets, storage=limit
        )


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search has found, in how many trials, how long it took, and how long steps would have."""

    case: Case
    told: Conclusion
    trials: int
    took: timedelta
    before: timedelta

    @property
    def error(self) -> float | None:
        """The part by which it is off; None if nothing was found."""
        return (
            self.told.capacity / (self.case.capacity * GBPS) - 1
            if self.told.interval and self.told.capacity
            else None
        )

    @property
    def inside(self) -> bool:
        """Whether the capacity lies in the interval that was told."""
        low, high = self.told.interval or (0.0, 0.0)
        return low <= self.case.capacity * GBPS <= high


def search(case: Case, folder: Path, every: timedelta = 30 * MINUTE) -> Searched:
    """Search in the twin; `every` is the length of a step."""
    ladder = Ladder(case.first * GBPS, every, case.step * GBPS, case.highest * GBPS, saturate=True)
    cycle = mini_challenge.choose_cycle_length(ladder)
    challenge = mini_challenge.MiniChallenge(
        LinkOptions(accept=ACCEPT),
        "search", "me@example.org", Link("A_Disk", "B_Disk", "rucio"), ladder, cycle, START,
        mini_challenge.end_of(START, LONGEST, cycle),
    )  # fmt: skip
    path = folder / "menu.yaml"
    path.write_text(challenge.text(), "utf-8")
    world = World(grid_file.read(case.grid.encode(), "grid"), case.seed, choose_step_length(cycle.total_seconds()))
    clock = TwinClock(START, world)
    backends = {"rucio": TwinBackend(world, clock, case.seed)}
    identities = admission.identities(backends, allow_admin=False)
    with Ledger.open(folder / "search.sqlite", synchronous="OFF") as ledger:
        menus = Menus([path], ledger=ledger, backends=backends, clock=clock, links=(), scale=1.0)
        campaign = menu.one_campaign(files.read_menus([path]))
        ledger.bind(campaign, cycle, tuple(identities.values()), START)
        progress = Progress(ladder, challenge.until)
        climbing = Climbing(menus, ledger=ledger, clock=clock, progress=progress, who="a search")
        simulated = Engine(
            menus=climbing,
            ledger=ledger,
            backends=backends,
            identities=identities,
            clock=clock,
            executor=InlineExecutor(clock),
            settings=Settings(poll=cycle),
        )
        simulated.run(until=challenge.until)
        climbing.finish(ledger, challenge.key)
    return Searched(
        case,
        conclusion(ladder, climbing.verdicts, climbing.decisions),
        len(climbing.verdicts),
        climbing.verdicts[-1].end - START,
        steps_of_before(ladder, case.capacity * GBPS, 3 * MINUTE),
    )


def main() -> None:
    """Print each search, and all together."""
    logging.disable(logging.WARNING)
    count, minutes, times = (*sys.argv[1:], *("12", "30", "")[len(sys.argv) - 1 :])
    done = []
    first, dash, last = count.partition("-")
    for number in range(int(first), int(last) + 1) if dash else range(int(count)):
        case = Case.numbered(number, float(times) if times else None)
        with tempfile.TemporaryDirectory() as folder:
            one = search(case, Path(folder), int(minutes) * MINUTE)
        done.append(one)
        error = "not found" if one.error is None else f"{100 * one.error:+.1f} %"
        print(f"{one.case}: {error} after {one.took}, {one.trials} trials (steps: {one.before})", flush=True)
    found = [one.error for one in done if one.error is not None]
    errors = sorted(map(abs, found))
    took, before = (sum((getattr(one, name) for one in done), timedelta(0)) for name in ("took", "before"))
    near = sum(error <= 0.05 for error in errors)
    each = f"{took / len(done)} each, {took / before:.2f} of steps"
    inside = sum(one.inside for one in done)
    mean = f"{100 * fmean(found):+.1f} % on average, capacity in {inside} of {len(found)} intervals"
    print(f"{near} of {len(done)} within 5 %, at most {100 * errors[-1]:.1f} %, {mean}; {each}")


if __name__ == "__main__":
    main()
