"""How jobs of ours stand: states in bulk, and the files of those that are at work or over.

`Rows` asks FTS for them in parts that it can answer in time.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from dc_inject.backends.fts.connection import Connection
from dc_inject.backends.fts.errors import Slow
from dc_inject.backends.fts.jobs import AT_ONCE, OVER, Jobs, Row, choose_size
from dc_inject.model import Bundle, Entry, Item, State, TapeFiles, units, urls
from dc_inject.model.errors import ServiceError
from dc_inject.model.failed_files import FAILED, FINISHED, UNFIT, classify
from dc_inject.model.ports import VANISHED, Observation, Status

log = logging.getLogger(__name__)

FILES_AT_ONCE = 2000  # in one answer: a megabyte or two, which a front end that gives up after 60 s lets through
SLOW_AT_MOST = 2  # answers that do not come, in one look: each costs a time-out
_TOO_MUCH = frozenset({413, 414})  # answered at once
_GAVE_UP = frozenset({408, 500, 502, 504})  # from FTS, or from what stands before it, when it took too long
SURE_AFTER = timedelta(minutes=2)  # by then, wrong answers of another node, or during work on a database, are over
_WAITING = frozenset({"SUBMITTED", "TOKEN_PREP", "ON_HOLD"})
_STAGING = frozenset({"STAGING", "STARTED", "ON_HOLD_STAGING"})  # waits for tape, or is read from it
_ARRIVED = frozenset({FINISHED, "ARCHIVING"})


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


@dataclass(frozen=True, slots=True)
class Observing:
    """Finds the state of entries; jobs that wait are asked for their state only, without their files.

    Each is looked for under the id that its key gives, and counts only if FTS shows our job there.
    That FTS does not know a job which it had accepted is believed when it answers so again, `sure_after` later.
    """

    connection: Connection
    jobs: Jobs
    rows: Rows
    sure_after: timedelta = SURE_AFTER
    missed: dict[str, datetime] = field(default_factory=dict)  # by key: since when FTS does not know its job

    def statuses(self, keys: Iterable[str]) -> dict[str, Status]:
        """Return how jobs stand, by the keys of their injections: absent, complete, moving, or unknown."""
        ids = {key: self.jobs.id_of(key) for key in keys}
        rows = self.rows.states(ids.values())

        def status(key: str, row: Row) -> Status:
            if _unknown(row):
                return Status.ABSENT
            if "job_state" not in row or not self.jobs.is_own(row, key):
                return Status.UNKNOWN
            return Status.COMPLETE if row["job_state"] in OVER else Status.MOVING

        return {key: status(key, rows[job]) for key, job in ids.items()}

    def observe(self, entries: Sequence[Entry]) -> list[Observation]:
        """Return one observation for each entry."""
        ids = {entry.injection.key: self.jobs.id_of(entry.injection.key) for entry in entries}
        rows = self.rows.states(ids.values())
        complete = {e.injection.key for e in entries if e.state is State.COMPLETE}  # their files are known
        rows |= self.rows.files(
            {
                ids[entry.injection.key]: entry.injection.item.files
                for entry in entries
                if entry.injection.key not in complete
                and (state := rows[ids[entry.injection.key]].get("job_state")) is not None
                and (state not in _WAITING or _uses_tape(entry))
            }
        )
        shown = [(key, rows[job]) for key, job in ids.items()]
        others = {key for key, row in shown if "job_state" in row and not self.jobs.is_own(row, key)}
        if others:
            log.warning(
                "FTS shows other jobs under the ids of %s: not counted", units.counted(len(others), "jobs")
            )
        rows |= {ids[key]: {} for key in others}
        return [self._observation(entry, ids[entry.injection.key], rows) for entry in entries]

    def _observation(self, entry: Entry, job: str, rows: Mapping[str, Row]) -> Observation:
        key, row = entry.injection.key, rows[job]
        if _unknown(row):
            return self._note_missing(entry, job)
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

    def _note_missing(self, entry: Entry, job: str) -> Observation:
        """Note that FTS does not know a job, and return what follows for the job.

        One that was not seen to end may still be at work: what it has not moved counts as failed.
        """
        key, gone = entry.injection.key, f"FTS does not know its job {job} (any more)"
        if entry.state not in {State.LIVE, State.COMPLETE}:
            return Observation(key, Status.ABSENT)
        now = self.connection.now()
        sure_at = self.missed.setdefault(key, now) + self.sure_after
        if sure_at > now and entry.end_asked_at is None:
            log.info("%s: this is believed when it answers so again", gone)
            return Observation(key, Status.UNKNOWN, again_at=sure_at)
        if entry.state is State.COMPLETE:
            return Observation(key, Status.ABSENT, error=gone)
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

        Of a job that is over only FINISHED files have moved, whatever the state of the others: a ban, or a cancel
        by another person, leaves TOKEN_PREP and ON_HOLD. Files that an answer leaves out have not moved either.
        Until a job is over nothing of it has failed, since FTS may try again; what we cancelled has not failed.
        """
        item, files = entry.injection.item, list(row["files"])
        sizes, size = _sizes(files, item)
        over, asked = status is not Status.MOVING, entry.end_asked_at is not None
        arrived = {FINISHED} if over else _ARRIVED
        done = [n for n, file in enumerate(files) if file["file_state"] in arrived]
        ours = [file for file in files if file["file_state"] in FAILED]  # the others were cancelled with it
        failed = (ours if asked else [file for file in files if file["file_state"] != FINISHED]) if over else []
        words = {id(file): classify(file["file_state"], str(file.get("reason") or "")) for file in failed}
        missing = max(item.files - len(files), 0) if over and not asked else 0
        total = item.bytes if size is None else size
        moved = total if len(done) == max(len(files), item.files) else sum(sizes[n] for n in done)
        lost = sum(size for file, size in zip(files, sizes, strict=True) if id(file) in words)
        reasons = Counter(words.values())
        if missing:
            lost = max(total - moved, 0)
            reasons[VANISHED] += missing
        return Observation(
            entry.injection.key,
            status,
            job,
            files_done=len(done),
            files_stuck=len(failed) + missing,
            moved=moved,
            exact=True,
            size=size,
            failed=lost,
            reasons=reasons,
            unfit=_sources(file for file in failed if words[id(file)] in UNFIT),
            undone=_undone(item, files, missing) if over else (),
            error=_reasons(failed, missing, item.files, self.connection.credentials.scrub),
            tape=_tape_files(files) if _uses_tape(entry) else None,
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


def _uses_tape(entry: Entry) -> bool:
    job = entry.injection.job
    return job is not None and (job.recalls or job.archives)


def _tape_files(files: Sequence[Row]) -> TapeFiles:
    """Count the files that wait for tape, or have; times are those of FTS."""
    states = Counter(file["file_state"] for file in files)
    times = [(_time(file.get("staging_start")), _time(file.get("staging_finished"))) for file in files]
    return TapeFiles(
        staging=sum(states[state] for state in _STAGING),
        archiving=states["ARCHIVING"],
        archived=sum(_time(file.get("archive_finish_time")) is not None for file in files),
        waits=tuple(
            round((end - begin).total_seconds()) for begin, end in times if begin and end and begin <= end
        ),
    )


def _time(text: object) -> datetime | None:
    return None if text is None else datetime.fromisoformat(str(text)).replace(tzinfo=UTC)


def _sizes(files: Sequence[Row], item: Item) -> tuple[list[int], int | None]:
    """Return the size of each file, and of all of them: None where that is not reported, or is as it was listed.

    Files without a size get an even share of what the others leave of the injection's bytes.
    """
    sizes = [choose_size(file) for file in files]
    sizeless = sizes.count(0)
    if not sizeless and len(files) == item.files:
        return sizes, None if sum(sizes) == item.bytes else sum(sizes)
    share = max(item.bytes - sum(sizes), 0) // sizeless if sizeless else 0
    return [size or share for size in sizes], None


def _sources(files: Iterable[Row]) -> tuple[str, ...]:
    sources = set()
    for file in files:
        try:
            sources.add(urls.normal(str(file.get("source_surl") or "")))
        except ValueError:
            continue  # FTS does not report it
    return tuple(sorted(sources))


def _undone(item: Item, files: Sequence[Row], missing: int) -> tuple[str, ...]:
    """Return the sources of files that did not arrive; none where FTS leaves some out and we know no names."""
    if not missing:
        return _sources(file for file in files if file["file_state"] != FINISHED)
    done = _sources(file for file in files if file["file_state"] == FINISHED)
    members = item.members if isinstance(item, Bundle) else ()
    return tuple(sorted({member.name for member in members} - set(done)))


def _reasons(failed: Sequence[Row], missing: int, files: int, scrub: Callable[[str], str]) -> str:
    """Return in words what did not arrive, with one reason as an example; empty when all is well."""
    words = []
    if failed:
        reason = next((str(file["reason"]) for file in failed if file.get("reason")), "")
        reason = reason or f"FTS gives no reason, the file was left in {failed[0]['file_state']}"
        words.append(f"{len(failed)} of {units.counted(files, 'files')} failed, such as: {scrub(reason)}")
    if missing:
        words.append(f"FTS does not show {missing} of {units.counted(files, 'files')}")
    return "; ".join(words)


def _unknown(row: Row) -> bool:
    return str(row.get("http_status") or "").startswith("404")
