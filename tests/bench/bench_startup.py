"""Time of `dc-inject --help` against `python -c "import click"`: `python -m tests.bench.bench_startup`.

Interleaved, each in a process of its own; the median of the pairs. Much more than click itself means that help
loads what only a command needs.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

PAIRS = 15
COMMANDS = {"dc-inject --help": ["-m", "dc_inject", "--help"], 'python -c "import click"': ["-c", "import click"]}


def seconds(arguments: list[str]) -> float:
    """Run Python once and tell how long it took."""
    before = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - before


def main() -> None:
    """Print both medians and what the first has on top."""
    for arguments in COMMANDS.values():
        seconds(arguments)  # once for the caches
    taken = {name: [] for name in COMMANDS}
    for _ in range(PAIRS):
        for name, arguments in COMMANDS.items():
            taken[name].append(seconds(arguments))
    medians = [statistics.median(times) for times in taken.values()]
    for name, median in zip(COMMANDS, medians, strict=True):
        print(f"{name}: {1000 * median:.0f} ms (median of {PAIRS})")
    print(f"on top of click: {1000 * (medians[0] - medians[1]):.0f} ms")


if __name__ == "__main__":
    main()
