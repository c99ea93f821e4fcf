"""`python -m tests.chaos.campaign`: break everything around the tool, and count what it lost; `make chaos`.

It brings up a sandbox of its own, runs campaigns through the real command line with faults between it and the real
services and with accidents to the process, checks the invariants after each, and prints a table. The exit code is
1 when anything is violated. `SEED` and `SIZE` (small, default, full) come from the environment or as options.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dc_inject.ledger import LedgerView
from dc_inject.sandbox import Grid, Link, Rse, Sandbox, default_environment, default_xrootd
from tests.chaos import crashes, invariants
from tests.chaos.files import FileTruth, FileWorld
from tests.chaos.proxy import CALM, Fault, Proxy, Weather, fts_trouble
from tests.chaos.truth import Truth
from tests.chaos.world import KILLED, PATIENCE, World

ALL = ["kills", "accidents", "classes", "volume"]
ACCOUNT = "dcops"
RATES = {"rucio": "6 Gb/s", "fts": "20 Mb/s"}  # of each link: a few datasets, or jobs, a cycle
CHAIN = 25  # lives that are killed in one campaign
DELIVERED = {0.05: 0.995, 0.30: 0.98}  # part of calls that are faulty -> part of due that has to be injected


@dataclass(frozen=True)
class Size:
    """How much of it: kills at boundaries and anywhere, campaigns for each fault class, cycles of the volume.

    After so many `minutes` no campaign is begun any more.
    """

    at_boundaries: int
    anywhere: int
    of_each_class: int
    volume_cycles: int
    minutes: float
    most: int  # of one event's boundaries


SIZES = {
    "small": Size(at_boundaries=10, anywhere=5, of_each_class=0, volume_cycles=0, minutes=3, most=2),
    "default": Size(at_boundaries=75, anywhere=25, of_each_class=1, volume_cycles=40, minutes=13, most=4),
    "full": Size(at_boundaries=900, anywhere=200, of_each_class=20, volume_cycles=40, minutes=600, most=40),
}


@dataclass
class Row:
    """A line of the table: what was done, how often, and what came of it."""

    name: str
    runs: int = 0
    lives: int = 0
    kills: int = 0
    given: int = 0  # rules or jobs
    requests: int = 0
    faults: int = 0
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0
    remark: str = ""


class TimeIsUpError(Exception):
    """What is left has to wait for another time."""


@dataclass
class Ground:
    """A world that runs one campaign after the other."""

    world: World
    truth: Truth
    before: invariants.Before
    until: float  # when no campaign is begun any more, on the monotonic clock

    def campaign(
        self,
        row: Row,
        seed: object,
        weather: Weather,
        wishes: Iterable[crashes.Wish] = (),
        *,
        cycles: int = 5,
        grace: int = 0,
        frozen: int = 0,
    ) -> None:
        """Run a campaign until it is drained, and check it."""
        if time.monotonic() > self.until:
            raise TimeIsUpError
        world, proxy, begun = self.world, self.world.proxy, time.monotonic()
        world.next_campaign()
        world.patience = PATIENCE + (cycles + grace) * world.cycle
        world.write_menu(RATES[world.service], cycles, grace=grace)
        proxy.begin(seed, weather)
        try:
            if frozen:
                world.freeze(frozen)
            world.run_until_drained(wishes, patience=2 * world.patience)
        except AssertionError as error:
            row.violations.append(f"drained: {error}")
        row.requests += proxy.requests
        row.faults += proxy.faults.total()
        row.lives += len(world.lives)
        row.given += len(self.truth.rules(world.campaign))
        row.kills += sum(life.process.returncode == KILLED for life in world.lives)
        proxy.begin(seed, CALM)
        found = invariants.check(world, self.truth, self.before)
        row.violations += [f"{world.campaign} (seed {seed}): {violation}" for violation in found]
        row.runs += 1
        row.seconds += time.monotonic() - begun
        print(f"{row.name}: {told(row)} after {row.seconds:.0f} s", file=sys.stderr, flush=True)


class Lab:
    """The sandbox, its worlds, and the rows of the table."""

    def __init__(self, sandbox: Sandbox, folder: Path, seed: int, stack: ExitStack, until: float) -> None:
        self.sandbox, self.folder, self.seed = sandbox, folder, seed
        self.truth = Truth(sandbox.folder / "rucio.db", ACCOUNT)
        self.rows: list[Row] = []
        self.until = until
        self._stack, self._lock = stack, threading.Lock()
        self._worlds: list[World] = []
        stack.callback(self.stop)

    def stop(self) -> None:
        """End all lives, and begin no more."""
        for world in self._worlds:
            world.kill()

    def ground(self, name: str, *, cycle: int, datasets: int) -> Ground:
        """Make a world and what is in it."""
        proxy = self._stack.enter_context(Proxy(self.sandbox.url, self.seed))
        world = World(self.sandbox, self.folder / name, f"S{self.seed}{name}", proxy, cycle)
        self._worlds.append(world)
        with self._lock:
            world.furnish(datasets)
        return Ground(world, self.truth, invariants.Before.of(world, self.truth), self.until)

    def storages(self, name: str, *, cycle: int) -> Ground:
        """Make a world whose files go through FTS."""
        proxy = self._stack.enter_context(Proxy(str(self.sandbox.fts_url), self.seed, trouble=fts_trouble))
        world = FileWorld(
            self.sandbox, self.folder / name, f"S{self.seed}{name}", proxy, cycle,
            more={"DC_INJECT_FTS_ENDPOINT": proxy.url}, service="fts",
        )  # fmt: skip
        self._worlds.append(world)
        world.furnish()
        truth = FileTruth(self.sandbox.folder / "fts" / "fts.db", "", world)
        return Ground(world, truth, invariants.Before.of(world, truth), self.until)

    def row(self, name: str) -> Row:
        self.rows.append(Row(name))
        return self.rows[-1]

    # ------------------------------------------------------------------ what is done

    def classes(self, ground: Ground, times: int) -> None:
        """Meet each class of faults alone, often."""
        for fault in Fault if times else ():
            row = self.row(f"{ground.world.service}: fault {fault}")
            weights = {fault: 1.0}
            part = 0.02 if fault is Fault.AWAY else 0.15
            for number in range(times):
                ground.campaign(row, f"{self.seed} {fault} {number}", Weather(part=part, weights=weights))

    def kills(self, ground: Ground, size: Size) -> None:
        """Die at every boundary that a calm run passed, and anywhere else, with 5 % faulty calls all the time."""
        dice = random.Random(f"{self.seed} kills {ground.world.label}")
        journal = ground.world.folder / "journal"
        service = ground.world.service
        ground.campaign(self.row(f"{service}: calm"), self.seed, CALM, [{"journal": str(journal)}], cycles=8)
        known = crashes.boundaries(journal, size.most)
        row, met, before = self.row(f"{service}: SIGKILL at a boundary"), set(), -1
        hit = ground.world.folder / "hit"
        while row.kills < size.at_boundaries:
            if row.kills == before:  # what is left comes once in a while only: begin anew with all of them
                hit.unlink(missing_ok=True)
            before = row.kills
            deaths = crashes.killed_at(known, hit, dice, min(CHAIN, size.at_boundaries - row.kills))
            ground.campaign(row, f"{self.seed} {row.runs}", Weather(), deaths, cycles=10)
            met |= crashes.was_hit(hit)
            row.remark = (
                f"{len(met)} of {len(known)} boundaries, {len({one.event for one in met})} kinds of events"
            )
        row = self.row(f"{service}: SIGKILL anywhere")
        while row.kills < size.anywhere:
            wishes = crashes.killed_anywhere(min(CHAIN, size.anywhere - row.kills), dice, 2.5 * ground.world.cycle)
            ground.campaign(row, f"{self.seed} any {row.runs}", Weather(), wishes, cycles=10)

    def campaigns(self, ground: Ground, size: Size, only: Sequence[str]) -> None:
        """Do what is done in one world, one after the other."""
        with contextlib.suppress(TimeIsUpError):
            if "accidents" in only:
                self.accidents(ground, size.of_each_class)
            if "kills" in only:
                self.kills(ground, size)
            if "classes" in only:
                self.classes(ground, size.of_each_class)

    def accidents(self, ground: Ground, times: int) -> None:
        """Let the machine fail: frozen, a wrong clock, a full disk, torn writes, no memory."""
        world, dice = ground.world, random.Random(f"{self.seed} accidents {ground.world.label}")
        steps = [crashes.Boundary(event, 1) for event in ("planned", "calling", "answered", "observed", "ending")]
        row = self.row(f"{world.service}: SIGSTOP for three cycles")
        for number in range(times):
            ground.campaign(row, f"{self.seed} stop {number}", Weather(), cycles=8, frozen=3)
        row = self.row(f"{world.service}: clock an hour off and back")
        for number, hours in enumerate([1, -1] * times):
            wishes = crashes.clock_stepping([hours])
            ground.campaign(row, f"{self.seed} clock {number}", Weather(), wishes, cycles=8)
        row = self.row(f"{world.service}: torn ledger writes")
        world.on_death = lambda: crashes.tear(world.ledger, dice)
        for number in range(times):
            wishes = crashes.killed_anywhere(8, dice, 2.5 * world.cycle)
            ground.campaign(row, f"{self.seed} torn {number}", Weather(), wishes, cycles=8)
        world.on_death, world.harmed = lambda: None, True
        for name, wishes in (("disk full", crashes.disk_full), ("memory short", crashes.memory_short)):
            row = self.row(f"{world.service}: {name}")
            for number in range(times):
                ground.campaign(row, f"{self.seed} {name} {number}", Weather(), wishes(steps), cycles=12)
        world.harmed = False

    def volume(self, ground: Ground, part: float, cycles: int) -> None:
        """Inject what is due, with so many faulty calls and one cycle of grace."""
        row = self.row(f"{ground.world.service}: volume, {part:.0%} faulty")
        ground.campaign(row, f"{self.seed} volume {part}", Weather(part=part), cycles=cycles, grace=1)
        with LedgerView.open(ground.world.ledger) as view:
            totals = view.totals()
        ratio = totals.injected / totals.due
        row.remark = f"injected/due {ratio:.2%} over {cycles} cycles of {ground.world.cycle} s"
        if ratio < DELIVERED[part]:
            row.violations.append(f"volume: {ratio:.2%} was injected, less than {DELIVERED[part]:.1%}")


def told(row: Row) -> str:
    return f"{row.runs} runs, {row.kills} kills, {row.faults} faults, {len(row.violations)} violations"


COLUMNS = ("runs", "lives", "kills", "given", "requests", "faults", "violations")


def table(rows: Sequence[Row]) -> str:
    """Write the table."""
    total = Row("total")
    for row in rows:
        for name in COLUMNS:
            setattr(total, name, getattr(total, name) + getattr(row, name))
    lines = [f"{'what':34}" + "".join(f"{name:>11}" for name in COLUMNS)]
    for row in [*rows, total]:
        numbers = [getattr(row, name) for name in COLUMNS[:-1]] + [len(row.violations)]
        lines.append(f"{row.name:34}" + "".join(f"{number:>11}" for number in numbers) + f"  {row.remark}")
    return "\n".join(line.rstrip() for line in lines)


def grid(seed: int) -> Grid:
    """A grid with nothing in it: every world brings its own."""
    return Grid(seed, ACCOUNT, 10**18, ("cms",), (Rse("T0_SEED", 10**15),), Link(1e12, 0.1), {}, {})


def bring_up(sandbox: Sandbox, seed: int, *, files: bool) -> None:
    """Bring it up; with storages where there are any to be had."""
    env = Path(os.environ.get("DC_INJECT_SANDBOX_ENV") or default_environment())
    xrootd = Path(os.environ.get("DC_INJECT_SANDBOX_XROOTD") or default_xrootd())
    more = {"storage": "xrootd", "xrootd": xrootd} if files else {}
    sandbox.up(grid=grid(seed), env=env, interval=0.1, **more)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or 1))
    parser.add_argument("--size", choices=SIZES, default=os.environ.get("SIZE") or "default")
    parser.add_argument("--only", choices=ALL, action="append")
    parser.add_argument("--through", choices=RATES, action="append", help="By default both, where XRootD is.")
    parser.add_argument("--minutes", type=float, help="After these no campaign is begun any more.")
    parser.add_argument("--keep", type=Path, help="Leave state and output in this new folder.")
    chosen = parser.parse_args()
    size, only, through = SIZES[chosen.size], chosen.only or ALL, chosen.through or [*RATES]
    begun = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as stack:
        place = chosen.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dc-inject-chaos-")))
        place.mkdir(exist_ok=True)
        sandbox = Sandbox(place / "sandbox")
        stack.callback(sandbox.down)
        bring_up(sandbox, chosen.seed, files="fts" in through)
        lab = Lab(sandbox, place, chosen.seed, stack, begun + 60 * (chosen.minutes or size.minutes))
        tasks: list[Callable[[], None]] = []
        if "volume" in only and size.volume_cycles and "rucio" in through:
            for part in DELIVERED:
                ground = lab.ground(f"V{part * 100:.0f}", cycle=15, datasets=150)
                tasks.append(partial(lab.volume, ground, part, size.volume_cycles))
        for service in through:
            make = (
                partial(lab.ground, cycle=4, datasets=40) if service == "rucio" else partial(lab.storages, cycle=4)
            )
            tasks.append(partial(lab.campaigns, make(service[0].upper()), size, only))
        with ThreadPoolExecutor(len(tasks)) as pool:
            try:
                for done in [pool.submit(task) for task in tasks]:
                    done.result()
            except BaseException:
                lab.stop()
                raise
    lab.rows = [row for row in lab.rows if row.runs]
    print(f"seed {chosen.seed}, size {chosen.size}, {time.monotonic() - begun:.0f} s\n\n{table(lab.rows)}")
    for row in lab.rows:
        for violation in row.violations:
            print(f"VIOLATION in {row.name}: {violation}")
    return any(row.violations for row in lab.rows)


if __name__ == "__main__":
    sys.exit(main())
