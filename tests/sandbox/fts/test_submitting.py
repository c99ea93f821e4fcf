"""What FTS takes and what it refuses, asked by its real client."""

from __future__ import annotations

import uuid

import pytest
import requests

from tests.sandbox.fts.service import ended, fts3, states, submit, transfers
from tests.sandbox.fts.webdav import Storage

BASE_ID = uuid.UUID("01874efb-4735-4595-bc9c-591aef8240c9")


def test_the_service_tells_its_version_and_who_asks(context):
    assert context.endpoint_info["api"] == {"major": 3, "minor": 14, "patch": 2}
    me = fts3.whoami(context)
    assert (me["vos"], me["user_dn"], me["base_id"]) == (["sandbox"], "/CN=anonymous", str(BASE_ID))


def test_a_deterministic_job_has_the_id_that_the_client_can_foretell(context, source, destination):
    sid = uuid.uuid4().hex
    job_id = submit(context, transfers(source, destination), id_generator="deterministic", sid=sid)
    assert job_id == str(uuid.uuid5(uuid.uuid5(BASE_ID, "sandbox"), sid))


def test_the_same_job_again_is_a_conflict_and_changes_nothing(fts, context, source, destination):
    files, words = transfers(source, destination, 2), {"id_generator": "deterministic", "sid": uuid.uuid4().hex}
    job_id = submit(context, files, **words)
    with pytest.raises(fts3.exceptions.ClientError, match="409"):
        submit(context, files, **words)
    other = {"sources": ["http://a/x"], "destinations": ["http://b/x"]}
    again = {"files": [other], "params": words}  # also with other content
    duplicated = {"message": "The sid provided by the user is duplicated"}
    assert fts.ask("POST", "/jobs", again) == (409, duplicated)
    assert states(ended(context, job_id)) == ["FINISHED"] * 2
    assert fts.ask("POST", "/jobs", again) == (409, duplicated)
    assert len(destination.copying) == 2


def test_what_was_said_about_a_job_and_its_files_comes_back(context, source, destination):
    files = transfers(source, destination, metadata={"key": "k1"}, activity="Data Challenge", scitag=142)
    job = ended(context, submit(context, files, metadata={"campaign": "dc27"}, priority=5, retry=2, retry_delay=1))
    assert job["job_metadata"] == {"campaign": "dc27", "auth_method": "unauthenticated"}
    assert (job["priority"], job["retry"], job["retry_delay"], job["vo_name"]) == (5, 2, 1, "sandbox")
    [file] = job["files"]
    assert file["file_metadata"] == {"key": "k1"}
    assert (file["activity"], file["scitag"]) == ("Data Challenge", 142)
    assert (file["source_surl"], file["dest_surl"]) == (files[0]["sources"][0], files[0]["destinations"][0])
    assert (file["source_se"], file["dest_se"]) == (source.se, destination.se)
    assert (file["filesize"], file["retry"]) == (len(next(iter(source.files.values()))), 0)
    assert file["start_time"] <= file["finish_time"] == job["job_finished"]


@pytest.mark.parametrize(
    ("source_url", "words"),
    [
        ("no-scheme/x", "Missing scheme"),
        ("file:///etc/passwd", "Can not transfer local files"),
        ("http:///x", "Missing host"),
        ("http://host/", "Missing path"),
        ("http://host:port/x", "[Pp]ort"),
    ],
)
def test_an_address_that_is_none_is_refused(context, source_url, words):
    with pytest.raises(fts3.exceptions.ClientError, match=f"Bad request: .*{words}"):
        submit(context, [fts3.new_transfer(source_url, "http://127.0.0.1/x")])


@pytest.mark.parametrize("whose", ["file", "job"])
def test_metadata_of_1024_bytes_is_taken_and_one_byte_more_refused(context, source, destination, whose):
    def submit_with(length):
        metadata = {"k": "x" * (length - len('{"k": ""}'))}
        of_file, of_job = ({"metadata": metadata}, {}) if whose == "file" else ({}, {"metadata": metadata})
        return submit(context, transfers(source, destination, **of_file), **of_job)

    submit_with(1024)
    with pytest.raises(fts3.exceptions.ClientError, match="Metadata too large"):
        submit_with(1025)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, "Badly formatted JSON request"),
        (b"[]", 400, "Malformed request"),
        (b'{"params": {}}', 400, "No transfers operations specified"),
        (b'{"files": []}', 400, "No valid pairs available"),
        (b'{"files": [{"sources": ["http://h/x"]}]}', 400, "Missing parameter"),
        (b'{"files": [{"sources": [7], "destinations": ["http://h/x"]}]}', 400, "Malformed request"),
        (b'{"files": [], "params": {"priority": "high"}}', 400, "Invalid value"),
        (b'{"delete": ["http://h/x"]}', 405, "Deletion jobs are no longer supported"),
    ],
)
def test_a_body_that_is_no_job_is_refused_in_the_words_of_fts(fts, body, status, words):
    answered, told = fts.ask("POST", "//jobs", body)
    assert answered == status
    assert told["status"].startswith(f"{status} ")
    assert words in told["message"]


def test_a_scitag_out_of_range_is_refused_by_the_service_too(fts, context, source, destination):
    [file] = transfers(source, destination)
    status, told = fts.ask("POST", "/jobs", {"files": [file | {"scitag": 64}]})
    assert (status, "SciTag" in told["message"]) == (400, True)


def test_a_deletion_job_is_refused(context):
    with pytest.raises(fts3.exceptions.MethodNotAllowed):
        fts3.submit(context, fts3.new_delete_job(["http://127.0.0.1/x"]))


def test_a_banned_storage_is_forbidden_and_a_lifted_ban_is_seen_at_once(fts, context, source, destination):
    fts.settings(banned=[destination.se])
    with pytest.raises(fts3.exceptions.Unauthorized, match=f"{destination.se} is banned"):
        submit(context, transfers(source, destination))
    fts.settings()
    submit(context, transfers(source, destination))


def test_a_body_that_is_too_long_is_refused(fts, context, source, destination):
    fts.settings(max_body=2000)
    submit(context, transfers(source, destination))
    with pytest.raises(fts3.exceptions.ClientError, match="413"):
        submit(context, transfers(source, destination, 10))


def test_the_next_submits_can_be_told_to_try_again(fts, context, source, destination):
    fts.settings(submit_503=2)
    for _ in range(2):
        with pytest.raises(fts3.exceptions.TryAgain):
            submit(context, transfers(source, destination))
    submit(context, transfers(source, destination))


def test_an_answer_can_get_lost_after_the_job_was_taken(fts, context, source, destination):
    fts.settings(lose_answers=1)
    files, words = transfers(source, destination), {"id_generator": "deterministic", "sid": uuid.uuid4().hex}
    with pytest.raises(requests.ConnectionError):
        submit(context, files, **words)
    with pytest.raises(fts3.exceptions.ClientError, match="409"):
        submit(context, files, **words)


def test_settings_that_cannot_be_read_leave_the_last_ones_in_force(fts, context, source, destination):
    fts.settings(banned=[source.se])
    with pytest.raises(fts3.exceptions.Unauthorized):
        submit(context, transfers(source, destination))
    fts.settings(baned=[source.se])  # no such key
    with pytest.raises(fts3.exceptions.Unauthorized):
        submit(context, transfers(source, destination))
    (fts.folder / "settings.json").write_text("{")
    with pytest.raises(fts3.exceptions.Unauthorized):
        submit(context, transfers(source, destination))
    assert "settings.json cannot be read" in fts.log.read_text()


def test_of_several_sources_the_next_is_tried_when_one_fails(context, source, destination, new_storage):
    other: Storage = new_storage()
    [file] = transfers(source, destination)
    path = "/data/copy"
    other.put(path, source.files.popitem()[1])
    file["sources"].append(other.url + path)
    job = ended(context, submit(context, [file]))
    assert (job["job_state"], job["job_type"]) == ("FINISHED", "R")
    assert states(job) == ["FAILED", "FINISHED"]


def test_of_several_sources_the_others_are_not_used_when_the_first_works(
    context, source, destination, new_storage
):
    [file] = transfers(source, destination)
    file["sources"].append(new_storage().url + "/data/x")
    job = ended(context, submit(context, [file]))
    assert (job["job_state"], states(job)) == ("FINISHED", ["FINISHED", "NOT_USED"])
