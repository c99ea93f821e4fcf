"""Replicas below a storage's prefix, as Rucio tells them: chosen by datasets, named by canonical URLs."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import pytest
from rucio.common.exception import DataIdentifierNotFound

from dc_inject.backends.rucio import RucioBackend
from dc_inject.backends.sim import SimClock
from dc_inject.model import DatasetFilter, File

from .support import CYCLE, Heard

SE, OTHER = "davs://se.example.org", "davs://other.example.org:8443"
ANY = {"files": (1, 10), "mean_file": (1, 10**6)}


class Catalogue:
    """As much of Rucio's client as is asked."""

    def __init__(self) -> None:
        self.datasets = {  # dataset -> files: name, bytes, adler32, and PFNs by RSE
            "cms:/a/RAW": [("f1", 10, "00000001", {"SE": [f"{SE}:443//data/f1"], "OTHER": [f"{OTHER}/x/f1"]})],
            "cms:/b/RAW": [
                ("f1", 10, "00000001", {"SE": [f"{SE}/data/f1"]}),
                ("f2", 20, None, {"SE": [f"{SE}/data/f2"]}),
                ("f3", 30, "00000003", {"SE": [f"{SE}/elsewhere/f3"]}),
                ("f4", 40, "00000004", {"SE": [f"{SE}/data/f4?token=secret", "gsiftp://se.example.org/data/f4"]}),
            ],
            "cms:/c/RECO": [("f5", 50, "00000005", {"OTHER": [f"{OTHER}/x/f5"]})],
            "user:/a/RAW": [("f6", 60, "00000006", {"SE": [f"{SE}/data/f6"]})],
        }
        self.asked: list[str] = []

    def list_scopes(self) -> list[str]:
        return ["cms", "user"]

    def list_dids(self, scope: str, filters: list[dict[str, str]], did_type: str) -> Iterator[str]:
        assert did_type == "dataset"
        assert set(filters[0]["name"][:-1]).isdisjoint("*?[")
        names = (did.partition(":") for did in self.datasets)
        yield from (name for s, _, name in names if s == scope and fnmatchcase(name, filters[0]["name"]))

    def get_metadata_bulk(self, dids: list[dict[str, str]], plugin: str) -> Iterator[dict[str, str]]:
        assert plugin == "DID_COLUMN"
        yield from (
            {**did, "did_type": "DATASET"} for did in dids if f"{did['scope']}:{did['name']}" in self.datasets
        )

    def list_content(self, scope: str, name: str) -> Iterator[dict[str, str]]:
        if name != "/box":
            raise DataIdentifierNotFound(name)
        yield {"scope": "cms", "name": "/a/RAW", "type": "DATASET"}

    def list_dataset_replicas_bulk(self, dids: list[dict[str, str]]) -> Iterator[dict[str, Any]]:
        for did in dids:
            files = self.datasets[f"{did['scope']}:{did['name']}"]
            for rse in sorted({rse for file in files for rse in file[3]}):
                there = [file for file in files if rse in file[3]]
                size = sum(file[1] for file in there)
                yield {**did, "rse": rse, "available_length": len(there), "available_bytes": size}

    def get_protocols(self, rse: str) -> list[dict[str, Any]]:
        self.asked.append(f"protocols {rse}")
        host, port = ("se.example.org", 443) if rse == "SE" else ("other.example.org", 8443)
        return [
            {"scheme": "gsiftp", "hostname": host, "port": 2811},
            {"scheme": "davs", "hostname": host, "port": port},
        ]

    def list_replicas(self, dids: list[dict[str, str]], schemes: list[str], rse_expression: str) -> Iterator[Any]:
        self.asked.append(f"replicas {rse_expression}")
        for did in dids:
            for name, size, adler32, places in self.datasets[f"{did['scope']}:{did['name']}"]:
                pfns = places.get(rse_expression, [])
                ranked = {pfn: {"rse": rse_expression, "priority": n} for n, pfn in enumerate(reversed(pfns))}
                yield {"name": name, "bytes": size, "adler32": adler32, "pfns": ranked}


@pytest.fixture
def catalogue() -> Catalogue:
    return Catalogue()


@pytest.fixture
def backend(catalogue: Catalogue) -> RucioBackend:
    clock = SimClock(CYCLE.start)
    return RucioBackend(campaign="test", clock=clock, observer=Heard(), make=lambda _notes, _timeout: catalogue)


def test_files_below_the_prefix_are_found_once_with_what_rucio_knows_of_them(backend: RucioBackend) -> None:
    found = list(backend.replicas(f"{SE}/data", DatasetFilter(("cms:*",), **ANY)))
    assert sorted(found, key=str) == [
        File(f"{SE}/data/f1", 10, "adler32:00000001"),
        File(f"{SE}/data/f2", 20),
    ]


def test_the_files_of_an_rse_are_its_own_replicas_by_the_protocol_that_it_likes_best(backend, catalogue) -> None:
    """Another RSE serves the same files, and a scheme that is not spoken comes first."""
    catalogue.datasets["cms:/b/RAW"][0][3]["SE"].append("root://se.example.org//data/f1")
    found = list(backend.replicas("SE", DatasetFilter(("cms:/b/RAW",), **ANY)))
    assert sorted(file.name for file in found) == [
        f"{SE}/data/f2",
        f"{SE}/elsewhere/f3",
        "root://se.example.org//data/f1",
    ]
    assert [line for line in catalogue.asked if line.startswith("replicas")] == ["replicas SE"]


def test_an_rse_gives_no_replicas_of_others_that_its_name_means_as_well(backend, catalogue, monkeypatch) -> None:
    rows = catalogue.list_replicas

    def list_replicas(*args: Any, **how: Any) -> Iterator[Any]:
        for row in rows(*args, **how):
            elsewhere = {f"{OTHER}/x/{row['name']}": {"rse": "OTHER", "priority": 0}}
            yield row | {"pfns": {**elsewhere, **row["pfns"]}}

    monkeypatch.setattr(catalogue, "list_replicas", list_replicas)
    found = list(backend.replicas("SE", DatasetFilter(("cms:/b/RAW",), **ANY)))
    assert sorted(file.name for file in found) == [f"{SE}/data/f1", f"{SE}/data/f2", f"{SE}/elsewhere/f3"]


@pytest.mark.parametrize(
    ("datasets", "files"),
    [
        (DatasetFilter(("cms:/a/RAW",), **ANY), {"f1"}),
        (DatasetFilter(("cms:/?/RAW", "cms:/no/such"), **ANY), {"f1", "f2"}),
        (DatasetFilter(("*:/a/*",), **ANY), {"f1", "f6"}),
        (DatasetFilter(("us*:/[ab]/RAW",), **ANY), {"f6"}),
        (DatasetFilter((), containers=("cms:/box",), **ANY), {"f1"}),
        (DatasetFilter(("*:*",), exclude=("user:*",), **ANY), {"f1", "f2"}),
        (DatasetFilter(("*:*",), files=(1, 1), mean_file=(1, 10**6)), {"f1", "f6"}),
        (DatasetFilter(("*:*",), files=(1, 10), mean_file=(20, 10**6)), {"f1", "f2", "f6"}),
        (DatasetFilter(("cms:*RECO",), **ANY), set()),
    ],
)
def test_datasets_are_chosen_by_the_filter(
    backend: RucioBackend, datasets: DatasetFilter, files: set[str]
) -> None:
    found = list(backend.replicas(f"{SE}/data", datasets))
    assert {item.name.rpartition("/")[2] for item in found} == files
    assert len(found) == len(files)


def test_only_the_storage_of_the_prefix_is_asked_for_files(backend: RucioBackend, catalogue: Catalogue) -> None:
    for _ in range(2):
        assert [item.bytes for item in backend.replicas(OTHER, DatasetFilter(("cms:*RECO",), **ANY))] == [50]
    assert catalogue.asked == ["protocols OTHER", "replicas OTHER", "replicas OTHER"]
