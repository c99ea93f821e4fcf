"""Time and memory of exports and reports: `python -m tests.bench.bench_report [DAYS [LINKS]]`, 12 and 1,200.

The ledger has a rule for each link and cycle, written with the ledger's own methods but for the rules themselves,
whose lives are written at once. Each is made by a process of its own; the memory is the most of any so far.
"""

from __future__ import annotations

import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dc_inject.ledger import Ledger
from dc_inject.ledger.database import stored
from dc_inject.model import Cycle, FlowKey, Held, Hold, Link
from tests import browser

DAYS, LINKS, SEED = 12, 1200, 14
START, LENGTH = datetime(2027, 2, 8, tzinfo=UTC), timedelta(minutes=15)
GB = 10**9
SITES, SCENARIOS = 60, 12
TOOK = (10**8, 10**10)  # microseconds until a rule is complete: a bit more than 2.5 hours at most
FORMATS = {"export": ("jsonl", "csv", "parquet"), "report": ("md", "json", "csv", "html", "png")}
_RULE = (
    "INSERT INTO injection (key, account, cycle, campaign, item, bytes, files, release, lifetime, activity, "
    "service_priority, contact, state, external_id, attempt, intended_at, called_at, accepted_at, completed_at, "
    "ended_at, gone_at, moved, moved_exact, files_done, error) VALUES "
    "(?1, ?2, ?3, 'bench', ?1, ?4, 10, ?3, 0, '', 3, '', 'gone', ?1, 0, ?3, ?3, ?3, ?5, ?5, ?5, ?4, 1, 10, '')"
)


def make(path: Path, days: float, links: int) -> None:
    """Make the ledger of a campaign: most links get what they are due, some of them less, by their number."""
    rng = random.Random(SEED)
    keys = [
        FlowKey(f"scenario-{n % SCENARIOS}", Link(f"T1_SITE_{n // SITES:03}", f"T2_SITE_{n % SITES:03}"))
        for n in range(links)
    ]
    quality = {key: rng.choice((1.0, 1.0, 0.98, 0.95, 0.8, 0.6, 0.3)) for key in keys}
    short = [key for key in keys if quality[key] < 0.9]
    held = Held(Hold.POOL_DRY, {"free": 0})
    with Ledger.open(path, synchronous="OFF") as ledger:
        for number in range(round(days * 96)):
            cycle = Cycle(START + number * LENGTH, LENGTH)
            due = round(100 * GB * (1 + 0.3 * rng.random()))
            with ledger.together():
                ledger.open_cycle(cycle, dict.fromkeys(keys, (due, None)), cycle.start)
                accounts = ledger._open_accounts()
                at = stored(cycle.start)
                ledger._db.run_many(
                    _RULE,
                    (
                        (f"{number}-{account}", account, at, int(due * quality[key]), at + rng.randrange(*TOOK))
                        for key, account in accounts.items()
                    ),
                )
                ledger.close_cycle(cycle, cycle.end, dict.fromkeys(short, held))
        ledger.change("bench", "note", "power cut", START + timedelta(hours=30))


def loop() -> float:
    """Return the CPU seconds of 20 million additions, which tell how fast a busy machine is at the moment."""
    began, total = time.process_time(), 0
    for number in range(20_000_000):
        total += number
    return time.process_time() - began


def main() -> None:
    """Make the ledger, and print what each report costs."""
    given = sys.argv[1:]
    days = float(given[0]) if given else DAYS
    links = int(given[1]) if len(given) > 1 else LINKS
    with tempfile.TemporaryDirectory(prefix="dc_inject-bench-") as folder:
        path = Path(folder) / "bench.sqlite"
        began = time.perf_counter()
        make(path, days, links)
        size = path.stat().st_size
        print(
            f"{links} links, {days:g} days: a ledger of {size / 1e6:.0f} MB in {time.perf_counter() - began:.0f} s"
        )
        print("format          seconds  CPU seconds  / bare loop  memory MB  size MB")
        for command, fmt in ((command, fmt) for command, formats in FORMATS.items() for fmt in formats):
            goal = Path(folder) / f"{command}.{fmt}"
            bare = loop()
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            words = [sys.executable, "-m", "dc_inject", command, str(path), "--format", fmt, "-o", str(goal)]
            subprocess.run(words, check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(
                f"{command} {fmt:<7} {time.perf_counter() - began:>8.1f} {cpu:>12.1f} {cpu / bare:>12.0f} "
                f"{after.ru_maxrss / 1e3:>10.0f} {goal.stat().st_size / 1e6:>8.1f}",
                flush=True,
            )
        load(Path(folder))


def load(folder: Path) -> None:
    """Print how long a browser takes until it has loaded the page, if there is one."""
    if not any(map(shutil.which, browser.NAMES)):
        print("no Chromium to load the page with")
        return
    with browser.running(folder / "profile") as chromium:
        page = chromium.page((folder / "report.html").as_uri())
        took = page.run("performance.getEntriesByType('navigation')[0].loadEventEnd")
    print(f"loaded in Chromium in {took / 1000:.1f} s")


if __name__ == "__main__":
    main()
