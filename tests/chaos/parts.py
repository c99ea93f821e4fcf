"""What a campaign of chaos consists of; each part is done in a world through Rucio and in one through FTS.

A new part is a function that takes a ground and a size, and a line in `PARTS`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from dc_inject.ledger import LedgerView
from tests.chaos import crashes
from tests.chaos.lab import Ground
from tests.chaos.proxy import Fault, Weather

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
    steps = [("planned", 1), ("calling", 1), ("answered", 1), ("observed", 1), ("ending", 1)]
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
    "storms": storms,
    "classes": classes,
    "accidents": accidents,
}
