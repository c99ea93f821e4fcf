"""A real campaign on the sandbox, and what a grid that was calibrated from its ledger predicts of the same menu.

`python -m tests.apps.twin.sandbox_check [CYCLES]`, of 30 s each (15 unless said otherwise), brings up one with
four links, runs a menu on it, fits a grid to the ledger, simulates the menu in that grid, and compares the bytes
that each link moved with those that it was predicted to move. Its exit code is 1 if any is missed by more than
10 %. One link carries half of what is asked; one is fast; one has a latency; of one, transfers fail.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from dc_inject.ledger import LedgerView
from dc_inject.model import Cycle, units
from dc_inject.sandbox import Sandbox
from dc_inject.system.clock import SystemClock

CYCLE, CYCLES = 30, 15
MISSED = 0.1
GRID = """\
seed: 13
scopes: [cms]
account: {name: dcops, quota: 400 TB}
rses:
  T1_SOURCE: {tier: 1, country: CH, space: 5 PB}
  T2_FULL: {tier: 2, country: CH, space: 5 PB}
  T2_FAST: {tier: 2, country: CH, space: 5 PB}
  T2_FAR: {tier: 2, country: CH, space: 5 PB}
  T2_FAILING: {tier: 2, country: CH, space: 5 PB}
default_link: {rate: 40 Gb/s, latency: 1 s, failures: 0, streams: 4}
links:
  T1_SOURCE:T2_FULL: {rate: 3 Gb/s}
  T1_SOURCE:T2_FAR: {rate: 20 Gb/s, latency: 5 s}
  T1_SOURCE:T2_FAILING: {rate: 20 Gb/s, failures: 0.1}
datasets:
  - {sources: [T1_SOURCE], scope: cms, count: 90, files: 3..8, file_size: 0.1 GB..0.6 GB}
"""
MENU = """\
menu: 1
campaign: calibration
contact: dc-ops@example.org
timezone: UTC
start: START
end: END
limits: {total: 400 Gb/s, per_site: 200 Gb/s, rules_per_hour: 20000}
defaults:
  cycle: CYCLE s
  lifetime: {min: 4 min, max: 8 min}
  datasets: {did: ["cms:*"], files: 1..100, mean_file: 0.05..20 GB}
scenarios:
  full: {from: T1_SOURCE, to: T2_FULL, rate: 6 Gb/s}
  fast: {from: T1_SOURCE, to: T2_FAST, rate: 4 Gb/s}
  far: {from: T1_SOURCE, to: T2_FAR, rate: 4 Gb/s}
  failing: {from: T1_SOURCE, to: T2_FAILING, rate: 3 Gb/s}
"""


def command(*words: object, config: Path) -> str:
    """Run a command of ours; returns what it prints."""
    environ = {**os.environ, "RUCIO_CONFIG": str(config)}
    line = [sys.executable, "-m", "dc_inject", *map(str, words)]
    return subprocess.run(line, env=environ, stdout=subprocess.PIPE, text=True, check=True).stdout


def main(cycles: int) -> bool:
    """Run it all; returns whether each link was predicted within 10 %."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no sandbox is left running
    with tempfile.TemporaryDirectory(prefix="dc_inject-") as place:
        folder = Path(place)
        (folder / "grid.yaml").write_text(GRID)
        sandbox = Sandbox(folder / "sandbox", report=lambda line: print(line, file=sys.stderr))
        env = os.environ.get("DC_INJECT_SANDBOX_ENV")
        sandbox.up(grid=folder / "grid.yaml", env=Path(env) if env else None)
        try:
            length = timedelta(seconds=CYCLE)
            start = Cycle.at(SystemClock().now() + timedelta(seconds=5), length).next.start
            form = "%Y-%m-%dT%H:%M:%SZ"
            text = MENU.replace("CYCLE", str(CYCLE)).replace("START", start.strftime(form))
            (menu := folder / "menu.yaml").write_text(
                text.replace("END", (start + cycles * length).strftime(form))
            )
            ledger, fitted, config = folder / "past.sqlite", folder / "fitted.yaml", sandbox.config
            command("run", menu, "--ledger", ledger, config=config)
            print(command("simulate", "--calibrate", ledger, "-o", fitted, config=config))
            print(fitted.read_text())
            told = json.loads(command("simulate", menu, "--grid", fitted, "--format", "json", config=config))
        finally:
            sandbox.down()
        predicted = {(row["source"], row["destination"]): row["moved"] for row in told["links"]}
        worst = 0.0
        with LedgerView.open(ledger) as view:
            for line in view.summary():
                link = line.key.link
                apart = abs(predicted[link.source, link.destination] - line.moved) / line.moved
                worst = max(worst, apart)
                sizes = [
                    units.format_size(size) for size in (line.moved, predicted[link.source, link.destination])
                ]
                print(f"{link.destination}: moved {sizes[0]}, predicted {sizes[1]}, apart by {100 * apart:.1f} %")
    return worst <= MISSED


if __name__ == "__main__":
    sys.exit(0 if main(int(sys.argv[1]) if len(sys.argv) > 1 else CYCLES) else 1)
