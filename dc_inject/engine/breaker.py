"""A circuit breaker for each service: one that fails is asked by one call at a time, not by every link at once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from dc_inject.planning.reconcile import backoff

OPENS_AFTER = 5  # failures in a row
FIRST = timedelta(seconds=2)
LONGEST = timedelta(minutes=1)


@dataclass(slots=True)
class Breaker:
    """Counts what a service answers; after some failures in a row it lets a single call through now and then.

    Calls are those that make rules or jobs: a service may well answer questions while it cannot write. One that
    told nothing at all failed (refused, timed out, 5xx); an answer about one dataset is no failure.
    """

    service: str
    failures: int = 0
    again_at: datetime | None = None  # when the next call may try; None: all may
    _trying: bool = False

    @property
    def open(self) -> bool:
        """Whether calls are held back."""
        return self.again_at is not None

    def room(self, now: datetime, free: int) -> int:
        """Return how many of `free` calls may go out now."""
        if self.again_at is None:
            return free
        return 0 if self._trying or now < self.again_at else min(free, 1)

    def called(self) -> None:
        """Note that a call goes out."""
        self._trying = self.open

    def failed(self, now: datetime) -> bool:
        """Note that a call told nothing; returns whether calls are held back from now on."""
        self.failures += 1
        self._trying = False
        if self.failures < OPENS_AFTER:
            return False
        opened = self.again_at is None
        self.again_at = now + backoff(self.failures - OPENS_AFTER + 1, self.service, FIRST, LONGEST)
        return opened

    def worked(self) -> bool:
        """Note that the service answered; returns whether calls were held back until now."""
        was_open, self.failures, self.again_at, self._trying = self.open, 0, None, False
        return was_open
