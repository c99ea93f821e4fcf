"""Jobs that are submitted to FTS directly: in its queues at once, ours to end, and ours to delete.

No daemon of Rucio stands between: files wait with those of rules and of others, and the same optimizer, limits
and priorities hold for them (`transfers.py`). FTS tries a file again as often as its job asks. A job that is over
stays known; one that is cancelled keeps FTS as busy as starting it. What has arrived stays until it is deleted,
which takes the storage as long as for Rucio.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dc_inject.apps.twin.grid.rucio import Lost
from dc_inject.apps.twin.grid.storages import Storages
from dc_inject.apps.twin.grid.transfers import Queue, Transfers


@dataclass(slots=True, eq=False)
class Job:
    """A job: its files, how many of them wait, are done or have failed, and whether it is deleted."""

    queue: Queue
    files: int
    bytes: int
    number: int | None = None  # of FTS's transfers, until it has ended
    waiting: int = 0
    done: int = 0
    failed: int = 0
    is_asked_to_go: bool = False
    is_gone: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is under way or waits."""
        return self.number is None or self.done + self.failed == self.files

    def size(self, files: int) -> int:
        """Return the bytes of so many of its files."""
        return self.bytes * files // self.files


class Jobs:
    """All jobs that were submitted directly, by the keys of their injections."""

    def __init__(self, transfers: Transfers, storages: Storages, numbers: Mapping[str, int], lost: Lost) -> None:
        """Take FTS, the storages with their numbers by name, and where to count what does not arrive."""
        self._transfers, self._storages, self._numbers, self._lost = transfers, storages, numbers, lost
        self.jobs: dict[str, Job] = {}

    def submit(self, key: str, job: Job, retries: int | None = None) -> None:
        """Take a new job; without `retries`, its files are tried as often as in FTS's configuration."""
        job.number = self._transfers.open_job(job.queue, max(job.bytes / job.files, 1.0), retries=retries)
        self._transfers.submit(job.number, job.files)
        self.jobs[key] = job

    def look(self, job: Job) -> None:
        """Take over how a job stands now."""
        if job.number is not None:
            job.done = int(self._transfers.done[job.number])
            job.failed = int(self._transfers.failed[job.number])
            job.waiting = self._transfers.waits(job.number)

    def end(self, job: Job) -> None:
        """Cancel what is left of a job; nothing is left of one that is over."""
        self.look(job)
        if job.number is None:
            return
        self._lost.add(job.bytes, job.files, job.done, job.failed, self._transfers.untried(job.number))
        self._lost.cancelled_files += int(self._transfers.left[job.number])
        self._transfers.close([job.number])
        job.number, job.waiting = None, 0

    def delete(self, job: Job, now: float) -> None:
        """Have deleted what has arrived of a job that has ended; it is gone when that is done."""
        if not job.is_asked_to_go:
            job.is_asked_to_go = True

            def gone() -> None:
                job.is_gone = True

            storage = self._numbers[job.queue.destination]
            self._storages.delete(storage, job.done, job.size(job.done), now, gone)
