"""The system's clock; the only place that reads it for decisions."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from dc_inject.system import service_clocks

LEAP = timedelta(minutes=1)  # by which the clock changes at once, beyond the time that has passed


class SystemClock:
    """The time of this machine, in aware UTC.

    Once guarded, it goes on evenly where the machine's clock leaps, until it is told to follow.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began: datetime | None = None  # where the machine's clock was when the steady one was 0
        self._leap = timedelta(0)
        self._farthest = timedelta(0)  # that it leapt since somebody asked
        self._leapt_at = 0.0  # on the steady clock

    def shown(self) -> datetime:
        """Return what the machine's clock shows."""
        return datetime.now(UTC)

    def now(self) -> datetime:
        """Return the present instant."""
        shown = self.shown()
        if self._began is None:
            return shown
        with self._lock:
            steady = service_clocks.steady()
            began = shown - timedelta(seconds=steady)
            leap = began - self._began
            if abs(leap) <= LEAP:
                self._began, leap = began, timedelta(0)  # it was set by a little, as time services do
            elif abs(leap - self._leap) > LEAP:
                self._leapt_at = steady
            self._leap = leap
            self._farthest = max(self._farthest, leap, key=abs)
            return shown - leap

    def guard(self) -> None:
        """Follow no leap from now on."""
        self._began = self.shown() - timedelta(seconds=service_clocks.steady())

    def leap(self) -> timedelta:
        """Return how far the machine's clock is ahead of this one."""
        return self._leap

    def farthest(self) -> timedelta:
        """Return how far it leapt since this was last asked, also if it is back."""
        farthest, self._farthest = self._farthest, timedelta(0)
        return farthest

    def follow(self) -> None:
        """Take the time that the machine's clock shows."""
        self._leap = self._farthest = timedelta(0)
        self.guard()

    def ahead(self, address: str) -> timedelta | None:
        """Return how far the machine's clock is ahead of a service's, by its answers since the last leap."""
        since = self._leapt_at if self._leap else 0.0
        return service_clocks.ahead(address, self.shown(), since)
