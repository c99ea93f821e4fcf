"""All scenarios in the twin, each with several seeds: `python -m tests.twin.scenarios [SEEDS [NAME ...]]`.

Prints a table for each policy (POLICIES="fixed act"): of each figure the median and, where seeds differ, its
range. JOBS=2 simulations run at a time.
"""

from __future__ import annotations

import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from dc_inject.cli.simulate import FIXED, Request
from dc_inject.cli.simulate_seeds import FIGURES, SeedRun, one, spread
from dc_inject.model import units

FOLDER = Path(__file__).resolve().parents[2] / "menus" / "twin"
SEEDS = 3
POLICIES = (FIXED, "act")


def run(name: str, seed: int, policy: str) -> SeedRun:
    """Run a scenario once."""
    folder = FOLDER / name
    with tempfile.TemporaryDirectory() as place:
        return one(Request([folder / "menu.yaml"], folder / "grid.yaml", policy=policy), seed, Path(place))


def main(seeds: int, names: list[str]) -> None:
    """Run them all and print the tables."""
    names = names or sorted(path.parent.name for path in FOLDER.glob("*/menu.yaml"))
    policies = os.environ.get("POLICIES", " ".join(POLICIES)).split()
    with ProcessPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        runs = {
            (policy, name): [pool.submit(run, name, seed, policy) for seed in range(1, seeds + 1)]
            for name in names
            for policy in policies
        }
        for (policy, name), futures in runs.items():
            for future in futures:
                future.result()
            print(f"{name}, {policy}: {units.counted(seeds, 'seeds')}", file=sys.stderr, flush=True)
    for policy in policies:
        table = [[policy, *(figure.words for figure in FIGURES.values())]]
        for name in names:
            made = [future.result().figures for future in runs[policy, name]]
            table.append(
                [name, *(spread([m[key] for m in made], figure.form) for key, figure in FIGURES.items())]
            )
        widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
        for row in table:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        print()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS, sys.argv[2:])
