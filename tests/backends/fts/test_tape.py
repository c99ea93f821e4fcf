"""Recalls and archiving: what FTS is asked for, and what it tells of files that wait for tape."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dc_inject.backends.fts import FtsBackend
from dc_inject.model import Entry, FileFilter, JobOptions, TapeFiles
from dc_inject.model.ports import Observation, Status
from dc_inject.storage import OnTape

from .conftest import SOURCE, submitted
from .service import FakeFts
from .store import Store

HOURS = timedelta(hours=6)
BEGIN = "2027-02-08T10:00:00"


def recalls(
    fts: FakeFts, backend: FtsBackend, state: str, *states: str, **options: bool
) -> tuple[Entry, list[dict]]:
    """A job of files in these states."""
    (entry,) = submitted(backend, 0, files=len(states), job=JobOptions(**options), lifetime=HOURS)
    (job,) = fts.jobs.values()
    job.state = state
    for file, its in zip(job.files, states, strict=True):
        file["file_state"] = its
    return entry, job.files


def look(backend: FtsBackend, entry: Entry) -> Observation:
    (seen,) = backend.observe([entry])
    return seen


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (None, None, None, 0)),
        ({"recalls": True}, (21600, 21600, None, 2)),
        ({"archives": True}, (None, None, 21600, 0)),
    ],
)
def test_a_job_waits_for_tape_as_long_as_it_lives(
    fts: FakeFts, backend: FtsBackend, options: dict[str, bool], expected: tuple[int | None, ...]
) -> None:
    recalls(fts, backend, "STAGING", "STAGING", "STAGING", **options)
    (job,) = fts.jobs.values()
    names = ("bring_online", "copy_pin_lifetime", "archive_timeout")
    described = [file["staging_metadata"] for file in job.body["files"] if "staging_metadata" in file]
    assert (*(job.body["params"].get(name) for name in names), len(described)) == expected
    assert all(one == {"activity": "Data Challenge", "campaign": "test"} for one in described)


def test_files_that_wait_for_tape_are_counted_with_their_waits(fts: FakeFts, backend: FtsBackend) -> None:
    """Also in a job that nothing is copied of yet; one file waited for 5 minutes, one for 65."""
    states = ("STAGING", "STARTED", "SUBMITTED", "FINISHED")
    entry, files = recalls(fts, backend, "STAGING", *states, recalls=True)
    for file, end in zip(files[2:], ("2027-02-08T10:05:00", "2027-02-08T11:05:00"), strict=True):
        file |= {"staging_start": BEGIN, "staging_finished": end}
    seen = look(backend, entry)
    assert (seen.status, seen.files_done, seen.tape) == (Status.MOVING, 1, TapeFiles(staging=2, waits=(300, 3900)))


def test_a_recall_is_looked_at_while_all_its_files_wait_for_their_copies(
    fts: FakeFts, backend: FtsBackend
) -> None:
    entry, files = recalls(fts, backend, "SUBMITTED", "SUBMITTED", recalls=True)
    files[0] |= {"staging_start": BEGIN, "staging_finished": BEGIN}
    assert look(backend, entry).tape == TapeFiles(waits=(0,))


def test_what_is_being_archived_has_arrived(fts: FakeFts, backend: FtsBackend) -> None:
    """It is complete when it is on tape; what the tape system did not take has failed."""
    entry, files = recalls(fts, backend, "ACTIVE", "ARCHIVING", "ACTIVE", archives=True)
    seen = look(backend, entry)
    assert (seen.status, seen.files_done, seen.moved) == (Status.MOVING, 1, 1000)
    assert seen.tape == TapeFiles(archiving=1)
    (job,) = fts.jobs.values()
    job.state = "FINISHEDDIRTY"
    files[0] |= {"file_state": "FINISHED", "archive_finish_time": BEGIN}
    files[1] |= {"file_state": "FAILED", "reason": "ARCHIVING [110] timeout"}
    seen = look(backend, entry)
    assert (seen.status, seen.moved, seen.failed, seen.tape) == (
        Status.COMPLETE,
        1000,
        1001,
        TapeFiles(archived=1),
    )


def test_a_job_between_disks_tells_nothing_of_tape(fts: FakeFts, backend: FtsBackend) -> None:
    entry, _ = recalls(fts, backend, "ACTIVE", "ACTIVE")
    assert look(backend, entry).tape is None


def test_files_on_tape_are_there_for_recalls_only(backend: FtsBackend, store: Store) -> None:
    store.tapes = set(store.files)
    with pytest.raises(OnTape):
        list(backend.inventory(SOURCE, FileFilter(folder="")))
    assert len(list(backend.inventory(SOURCE, FileFilter(folder="", recalls=True)))) == 20
