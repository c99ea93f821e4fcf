"""Jobs and files as they are kept, and every change of their states."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

ACTIVE_STATES = ("SUBMITTED", "READY", "ACTIVE", "STAGING", "STARTED", "ARCHIVING")  # what a cancel ends
HELD_STATES = ("ON_HOLD", "TOKEN_PREP")  # not over either, but a cancel leaves files in them, as FTS3 does
CANCELED = "Job canceled by the user"
GIVEN_UP = "The storage was banned for too long"
EXPIRED = "Job has been canceled because it stayed in the queue for too long"
_SLOT = "file.*, job.retry AS allowed, job.retry_delay, job.overwrite, job.checksum_method, job.strict_copy, \
job.cleanup, job.timeout, job.user_dn"


class Jobs:
    """The jobs of a service. Times are given, in seconds since 1970."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    # reading ----------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> sqlite3.Row | None:
        """Return one job."""
        return self._one("SELECT * FROM job WHERE job_id = ?", job_id)

    def files_of(self, job_id: str) -> list[sqlite3.Row]:
        """Return the files of a job in their order."""
        of_tape = "staging_start, staging_finished, archive_start_time, archive_finish_time"
        tables = "file LEFT JOIN tape USING (file_id) LEFT JOIN archive USING (file_id)"
        return self._all(f"SELECT file.*, {of_tape} FROM {tables} WHERE job_id = ? ORDER BY file_id", job_id)  # noqa: S608 (constant)

    def file(self, file_id: int) -> sqlite3.Row | None:
        """Return one file with the copy options of its job."""
        return self._one(f"SELECT {_SLOT} FROM file JOIN job USING (job_id) WHERE file_id = ?", file_id)  # noqa: S608 (constant)

    def waiting(self) -> list[sqlite3.Row]:
        """Return the files that wait for their turn, in the order of their submission."""
        return self._all("SELECT * FROM file WHERE file_state = 'SUBMITTED' ORDER BY file_id")

    def attempts(self, file_id: int) -> list[sqlite3.Row]:
        """Return the failures of a file that was tried again."""
        return self._all("SELECT * FROM attempt WHERE file_id = ? ORDER BY attempt", file_id)

    def select(self, table: str, conditions: Mapping[str, Any], order: str, limit: int) -> list[sqlite3.Row]:
        """Return rows of `job` or `file`; a list in a condition means any of them, None means NULL."""
        terms: list[str] = []
        values: list[Any] = []
        for term, value in conditions.items():
            if isinstance(value, (list, tuple)):
                terms.append(f"{term} IN ({','.join('?' * len(value))})")
                values += value
            elif value is None:
                terms.append(f"{term} IS NULL")
            else:
                terms.append(term if "?" in term else f"{term} = ?")
                values.append(value)
        where = " AND ".join(terms) or "1"
        return self._all(f"SELECT * FROM {table} WHERE {where} ORDER BY {order} LIMIT ?", *values, limit)  # noqa: S608 (names are ours)

    # changes ----------------------------------------------------------------------------------------------

    def add(self, job: Mapping[str, Any], files: Sequence[Mapping[str, Any]]) -> bool:
        """Add a job with its files; False when there is one with its id already."""
        plain = dict(job)
        tape, archive_timeout = (plain.pop("bring_online"), plain.pop("pin")), plain.pop("archive_timeout")
        with self._transaction():
            try:
                self._insert("job", [plain])
            except sqlite3.IntegrityError:
                return False
            self._insert("file", files)
            self._run(
                "INSERT INTO tape (file_id, bring_online, pin) SELECT file_id, ?, ? FROM file "
                "WHERE job_id = ? AND file_state = 'STAGING'",
                *tape, job["job_id"],
            )  # fmt: skip
            select = "SELECT file_id, ?1 FROM file WHERE job_id = ?2 AND ?1 > 0"
            self._run(f"INSERT INTO archive (file_id, archive_timeout) {select}", archive_timeout, job["job_id"])
        return True

    def counts(self, state: str) -> dict[tuple[str, str], int]:
        """Return how many files are in a state, by their source and destination storage."""
        rows = self._all(
            "SELECT source_se, dest_se, count(*) AS n FROM file WHERE file_state = ? GROUP BY source_se, dest_se",
            state,
        )
        return {(row["source_se"], row["dest_se"]): row["n"] for row in rows}

    def ready(self, file_id: int) -> None:
        """It is a file's turn."""
        self._run("UPDATE file SET file_state = 'READY' WHERE file_id = ?", file_id)

    def start(self, file_id: int, now: float) -> None:
        """A file's copy starts."""
        with self._transaction():
            self._run(
                "UPDATE file SET file_state = 'ACTIVE', start_time = ?, reason = NULL WHERE file_id = ?",
                now,
                file_id,
            )
            self._run(
                "UPDATE job SET job_state = 'ACTIVE' WHERE job_state IN ('SUBMITTED', 'STAGING') "
                "AND job_id = (SELECT job_id FROM file WHERE file_id = ?)",
                file_id,
            )

    def mark(self, file_id: int, asked: float | None) -> None:
        """Note since when bytes of ours may be at the destination; None when there are none for certain."""
        self._run("UPDATE file SET asked = ? WHERE file_id = ?", asked, file_id)

    def sized(self, file_id: int, size: int) -> None:
        """Note the bytes that the source has."""
        self._run("UPDATE file SET filesize = ? WHERE file_id = ?", size, file_id)

    def hold(self, storages: Sequence[str], now: float) -> list[int]:
        """Let files that wait for banned storages wait until that is over (a ban with WAIT_AS); returns them."""
        places = ",".join("?" * len(storages))
        files = self._all(
            "SELECT file_id FROM file WHERE file_state = 'SUBMITTED' "  # noqa: S608 (question marks)
            f"AND (source_se IN ({places}) OR dest_se IN ({places}))",
            *storages, *storages,
        )  # fmt: skip
        for row in files:
            self._run(
                "UPDATE file SET file_state = 'ON_HOLD', not_before = ? WHERE file_id = ?", now, row["file_id"]
            )
        return [row["file_id"] for row in files]

    def release(self, storages: Sequence[str], now: float) -> list[int]:
        """Let files wait for their turn again that no ban holds, and those with their tokens; returns them.

        FTS3 moves a file whose token has come also where its job was cancelled meanwhile.
        """
        places = ",".join("?" * len(storages))
        files = self._all(
            "SELECT file_id FROM file JOIN job USING (job_id) WHERE file_state = 'TOKEN_PREP' AND not_before <= ? "  # noqa: S608 (question marks)
            "OR job_finished IS NULL AND file_state = 'ON_HOLD' "
            f"AND NOT (file.source_se IN ({places}) OR file.dest_se IN ({places}))",
            now, *storages, *storages,
        )  # fmt: skip
        for row in files:
            self._run("UPDATE file SET file_state = 'SUBMITTED', not_before = 0 WHERE file_id = ?", row["file_id"])
        return [row["file_id"] for row in files]

    def give_up(self, now: float, held_before: float) -> None:
        """Cancel files, and not their jobs, that a ban has held for too long."""
        for row in self._all(
            "SELECT file_id FROM file JOIN job USING (job_id) "
            "WHERE job_finished IS NULL AND file_state = 'ON_HOLD' AND not_before <= ?",
            held_before,
        ):
            with self._transaction():
                self._run(
                    "UPDATE file SET file_state = 'CANCELED', reason = ?, finish_time = ? WHERE file_id = ?",
                    GIVEN_UP, now, row["file_id"],
                )  # fmt: skip
                self._settle(row["file_id"], now)

    def finish(self, file_id: int, now: float, size: int, duration: float) -> None:
        """A file has arrived, and may have to be archived; throughput is in MiB/s, as in FTS3."""
        with self._transaction():
            self._run("UPDATE archive SET archive_start_time = ? WHERE file_id = ?", now, file_id)
            self._run(
                "UPDATE file SET file_state = iif(file_id IN (SELECT file_id FROM archive), 'ARCHIVING', "
                "'FINISHED'), finish_time = ?, filesize = ?, tx_duration = ?, "
                "throughput = ?, asked = NULL WHERE file_id = ? AND file_state = 'ACTIVE'",
                now, size, duration, size / 2**20 / max(duration, 1e-6), file_id,
            )  # fmt: skip
            self._settle(file_id, now)

    def archived(self, file_id: int, now: float) -> None:
        """A file that has arrived is on tape."""
        with self._transaction():
            self._run("UPDATE archive SET archive_finish_time = ? WHERE file_id = ?", now, file_id)
            is_over = "file_state = 'FINISHED' WHERE file_id = ? AND file_state = 'ARCHIVING'"
            self._run(f"UPDATE file SET {is_over}", file_id)  # noqa: S608 (constant)
            self._settle(file_id, now)

    def fail(self, file_id: int, now: float, reason: str) -> int | None:
        """A file has failed for good; returns the file with another source that takes over, if there is one."""
        with self._transaction():
            self._run(
                "UPDATE file SET file_state = 'FAILED', finish_time = ?, reason = ? "
                "WHERE file_id = ? AND file_state IN ('ACTIVE', 'SUBMITTED', 'STAGING', 'STARTED', 'ARCHIVING')",
                now, reason, file_id,
            )  # fmt: skip
            other = self._one(
                "SELECT other.file_id FROM file JOIN file AS other USING (job_id, file_index) "
                "WHERE file.file_id = ? AND file.file_state = 'FAILED' AND other.file_state = 'NOT_USED' "
                "ORDER BY other.file_id LIMIT 1",
                file_id,
            )
            if other:
                self._run("UPDATE file SET file_state = 'SUBMITTED' WHERE file_id = ?", other["file_id"])
            else:
                self._settle(file_id, now)
        return other["file_id"] if other else None

    def again(self, file_id: int, now: float, not_before: float, reason: str) -> None:
        """A file goes back to the queue after a failure."""
        with self._transaction():
            self._run(
                "INSERT OR REPLACE INTO attempt SELECT file_id, retry, ?, ? FROM file WHERE file_id = ?",
                now, reason, file_id,
            )  # fmt: skip
            self._run(
                "UPDATE file SET file_state = 'SUBMITTED', start_time = NULL, not_before = ?, retry = retry + 1 "
                "WHERE file_id = ? AND file_state = 'ACTIVE'",
                not_before, file_id,
            )  # fmt: skip

    def cancel(self, job_id: str, now: float) -> list[int]:
        """Cancel what is not over of a job; returns the files that were waiting or active."""
        with self._transaction():
            files = self._cancel_files(job_id, now, CANCELED, ACTIVE_STATES)
            self._run(
                "UPDATE job SET job_state = 'CANCELED', job_finished = ?, reason = ? "
                "WHERE job_id = ? AND job_finished IS NULL",
                now, CANCELED, job_id,
            )  # fmt: skip
        return files

    def cancel_file(self, file_id: int, now: float) -> None:
        """Cancel one file of a job."""
        with self._transaction():
            self._run(
                "UPDATE file SET file_state = 'CANCELED', reason = ?, "
                "finish_time = iif(file_state = 'ACTIVE', NULL, ?) "
                "WHERE file_id = ? AND file_state IN ('SUBMITTED', 'READY', 'ACTIVE', 'STAGING', 'STARTED')",
                CANCELED, now, file_id,
            )  # fmt: skip
            self._settle(file_id, now)

    def expire(self, now: float) -> list[int]:
        """Cancel the files that have waited for too long; returns them."""
        expired = []
        for row in self._all("SELECT job_id FROM job WHERE job_finished IS NULL AND expires <= ?", now):
            with self._transaction():
                files = self._cancel_files(row["job_id"], now, EXPIRED, ("SUBMITTED", "READY"))
                if files:
                    self._run("UPDATE job SET reason = ? WHERE job_id = ?", EXPIRED, row["job_id"])
                    self._settle(files[0], now)
            expired += files
        return expired

    def ended(self, file_id: int, now: float) -> None:
        """If a file was cancelled, its copy has ended now."""
        self._run(
            "UPDATE file SET finish_time = ? "
            "WHERE file_id = ? AND finish_time IS NULL AND file_state = 'CANCELED'",
            now, file_id,
        )  # fmt: skip

    def prioritise(self, job_id: str, priority: int) -> None:
        """Give a job, and its files, another priority."""
        with self._transaction():
            self._run("UPDATE job SET priority = ? WHERE job_id = ?", priority, job_id)
            self._run("UPDATE file SET priority = ? WHERE job_id = ?", priority, job_id)

    def recover(self) -> list[int]:
        """After a start: what was active waits again; returns cancelled files that may have left bytes behind."""
        self._run(
            "UPDATE file SET file_state = 'SUBMITTED', start_time = NULL WHERE file_state IN ('READY', 'ACTIVE')"
        )
        left = self._all(
            "SELECT file_id FROM file WHERE file_state = 'CANCELED' AND (asked OR finish_time IS NULL)"
        )
        return [row["file_id"] for row in left]

    # parts ------------------------------------------------------------------------------------------------

    def _cancel_files(self, job_id: str, now: float, reason: str, states: Iterable[str]) -> list[int]:
        wanted = ",".join(f"'{state}'" for state in states)
        files = self._all(f"SELECT file_id FROM file WHERE job_id = ? AND file_state IN ({wanted})", job_id)  # noqa: S608 (ours)
        self._run(
            # an active copy has its end when it has really ended, as with FTS3
            "UPDATE file SET file_state = 'CANCELED', reason = ?, "  # noqa: S608 (ours)
            "finish_time = iif(file_state = 'ACTIVE', NULL, ?) "
            f"WHERE job_id = ? AND file_state IN ({wanted})",
            reason, now, job_id,
        )  # fmt: skip
        return [row["file_id"] for row in files]

    def _settle(self, file_id: int, now: float) -> None:
        """Give the job of a file its last state when nothing of it is left to do."""
        row = self._one("SELECT job_id FROM file WHERE file_id = ?", file_id)
        assert row
        job_id = row["job_id"]
        left = ",".join(f"'{state}'" for state in (*ACTIVE_STATES, *HELD_STATES))
        if self._one(f"SELECT 1 FROM file WHERE job_id = ? AND file_state IN ({left}) LIMIT 1", job_id):  # noqa: S608 (ours)
            return
        counted = self._all(
            "SELECT file_state, count(*) AS n FROM file WHERE job_id = ? GROUP BY file_state", job_id
        )
        count = {row["file_state"]: row["n"] for row in counted}
        job = self.job(job_id)
        assert job
        state, reason = _last_state(count, replicas=job["job_type"] == "R")
        self._run(
            "UPDATE job SET job_state = ?, job_finished = ?, reason = coalesce(reason, ?) "
            "WHERE job_id = ? AND job_finished IS NULL",
            state, now, reason, job_id,
        )  # fmt: skip

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def _insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        columns = list(rows[0])
        places = ",".join("?" * len(columns))
        self._database.executemany(
            f"INSERT INTO {table} ({','.join(columns)}) VALUES ({places})",  # noqa: S608 (names are ours)
            [[row[column] for column in columns] for row in rows],
        )

    def _run(self, statement: str, *values: Any) -> None:
        self._database.execute(statement, values)

    def _all(self, query: str, *values: Any) -> list[sqlite3.Row]:
        return self._database.execute(query, values).fetchall()

    def _one(self, query: str, *values: Any) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self._database.execute(query, values).fetchone()
        return row


def _last_state(count: Mapping[str, int], *, replicas: bool) -> tuple[str, str | None]:
    """Return the state of a job whose files are over, and the reason that FTS3 gives."""
    finished, failed, canceled = (count.get(state, 0) for state in ("FINISHED", "FAILED", "CANCELED"))
    if finished and (replicas or not failed + canceled):
        return "FINISHED", None
    if finished:
        return "FINISHEDDIRTY", "One or more files failed. Please have a look at the details for more information"
    if failed:
        return "FAILED", "One or more files failed. Please have a look at the details for more information"
    return "CANCELED", None
