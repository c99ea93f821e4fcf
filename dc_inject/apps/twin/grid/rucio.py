"""Rucio's rules and daemons, from a rule's creation to the deletion of what it brought.

A rule is a request for each of its files. The submitter passes requests on to FTS, first come first served. The
poller sees what is done. A rule that has lived its lifetime is ended by the judge: requests that were never passed
on are dropped, files that are still with FTS are cancelled there, and what has arrived goes to the reaper.
A dataset can be at a destination once only, until the last of its files is deleted.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from dc_inject.apps.twin.grid import description as g
from dc_inject.apps.twin.grid.storages import Doomed, Storages
from dc_inject.apps.twin.grid.transfers import Queue, Transfers


@dataclass(slots=True, eq=False)
class Rule:
    """A rule: what it is for, how far it got, and how it ended; times in seconds, None if not yet."""

    name: str
    dataset: str
    queue: Queue
    files: int
    bytes: int
    created: float
    expires: float
    waiting: int = 0  # requests that are not with FTS yet
    job: int | None = None
    done: int = 0  # files, as the poller saw them last
    failed: int = 0
    completed: float | None = None
    ended: float | None = None
    is_gone: bool = False
    doomed: Doomed | None = None  # what is deleted of it

    @property
    def left(self) -> int:
        """Bytes that are there, as far as the poller and the reaper know."""
        if self.is_gone:
            return 0
        return self.arrived if self.doomed is None else int(self.doomed.bytes)

    @property
    def arrived(self) -> int:
        """Bytes of the files that the poller has seen."""
        return self.bytes if self.done == self.files else self.bytes * self.done // self.files


@dataclass(slots=True)
class Lost:
    """What ended without having arrived: the bytes of a rule or job are these three and what has arrived of it."""

    unsent_bytes: int = 0  # of files whose transfer had not begun
    unsent_files: int = 0
    interrupted_bytes: int = 0  # of files whose transfer had begun: it ran, or had failed and was to be retried
    cancelled_files: int = 0  # that FTS had in its queues or under way
    failed_bytes: int = 0  # of files that failed in all attempts
    failed_files: int = 0

    def add(self, size: int, files: int, done: int, failed: int, unsent: int) -> None:
        """Add a rule or job that ends, of so many bytes and files of one size, and what became of its files.

        A remainder counts where its last files do, so that nothing is lost in rounding.
        """
        left = size - size * done // files
        failed_bytes = left if done + failed == files else size * failed // files
        begun = files > done + failed + unsent
        unsent_bytes = size * unsent // files if begun else left - failed_bytes
        self.failed_files += failed
        self.failed_bytes += failed_bytes
        self.unsent_files += unsent
        self.unsent_bytes += unsent_bytes
        self.interrupted_bytes += left - failed_bytes - unsent_bytes


class Rules:
    """All rules, and the daemons that work for them."""

    def __init__(
        self, settings: g.Rucio, transfers: Transfers, storages: Storages, numbers: Mapping[str, int]
    ) -> None:
        """Take FTS, the storages, and the storages' numbers by name."""
        self._settings, self._transfers, self._storages, self._numbers = settings, transfers, storages, numbers
        self.rules: dict[str, Rule] = {}
        self.there: dict[tuple[str, str], Rule] = {}  # (dataset, destination) -> what is not deleted yet
        self.lost = Lost()
        self._unsent: deque[Rule] = deque()
        self._is_behind = False  # whether the submitter left something in its last pass
        self._by_end: list[tuple[float, int, Rule]] = []
        self._order = count()
        self._by_job: dict[int, Rule] = {}

    @property
    def unsent(self) -> int:
        """How many requests wait for the submitter."""
        return sum(rule.waiting for rule in self._unsent)

    def add(self, rule: Rule) -> None:
        """Take a new rule, whose dataset is not at its destination."""
        rule.waiting = rule.files
        self.rules[rule.name] = self.there[rule.dataset, rule.queue.destination] = rule
        self._unsent.append(rule)
        self.end(rule, rule.expires)

    def end(self, rule: Rule, moment: float) -> None:
        """Have a rule ended at the judge's first pass from a moment on, if that is earlier than planned."""
        rule.expires = min(rule.expires, moment)
        heapq.heappush(self._by_end, (rule.expires, next(self._order), rule))

    def submit(self) -> None:
        """Pass requests on to FTS, as many as the submitter does in one pass."""
        able = int(self._settings.requests * self._settings.submit_every)
        while able and self._unsent:
            rule = self._unsent[0]
            files = min(rule.waiting, able)
            if files:
                if rule.job is None:
                    rule.job = self._transfers.open_job(rule.queue, max(rule.bytes / rule.files, 1.0))
                    self._by_job[rule.job] = rule
                self._transfers.submit(rule.job, files)
            rule.waiting -= files
            able -= files
            if not rule.waiting:
                self._unsent.popleft()
        self._is_behind = not able and bool(self._unsent)

    def held_back(self, *, is_down: bool) -> Mapping[tuple[str, str], int]:
        """Return how many requests of each link wait for the submitter, if it is down or does not keep up."""
        waiting = Counter[tuple[str, str]]()
        for rule in self._unsent if is_down or self._is_behind else ():
            waiting[rule.queue.source, rule.queue.destination] += rule.waiting
        return waiting

    def poll(self, now: float) -> None:
        """See which rules are complete, or have nothing left that could still arrive."""
        for job in self._transfers.settled:
            rule = self._by_job.get(job)
            if rule is not None and rule.completed is None and not rule.waiting:
                self.look(rule)
                if rule.done == rule.files:
                    rule.completed = now
        self._transfers.settled.clear()

    def look(self, rule: Rule) -> None:
        """Take over how many files of a rule are done and failed now."""
        if rule.job is not None and rule.ended is None:
            rule.done = int(self._transfers.done[rule.job])
            rule.failed = int(self._transfers.failed[rule.job])

    def judge(self, now: float) -> None:
        """End rules that have lived their lifetime, as many as the judge does in one pass."""
        jobs: list[int] = []
        ended = 0
        while ended < self._settings.rules_a_pass and self._by_end and self._by_end[0][0] <= now:
            rule = heapq.heappop(self._by_end)[2]
            if rule.ended is None:
                self._end(rule, now, jobs)
                ended += 1
        if jobs:
            self._transfers.close(jobs)

    def _end(self, rule: Rule, now: float, jobs: list[int]) -> None:
        """End a rule; its job, if it has one, is one more to close."""
        self.look(rule)
        untried = 0 if rule.job is None else self._transfers.untried(rule.job)
        self.lost.add(rule.bytes, rule.files, rule.done, rule.failed, rule.waiting + untried)
        rule.waiting, rule.ended = 0, now
        if rule.job is not None:
            self.lost.cancelled_files += int(self._transfers.left[rule.job])
            jobs.append(rule.job)
            del self._by_job[rule.job]
            rule.job = None
        size = rule.bytes * rule.done / rule.files

        def gone() -> None:
            rule.is_gone, rule.doomed = True, None  # nothing keeps what is gone
            del self.there[rule.dataset, rule.queue.destination], self.rules[rule.name]

        rule.doomed = self._storages.delete(self._numbers[rule.queue.destination], rule.done, size, now, gone)
