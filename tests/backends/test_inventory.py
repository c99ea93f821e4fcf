"""Reading what there is to inject: inventories, and the last check at what was chosen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from rucio.common import exception as rucio

from dc_inject.backends.rucio import RucioBackend, replica_check
from dc_inject.backends.rucio.inventory import complete
from dc_inject.model import DatasetFilter, Item, Link
from dc_inject.model.errors import Permanent
from dc_inject.model.ports import Candidate

from .fake import GB, FakeClient, FakeRucio
from .support import ANYTHING, injection

# ---------------------------------------------------------------------------------------- inventory


def names(backend: RucioBackend, source: str, datasets: DatasetFilter) -> list[str]:
    return sorted(item.name.rpartition("#")[2] for item in backend.inventory(source, datasets))


def test_an_inventory_by_pattern_is_one_streamed_call(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link
) -> None:
    server._rule("cms", "/data/RAW#3", link.source, "somebody", {"comments": None, "expires_at": None})
    assert sorted(backend.inventory(link.source, ANYTHING), key=str) == sorted(items, key=str)
    assert [name for name, _, _ in server.calls] == ["get_dataset_locks_by_rse"]


def test_what_is_incomplete_or_empty_at_the_source_is_left_out(
    backend: RucioBackend, server: FakeRucio, link: Link
) -> None:
    server.add("cms:/data/RAW#empty", link.source, files=0)
    server.add("cms:/data/RAW#partial", link.source)
    next(r for r in server.rules.values() if r.row["name"].endswith("partial")).files["/data/RAW#partial/0"] = (
        "STUCK"
    )
    server.replicas[link.source].discard("/data/RAW#partial/0")
    assert not {"empty", "partial"} & set(names(backend, link.source, ANYTHING))
    named = DatasetFilter(("cms:/data/RAW#empty", "cms:/data/RAW#partial", "cms:/data/RAW#1"))
    assert names(backend, link.source, named) == ["1"]


def test_what_is_named_is_looked_up_and_nothing_else_is_read(
    backend: RucioBackend, server: FakeRucio, link: Link
) -> None:
    server.add("cms:/data/RAW#elsewhere", link.destination)
    wanted = DatasetFilter(
        (
            "cms:/data/RAW#1",
            "cms:/data/RAW#2",
            "cms:/data/RAW#nowhere",
            "cms:/data/RAW#elsewhere",
            "cms:/bad!name",
        ),
        exclude=("cms:*#2",),
    )
    assert names(backend, link.source, wanted) == ["1"]
    assert server.called("get_dataset_locks_by_rse") == 0


def test_the_datasets_of_containers_count_also_of_containers_in_them(
    backend: RucioBackend, server: FakeRucio, link: Link
) -> None:
    server.containers["cms", "/inner"] = [("cms", "/data/RAW#2"), ("cms", "/outer")]
    server.containers["cms", "/outer"] = [("cms", "/data/RAW#1"), ("cms", "/inner")]
    assert names(backend, link.source, DatasetFilter((), containers=("cms:/outer", "cms:/nowhere"))) == ["1", "2"]
    assert server.called("list_content") == 3
    assert names(backend, link.source, DatasetFilter(("cms:/outer",))) == ["1", "2"]
    mixed = DatasetFilter(("cms:*#7", "cms:/data/RAW#8"), containers=("cms:/outer",))
    assert names(backend, link.source, mixed) == ["1", "2", "7", "8"]


def test_an_unknown_source_is_permanent(backend: RucioBackend) -> None:
    with pytest.raises(Permanent):
        list(backend.inventory("NOWHERE", ANYTHING))


# ---------------------------------------------------------------------------------------- look


def test_a_fresh_dataset_is_whole_at_the_source_and_not_at_the_destination(
    backend: RucioBackend, items: list[Item], link: Link
) -> None:
    candidate = Candidate(items[0].name, link)
    status = backend.check_replicas([candidate])[candidate]
    assert status.item == items[0]
    assert (status.closed, status.source_complete, status.source_locked) == (True, True, True)
    assert (status.source_until, status.destination_bytes, status.destination_locked) == (None, 0, False)


def test_any_number_of_candidates_is_five_calls_and_one_for_each_rule_that_holds_them(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link
) -> None:
    candidates = [Candidate(item.name, link) for item in items]
    assert set(backend.check_replicas(candidates)) == set(candidates)
    assert len(server.calls) == 5 + len(items)
    backend.check_replicas(candidates)
    assert len(server.calls) == 10 + len(items)  # when rules expire is known by now
    server.clock.time += timedelta(hours=13)
    backend.check_replicas(candidates)
    assert len(server.calls) == 15 + 2 * len(items)


def test_an_unknown_dataset_has_no_item_and_spoils_nothing(
    backend: RucioBackend, items: list[Item], link: Link
) -> None:
    unknown, bad, good = (Candidate(name, link) for name in ("cms:nope", "cms:bad!", items[0].name))
    statuses = backend.check_replicas([unknown, bad, good])
    assert [statuses[c].item for c in (unknown, bad, good)] == [None, None, items[0]]


def test_a_server_that_fails_for_every_name_is_not_taken_for_one_that_has_nothing(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link
) -> None:
    """An error of a class that the client does not know looks like that of a name that spoils a call."""
    server.faults["list_dataset_replicas_bulk"] = [rucio.RucioException("KeyError: 'rse'")] * 1000
    with pytest.raises(Permanent, match="KeyError"):
        backend.check_replicas([Candidate(item.name, link) for item in items])
    assert server.called("list_dataset_replicas_bulk") < 12
    with pytest.raises(Permanent, match="KeyError"):
        backend.check_replicas([Candidate(items[0].name, link)])


def test_a_name_that_a_server_stumbles_over_spoils_nothing(
    backend: RucioBackend, items: list[Item], link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = FakeClient.list_dataset_replicas_bulk

    def stumble(self: FakeClient, dids: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        if any(f"{did['scope']}:{did['name']}" == items[0].name for did in dids):
            raise rucio.RucioException("KeyError: 'rse'")
        return honest(self, dids)

    monkeypatch.setattr(FakeClient, "list_dataset_replicas_bulk", stumble)
    candidates = [Candidate(item.name, link) for item in items]
    statuses = backend.check_replicas(candidates)
    assert [statuses[c].source_complete for c in candidates] == [False] + [True] * (len(items) - 1)


def test_an_open_dataset_is_told(backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link) -> None:
    server.opened.add(("cms", "/data/RAW#0"))
    candidate = Candidate(items[0].name, link)
    status = backend.check_replicas([candidate])[candidate]
    assert not status.closed
    assert status.item == items[0]  # its size is that of its replica


def test_a_ghost_is_not_there_and_a_lock_or_a_single_file_is(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link
) -> None:
    server.ghosts.add(("cms", "/data/RAW#0", link.destination))
    server.replicas[link.destination] = {"/data/RAW#1/0"}
    backend.submit([injection(items[2], link)])
    candidates = [Candidate(item.name, link) for item in items[:3]]
    statuses = backend.check_replicas(candidates)
    there = [(statuses[c].destination_bytes, statuses[c].destination_locked) for c in candidates]
    assert there == [(0, False), (2 * GB, False), (0, True)]


def test_a_file_on_its_way_to_the_destination_is_seen_whatever_dataset_its_rule_is_for(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link
) -> None:
    """Rucio asks for no second transfer of it; of a file that failed for others it does."""
    more = {"expires_at": None, "comments": None}
    for name, file in (("/theirs", "/data/RAW#0/0"), ("/stuck", "/data/RAW#1/0")):
        server.datasets["cms", name] = {file: 2 * GB}
        rule = server._rule("cms", name, link.destination, "production", more)
    rule.files = dict.fromkeys(rule.files, "STUCK")
    candidates = [Candidate(item.name, link) for item in items[:3]]
    statuses = backend.check_replicas(candidates)
    assert [statuses[c].destination_busy for c in candidates] == [True, False, False]
    assert not any(statuses[c].destination_bytes or statuses[c].destination_locked for c in candidates)


def test_shared_files_show_in_the_files_of_both(backend: RucioBackend, server: FakeRucio, link: Link) -> None:
    for name in ("/a", "/b", "/c"):
        server.add(f"cms:{name}", link.source)
    server.datasets["cms", "/b"]["/a/0"] = 7
    a, b, c = (Candidate(f"cms:{name}", link) for name in ("/a", "/b", "/c"))
    found = {
        candidate: status.files or frozenset() for candidate, status in backend.check_replicas([a, b, c]).items()
    }
    assert len(found[a] & found[b]) == 1
    assert not found[c] & (found[a] | found[b])


@pytest.mark.parametrize(("files", "calls"), [(10, [1, 2]), (11, [2])])
def test_files_are_listed_in_bounded_calls(
    backend: RucioBackend,
    server: FakeRucio,
    link: Link,
    monkeypatch: pytest.MonkeyPatch,
    files: int,
    calls: list[int],
) -> None:
    """A dataset with more files than fit into an answer is not listed at all."""
    monkeypatch.setattr(replica_check, "MOST_FILES", 10)
    monkeypatch.setattr(replica_check, "_FILES_AT_ONCE", 12)
    big = [Candidate(f"cms:/big/{number}", link) for number in range(3)]
    for candidate, count in zip(big, (files, 6, 6), strict=True):
        server.add(str(candidate.item), link.source, files=count)
    statuses = backend.check_replicas(big)
    assert [statuses[candidate].files is None for candidate in big] == [files > 10, False, False]
    assert [len(args[0]) for name, args, _ in server.calls if name == "bulk_list_files"] == calls


def test_the_source_is_safe_until_the_last_rule_that_holds_it_ends(
    backend: RucioBackend, server: FakeRucio, link: Link
) -> None:
    soon, later = (server.clock.now() + timedelta(hours=h) for h in (1, 2))
    server.add("cms:/data/RAW#x", link.source, expires=soon)
    candidate = Candidate("cms:/data/RAW#x", link)
    assert backend.check_replicas([candidate])[candidate].source_until == soon
    server.add("cms:/data/RAW#x", link.source, expires=later)
    assert backend.check_replicas([candidate])[candidate].source_until == later
    server.add("cms:/data/RAW#x", link.source)
    assert backend.check_replicas([candidate])[candidate].source_until is None


def test_the_source_is_safe_no_longer_than_its_dataset_lives(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link
) -> None:
    """When its own lifetime is over, Rucio deletes a dataset with all its rules."""
    soon, later = (server.clock.now() + timedelta(hours=h) for h in (1, 2))
    server.expiries["cms", "/data/RAW#0"] = soon
    server.add("cms:/data/RAW#x", link.source, expires=soon)
    server.expiries["cms", "/data/RAW#x"] = later
    candidates = [Candidate(name, link) for name in (items[0].name, items[1].name, "cms:/data/RAW#x")]
    statuses = backend.check_replicas(candidates)
    assert [statuses[candidate].source_until for candidate in candidates] == [soon, None, soon]


def test_a_holding_rule_that_should_have_expired_is_asked_for_again(
    backend: RucioBackend, server: FakeRucio, link: Link
) -> None:
    server.add("cms:/data/RAW#x", link.source, expires=server.clock.now() + timedelta(hours=1))
    candidate = Candidate("cms:/data/RAW#x", link)
    backend.check_replicas([candidate])
    next(r for r in server.rules.values() if r.row["name"].endswith("#x")).row["expires_at"] = None
    server.clock.time += timedelta(hours=2)
    assert backend.check_replicas([candidate])[candidate].source_until is None


def test_a_rule_that_is_still_copying_to_the_source_holds_nothing_there(
    backend: RucioBackend, server: FakeRucio, link: Link
) -> None:
    server.add("cms:/data/RAW#x", link.source)
    rule = next(r for r in server.rules.values() if r.row["name"].endswith("#x"))
    rule.files |= {"/data/RAW#x/0": "REPLICATING"}
    candidate = Candidate("cms:/data/RAW#x", link)
    assert not backend.check_replicas([candidate])[candidate].source_locked


@pytest.mark.parametrize(
    ("state", "length", "available", "size", "whole"),
    [
        ("AVAILABLE", 3, 3, 9, True),
        ("AVAILABLE", 3, 2, 9, False),
        ("AVAILABLE", 0, 0, 0, False),
        ("AVAILABLE", None, None, None, False),
        ("AVAILABLE", 3, 3, None, False),
        ("UNAVAILABLE", 3, 3, 9, False),
    ],
)
def test_a_replica_is_complete_when_rucio_says_so_and_the_numbers_agree(
    state: str, length: int | None, available: int | None, size: int | None, whole: bool
) -> None:
    row = {"state": state, "length": length, "available_length": available, "bytes": size}
    assert complete(row) is whole
