"""All scenarios in the twin, each with several seeds: `python -m tests.twin.scenarios [SEEDS [NAME ...]]`.

Prints a table, of each figure the median and, where seeds differ, its range. Two at a time.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median

from dc_inject.cli import forecast, simulate
from dc_inject.ledger import Ledger
from dc_inject.model import FlowKey, units

FOLDER = Path(__file__).resolve().parents[2] / "menus" / "twin"
SEEDS = 3
DATASETS = 10  # that a bin is worth, of a link's largest

Figures = Mapping[str, float]
COLUMNS: Mapping[str, Callable[[float], str]] = {
    "moved/due": lambda part: f"{100 * part:.1f} %",
    "expired unsent": lambda part: f"{100 * part:.2f} %",
    "files cancelled": lambda number: f"{number:.0f}",
    "hours above 98 %": lambda hours: f"{hours:.1f}",
    "peak/mean": lambda ratio: f"{ratio:.2f}",
    "links short": lambda number: f"{number:.0f}",
}


def figures(name: str, seed: int) -> Figures:
    """Run a scenario once; parts are of what was due."""
    logging.getLogger("dc_inject").setLevel(logging.CRITICAL)
    folder = FOLDER / name
    with (
        tempfile.TemporaryDirectory() as place,
        Ledger.open(Path(place) / "one.sqlite", synchronous="OFF") as ledger,
    ):
        made = simulate.run([folder / "menu.yaml"], folder / "grid.yaml", ledger, seed=seed)
        lines = ledger.summary()
        due = sum(line.due for line in lines)
        lost = forecast.lost(made.world)
        return {
            "moved/due": sum(line.moved for line in lines) / due,
            "expired unsent": lost["unsent_bytes"] / due,
            "files cancelled": lost["cancelled_files"],
            "hours above 98 %": float(made.world.storages.hours_nearly_full.max()),
            "peak/mean": peak_to_mean(ledger, made.start, made.end),
            "links short": len(list(forecast.short(lines, made.world))),
        }


def peak_to_mean(ledger: Ledger, start: datetime, end: datetime) -> float:
    """Return peak to mean of releases on the most uneven link, in bins worth ten of its largest datasets."""
    released: dict[FlowKey, list[tuple[datetime, int]]] = defaultdict(list)
    for entry in ledger.entries():
        if entry.accepted_at is not None and entry.injection.release < end:
            item = entry.injection.item
            released[entry.injection.flow].append((entry.injection.release, item.bytes))
    worst = 0.0
    for some in released.values():
        rate = sum(size for _, size in some) / (end - start).total_seconds()
        length = timedelta(seconds=DATASETS * max(size for _, size in some) / rate)
        bins = [0] * int((end - start) / length)
        for moment, size in some:
            number = int((moment - start) / length)
            if number < len(bins):
                bins[number] += size
        if bins:
            worst = max(worst, max(bins) * len(bins) / sum(bins))
    return worst


def shown(values: list[float], form: Callable[[float], str]) -> str:
    """Return the median, and the range where it has one."""
    middle, low, high = (form(one) for one in (median(values), min(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def main(seeds: int, names: list[str]) -> None:
    """Run them all and print the table."""
    names = names or sorted(path.parent.name for path in FOLDER.glob("*/menu.yaml"))
    with ProcessPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        runs = {name: [pool.submit(figures, name, seed) for seed in range(1, seeds + 1)] for name in names}
        table = [["scenario", *COLUMNS]]
        for name, futures in runs.items():
            print(f"{name}: {units.counted(seeds, 'seeds')}", file=sys.stderr, flush=True)
            made = [future.result() for future in futures]
            cells = [shown([one[column] for one in made], form) for column, form in COLUMNS.items()]
            table.append([name, *cells])
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS, sys.argv[2:])
