"""Rules between the storages move real bytes, by Rucio's own conveyor and FTS, and take them away again."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from rucio.client import Client

from dc_inject.sandbox import Dataset, Rse, Sandbox, make_datasets
from tests.conftest import client_for
from tests.sandbox.rules import inject, locks, standing, state, until

pytestmark = pytest.mark.sandbox
LINKS = 6  # tests that take the fixture `link`


@pytest.fixture
def ordinary(storage_grid: Sandbox) -> Client:
    return client_for(storage_grid.config)


@pytest.fixture(scope="module")
def links(storage_grid: Sandbox) -> Iterator[tuple[str, str, Dataset]]:
    """Links of this module's own, as many as it has tests for them, made at once: making takes seconds."""
    label = uuid.uuid4().hex[:8].upper()
    made = []
    for number in range(LINKS):
        source, destination = f"{label}_FROM_{number}", f"{label}_TO_{number}"
        (dataset,) = make_datasets(source, 1, seed=label, files=(3, 3), file_size=(100_000, 2_000_000))
        made.append((source, destination, dataset))
    sources = [Rse(source, 10**12, on="XRD1") for source, _, _ in made]
    destinations = [Rse(destination, 10**12, on="XRD2") for _, destination, _ in made]
    storage_grid.add([*sources, *destinations], {source: [dataset] for source, _, dataset in made})
    return iter(made)


@pytest.fixture
def link(storage_grid: Sandbox, links) -> Iterator[tuple[str, str, Dataset]]:
    """An RSE with a dataset on XRD1 and an empty one on XRD2, of the test's own; the second has to end empty."""
    source, destination, dataset = next(links)
    yield source, destination, dataset
    until(lambda: storage_grid.storage_files("XRD2", f"/rucio/{destination}") == {})


def contents(grid: Sandbox, storage: str, rse: str) -> set[tuple[str, int, str]]:
    """What lies on disk below an RSE: path within it, size, checksum."""
    prefix = f"/rucio/{rse}"
    files = []
    for path in grid.storage_files(storage, prefix):
        with contextlib.suppress(FileNotFoundError):  # it may be deleted just now
            files.append(grid.storage_file(storage, path))
    return {(file.path.removeprefix(prefix), file.size, file.adler32) for file in files}


def jobs(grid: Sandbox, *states: str) -> set[str]:
    """Ids of the jobs that FTS has, by default of those that are not over."""
    wanted = f"?limit=500&state_in={','.join(states)}" if states else ""
    with urlopen(f"{grid.fts_url}/jobs{wanted}", timeout=30) as answer:
        return {job["job_id"] for job in json.load(answer)}


def end(client: Client, rule: str) -> None:
    client.update_replication_rule(rule, {"lifetime": 0})
    until(lambda: state(client, rule) == "GONE")


def test_a_rule_of_an_ordinary_account_moves_bytes_and_its_end_deletes_them(storage_grid, ordinary, link):
    source, destination, dataset = link
    there = contents(storage_grid, "XRD1", source)
    assert sorted(size for _, size, _ in there) == sorted(dataset.files)
    assert contents(storage_grid, "XRD2", destination) == set()

    rule = inject(ordinary, dataset.scope, dataset.name, source, destination)
    until(lambda: state(ordinary, rule) == "OK")
    assert contents(storage_grid, "XRD2", destination) == there

    end(ordinary, rule)
    until(lambda: contents(storage_grid, "XRD2", destination) == set())
    assert contents(storage_grid, "XRD1", source) == there  # which is pinned


def test_rucio_tells_where_the_files_are_and_what_they_are(storage_grid, ordinary, link):
    source, _, dataset = link
    told = list(ordinary.list_replicas([{"scope": dataset.scope, "name": dataset.name}]))
    prefix = f"{storage_grid.storages['XRD1']}/rucio/{source}"
    replicas = {(url.removeprefix(prefix), one["bytes"], one["adler32"]) for one in told for url in one["pfns"]}
    assert replicas == contents(storage_grid, "XRD1", source)


def test_a_file_that_is_not_what_the_catalogue_says_never_becomes_ok(storage_grid, ordinary, link):
    source, destination, dataset = link
    path = next(iter(storage_grid.storage_files("XRD1", f"/rucio/{source}")))
    storage_grid.put("XRD1", path, storage_grid.storage_file("XRD1", path).size, seed="bit rot")
    rule = inject(ordinary, dataset.scope, dataset.name, source, destination)
    until(lambda: standing(ordinary, rule) == ("STUCK", (2, 0, 1)))
    assert len(contents(storage_grid, "XRD2", destination)) == 2
    end(ordinary, rule)


def test_a_storage_that_is_away_for_a_while_is_emptied_when_it_is_back(storage_grid, ordinary, link):
    source, destination, dataset = link
    rule = inject(ordinary, dataset.scope, dataset.name, source, destination)
    until(lambda: state(ordinary, rule) == "OK")
    storage_grid.stop_storage("XRD2")
    try:
        end(ordinary, rule)
        assert len(contents(storage_grid, "XRD2", destination)) == 3
    finally:
        storage_grid.start_storage("XRD2")
    until(lambda: contents(storage_grid, "XRD2", destination) == set(), patience=60)


def test_a_rule_made_while_fts_is_away_goes_on_when_it_is_back(storage_grid, ordinary, link):
    source, destination, dataset = link
    storage_grid.stop_fts()
    try:
        rule = inject(ordinary, dataset.scope, dataset.name, source, destination)
        storage_grid.settle()  # the submitter has tried meanwhile
        assert locks(ordinary, rule) == (0, 3, 0)
    finally:
        storage_grid.start_fts()
    until(lambda: state(ordinary, rule) == "OK", patience=60)
    end(ordinary, rule)


def test_a_rule_that_ends_while_its_file_is_copied_leaves_nothing(storage_grid, ordinary, link):
    source, destination, _ = link
    (large,) = make_datasets(
        source, 1, seed=source, label="large", files=(1, 1), file_size=(30_000_000, 30_000_000)
    )
    storage_grid.add(datasets={source: [large]})
    storage_grid.throttle("XRD1", 1_000_000)
    try:
        rule = inject(ordinary, large.scope, large.name, source, destination)
        until(lambda: contents(storage_grid, "XRD2", destination))  # some of it has come
        assert locks(ordinary, rule) == (0, 1, 0)
        (job,) = jobs(storage_grid)
        end(ordinary, rule)
        assert job in jobs(storage_grid, "CANCELED")
        until(lambda: contents(storage_grid, "XRD2", destination) == set())
    finally:
        storage_grid.throttle("XRD1", None)
    storage_grid.settle()
    assert contents(storage_grid, "XRD2", destination) == set()


def test_storages_without_bytes_work_beside_them(storage_grid, ordinary):
    rows = list(ordinary.list_datasets_per_rse("T2_CH_CERN"))
    before = {name: storage_grid.storage_files(name) for name in storage_grid.storages}
    rule = inject(ordinary, rows[0]["scope"], rows[0]["name"], "T2_CH_CERN", "T1_DE_KIT_Disk")
    until(lambda: state(ordinary, rule) == "OK")
    end(ordinary, rule)
    assert {name: storage_grid.storage_files(name) for name in storage_grid.storages} == before


def test_the_datasets_of_a_storage_follow_from_the_grids_seed(storage_grid):
    made: tuple[Dataset, ...] = make_datasets("XRD1", 4, files=(3, 3), file_size=(1_000_000, 5_000_000), seed=24)
    sizes = storage_grid.storage_files("XRD1", "/rucio/XRD1").values()
    assert sorted(sizes) == sorted(size for dataset in made for size in dataset.files)
