"""How long FTS may have a job."""

from __future__ import annotations

from datetime import timedelta
from math import ceil

from dc_inject.model import Injection

_HOUR = timedelta(hours=1)


def hours_in_queue(injection: Injection) -> int:
    """Return how many hours FTS may keep files of a job in its queue; it counts in whole ones."""
    return max(1, ceil(injection.lifetime / _HOUR))
