"""How jobs of ours stand: states in bulk, and the files of those that are at work or over."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dc_inject import units, urls
from dc_inject.backends.answers import count
from dc_inject.backends.fts.connection import Connection
from dc_inject.backends.fts.jobs import Jobs
from dc_inject.backends.fts.reasons import UNFIT, VANISHED, classify
from dc_inject.backends.fts.rows import Row, Rows
from dc_inject.model import Entry, State
from dc_inject.ports import Observation, Status

log = logging.getLogger(__name__)

SURE_AFTER = timedelta(minutes=2)  # what FTS says of another node, or of a database at work, is mended by then
OVER = frozenset({"FINISHED", "FINISHEDDIRTY", "FAILED", "CANCELED"})
_WAITING = frozenset({"SUBMITTED", "STAGING", "TOKEN_PREP", "ON_HOLD", "ON_HOLD_STAGING"})
_LOST = frozenset({"FAILED", "CANCELED", "NOT_USED"})


@dataclass(frozen=True, slots=True)
class Observing:
    """Tells how entries stand; jobs that wait are asked for their state only, without their files.

    That FTS does not know a job which it had accepted is believed when it says so again, `sure_after` later.
    """

    connection: Connection
    jobs: Jobs
    rows: Rows
    sure_after: timedelta = SURE_AFTER
    missed: dict[str, datetime] = field(default_factory=dict)  # by key: since when FTS does not know its job

    def observe(self, entries: Sequence[Entry]) -> list[Observation]:
        """Return one observation for each entry."""
        ids = {entry.injection.key: entry.external_id or self.jobs.id_of(entry.injection) for entry in entries}
        known = self.rows.states(ids.values())
        told = {e.injection.key for e in entries if e.state is State.COMPLETE}  # their files are known
        known |= self.rows.files(
            {
                ids[entry.injection.key]: entry.injection.item.files
                for entry in entries
                if entry.injection.key not in told
                and known[ids[entry.injection.key]].get("job_state") not in {None, *_WAITING}
            }
        )
        return [self._observation(entry, ids[entry.injection.key], known) for entry in entries]

    def _observation(self, entry: Entry, job: str, known: Mapping[str, Row]) -> Observation:
        key, row = entry.injection.key, known[job]
        if _unknown(row):
            return self._missing(entry, job)
        if "job_state" not in row:
            log.debug("nothing known of the job %s: %s", job, row.get("http_status"))
            return Observation(key, Status.UNKNOWN)
        self.missed.pop(key, None)
        state = row["job_state"]
        over = Status.COMPLETE if entry.end_asked_at is None else Status.ABSENT
        if "files" in row:
            return self._with_files(entry, job, over if state in OVER else Status.MOVING, row)
        if entry.state is State.COMPLETE:
            return _as_known(entry, job, over if state in OVER else Status.MOVING)
        return Observation(key, Status.WAITING, job, moved=0, exact=True)

    def _missing(self, entry: Entry, job: str) -> Observation:
        """Tell of a job that FTS says it does not know.

        One that was not seen to end may still be at work: what it has not moved counts as failed.
        """
        key, gone = entry.injection.key, f"FTS does not know its job {job} (any more)"
        if entry.state is State.COMPLETE:
            return Observation(key, Status.ABSENT, error=gone)
        if entry.state is not State.LIVE:
            return Observation(key, Status.ABSENT)
        now = self.connection.now()
        sure_at = self.missed.setdefault(key, now) + self.sure_after
        if sure_at > now and entry.end_asked_at is None:
            log.info("%s: this is believed when it says so again", gone)
            return Observation(key, Status.UNKNOWN, again_at=sure_at)
        missing = entry.injection.item.files - entry.files_done
        return Observation(
            key,
            Status.ABSENT,
            files_done=entry.files_done,
            files_stuck=missing,
            failed=entry.injection.item.bytes - entry.present - entry.moved,
            reasons={VANISHED: missing},
            error=gone,
        )

    def _with_files(self, entry: Entry, job: str, status: Status, row: Row) -> Observation:
        """Add up the files of a job.

        Sizes are those that FTS tells, what was said at the submit before what it found; of files without one, an
        even share of what the others leave of the injection's bytes. Files that failed count only when the job is
        over: until then FTS may try them again. Those that we cancelled ourselves have not failed.
        """
        files = list(row["files"])
        sizes = _sizes(files, entry.injection.item.bytes)
        over = status is not Status.MOVING
        lost = _LOST if entry.end_asked_at is None else _LOST - {"CANCELED"}
        failed = [file for file in files if over and file["file_state"] in lost]
        done = [n for n, file in enumerate(files) if file["file_state"] == "FINISHED"]
        words = {id(file): classify(file["file_state"], str(file.get("reason") or "")) for file in failed}
        whole = len(done) == len(files)
        return Observation(
            entry.injection.key,
            status,
            job,
            files_done=len(done),
            files_stuck=len(failed),
            moved=entry.injection.item.bytes if whole else sum(sizes[n] for n in done),
            exact=True,
            failed=sum(size for file, size in zip(files, sizes, strict=True) if id(file) in words),
            reasons=Counter(words.values()),
            unfit=_sources(file for file in failed if words[id(file)] in UNFIT),
            undone=_sources(file for file in files if over and file["file_state"] != "FINISHED"),
            error=_said(failed, len(files), self.connection.credentials.scrub) if failed else "",
        )


def _as_known(entry: Entry, job: str, status: Status) -> Observation:
    """Return what is known of a job that was over before."""
    return Observation(
        entry.injection.key,
        status,
        job,
        files_done=entry.files_done,
        files_stuck=entry.files_stuck,
        moved=entry.moved,
        exact=entry.moved_exact,
        failed=entry.failed,
        error=entry.error,
    )


def _sizes(files: Sequence[Row], total: int) -> list[int]:
    told = [count(file.get("user_filesize")) or count(file.get("filesize")) for file in files]
    untold = told.count(0)
    share = max(total - sum(told), 0) // untold if untold else 0
    return [size or share for size in told]


def _sources(files: Iterable[Row]) -> tuple[str, ...]:
    found = set()
    for file in files:
        try:
            found.add(urls.normal(str(file.get("source_surl") or "")))
        except ValueError:
            continue  # FTS does not tell it
    return tuple(sorted(found))


def _said(failed: Sequence[Row], files: int, scrub: Callable[[str], str]) -> str:
    reason = next((str(file["reason"]) for file in failed if file.get("reason")), "FTS gives no reason")
    return f"{len(failed)} of {units.counted(files, 'files')} failed, such as: {scrub(reason)}"


def _unknown(row: Row) -> bool:
    return str(row.get("http_status") or "").startswith("404")
