"""Jobs: what FTS is sent, how it answers, how jobs stand and end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.backends.fts import FtsBackend
from dc_inject.backends.sim import SimClock
from dc_inject.model import JobOptions, State, Verify, naming
from dc_inject.model.errors import UsageError
from dc_inject.model.ports import Observation, Status

from ..support import CYCLE, Heard, injection
from .conftest import LINK, SOURCE, bundle, submitted
from .keys import TOKEN, Keys, Opens
from .service import OVER, FakeFts
from .store import Store


def test_a_job_says_all_that_the_menu_says(fts: FakeFts, backend: FtsBackend) -> None:
    made = bundle(1, service_priority=2, lifetime=timedelta(minutes=61), activity="Data Challenge")
    (outcome,) = backend.submit([made])
    job = fts.jobs[outcome.external_id]
    files, params = job.body["files"], job.body["params"]
    assert [file["sources"] for file in files] == [[member.name] for member in made.item.members]
    assert [file["destinations"] for file in files] == [[copy] for copy in naming.copies(made)]
    assert [(file["filesize"], file["checksum"]) for file in files] == [
        (1002, "adler32:0cc737eb"),
        (1003, "adler32:0cc737eb"),
    ]
    assert {(file["activity"], file["scitag"]) for file in files} == {("Data Challenge", 65)}
    assert not any("source_tokens" in file for file in files)
    wanted = {
        "verify_checksum": "both",
        "overwrite": False,
        "retry": 3,
        "priority": 2,
        "max_time_in_queue": 2,
        "job_metadata": naming.metadata(made),
        "id_generator": "deterministic",
        "sid": made.key,
    }
    assert {key: params[key] for key in wanted} == wanted


def test_no_retry_and_no_checks_are_asked_for_as_fts_wants_it(fts: FakeFts, backend: FtsBackend) -> None:
    quiet = bundle(0, job=JobOptions(retry=0, verify=Verify.NONE), lifetime=timedelta(seconds=1))
    quiet = replace(
        quiet, item=replace(quiet.item, members=tuple(replace(m, checksum="") for m in quiet.item.members))
    )
    (outcome,) = backend.submit([quiet])
    body = fts.jobs[outcome.external_id].body
    assert (body["params"]["retry"], body["params"]["verify_checksum"]) == (-1, "none")
    assert body["params"]["max_time_in_queue"] == 1
    assert {file["checksum"] for file in body["files"]} == {"ADLER32"}
    assert "scitag" not in body["files"][0]


def test_tokens_of_the_storages_are_passed_on_when_both_are_there(
    fts: FakeFts, backend: FtsBackend, keys: Keys
) -> None:
    keys.accesses["source"] = Opens("source-token")
    submitted(backend, 0)
    keys.accesses["destination"] = Opens("destination-token")
    submitted(backend, 1)
    first, second = (job.body["files"][0] for job in fts.jobs.values())
    assert "source_tokens" not in first
    assert (second["source_tokens"], second["destination_tokens"]) == (["source-token"], ["destination-token"])
    assert {headers.get("Authorization") for _, _, headers in fts.seen} == {f"Bearer {TOKEN}"}


def test_a_submit_costs_one_request_once_a_thread_has_its_client(
    fts: FakeFts, backend: FtsBackend, heard: Heard
) -> None:
    submitted(backend, 0)
    before = len(fts.seen)
    submitted(backend, 1, 2)
    assert [(method, path) for method, path, _ in fts.seen[before:]] == [("POST", "/jobs")] * 2
    assert heard.results("submit") == ["ok"] * 3


def test_another_token_gets_another_client(fts: FakeFts, backend: FtsBackend, keys: Keys) -> None:
    submitted(backend, 0)
    keys.accesses["fts"] = Opens("second-token", stamp=2)
    submitted(backend, 1)
    posts = [headers["Authorization"] for method, path, headers in fts.seen if method == "POST"]
    assert posts == [f"Bearer {TOKEN}", "Bearer second-token"]


def test_what_is_known_already_is_adopted(fts: FakeFts, backend: FtsBackend) -> None:
    made = [bundle(0), bundle(1)]
    first = backend.submit(made[:1])
    again = backend.submit(made)
    assert [o.external_id for o in again] == list(fts.jobs)
    assert first[0].external_id == again[0].external_id
    assert [o.adopted for o in again] == [True, False]


@pytest.mark.parametrize("more", [{}, {"status": "409 Conflict"}])
def test_a_duplicate_is_understood_with_and_without_a_status_in_its_body(
    fts: FakeFts, backend: FtsBackend, more: dict[str, str]
) -> None:
    (first,) = backend.submit([bundle(0)])
    said = {"message": "The sid provided by the user is duplicated"} | more
    fts.instead.append(("POST", "/jobs", (409, said)))
    (again,) = backend.submit([bundle(0)])
    assert (again.external_id, again.adopted) == (first.external_id, True)


def test_a_duplicate_that_fts_does_not_tell_of_is_in_doubt(fts: FakeFts, backend: FtsBackend) -> None:
    fts.instead.append(("POST", "/jobs", (409, {"message": "The submission is duplicated"})))
    (outcome,) = backend.submit([bundle(0)])
    assert getattr(outcome.error, "lost", None)


# ---------------------------------------------------------------------------------------- how they stand


def test_a_job_waits_moves_and_is_complete(fts: FakeFts, backend: FtsBackend) -> None:
    (entry,) = submitted(backend, 0)
    (seen,) = backend.observe([entry])
    assert (seen.status, seen.moved, seen.exact) == (Status.WAITING, 0, True)
    fts.start()
    fts.jobs[entry.external_id].files[1]["file_state"] = "FINISHED"
    (seen,) = backend.observe([entry])
    assert (seen.status, seen.moved, seen.files_done, seen.failed) == (Status.MOVING, 1001, 1, 0)
    fts.finish()
    (seen,) = backend.observe([entry])
    assert (seen.status, seen.moved, seen.files_done, seen.exact) == (Status.COMPLETE, 2001, 2, True)
    assert not seen.failed
    assert not seen.reasons


def test_files_are_asked_for_only_where_something_can_be_new(fts: FakeFts, backend: FtsBackend) -> None:
    waiting, complete = submitted(backend, 0, 1)
    fts.jobs[complete.external_id].state = "FINISHED"
    complete = replace(complete, state=State.COMPLETE, moved=5, moved_exact=True, files_done=2)
    before = len(fts.seen)
    first, second = backend.observe([waiting, complete])
    assert len(fts.seen) == before + 1
    assert first.status is Status.WAITING
    assert (second.status, second.moved, second.files_done) == (Status.COMPLETE, 5, 2)


def test_failed_files_go_back_with_their_reasons_when_the_job_is_over(
    fts: FakeFts, backend: FtsBackend, wording
) -> None:
    (entry,) = submitted(backend, 0, files=4)
    fts.start()
    fts.jobs[entry.external_id].files[0] |= {"file_state": "FAILED", "reason": "SOURCE [2] Result HTTP 404"}
    (seen,) = backend.observe([entry])
    assert (seen.failed, seen.files_stuck, dict(seen.reasons)) == (0, 0, {})
    reasons = {f"{SOURCE}/f0": "SOURCE [2] Result HTTP 404", f"{SOURCE}/f2": "DESTINATION [17] File exists"}
    fts.finish(lambda file: reasons.get(file["source_surl"], ""))
    (seen,) = backend.observe([entry])
    assert (seen.status, seen.failed, seen.files_stuck, seen.files_done) == (Status.COMPLETE, 2002, 2, 2)
    assert seen.reasons == {"source-missing": 1, "destination-exists": 1}
    assert seen.unfit == (f"{SOURCE}/f0",)
    assert seen.unfit[0] in seen.undone
    assert len(seen.undone) == entry.injection.item.files - seen.files_done
    assert seen.moved == 1001 + 1003
    wording(seen.error)


def test_a_job_cancelled_by_somebody_else_has_failed_and_one_cancelled_by_us_is_over(
    fts: FakeFts, backend: FtsBackend
) -> None:
    theirs, ours = submitted(backend, 0, 1)
    fts.start()
    for entry in (theirs, ours):
        fts.jobs[entry.external_id].files[0]["file_state"] = "FINISHED"
    assert not [o.error for o in backend.end([theirs, ours]) if o.error]
    seen, over = backend.observe([theirs, replace(ours, end_asked_at=CYCLE.start)])
    assert (seen.status, seen.moved, seen.failed, dict(seen.reasons)) == (
        Status.COMPLETE,
        1000,
        1001,
        {"canceled": 1},
    )
    assert (over.status, over.moved, over.failed, dict(over.reasons)) == (Status.ABSENT, 1002, 0, {})


@pytest.mark.parametrize("job_state", sorted(OVER))
@pytest.mark.parametrize("left", ["TOKEN_PREP", "ON_HOLD", "ON_HOLD_STAGING", "STAGING", "NOT_USED", "NEWS"])
def test_in_a_job_that_is_over_only_finished_files_have_moved(
    fts: FakeFts, backend: FtsBackend, job_state: str, left: str
) -> None:
    """A ban, or a cancel by somebody else, leaves files of a job that is over in states of those that wait."""
    (entry,) = submitted(backend, 0, files=4)
    job = fts.jobs[entry.external_id]
    job.state = job_state
    for file, state in zip(job.files, ("FINISHED", left, left, "FINISHED"), strict=True):
        file["file_state"] = state
    (seen,) = backend.observe([entry])
    assert (seen.status, seen.moved, seen.exact, seen.files_done) == (Status.COMPLETE, 1000 + 1003, True, 2)
    assert (seen.failed, seen.files_stuck, sum(seen.reasons.values())) == (1001 + 1002, 2, 2)
    assert seen.undone == (f"{SOURCE}/f1", f"{SOURCE}/f2")
    assert left in seen.error
    (ours,) = backend.observe([replace(entry, end_asked_at=CYCLE.start)])
    assert (ours.status, ours.moved) == (Status.ABSENT, 1000 + 1003)


def test_files_that_an_answer_leaves_out_have_not_moved(fts: FakeFts, backend: FtsBackend, wording) -> None:
    (entry,) = submitted(backend, 0, files=4)
    fts.finish()
    del fts.jobs[entry.external_id].files[1:]
    (seen,) = backend.observe([entry])
    assert (seen.status, seen.moved, seen.files_done) == (Status.COMPLETE, 1000, 1)
    assert (seen.failed, seen.files_stuck, dict(seen.reasons)) == (1001 + 1002 + 1003, 3, {"vanished": 3})
    wording(seen.error)


def test_sizes_that_nobody_tells_are_an_even_share_of_the_rest(fts: FakeFts, backend: FtsBackend) -> None:
    (entry,) = submitted(backend, 0, files=4)
    fts.finish(lambda file: "SOURCE [5] x" if file["source_surl"].endswith("f1") else "")
    for file, size in zip(fts.jobs[entry.external_id].files, (1000, 0, 1002, 0), strict=True):
        file |= {"filesize": size, "user_filesize": 0}
    (seen,) = backend.observe([entry])
    assert seen.failed == (1000 + 1001 + 1002 + 1003 - 2002) // 2
    assert seen.moved == 2002 + seen.failed


def test_true_sizes_count_where_fts_tells_them(fts: FakeFts, backend: FtsBackend, store: Store) -> None:
    """FTS does not compare the size that was listed: it copies what is there, and tells how much that is."""
    (entry,) = submitted(backend, 0, files=4)
    (seen,) = backend.observe([entry])
    assert seen.size is None
    store.put(f"{SOURCE}/f1", 5000)
    store.put(f"{SOURCE}/f2", 10)
    fts.start()
    fts.jobs[entry.external_id].files[1]["filesize"] = 5000  # it is being copied
    (seen,) = backend.observe([entry])
    assert (seen.status, seen.moved, seen.size) == (Status.MOVING, 0, 1000 + 5000 + 1002 + 1003)
    fts.finish(lambda file: "SOURCE [5] x" if file["source_surl"].endswith("f3") else "")
    (seen,) = backend.observe([entry])
    assert (seen.moved, seen.failed, seen.size) == (1000 + 5000 + 10, 1003, 1000 + 5000 + 10 + 1003)
    for file in fts.jobs[entry.external_id].files:
        file["file_state"] = "FINISHED"
    (seen,) = backend.observe([entry])
    assert (seen.moved, seen.failed, seen.size) == (seen.size, 0, 1000 + 5000 + 10 + 1003)


def test_a_size_that_no_file_has_is_not_believed(fts: FakeFts, backend: FtsBackend) -> None:
    """One wrong number of a service would make up for the traffic of days."""
    (entry,) = submitted(backend, 0, files=2)
    fts.finish()
    fts.jobs[entry.external_id].files[1]["filesize"] = 10**13 + 1
    (seen,) = backend.observe([entry])
    assert (seen.moved, seen.size) == (2001, None)
    for file in fts.jobs[entry.external_id].files:
        file |= {"filesize": 10**18 - 1, "user_filesize": 10**18 - 1}
    (seen,) = backend.observe([entry])
    assert seen.moved == 2001


def test_one_unknown_job_does_not_cost_the_others_their_look(fts: FakeFts, backend: FtsBackend, wording) -> None:
    entries = submitted(backend, 0, 1, 2)
    fts.finish()
    del fts.jobs[entries[1].external_id]
    entries[1] = replace(entries[1], end_asked_at=CYCLE.start)
    seen = backend.observe(entries)
    assert [one.status for one in seen] == [Status.COMPLETE, Status.ABSENT, Status.COMPLETE]
    wording(seen[1].error)
    (alone,) = backend.observe([entries[1]])
    assert alone.status is Status.ABSENT


def test_a_job_has_vanished_when_fts_says_so_twice_some_minutes_apart(
    fts: FakeFts, backend: FtsBackend, clock: SimClock, wording
) -> None:
    entry, other = submitted(backend, 0, 1, files=4)
    entry = replace(entry, moved=1001, moved_exact=True, files_done=1)
    job = fts.jobs.pop(entry.external_id)

    def look() -> Observation:
        clock.advance(clock.now() + timedelta(minutes=1))
        return backend.observe([entry, other])[0]

    assert [look().status for _ in range(2)] == [Status.UNKNOWN] * 2
    fts.jobs[job.id] = job
    assert look().status is Status.WAITING
    del fts.jobs[job.id]
    assert [look().status for _ in range(2)] == [Status.UNKNOWN] * 2
    for _ in range(2):
        seen = look()
        assert (seen.status, seen.files_done, seen.files_stuck) == (Status.ABSENT, 1, 3)
        assert (seen.failed, dict(seen.reasons)) == (entry.injection.item.bytes - 1001, {"vanished": 3})
        assert not seen.unfit
        wording(seen.error)


def test_what_vanishes_when_it_was_asked_to_end_needs_no_second_look_and_what_was_complete_does(
    fts: FakeFts, backend: FtsBackend, clock: SimClock
) -> None:
    complete, asked = submitted(backend, 0, 1)
    fts.jobs.clear()
    entries = [replace(complete, state=State.COMPLETE, moved=2001), replace(asked, end_asked_at=CYCLE.start)]
    first, second = backend.observe(entries)
    assert (first.status, first.again_at) == (Status.UNKNOWN, clock.now() + timedelta(minutes=2))
    clock.advance(first.again_at)
    first, again = backend.observe(entries)
    assert again == second
    assert (first.status, first.failed, dict(first.reasons)) == (Status.ABSENT, 0, {})
    assert (second.status, second.failed, dict(second.reasons)) == (Status.ABSENT, 2005, {"vanished": 2})


UNTOLD = [
    (404, "<html>maintenance</html>"),
    (404, {"message": "no Route matched"}),
    (404, {"status": 404, "message": "Not Found", "path": "/jobs"}),
    (404, []),
    (200, []),
]


@pytest.mark.parametrize("answer", UNTOLD)
@pytest.mark.parametrize("state", [State.LIVE, State.CALLED])
def test_only_fts_itself_can_say_that_a_job_is_not_there(
    fts: FakeFts, backend: FtsBackend, clock: SimClock, answer: tuple[int, object], state: State
) -> None:
    """A page of whoever stands before it, or an answer that leaves the job out, says nothing of the job."""
    (entry,) = [replace(entry, state=state) for entry in submitted(backend, 0)]
    for _ in range(3):
        fts.instead.append(("GET", "/jobs", answer))
        assert backend.observe([entry])[0].status is Status.UNKNOWN
        clock.advance(clock.now() + timedelta(minutes=5))
    fts.instead.append(("GET", "/jobs", (404, {"status": "404 Not Found", "message": "No job with the id"})))
    assert backend.observe([replace(entry, state=State.CALLED)])[0].status is Status.ABSENT


def test_a_job_that_is_left_out_of_an_answer_on_many_is_not_known(fts: FakeFts, backend: FtsBackend) -> None:
    entries = [replace(entry, state=State.CALLED) for entry in submitted(backend, 0, 1)]
    row = {"job_id": entries[0].external_id, "job_state": "SUBMITTED", "http_status": "200 Ok"}
    row["job_metadata"] = naming.metadata(entries[0].injection)
    fts.instead.append(("GET", "/jobs", (200, [row])))
    assert [one.status for one in backend.observe(entries)] == [Status.WAITING, Status.UNKNOWN]


@pytest.mark.parametrize("answer", UNTOLD[:3])
def test_a_cancel_that_met_no_fts_is_no_success(
    fts: FakeFts, backend: FtsBackend, answer: tuple[int, object]
) -> None:
    entries = submitted(backend, 0)
    fts.instead.append(("DELETE", "/jobs", answer))
    assert backend.end(entries)[0].error
    assert not backend.end(entries)[0].error


def test_one_in_doubt_is_found_by_its_key_or_known_to_be_absent(fts: FakeFts, backend: FtsBackend) -> None:
    (made,) = submitted(backend, 0)
    made = replace(made, state=State.CALLED)
    found, absent = backend.observe(
        [replace(made, external_id=""), replace(made, injection=bundle(1), external_id="")]
    )
    assert (found.status, found.external_id) == (Status.WAITING, made.external_id)
    assert absent.status is Status.ABSENT


def test_at_most_a_hundred_are_asked_for_at_once_and_fewer_when_that_is_too_long(
    fts: FakeFts, backend: FtsBackend
) -> None:
    apache = "<!DOCTYPE HTML PUBLIC><html><head><title>414 Request-URI Too Long</title></head></html>"
    entries = submitted(backend, *range(120))
    for refused in (None, "", apache):
        fts.seen.clear()
        if refused is not None:
            fts.instead.append(("GET", "/jobs", (414, refused)))
        assert [one.status for one in backend.observe(entries)] == [Status.WAITING] * 120
        asked = [len(path.split(",")) for _, path, _ in fts.seen]
        assert max(asked) <= 100
        assert len(asked) == (2 if refused is None else 4)


# ---------------------------------------------------------------------------------------- ending


def test_jobs_end_whatever_they_are_and_the_unknown_ones_too(fts: FakeFts, backend: FtsBackend) -> None:
    entries = submitted(backend, 0, 1, 2)
    over, unknown, running = entries
    fts.jobs[over.external_id].state = "FINISHED"
    del fts.jobs[unknown.external_id]
    for _ in range(2):
        assert [(o.key, o.error) for o in backend.end(entries)] == [(e.injection.key, None) for e in entries]
    for entry in entries:  # one alone is answered in another way
        (outcome,) = backend.end([entry])
        assert outcome.error is None
    assert fts.jobs[running.external_id].state == "CANCELED"
    assert {job.state for job in fts.jobs.values()} <= OVER


def test_one_in_doubt_is_ended_by_its_key(fts: FakeFts, backend: FtsBackend) -> None:
    (entry,) = submitted(backend, 0)
    backend.end([replace(entry, state=State.CALLED, external_id="")])
    assert fts.jobs[entry.external_id].state == "CANCELED"


# ---------------------------------------------------------------------------------------- who we are


def test_we_are_who_fts_says_and_credentials_tell_their_end(
    fts: FakeFts, backend: FtsBackend, keys: Keys, clock: SimClock
) -> None:
    keys.expire = clock.now() + timedelta(hours=3)
    told = backend.check()
    assert (told.service, told.address, told.version) == ("fts", fts.url, "3.14.2")
    assert (told.vo, told.account, told.admin, told.may_end) == ("dteam", "/CN=me", False, True)
    assert told.credentials_until == keys.expire
    fts.told["level"] = {"transfer": "all", "config": "all"}
    assert not backend.check().admin


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://fts.example.org:8446",
        "davs://fts.example.org",
        "fts.example.org:8446",
        "https://me:secret@fts.example.org",
    ],
)
def test_an_endpoint_that_cannot_be_one_is_refused(
    make: Callable[..., FtsBackend], endpoint: str, wording
) -> None:
    with pytest.raises(UsageError) as refused:
        make(endpoint)
    assert "secret" not in str(refused.value)
    wording(refused.value)


def test_only_a_url_is_an_end_of_a_link(backend: FtsBackend) -> None:
    assert backend.resolve("davs://SE.example.org:443/dc/") == ("davs://se.example.org/dc",)


def test_injections_of_any_campaign_have_jobs_of_their_own(fts: FakeFts, backend: FtsBackend) -> None:
    one = bundle(0)
    other = injection(one.item, LINK, campaign="other", job=JobOptions())
    assert len({o.external_id for o in backend.submit([one, other])}) == 2
