"""A link of a known capacity that is simulated minute by minute, and a search on it."""

from __future__ import annotations

import random
from datetime import timedelta

from dc_inject.apps.link.judging.progress import Conclusion, Progress, conclusion
from dc_inject.apps.link.judging.reading import Reading
from dc_inject.apps.link.judging.steps import Ladder
from tests.engine.world import START

MINUTE = timedelta(minutes=1)
GB = 10**9
CYCLE = MINUTE
LADDER = Ladder(2 * GB, 30 * MINUTE, 1 * GB, 20 * GB, saturate=True)


class Link:
    """A link of a capacity, with noise, and a time to completion; what is too much waits in a queue."""

    def __init__(
        self,
        capacity: float,
        completion: timedelta = CYCLE,
        failing: float = 0.0,
        noise: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.capacity, self.completion, self.failing, self.noise = capacity, completion, failing, noise
        self.draw = random.Random(seed)
        self.given = self.moved = self.failed = 0.0
        self.way: list[float] = []  # what was given in each cycle that has not arrived yet

    def cycle(self, rate: float) -> None:
        self.given += CYCLE.total_seconds() * rate
        self.way.append(CYCLE.total_seconds() * rate)
        ready = sum(self.way[: max(len(self.way) - self.completion // CYCLE, 0)])
        done = min(ready, CYCLE.total_seconds() * self.capacity * max(1 + self.draw.gauss(0, self.noise), 0))
        self.moved += done * (1 - self.failing)
        self.failed += done * self.failing
        while done > 0 and self.way:
            first = min(done, self.way[0])
            self.way[0] -= first
            done -= first
            if self.way[0] > 0:
                break
            self.way.pop(0)

    def reading(self, at) -> Reading:
        known = self.completion + CYCLE if self.moved else None
        classes = {"timeout": round(self.failed / GB)} if self.failed else {}
        return Reading(at, round(self.moved), round(self.given), round(self.failed), known, classes=classes)


def searched(ladder: Ladder, link: Link, until: timedelta = 100 * timedelta(hours=1)) -> Progress:
    """Search on a simulated link with a reading every minute, until it is over."""
    progress, now = Progress(ladder, START + until), START
    progress.take(link.reading(now))
    while progress.over is None:
        now += CYCLE
        link.cycle(0 if progress.paused else progress.rate)
        progress.take(link.reading(now))
    return progress


def found(progress: Progress) -> Conclusion:
    return conclusion(progress.ladder, progress.verdicts, progress.decisions)


class SlowLink:
    """A link that few large files share: none has arrived until all of it is there, and then many at once."""

    def __init__(self, capacity: float, size: int = 5 * GB, slots: int = 10) -> None:
        self.capacity, self.size, self.slots = capacity, size, slots
        self.due = 0.0
        self.given = self.moved = 0
        self.sizes: list[float] = []  # what is left of each file on its way

    def pass_time(self, rate: float, time: timedelta) -> None:
        """Inject whole files at a rate, and move those that have a slot at the same speed."""
        self.due += rate * time.total_seconds()
        while self.due >= self.given + self.size / 2:
            self.given += self.size
            self.sizes.append(float(self.size))
        carries = self.capacity * time.total_seconds()
        while carries > 1 and self.sizes:
            running = self.sizes[: self.slots]
            each = min(carries / len(running), *running)
            carries -= each * len(running)
            left = [size - each for size in running]
            self.moved += self.size * sum(size <= 1 for size in left)
            self.sizes = [size for size in left if size > 1] + self.sizes[self.slots :]

    def reading(self, at) -> Reading:
        return Reading(
            at, self.moved, self.given, coming=self.given - self.moved,
            completion=MINUTE if self.moved else None, dataset=self.size, file=self.size, counted_by=self.size,
        )  # fmt: skip


def stopped(ladder: Ladder, link: SlowLink, after: timedelta, cycle: timedelta = CYCLE) -> Progress:
    """Return how a test stands that somebody ends after a time, at any moment of a cycle."""
    progress, passed = Progress(ladder, START + timedelta(days=9)), timedelta(0)
    progress.take(link.reading(START))
    while passed + cycle < after and progress.over is None:
        link.pass_time(0 if progress.paused else progress.rate, cycle)
        passed += cycle
        progress.take(link.reading(START + passed))
    link.pass_time(0 if progress.paused else progress.rate, after - passed)
    progress.stopped(link.reading(START + after))
    return progress
