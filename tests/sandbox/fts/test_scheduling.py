"""Who is copied when: priorities, limits, retries, patience; and what a stop or a kill costs."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import pytest

from tests.sandbox.fts.service import ended, fts3, states, submit, told, transfers, wait_until

CONFIGURER = {"vo": "sandbox", "user": "/CN=operator", "config": True}


def paths(destination, files):
    return [file["destinations"][0].removeprefix(destination.url) for file in files]


def test_of_a_link_the_highest_priority_goes_first(fts, context, source, destination):
    fts.settings(link_active=1)
    destination.gate.clear()
    blocker = transfers(source, destination)
    submit(context, blocker)
    wait_until(lambda: destination.now_copying)
    waiting = {priority: transfers(source, destination, 2) for priority in (2, 4, 3)}
    jobs = [submit(context, files, priority=priority) for priority, files in waiting.items()]
    destination.gate.set()
    for job_id in jobs:
        ended(context, job_id)
    order = [paths(destination, waiting[priority]) for priority in (4, 3, 2)]
    assert destination.copying == [*paths(destination, blocker), *order[0], *order[1], *order[2]]


def test_a_priority_can_be_changed_while_a_job_waits(fts, context, source, destination):
    fts.settings(link_active=1)
    destination.gate.clear()
    submit(context, transfers(source, destination))
    wait_until(lambda: destination.now_copying)
    first, second = transfers(source, destination), transfers(source, destination)
    jobs = [submit(context, first), submit(context, second)]
    assert fts.ask("POST", f"/jobs/{jobs[1]}", {"params": {"priority": 5}})[1]["priority"] == 5
    destination.gate.set()
    for job_id in jobs:
        ended(context, job_id)
    assert destination.copying[1:] == paths(destination, second) + paths(destination, first)


def test_one_link_does_not_keep_another_waiting(fts, context, source, destination, new_storage):
    fts.settings(link_active=2)
    other = new_storage()
    destination.gate.clear()
    stuck = submit(context, transfers(source, destination, 5), priority=5)
    wait_until(lambda: destination.now_copying == 2)
    assert ended(context, submit(context, transfers(source, other)))["job_state"] == "FINISHED"
    fts3.cancel(context, stuck)


@pytest.mark.parametrize(("limit", "value"), [("link_active", 4), ("storage_active", 3), ("max_active", 3)])
def test_limits_of_the_settings_hold(fts, context, source, destination, limit, value):
    """A link begins half way between two copies and its most, and the optimizer may raise that."""
    fts.settings(**{limit: value})
    destination.gate.clear()
    job_id = submit(context, transfers(source, destination, 12))
    wait_until(lambda: destination.now_copying == 3)
    destination.gate.set()
    ended(context, job_id)
    assert destination.most_copying <= value


def test_limits_of_a_link_and_of_a_storage_are_set_by_those_with_the_right(
    fts, context, source, destination, new_storage
):
    fts.tokens(operator=CONFIGURER, user={"vo": "sandbox", "user": "/CN=user"})
    link = {"symbolicname": "one", "source": source.se, "destination": destination.se}
    for token in (None, "user"):
        assert fts.ask("POST", "/config/links", link, token)[0] == 403
        assert fts.ask("GET", "/config/links", token=token)[0] == 403
        assert fts.ask("GET", "/config/se", token=token)[0] == 403
    assert fts.ask("POST", "/config/links", link | {"min_active": 2, "max_active": 2}, "operator")[0] == 200
    default, told_link = fts.ask("GET", "/config/links", token="operator")[1]
    assert (default["source"], default["destination"], default["max_active"]) == ("*", "*", 130)
    assert (told_link["min_active"], told_link["max_active"]) == (2, 2)
    other = new_storage()
    limits = {other.se: {"se_info": {"inbound_max_active": 1}}}
    assert fts.ask("POST", "/config/se", limits, "operator")[0] == 200
    assert fts.ask("GET", f"/config/se?se={other.se}", token="operator")[1][other.se]["se_info"] == {
        "inbound_max_active": 1, "outbound_max_active": None,
    }  # fmt: skip
    for place in (destination, other):
        place.gate.clear()
    jobs = [submit(context, transfers(source, place, 6)) for place in (destination, other)]
    wait_until(lambda: (destination.now_copying, other.now_copying) == (2, 1))
    for place in (destination, other):
        place.gate.set()
    for job_id in jobs:
        ended(context, job_id)
    assert (destination.most_copying, other.most_copying) == (2, 1)
    assert fts.ask("DELETE", "/config/links/one", token="operator")[0] == 204
    assert fts.ask("GET", "/config/links/one", token="operator")[0] == 404
    assert fts.ask("DELETE", f"/config/se?se={other.se}", token="operator")[0] == 204
    default = {"se_info": {"inbound_max_active": 200, "outbound_max_active": 200}, "operations": {}}
    assert fts.ask("GET", "/config/se", token="operator")[1] == {"*": default}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/config/links", {"source": "x"}),
        ("/config/links", {"symbolicname": "x", "min_active": 3, "max_active": 2}),
        ("/config/links", {"symbolicname": "x", "max_active": "many"}),
        ("/config/se", {"": {"se_info": {}}}),
        ("/config/se", {"x": {"se_info": {"inbound_max_active": "many"}}}),
        ("/config/se", ["x"]),
    ],
)
def test_limits_that_are_none_are_refused(fts, path, body):
    fts.tokens(operator=CONFIGURER)
    assert fts.ask("POST", path, body, "operator")[0] == 400


def test_the_next_attempt_waits_for_its_delay(fts, context, source, destination):
    destination.fail_copies = ["failure: once"]
    job_id = submit(context, transfers(source, destination), retry=1, retry_delay=60)
    wait_until(lambda: told(context, job_id)["files"][0]["retry"] == 1)
    job = told(context, job_id)
    assert (job["job_state"], states(job)) == ("ACTIVE", ["SUBMITTED"])
    assert len(destination.copying) == 1
    fts3.cancel(context, job_id)
    fts.settings(time_scale=0.0001)
    destination.fail_copies = ["failure: once"]
    assert (
        ended(context, submit(context, transfers(source, destination), retry=1, retry_delay=60))["job_state"]
        == "FINISHED"
    )


def test_there_is_a_pause_before_the_next_attempt_in_any_case(fts, context, source, destination):
    fts.settings(retry_pause=3600)
    destination.fail_copies = ["failure: once"]
    job_id = submit(context, transfers(source, destination), retry=1)
    wait_until(lambda: told(context, job_id)["files"][0]["retry"] == 1)
    assert states(told(context, job_id)) == ["SUBMITTED"]
    fts3.cancel(context, job_id)


def test_a_negative_number_of_retries_is_none_and_zero_is_the_servers_own(fts, context, source, destination):
    fts.settings(retries=1)
    for retry, state in ((-1, "FAILED"), (0, "FINISHED")):
        destination.fail_copies = ["failure: once"]
        job = ended(context, submit(context, transfers(source, destination), retry=retry))
        assert job["job_state"] == state


def test_a_job_that_waits_too_long_is_cancelled(fts, context, source, destination):
    fts.settings(link_active=1)
    destination.gate.clear()
    job_id = submit(context, transfers(source, destination, 3), max_time_in_queue="8s")
    wait_until(lambda: states(told(context, job_id))[1:] == ["CANCELED"] * 2)
    job = told(context, job_id)
    assert {file["reason"] for file in job["files"][1:]} == {
        "Job has been canceled because it stayed in the queue for too long"
    }
    assert (job["files"][0]["file_state"], job["job_finished"]) == ("ACTIVE", None)
    destination.gate.set()
    assert ended(context, job_id)["job_state"] == "FINISHEDDIRTY"


def test_max_time_in_queue_is_in_hours_and_none_without(fts, context, source, destination):
    fts.settings(time_scale=0.5)
    before = time.time()
    [hours, endless] = [
        told(context, submit(context, transfers(source, destination), max_time_in_queue=limit))
        for limit in (2, None)
    ]
    assert before + 3600 - 1 <= hours["max_time_in_queue"] <= time.time() + 3600
    assert endless["max_time_in_queue"] is None


def test_a_job_that_waits_is_cancelled_at_once(fts, context, source, destination):
    fts.settings(link_active=1)
    destination.gate.clear()
    blocker = submit(context, transfers(source, destination))
    wait_until(lambda: destination.now_copying)
    job_id = submit(context, transfers(source, destination, 2))
    fts3.cancel(context, job_id)
    job = told(context, job_id)
    assert (job["job_state"], states(job)) == ("CANCELED", ["CANCELED"] * 2)
    assert all(file["finish_time"] for file in job["files"])
    destination.gate.set()
    ended(context, blocker)
    assert len(destination.copying) == 1


def test_files_of_a_storage_that_is_banned_with_wait_as_are_on_hold_until_it_is_over(
    fts, context, source, destination
):
    """WAIT_AS: wait, and allow submissions; those that came before it wait too, and what is active goes on."""
    fts.settings(link_active=1)
    destination.gate.clear()
    before = submit(context, transfers(source, destination, 2))
    wait_until(lambda: destination.now_copying)
    fts.settings(link_active=1, held=[destination.se])
    after = submit(context, transfers(source, destination))
    wait_until(lambda: sorted(states(told(context, before))) == ["ACTIVE", "ON_HOLD"])
    assert states(told(context, after)) == ["ON_HOLD"]
    destination.gate.set()
    wait_until(lambda: sorted(states(told(context, before))) == ["FINISHED", "ON_HOLD"])
    assert told(context, before)["job_finished"] is None
    fts.settings()
    assert [ended(context, job)["job_state"] for job in (before, after)] == ["FINISHED"] * 2


def test_a_ban_that_lasts_too_long_cancels_files_one_by_one(fts, context, source, destination, new_storage):
    other = new_storage()
    fts.settings(held=[destination.se], hold_timeout=0.01)
    some = [*transfers(source, destination), *transfers(source, other)]
    job = ended(context, submit(context, some))
    assert (job["job_state"], sorted(states(job))) == ("FINISHEDDIRTY", ["CANCELED", "FINISHED"])
    assert job["cancel_job"] is False


def test_a_cancel_leaves_files_on_hold_as_they_are(fts, context, source, destination):
    fts.settings(held=[destination.se])
    job_id = submit(context, transfers(source, destination))
    assert states(told(context, job_id)) == ["ON_HOLD"]
    fts3.cancel(context, job_id)
    fts.settings()
    later = submit(context, transfers(source, destination))
    assert ended(context, later)["job_state"] == "FINISHED", "the scheduler has had its turn"
    job = told(context, job_id)
    assert (job["job_state"], states(job)) == ("CANCELED", ["ON_HOLD"])


def test_a_file_that_waits_for_its_token_moves_though_its_job_was_cancelled(fts, source, destination):
    """So does the real service (3.14.4): the job stays cancelled."""
    fts.tokens(one={"vo": "sandbox", "user": "/CN=one"})
    context = fts.context("one")
    fts.settings(token_prep=0.5)
    job_id = submit(context, transfers(source, destination))
    fts3.cancel(context, job_id)
    job = told(context, job_id)
    assert (job["job_state"], states(job)) == ("CANCELED", ["TOKEN_PREP"])
    wait_until(lambda: states(told(context, job_id)) == ["FINISHED"])
    assert told(context, job_id)["job_state"] == "CANCELED"
    assert len(destination.files) == 1


def test_files_with_tokens_wait_until_these_are_prepared(fts, context, source, destination):
    fts.tokens(one={"vo": "sandbox", "user": "/CN=one"})
    fts.settings(token_prep=0.01)
    job_id = submit(fts.context("one"), transfers(source, destination))
    assert ended(fts.context("one"), job_id)["job_state"] == "FINISHED"
    assert states(ended(context, submit(context, transfers(source, destination)))) == ["FINISHED"]


def test_single_files_of_a_job_are_cancelled(fts, context, source, destination):
    fts.settings(link_active=1)
    destination.gate.clear()
    job_id = submit(context, transfers(source, destination, 3))
    wait_until(lambda: destination.now_copying)
    first, second, _ = (file["file_id"] for file in told(context, job_id)["files"])
    assert fts3.cancel(context, job_id, [second]) == "CANCELED"
    assert fts3.cancel(context, job_id, [second, 10**9]) == ["CANCELED", "File does not belong to the job"]
    assert fts3.cancel(context, job_id, [first]) == "CANCELED"
    destination.gate.set()
    job = ended(context, job_id)
    assert states(job) == ["CANCELED", "CANCELED", "FINISHED"]
    assert list(destination.files) == [job["files"][2]["dest_surl"].removeprefix(destination.url)]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_service_that_ends_in_the_middle_loses_no_job(own_fts, source, destination, end):
    own_fts.start()
    own_fts.settings(link_active=2)
    context = own_fts.context()
    destination.gate.clear()
    job_id = submit(context, transfers(source, destination, 5), retry=0)
    cancelled = submit(context, transfers(source, destination))
    wait_until(lambda: destination.now_copying == 2)
    fts3.cancel(context, cancelled)
    getattr(own_fts, end)()
    if end == "stop":
        assert destination.files == {}
    destination.gate.set()
    wait_until(lambda: destination.now_copying == 0)
    own_fts.start()
    job = ended(context, job_id)
    assert (job["job_state"], states(job)) == ("FINISHED", ["FINISHED"] * 5)
    assert [file["retry"] for file in job["files"]] == [0] * 5
    assert fts3.get_job_status(context, cancelled)["job_state"] == "CANCELED"
    assert sorted(destination.files) == sorted(
        file["dest_surl"].removeprefix(destination.url) for file in job["files"]
    )


def test_what_a_cancelled_copy_left_is_deleted_after_a_kill(own_fts, source, destination):
    own_fts.start()
    context = own_fts.context()
    destination.gate.clear()
    destination.deaf = True  # nothing is deleted while it is
    job_id = submit(context, transfers(source, destination))
    wait_until(lambda: destination.now_copying)
    fts3.cancel(context, job_id)
    own_fts.kill()
    assert len(destination.files) == 1
    destination.deaf = False
    destination.gate.set()
    wait_until(lambda: destination.now_copying == 0)
    own_fts.start()
    wait_until(lambda: told(context, job_id)["files"][0]["finish_time"])
    assert destination.files == {}


def test_the_database_is_for_its_owner_only_and_in_wal_mode(fts, context, source, destination):
    ended(context, submit(context, transfers(source, destination)))
    for file in fts.folder.glob("fts.db*"):
        assert file.stat().st_mode & 0o077 == 0, file
    with closing(sqlite3.connect(fts.folder / "fts.db")) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
