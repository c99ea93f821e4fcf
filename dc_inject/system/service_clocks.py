"""What the clocks of services show: the `Date` of their answers, and how far this machine's clock is from it."""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import urlsplit

KEPT = 5  # answers of each host: their median bears a front end that is wrong, and an old answer of a cache
MOST_HOSTS = 1000
_FORM = "%a, %d %b %Y %H:%M:%S GMT"
_PORTS = {"https": 443, "http": 80}


class _Heard(NamedTuple):
    shown: datetime  # by the service's clock
    at: float  # on the steady clock


_heard: dict[tuple[str, int], deque[_Heard]] = {}
_lock = threading.Lock()


def steady() -> float:
    """Return seconds that pass evenly, also while the machine sleeps, whatever is done to its clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def hear(url: str, headers: Mapping[str, str]) -> None:
    """Take the time that an answer names, if it does; one of a cache is as old as its Age says."""
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


def ahead(address: str, shown: datetime, since: float = 0.0) -> timedelta | None:
    """Return how far a clock that shows this is ahead of the service's; None where it has not told since then.

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
