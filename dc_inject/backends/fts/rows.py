"""What FTS reports about jobs, one row each: asked for in parts that it can answer in time."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from dc_inject.backends.answers import count
from dc_inject.backends.fts.connection import Connection
from dc_inject.backends.fts.errors import Slow
from dc_inject.backends.fts.jobs import AT_ONCE
from dc_inject.model import units
from dc_inject.model.errors import ServiceError
from dc_inject.model.items import LARGEST_FILE

log = logging.getLogger(__name__)

Row = Mapping[str, Any]
FILES_AT_ONCE = 2000  # in one answer: a megabyte or two, which a front end that gives up after 60 s lets through
SLOW_AT_MOST = 2  # answers that do not come, in one look: each costs a time-out
_TOO_MUCH = frozenset({413, 414})  # said at once
_GAVE_UP = frozenset({408, 500, 502, 504})  # said by FTS, or by what stands before it, when it took too long


class Rows:
    """Asks for states, or for files as well; a row that is in no answer is empty.

    How many files one answer may hold is learned: half of what did not come in time, and slowly more again while
    all goes well. Threads share it; an update that two of them make at once may be lost, which does no harm.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._most = FILES_AT_ONCE

    def states(self, ids: Iterable[str]) -> dict[str, Row]:
        """Return the rows of jobs without their files; raises ServiceError when one part is not answered."""
        rows: dict[str, Row] = {}
        left, most = dict.fromkeys(ids, 1), AT_ONCE
        while left:
            batch = _first(left, most)
            try:
                rows |= self._ask(batch, files=False)
            except ServiceError:
                if self._connection.status not in _TOO_MUCH or len(batch) == 1:
                    raise
                most = len(batch) // 2
                continue
            left = {job: 1 for job in left if job not in rows}
        return rows

    def files(self, jobs: Mapping[str, int]) -> dict[str, Row]:
        """Return the rows of jobs with their files, given how many each has.

        A job whose files FTS cannot deliver gets an empty row, and so do all that are left when FTS is too slow.
        Raises ServiceError when nothing at all was answered, and for what a smaller question would not mend.
        """
        rows: dict[str, Row] = {}
        left, slow, whole = dict(jobs), 0, True
        while left:
            batch = _first(left, self._most)
            try:
                rows |= self._ask(batch, files=True)
            except ServiceError as error:
                if not self._too_much(error):
                    raise
                whole = False
                slow += self._connection.status not in _TOO_MUCH
                self._most = max(min(self._most, sum(left[job] for job in batch) // 2), 1)
                unanswered = list(left) if slow >= SLOW_AT_MOST else batch if len(batch) == 1 else []
                if unanswered and not any(rows.values()) and len(unanswered) == len(left):
                    raise
                if unanswered:
                    log.warning(
                        "FTS returned no file list for %s: %s",
                        units.counted(len(unanswered), "jobs"),
                        error.message,
                    )
                rows |= {job: {} for job in unanswered}
            left = {job: files for job, files in left.items() if job not in rows}
        if whole:
            self._most = min(self._most + max(self._most // 10, 1), FILES_AT_ONCE)
        return rows

    def _too_much(self, error: ServiceError) -> bool:
        return isinstance(error, Slow) or self._connection.status in _TOO_MUCH | _GAVE_UP

    def _ask(self, ids: list[str], *, files: bool) -> dict[str, Row]:
        try:
            rows = self._connection.call("statuses", ids, files=files)
        except ServiceError:
            if self._connection.status != 404 or len(ids) > 1:
                raise
            rows = [{"job_id": ids[0], "http_status": "404"}] if self._connection.unknown else []
        return {job: {} for job in ids} | {row["job_id"]: row for row in rows}


def true_size(file: Row) -> int:
    """Return the bytes of a file: what FTS has found, else what was listed; 0 where neither is known.

    FTS copies a file whatever was listed, and reports its own number once it has read the source: 0 until then.
    What no file can have (`LARGEST_FILE`) is not believed.
    """
    sizes = count(file.get("filesize")), count(file.get("user_filesize"))
    return next((size for size in sizes if 0 < size <= LARGEST_FILE), 0)


def _first(jobs: Mapping[str, int], most: int) -> list[str]:
    """Return the first jobs that have at most so many files together, but one at least, and no more than fit."""
    batch: list[str] = []
    files = 0
    for job, number in jobs.items():
        files += number
        if batch and (files > most or len(batch) == AT_ONCE):
            break
        batch.append(job)
    return batch
