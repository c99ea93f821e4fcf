"""How many calls that make rules or jobs a service is given at once.

As many as it answers without letting them queue (`Limit`), and one at a time while it fails (`Breaker`): what does
not work is not asked by every link at once.

The limit follows what answers take, as TCP Vegas follows round trips. What a call takes for each piece of work,
against the least that it took lately, shows how many of the calls under way only wait for their turn: under two,
the service can take more; over four, fewer do as well. A call without an answer halves the limit. So that the
least does not age, it is measured anew now and then, with half of the calls under way. Pure: samples in, another
limit out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from dc_inject.planning.reconcile import backoff

OPENS_AFTER = 5  # failures in a row
FIRST = timedelta(seconds=2)
LONGEST = timedelta(minutes=1)
FEW, MANY = 2.0, 4.0  # calls that only wait their turn: below the one more go out, above the other fewer
BEGIN = 4.0
MEASURED_FOR = 100  # answers, after which the least time is measured anew


@dataclass(slots=True)
class Breaker:
    """Counts what a service answers; after some failures in a row it lets a single call through now and then.

    Calls are those that make rules or jobs: a service may well answer questions while it cannot write. A call
    without any answer failed (refused, timed out, 5xx); an answer about one dataset is no failure.
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
        """Note a call without an answer; return whether calls are held back from now on."""
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


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of calls at once, and what it follows from: seconds for a piece of work, and answers counted."""

    most: int
    calls: float = BEGIN
    least: float | None = None
    answers: int = 0

    @property
    def whole(self) -> int:
        """How many calls may be under way."""
        return max(1, min(int(self.calls), self.most))

    def answered(self, seconds: float, work: int, under_way: int) -> Limit:
        """Return the limit after an answer for so many pieces of work, with so many calls under way till then.

        A call costs something by itself: it counts as a piece of work more.
        """
        each = max(seconds, 0.0) / (work + 1)
        if self.answers >= MEASURED_FOR:
            return replace(self, calls=max(self.calls / 2, 1.0), least=each, answers=0)
        least = each if self.least is None else min(self.least, each)
        queue = under_way * (1 - least / each) if each else 0.0
        calls = self.calls
        if queue < FEW and under_way + 1 >= self.whole:  # one that is not used tells nothing of a higher one
            calls = min(calls + 1 / self.whole, float(self.most))
        elif queue > MANY:
            calls = max(calls - queue / MANY / self.whole, 1.0)
        return Limit(self.most, calls, least, self.answers + 1)

    def failed(self) -> Limit:
        """Return the limit after a call that the service did not answer: half of it."""
        return replace(self, calls=max(self.calls / 2, 1.0))
