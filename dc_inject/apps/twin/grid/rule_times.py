"""How long the rules of a link took: when some of them were late, and what that tells of the time of a file.

A rule that waited for nobody takes as long as its slowest file: attempts x (overhead + size / speed), and what
daemons and looks add. So a straight line through rules of different file sizes has the overhead at its foot, and
the speed in its slope; `corrected` takes off what a replay shows of all else.

A rule certainly waited for nobody if FTS had at most as many files of the link as the transfers with which it
begins. Links that carry much rarely have so few. There all rules count that began while the link was not full, if
those that found many files under way took hardly longer than those that found few: the number of transfers had
grown to what they needed. What they waited all the same is in a replay, too. But if files failed for good and no
rate of failures is known, the time of these rules contains retries, and tells nothing of one attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dc_inject.apps.twin.grid.arrays import Flags, Floats
from dc_inject.apps.twin.grid.description import Fts, LinkTraits
from dc_inject.apps.twin.grid.replay import Past
from dc_inject.model import units

LATE = 4.0  # times the fastest rule of a link: what takes longer has waited
LEAST_TIMED = 20  # rules
FEW = sum(Fts().actives) // 2  # files of a link under way: FTS begins with so many transfers
RISE = 0.5  # of a rule's time with few files under way: if rules with many take so much longer, they waited
DAMPING = 0.5  # of corrections where rules may have waited: then their time changes by more than that of a file
CERTAIN = 0.3  # of the slope: above this error, the speed of a file is not told
LEAST_LEFT = 0.5  # of the time of a file that rules show: where corrections would leave less, it is not known
RETRIES = Fts().retries


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure: its value, or None and a bound, with the number of observations and what they varied between."""

    value: float | None
    bound: float
    count: int
    low: float = 0.0
    high: float = 0.0

    def moved_to(self, value: float) -> Measured:
        """Return it with another value, and a range that has moved as much."""
        by = value / self.value if self.value else 1.0
        return replace(self, value=value, low=by * self.low, high=by * self.high)


class FileFit(NamedTuple):
    """Speed and overhead of a file; where only its time is known, that is the bound, and there is no overhead.

    `why` is the reason why nothing is known. `at_most` is not 0 where the time is only known to be no longer than
    that, since replays found that most of it is not the file's; half of it is assumed.
    """

    speed: Measured
    overhead: float | None
    why: str = ""
    at_most: float = 0.0

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
        is_expired = np.isinf(self._taken) & np.isfinite(over)  # it waited, though perhaps not as long as `_wait`
        patience = np.where(is_expired, np.minimum(self._wait, (over - self._accepted) / 2), self._wait)
        self._late = self._at_looks(past, self._accepted + patience, np.where(failed, 0.0, over))
        by_end = np.argsort(over)
        ended = np.concatenate([[0], np.cumsum(self._files[by_end])])
        under_way = np.cumsum(self._files) - ended[np.searchsorted(over[by_end], self._accepted, side="right")]
        at_look = np.minimum(self._accepted / past.look, self._looks).astype(int)
        in_cycle = np.minimum(self._accepted / past.cycle, past.cycles - 1).astype(int)
        in_time = (self._late[at_look] == 0) & (self._taken <= self._wait) & np.isfinite(self._taken) & ~failed
        self._few = np.flatnonzero(in_time & (under_way <= FEW))  # its own among them
        self._in_time = np.flatnonzero(in_time & ~self.full(past)[in_cycle])
        self._rise = _rise(under_way[self._in_time], self._taken[self._in_time])
        self._quiet, self._damping = self._few, 1.0
        self._attempts, self._of_file = np.ones(len(rules)), 0.0

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

    def _why_no_more(self, failures: float | None) -> str:
        """Return why rules that began with more files under way do not count; empty where they do."""
        in_time, few = (
            f"{f'only {len(rules):,}' if len(rules) else 'none'} of {units.counted(len(self.numbers), 'rules')}"
            for rules in (self._in_time, self._few)
        )
        few = f"{few} began with at most {FEW} files of the link under way"
        if len(self._in_time) < LEAST_TIMED:
            return f"{in_time} began while the link was not full, and did not wait"
        if self._rise > RISE:
            return f"{few}, and with many of them rules took {100 * self._rise:.0f} % longer than with few"
        if failures is None:
            return f"{few}, and the time of the others contains retries, whose rate is not known"
        return ""

    def of_file(self, failures: float | None, added: float) -> FileFit:
        """Return speed and overhead of a file, by rules that had to wait for nobody; `added` is daemons and looks.

        The overhead is None where it is not told apart from the speed. `failures` is None if files failed for good
        and nobody knows how many attempts do.
        """
        self._quiet, self._damping = self._few, 1.0
        if len(self._few) < LEAST_TIMED:
            if why := self._why_no_more(failures):
                return FileFit(Measured(None, 0.0, len(self._few)), None, why)
            self._quiet, self._damping = self._in_time, DAMPING
        quiet = self._quiet
        self._attempts = attempts(failures or 0.0, self._files)
        times = np.maximum(self._taken[quiet] - added, 1.0)
        of_file = float((times / self._attempts[quiet]).mean())
        self._of_file = of_file
        overhead, slope, error = self._line(times)
        if overhead < 0:
            overhead, slope = 0.0, of_file / float(self._size[quiet].mean())
        return self._told(of_file, overhead, slope, error)

    def _told(self, of_file: float, overhead: float, slope: float, error: float) -> FileFit:
        """Return speed and overhead of a file, or only the time that it takes, where the speed is not certain."""
        if slope <= 0 or error > CERTAIN * slope:
            return self._only(of_file)
        range_ = 1 / (slope + error), 1 / (slope - error)
        return FileFit(Measured(1 / slope, of_file, len(self._quiet), *range_), overhead)

    def _only(self, of_file: float) -> FileFit:
        """Return the time of a file, and the speed that goes with the overhead that is assumed."""
        speed = float(self._size[self._quiet].mean()) / (of_file - _assumed_overhead(of_file))
        at_most = self._of_file if of_file <= LEAST_LEFT * self._of_file else 0.0
        return FileFit(Measured(speed, of_file, len(self._quiet)), None, at_most=at_most)

    def as_before(self, fit: FileFit, before: FileFit) -> FileFit:
        """Return a fit with the values that were found before, where both have the same ones."""
        if None not in (fit.overhead, before.overhead) and before.speed.value:
            return self._told(
                before.speed.bound, before.overhead or 0.0, 1 / before.speed.value, _error(fit.speed)
            )
        if (fit.overhead, before.overhead) == (None, None) and fit.speed.value and before.speed.value:
            return self._only(max(before.speed.bound, LEAST_LEFT * self._of_file))
        return fit

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
        missing = self._damping * (self._taken - (replayed - self._accepted))[self._quiet]
        measured = np.isfinite(missing)
        if fit.speed.value is None or measured.sum() < LEAST_TIMED:
            return fit
        missing = np.where(measured, missing, missing[measured].mean())  # of those that failed there
        attempted = self._attempts[self._quiet]
        of_file = max(fit.speed.bound + float(missing.mean() / attempted.mean()), LEAST_LEFT * self._of_file)
        if fit.overhead is None:
            return self._only(of_file)
        overhead, steeper, _ = self._line(missing)
        if fit.overhead + overhead < 0:  # the rest of what is missing is the slope's
            bytes_ = float((attempted * self._size[self._quiet]).mean())
            overhead, steeper = -fit.overhead, (missing.mean() + fit.overhead * attempted.mean()) / bytes_
        return self._told(
            of_file, fit.overhead + overhead, 1 / fit.speed.value + float(steeper), _error(fit.speed)
        )


def _error(speed: Measured) -> float:
    """Return the standard error of the seconds per byte."""
    return 0.0 if speed.value is None else 1 / speed.low - 1 / speed.value


def _rise(under_way: Floats, taken: Floats) -> float:
    """Return how much longer rules took with many files under way than with few, as a part of that."""
    if len(taken) < LEAST_TIMED:
        return 0.0
    few, many = np.percentile(under_way, [10, 90])
    aside = under_way - under_way.mean()
    slope = (aside @ taken) / max(aside @ aside, 1.0)
    return float(slope * (many - few) / max(taken.mean() + slope * (few - under_way.mean()), 1.0))


def _assumed_overhead(of_file: float) -> float:
    return min(LinkTraits().overhead, of_file / 2)


def attempts(failures: float, files: Floats) -> Floats:
    """Return how many attempts the unluckiest of so many files takes on average, of those FTS makes at most."""
    more = [1 - (1 - failures**tried) ** files for tried in range(1, RETRIES + 1)]
    return np.asarray(1 + np.sum(more, axis=0), dtype=np.float64)
