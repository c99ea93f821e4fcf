"""Copies, and how they fail: the bytes arrive checked, or nothing is left and the reason is FTS3's."""

from __future__ import annotations

import json

import pytest

from tests.sandbox.fts.service import (
    ended,
    fts3,
    nobody_listens,
    reason,
    states,
    submit,
    told,
    transfers,
    wait_until,
)
from tests.sandbox.fts.webdav import adler32


def test_bytes_arrive_in_folders_that_are_made_for_them(context, source, destination):
    destination.refuse_parents = True
    job = ended(context, submit(context, transfers(source, destination, 12, under="/a/b/c")))
    assert (job["job_state"], states(job)) == ("FINISHED", ["FINISHED"] * 12)
    assert sorted(destination.files.values()) == sorted(source.files.values())
    assert "/a/b/c" in destination.folders
    assert destination.asked["MKCOL"] <= 5  # once per folder, and not once per file


def test_a_folder_that_went_away_is_made_again_by_the_next_attempt(context, source, destination):
    destination.refuse_parents = True
    ended(context, submit(context, transfers(source, destination)))
    destination.folders = {""}
    job = ended(context, submit(context, transfers(source, destination), retry=1))
    assert (states(job), job["files"][0]["retry"]) == (["FINISHED"], 1)


@pytest.mark.parametrize(
    ("source_scheme", "destination_scheme"), [("dav", "http"), ("http", "dav"), ("dav", "dav")]
)
def test_dav_is_http(context, source, destination, source_scheme, destination_scheme):
    [file] = transfers(source, destination)
    file["sources"] = [file["sources"][0].replace("http", source_scheme)]
    file["destinations"] = [file["destinations"][0].replace("http", destination_scheme)]
    job = ended(context, submit(context, [file]))
    assert states(job) == ["FINISHED"]
    assert job["source_se"].startswith(f"{source_scheme}://")


def test_another_protocol_fails_and_is_not_tried_again(context, source, destination):
    [file] = transfers(source, destination)
    file["destinations"] = ["root://127.0.0.1//data/x"]
    job = ended(context, submit(context, [file], retry=3))
    assert reason(job) == "DESTINATION [93] Protocol not supported or path/url invalid: root"


def test_a_file_that_is_there_already_is_left_alone(context, source, destination):
    [file] = transfers(source, destination)
    path = file["destinations"][0].removeprefix(destination.url)
    destination.put(path, b"of somebody else")
    job = ended(context, submit(context, [file], retry=3))
    assert (job["job_state"], states(job)) == ("FAILED", ["FAILED"])
    assert reason(job) == "DESTINATION [17] Destination file exists and overwrite is not enabled"
    assert job["files"][0]["retry"] == 0
    assert destination.files == {path: b"of somebody else"}


def test_a_file_that_is_there_already_is_replaced_when_that_is_asked_for(context, source, destination):
    [file] = transfers(source, destination)
    path = file["destinations"][0].removeprefix(destination.url)
    destination.put(path, b"old")
    ended(context, submit(context, [file], overwrite=True))
    assert destination.files[path] in source.files.values()


def test_what_a_storage_began_without_an_answer_is_deleted_and_copied_again(context, source, destination):
    destination.drop_copies = [True]
    job = ended(context, submit(context, transfers(source, destination), retry=1))
    assert (states(job), job["files"][0]["retry"]) == (["FINISHED"], 1)
    assert list(destination.files.values()) == list(source.files.values())


def test_what_was_there_before_a_copy_without_an_answer_is_left_alone(context, source, destination):
    [file] = transfers(source, destination)
    path = file["destinations"][0].removeprefix(destination.url)
    destination.put(path, b"of somebody else")
    destination.blind_to = path  # so that it does not say that the file exists
    destination.drop_copies = [True]
    job = ended(context, submit(context, [file]))
    assert reason(job).startswith("DESTINATION [104] ")
    assert destination.files == {path: b"of somebody else"}


def test_a_source_that_is_not_there_fails_at_once(context, source, destination):
    [file] = transfers(source, destination)
    source.files.clear()
    job = ended(context, submit(context, [file], retry=3))
    assert reason(job) == "SOURCE [2] Result HTTP 404 : File not found after 1 attempts"
    assert job["files"][0]["retry"] == 0
    assert destination.asked["COPY"] == 0


@pytest.mark.parametrize("end", ["SOURCE", "DESTINATION"])
def test_a_storage_that_does_not_answer_is_named_and_tried_again(context, source, destination, end):
    [file] = transfers(source, destination)
    file["sources" if end == "SOURCE" else "destinations"] = [f"{nobody_listens()}/x"]
    job = ended(context, submit(context, [file], retry=2))
    assert reason(job).startswith(f"{end} [112] ")
    assert "Could not connect" in reason(job)
    assert job["files"][0]["retry"] == 2


def test_a_wrong_checksum_of_the_user_fails_before_the_copy(context, source, destination):
    job = ended(context, submit(context, transfers(source, destination, checksum="ADLER32:deadbeef"), retry=3))
    assert reason(job).startswith("SOURCE [5] ")
    assert "checksum do not match" in reason(job)
    assert (destination.asked["COPY"], job["files"][0]["retry"]) == (0, 0)


def test_a_checksum_is_the_same_with_and_without_leading_zeros(context, source, destination):
    [file] = transfers(source, destination)
    source.files = dict.fromkeys(source.files, b"a")  # adler32 00620062
    file |= {"checksum": "ADLER32:620062", "filesize": 1}
    assert states(ended(context, submit(context, [file]))) == ["FINISHED"]


def test_a_copy_with_another_checksum_is_deleted(context, source, destination):
    [file] = transfers(source, destination)
    destination.lies[file["destinations"][0].removeprefix(destination.url)] = "deadbeef"
    job = ended(context, submit(context, [file]))
    assert "checksum do not match" in reason(job)
    assert reason(job).startswith("DESTINATION [5] ")
    assert destination.files == {}


@pytest.mark.parametrize(
    ("mode", "of_source", "of_destination", "state"),
    [
        ("none", "bad", "bad", "FINISHED"),
        ("source", "good", "bad", "FINISHED"),
        ("source", "bad", "good", "FAILED"),
        ("target", "bad", "good", "FINISHED"),
        ("target", "good", "bad", "FAILED"),
        ("both", "good", "good", "FINISHED"),
    ],
)
def test_checksums_are_compared_where_that_was_asked_for(
    context, source, destination, mode, of_source, of_destination, state
):
    [file] = transfers(source, destination)
    if of_source == "bad":
        source.lies[file["sources"][0].removeprefix(source.url)] = "deadbeef"
    if of_destination == "bad":
        destination.lies[file["destinations"][0].removeprefix(destination.url)] = "deadbeef"
    assert states(ended(context, submit(context, [file], verify_checksum=mode))) == [state]


def test_a_size_that_is_not_the_sources_is_not_compared_and_the_true_one_is_told(context, source, destination):
    """As the real service has it: url_copy takes no notice of the size that was submitted."""
    destination.gate.clear()
    job_id = submit(context, transfers(source, destination, filesize=7), retry=0)
    wait_until(lambda: destination.now_copying)
    [file] = told(context, job_id)["files"]
    assert (file["file_state"], file["user_filesize"], file["filesize"]) == ("ACTIVE", 7, 200)
    destination.gate.set()
    [file] = ended(context, job_id)["files"]
    assert (file["file_state"], file["user_filesize"], file["filesize"]) == ("FINISHED", 7, 200)


def test_a_truncated_copy_is_deleted(context, source, destination):
    destination.truncate = True
    job = ended(context, submit(context, transfers(source, destination), verify_checksum="none"))
    assert "file size mismatch" in reason(job)
    assert destination.files == {}


def test_a_failure_behind_status_201_is_a_failure_and_is_tried_again(context, source, destination):
    destination.fail_copies = ["failure: out of luck"]
    job = ended(context, submit(context, transfers(source, destination), retry=1))
    assert (job["job_state"], job["files"][0]["retry"]) == ("FINISHED", 1)
    [file] = job["files"]
    [attempt] = json.loads(context.get(f"/jobs/{job['job_id']}/files/{file['file_id']}/retries"))
    assert (
        attempt["reason"]
        == "TRANSFER [5] ERROR: Copy failed (3rd pull). Last attempt: Transfer failure: out of luck"
    )
    assert list(destination.files.values()) == list(source.files.values())


def test_what_a_failed_copy_has_left_is_deleted(context, source, destination):
    destination.fail_copies = ["failure: half way"]
    ended(context, submit(context, transfers(source, destination)))
    assert destination.files == {}


def test_a_copy_that_takes_too_long_is_ended_and_deleted(context, source, destination):
    destination.gate.clear()
    job = ended(context, submit(context, transfers(source, destination), timeout=1))
    assert reason(job).startswith("TRANSFER [110] Transfer timed out")
    assert destination.files == {}


def test_a_silent_storage_has_a_deadline(fts, context, source, destination):
    fts.settings(idle_timeout=0.3)
    destination.silent = True
    job = ended(context, submit(context, transfers(source, destination)))
    assert reason(job).startswith("DESTINATION [110] ")


def test_tokens_of_a_transfer_are_passed_on_and_never_told(fts, context, source, destination):
    tokens = {"source_token": "secret-of-source", "destination_token": "secret-of-destination"}
    job = ended(context, submit(context, transfers(source, destination, **tokens)))
    assert destination.tokens == [("Bearer secret-of-destination", "Bearer secret-of-source")]
    assert "secret-of" not in f"{job}{fts.log.read_text()}"


def test_a_token_that_a_storage_repeats_does_not_get_into_the_log(fts, context, source, destination):
    destination.fail_copies = ["failure: cannot read http://h/x?authz=secret-of-source"]
    tokens = {"source_token": "secret-of-source", "destination_token": "secret-of-destination"}
    job = ended(context, submit(context, transfers(source, destination, **tokens)))
    assert "authz=secret-of-source" in reason(job)  # FTS3 passes on what storages say: its users have to beware
    assert "secret-of" not in fts.log.read_text()


def test_some_files_may_fail_and_the_others_arrive(context, source, destination):
    files = transfers(source, destination, 4)
    del source.files[files[2]["sources"][0].removeprefix(source.url)]
    job = ended(context, submit(context, files))
    assert job["job_state"] == "FINISHEDDIRTY"
    assert states(job) == ["FINISHED", "FINISHED", "FAILED", "FINISHED"]
    assert job["reason"].startswith("One or more files failed")
    assert len(destination.files) == 3


def test_throughput_is_told_in_mebibytes_per_second(context, source, destination):
    [file] = transfers(source, destination)
    source.files = {path: bytes(2**20) for path in source.files}
    file |= {"checksum": f"ADLER32:{adler32(bytes(2**20))}", "filesize": 2**20}
    [done] = ended(context, submit(context, [file]))["files"]
    assert done["throughput"] * done["tx_duration"] == pytest.approx(1.0)


def test_a_copy_that_is_cancelled_is_ended_and_deleted(context, source, destination):
    destination.gate.clear()
    job_id = submit(context, transfers(source, destination, 3))
    wait_until(lambda: destination.now_copying == 3)
    cancelled = fts3.cancel(context, job_id)
    assert (cancelled["job_state"], cancelled["http_status"]) == ("CANCELED", "200 Ok")
    wait_until(lambda: all(file["finish_time"] for file in told(context, job_id)["files"]))
    job = told(context, job_id)
    assert (job["job_state"], states(job)) == ("CANCELED", ["CANCELED"] * 3)
    assert {file["reason"] for file in job["files"]} == {"Job canceled by the user"}
    assert destination.files == {}


def test_a_copy_that_begins_only_after_it_was_cancelled_is_deleted_too(context, source, destination):
    destination.late = True
    job_id = submit(context, transfers(source, destination))
    wait_until(lambda: destination.copying)
    fts3.cancel(context, job_id)
    wait_until(lambda: told(context, job_id)["files"][0]["finish_time"])
    assert (destination.asked["PROPFIND"] > 1, destination.files) == (True, {})
