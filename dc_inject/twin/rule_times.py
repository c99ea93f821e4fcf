"""How long the rules of a link took: when some of them were late, and what that tells of the time of a file.

A rule that waited for nobody takes as long as its slowest file: attempts x (overhead + size / speed), and what
daemons and looks add. So a straight line through rules of different file sizes has the overhead at its foot, and
the speed in its slope; `corrected` takes off what a replay shows of all else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dc_inject.twin.arrays import Flags, Floats
from dc_inject.twin.grid import Fts, LinkTraits
from dc_inject.twin.replay import Past

LATE = 4.0  # times the fastest rule of a link: what takes longer has waited
LEAST_TIMED = 20  # rules
FEW = sum(Fts().actives) // 2  # files of a link under way: FTS begins with so many transfers
CERTAIN = 0.3  # of the slope: above this error, the speed of a file is not told
RETRIES = Fts().retries


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure: its value, or None and a bound, with the number of observations and what they varied between."""

    value: float | None
    bound: float
    count: int
    low: float = 0.0
    high: float = 0.0


class FileFit(NamedTuple):
    """Speed and overhead of a file; where only its time is known, that is the bound, and there is no overhead."""

    speed: Measured
    overhead: float | None

    @property
    def overhead_or_assumed(self) -> float:
        """Seconds that a file takes beside moving bytes; where they are not known, at most half of its time."""
        return _assumed_overhead(self.speed.bound) if self.overhead is None else self.overhead


class RuleTimes:
    """The rules of one link: how long they took, when some were late, and which tell the time of a file."""

    def __init__(self, past: Past, numbers: Sequence[int]) -> None:
        """Take the numbers of the link's rules among all that were sent."""
        rules = [past.sent[number] for number in numbers]
        self.numbers, self._link = numbers, rules[0].link
        self._accepted = np.array([rule.accepted for rule in rules])
        self._taken = np.array([np.inf if s.completed is None else s.completed - s.accepted for s in rules])
        self._files = np.array([rule.files for rule in rules])
        self._size = np.array([rule.bytes / rule.files for rule in rules])
        failed = np.array([rule.failed > 0 for rule in rules])
        over = np.array([min(s.completed or np.inf, s.ended or np.inf) for s in rules])
        self.fastest = float(self._taken.min(initial=np.inf))
        self._looks = round(past.cycles * past.cycle / past.look)
        self._wait = LATE * max(self.fastest, past.look)
        self._late = self._at_looks(past, self._accepted + self._wait, np.where(failed, 0.0, over))
        by_end = np.argsort(over)
        ended = np.concatenate([[0], np.cumsum(self._files[by_end])])
        under_way = np.cumsum(self._files) - ended[np.searchsorted(over[by_end], self._accepted, side="right")]
        at_look = np.minimum(self._accepted / past.look, self._looks).astype(int)
        self._quiet = np.flatnonzero(
            (under_way <= FEW)  # its own among them
            & (self._late[at_look] == 0)
            & (self._taken <= self._wait)
            & ~failed
        )
        self._attempts = np.ones(len(rules))

    def _at_looks(self, past: Past, since: Floats, until: Floats) -> Floats:
        """Return how many are so at each look, the first one at second 0."""
        counted = until > since
        first, last = (np.ceil(moments[counted] / past.look) for moments in (since, until))
        steps = [
            np.bincount(np.minimum(moments, self._looks + 1).astype(int), minlength=self._looks + 2)
            for moments in (first, last)
        ]
        return np.asarray(np.cumsum(steps[0] - steps[1])[: self._looks + 1], dtype=np.float64)

    def full(self, past: Past) -> Flags:
        """Return the cycles in which some rule was late at every look, or the link was held for a backlog."""
        looks = round(past.cycle / past.look)
        late = self._late > 0
        full = np.array([late[c * looks : (c + 1) * looks + 1].all() for c in range(past.cycles)], dtype=bool)
        return full | past.held[self._link] if self._link in past.held else full

    def of_file(self, failures: float, added: float) -> FileFit:
        """Return speed and overhead of a file, by rules that had to wait for nobody; `added` is daemons and looks.

        The overhead is None where it is not told apart from the speed.
        """
        quiet, unknown = self._quiet, Measured(None, 0.0, len(self._quiet))
        if len(quiet) < LEAST_TIMED:
            return FileFit(unknown, None)
        self._attempts = attempts(failures, self._files)
        times, sizes = np.maximum(self._taken[quiet] - added, 1.0), self._size[quiet]
        overhead, slope, error = self._line(times)
        if slope <= 0 or error > CERTAIN * slope:
            of_file = float((times / self._attempts[quiet]).mean())
            speed = float(sizes.mean()) / (of_file - _assumed_overhead(of_file))
            return FileFit(replace(unknown, value=speed, bound=of_file), None)
        if overhead < 0:
            overhead, slope = 0.0, float((times / self._attempts[quiet]).mean() / sizes.mean())
        speeds = 1 / (slope + error), 1 / max(slope - error, 1e-15)
        return FileFit(Measured(1 / slope, 0.0, len(quiet), *speeds), overhead)

    def transfers(self, files: FileFit, carried: Floats) -> int:
        """Return how many transfers at a time the link must have had when it carried much."""
        if files.speed.value is None:
            return 0
        size = float(self._size.mean())
        of_file = files.overhead_or_assumed + size / files.speed.value
        return int(np.ceil(np.percentile(carried, 95) * of_file / size))

    def _line(self, times: Floats) -> tuple[float, float, float]:
        """Return overhead, seconds per byte and the standard error of these, by least squares."""
        attempted, sizes = self._attempts[self._quiet], self._size[self._quiet]
        scale = sizes.mean()
        design = np.stack([attempted, attempted * sizes / scale], axis=1)
        if np.linalg.cond(design) > 1e6:  # all files are of one size
            return 0.0, 0.0, np.inf
        line, *_ = np.linalg.lstsq(design, times, rcond=None)
        rest = times - design @ line
        spread = np.linalg.inv(design.T @ design) * (rest @ rest) / max(len(times) - 2, 1)
        return float(line[0]), float(line[1] / scale), float(np.sqrt(spread[1, 1]) / scale)

    def corrected(self, fit: FileFit, completed: Sequence[float | None]) -> FileFit:
        """Return speed and overhead moved by what rules took less or more than in a replay."""
        replayed = np.array([np.nan if c is None else c for c in (completed[n] for n in self.numbers)])
        missing = (self._taken - (replayed - self._accepted))[self._quiet]
        measured = np.isfinite(missing)
        if fit.speed.value is None or measured.sum() < LEAST_TIMED:
            return fit
        missing = np.where(measured, missing, missing[measured].mean())  # of those that failed there
        slope = 1 / fit.speed.value
        if fit.overhead is None:
            more = missing.mean() / (self._attempts[self._quiet] * self._size[self._quiet]).mean()
            return fit._replace(speed=replace(fit.speed, value=1 / max(slope + more, 0.05 * slope)))
        overhead, steeper, _ = self._line(missing)
        new = max(slope + steeper, 0.05 * slope)
        wide = [1 / max(1 / edge + new - slope, 0.05 * new) for edge in (fit.speed.low, fit.speed.high)]
        speed = replace(fit.speed, value=1 / new, low=wide[0], high=wide[1])
        return FileFit(speed, max(fit.overhead + overhead, 0.0))


def _assumed_overhead(of_file: float) -> float:
    return min(LinkTraits().overhead, of_file / 2)


def attempts(failures: float, files: Floats) -> Floats:
    """Return how many attempts the unluckiest of so many files takes on average, of those FTS makes at most."""
    more = [1 - (1 - failures**tried) ** files for tried in range(1, RETRIES + 1)]
    return np.asarray(1 + np.sum(more, axis=0), dtype=np.float64)
