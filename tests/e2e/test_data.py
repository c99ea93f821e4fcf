"""Test data on real storages, as an ordinary account: made, seen by Rucio, injected, and nothing left of it."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dc_inject.backends.rucio import RucioBackend
from dc_inject.model import DatasetFilter, Link
from dc_inject.model.events import Silent
from dc_inject.model.ports import Candidate, ReplicaStatus
from dc_inject.sandbox import Rse, Sandbox
from dc_inject.system.clock import SystemClock
from tests.conftest import client_for, rucio_config
from tests.e2e.tool import Tool, until
from tests.sandbox.rules import inject, state

pytestmark = pytest.mark.sandbox


@pytest.fixture
def tool(storage_grid: Sandbox, tmp_path: Path) -> Iterator[Tool]:
    made = Tool(tmp_path, storage_grid.config)
    try:
        yield made
    finally:
        made.kill()


def on_disk(grid: Sandbox, storage: str, under: str) -> dict[str, tuple[int, str]]:
    """Size and checksum of all files on disk below a folder, by path; those that go meanwhile are left out."""
    there = {}
    for path in grid.storage_files(storage, under):
        with suppress(FileNotFoundError):
            file = grid.storage_file(storage, path)
            there[path] = (file.size, file.adler32)
    return there


def is_locked(status: ReplicaStatus) -> bool:
    return status.closed and status.source_complete and status.source_locked


def test_a_set_at_an_rse_is_registered_injected_and_erased_with_all_its_copies(storage_grid, tool, label):
    source, destination, refused = f"{label}_SCRATCHDISK", f"{label}_TO", f"{label}_FROM"
    storage_grid.add(
        [Rse(source, 10**12, on="XRD1"), Rse(destination, 10**12, on="XRD2"), Rse(refused, 10**12, on="XRD1")], {}
    )
    arguments = ("--files", 5, "--size", "300kB", "--dataset-files", 3)
    no = tool.run("data", "make", refused, f"no-{label}", *arguments, code=4)
    assert no.out == ""
    assert f"add_replicas at {refused}" in no.err
    assert on_disk(storage_grid, "XRD1", f"/rucio/{refused}") == {}

    done = tool.run("data", "make", source, label, *arguments)
    dids = [dict(zip(("scope", "name"), line.split(":"), strict=True)) for line in done.out.splitlines()]
    there = on_disk(storage_grid, "XRD1", f"/rucio/{source}")
    assert len(dids) == 2
    assert len(there) == 5
    client = client_for(storage_grid.config)
    told = list(client.list_replicas(dids))
    door = storage_grid.storages["XRD1"]
    assert {
        url.removeprefix(door): (one["bytes"], one["adler32"]) for one in told for url in one["rses"][source]
    } == there
    assert tool.run("data", "make", source, label, *arguments).out == done.out
    assert on_disk(storage_grid, "XRD1", f"/rucio/{source}") == there

    with rucio_config(storage_grid.config):
        backend = RucioBackend(campaign="data", clock=SystemClock(), observer=Silent())
        every = DatasetFilter((f"{dids[0]['scope']}:*",), mean_file=(1, 10**9))
        until(lambda: len(list(backend.inventory(source, every))) == 2, "Rucio's own sums of the datasets")
        items = {item.name: (item.bytes, item.files) for item in backend.inventory(source, every)}
        candidates = [Candidate(name, Link(source, destination)) for name in items]
        until(
            lambda: all(map(is_locked, backend.check_replicas(candidates).values())), "Rucio's locks at the source"
        )
    assert items == dict(zip(done.out.splitlines(), [(900_000, 3), (600_000, 2)], strict=True))

    rule = inject(client, dids[0]["scope"], dids[0]["name"], source, destination)
    until(lambda: state(client, rule) == "OK", "the copies")
    copies = on_disk(storage_grid, "XRD2", f"/rucio/{destination}")
    assert len(copies) == 3
    assert set(copies.values()) <= set(there.values())
    (row,) = tool.run("data", "list", source, "--format", "json").json
    assert (row["files"], row["of"], row["datasets"], row["rules_elsewhere"]) == (5, 5, 2, 1)

    tool.run("data", "drop", source, label, "--yes")
    until(lambda: on_disk(storage_grid, "XRD1", f"/rucio/{source}") == {}, "the files at the source go")
    until(lambda: on_disk(storage_grid, "XRD2", f"/rucio/{destination}") == {}, "the copies go")
    assert list(client.list_dids(dids[0]["scope"], [{"name": f"dc_inject-data.{label}.*"}])) == []


def test_an_administrator_makes_a_set_that_the_owner_of_the_scope_drops(storage_grid, tool, label):
    arguments = ("data", "make", "XRD1", label, "--files", 2, "--size", "1MB", "--scope", "user.dcops")
    before = on_disk(storage_grid, "XRD1", "/rucio/XRD1")
    refused = tool.run(*arguments, config=storage_grid.root_config, code=2)
    assert "--allow-admin" in refused.err
    tool.run(*arguments, "--allow-admin", config=storage_grid.root_config)
    assert len(on_disk(storage_grid, "XRD1", "/rucio/XRD1")) == len(before) + 2
    tool.run("data", "drop", "XRD1", label, "--yes")
    until(lambda: on_disk(storage_grid, "XRD1", "/rucio/XRD1") == before, "the files go")


def test_a_set_below_a_prefix_is_made_listed_and_dropped(storage_grid, tool, label):
    folder = f"/data-{label.lower()}"
    storage_grid.put("XRD1", f"{folder}/theirs", 100)
    prefix = f"{storage_grid.storages['XRD1']}{folder}"
    door = storage_grid.storages["XRD1"]
    done = tool.run("data", "make", prefix, label, "--files", 7, "--size", "1MB")
    there = on_disk(storage_grid, "XRD1", folder)
    theirs = {f"{folder}/theirs": there.pop(f"{folder}/theirs")}
    assert {
        row["url"].removeprefix(door): (int(row["size"]), row["checksum"].removeprefix("adler32:"))
        for row in csv.DictReader(done.out.splitlines())
    } == there
    assert "compared" not in done.err  # XRootD tells checksums
    (row,) = tool.run("data", "list", prefix, "--format", "json").json
    assert (row["set"], row["files"], row["bytes"]) == (label, 7, 7_000_000)
    tool.run("data", "drop", prefix, label, "--yes")
    assert on_disk(storage_grid, "XRD1", folder) == theirs
    top = storage_grid.folder / "storage" / "XRD1" / "data" / folder[1:] / "dc_inject-data"
    assert list(top.iterdir()) == []  # the top folder is everybody's, and stays
