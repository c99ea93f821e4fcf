"""Many days on services that break all the time: `python -m tests.bench.bench_soak [DAYS [LINKS]]`, 12 and 200.

One call in twenty fails, lost answers included, and every day a service cannot be reached for an hour and a half.
A line for each day tells what it gave and cost; the last lines are proportions of the last day to the second (the
first one fills the ledger), which is what counts. The ledger is not synchronised to disk, the clock is simulated.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

from dc_inject.ledger.check import check
from tests.engine.soak import Figures, Soak, soak
from tests.engine.world import CYCLE

DAYS, LINKS, SHARE, SEED = 12, 200, 0.05, 24
PER_DAY = int(86400 / CYCLE.total_seconds())
HEAD = (
    "day   rules   due PB  injected %  calls  faulty %  CPU ms/cycle  statements/cycle  "
    "SQL steps/cycle  memory MB  files  ledger MB  KB/cycle  violations"
)


def line(day: int, part: Figures) -> str:
    """Return the line of a day."""
    return (
        f"{day:>3} {part.rules:>7} {part.due / 1e15:>8.2f} {100 * part.injected / part.due:>11.2f} "
        f"{part.calls:>6} {100 * part.faulty / part.calls:>9.1f} {1000 * part.seconds / part.cycles:>13.0f} "
        f"{part.statements / part.cycles:>17.0f} {part.steps / part.cycles:>16.0f} {part.resident / 1e6:>10.1f} "
        f"{part.files:>6} {part.ledger / 1e6:>10.1f} "
        f"{part.grown / 1e3 / part.cycles:>9.1f} {part.violations:>11}"
    )


def summary(made: Soak) -> str:
    """Return what the whole run comes to."""
    parts = made.parts
    early, late = parts[min(1, len(parts) - 1)], parts[-1]
    due, injected = sum(part.due for part in parts), sum(part.injected for part in parts)
    calls, faulty = sum(part.calls for part in parts), sum(part.faulty for part in parts)
    kinds = ", ".join(f"{count} {kind}" for kind, count in made.faults.counts.most_common() if kind != "calls")
    unexpected = sum(made.unexpected.values())
    ratios = {
        "memory": late.resident / early.resident,
        "open files": late.files / early.files,
        "CPU a cycle": late.seconds / early.seconds,
        "SQL statements a cycle": late.statements / early.statements,
        "SQL steps a cycle": late.steps / early.steps,
        "growth of the ledger a cycle": late.grown / early.grown,
    }
    rules, forgiven = sum(part.rules for part in parts), sum(part.forgiven for part in parts)
    flat = ", ".join(f"{name} x {ratio:.2f}" for name, ratio in ratios.items())
    return (
        f"delivered {100 * injected / due:.2f} % of {due / 1e15:.1f} PB due, "
        f"forgiven {100 * forgiven / due:.2f} %; {rules} rules and jobs\n"
        f"{calls} calls, {faulty} of them faulty ({kinds})\n"
        f"{made.there_already} refused as there already; {len(made.violations)} violations, "
        f"{unexpected} unexpected errors\n"
        f"last day to day {min(2, len(parts))}: {flat}"
    )


def main() -> None:
    """Print a line for each day as it ends, then what the whole comes to."""
    given = sys.argv[1:]
    days = float(given[0]) if given else DAYS
    links = int(given[1]) if len(given) > 1 else LINKS
    logging.disable(logging.CRITICAL)
    print(f"{links} links, {days:g} days of {PER_DAY} cycles, seed {SEED}\n{HEAD}")
    told = 0

    def say(part: Figures) -> None:
        nonlocal told
        told += 1
        print(line(told, part), flush=True)

    with tempfile.TemporaryDirectory(prefix="dc_inject-bench-") as folder:
        made = soak(Path(folder), days=days, links=links, share=SHARE, every=PER_DAY, seed=SEED, say=say)
        print(summary(made))
        for violation in made.violations[:20]:
            print(f"  {violation}")
        made.one.ledger.close()
        found = [one for one in check(made.one.ledger.path) if not one.note]
        print(f"ledger check: {len(found)} contradictions")
        for one in found[:20]:
            print(f"  {one}")


if __name__ == "__main__":
    main()
