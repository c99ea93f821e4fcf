"""The real command line, at a time of our choice, with an accident; `live` is what a new process does.

Only what the tests set in the environment makes a difference, and no code of the product knows of it:

- `E2E_NOW`: what the system's clock shows at its first reading (ISO 8601); it goes on from there.
- `E2E_SPEED`: how many seconds it then goes on in a second.
- `E2E_ACCIDENT`: `EVENT:COUNT:SIGNAL[,SIGNAL]`: signals that the process sends to itself when the engine tells
  its observer of an event of class EVENT for the COUNT-th time. It tells of each step right after it: these are
  the boundaries.
- `E2E_TOLD`: the file that then gets the time on that clock, for whoever goes on.
"""

from __future__ import annotations

import os
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dc_inject.cli import root
from dc_inject.metrics import Metrics
from dc_inject.model.events import Event
from dc_inject.system import clock as system_clock
from dc_inject.system.clock import SystemClock


def set_clock(start: datetime, speed: float) -> None:
    """Let the clock begin at `start` at its first reading, and go `speed` times as fast as others."""
    begun: list[float] = []

    def now(self: SystemClock) -> datetime:
        begun.append(time.monotonic()) if not begun else None
        return start + timedelta(seconds=speed * (time.monotonic() - begun[0]))

    SystemClock.now = now  # type: ignore[method-assign]
    system_clock.note_date = lambda *_: None  # theirs are not set with it


def arrange(accident: str, told: Path) -> None:
    """Arrange for the accident."""
    name, count, signals = accident.split(":")
    left, tell = [int(count)], Metrics.event

    def event(self: Metrics, event: Event) -> None:
        tell(self, event)
        left[0] -= type(event).__name__ == name
        if type(event).__name__ == name and left[0] == 0:
            told.write_text(SystemClock().now().isoformat())
            for one in signals.split(","):
                signal.raise_signal(signal.Signals[one])  # in this thread: two of a kind are two

    Metrics.event = event  # type: ignore[method-assign]


def live() -> None:
    """Be the command line, with what the environment asks for."""
    if "E2E_NOW" in os.environ:
        moment = datetime.fromisoformat(os.environ["E2E_NOW"]).astimezone(UTC)
        set_clock(moment, float(os.environ["E2E_SPEED"]))
    if "E2E_ACCIDENT" in os.environ:
        arrange(os.environ["E2E_ACCIDENT"], Path(os.environ["E2E_TOLD"]))
    root.main()
