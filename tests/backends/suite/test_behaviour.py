"""What every back end has to do, and every call twice: the engine relies on nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from dc_inject.model import Cycle, Dataset, Entry, State
from dc_inject.model.errors import Permanent, TryOtherItem
from dc_inject.model.ports import Candidate, Listing, Observation, ReplicaStatus, Status

from ..support import live
from .conftest import DATASETS, FILES_PLACES, FTS, ORIGIN, REAL_CATALOGUES, Place


def status(place: Place, number: int) -> ReplicaStatus:
    candidate = Candidate(place.items[number].name, place.link)
    return place.backend.check_replicas([candidate])[candidate]


def injected(place: Place, *numbers: int) -> list[Entry]:
    injections = place.injections(*numbers)
    return live(injections, place.backend.submit(injections))


def statuses(place: Place, entries: list[Entry]) -> set[Status]:
    return {seen.status for seen in place.backend.observe(entries)}


def asked(entries: list[Entry]) -> list[Entry]:
    """Entries as the ledger has them once their end was asked for."""
    return [replace(entry, end_asked_at=entry.injection.cycle.start) for entry in entries]


def ended(entries: list[Entry], seen: list[Observation]) -> list[Entry]:
    """Entries as the ledger has them at their end, with what was seen before."""
    return [
        replace(
            entry,
            state=State.ENDED,
            end_asked_at=entry.injection.cycle.start,
            ended_at=entry.injection.cycle.start,
            files_done=one.files_done,
            failed=one.failed,
        )
        for entry, one in zip(entries, seen, strict=True)
    ]


# ---------------------------------------------------------------------------------------- of all


def test_the_service_says_who_we_are_and_says_it_again(place: Place) -> None:
    first = place.backend.check()
    assert first.account
    assert first.service == place.link.through
    assert place.backend.check() == first


def test_a_nonsense_expression_is_refused(place: Place) -> None:
    with pytest.raises(Permanent):
        place.backend.resolve("no=such&&thing")


def test_an_inventory_has_each_item_that_passes_once(place: Place) -> None:
    for _ in range(2):
        found = {
            (item.name, item.bytes, item.files)
            for item in place.backend.inventory(place.link.source, place.wanted)
        }
        assert found == {(item.name, item.bytes, item.files) for item in place.stock}
    wanted = place.without(place.stock[0])
    names = [item.name for item in place.backend.inventory(place.link.source, wanted)]
    assert place.stock[0].name not in names
    assert len(names) == len(place.stock) - 1


def test_what_was_accepted_once_is_adopted_and_not_doubled(place: Place) -> None:
    injections = place.injections(0, 1)
    first, second = place.backend.submit(injections), place.backend.submit(injections)
    assert [o.key for o in first] == [i.key for i in injections]
    assert [o.external_id for o in first] == [o.external_id for o in second]
    assert len({o.external_id for o in first}) == 2
    assert [o.adopted for o in [*first, *second]] == [False, False, True, True]
    if isinstance(place.backend, Listing):  # who made it is kept in the service
        made = place.backend.made("test", since=datetime(2020, 1, 1, tzinfo=UTC))
        origins = {one.key: one.origin for one in made}
        assert [origins[one.key] for one in injections] == [ORIGIN, ORIGIN]
        assert [o.origin for o in second] == [ORIGIN, ORIGIN]


def test_an_injection_comes_arrives_ends_and_is_gone(place: Place) -> None:
    entries = injected(place, 0, 1)
    place.until(lambda: statuses(place, entries) == {Status.COMPLETE})
    for _ in range(2):
        told = place.backend.observe(entries)
        for entry, seen in zip(entries, told, strict=True):
            assert (seen.key, seen.moved, seen.exact) == (entry.injection.key, entry.injection.item.bytes, True)
            assert not seen.present
            assert not seen.failed
    for _ in range(2):
        assert [(o.key, o.error) for o in place.backend.end(entries)] == [(e.injection.key, None) for e in entries]
    place.until(lambda: statuses(place, asked(entries)) == {Status.ABSENT})
    assert not any(o.error for o in place.backend.end(entries))
    over = ended(entries, told)
    place.until(lambda: all(removal.gone for removal in place.backend.remove(over)))
    assert [(removal.key, removal.gone) for removal in place.backend.remove(over)] == [
        (entry.injection.key, True) for entry in entries
    ]


def test_what_is_ended_before_it_arrived_is_gone_in_the_end(place: Place) -> None:
    entries = injected(place, 2, 3)
    assert not any(o.error for o in place.backend.end(entries))
    place.until(lambda: statuses(place, asked(entries)) == {Status.ABSENT})
    over = ended(entries, place.backend.observe(asked(entries)))
    place.until(lambda: all(removal.gone for removal in place.backend.remove(over)))


def test_an_intent_in_doubt_is_found_or_known_to_be_absent(place: Place) -> None:
    made, never = place.injections(0, 1)
    (outcome,) = place.backend.submit([made])
    for _ in range(2):
        found, absent = place.backend.observe([Entry(made, State.CALLED), Entry(never, State.CALLED)])
        assert (found.status, found.external_id) != (Status.ABSENT, "")
        assert found.external_id == outcome.external_id
        assert absent.status is Status.ABSENT


def test_the_exact_look_is_exact(place: Place) -> None:
    (entry,) = injected(place, 0)
    (seen,) = place.backend.observe([entry], exact=True)
    assert seen.exact
    assert seen.moved is not None
    assert 0 <= seen.moved <= entry.injection.item.bytes


def test_facts_are_told_for_each_end(place: Place) -> None:
    for _ in range(2):
        facts = place.backend.sites([place.link.destination, place.link.source])
        assert set(facts) == {place.link.source, place.link.destination}
        assert all(f.exists and f.writable and not f.tape for f in facts.values())
        assert facts[place.link.source].readable


def test_nothing_to_do_is_done(place: Place) -> None:
    assert place.backend.check_replicas([]) == {}
    assert place.backend.submit([]) == []
    assert place.backend.observe([]) == []
    assert place.backend.end([]) == []
    assert place.backend.remove([]) == []
    assert place.backend.sites([]) == {}


# ---------------------------------------------------------------------------------------- of those with datasets


@pytest.mark.parametrize("place", DATASETS, indirect=True)
def test_an_expression_means_sorted_names(place: Place) -> None:
    names = place.backend.resolve("*")
    assert {place.link.source, place.link.destination} <= set(names)
    assert list(names) == sorted(names)


@pytest.mark.parametrize("place", DATASETS, indirect=True)
def test_a_fresh_dataset_is_at_the_source_only(place: Place) -> None:
    for _ in range(2):
        told = status(place, 0)
        assert told.item == place.items[0]
        assert told.closed
        assert told.source_complete
        assert told.source_locked
        assert not told.destination_bytes
        assert not told.destination_locked


@pytest.mark.parametrize("place", DATASETS, indirect=True)
def test_a_dataset_that_does_not_exist_has_no_item(place: Place) -> None:
    candidate = Candidate("cms:/no/such/THING", place.link)
    assert place.backend.check_replicas([candidate])[candidate].item is None


@pytest.mark.parametrize("place", DATASETS, indirect=True)
def test_a_dataset_is_at_a_destination_once_and_the_rest_of_its_batch_goes_on(place: Place) -> None:
    injected(place, 1)
    later = Cycle(place.cycle.end, place.cycle.length)
    outcomes = place.backend.submit(place.injections(0, 1, 2, cycle=later))
    assert [type(o.error) for o in outcomes] == [type(None), TryOtherItem, type(None)]


@pytest.mark.parametrize("place", DATASETS, indirect=True)
def test_a_look_shows_a_dataset_from_its_call_to_its_deletion(place: Place) -> None:
    entries = injected(place, 0)
    assert status(place, 0).destination_locked
    place.until(lambda: statuses(place, entries) == {Status.COMPLETE})
    place.until(lambda: status(place, 0).destination_bytes == place.items[0].bytes)
    # A real Rucio adds up a dataset's replicas some time after its files have arrived.
    place.until(lambda: place.backend.remove(entries)[0].left == place.items[0].bytes)
    assert not place.backend.remove(entries)[0].gone
    assert not place.backend.end(entries)[0].error
    place.until(lambda: not status(place, 0).destination_bytes and not status(place, 0).destination_locked)
    assert status(place, 0).source_complete


@pytest.mark.parametrize("place", REAL_CATALOGUES, indirect=True)
def test_what_does_not_exist_is_refused_for_good(place: Place) -> None:
    ghost = Dataset("cms:/no/such/THING", 1, 1)
    (real,) = place.injections(0)
    (outcome,) = place.backend.submit([replace(real, key="no matter", item=ghost)])
    assert isinstance(outcome.error, Permanent)


# ---------------------------------------------------------------------------------------- of those with files


@pytest.mark.parametrize("place", FILES_PLACES, indirect=True)
def test_the_same_files_may_go_to_the_same_place_again_at_once(place: Place) -> None:
    injected(place, 1)
    later = Cycle(place.cycle.end, place.cycle.length)
    outcomes = place.backend.submit(place.injections(0, 1, 2, cycle=later))
    assert not any(o.error or o.adopted for o in outcomes)


@pytest.mark.parametrize("place", FTS, indirect=True)
def test_a_url_means_itself(place: Place) -> None:
    assert place.backend.resolve(f"{place.link.source}/") == (place.link.source,)


@pytest.mark.parametrize("place", FTS, indirect=True)
def test_files_that_do_not_arrive_are_told_with_their_reasons_and_the_others_arrive(place: Place) -> None:
    (made,) = place.injections(0)
    first, second = made.item.members
    members = (replace(first, name=f"{place.link.source}/no-such-file"), second)
    made = replace(made, item=replace(made.item, members=members))
    entries = live([made], place.backend.submit([made]))
    place.until(lambda: statuses(place, entries) == {Status.COMPLETE})
    (seen,) = place.backend.observe(entries)
    assert (seen.moved, seen.failed, seen.files_done, seen.files_stuck) == (second.bytes, first.bytes, 1, 1)
    assert dict(seen.reasons) == {"source-missing": 1}
    assert seen.unfit == seen.undone == (members[0].name,)
    over = ended(entries, [seen])
    place.until(lambda: place.backend.remove(over)[0].gone)
