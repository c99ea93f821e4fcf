"""How long the rules of a link took: when some of them were late, and the time of a file.

A rule that did not wait takes as long as its slowest file, times its attempts, and what daemons and looks add;
`corrected` takes off what a replay shows of all else. The overhead of a file is assumed: separating it from the
speed, by files of different sizes, did not lower the error in cycles held out.

A rule certainly did not wait if FTS had at most as many files of the link as the transfers with which it begins.
Links that carry much rarely have so few. There all rules count that began while the link was not full, if those
that found many files under way took hardly longer than those that found few: the number of transfers had grown to
what they needed. The remaining wait is in a replay, too. But if files failed for good and no rate of failures is
known, the time of these rules contains retries, and does not show that of one attempt.
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
    """The time of a file in seconds, its speed in bytes per second, and the number of rules that show them.

    `speed` is None where the time is not known, for the reason `why`. `at_most` is not 0 where the time is only
    known to be no longer than that, since replays found that most of it is not the file's; half of it is assumed.
    """

    time: float
    speed: float | None
    rules: int
    why: str = ""
    at_most: float = 0.0

    @property
    def overhead(self) -> float:
        """The assumed seconds of a file in which it moves no bytes: at most half of its time."""
        return min(LinkTraits().overhead, self.time / 2)


class RuleTimes:
    """The rules of one link: how long they took, when some were late, and which show the time of a file."""

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
        """Return the time of a file, by rules that did not wait; `added` are the seconds of daemons and looks.

        `failures` is None if files failed for good and the rate of attempts that fail is not known.
        """
        self._quiet, self._damping = self._few, 1.0
        if len(self._few) < LEAST_TIMED:
            if why := self._why_no_more(failures):
                return FileFit(0.0, None, len(self._few), why)
            self._quiet, self._damping = self._in_time, DAMPING
        self._attempts = attempts(failures or 0.0, self._files)[self._quiet]
        self._of_file = float((np.maximum(self._taken[self._quiet] - added, 1.0) / self._attempts).mean())
        return self._fit(self._of_file)

    def _fit(self, time: float) -> FileFit:
        """Return the fit of a time of a file, with the speed that goes with the assumed overhead."""
        at_most = self._of_file if time <= LEAST_LEFT * self._of_file else 0.0
        fit = FileFit(time, None, len(self._quiet), at_most=at_most)
        return fit._replace(speed=float(self._size[self._quiet].mean()) / (time - fit.overhead))

    def transfers(self, files: FileFit, carried: Floats) -> int:
        """Return how many transfers at a time the link must have had when it carried much."""
        if files.speed is None:
            return 0
        size = float(self._size.mean())
        of_file = files.overhead + size / files.speed
        return int(np.ceil(np.percentile(carried, 95) * of_file / size))

    def corrected(self, fit: FileFit, completed: Sequence[float | None]) -> FileFit:
        """Return the time of a file, corrected by what rules took less or more than in a replay."""
        replayed = np.array([np.nan if c is None else c for c in (completed[n] for n in self.numbers)])
        missing = self._damping * (self._taken - (replayed - self._accepted))[self._quiet]
        measured = np.isfinite(missing)
        if fit.speed is None or measured.sum() < LEAST_TIMED:
            return fit
        time = fit.time + float(missing[measured].mean() / self._attempts.mean())
        return self._fit(max(time, LEAST_LEFT * self._of_file))


def _rise(under_way: Floats, taken: Floats) -> float:
    """Return how much longer rules took with many files under way than with few, as a part of that."""
    if len(taken) < LEAST_TIMED:
        return 0.0
    few, many = np.percentile(under_way, [10, 90])
    aside = under_way - under_way.mean()
    slope = (aside @ taken) / max(aside @ aside, 1.0)
    return float(slope * (many - few) / max(taken.mean() + slope * (few - under_way.mean()), 1.0))


def attempts(failures: float, files: Floats) -> Floats:
    """Return how many attempts the unluckiest of so many files takes on average, of those FTS makes at most."""
    more = [1 - (1 - failures**tried) ** files for tried in range(1, RETRIES + 1)]
    return np.asarray(1 + np.sum(more, axis=0), dtype=np.float64)
