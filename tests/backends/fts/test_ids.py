"""Ids of jobs: compared with the one that our key gives; and what FTS shows under it, with our key."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dc_inject.backends.fts import FtsBackend
from dc_inject.model import Entry, State, naming
from dc_inject.model.errors import Temporary
from dc_inject.model.ports import Status

from .conftest import bundle, submitted
from .service import VO, FakeFts, Job

THEIRS = "94560f60-9c9f-11e5-8994-feffffffffff"


@pytest.fixture
def theirs(fts: FakeFts) -> Job:
    """A job of somebody else, at work, of which a file has arrived."""
    file = {"source_surl": "davs://c/1", "dest_surl": "davs://d/1", "reason": "", "filesize": 10**9}
    files = [file | {"file_state": "FINISHED"}, file | {"file_state": "ACTIVE"}]
    fts.jobs[THEIRS] = Job(THEIRS, {"params": {"job_metadata": None}}, "ACTIVE", files)
    return fts.jobs[THEIRS]


@pytest.mark.parametrize("named", [THEIRS, "x" * 5000, "", "a\nb", None, 7])
def test_an_answer_that_names_another_job_leaves_ours_in_doubt(
    fts: FakeFts, backend: FtsBackend, theirs: Job, named: Any
) -> None:
    fts.after.append(("POST", "/jobs", (200, {"job_id": named})))
    made = [bundle(0), bundle(1)]
    refused, other = backend.submit(made)
    own = naming.job_id(VO, made[0].key)
    assert isinstance(refused.error, Temporary)
    assert (refused.error.lost, refused.external_id, other.error) == (True, "", None)
    entry = Entry(made[0], State.CALLED, called_at=made[0].cycle.start)
    (seen,) = backend.observe([entry])
    assert (seen.status, seen.external_id, seen.moved) == (Status.WAITING, own, 0)
    assert not backend.end([entry])[0].error
    assert (fts.jobs[own].state, theirs.state) == ("CANCELED", "ACTIVE")


def test_a_job_that_is_not_ours_is_neither_counted_nor_cancelled(
    fts: FakeFts, backend: FtsBackend, theirs: Job
) -> None:
    """An id that an earlier version has believed is in the ledger still."""
    (entry,) = submitted(backend, 0)
    wrong = replace(entry, external_id=THEIRS)
    (seen,) = backend.observe([wrong])
    assert (seen.status, seen.external_id, seen.moved) == (Status.WAITING, entry.external_id, 0)
    assert not backend.end([wrong])[0].error
    assert (fts.jobs[entry.external_id].state, theirs.state) == ("CANCELED", "ACTIVE")
    fts.jobs.pop(entry.external_id)
    assert not backend.end([wrong])[0].error
    assert theirs.state == "ACTIVE"


@pytest.mark.parametrize("state", [State.CALLED, State.LIVE, State.COMPLETE])
@pytest.mark.parametrize(
    "shown",
    [
        {"job_metadata": None},
        {"job_metadata": "of others"},
        {"job_metadata": {"dc_inject": 1, "campaign": "test", "key": "another"}},
        {"vo_name": "atlas"},
    ],
)
def test_another_job_under_our_id_does_not_count(
    fts: FakeFts, backend: FtsBackend, shown: dict[str, Any], state: State
) -> None:
    entry, other = submitted(backend, 0, 1)
    fts.finish()
    own = fts.jobs[entry.external_id]
    row = fts._row(own, None) | {"files": own.files} | shown
    rest = fts._row(fts.jobs[other.external_id], ["file_state,filesize,user_filesize,reason,source_surl"])
    fts.instead += [("GET", "/jobs", (200, [row, rest]))] * 2
    entry = replace(entry, state=state, end_asked_at=entry.injection.cycle.start)
    seen, well = backend.observe([entry, other])
    assert (seen.status, seen.moved, seen.failed, seen.external_id) == (Status.UNKNOWN, None, 0, "")
    assert (well.status, well.moved) == (Status.COMPLETE, 2005)
    assert backend.observe([entry])[0].status is not Status.UNKNOWN


def test_statuses_by_keys_are_those_of_our_own_jobs(fts: FakeFts, backend: FtsBackend) -> None:
    over, waiting, other = submitted(backend, 0, 1, 2)
    fts.jobs[over.external_id].state = "FINISHED"
    fts.jobs[other.external_id].body["params"]["job_metadata"] = None
    expected = {
        over.injection.key: Status.COMPLETE,
        waiting.injection.key: Status.MOVING,
        other.injection.key: Status.UNKNOWN,
        bundle(3).key: Status.ABSENT,
    }
    assert backend.statuses(expected) == expected
    assert backend.statuses([]) == {}


def test_a_job_that_does_not_say_that_it_is_ours_is_not_adopted(fts: FakeFts, backend: FtsBackend) -> None:
    (entry,) = submitted(backend, 0)
    row = fts._row(fts.jobs[entry.external_id], None) | {"job_metadata": None}
    fts.instead.append(("GET", "/jobs", (200, row)))
    (outcome,) = backend.submit([entry.injection])
    assert isinstance(outcome.error, Temporary)
    assert outcome.error.lost
    assert backend.submit([entry.injection])[0].adopted


def test_a_listed_job_under_another_id_is_left_out(fts: FakeFts, backend: FtsBackend) -> None:
    submitted(backend, 0, 1)
    moved = next(iter(fts.jobs.values()))
    fts.jobs[THEIRS] = replace(moved, id=THEIRS)
    assert {job.external_id for job in backend.ours()} == set(fts.jobs) - {THEIRS}
