"""How many calls that make rules or jobs a service is given at once.

As many as it answers without letting them queue (`Limit`), and one at a time while it fails (`Breaker`): what does
not work is not asked by every link at once. A link that a service refuses waits alone (`LinkWaits`).

The limit follows what answers take, as TCP Vegas follows round trips. What a call takes for each piece of work,
against the least that it took lately, shows how many of the calls under way only wait for their turn: under two,
the service can take more; over four, fewer do as well. A call without an answer halves the limit. So that the
least does not age, it is measured again now and then, with half of the calls under way. Pure: samples in, another
limit out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from dc_inject.model import Cycle, FlowKey
from dc_inject.planning.reconcile import backoff

OPENS_AFTER = 5  # failures in a row
FIRST = timedelta(seconds=2)
LONGEST = timedelta(minutes=1)
SOON = timedelta(seconds=5)  # after a failed call another may try, if the service answers other questions
LINK_FIRST = timedelta(minutes=1)  # how long a link waits that was refused; then twice that, at most a cycle
FEW, MANY = 2.0, 4.0  # calls that only wait their turn: below the one more go out, above the other fewer
BEGIN = 4.0
MEASURED_FOR = 100  # answers, after which the least time is measured again


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
    _failed_at: datetime | None = None

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
        self._trying, self._failed_at = False, now
        if self.failures < OPENS_AFTER:
            return False
        opened = self.again_at is None
        self.again_at = now + backoff(self.failures - OPENS_AFTER + 1, self.service, FIRST, LONGEST)
        return opened

    def worked(self) -> bool:
        """Note that the service answered; returns whether calls were held back until now."""
        was_open, self.failures, self.again_at, self._trying = self.open, 0, None, False
        return was_open

    def answered_other(self, now: datetime) -> None:
        """Note that the service answered a question: the next call may try now, or soon after the last failure."""
        if self.again_at is not None and self._failed_at is not None:
            self.again_at = min(self.again_at, max(now, self._failed_at + SOON))


@dataclass(slots=True)
class LinkWaits:
    """Which links wait because their service refuses what is asked for them, whatever the item.

    Each waits longer the more often in a row it was refused, at most a cycle; in a new cycle each may try once.
    """

    _refusals: Counter[FlowKey] = field(default_factory=Counter)  # in a row
    _until: dict[FlowKey, datetime] = field(default_factory=dict)

    @property
    def flows(self) -> set[FlowKey]:
        """The links that were refused when they were last tried."""
        return set(self._refusals)

    def waits(self, flow: FlowKey, now: datetime) -> bool:
        """Whether nothing may be asked for a link now."""
        return now < self._until.get(flow, now)

    def left(self, flow: FlowKey, now: datetime) -> timedelta:
        """Return how long a link still waits."""
        return max(self._until.get(flow, now) - now, timedelta(0))

    def begin_cycle(self) -> None:
        """Let each link try."""
        self._until.clear()

    def called(self, flow: FlowKey, cycle: Cycle, now: datetime) -> None:
        """Note that a call goes out for a link: one that was refused before gets no other until it is answered."""
        if flow in self._refusals:
            self._until[flow] = now + self._wait(flow, cycle)

    def refused(self, flow: FlowKey, cycle: Cycle, now: datetime) -> None:
        """Note that a link was refused."""
        self._refusals[flow] += 1
        self._until[flow] = now + self._wait(flow, cycle)

    def accepted(self, flow: FlowKey) -> bool:
        """Note that something was accepted for a link; returns whether it was refused before."""
        self._until.pop(flow, None)
        return bool(self._refusals.pop(flow, 0))

    def _wait(self, flow: FlowKey, cycle: Cycle) -> timedelta:
        return backoff(self._refusals[flow], str(flow), LINK_FIRST, cycle.length)


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
        if queue < FEW and under_way + 1 >= self.whole:  # an unused limit shows nothing about a higher one
            calls = min(calls + 1 / self.whole, float(self.most))
        elif queue > MANY:
            calls = max(calls - queue / MANY / self.whole, 1.0)
        return Limit(self.most, calls, least, self.answers + 1)

    def failed(self) -> Limit:
        """Return the limit after a call that the service did not answer: half of it."""
        return replace(self, calls=max(self.calls / 2, 1.0))
