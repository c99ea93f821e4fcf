"""What every back end has to do, and every call twice: the engine relies on nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dc_inject.errors import AnotherNow, Permanent
from dc_inject.model import Cycle, Entry, Item, State
from dc_inject.ports import Candidate, Sight, Status

from ..support import live
from .conftest import REAL_CATALOGUES, Place


def sight(place: Place, number: int) -> Sight:
    candidate = Candidate(place.items[number].name, place.link)
    return place.backend.look([candidate])[candidate]


def injected(place: Place, *numbers: int) -> list[Entry]:
    injections = place.injections(*numbers)
    return live(injections, place.backend.submit(injections))


def statuses(place: Place, entries: list[Entry]) -> set[Status]:
    return {seen.status for seen in place.backend.observe(entries)}


def test_the_service_says_who_we_are_and_says_it_again(place: Place) -> None:
    first = place.backend.check()
    assert first.account
    assert first.service == place.link.through
    assert place.backend.check() == first


def test_an_expression_means_sorted_names_and_nonsense_is_refused(place: Place) -> None:
    names = place.backend.resolve("*")
    assert {place.link.source, place.link.destination} <= set(names)
    assert list(names) == sorted(names)
    with pytest.raises(Permanent):
        place.backend.resolve("no=such&&thing")


def test_an_inventory_has_each_dataset_that_passes_once(place: Place) -> None:
    for _ in range(2):
        found = list(place.backend.inventory(place.link.source, place.datasets))
        assert sorted(found, key=str) == sorted(place.items, key=str)
    wanted = replace(place.datasets, exclude=(place.items[0].name,))
    assert place.items[0] not in list(place.backend.inventory(place.link.source, wanted))


def test_a_fresh_dataset_is_at_the_source_only(place: Place) -> None:
    for _ in range(2):
        told = sight(place, 0)
        assert told.item == place.items[0]
        assert told.closed
        assert told.source_complete
        assert told.source_locked
        assert not told.destination_bytes
        assert not told.destination_locked


def test_a_dataset_that_does_not_exist_has_no_item(place: Place) -> None:
    candidate = Candidate("cms:/no/such/THING", place.link)
    assert place.backend.look([candidate])[candidate].item is None


def test_what_was_accepted_once_is_adopted_and_not_doubled(place: Place) -> None:
    injections = place.injections(0, 1)
    first, second = place.backend.submit(injections), place.backend.submit(injections)
    assert [o.key for o in first] == [i.key for i in injections]
    assert [o.external_id for o in first] == [o.external_id for o in second]
    assert len({o.external_id for o in first}) == 2
    assert [o.adopted for o in [*first, *second]] == [False, False, True, True]


def test_a_dataset_is_at_a_destination_once_and_the_rest_of_its_batch_goes_on(place: Place) -> None:
    injected(place, 1)
    later = Cycle(place.cycle.end, place.cycle.length)
    outcomes = place.backend.submit(place.injections(0, 1, 2, cycle=later))
    assert [type(o.error) for o in outcomes] == [type(None), AnotherNow, type(None)]


def test_a_dataset_comes_arrives_ends_and_is_gone(place: Place) -> None:
    entries = injected(place, 0, 1)
    assert statuses(place, entries) <= {Status.WAITING, Status.MOVING}
    assert sight(place, 0).destination_locked
    place.until(lambda: statuses(place, entries) == {Status.COMPLETE})
    for _ in range(2):
        for entry, seen in zip(entries, place.backend.observe(entries), strict=True):
            assert (seen.key, seen.moved, seen.exact) == (entry.injection.key, entry.injection.item.bytes, True)
            assert not seen.present
    place.until(lambda: sight(place, 0).destination_bytes == place.items[0].bytes)
    for _ in range(2):
        assert [(o.key, o.error) for o in place.backend.end(entries)] == [(e.injection.key, None) for e in entries]
    place.until(lambda: statuses(place, entries) == {Status.ABSENT})
    assert not any(o.error for o in place.backend.end(entries))
    place.until(lambda: not sight(place, 0).destination_bytes and not sight(place, 0).destination_locked)
    assert sight(place, 0).source_complete


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


@pytest.mark.parametrize("place", REAL_CATALOGUES, indirect=True)
def test_what_does_not_exist_is_refused_for_good(place: Place) -> None:
    ghost = Item("cms:/no/such/THING", 1, 1)
    (real,) = place.injections(0)
    (outcome,) = place.backend.submit([replace(real, key="no matter", item=ghost)])
    assert isinstance(outcome.error, Permanent)


def test_facts_are_told_for_each_end(place: Place) -> None:
    for _ in range(2):
        facts = place.backend.sites([place.link.destination, place.link.source])
        assert set(facts) == {place.link.source, place.link.destination}
        assert all(f.exists and f.readable and f.writable and not f.tape for f in facts.values())


def test_nothing_to_do_is_done(place: Place) -> None:
    assert place.backend.look([]) == {}
    assert place.backend.submit([]) == []
    assert place.backend.observe([]) == []
    assert place.backend.end([]) == []
    assert place.backend.sites([]) == {}
