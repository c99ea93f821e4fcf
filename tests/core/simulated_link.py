"""A link of a known capacity that is simulated minute by minute, and a search on it."""

from __future__ import annotations

import random
from datetime import timedelta

from dc_inject.planning.progress import Conclusion, Progress, conclusion
from dc_inject.planning.steps import Ladder
from dc_inject.planning.verdict import Reading
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
