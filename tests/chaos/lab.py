"""A sandbox, and worlds in it in which one campaign after the other meets what may happen."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dc_inject.sandbox import Sandbox
from tests.chaos import invariants
from tests.chaos.crashes import Aim, OperatorAction
from tests.chaos.files import FileTruth, FileWorld
from tests.chaos.lives import PATIENCE
from tests.chaos.proxy import CALM, Proxy, Weather, fts_trouble
from tests.chaos.rows import Row
from tests.chaos.truth import Truth
from tests.chaos.world import DONE, KILLED, World

ACCOUNT = "dcops"
RATES = {"rucio": "2 Gb/s", "fts": "20 Mb/s"}  # of each link: a few datasets, or jobs, a cycle
LONG = 1000  # cycles: more than a campaign of lives that are killed can take
LIFE = 60.0  # seconds that a campaign may take for each life that is killed


class TimeIsUpError(Exception):
    """What is left has to wait for another time."""


def _alone() -> Ground:
    raise LookupError("only in a lab there is room for a second one")


@dataclass
class Ground:
    """A world that runs one campaign after the other; `rows` are what came of it."""

    world: World
    truth: Truth
    before: invariants.Before
    seed: int
    until: float  # when no campaign is begun any more, on the monotonic clock
    rows: list[Row] = field(default_factory=list)
    after_each: Callable[[], None] = lambda: None  # campaign
    beside: Callable[[], Ground] = _alone  # gives a second injector at the same places
    _counted: int = 0  # lives of this campaign that are in a row
    _drained: bool = True  # whether it was seen to have nothing left

    def row(self, name: str) -> Row:
        """Begin a new line of the table."""
        self.rows.append(Row(f"{self.world.service}: {name}"))
        return self.rows[-1]

    def campaign(
        self,
        row: Row,
        weather: Weather,
        wishes: Iterable[OperatorAction] = (),
        *,
        cycles: int = 5,
        grace: int = 0,
        frozen: int = 0,
    ) -> None:
        """Run a campaign to the end of its menu and until it is drained, and check it."""
        begun = self._begin(row, weather, cycles, grace)
        try:
            if frozen:
                self.world.freeze(frozen)
            self.world.run_until_drained(wishes, patience=2 * self.world.patience)
        except AssertionError as error:
            row.violations.append(f"drained: {error}")
            self._drained = False
        self._end(row, begun)

    def spells(self, rows: Iterable[tuple[Row, Weather]], faulty: int, last: Row, *, least: float = 0.0) -> None:
        """Run one campaign through one weather after the other, each until so many calls met a fault.

        Each takes `least` seconds at least; then its life is killed, and the invariants are checked. At last the
        campaign is drained and all is checked, which goes to the row `last`.
        """
        with self.endless(last, CALM):
            for row, weather in rows:
                self._spell(row, weather, faulty, least)
            self.world.proxy.begin(self.seed, CALM)

    def _spell(self, row: Row, weather: Weather, faulty: int, least: float) -> None:
        world, begun = self.world, time.monotonic()
        if begun > self.until:
            return
        world.proxy.begin(f"{self.seed} {row.name}", weather)
        life = world.start_run()
        while world.proxy.faults.total() < faulty or time.monotonic() < begun + least:
            if time.monotonic() > begun + PATIENCE:
                break
            if life.process.poll() is not None:  # the service was away at its start
                life = world.start_run()
            time.sleep(0.1)
        life.process.kill()
        life.process.wait()
        if not world.proxy.faults:
            row.violations.append(f"no call met a fault in {PATIENCE:.0f} s")
        self._compare(row)
        self._count(row)
        self._tell(row, begun)

    def deaths(self, row: Row, weather: Weather, aim: Aim, kills: int) -> None:
        """Run a campaign in which so many lives die at their steps, in the middle of work; the next one goes on.

        The invariants are checked after each.
        """
        with self.endless(row, weather):
            self.die(row, aim, kills)

    def die(self, row: Row, aim: Aim, kills: int) -> None:
        """Let so many lives of an endless campaign die at their steps, in the middle of work."""
        deadline, world, wanted = time.monotonic() + LIFE * kills, self.world, aim.at_work + kills
        while aim.at_work < wanted and time.monotonic() < min(deadline, self.until):
            done = world.run(aim.wish())
            if done.code == KILLED:
                aim.learn()
                world.on_death()
                self._compare(row)
            elif done.code == DONE:
                break
        if aim.at_work < wanted and time.monotonic() > deadline:
            row.violations.append(f"{world.campaign}: {wanted - aim.at_work} lives came to no step in time")
        row.steps, row.at_work = aim.met.copy(), aim.at_work

    @contextmanager
    def endless(self, row: Row, weather: Weather) -> Iterator[None]:
        """Begin a campaign whose menu does not end; after the block it is drained, and all is checked.

        What the block asserts and does not hold is a violation.
        """
        begun = self._begin(row, weather, LONG)
        try:
            yield
        except AssertionError as error:
            row.violations.append(f"{self.world.campaign} (seed {self.seed}): {error}")
            self.world.lives[-1].process.kill()
            self.world.lives[-1].process.wait()
        self._drain(row)
        self._end(row, begun)

    def _begin(self, row: Row, weather: Weather, cycles: int, grace: int = 0) -> float:
        if time.monotonic() > self.until:
            raise TimeIsUpError
        world = self.world
        world.next_campaign()
        world.patience = PATIENCE + min(cycles + grace, 100) * world.cycle
        world.write_menu(world.rate or RATES[world.service], cycles, grace=grace)
        world.proxy.begin(f"{self.seed} {row.name} {row.runs}", weather)
        self._counted, self._drained = 0, True
        return time.monotonic()

    def _drain(self, row: Row) -> None:
        try:
            self.world.drain()
        except AssertionError as error:
            row.violations.append(f"drained: {error}")
            self._drained = False

    def _compare(self, row: Row) -> None:
        """Compare ledger and service in the middle of a campaign."""
        world = self.world
        found = invariants.between(world, self.truth)
        row.violations += [f"{world.campaign} after life {len(world.lives)}: {one}" for one in found]
        row.checks += 1

    def _count(self, row: Row) -> None:
        """Count what has been since the last counting."""
        world, proxy = self.world, self.world.proxy
        row.calls += proxy.requests
        row.faults.update({str(fault): count for fault, count in proxy.faults.items()})
        lives = world.lives[self._counted :]
        row.lives += len(lives)
        row.kills += sum(life.process.returncode == KILLED for life in lives)
        row.runs += 1
        self._counted = len(world.lives)

    def _end(self, row: Row, begun: float) -> None:
        """Count, and check all."""
        world = self.world
        self._count(row)
        row.given += len(self.truth.rules(world.campaign))
        world.proxy.begin(self.seed, CALM)
        found = invariants.check(world, self.truth, self.before, drained=self._drained)
        row.violations += [f"{world.campaign} (seed {self.seed}): {violation}" for violation in found]
        row.checks += 1
        self._tell(row, begun)

    def _tell(self, row: Row, begun: float) -> None:
        row.seconds += time.monotonic() - begun
        told = f"{row.kills} kills, {row.faulty} faulty of {row.calls} calls, {len(row.violations)} violations"
        self.after_each()
        print(f"{row.name}: {row.runs} runs, {told} after {row.seconds:.0f} s", file=sys.stderr, flush=True)


class Lab:
    """The sandbox and its worlds."""

    def __init__(self, sandbox: Sandbox, folder: Path, seed: int, stack: ExitStack, until: float) -> None:
        """Take a sandbox that is up; `until` is when no campaign is begun any more, on the monotonic clock."""
        self.sandbox, self.folder, self.seed = sandbox, folder, seed
        self.until = until
        self.grounds: list[Ground] = []
        self.after_each: Callable[[], None] = lambda: None  # campaign of any ground
        self._stack, self._lock = stack, threading.Lock()
        stack.callback(self.stop)

    @property
    def rows(self) -> list[Row]:
        return [row for ground in self.grounds for row in ground.rows if row.runs]

    def stop(self) -> None:
        """End all lives, and begin no more."""
        for ground in self.grounds:
            ground.world.kill()

    def ground(
        self, name: str, *, cycle: int, datasets: int, links: int = 2, other: tuple[Sandbox, Truth] | None = None
    ) -> Ground:
        """Make a world and what is in it; in this sandbox, or in another one with what its database tells."""
        sandbox, truth = other or (self.sandbox, Truth(self.sandbox.folder / "rucio.db", ACCOUNT))
        proxy = self._stack.enter_context(Proxy(sandbox.url, self.seed))
        world = World(sandbox, self.folder / name, f"S{self.seed}{name}", proxy, cycle, links=links)
        with self._lock:
            world.furnish(datasets)
        return self._kept(world, truth)

    def storages(self, name: str, *, cycle: int) -> Ground:
        """Make a world whose files go through FTS."""
        proxy = self._stack.enter_context(Proxy(str(self.sandbox.fts_url), self.seed, trouble=fts_trouble))
        world = FileWorld(
            self.sandbox, self.folder / name, f"S{self.seed}{name}", proxy, cycle,
            more={"DC_INJECT_FTS_ENDPOINT": proxy.url}, service="fts",
        )  # fmt: skip
        world.furnish()
        return self._kept(world, FileTruth(self.sandbox.folder / "fts" / "fts.db", "", world))

    def beside(self, first: World) -> Ground:
        """Make a second injector at a world's places, of the same account, and with all else of its own."""
        sandbox, number = first.sandbox, len(self.grounds)
        with self._lock:
            proxy = self._stack.enter_context(Proxy(sandbox.url, self.seed))
        world = World(
            sandbox, self.folder / f"{first.folder.name}-{number}", f"{first.label}-{number}", proxy, first.cycle,
            links=first.links, places=first.places,
        )  # fmt: skip
        return self._kept(world, Truth(sandbox.folder / "rucio.db", ACCOUNT))

    def _kept(self, world: World, truth: Truth) -> Ground:
        before = invariants.Before.of(world, truth)
        ground = Ground(
            world, truth, before, self.seed, self.until, after_each=self.after_each,
            beside=partial(self.beside, world),
        )  # fmt: skip
        self.grounds.append(ground)
        return ground
