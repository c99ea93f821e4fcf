"""The real command line, to which accidents happen at its own steps; `live` is what a new process does.

A step is what can be heard without the product knowing of it: what the engine tells its observer, each transaction
of the ledger that has changed something, each request that was sent and each whose answer has begun.

`CHAOS` in the environment is JSON; each part may be missing:

- `die`: `{"after": SECONDS}` and perhaps `{"step": NAME, "count": N}`: SIGKILL when the step is heard for the N-th
  time since the process has first asked a service to make or to end something; when that does not come within so
  many seconds, at the next step whatever it is. With `"idle": true` steps count from the start.
- `accidents`: a list of `{"event": NAME, "count": N, ...}`: what happens when a step is heard for the N-th time:
  `signals` that the process sends to itself, `clock` (seconds by which its clock steps, and back again after so
  many seconds as `lasting` says), and `limits` (soft limits
  of `setrlimit`, by their names: FSIZE is a full disk), and `spare` (bytes of memory that it gets from then on).
- `journal`: a file that gets a line for each step: `NAME COUNT`.
- `deaths`: a file that gets a line of JSON for each death, before it happens: the step, how often it had been
  heard, how much was asked of services before, and which steps were heard how often after the first of that.
- `limits`: limits from the start.
- `killed_after`: seconds after which it dies wherever it is.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

from dc_inject.cli import root
from dc_inject.ledger.database import Database
from dc_inject.metrics import Metrics
from dc_inject.model.events import Calling, EndRequested, Event
from dc_inject.system.clock import SystemClock

HOPELESS = 30.0  # seconds without work, after which a life dies at the next step


class Driver:
    """Hears every step, and arranges for what is to happen."""

    def __init__(self, wish: dict[str, Any]) -> None:
        self.wish, self.die = wish, wish.get("die")
        self.seen: Counter[str] = Counter()
        self.at_work: Counter[str] = Counter()  # what was heard since the first work
        self.work = 0
        self.offset = timedelta(0)
        self.lock = threading.RLock()
        self.since = time.monotonic()  # its start, or the first work
        self.accidents = {(a["event"], a["count"]): a for a in wish.get("accidents", [])}

    def hear(self, name: str, work: int = 0) -> None:
        """Count a step; calls speak from their own threads."""
        with self.lock:
            if work and not self.work:
                self.since = time.monotonic()
            self.work += work
            self.seen[name] += 1
            if self.work:
                self.at_work[name] += 1
            self.write("journal", f"{name} {self.seen[name]}")
            accident = self.accidents.get((name, self.seen[name]))
            if accident is not None:
                self.happen(accident)
            if self.die is not None and self._dies_at(name):
                told = {"step": name, "count": self.seen[name], "work": self.work, "heard": self.at_work}
                self.write("deaths", json.dumps(told))
                os.kill(os.getpid(), signal.SIGKILL)

    def _dies_at(self, name: str) -> bool:
        count = self.seen if self.die.get("idle") else self.at_work
        if self.die.get("step") == name and count[name] == self.die["count"]:
            return True
        patience = float(self.die["after"]) if self.work else HOPELESS
        return time.monotonic() - self.since > patience

    def step(self, by: timedelta) -> None:
        """Let the clock step."""
        self.offset += by

    def write(self, file: str, line: str) -> None:
        if file in self.wish:
            with Path(self.wish[file]).open("a") as out:
                out.write(line + "\n")

    def happen(self, accident: dict[str, Any]) -> None:
        step = timedelta(seconds=accident.get("clock", 0))
        self.offset += step
        if "lasting" in accident:
            back = threading.Timer(accident["lasting"], self.step, (-step,))
            back.daemon = True
            back.start()
        limit(accident.get("limits", {}))
        if "spare" in accident:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            limit({"AS": used + accident["spare"]})
        for one in accident.get("signals", ()):
            os.kill(os.getpid(), signal.Signals[one])


def limit(limits: dict[str, int]) -> None:
    """Set soft limits; a file that may not grow gets EFBIG, as Python ignores the signal."""
    for name, value in limits.items():
        what = getattr(resource, f"RLIMIT_{name}")
        resource.setrlimit(what, (int(value), resource.getrlimit(what)[1]))


# ---------------------------------------------------------------------- what is listened to


def listen(driver: Driver) -> None:
    """Put the driver in place."""
    tell, shown, write = Metrics.event, SystemClock.shown, Database.write
    getresponse = http.client.HTTPConnection.getresponse

    def event(self: Metrics, event: Event) -> None:
        tell(self, event)
        driver.hear(type(event).__name__, len(event.keys) if isinstance(event, Calling | EndRequested) else 0)

    @contextlib.contextmanager
    def watched(self: Database) -> Iterator[None]:
        outermost, before = not self._writing, self._connection.total_changes
        with write(self):
            yield
        if outermost and self._connection.total_changes != before:
            driver.hear(f"ledger:{_who(sys._getframe(2))}")

    def answer(self: http.client.HTTPConnection) -> http.client.HTTPResponse:
        method = getattr(self, "_method", None)
        driver.hear(f"sent:{method}")
        response = getresponse(self)
        driver.hear(f"answered:{method}")
        return response

    Metrics.event = event  # type: ignore[method-assign]
    SystemClock.shown = lambda self: shown(self) + driver.offset  # type: ignore[method-assign]
    Database.write = watched  # type: ignore[method-assign]
    http.client.HTTPConnection.getresponse = answer  # type: ignore[method-assign]


def _who(frame: FrameType | None) -> str:
    """Name the method that made a transaction, and not its helpers."""
    while frame is not None and frame.f_code.co_name.startswith("_"):
        frame = frame.f_back
    return frame.f_code.co_name if frame is not None else "?"


def live() -> None:
    """Be the command line, to which CHAOS in the environment happens."""
    driver = Driver(json.loads(os.environ["CHAOS"]))
    listen(driver)
    limit(driver.wish.get("limits", {}))
    if "killed_after" in driver.wish:
        dying = threading.Timer(driver.wish["killed_after"], os.kill, (os.getpid(), signal.SIGKILL))
        dying.daemon = True
        dying.start()
    root.main()
