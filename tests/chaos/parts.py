"""What a campaign of chaos consists of; each part is done in a world through Rucio and in one through FTS.

A new part is a function that takes a ground and a size, and a line in `PARTS`.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

from dc_inject.ledger import LedgerView, Row
from dc_inject.model import Hold, State
from tests.chaos import crashes
from tests.chaos.lab import Ground
from tests.chaos.lives import Life
from tests.chaos.proxy import CALM, Fault, Weather
from tests.chaos.world import ALL, DONE, LEDGER, World
from tests.e2e.tool import until

SHARE = {"rucio": 0.5, "fts": 1.0}  # of the kills: Rucio takes longer for what a life does first
CHAIN = 40  # lives that are killed in one campaign
AFTER = 1.5  # seconds at work, after which a life dies at the next step
KILLING = Weather(part=0.15)
SLOW = {Fault.DELAY: 0.2, Fault.DRIP: 0.2, Fault.LATE: 0.1, Fault.AWAY: 0.05}  # more of these and less happens
STORM = Weather(part=0.40, weights=dict.fromkeys(Fault, 1.0) | SLOW)
ALONE = {Fault.AWAY: 0.03}  # part of calls that a fault hits which comes alone
OFTEN = 0.30  # all others
ENOUGH = 12  # calls that each meets
PATIENT = 5  # seconds that a call may take where volume is measured: a busy machine is no fault of the service
KILLS_OF_EACH = 3  # of two at once
RATE_OF_EACH = "5 Gb/s"  # of each link, so that both want nearly all in each cycle of
FEW = "cms:*RAW#00*"  # which are ten datasets
MINUTES = 150.0  # seconds, in which what was refused is used again
CYCLES_HELD = 1  # after the first one that is held, in which credentials that have ended are not renewed
DELIVERED = {0.05: 0.995, 0.30: 0.98}  # part of calls that are faulty -> part of due that has to be injected


@dataclass(frozen=True)
class Size:
    """How much is done in each world: kills at steps and anywhere, faulty calls, runs of what is done alone.

    After so many `minutes` no campaign is begun any more. `goal` are kills and faulty calls for which seed after
    seed is run.
    """

    at_steps: int
    anywhere: int
    faulty: int
    each: int
    volume_cycles: int
    minutes: float
    goal: tuple[int, int] = (0, 0)


def kills(ground: Ground, size: Size) -> None:
    """Die at every step that lives come to, and anywhere else, in the middle of work and with faulty calls."""
    world = ground.world
    dice = random.Random(f"{ground.seed} kills {world.label}")
    row = ground.row("SIGKILL at a step")
    aim = crashes.Aim(world.folder / "deaths", dice, after=AFTER)
    wanted = round(SHARE[world.service] * size.at_steps)
    while (left := wanted - row.at_work) > 0:
        ground.deaths(row, KILLING, aim, min(CHAIN, left))
    row = ground.row("SIGKILL anywhere")
    wanted = round(SHARE[world.service] * size.anywhere)
    while (left := wanted - row.kills) > 0:
        wishes = crashes.killed_anywhere(min(CHAIN, left), dice, 2.5 * world.cycle)
        ground.campaign(row, KILLING, wishes, cycles=8)


def closed_ends(ground: Ground, size: Size) -> None:
    """Die while links are held whose ends their sites close, and when they are let go."""
    world, dice = ground.world, random.Random(f"{ground.seed} closed {ground.world.label}")
    row = ground.row("closed ends")
    aim = crashes.Aim(world.folder / "closed", dice, after=AFTER)
    with ground.endless(row, KILLING):
        for closed in (True, False):
            for destination in world.destinations[::2]:  # the others give it work to die at
                world.close(destination, closed=closed)
            ground.die(row, aim, max(2, size.at_steps // 10))
    held = [one for one in world.rows() if _hold(one) is Hold.DESTINATION_UNAVAILABLE]
    row.remarks.append(f"{len(held)} cycles of links held")


def storms(ground: Ground, size: Size) -> None:
    """Meet all faults together, in two calls of five."""
    row = ground.row(f"all faults, {STORM.part:.0%} of calls")
    while (left := size.faulty - row.faulty) > 0:
        ground.spells([(row, STORM)], min(left, 500), row)


def classes(ground: Ground, size: Size) -> None:
    """Meet each class of faults alone, often."""
    rows = {fault: ground.row(f"fault {fault} alone") for fault in Fault if size.each}
    last = ground.row("after each fault alone")
    for _ in range(size.each):
        weathers = (
            (row, Weather(part=ALONE.get(fault, OFTEN), weights={fault: 1.0})) for fault, row in rows.items()
        )
        ground.spells(weathers, ENOUGH, last, least=1.5 * ground.world.cycle)


def accidents(ground: Ground, size: Size) -> None:
    """Let the machine fail: frozen, a wrong clock, a full disk, torn writes, no memory."""
    world, dice = ground.world, random.Random(f"{ground.seed} accidents {ground.world.label}")
    steps = [("Planned", 1), ("Calling", 1), ("Answered", 1), ("Observed", 1), ("EndRequested", 1)]
    row = ground.row("SIGSTOP for three cycles")
    for _ in range(size.each):
        ground.campaign(row, Weather(), cycles=8, frozen=3)
    row = ground.row("clock an hour off and back")
    for hours in [1, -1] * size.each:
        ground.campaign(row, Weather(), crashes.clock_stepping([hours]), cycles=8)
    row = ground.row("torn ledger writes")
    world.on_death = lambda: crashes.tear(world.ledger, dice)
    aim = crashes.Aim(world.folder / "torn", dice, after=AFTER)
    for _ in range(size.each):
        ground.deaths(row, Weather(), aim, 8)
    world.on_death, world.harmed = lambda: None, True
    for name, wishes in (("disk full", crashes.disk_full), ("memory short", crashes.memory_short)):
        row = ground.row(name)
        for _ in range(size.each):
            ground.campaign(row, Weather(), wishes(steps), cycles=12)
    world.harmed = False


def two_at_once(ground: Ground, size: Size) -> None:
    """Let a second injector want the same ledger; let two with ledgers of their own share links and datasets."""
    row = ground.row("two on one ledger")
    for _ in range(size.each):
        with ground.endless(row, KILLING):
            refused(ground.world)
    both = [ground, ground.beside()] if size.each else []
    for number in range(size.each):
        with ThreadPoolExecutor(len(both)) as pool:
            for done in [pool.submit(beside, one, number) for one in both]:
                done.result()


def refused(world: World) -> None:
    """Live beside another life on the same ledger, which is told who holds it; then die, so that nobody does."""
    life = started(world)
    other = world.run()
    del world.lives[-1]  # it is no life of the campaign
    assert other.code == LEDGER, f"exit code {other.code} of a second one: {other.err}"
    assert f"process {life.process.pid} on " in other.err, f"it was not told who holds it: {other.err}"
    life.process.kill()
    life.process.wait()


def started(world: World) -> Life:
    """Start until one is past its start, at which it ends when a service is away."""
    life = world.start_run()

    def at_work() -> bool:
        nonlocal life
        if life.process.poll() is not None:
            life = world.start_run()
        return "; ledger " in life.said

    wait(world, at_work, "a life that works")
    return life


def wait(world: World, done: Callable[[], bool], what: str) -> None:
    """Wait for something that has to come within minutes on a busy machine, or for the end of it all."""
    until(lambda: world.over or done(), f"{what}, in {world.campaign}", MINUTES)
    if world.over:
        raise InterruptedError


def beside(ground: Ground, number: int) -> None:
    """Die again and again beside another one, which does so too."""
    world, row = ground.world, ground.row("two ledgers side by side")
    dice = random.Random(f"{ground.seed} beside {number} {world.label}")
    # Long enough for both to want what both have planned, as lives begin with the same cycle.
    aim = crashes.Aim(world.folder / f"beside-{number}", dice, after=world.cycle)
    world.rate, world.did = RATE_OF_EACH, FEW
    with ground.endless(row, KILLING):
        ground.die(row, aim, KILLS_OF_EACH)
        world.proxy.weather = CALM  # an end whose answer was a lie is asked for again minutes later
    world.rate, world.did = "", ALL
    met = sum(entry.state is State.REFUSED and "rule" in entry.error for entry in world.entries())
    row.remarks.append(f"{met} refused for the other's rule")


def credentials(ground: Ground, size: Size) -> None:
    """Let credentials end in the middle, with faulty calls, and renew them in their file cycles later."""
    row = ground.row("credentials that end")
    for _ in range(size.each):
        ground.world.identify()
        with ground.endless(row, KILLING):
            renewed(ground.world)
            ground.world.proxy.weather = CALM


def renewed(world: World) -> None:
    """Live once: at work, held for the credentials that have ended, and at work again when there are new ones."""
    life, begun = started(world), datetime.now(UTC)

    def given(since: datetime) -> bool:
        given = {e.injection.link.destination for e in world.entries() if e.accepted_at and e.accepted_at > since}
        return given >= set(world.landings)

    def first(row: Row) -> bool:
        return row.key.link.destination in world.landings

    wait(world, lambda: given(begun), "something is given to all")
    world.revoke()
    ended = datetime.now(UTC)

    def held() -> bool:
        """Whether it is held long enough; after it knows, for nothing else: a service may be away before."""
        rows = [row for row in world.rows() if row.closed and row.cycle.start >= ended and first(row)]
        known = min((row.cycle.start for row in rows if _hold(row) is Hold.CREDENTIALS), default=None)
        holds = {(row.cycle, _hold(row)) for row in rows if known is not None and row.cycle.start > known}
        assert {hold for _, hold in holds} <= {Hold.CREDENTIALS}, f"held for {holds}"
        return len(holds) >= CYCLES_HELD

    wait(world, held, "cycles that are held for the credentials")
    world.identify()
    again = datetime.now(UTC)
    wait(world, lambda: given(again), "something is given to all with new credentials")
    assert life.process.poll() is None, "it was not to start again"
    life.process.send_signal(signal.SIGTERM)
    assert life.ended().code == DONE


def _hold(row: Row) -> Hold | None:
    return row.held.hold if row.held is not None else None


def volume(ground: Ground, part: float, cycles: int) -> None:
    """Inject what is due, with so many faulty calls and one cycle of grace."""
    row = ground.row(f"volume, {part:.0%} faulty")
    ground.world.timeout, ground.world.rate = PATIENT, "1 Gb/s"
    ground.campaign(row, Weather(part=part, late=PATIENT + 1), cycles=cycles, grace=1)
    with LedgerView.open(ground.world.ledger) as view:
        totals = view.totals()
    ratio = totals.injected / totals.due
    row.remarks.append(f"injected/due {ratio:.2%} over {cycles} cycles of {ground.world.cycle} s")
    if ratio < DELIVERED[part]:
        row.violations.append(f"volume: {ratio:.2%} was injected, less than {DELIVERED[part]:.1%}")


PARTS: dict[str, Callable[[Ground, Size], None]] = {
    "kills": kills,
    "closed-ends": closed_ends,
    "storms": storms,
    "classes": classes,
    "accidents": accidents,
    "two-at-once": two_at_once,
    "credentials": credentials,
}
