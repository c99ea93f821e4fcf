"""The system's clock, the only place that reads it for decisions, and what the clocks of services show.

A service's clock is known by the `Date` of its answers.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import urlsplit

LEAP = timedelta(minutes=1)  # by which the clock changes at once, beyond the time that has passed
KEPT = 5  # answers of each host: their median bears a front end that is wrong, and an old answer of a cache
MOST_HOSTS = 1000
_FORM = "%a, %d %b %Y %H:%M:%S GMT"
_PORTS = {"https": 443, "http": 80}
_lock = threading.Lock()


class SystemClock:
    """The time of this machine, in aware UTC.

    Once guarded, it goes on evenly where the machine's clock leaps, until it has to follow.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began: datetime | None = None  # where the machine's clock was when the steady one was 0
        self._leap = timedelta(0)
        self._farthest = timedelta(0)  # that it leapt since the last question
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
            passed = steady()
            began = shown - timedelta(seconds=passed)
            leap = began - self._began
            if abs(leap) <= LEAP:
                self._began, leap = began, timedelta(0)  # it was set by a little, as time services do
            elif abs(leap - self._leap) > LEAP:
                self._leapt_at = passed
            self._leap = leap
            self._farthest = max(self._farthest, leap, key=abs)
            return shown - leap

    def guard(self) -> None:
        """Follow no leap from now on."""
        self._began = self.shown() - timedelta(seconds=steady())

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
        return measure_lead(address, self.shown(), since)


class _Heard(NamedTuple):
    shown: datetime  # by the service's clock
    at: float  # on the steady clock


_heard: dict[tuple[str, int], deque[_Heard]] = {}


def steady() -> float:
    """Return seconds that pass evenly, also while the machine sleeps, whatever is done to its clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def note_date(url: str, headers: Mapping[str, str]) -> None:
    """Take the time that an answer names, if it does; one of a cache is as old as its Age."""
    try:
        shown = datetime.strptime(headers.get("Date", ""), _FORM).replace(tzinfo=UTC)
    except ValueError:
        return  # no date, or one of another form, which HTTP does not know
    age = headers.get("Age", "")
    shown += timedelta(seconds=int(age) if age.isdecimal() and len(age) < 8 else 0)
    at, place = steady(), _place(url)
    with _lock:
        if place in _heard or len(_heard) < MOST_HOSTS:
            _heard.setdefault(place, deque(maxlen=KEPT)).append(_Heard(shown, at))


def measure_lead(address: str, shown: datetime, since: float = 0.0) -> timedelta | None:
    """Return how far a clock that shows this is ahead of the service's; None where it has not answered since then.

    `since` is a moment of the steady clock. The answer is right to within some seconds.
    """
    with _lock:
        heard = [one for one in _heard.get(_place(address), ()) if one.at >= since]
    if not heard:
        return None
    now = steady()
    seconds = statistics.median((shown - one.shown).total_seconds() - (now - one.at) for one in heard)
    return timedelta(seconds=seconds)


def _place(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        return parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return "", 0
