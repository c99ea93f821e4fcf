"""`python -m tests.chaos.driver ARGUMENTS`: the real command line, to which accidents happen at its own steps.

`CHAOS` in the environment is JSON; each part may be missing, and no code of the product knows of it:

- `journal`: a file that gets a line for each event which the observer hears: `NAME COUNT`.
- `accidents`: a list of `{"event": NAME, "count": N, ...}`: what happens when NAME is heard for the N-th time:
  `signals` that the process sends to itself, `clock` (seconds by which its clock steps), and `limits` (soft limits
  of `setrlimit`, by their names: FSIZE is a full disk), and `spare` (bytes of memory that it gets from then on).
- `hit`: a file that gets a line for each accident, before it happens.
- `limits`: limits from the start.
- `killed_after`: seconds after which it dies wherever it is.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

from dc_inject.cli import root
from dc_inject.clock import SystemClock
from dc_inject.metrics import Metrics


class Driver:
    """Hears what the observer hears, and arranges for what is to happen."""

    def __init__(self, wish: dict[str, Any]) -> None:
        self.wish = wish
        self.seen: Counter[str] = Counter()
        self.offset = timedelta(0)
        self.lock = threading.RLock()
        self.accidents = {(a["event"], a["count"]): a for a in wish.get("accidents", [])}

    def hear(self, name: str) -> None:
        """Count an event; calls speak from their own threads."""
        with self.lock:
            self.seen[name] += 1
            word = (name, self.seen[name])
            self.write("journal", f"{name} {word[1]}")
            accident = self.accidents.get(word)
            if accident is not None:
                self.write("hit", f"{name} {word[1]}")
                self.happen(accident)

    def write(self, file: str, line: str) -> None:
        if file in self.wish:
            with Path(self.wish[file]).open("a") as out:
                out.write(line + "\n")

    def happen(self, accident: dict[str, Any]) -> None:
        self.offset += timedelta(seconds=accident.get("clock", 0))
        limit(accident.get("limits", {}))
        if "spare" in accident:
            limit(
                {
                    "AS": int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                    + accident["spare"]
                }
            )
        for one in accident.get("signals", ()):
            os.kill(os.getpid(), signal.Signals[one])


def limit(limits: dict[str, int]) -> None:
    """Set soft limits; a file that may not grow gets EFBIG, as Python ignores the signal."""
    for name, value in limits.items():
        what = getattr(resource, f"RLIMIT_{name}")
        resource.setrlimit(what, (int(value), resource.getrlimit(what)[1]))


def main() -> None:
    """Put the driver in place, and be the command line."""
    driver = Driver(json.loads(os.environ["CHAOS"]))
    tell, now = Metrics.event, SystemClock.now

    def event(self: Metrics, name: str, **numbers: Any) -> None:
        tell(self, name, **numbers)
        driver.hear(name)

    Metrics.event = event  # type: ignore[method-assign]
    SystemClock.now = lambda self: now(self) + driver.offset  # type: ignore[method-assign]
    limit(driver.wish.get("limits", {}))
    if "killed_after" in driver.wish:
        dying = threading.Timer(driver.wish["killed_after"], os.kill, (os.getpid(), signal.SIGKILL))
        dying.daemon = True
        dying.start()
    root.main()


if __name__ == "__main__":
    main()
