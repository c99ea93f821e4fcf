"""The sandbox's FTS over real storages: encrypted, stopped in the middle, cancelled in the middle."""

from __future__ import annotations

import uuid

import pytest

from tests.sandbox.fts.service import ended, fts3, reason, states, submit, told, wait_until

SIZE = 2_000_000


@pytest.fixture
def real(storage_grid):
    """The client of the grid's FTS, a source file on XRD1, and an empty folder of the test's own on XRD2."""
    under = f"/fts-tests/{uuid.uuid4().hex}"
    source = storage_grid.put("XRD1", f"{under}/source", SIZE, seed=1)
    yield fts3.Context(storage_grid.fts_url), source, under
    for name in storage_grid.storages:
        storage_grid.throttle(name, None)


def transfers(grid, source, under, count, scheme="http"):
    """Copy the source from XRD1 to XRD2 many times."""
    urls = {name: url.replace("http", scheme, 1) for name, url in grid.storages.items()}
    return [
        fts3.new_transfer(
            urls["XRD1"] + source.path,
            f"{urls['XRD2']}{under}/in/{number // 2}/{number}",
            checksum=f"ADLER32:{source.adler32}",
            filesize=source.size,
        )
        for number in range(count)
    ]


def arrived(grid, under):
    return grid.storage_files("XRD2", f"{under}/in")


@pytest.mark.sandbox
@pytest.mark.parametrize("scheme", ["http", "https", "davs"])
def test_bytes_cross_between_storages(storage_grid, real, scheme):
    context, source, under = real
    job = ended(context, submit(context, transfers(storage_grid, source, under, 4, scheme)))
    assert states(job) == ["FINISHED"] * 4
    assert sorted(arrived(storage_grid, under).values()) == [SIZE] * 4
    paths = [
        file["dest_surl"].removeprefix(storage_grid.storages["XRD2"].replace("http", scheme, 1))
        for file in job["files"]
    ]
    assert {storage_grid.storage_file("XRD2", path).adler32 for path in paths} == {source.adler32}


@pytest.mark.sandbox
def test_a_storage_that_stops_in_the_middle_costs_attempts_and_no_files(storage_grid, real):
    context, source, under = real
    storage_grid.throttle("XRD2", 1_000_000)
    job_id = submit(context, transfers(storage_grid, source, under, 10), retry=10)
    wait_until(lambda: "ACTIVE" in states(told(context, job_id)) and arrived(storage_grid, under))
    storage_grid.stop_storage("XRD2")
    wait_until(lambda: any(file["retry"] for file in told(context, job_id)["files"]))
    storage_grid.throttle("XRD2", None)  # which starts it
    job = ended(context, job_id)
    assert (job["job_state"], states(job)) == ("FINISHED", ["FINISHED"] * 10)
    assert sorted(arrived(storage_grid, under).values()) == [SIZE] * 10


@pytest.mark.sandbox
def test_a_copy_that_is_cancelled_in_the_middle_leaves_nothing(storage_grid, real):
    context, source, under = real
    storage_grid.throttle("XRD2", 500_000)
    job_id = submit(context, transfers(storage_grid, source, under, 4))
    wait_until(lambda: arrived(storage_grid, under))
    fts3.cancel(context, job_id)
    wait_until(lambda: all(file["finish_time"] for file in told(context, job_id)["files"]))
    assert "CANCELED" in states(told(context, job_id))
    finished = states(told(context, job_id)).count("FINISHED")
    assert len(arrived(storage_grid, under)) == finished


@pytest.mark.sandbox
def test_a_file_that_is_there_is_left_alone_by_real_storages_too(storage_grid, real):
    context, source, under = real
    [file] = transfers(storage_grid, source, under, 1)
    storage_grid.put("XRD2", f"{under}/in/0/0", 10, seed=2)
    job = ended(context, submit(context, [file]))
    assert reason(job) == "DESTINATION [17] Destination file exists and overwrite is not enabled"
    assert list(arrived(storage_grid, under).values()) == [10]
