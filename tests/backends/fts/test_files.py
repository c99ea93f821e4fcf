"""Files: what is deleted and what never, what a sweep finds, what a source has, what storages tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject import naming, urls
from dc_inject.backends import fts as fts_module
from dc_inject.backends.fts import FtsBackend
from dc_inject.backends.sim import SimClock
from dc_inject.errors import Fatal, Permanent, Temporary
from dc_inject.model import DatasetFilter, Entry, FileFilter, Item, JobOptions, Listing, State
from dc_inject.ports import Removal
from dc_inject.storage import Refused

from ...storage.server import drip
from ...storage.server import running as dav_running
from ..support import CYCLE
from .conftest import DESTINATION, LINK, SOURCE, bundle, submitted
from .keys import Keys, Opens
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
    assert len([url for verb, url in store.asked if verb == "delete" and url.startswith("davs://b")]) <= 3 + 8


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
    assert cycle not in store.folders
    assert urls.parent(cycle) in store.folders  # another cycle's files may be about to come
    assert {urls.parent(url) for verb, url in store.asked if verb == "delete-folder"} == {
        cycle,
        urls.parent(cycle),
    }


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
    assert TOP not in store.folders
    assert backend.tidy(DESTINATION, "nobody") is None


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
    results = backend.delete([*naming.copies(entry.injection), *theirs])
    assert [error is None for _, error in results] == [True, True, False, False, False]
    assert set(theirs) <= set(store.files)
    assert not set(naming.copies(entry.injection)) & set(store.files)
    assert naming.folder(entry.injection) not in store.folders
    assert naming.folder(entry.injection).rpartition("/")[0] not in store.folders


# ---------------------------------------------------------------------------------------- what a source has


def test_a_folder_gives_its_files_but_no_copies_of_ours(fts: FakeFts, backend: FtsBackend, store: Store) -> None:
    back = bundle(0, link=LINK._replace(destination=SOURCE))
    backend.submit([back])
    fts.finish()
    store.put(f"{SOURCE}/deep/down", 7)
    store.files[f"{SOURCE}/f3"] = 0
    store.sizes[f"{SOURCE}/f3"] = 33
    for _ in range(2):
        found = {item.name: item.bytes for item in backend.inventory(SOURCE, FileFilter(folder=""))}
        assert found == {f"{SOURCE}/f{n}": 33 if n == 3 else 1000 + n for n in range(20)} | {
            f"{SOURCE}/deep/down": 7
        }
    assert [i.name for i in backend.inventory(SOURCE, FileFilter(folder="deep"))] == [f"{SOURCE}/deep/down"]
    chosen = backend.inventory(SOURCE, FileFilter(folder="", pattern="f1*", size=(1001, 1012)))
    assert {i.name for i in chosen} == {f"{SOURCE}/f{n}" for n in (1, 10, 11, 12)}


def test_a_list_gives_what_is_below_the_source_and_sizes_are_asked_for(
    backend: FtsBackend, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    names = ["f1", f"{SOURCE}/f2", "davs://elsewhere/f3", "f4", "gone", "refused"]
    files = tuple(Item(name, 44 if name == "f4" else 0, 1, "adler32:0cc737eb") for name in names)

    def refuse(verb: str, url: str) -> None:
        if url.endswith("refused"):
            raise Temporary("HEAD: 500")

    store.fault = refuse
    found = list(backend.inventory(SOURCE, FileFilter(Listing("list.yaml", "", files))))
    assert [(item.name, item.bytes, item.files) for item in found] == [
        (f"{SOURCE}/f1", 1001, 1),
        (f"{SOURCE}/f2", 1002, 1),
        (f"{SOURCE}/f4", 44, 1),
    ]
    assert {item.checksum for item in found} == {"adler32:0cc737eb"}
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "2 files" in warning
    assert f"{SOURCE}/gone" in warning


def test_a_source_that_is_down_is_no_source_without_files(backend: FtsBackend, store: Store) -> None:
    def down(verb: str, url: str) -> None:
        raise Temporary("HEAD: no answer in time")

    store.fault = down
    listing = Listing("list.yaml", "", tuple(Item(f"f{n}", 0, 1) for n in range(100)))
    with pytest.raises(Temporary):
        list(backend.inventory(SOURCE, FileFilter(listing)))
    assert len(store.asked) <= 3 + 8


SOURCES = [FileFilter(folder=""), FileFilter(Listing("list.yaml", "", (Item("f1", 0, 1), Item("f2", 0, 1))))]


@pytest.mark.parametrize("files", SOURCES)
@pytest.mark.parametrize("error", [Refused("403", "ask", hold="credentials"), Temporary("500", "ask")])
def test_what_one_source_refuses_says_nothing_of_fts(backend: FtsBackend, store: Store, files, error) -> None:
    """Not a service that waits for a person, but a source that holds its own links."""

    def refuse(_verb: str, _url: str) -> None:
        raise error

    store.fault = refuse
    with pytest.raises((Permanent, Temporary), match=error.message) as caught:
        list(backend.inventory(SOURCE, files))
    assert caught.value.hold == "source-unavailable"
    assert caught.value.hint == "ask"
    assert isinstance(caught.value, Temporary) is isinstance(error, Temporary)


def test_a_file_that_is_refused_costs_the_others_nothing(backend: FtsBackend, store: Store) -> None:
    def refuse(_verb: str, url: str) -> None:
        if url.endswith("f1"):
            raise Refused("403", hold="credentials")

    store.fault = refuse
    assert [item.name for item in backend.inventory(SOURCE, SOURCES[1])] == [f"{SOURCE}/f2"]


def test_credentials_that_cannot_be_used_end_an_inventory(backend: FtsBackend, store: Store) -> None:
    def refuse(verb: str, url: str) -> None:
        raise Fatal("the proxy expired", hold="credentials")

    store.fault = refuse
    listing = Listing("list.yaml", "", (Item("f1", 0, 1),))
    with pytest.raises(Fatal):
        list(backend.inventory(SOURCE, FileFilter(listing)))


def test_replicas_are_looked_up_where_somebody_knows_them(make, backend: FtsBackend) -> None:
    datasets = DatasetFilter(("cms:*",))
    asked = []

    def replicas(source, wanted):
        asked.append((source, wanted))
        yield Item(f"{SOURCE}/f1", 5, 1)

    found = make(replicas=replicas).inventory(SOURCE, FileFilter(datasets=datasets))
    assert [item.name for item in found] == [f"{SOURCE}/f1"]
    assert asked == [(SOURCE, datasets)]
    with pytest.raises(Permanent, match="Rucio"):
        list(backend.inventory(SOURCE, FileFilter(datasets=datasets)))


# ---------------------------------------------------------------------------------------- what storages tell


def test_storages_tell_whether_they_are_there_and_their_space(backend: FtsBackend, store: Store) -> None:
    told = backend.sites([SOURCE, "davs://new/dc"])
    assert (told[SOURCE].readable, told[SOURCE].writable, told[SOURCE].free) == (True, True, 10**15)
    new = told["davs://new/dc"]
    assert (new.exists, new.readable, new.writable) == (True, False, True)


@pytest.mark.parametrize(
    ("error", "usable"),
    [
        (Temporary("PROPFIND: no connection"), False),
        (Fatal("PROPFIND: 403", hold="credentials"), None),
        (Permanent("root:// needs the extra `xrootd`"), None),
    ],
)
def test_a_storage_that_does_not_answer_is_not_used_and_one_that_may_not_be_asked_is_missing(
    backend: FtsBackend, store: Store, error, usable
) -> None:
    def fail(verb: str, url: str) -> None:
        raise error

    store.fault = fail
    facts = backend.sites([SOURCE])[SOURCE]
    assert (facts.readable, facts.writable, facts.free) == (usable, usable, None)
    assert set(facts.missing) == ({"free"} if usable is False else {"readable", "writable", "free"})
    assert error.message in facts.missing["free"]


def test_a_storage_is_asked_once_in_a_while_and_twice_for_different_credentials(
    backend: FtsBackend, store: Store, clock: SimClock, keys: Keys
) -> None:
    def asked() -> int:
        return sum(verb == "reachable" for verb, _ in store.asked)

    for _ in range(3):
        backend.sites([SOURCE])
    assert asked() == 1
    clock.advance(clock.now() + timedelta(seconds=31))
    keys.accesses["source"] = Opens("another")
    backend.sites([SOURCE])
    assert asked() == 3


def test_a_storage_that_does_not_answer_is_not_waited_for_as_source_and_as_destination(
    backend: FtsBackend, store: Store, keys: Keys
) -> None:
    def down(_verb: str, _url: str) -> None:
        raise Temporary("PROPFIND: no answer in time")

    store.fault = down
    keys.accesses["source"] = Opens("another")
    facts = backend.sites([SOURCE])[SOURCE]
    assert (facts.readable, facts.writable) == (False, False)
    assert len(store.asked) == 1


def test_a_storage_that_drips_is_not_waited_for_by_those_who_only_want_to_know_whether_it_is_there(
    make: Callable[..., FtsBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer has a bound of its own, far below that of a long listing."""
    monkeypatch.setattr(fts_module, "QUICK", 0.2)
    with dav_running() as server:
        server.tricks["PROPFIND"] = drip(b"HTTP/1.1 207 Multi-Status\r\n\r\n<D:multistatus")
        prefix = f"{server.url}/dc"
        backend = make(storage=None, timeout=60.0)
        facts = backend.sites([prefix])[prefix]
        assert (facts.readable, facts.writable) == (False, False)
        assert "does not come to an end" in facts.missing["free"]
        (end,) = backend.storages([], [prefix])
        assert end.reachable is False


def test_job_options_have_defaults_for_injections_without_them(fts: FakeFts, backend: FtsBackend) -> None:
    made = replace(bundle(0), job=None)
    (outcome,) = backend.submit([made])
    assert fts.jobs[outcome.external_id].body["params"]["retry"] == JobOptions().retry
