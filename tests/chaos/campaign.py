"""`python -m tests.chaos.campaign`: break everything around the tool, and count what it lost; `make chaos`.

It brings up a sandbox of its own, runs campaigns through the real command line with faults between it and the real
services and with accidents to the process, checks the invariants after each, and prints a table. The exit code is
1 when anything is violated. `SEED` and `SIZE` (small, default, full) come from the environment or as options.

The full size runs seed after seed, each in a sandbox of its own, until there are kills and faulty calls enough.
With `--records FOLDER` what each seed gave is kept, also when it is interrupted: it goes on with the next one.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dc_inject.sandbox import Grid, Link, Rse, Sandbox, default_environment, default_xrootd
from tests.chaos import postgres, rows
from tests.chaos.lab import ACCOUNT, RATES, Ground, Lab, TimeIsUpError
from tests.chaos.parts import DELIVERED, PARTS, Size, volume
from tests.chaos.truth import Truth

Task = Callable[[], list[str] | None]  # returns what there was no time for
ALL = [*PARTS, "volume", "postgres"]
CYCLES = {"rucio": 8, "fts": 4}  # seconds: Rucio takes longer for what planning asks of it
# What is done one after the other in one world, beside the other worlds: most of the time is waiting.
TOGETHER = {
    "rucio": (("kills", "closed-ends"), ("classes",), ("accidents",), ("storms", "two-at-once", "credentials")),
    "fts": (("kills", "storms"), ("classes", "accidents", "credentials")),
}
SIZES = {
    "small": Size(at_steps=12, anywhere=4, faulty=0, each=0, volume_cycles=0, minutes=3),
    "default": Size(at_steps=40, anywhere=6, faulty=200, each=1, volume_cycles=40, minutes=12),
    "full": Size(300, anywhere=30, faulty=3000, each=1, volume_cycles=40, minutes=60, goal=(1000, 20000)),
}


def grid(seed: int) -> Grid:
    """A grid with nothing in it: every world brings its own."""
    return Grid(seed, ACCOUNT, 10**18, ("cms",), (Rse("T0_SEED", 10**15),), Link(1e12, 0.1), {}, {})


def server_environment() -> Path:
    """Return where the servers' own Python environment is."""
    return Path(os.environ.get("DC_INJECT_SANDBOX_ENV") or default_environment())


def bring_up(sandbox: Sandbox, seed: int, *, files: bool = False, db: str = "sqlite") -> None:
    """Bring it up; with storages where there are any to be had."""
    xrootd = Path(os.environ.get("DC_INJECT_SANDBOX_XROOTD") or default_xrootd())
    more: dict[str, Any] = {"storage": "xrootd", "xrootd": xrootd, "time_scale": 1 / 60} if files else {}
    sandbox.up(grid=grid(seed), env=server_environment(), interval=0.3, db=db, **more)


def parts(ground: Ground, size: Size, only: Sequence[str]) -> list[str]:
    """Do in one world one part after the other; returns those for which the time was up."""
    for number, name in enumerate(only):
        try:
            PARTS[name](ground, size)
        except TimeIsUpError:
            return [f"{ground.world.service}: {late}" for late in only[number:]]
    return []


@dataclass(frozen=True)
class Wanted:
    """What is done with each seed: which parts, through which services, in how many worlds of each at a time."""

    size: Size
    only: Sequence[str]
    through: Sequence[str]
    worlds: int = 1


def tracks(lab: Lab, wanted: Wanted, stack: ExitStack) -> Iterator[Task]:
    """Make the worlds, and give what is done in each; they go side by side."""
    size, rucio = wanted.size, "rucio" in wanted.through
    if "volume" in wanted.only and size.volume_cycles and rucio:
        # In a sandbox of its own: what others ask of a small Rucio at the same time is no fault of its network.
        alone = Sandbox(lab.folder / "volume")
        stack.callback(alone.down)
        bring_up(alone, lab.seed)
        other = alone, Truth(alone.folder / "rucio.db", ACCOUNT)
        for part in DELIVERED:
            ground = lab.ground(f"V{part * 100:.0f}", cycle=15, datasets=150, other=other)
            yield partial(volume, ground, part, size.volume_cycles)
    for service, number in itertools.product(wanted.through, range(1, wanted.worlds + 1)):
        for share in (names for names in TOGETHER[service] if set(names) & set(wanted.only)):
            if service == "rucio":
                ground = lab.ground(f"R{number}{share[0][0].upper()}", cycle=CYCLES["rucio"], datasets=60, links=4)
            else:
                ground = lab.storages(f"F{number}{share[0][0].upper()}", cycle=CYCLES["fts"])
            yield partial(parts, ground, size, [name for name in share if name in wanted.only])
    if "postgres" in wanted.only and size.each and rucio and postgres.to_be_had(server_environment()):
        catalogue = Sandbox(lab.folder / "postgres")
        stack.callback(catalogue.down)
        bring_up(catalogue, lab.seed, db="postgres")
        held = catalogue, postgres.PostgresTruth(catalogue.folder, ACCOUNT)
        ground = lab.ground("P", cycle=CYCLES["rucio"], datasets=60, links=4, other=held)
        yield partial(postgres.locked, ground, size)


def chaos(seed: int, wanted: Wanted, place: Path, record: Path) -> None:
    """Do everything with one seed, in a sandbox of its own; the record is there after each campaign."""
    begun = time.monotonic()
    place.mkdir(exist_ok=True)
    with ExitStack() as stack:
        sandbox = Sandbox(place / "sandbox")
        stack.callback(sandbox.down)
        bring_up(sandbox, seed, files="fts" in wanted.through)
        lab = Lab(sandbox, place, seed, stack, begun + 60 * wanted.size.minutes)
        lab.after_each = lambda: rows.save(record, lab.rows)
        lab.after_each()
        tasks = list(tracks(lab, wanted, stack))
        with ThreadPoolExecutor(len(tasks)) as pool:
            try:
                ends = [pool.submit(task) for task in tasks]
                late = sorted(name for end in ends for name in end.result() or ())
            except BaseException:
                lab.stop()
                raise
            finally:
                lab.after_each()  # what came of a campaign beyond its checks
    found = rows.summed([record])
    print(f"seed {seed}: {time.monotonic() - begun:.0f} s\n\n{rows.table(found)}\n")
    print(f"not done, or not all of it, as the time was up: {', '.join(late) or 'nothing'}\n", flush=True)


def enough(files: Sequence[Path], goal: tuple[int, int]) -> bool:
    """Whether records hold as many kills and faulty calls as are wanted."""
    total = rows.Row("total")
    for row in rows.summed(files):
        total += row
    return bool(files) and total.kills >= goal[0] and total.faulty >= goal[1]


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or 1))
    parser.add_argument("--size", choices=SIZES, default=os.environ.get("SIZE") or "default")
    parser.add_argument("--only", choices=ALL, action="append")
    parser.add_argument("--through", choices=RATES, action="append", help="By default both, where XRootD is.")
    parser.add_argument("--worlds", type=int, default=1, help="Of each service, side by side.")
    parser.add_argument("--records", type=Path, help="Keep what each seed gave in this folder.")
    parser.add_argument("--keep", type=Path, help="Leave state and output in this new folder.")
    chosen = parser.parse_args()
    wanted = Wanted(SIZES[chosen.size], chosen.only or ALL, chosen.through or [*RATES], chosen.worlds)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as stack:
        place = chosen.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dc-inject-chaos-")))
        records = chosen.records or place
        for folder in (place, records):
            folder.mkdir(exist_ok=True, parents=True)
        seed = chosen.seed
        while not enough(files := sorted(records.glob("seed-*.json")), wanted.size.goal):
            file = records / f"seed-{seed}.json"
            if file not in files:
                chaos(seed, wanted, place / str(seed), file)
            seed += 1
        found = rows.summed(files)
    if len(files) > 1:
        print(f"{len(files)} seeds, size {chosen.size}\n\n{rows.table(found)}")
    return rows.tell_violations(found)


if __name__ == "__main__":
    sys.exit(main())
