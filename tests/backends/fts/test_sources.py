"""What a source has, and what storages tell of themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.backends import fts as fts_module
from dc_inject.backends.fts import FtsBackend
from dc_inject.backends.sim import SimClock
from dc_inject.model import DatasetFilter, File, FileFilter, JobOptions, Listing
from dc_inject.model.errors import NeedsOperator, Permanent, ServiceError, Temporary
from dc_inject.storage import AccessDenied

from ...storage.server import drip
from ...storage.server import running as dav_running
from .conftest import LINK, SOURCE, bundle
from .keys import Keys, Opens
from .service import FakeFts
from .store import Store

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
    files = tuple(File(name, 44 if name == "f4" else 0, "adler32:0cc737eb") for name in names)

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
    listing = Listing("list.yaml", "", tuple(File(f"f{n}", 0) for n in range(100)))
    with pytest.raises(Temporary):
        list(backend.inventory(SOURCE, FileFilter(listing)))
    assert len(store.asked) <= 3 + 8


SOURCES = [FileFilter(folder=""), FileFilter(Listing("list.yaml", "", (File("f1", 0), File("f2", 0))))]


@pytest.mark.parametrize("files", SOURCES)
@pytest.mark.parametrize("error", [AccessDenied("403", "ask", hold="credentials"), Temporary("500", "ask")])
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
            raise AccessDenied("403", hold="credentials")

    store.fault = refuse
    assert [item.name for item in backend.inventory(SOURCE, SOURCES[1])] == [f"{SOURCE}/f2"]


def test_credentials_that_cannot_be_used_end_an_inventory(backend: FtsBackend, store: Store) -> None:
    def refuse(verb: str, url: str) -> None:
        raise NeedsOperator("the proxy expired", hold="credentials")

    store.fault = refuse
    listing = Listing("list.yaml", "", (File("f1", 0),))
    with pytest.raises(NeedsOperator):
        list(backend.inventory(SOURCE, FileFilter(listing)))


def test_replicas_are_looked_up_where_somebody_knows_them(make, backend: FtsBackend) -> None:
    datasets = DatasetFilter(("cms:*",))
    asked = []

    def replicas(source, wanted):
        asked.append((source, wanted))
        yield File(f"{SOURCE}/f1", 5)

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
        (NeedsOperator("PROPFIND: 403", hold="credentials"), None),
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
    assert facts.closed == (dict.fromkeys(("readable", "writable"), error.message) if usable is False else {})


def test_what_is_wrong_with_a_storage_is_said_when_it_begins_changes_and_ends(
    backend: FtsBackend, store: Store, clock: SimClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A storage that is down for hours would fill the log."""
    caplog.set_level("INFO", "dc_inject.backends.fts.sites")
    answers: list[ServiceError | None] = [Temporary("down"), Temporary("down"), NeedsOperator("403"), None, None]

    def fault(_verb: str, _url: str) -> None:
        if error := answers[0]:
            raise error

    store.fault = fault
    while answers:
        backend.sites([SOURCE])
        clock.advance(clock.now() + timedelta(seconds=31))
        del answers[0]
    assert caplog.messages == ["down", "403", f"{SOURCE} answers again"]


def test_that_a_storage_is_down_is_not_believed_for_long(
    backend: FtsBackend, store: Store, clock: SimClock
) -> None:
    """Its links go on as soon as it is back, and it is not asked for each of them."""
    answers: list[ServiceError | None] = [Temporary("down"), None]

    def fault(_verb: str, _url: str) -> None:
        if error := answers.pop(0):
            raise error

    store.fault = fault
    assert [backend.sites([SOURCE])[SOURCE].writable for _ in range(3)] == [False] * 3
    clock.advance(clock.now() + timedelta(seconds=6))
    assert backend.sites([SOURCE])[SOURCE].writable is True
    assert backend.sites([SOURCE])[SOURCE].closed == {}


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
        assert "0.4 s" in facts.missing["free"]  # QUICK for a pause, twice that for the whole
        (end,) = backend.storages([], [prefix])
        assert end.reachable is False


def test_job_options_have_defaults_for_injections_without_them(fts: FakeFts, backend: FtsBackend) -> None:
    made = replace(bundle(0), job=None)
    (outcome,) = backend.submit([made])
    assert fts.jobs[outcome.external_id].body["params"]["retry"] == JobOptions().retry
