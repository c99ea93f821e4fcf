"""What FTS tells of jobs, files, links and itself."""

from __future__ import annotations

import json
import uuid

import pytest

from tests.sandbox.fts.service import ended, fts3, states, submit, told, transfers, wait_until


def test_one_unknown_job_is_not_found(context):
    with pytest.raises(fts3.exceptions.NotFound):
        fts3.get_job_status(context, str(uuid.uuid4()))


def test_many_jobs_are_told_at_once_with_their_files(context, source, destination):
    jobs = [submit(context, transfers(source, destination, 2)) for _ in range(3)]
    for job_id in jobs:
        ended(context, job_id)
    told_jobs = fts3.get_jobs_statuses(context, jobs, list_files=True)
    assert [job["job_id"] for job in told_jobs] == jobs
    assert {job["http_status"] for job in told_jobs} == {"200 Ok"}
    assert [states(job) for job in told_jobs] == [["FINISHED"] * 2] * 3
    assert set(told_jobs[0]["files"][0]) == {
        "file_state", "dest_surl", "finish_time", "start_time", "reason", "source_surl", "file_metadata",
    }  # fmt: skip


def test_one_unknown_job_among_many_costs_the_client_all_but_the_body_has_them(fts, context, source, destination):
    known, unknown = submit(context, transfers(source, destination)), str(uuid.uuid4())
    with pytest.raises(fts3.exceptions.ClientError, match="404 Not Found"):
        fts3.get_jobs_statuses(context, [known, unknown])
    status, answers = fts.ask("GET", f"/jobs/{known},{unknown}")
    assert status == 207
    assert [answer["http_status"] for answer in answers] == ["200 Ok", "404 Not Found"]
    assert answers[0]["job_id"] == known
    assert answers[1] == {
        "job_id": unknown,
        "http_status": "404 Not Found",
        "http_message": f'No job with the id "{unknown}" has been found',
    }


def test_a_hundred_jobs_fit_into_a_call_and_one_more_does_not(context, source, destination):
    job_id = submit(context, transfers(source, destination))
    assert len(fts3.get_jobs_statuses(context, [job_id] * 100)) == 100
    with pytest.raises(fts3.exceptions.ClientError, match="414"):
        fts3.get_jobs_statuses(context, [job_id] * 101)


def test_too_many_jobs_in_a_call_are_refused_by_apache_which_stands_before_fts(fts):
    status, text = fts.raw("GET", "/jobs/" + ",".join(str(uuid.uuid4()) for _ in range(101)))
    assert status == 414
    assert text.startswith("<!DOCTYPE HTML PUBLIC")
    assert "<title>414 Request-URI Too Long</title>" in text


def test_a_job_has_the_fields_of_the_real_service(fts, context, source, destination):
    fts.settings(link_active=1)
    destination.gate.clear()
    job_id = submit(context, transfers(source, destination, 2))
    wait_until(lambda: destination.now_copying)
    job = told(context, job_id)
    named = ("verify_checksum", "source_spacetoken", "destination_spacetoken", "os_project_id", "target_qos")
    assert {name: job[name] for name in named} == {
        "verify_checksum": "b", "source_spacetoken": "", "destination_spacetoken": "",
        "os_project_id": None, "target_qos": None,
    }  # fmt: skip
    assert sorted(file["filesize"] for file in job["files"]) == [0, 200], "0 is what was never read"
    fts3.cancel(context, job_id)
    over = told(context, job_id)
    assert (over["job_state"], over["cancel_job"]) == ("CANCELED", False)


def test_a_job_is_not_told_without_credentials_but_as_a_failure_of_the_service(fts, context, source, destination):
    job_id = submit(context, transfers(source, destination))
    fts.settings(anonymous=False)
    assert fts.ask("GET", f"/jobs/{job_id}")[0] == 500
    assert fts.ask("GET", "/jobs")[0] == 403


def test_a_job_that_is_forgotten_is_not_found(fts, context, source, destination):
    job_id = submit(context, transfers(source, destination))
    fts.settings(forget=[job_id])
    with pytest.raises(fts3.exceptions.NotFound):
        fts3.get_job_status(context, job_id)


def test_a_job_is_active_while_a_file_of_it_is(context, source, destination):
    destination.gate.clear()
    job_id = submit(context, transfers(source, destination))
    wait_until(lambda: destination.now_copying)
    job = told(context, job_id)
    assert (job["job_state"], states(job), job["job_finished"]) == ("ACTIVE", ["ACTIVE"], None)
    assert [file["filesize"] for file in job["files"]] == [200]  # as its source tells
    destination.gate.set()
    assert ended(context, job_id)["job_state"] == "FINISHED"


def test_jobs_are_listed_by_storage_and_state(context, source, destination):
    over = submit(context, transfers(source, destination))
    ended(context, over)
    destination.gate.clear()
    active = submit(context, transfers(source, destination))
    wait_until(lambda: destination.now_copying)
    here = {"source_se": source.se, "dest_se": destination.se}
    assert [job["job_id"] for job in fts3.list_jobs(context, **here)] == [active]
    assert [job["job_id"] for job in fts3.list_jobs(context, **here, state_in=["ACTIVE"])] == [active]
    assert fts3.list_jobs(context, **here, state_in=["FINISHED"]) == []
    place = f"source_se={source.se}&dest_se={destination.se}"
    for scope in ("limit=10", "time_window=1", "time_window=0:30"):
        listed = json.loads(context.get(f"/jobs?{place}&state_in=FINISHED&{scope}"))
        assert [job["job_id"] for job in listed] == [over]
    newest = json.loads(context.get(f"/jobs?{place}&state_in=FINISHED,ACTIVE&limit=1&fields=job_id,job_state"))
    assert newest == [{"job_id": active, "job_state": "ACTIVE"}]
    destination.gate.set()


@pytest.mark.parametrize("limit", ["501", "-1"])
def test_a_limit_out_of_range_is_refused(context, limit):
    with pytest.raises(fts3.exceptions.ClientError, match="limit must be positive"):
        context.get(f"/jobs?limit={limit}")


def test_jobs_of_somebody_else_are_not_asked_for_by_name(context):
    with pytest.raises(fts3.exceptions.Unauthorized):
        fts3.list_jobs(context, delegation_id="0123456789abcdef")
    with pytest.raises(fts3.exceptions.ClientError):
        fts3.list_jobs(context, user_dn="/CN=somebody else")


def test_files_are_listed_by_state_and_link(context, source, destination):
    files = transfers(source, destination, 3)
    del source.files[files[1]["sources"][0].removeprefix(source.url)]
    ended(context, submit(context, files))
    place = f"source_se={source.se}&dest_se={destination.se}"
    listed = json.loads(context.get(f"/files?state_in=FINISHED,FAILED&{place}"))
    assert sorted(file["file_state"] for file in listed) == ["FAILED", "FINISHED", "FINISHED"]
    for limit, most in ((2, 2), (0, 0), (-1, 2), (5000, 3)):  # as FTS3, which takes so many of a list
        assert len(json.loads(context.get(f"/files?state_in=FINISHED,FAILED&{place}&limit={limit}"))) == most
    assert json.loads(context.get(f"/files?{place}")) == []  # what is not over


def test_one_field_of_a_job_can_be_asked_for(context, source, destination):
    job_id = submit(context, transfers(source, destination))
    assert json.loads(context.get(f"/jobs/{job_id}/vo_name")) == "sandbox"
    with pytest.raises(fts3.exceptions.NotFound):
        context.get(f"/jobs/{job_id}/weather")


def test_paths_are_understood_with_one_and_with_two_slashes(fts, context, source, destination):
    job_id = submit(context, transfers(source, destination))
    for path in (
        "/",
        "//",
        "/whoami",
        "//whoami",
        f"/jobs/{job_id}",
        f"//jobs/{job_id}",
        f"//jobs/{job_id}/files",
    ):
        assert fts.ask("GET", path)[0] == 200


def test_what_is_not_there_and_what_cannot_be_done_is_told_in_the_form_of_fts(fts):
    assert fts.ask("GET", "/weather")[1]["status"] == "404 Not Found"
    assert fts.ask("PATCH", "/jobs")[1]["status"] == "405 Method Not Allowed"


def test_the_optimizer_tells_queue_and_speed_of_a_link(fts, context, source, destination):
    fts.settings(optimizer_interval=0.05, link_active=1)
    destination.gate.clear()
    job_id = submit(context, transfers(source, destination, 3))
    place = f"source_se={source.se}&dest_se={destination.se}"

    def rows(path):
        return json.loads(context.get(f"/optimizer/{path}?{place}"))

    wait_until(lambda: any(row["queue_size"] == 2 and row["actual_active"] == 1 for row in rows("evolution")))
    assert [row["active"] for row in rows("current")] == [1]
    destination.gate.set()
    ended(context, job_id)
    wait_until(
        lambda: rows("evolution")[0]["queue_size"] == 0 and any(row["throughput"] for row in rows("evolution"))
    )
    assert {row["success"] for row in rows("evolution")} == {100.0}
    assert any(200 <= row["filesize_avg"] <= 202 for row in rows("evolution"))
    assert json.loads(context.get("/optimizer")) is True


def test_a_job_that_is_over_cannot_be_cancelled_and_says_what_it_is(context, source, destination):
    job_id = submit(context, transfers(source, destination))
    ended(context, job_id)
    answer = fts3.cancel(context, job_id)
    assert (answer["job_state"], answer["http_status"]) == ("FINISHED", "304 Not Modified")


def test_many_jobs_are_cancelled_at_once_and_unknown_ones_are_told(fts, context, source, destination):
    destination.gate.clear()
    jobs = [submit(context, transfers(source, destination)) for _ in range(2)]
    unknown = str(uuid.uuid4())
    assert [one["job_state"] for one in fts3.cancel(context, ",".join(jobs))] == ["CANCELED"] * 2
    status, answers = fts.ask("DELETE", f"/jobs/{jobs[0]},{unknown}")
    assert status == 207
    assert [answer["http_status"] for answer in answers] == ["304 Not Modified", "404 Not Found"]
    assert fts.ask("DELETE", f"/jobs/{unknown}")[0] == 404


def test_everybodys_jobs_cannot_be_cancelled(context):
    for vo in (None, "sandbox"):
        with pytest.raises(fts3.exceptions.Unauthorized):
            fts3.cancel_all(context, vo)
