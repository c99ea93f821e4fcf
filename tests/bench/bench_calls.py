"""REST calls per cycle and per rule of a whole run on a real Rucio: `python -m tests.bench.bench_calls [off act]`.

Brings up a sandbox for each setting of `control`, runs 12 links for six cycles of 12 seconds through the engine,
until everything has ended, and counts every call that leaves the back end.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections import Counter
from datetime import timedelta
from pathlib import Path
from threading import Lock

from dc_inject.apps.sandbox.demo import write_menus
from dc_inject.backends.rucio import RucioBackend
from dc_inject.engine.context import Settings
from dc_inject.engine.engine import Engine
from dc_inject.engine.menus import Menus
from dc_inject.ledger import Ledger
from dc_inject.model.events import Event, RequestMade
from dc_inject.sandbox import Sandbox, default_environment
from dc_inject.system.clock import SystemClock
from dc_inject.system.executor import ThreadExecutor

from ..conftest import rucio_config

CYCLES, SECONDS = 6, 12


class Counting:
    """An observer that counts calls by their method."""

    def __init__(self) -> None:
        """Begin with none."""
        self.calls: Counter[str] = Counter()
        self._lock = Lock()

    def event(self, event: Event) -> None:
        """Hear of a call, from any thread."""
        if isinstance(event, RequestMade):
            with self._lock:
                self.calls[event.method] += 1


def run(grid: Sandbox, folder: Path, control: str) -> tuple[Counter[str], int, int]:
    """Run a campaign to its end; return calls by method, rules, and cycles, those of the drain included."""
    paths, clock, counting = write_menus(grid, CYCLES, SECONDS), SystemClock(), Counting()
    for path in paths:
        path.write_text(path.read_text().replace("\ndefaults:\n", f"\ndefaults:\n  control: {control}\n"))
    backend = RucioBackend(campaign="demo", timeout=30, observer=counting, clock=clock)
    executor = ThreadExecutor(clock, 8)
    with Ledger.open(folder / "ledger" / "bench.sqlite") as ledger:
        menus = Menus(paths, ledger=ledger, backends={"rucio": backend}, clock=clock)
        identity = backend.check()
        ledger.bind("demo", timedelta(seconds=SECONDS), [identity], clock.now())
        engine = Engine(
            menus=menus,
            ledger=ledger,
            backends={"rucio": backend},
            identities={"rucio": identity},
            clock=clock,
            executor=executor,
            observer=counting,
            settings=Settings(),
        )
        engine.run()
        rules = sum(account.rules for account in ledger.accounts().values())
        cycles = len({row.cycle for row in ledger.rows()})
    executor.close()
    return counting.calls, rules, cycles


def measure(control: str) -> None:
    """Print calls by method, per cycle and per rule."""
    env = Path(os.environ.get("DC_INJECT_SANDBOX_ENV") or default_environment())
    with tempfile.TemporaryDirectory(prefix="dc_inject-bench-") as folder:
        grid = Sandbox(Path(folder) / "grid")
        grid.up(env=env)
        try:
            with rucio_config(grid.config):
                calls, rules, cycles = run(grid, Path(folder), control)
        finally:
            grid.down()
    print(f"{control}: {rules} rules on 12 links in {CYCLES} cycles of {SECONDS} s, {cycles} with the drain")
    for method, count in calls.most_common():
        print(f"{method:36} {count:6}  {count / cycles:7.1f} a cycle  {count / rules:6.2f} a rule")
    total = sum(calls.values())
    print(f"{'all':36} {total:6}  {total / cycles:7.1f} a cycle  {total / rules:6.2f} a rule")


def main() -> None:
    """Measure with each setting of control."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no sandbox is left running
    for control in sys.argv[1:] or ("off", "act"):
        measure(control)


if __name__ == "__main__":
    main()
