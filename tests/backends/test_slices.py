"""Slices through Rucio: a temporary dataset of some of a dataset's files, its rule, and what becomes of both."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
import requests
from rucio.common import exception as rucio

from dc_inject.backends.rucio import RucioBackend
from dc_inject.model import Injection, Item, Link, Slice, naming
from dc_inject.model.errors import NoSlices, Temporary, TryOtherItem
from dc_inject.model.items import Range, SliceId, Slicing
from dc_inject.model.ports import Candidate, Status

from .fake import GB, FakeRucio
from .support import ANYTHING, CYCLE, injection, live

PARENT = "cms:/data/BIG"
HOUR = timedelta(hours=1)


@pytest.fixture
def big(server: FakeRucio, link: Link) -> str:
    server.add(PARENT, link.source, files=20, size=GB)
    return PARENT


def part(link: Link, first: int, last: int, of: int = 20, scope: str = "user.dcops") -> Injection:
    """The injection of a slice, as planning makes it."""
    options = Slicing(scope, "{campaign}.{mark}")
    planned = Slice(SliceId(Range(PARENT, first, last, of)), (last - first + 1) * GB)
    return injection(naming.build_slice(planned, options, "test", "s", CYCLE.start, link), link)


def test_a_slice_is_made_and_gets_its_rule(backend: RucioBackend, server: FakeRucio, link: Link, big: str) -> None:
    """Files in the order of names; the dataset lives a day longer than its rule, which tells what is in it."""
    one, other = part(link, 1, 3), part(link, 4, 4)
    outcomes = backend.submit([one, other])
    assert not [outcome.error for outcome in outcomes if outcome.error]
    (did,) = [did for did in server.datasets if len(server.datasets[did]) == 3 and did[0] == "user.dcops"]
    assert did[1].startswith("test.dc_inject-")
    assert sorted(server.datasets[did]) == sorted(server.datasets["cms", "/data/BIG"])[:3]
    assert server.expiries[did] == server.clock.now() + HOUR + timedelta(days=1)
    assert server.called("list_files") == 1
    found = {found.key: found.item for found in backend.ours()}
    assert found == {one.key: one.item.id, other.key: other.item.id}


def test_made_again_it_is_found_again(backend: RucioBackend, server: FakeRucio, link: Link, big: str) -> None:
    """Whether the program died between dataset and rule, or the answer of either was lost."""
    server.losses["add_dataset"] = [requests.ReadTimeout("lost")]
    (first,) = backend.submit([part(link, 1, 3)])
    assert isinstance(first.error, Temporary)
    assert not first.error.lost
    server.losses["add_replication_rule"] = [requests.ReadTimeout("lost")]
    (second,) = backend.submit([part(link, 1, 3)])
    assert isinstance(second.error, Temporary)
    assert second.error.lost
    (third,) = backend.submit([part(link, 1, 3)])
    assert third.adopted
    assert sum(scope == "user.dcops" for scope, _ in server.datasets) == 1
    assert len([rule for rule in server.rules.values() if rule.row["scope"] == "user.dcops"]) == 1


def test_without_the_right_it_says_what_to_ask_for(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link, big: str, wording
) -> None:
    """Asked once for all of a call; whole datasets of the same call go out."""
    call = [part(link, 1, 3, scope="cms"), part(link, 4, 6, scope="cms"), injection(items[0], link)]
    first, second, whole = backend.submit(call)
    assert isinstance(first.error, NoSlices)
    assert isinstance(second.error, NoSlices)
    wording(str(first.error.hint))
    assert whole.error is None
    assert server.called("add_dataset") == 1


def test_a_name_that_the_schema_refuses_is_told_as_such(
    backend: RucioBackend, server: FakeRucio, link: Link, big: str
) -> None:
    server.faults["add_dataset"] = [rucio.InvalidObject("Problem with name")]
    (outcome,) = backend.submit([part(link, 1, 3)])
    assert isinstance(outcome.error, NoSlices)
    assert "`name`" in str(outcome.error.hint)


def test_a_look_at_a_slice_is_one_at_its_files(
    backend: RucioBackend, server: FakeRucio, link: Link, big: str
) -> None:
    """Its parent has to be whole and held at the source, its own files away from the destination."""
    server.datasets["cms", "/data/BIG"]["/data/BIG/0"] = 5 * GB
    server.replicas[link.destination] = {"/data/BIG/19"}  # somebody's
    order = sorted(server.datasets["cms", "/data/BIG"])
    at = order.index("/data/BIG/19") + 1
    ids = [part(link, 1, 2).item.id, part(link, at, at + 1).item.id, part(link, 1, 2, of=21).item.id]
    candidates = [Candidate(item, link) for item in ids]
    first, there, changed = (backend.check_replicas(candidates)[candidate] for candidate in candidates)
    assert first.item == Slice(ids[0], 6 * GB)
    assert first.closed
    assert first.source_complete
    assert first.source_locked
    assert (first.destination_bytes, first.destination_locked) == (0, False)
    assert there.destination_bytes == GB
    assert changed.item is None


def test_its_life_ends_with_its_rule(backend: RucioBackend, server: FakeRucio, link: Link, big: str) -> None:
    """Made, moved, ended: then its dataset lives for an hour, and it is gone when its files are."""
    one = part(link, 1, 3)
    (entry,) = live([one], backend.submit([one]))
    server.complete()
    (seen,) = backend.observe([entry])
    assert (seen.status, seen.moved) == (Status.COMPLETE, 3 * GB)
    assert [outcome.error for outcome in backend.end([entry])] == [None]
    (expiry,) = server.expiries.values()
    assert expiry == server.clock.now() + HOUR
    assert [(removal.gone, removal.left) for removal in backend.remove([entry])] == [(False, 3 * GB)]
    server.clean()
    assert [removal.gone for removal in backend.remove([entry])] == [True]


def test_an_end_is_one_even_if_the_dataset_stays(
    backend: RucioBackend, server: FakeRucio, link: Link, big: str
) -> None:
    """It goes by its own lifetime then."""
    one = part(link, 1, 3)
    (entry,) = live([one], backend.submit([one]))
    server.faults["set_metadata"] = [rucio.AccessDenied("no")]
    assert [outcome.error for outcome in backend.end([entry])] == [None]


def test_a_parent_that_changed_is_another_now_or_never(
    backend: RucioBackend, server: FakeRucio, link: Link, big: str
) -> None:
    (outcome,) = backend.submit([part(link, 1, 3, of=19)])
    assert outcome.error is not None
    assert not isinstance(outcome.error, NoSlices | TryOtherItem)
    assert "20 files now, not 19" in outcome.error.message


def test_slices_are_not_in_an_inventory(backend: RucioBackend, server: FakeRucio, link: Link, big: str) -> None:
    """What arrived as a slice is there as a part of its parent; it is nobody's dataset to inject."""
    backend.submit([part(link, 1, 3)])
    server.complete()
    assert not list(backend.inventory(link.destination, ANYTHING))


def test_what_a_rule_says_wrongly_is_not_believed(
    backend: RucioBackend, server: FakeRucio, link: Link, big: str
) -> None:
    one = part(link, 1, 3)
    backend.submit([one])
    (rule,) = [rule for rule in server.rules.values() if rule.row["scope"] == "user.dcops"]
    for meta in (None, "no JSON", "[]", '{"slice": 3}', '{"slice": "cms:/data files 3-2 of 9"}'):
        rule.row = {**rule.row, "meta": meta}
        (found,) = backend.ours()
        assert not isinstance(found.item, SliceId)
        assert found.key != one.key
    assert replace(found, error="").item.startswith("user.dcops:test.dc_inject-")
