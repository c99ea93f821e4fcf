"""How many transfers FTS keeps on each link: its optimizer, rule by rule.

Each minute FTS looks at every link that has something to do, and moves the number of transfers by a step:

- It starts half way between the least and the most (`actives`).
- Throughput is an exponential mean with the weight 0.1 for the newest value, which is the bytes of the last 5, 15
  or 30 minutes, for files that take less than 30 s, less than 15 min, or longer.
- If under 97 % of those transfers succeeded, it goes one step down, unless the part of successes is rising, is at
  least 96 %, and retries do not increase.
- If fewer are queued than it has slots, it stays: "Queue emptying. Hold on."
- If the mean throughput has lost an order of magnitude, one step down; if it fell less, it stays; if files have
  become an order of magnitude smaller, it goes up all the same.
- Else it goes up, by one (conservative) or two (normal). Conservative, it never goes above what is queued. Normal,
  it stays where the new number, also a lower one, is more than ten times what is queued: so a link on which many
  transfers fail keeps its slots while its queue is empty.
- Where neither successes nor throughput have changed, it looks again only after 5 minutes.

Read in FTS3's own code (github.com/cern-fts/fts3: `src/server/services/optimizer/OptimizerConnections.cpp`,
`OptimizerConstants.h`, and the MySQL data source, which rounds successes up to whole percent and takes 100 % where
nothing has ended), written here for all links at a time. Left out: limits on a storage's throughput, and streams.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dc_inject.apps.twin.grid.arrays import Flags, Floats, Ints
from dc_inject.apps.twin.grid.description import Mode

EVERY = 60.0  # seconds between two runs
MINUTES = 30  # the longest window
LATELY = 5  # minutes for which FTS reports the throughput of a link
WEIGHT = 0.1  # of the newest value in the mean
LOW, BASE = 97.0, 96.0  # percent of transfers that succeed
STEADY = 300.0  # seconds after which it looks again though nothing has changed
DOWN, UP, UP_NORMAL = 1, 1, 2  # steps
STREAMS = 10  # the most of one transfer

BYTES, FILES, SIZES, SECONDS, FAILED, RETRIES = range(6)  # what is counted of each link in a minute
COUNTS = 6


class Lately(NamedTuple):
    """What FTS reports of a link's last minutes: bytes per second of all transfers, and of a mean file.

    Like FTS's figures, these leave out attempts that failed. `at` is when it last looked at the link, in seconds.
    """

    rate: float
    file: float
    at: float


class Optimizer:
    """The optimizer's memory of all links: how many transfers each may have (`value`), and what it saw last."""

    def __init__(self, mode: Mode) -> None:
        """Begin without links."""
        self._mode = mode
        self.value = np.zeros(0, dtype=np.int64)
        self._low = self._high = np.zeros(0, dtype=np.int64)
        self._known = np.zeros(0, dtype=bool)
        self._mean = self._success = self._retries = self._size = self._at = np.zeros(0)
        self._room = np.zeros((COUNTS, MINUTES, 0))  # for more links than there are yet
        self._counts = self._room
        self._minute = 0
        # How many transfers each link had before some were taken away because many failed; 0 once it has as many.
        self.before_failing = np.zeros(0, dtype=np.int64)

    def add(self, least: int, most: int) -> None:
        """Add a link with the range of its transfers."""
        self._low, self._high = np.append(self._low, least), np.append(self._high, most)
        self.value = np.append(self.value, least + (most - least) // 2)
        self.before_failing = np.append(self.before_failing, 0)
        self._known = np.append(self._known, False)
        self._success = np.append(self._success, 100.0)
        for name in ("_mean", "_retries", "_size", "_at"):
            setattr(self, name, np.append(getattr(self, name), 0.0))
        links, room = len(self.value), self._room.shape[2]
        if links > room:
            self._room = np.concatenate([self._room, np.zeros((COUNTS, MINUTES, room or 64))], axis=2)
        self._counts = self._room[:, :, :links]

    @property
    def failing(self) -> Flags:
        """Return the links on which so many transfers fail that none are added."""
        return np.asarray(self._success < LOW)

    def is_at_most(self, link: int) -> bool:
        """Whether a link has the most transfers that it may have."""
        return bool(self.value[link] >= self._high[link])

    def count(self, what: int, amounts: Floats) -> None:
        """Count something of each link for the running minute."""
        self._counts[what, self._minute] += amounts

    def lately(self, link: int) -> Lately:
        """Return what FTS reports of a link's last minutes."""
        minutes = (self._minute - np.arange(1, LATELY + 1)) % MINUTES
        moved = float(self._counts[BYTES, minutes, link].sum()) * float(self._success[link]) / 100
        return Lately(moved / 60 / LATELY, float(self._size[link]), float(self._at[link]))

    def run(self, now: float, queued: Floats, active: Floats) -> None:
        """Decide for all links that have something queued or active, and begin a new minute."""
        busy = (queued > 0) | (active > 0)
        if np.count_nonzero(busy):
            self._look(now, queued, busy)
        self._minute = (self._minute + 1) % MINUTES
        self._counts[:, self._minute] = 0.0

    def _look(self, now: float, queued: Floats, busy: Flags) -> None:
        """Decide for all links that are busy."""
        minutes, (bytes_, files, sizes, _, failed, retries) = self._windows()
        ended = files + failed
        success = np.where(ended > 0, np.ceil(100 * files / np.maximum(ended, 1)), 100.0)
        throughput = bytes_ / (minutes * 60.0)
        size = np.where(files > 0, sizes / np.maximum(files, 1), self._size)
        first = busy & ~self._known
        mean = np.where(throughput > 0, WEIGHT * throughput + (1 - WEIGHT) * self._mean, self._mean)
        same = (success == self._success) & (mean == self._mean) & (now - self._at < STEADY)
        looking = busy & self._known & ~same
        deciding = looking & (self._low < self._high)
        wanted = self._decisions(queued, success, retries, mean, size)
        taken = deciding & (wanted < self.value) & (success < LOW)
        self.before_failing[taken] = np.maximum(self.before_failing, self.value)[taken]
        self.value = np.where(deciding, wanted, self.value)
        self.before_failing[self.value >= self.before_failing] = 0
        seen = looking | first
        self._mean = np.where(first, throughput, np.where(seen, mean, self._mean))
        for name, new in (("_success", success), ("_retries", retries), ("_size", size)):
            setattr(self, name, np.where(seen, new, getattr(self, name)))
        self._at = np.where(seen, now, self._at)
        self._known |= first

    def _decisions(self, queued: Floats, success: Floats, retries: Floats, mean: Floats, size: Floats) -> Ints:
        """Return what each link would get."""
        up = UP if self._mode is Mode.CONSERVATIVE else UP_NORMAL
        improving = (success > self._success) & (success >= BASE) & (retries <= self._retries)
        falling, smaller = mean < self._mean, _order(size) < _order(self._size)
        collapsing = falling & ~smaller & (_order(mean) < _order(self._mean))
        step = np.full(len(queued), up)
        step[falling & ~smaller] = 0
        step[collapsing] = -DOWN
        step[queued < self.value] = 0
        step[mean == 0] = 0
        step = np.where(success < LOW, np.where(improving, 0, -DOWN), step)
        wanted = np.clip(self.value + step, self._low, self._high)
        if self._mode is Mode.CONSERVATIVE:
            stop = (wanted > self.value) & (queued < wanted)
        else:
            stop = wanted > queued * STREAMS
        return np.where(stop, self.value, wanted)

    def _windows(self) -> tuple[Ints, Floats]:
        """Return the minutes of each link's window, by how long its files took, and all sums in it."""
        files, seconds = self._counts[FILES].sum(axis=0), self._counts[SECONDS].sum(axis=0)
        took = np.where(files > 0, seconds / np.maximum(files, 1), 0.0)
        minutes = np.where((took > 0) & (took < 30), 5, np.where((took > 30) & (took < 900), 15, MINUTES))
        age = (self._minute - np.arange(MINUTES)) % MINUTES  # 0: the running minute
        return minutes, np.where(age[:, None] < minutes, self._counts, 0.0).sum(axis=1)


def _order(values: Floats) -> Floats:
    """Return the order of magnitude; of nothing, that of the smallest."""
    return np.asarray(np.round(np.log10(np.maximum(values, 1e-9))), dtype=np.float64)
