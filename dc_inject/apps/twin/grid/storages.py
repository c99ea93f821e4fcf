"""What lies on storages, and the reaper that deletes it.

What arrives takes space; what finds none fails. When a rule has ended, its files stay for the deletion lag of
their storage. Then the reaper deletes them in passes, the oldest first: as many as its parallel deletions can do
in the time since the last pass, at most a chunk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from dc_inject.apps.twin.grid.arrays import Floats, Ints, summed
from dc_inject.apps.twin.grid.description import Grid


@dataclass(slots=True)
class Doomed:
    """Files to delete: not before when, how many, how many bytes, and what to call when all are gone."""

    after: float
    files: int
    bytes: float
    gone: Callable[[], None]


class Storages:
    """All storages, by their numbers: how full they are, and what is to be deleted at each."""

    def __init__(self, grid: Grid) -> None:
        """Begin with empty storages."""
        self._specs, self._chunk = list(grid.storages.values()), grid.rucio.reaper_chunk
        self.count = len(self._specs)
        self.space = np.array([np.inf if spec.space is None else spec.space for spec in self._specs])
        self._nearly_full = 0.98 * self.space
        self.used, self.most_used = np.zeros(self.count), np.zeros(self.count)
        self.arrived = 0.0  # bytes that were ever put on any of them
        self.slower = np.ones(self.count)  # by how many times deletions take longer now
        self._doomed: list[deque[Doomed]] = [deque() for _ in self._specs]
        self._passed = 0.0  # when the reaper last looked
        self._begun = [0.0] * self.count  # parts of a file, deleted in advance
        self.hours_nearly_full = np.zeros(self.count)  # above 98 % of the space

    def refused(self, storages: Ints, sizes: Floats) -> Floats:
        """Return what part of each of these amounts finds no space, when all of them arrive together."""
        arriving = summed(storages, sizes, self.count)
        fits = np.maximum(self.space - self.used, 0.0)
        too_much = arriving > fits
        if not np.count_nonzero(too_much):
            return np.zeros(len(storages))
        part = np.divide(fits, arriving, out=np.ones(self.count), where=too_much)
        refused: Floats = 1.0 - part[storages]
        return refused

    def fill(self, storages: Ints, sizes: Floats) -> None:
        """Put bytes on storages."""
        self.used += summed(storages, sizes, self.count)
        self.arrived += float(sizes.sum())

    def delete(self, storage: int, files: int, size: float, now: float, gone: Callable[[], None]) -> Doomed:
        """Have files deleted, and return what is left of them, as time goes on; `gone` is called when they are."""
        doomed = Doomed(now + self._specs[storage].delete_lag, files, size, gone)
        self._doomed[storage].append(doomed)
        return doomed

    def reap(self, now: float, since: float) -> None:
        """Let the reaper delete for the time since its last pass."""
        self._passed = now
        for storage, line in enumerate(self._doomed):
            if not line or line[0].after > now:
                self._begun[storage] = 0.0
                continue
            spec = self._specs[storage]
            pace = spec.deleting / (spec.delete_seconds * self.slower[storage])
            able = self._begun[storage] + min(pace * (now - since), self._chunk)
            files = int(able)
            while line and line[0].after <= now and files >= line[0].files:
                first = line.popleft()
                files -= first.files
                self.used[storage] = max(self.used[storage] - first.bytes, 0.0)
                first.gone()
            if line and line[0].after <= now and files:
                first = line[0]
                part = first.bytes * files / first.files
                self.used[storage] = max(self.used[storage] - part, 0.0)
                first.files, first.bytes = first.files - files, first.bytes - part
            self._begun[storage] = able - int(able) if line else 0.0

    def watch(self, seconds: float) -> None:
        """Note how much storages had at most, and count the time for which they are nearly full."""
        np.maximum(self.most_used, self.used, out=self.most_used)
        self.hours_nearly_full[self.used > self._nearly_full] += seconds / 3600

    def overdue(self, storage: int) -> float:
        """Return the bytes that the reaper could have deleted in its last pass, had deletions been fast enough."""
        ready = takewhile(lambda deletion: deletion.after <= self._passed, self._doomed[storage])
        return sum(deletion.bytes for deletion in ready)

    def backlog(self, storage: int) -> int:
        """Return how many files are still to be deleted."""
        return sum(deletion.files for deletion in self._doomed[storage])
