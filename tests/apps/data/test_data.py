"""`data make`, `list`, `drop`: what is printed, asked and refused; services are those of the back ends' tests."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from datetime import timedelta
from threading import Event, Lock

import pytest

from dc_inject.apps.data import command, sets
from dc_inject.backends.rucio.connection import Connection
from dc_inject.menu import source_lists
from dc_inject.model.errors import Permanent, Temporary, UsageError
from dc_inject.model.events import Silent
from dc_inject.storage import AccessDenied
from tests.backends.catalogue import Catalogue
from tests.backends.fake import FakeRse
from tests.cli.ledgers import run
from tests.storage.server import hang, running, status
from tests.wording import lines

RSE = "T2_XX_SCRATCHDISK"


@pytest.fixture(autouse=True)
def nobody(monkeypatch, tmp_path):
    """No credentials of whoever runs the tests."""
    for name in [name for name in os.environ if "TOKEN" in name or name.startswith("X509_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def dav():
    with running() as server:
        server.put("/dc/theirs")
        yield server


@pytest.fixture
def prefix(dav) -> str:
    return f"{dav.url}/dc"


@pytest.fixture
def server(dav, monkeypatch) -> Catalogue:
    made = Catalogue(rses={RSE: FakeRse()}, doors={RSE: f"{dav.url}/rse"}, register={RSE})
    connection = Connection(
        timeout=60, clock=made.clock, observer=Silent(), make=made.client, sleep=lambda _: None
    )
    monkeypatch.setattr(sets, "rucio", lambda timeout: connection)
    return made


def files(dav) -> set[str]:
    return set(dav.files) - {"/dc/theirs"}


def made(at, *more):
    done = run("data", "make", at, "one", "--files", "5", "--size", "2kB", *more)
    assert done.exit_code == 0, done.exception
    return done


def killed(dav, prefix, arrived: int) -> None:
    """Kill a making, as no program can answer to, when so many files have arrived and more are on their way."""
    lock, stuck, left = Lock(), Event(), [arrived]

    def some(handler):
        if handler.name.rpartition("/")[0] not in dav.folders:
            return handler.on_put()  # which says that it is missing
        with lock:
            left[0] -= 1
            if left[0] >= 0:
                return handler.on_put()
        stuck.set()
        return hang(handler)

    dav.tricks["PUT"] = some
    command = [sys.executable, "-m", "dc_inject", "data", "make", prefix, "one", "--files", "5", "--size", "2kB"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert stuck.wait(60)
    finally:
        process.kill()
        process.wait(60)
        del dav.tricks["PUT"]


# A storage


def test_the_list_of_a_set_at_a_storage_is_one_that_menus_read(dav, prefix):
    done = made(prefix)
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert {row["url"].removeprefix(dav.url) for row in rows} == files(dav)
    complaints = []
    read = source_lists.read(
        done.stdout.encode(), "sources.csv", "sources.csv", lambda *wrong: complaints.append(wrong)
    )
    assert complaints == []
    assert {(one.name, one.bytes, one.checksum) for one in read.files} == {
        (row["url"], 2000, row["checksum"]) for row in rows
    }
    assert "made one (5 files of 2 kB)" in done.stderr


def test_the_same_command_again_prints_the_same_and_writes_nothing(dav, prefix):
    first, dav.asked[:] = made(prefix).stdout, []
    assert made(prefix).stdout == first
    assert not [line for line in dav.asked if line.startswith("PUT")]


def test_a_dry_run_writes_nothing_and_tells_what_is_missing(dav, prefix):
    row = json.loads(made(prefix, "--dry-run", "--format", "json").stdout)[0]
    assert (row["missing"], row["missing_bytes"]) == (5, 10_000)
    assert row["first"] == f"{prefix}/dc_inject-data/one/5x2000/000001.dat"
    assert files(dav) == set()
    made(prefix)
    row = json.loads(made(prefix, "--dry-run", "--format", "json").stdout)[0]
    assert (row["missing"], row["first"]) == (0, None)


def test_off_a_terminal_each_tenth_is_told_once(dav, prefix):
    done = run("data", "make", prefix, "one", "--files", "20", "--size", "1kB", "--parallel", "3")
    told = [line for line in done.stderr.splitlines() if line.endswith("uploaded")]
    assert len(told) == 10
    assert "20 kB of 20 kB uploaded" in told


def test_a_storage_without_checksums_is_told_of(dav, prefix, wording):
    real = dav.tricks

    def quiet(handler):
        content = dav.files.get(handler.name)
        handler.answer(404) if content is None else handler.answer(200, Content_Length=str(len(content)))

    real["HEAD"] = quiet
    wording(lines(made(prefix).stderr, "checksums"))


def test_ctrl_c_keeps_what_has_arrived_and_says_how_to_go_on(dav, prefix, monkeypatch, wording):
    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "fill", interrupted)
    done = run("data", "make", prefix, "one", "--files", "5", "--size", "2kB")
    assert done.exit_code == 130
    wording(done.stderr)


@pytest.mark.parametrize("arrived", [0, 1, 3])
def test_killed_at_any_moment_it_goes_on_and_ends_with_the_same_set(dav, prefix, arrived):
    lists, whole = made(prefix).stdout, dict(dav.files)
    run("data", "drop", prefix, "one", "--yes")
    killed(dav, prefix, arrived)
    assert len(files(dav)) == arrived
    cut = "/dc/dc_inject-data/one/5x2000/000005.dat"
    kept = set(dav.files) - {cut}
    dav.put(cut, b"cut off")
    dav.asked.clear()
    assert made(prefix).stdout == lists
    assert dav.files == whole
    # The last file may have been among those that arrived; and the killed process's lines may come late.
    assert {line.removeprefix("PUT ") for line in dav.asked if line.startswith("PUT")} == set(whole) - kept


def test_trouble_that_passes_says_how_to_go_on_and_a_refusal_what_to_ask_for(dav, prefix, monkeypatch, wording):
    def away(*_args, **_kwargs):
        raise Temporary("no answer in time")

    dav.tricks["PUT"] = status(403)
    done = run("data", "make", prefix, "one", "--files", "5", "--size", "2kB")
    wording(done.exception.hint)
    monkeypatch.setattr(command, "fill", away)
    done = run("data", "make", prefix, "one", "--files", "5", "--size", "2kB")
    wording(done.stderr)
    assert isinstance(done.exception, Temporary)


@pytest.mark.parametrize(
    "arguments",
    [
        ["root://se.example.org//dc", "one", "--files", "1", "--size", "1B"],
        ["davs://se.example.org/dc", "one", "--files", "1", "--size", "1B", "--scope", "x"],
        ["davs://se.example.org/dc", "one", "--files", "1", "--size", "1B", "--lifetime", "1d"],
        ["davs://se.example.org/dc", "a/b", "--files", "1", "--size", "1B"],
        ["davs://se.example.org/dc", "one", "--files", "1", "--size", "1"],
        ["davs://se.example.org/dc", "one", "--files", "100001", "--size", "1B"],
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_asked(arguments, wording):
    done = run("data", "make", *arguments)
    assert isinstance(done.exception, UsageError)
    wording(done.exception)


def test_sets_at_a_storage_are_listed(dav, prefix):
    made(prefix)
    (row,) = json.loads(run("data", "list", prefix, "--format", "json").stdout)
    assert (row["set"], row["at"], row["files"], row["of"], row["bytes"]) == ("one", prefix, 5, 5, 10_000)
    assert run("data", "list", prefix).stdout.split()[:5] == ["set", "at", "files", "of", "each"]


def test_dropping_asks_and_deletes_only_with_a_yes(dav, prefix, wording):
    made(prefix)
    there = files(dav)
    done = run("data", "drop", prefix, "one")
    wording(done.stderr)
    assert run("data", "drop", prefix, "one", "--dry-run").stdout.startswith("would: delete 5 files")
    assert files(dav) == there
    assert run("data", "drop", prefix, "one", "--yes").exit_code == 0
    assert (set(dav.files), dav.folders) == ({"/dc/theirs"}, {"", "/dc", "/dc/dc_inject-data"})
    done = run("data", "drop", prefix, "one", "--yes")
    assert "no set 'one'" in str(done.exception)


# Rucio


def test_a_set_at_an_rse_prints_its_datasets(server, dav):
    done = made(RSE, "--dataset-files", "2")
    assert done.stdout.splitlines() == [
        f"user.dcops:dc_inject-data.one.5x2000by2.00000{number}" for number in (1, 2, 3)
    ]
    assert len(files(dav)) == 5
    assert made(RSE, "--dataset-files", "2").stdout == done.stdout


def test_a_dry_run_at_an_rse_tells_account_scope_and_quota(server, dav):
    row = json.loads(made(RSE, "--dry-run", "--format", "json").stdout)[0]
    assert (row["account"], row["scope"], row["scope_owned"]) == ("dcops", "user.dcops", True)
    assert row["quota_left"] == 10**15 - 1
    assert row["first"].startswith(f"{dav.url}/rse/user/dcops/")
    assert server.datasets == {}


def test_an_administrators_account_is_refused_unless_it_is_meant(server, dav):
    server.attributes = [{"key": "admin", "value": True}]
    done = run("data", "make", RSE, "one", "--files", "5", "--size", "2kB")
    assert "administrator" in str(done.exception)
    assert server.datasets == {}
    made(RSE, "--allow-admin")


def test_the_lifetime_is_given_to_datasets_and_can_be_none(server):
    made(RSE, "--lifetime", "2 d")
    now = server.clock.now().replace(tzinfo=None)
    assert set(server.expired.values()) == {now + timedelta(days=2)}
    assert run("data", "make", RSE, "two", "--files", "1", "--size", "1kB", "--lifetime", "none").exit_code == 0
    assert None in server.expired.values()
    done = run("data", "make", RSE, "two", "--files", "1", "--size", "1kB", "--lifetime", "soon")
    assert isinstance(done.exception, UsageError)


def test_sets_in_rucio_are_listed_and_dropped_after_asking(server, dav, wording):
    made(RSE)
    (row,) = json.loads(run("data", "list", "--format", "json").stdout)
    assert (row["set"], row["at"], row["scope"], row["files"], row["datasets"]) == ("one", RSE, "user.dcops", 5, 1)
    assert row["until"] == "2027-03-10T10:00:00Z"
    assert json.loads(run("data", "list", "OTHER", "--format", "json").stdout) == []
    server._rule("user.dcops", row["set"] and min(server.datasets)[1], "B", "dcops", {"comments": "dc_inject/1"})
    done = run("data", "drop", RSE, "one")
    wording(done.stderr)
    assert set(server.expired.values()) != {None}
    wording(done.stderr)
    done = run("data", "drop", RSE, "one", "--yes")
    assert "erased 1 dataset" in done.stderr
    server.clock.time += timedelta(seconds=2)
    assert len(server.tidy()) >= 5
    assert isinstance(run("data", "drop", RSE, "one", "--yes").exception, UsageError)


def test_a_refusal_of_rucio_is_final_and_does_not_ask_to_try_again(server):
    server.register.clear()
    done = run("data", "make", RSE, "one", "--files", "5", "--size", "2kB")
    assert isinstance(done.exception, Permanent)
    assert "again" not in done.stderr


# --------------------------------------------------------------------------- whom the token goes to


def test_over_plain_http_a_token_goes_only_to_an_address_that_a_person_names(server, dav, prefix, monkeypatch):
    monkeypatch.setenv("BEARER_TOKEN", "abc")
    refused = run("data", "make", RSE, "t", "--files", "1", "--size", "1kB")
    assert isinstance(refused.exception, AccessDenied)
    address = dav.url.partition("://")[2]
    assert f"--trust-host {address} " in str(refused.exception.hint)
    assert not dav.asked
    assert run("data", "make", prefix, "t", "--files", "1", "--size", "1kB").exit_code == 0
    named = run("--trust-host", address, "data", "make", RSE, "t", "--files", "1", "--size", "1kB")
    assert named.exit_code == 0, named.exception
