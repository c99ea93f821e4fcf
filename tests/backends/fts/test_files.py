"""Files: what is deleted and what never, what a sweep finds, which folders go."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.backends.fts import FtsBackend
from dc_inject.backends.sim import SimClock
from dc_inject.model import Entry, State, naming, urls
from dc_inject.model.deletion import NotOurs
from dc_inject.model.errors import Permanent, Temporary
from dc_inject.model.ports import Removal
from dc_inject.storage import Later

from ..support import CYCLE
from .conftest import DESTINATION, LINK, SOURCE, bundle, submitted
from .service import FakeFts
from .store import Store

TOP = f"{DESTINATION}/dc_inject"
WAIT = timedelta(minutes=30)


def ended(entry: Entry, *, done: int, failed: int = 0) -> Entry:
    """An entry as the ledger has it when it was seen to be over, and then ended by us."""
    now = CYCLE.start
    return replace(
        entry, state=State.ENDED, completed_at=now, end_asked_at=now, ended_at=now, files_done=done, failed=failed
    )


def arrived(fts: FakeFts, backend: FtsBackend, *numbers: int) -> list[Entry]:
    entries = submitted(backend, *numbers)
    fts.finish()
    return [ended(entry, done=2) for entry in entries]


# ---------------------------------------------------------------------------------------- deleting


def test_what_arrived_is_deleted_with_its_empty_folders_and_nothing_else(
    fts: FakeFts, backend: FtsBackend, store: Store
) -> None:
    store.put(f"{DESTINATION}/theirs/f", 5)
    first, second = arrived(fts, backend, 0, 1)
    strange = f"{naming.folder(second.injection)}/not-ours"
    store.put(strange, 1)
    for _ in range(2):
        (removal,) = backend.remove([first])
        assert removal.gone
    assert set(store.files) >= set(naming.copies(second.injection))
    assert backend.remove([second])[0].gone
    assert strange in store.files
    del store.files[strange]
    assert backend.remove([second])[0].gone
    cycle = urls.parent(naming.folder(first.injection))
    assert store.below(cycle) == []
    assert {*store.files} - {url for url in store.files if urls.is_below(SOURCE, url)} == {
        f"{DESTINATION}/theirs/f"
    }
    deleted = {url for verb, url in store.asked if verb == "delete"}
    assert deleted == {*naming.copies(first.injection), *naming.copies(second.injection)}
    assert all(urls.is_below(DESTINATION, url) for verb, url in store.asked if verb == "delete-folder")


@pytest.mark.parametrize(("done", "failed"), [(1, 0), (2, 1000), (0, 2001)])
def test_what_did_not_all_arrive_is_looked_at_once_more_after_the_longest_transfer(
    fts: FakeFts, backend: FtsBackend, store: Store, clock: SimClock, done: int, failed: int
) -> None:
    (entry,) = [replace(e, files_done=done, failed=failed) for e in arrived(fts, backend, 0)]
    (removal,) = backend.remove([entry])
    assert (removal.gone, removal.again_at, removal.error) == (False, CYCLE.start + WAIT, None)
    assert not set(naming.copies(entry.injection)) & set(store.files)
    store.put(naming.copies(entry.injection)[1], 7)  # a transfer that nobody had stopped
    clock.advance(CYCLE.start + WAIT)
    assert backend.remove([entry])[0].gone
    assert not store.below(naming.folder(entry.injection))


@pytest.mark.parametrize("asked", [False, True])
def test_what_vanished_is_cancelled_all_the_same_and_watched_until_it_can_write_no_more(
    fts: FakeFts, backend: FtsBackend, store: Store, clock: SimClock, asked: bool
) -> None:
    """It may wait in a queue of FTS until it is too old (90 minutes are two hours there), and then be at work."""
    (entry,) = submitted(backend, 0, lifetime=timedelta(minutes=90))
    entry = replace(
        entry, state=State.ENDED, ended_at=CYCLE.start + timedelta(minutes=20), failed=1001, moved=1000
    )
    entry = replace(entry, end_asked_at=CYCLE.start if asked else None)
    fts.instead.append(("DELETE", "/jobs", (503, {"message": "later"})))
    (removal,) = backend.remove([entry])
    assert not removal.gone
    assert isinstance(removal.error, Temporary)
    assert removal.again_at is not None
    assert removal.again_at < CYCLE.start + timedelta(minutes=1)
    late = CYCLE.start + timedelta(hours=2) + WAIT
    assert backend.remove([entry]) == [Removal(entry.injection.key, gone=False, again_at=late)]
    assert fts.jobs[entry.external_id].state == "CANCELED"
    store.put(naming.copies(entry.injection)[1], 7)
    clock.advance(late)
    asks = len(fts.seen)
    assert backend.remove([entry])[0].gone
    assert len(fts.seen) == asks  # FTS may be switched off by then
    assert not store.below(urls.parent(naming.folder(entry.injection)))


def test_a_storage_that_deletes_later_is_asked_for_all_at_once(
    fts: FakeFts, backend: FtsBackend, store: Store
) -> None:
    """It answers well: to leave the rest for the next time would take hours for a large job."""
    entries = [ended(entry, done=5) for entry in submitted(backend, 0, 1, files=5)]
    wanted = {url for entry in entries for url in naming.copies(entry.injection)}
    taken: set[str] = set()

    def fault(verb: str, url: str) -> None:
        if verb == "delete" and url not in taken:
            taken.add(url)
            raise Later("the storage will do it later")

    store.fault = fault
    told = backend.remove(entries)
    assert taken == wanted
    assert [type(removal.error) for removal in told] == [Temporary] * 2
    assert all(removal.gone for removal in backend.remove(entries))


def test_a_refused_delete_is_told_asked_again_later_and_later_and_costs_the_others_nothing(
    fts: FakeFts, backend: FtsBackend, store: Store
) -> None:
    first, second = arrived(fts, backend, 0, 1)
    kept = naming.copies(first.injection)[0]

    def refuse(verb: str, url: str) -> None:
        if (verb, url) == ("delete", kept):
            raise Permanent("DELETE x: the storage answered 403", "ask the storage")

    store.fault = refuse
    waits = []
    for _ in range(4):
        one, other = backend.remove([first, second])
        assert not one.gone
        assert other.gone
        assert isinstance(one.error, Permanent)
        assert "1 of 2 files" in one.error.message
        assert one.error.hint
        waits.append(one.again_at)
    assert waits == sorted(waits)
    assert waits[-1] > waits[0]
    store.fault = lambda _verb, _url: None
    assert backend.remove([first])[0].gone


def test_a_storage_that_is_down_is_not_asked_for_every_file(
    fts: FakeFts, backend: FtsBackend, store: Store
) -> None:
    entries = [ended(entry, done=20) for entry in submitted(backend, 0, files=20)] + arrived(fts, backend, 1)
    elsewhere = bundle(2, link=LINK._replace(destination="davs://c/dc"))
    entries.append(ended(Entry(elsewhere, State.LIVE), done=2))

    def down(verb: str, url: str) -> None:
        if url.startswith("davs://b"):
            raise Temporary(f"{verb} {url}: no answer in time")

    store.fault = down
    removals = backend.remove(entries)
    assert [removal.gone for removal in removals] == [False, False, True]
    assert all(removal.again_at for removal in removals[:2])
    assert len([url for verb, url in store.asked if verb == "delete" and url.startswith("davs://b")]) == 3


def test_folders_that_may_not_be_deleted_hold_up_nothing(fts: FakeFts, backend: FtsBackend, store: Store) -> None:
    (entry,) = arrived(fts, backend, 0)

    def refuse(verb: str, url: str) -> None:
        if verb == "delete-folder":
            raise Permanent("DELETE x: the storage answered 405")

    store.fault = refuse
    assert backend.remove([entry])[0].gone


def test_folders_that_fail_are_tried_again_but_not_for_ever(
    fts: FakeFts, backend: FtsBackend, store: Store
) -> None:
    (entry,) = arrived(fts, backend, 0)

    def fail(verb: str, url: str) -> None:
        if verb == "delete-folder":
            raise Temporary("DELETE x: the storage answered 500")

    store.fault = fail
    assert [backend.remove([entry])[0].gone for _ in range(5)] == [False] * 4 + [True]


# ---------------------------------------------------------------------------------------- sweeping


def test_a_sweep_finds_files_of_the_campaign_by_their_whole_path(
    fts: FakeFts, backend: FtsBackend, store: Store
) -> None:
    (entry,) = arrived(fts, backend, 0)
    other = bundle(1, campaign="other")
    backend.submit([other])
    fts.finish()
    copy = naming.copies(entry.injection)[0]
    for strange in (f"{TOP}/test/mine", f"{copy}0", copy.replace("/s/", "/t/")[:-1] + "z"):
        store.put(strange, 1)
    found = list(backend.sweep(DESTINATION, "test"))
    assert [(one.url, one.copy.key, one.copy.number, one.bytes) for one in found] == [
        (url, entry.injection.key, number, 1000 + number)
        for number, url in enumerate(naming.copies(entry.injection))
    ]
    assert [stray.url for stray in backend.sweep(DESTINATION, "other")] == naming.copies(other)
    assert not list(backend.sweep(DESTINATION, "nobody"))


def test_what_jobs_share_stays_as_long_as_there_may_be_a_job(
    fts: FakeFts, backend: FtsBackend, store: Store, clock: SimClock
) -> None:
    """FTS makes folders one by one: between two steps they are empty, and not to be taken away from under it."""
    first, second, last = arrived(fts, backend, 0, 1, 2)
    cycle = urls.parent(naming.folder(first.injection))
    for entry in (first, second):
        assert backend.remove([entry])[0].gone
        assert naming.folder(entry.injection) not in store.folders
    for url in naming.copies(last.injection):
        del store.files[url]
    store.folders.discard(naming.folder(last.injection))
    assert cycle in store.folders  # the next file of the last one is about to come
    clock.advance(CYCLE.end + timedelta(hours=1) + WAIT)
    assert backend.remove([last])[0].gone
    assert cycle in store.folders  # a job of the same cycle may wait longer than this one
    assert {urls.parent(url) for verb, url in store.asked if verb == "delete-folder"} == {cycle}


def test_at_the_very_end_all_empty_folders_of_the_campaign_go(
    fts: FakeFts, backend: FtsBackend, store: Store
) -> None:
    (entry,) = arrived(fts, backend, 0)
    assert backend.remove([entry])[0].gone
    own = naming.folder(entry.injection)
    store.put(f"{own}/x", 1)
    strange = f"{TOP}/test/s/lost+found"
    for url in (f"{own}/x", f"{strange}/y", f"{TOP}/other/s/z", f"{TOP}/test/s/20270208T110000Z/gone"):
        store.put(url, 1)
        if url != f"{own}/x":
            del store.files[url]
    for _ in range(2):
        assert backend.tidy(f"{DESTINATION}/", "test") is None
        assert {url for url in store.folders if urls.is_below(f"{TOP}/test", url)} == {
            f"{TOP}/test/s",
            urls.parent(own),
            own,
            strange,
        }
    del store.files[f"{own}/x"]
    store.folders.discard(strange)
    assert backend.tidy(DESTINATION, "test") is None
    assert store.below(TOP) == [f"{TOP}/other", f"{TOP}/other/s"]
    assert backend.tidy(DESTINATION, "other") is None
    assert store.below(DESTINATION)[0] == TOP  # all campaigns share it: one may just begin
    assert not store.below(TOP)
    assert backend.tidy(DESTINATION, "nobody") is None
    assert ("delete-folder", TOP) not in store.asked


@pytest.mark.parametrize("verb", ["list", "delete-folder"])
def test_a_storage_that_is_down_at_the_very_end_is_told_of(
    fts: FakeFts, backend: FtsBackend, store: Store, verb: str
) -> None:
    entries = arrived(fts, backend, 0)
    assert backend.remove(entries)[0].gone
    down = Temporary("no answer in time")

    def fault(asked: str, _url: str) -> None:
        if asked == verb:
            raise down

    store.fault = fault
    assert backend.tidy(DESTINATION, "test") is down


def test_what_was_swept_up_is_deleted_with_its_folders_and_nothing_that_is_not_ours(
    fts: FakeFts, backend: FtsBackend, store: Store
) -> None:
    (entry,) = arrived(fts, backend, 0)
    theirs = [f"{DESTINATION}/x", f"{SOURCE}/f1", f"{TOP}/test/s/mine"]
    for url in theirs:
        store.put(url, 1)
    results = backend.delete([*naming.copies(entry.injection), *theirs], DESTINATION, "test")
    assert [error is None for _, error in results] == [True, True, False, False, False]
    assert set(theirs) <= set(store.files)
    assert not set(naming.copies(entry.injection)) & set(store.files)
    assert naming.folder(entry.injection) not in store.folders
    assert naming.folder(entry.injection).rpartition("/")[0] in store.folders  # jobs share it


def test_a_sweep_deletes_nothing_of_another_campaign_or_prefix(
    fts: FakeFts, backend: FtsBackend, store: Store
) -> None:
    (entry,) = arrived(fts, backend, 0)
    files = naming.copies(entry.injection)
    for prefix, campaign in ((DESTINATION, "other"), (SOURCE, "test"), (f"{DESTINATION}/dc_inject", "test")):
        assert all(isinstance(error, NotOurs) for _, error in backend.delete(files, prefix, campaign))
    assert set(files) <= set(store.files)
