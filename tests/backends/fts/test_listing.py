"""Jobs found without a ledger: ours, whole, and nobody else's."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dc_inject.backends.fts import FtsBackend
from dc_inject.model import naming
from dc_inject.model.errors import Temporary
from dc_inject.model.ports import Status

from ..support import CYCLE
from .conftest import DESTINATION, SOURCE, bundle, submitted
from .service import FakeFts

SUBMITTED = datetime(2027, 2, 8, 10, 1, tzinfo=UTC)


def test_a_job_is_found_with_all_that_it_tells(fts: FakeFts, backend: FtsBackend) -> None:
    (entry,) = submitted(backend, 0)
    one = entry.injection
    (found,) = backend.ours()
    assert (found.key, found.external_id) == (one.key, entry.external_id)
    assert (found.campaign, found.scenario, found.cycle) == ("test", one.scenario, one.cycle.start)
    assert (found.link.source, found.link.destination, found.link.through) == (SOURCE, DESTINATION, "fts")
    assert found.sources == tuple(member.name for member in one.item.members)
    assert (found.bytes, found.files, found.done) == (one.item.bytes, one.item.files, 0)
    assert (found.status, found.created_at, found.changed_at) == (Status.MOVING, SUBMITTED, None)
    assert found.contact == one.contact


def test_jobs_that_are_over_are_found_as_long_as_they_are_looked_for(fts: FakeFts, backend: FtsBackend) -> None:
    done, old, waiting = submitted(backend, 0, 1, 2)
    fts.finish(lambda file: "SOURCE [5] x" if file["source_surl"].endswith("f1") else "")
    fts.jobs[waiting.external_id].state = "SUBMITTED"
    fts.jobs[old.external_id].over = 5.5
    found = {one.external_id: one for one in backend.ours(since=CYCLE.start - timedelta(hours=5))}
    assert set(found) == {done.external_id, waiting.external_id}
    one = found[done.external_id]
    assert (one.status, one.done, one.stuck, one.files) == (Status.COMPLETE, 1, 1, 2)
    assert one.changed_at == SUBMITTED
    assert old.external_id in {one.external_id for one in backend.ours(since=CYCLE.start - timedelta(hours=6))}
    assert old.external_id in {one.external_id for one in backend.ours()}


def test_a_job_that_ends_between_two_questions_is_found(
    fts: FakeFts, backend: FtsBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FTS lists jobs at work, and those that are over: who asked for the latter first would find it in neither."""
    (entry,) = submitted(backend, 0)
    listed = type(fts).answer

    def answer(self: FakeFts, method: str, path: str, query: dict[str, list[str]], body: bytes) -> Any:
        answer = listed(self, method, path, query, body)
        if path == "/jobs" and method == "GET":
            fts.finish()
        return answer

    monkeypatch.setattr(type(fts), "answer", answer)
    (found,) = backend.ours()
    assert (found.external_id, found.status) == (entry.external_id, Status.COMPLETE)


def test_a_source_is_the_folder_that_its_files_have_in_common(fts: FakeFts, backend: FtsBackend) -> None:
    made = bundle(0)
    first, second = made.item.members
    members = (replace(first, name=f"{SOURCE}/a/x/f0"), replace(second, name=f"{SOURCE}/a/y/f1"))
    backend.submit([replace(made, item=replace(made.item, members=members))])
    (found,) = backend.ours()
    assert found.link.source == f"{SOURCE}/a"


def test_what_is_not_ours_is_left_alone(
    fts: FakeFts, backend: FtsBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """Another campaign's, another person's, anybody's without our word, jobs whose files are not named by us."""
    kept, other, theirs, silent, odd, strange, liar = submitted(backend, *range(7))

    def metadata(entry):
        return fts.jobs[entry.external_id].body["params"]["job_metadata"]

    metadata(other)["campaign"] = "another"
    fts.jobs[theirs.external_id].user_dn = "/CN=somebody"
    fts.jobs[silent.external_id].body["params"]["job_metadata"] = None
    fts.jobs[odd.external_id].body["params"]["job_metadata"] = "no JSON"
    fts.jobs[strange.external_id].files[1]["dest_surl"] = f"{DESTINATION}/data/f1"
    metadata(liar)["key"] = kept.injection.key
    assert [found.external_id for found in backend.ours()] == [kept.external_id]
    warned = [record.args for record in caplog.records]
    assert warned == [(strange.external_id, "test"), (liar.external_id,)]
    assert [found.external_id for found in backend.ours("another")] == []  # its files say whose they are


def test_metadata_that_comes_as_text_is_read(fts: FakeFts, backend: FtsBackend) -> None:
    (entry,) = submitted(backend, 0)
    params = fts.jobs[entry.external_id].body["params"]
    params["job_metadata"] = json.dumps(params["job_metadata"])
    assert len(list(backend.ours())) == 1


def test_many_jobs_are_found_in_few_requests(fts: FakeFts, backend: FtsBackend) -> None:
    made = [
        replace(bundle(n % 10), key=naming.key("test", "s", CYCLE.start, bundle(0).link, str(n)))
        for n in range(45)
    ]
    backend.submit(made)
    before = len(fts.seen)
    assert {found.key for found in backend.ours()} == {one.key for one in made}
    assert len(fts.seen) - before <= 3 + 3 + 1


def test_an_fts_that_does_not_answer_is_an_error_and_not_nothing(
    fts: FakeFts, backend: FtsBackend, wording
) -> None:
    submitted(backend, 0)
    fts.instead.append(("GET", "/jobs", (503, {"message": "busy"})))
    with pytest.raises(Temporary):
        list(backend.ours())
    fts.instead.append(("GET", "/jobs", (200, [1, 2])))
    with pytest.raises(Temporary) as refused:
        list(backend.ours())
    wording(refused.value)
