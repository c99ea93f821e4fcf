"""`simulate` with 1,200 links: `python -m tests.bench.bench_simulate [CYCLES [POLICY [FILES]]]`.

Without them 96 cycles, with the control of the menu (also for `-`), and the datasets of the grid. With FILES
datasets have so many files (`1000`, or `100..300`) of 5 to 7 GB; those of Data Challenge 2024 typically had 1,000
of that size (WLCG/DOMA Data Challenge 2024, Final Report).

The menu is menus/atlas/flexible.yaml, which ends when the benchmark does, in the grid of
menus/twin/atlas-one-activity. Prints CPU seconds of one core for each simulated cycle, what twelve days come to at
that rate, and the memory as it grows. With OLD=FOLDER in the environment another checkout simulates the same, and
the last line is a proportion; a digest of the closing table tells whether results are alike.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2]
MENU, GRID = "flexible.yaml", FOLDER / "menus" / "twin" / "atlas-one-activity" / "grid.yaml"
CYCLES, TWELVE_DAYS = 96, 12 * 96
FIRST = 8  # cycles until what ends is as much as what begins


def resident() -> float:
    """Return the memory of this process now, in MB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _grid(files: str, folder: Path) -> Path:
    """Return the grid with datasets of so many files; without a number, as it is."""
    if not files:
        return GRID
    bounds = files if ".." in files else f"{files}..{files}"
    text, changed = re.subn(r"(?m)files: .*? GB", f"files: {bounds}, file_size: 5..7 GB", GRID.read_text("utf-8"))
    assert changed == 1, f"{GRID} describes its datasets {changed} times"
    (folder / GRID.name).write_text(text, "utf-8")
    return folder / GRID.name


def run(cycles: int, policy: str | None, files: str = "") -> dict[str, Any]:
    """Simulate in this process; return CPU seconds and memory at the end of each cycle, and what came out."""
    from dc_inject.apps.twin import forecast  # noqa: PLC0415  of the checkout that this process is for
    from dc_inject.ledger import Ledger  # noqa: PLC0415

    simulation = import_module("dc_inject.apps.twin.simulation")
    spent: list[float] = []
    memory: list[float] = []
    with tempfile.TemporaryDirectory(prefix="dc_inject-bench-") as name:
        folder = Path(name)
        shutil.copytree(FOLDER / "menus" / "atlas", folder / "atlas")
        menu = folder / "atlas" / MENU
        menu.write_text(re.sub(r"(?m)^end: .*$", "end: 2027-02-28 10:00", menu.read_text("utf-8")), "utf-8")
        days = (cycles - 0.5) / 96  # a time inside of a cycle means its end
        end = [0]

        def passed(part: float) -> None:
            while end[0] < cycles and part * cycles >= end[0] + 1 - 1e-6:
                end[0] += 1
                spent.append(time.process_time())
                memory.append(resident())

        new_ledger = getattr(simulation, "new_ledger", partial(Ledger.open, synchronous="OFF"))
        request = simulation.Request([menu], _grid(files, folder), days, policy=policy)
        with new_ledger(folder / "bench.sqlite") as ledger:
            began = time.process_time()
            made = simulation.run(request, ledger, 1, passed)
            lines = ledger.summary()
            told = {
                "links": [
                    [str(line.key), line.due, line.injected, line.moved, line.totals.rules] for line in lines
                ],
                "held": [dict(line.holds) for line in lines],
                "lost": forecast.lost(made.world),
            }
        size = (folder / "bench.sqlite").stat().st_size / 1e6
    assert made.end - made.start == timedelta(minutes=15) * cycles, (made.start, made.end)
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
    each = [after - before for before, after in zip([began, *spent[:-1]], spent, strict=True)]
    rules = sum(line.totals.rules for line in lines)
    moved = sum(line.moved for line in lines) / sum(line.due for line in lines)
    return {
        "seconds": each,
        "memory": memory,
        "digest": digest,
        "rules": rules,
        "moved": moved,
        "links": len(lines),
        "size": size,
    }


def apart(checkout: Path, cycles: int, policy: str | None, files: str) -> dict[str, Any]:
    """Simulate with a checkout, in a process of its own."""
    told = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), "--one", str(cycles), policy or "", files],
        env=os.environ | {"PYTHONPATH": str(checkout)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def sentence(found: dict[str, Any]) -> str:
    """Say what a simulation cost and gave."""
    seconds, memory = found["seconds"], found["memory"]
    steady = seconds[FIRST:] or seconds
    each = sum(steady) / len(steady)
    marks = [memory[n] for n in range(FIRST, len(memory), max(len(memory) // 6, 1))]
    return (
        f"{found['links']} links, {len(seconds)} cycles, {found['rules']} rules, {found['moved']:.0%} of due "
        f"moved ({found['digest']}): {each:.2f} s of CPU a cycle, {each * TWELVE_DAYS / 60:.1f} min in 12 days; "
        f"memory {', '.join(f'{mark:.0f}' for mark in marks)} MB; ledger {found['size']:.0f} MB"
    )


def main() -> None:
    """Print what simulating costs; with OLD, side by side."""
    given = sys.argv[1:]
    if given[:1] == ["--one"]:
        logging.disable(logging.CRITICAL)
        print(json.dumps(run(int(given[1]), given[2] or None, given[3])))
        return
    cycles = int(given[0]) if given else CYCLES
    policy = given[1] if len(given) > 1 and given[1] != "-" else None
    files = given[2] if len(given) > 2 else ""
    made = {"this": apart(FOLDER, cycles, policy, files)}
    if old := os.environ.get("OLD"):
        made["old"] = apart(Path(old), cycles, policy, files)
    for name, found in made.items():
        print(f"{name:>5}: {sentence(found)}")
    if "old" in made:
        part = sum(made["this"]["seconds"]) / sum(made["old"]["seconds"])
        print(f"this takes {part:.2f} of the time of the old one")


if __name__ == "__main__":
    main()
