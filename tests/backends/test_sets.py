"""Test data in Rucio: what is asked for in which order, what a refusal leaves, what goes on, what is erased."""

from __future__ import annotations

import zlib
from collections import Counter
from datetime import timedelta
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from rucio.common import exception as rucio

from dc_inject.apps.data.filling import fill
from dc_inject.backends.rucio.connection import Connection
from dc_inject.backends.rucio.sets import ASKED, RucioSet, erase, find_sets, sweep
from dc_inject.backends.rucio.write_endpoints import endpoints
from dc_inject.model.deletion import NotOurs
from dc_inject.model.errors import Permanent, Temporary, UsageError
from dc_inject.model.events import Silent
from dc_inject.model.samples import FileSet
from dc_inject.storage import WebDav
from tests.backends.catalogue import Catalogue, CatalogueClient
from tests.backends.fake import FakeClient, FakeRse
from tests.storage.server import DavServer, running

RSE, SCOPE = "T2_XX_SCRATCHDISK", "user.dcops"
SET = FileSet("one", 7, 1000, 3)
DIDS = {(SCOPE, f"dc_inject-data.one.7x1000by3.{number:06}") for number in (1, 2, 3)}


@pytest.fixture
def dav():
    with running() as server:
        server.put("/rse/theirs")
        yield server


@pytest.fixture
def server(dav: DavServer) -> Catalogue:
    return Catalogue(
        rses={RSE: FakeRse(), "T1_YY": FakeRse(), "FAKE": FakeRse(), "TAPE": FakeRse(kind="TAPE")},
        doors={RSE: f"{dav.url}/rse", "T1_YY": f"{dav.url}/other", "TAPE": dav.url},
        register={RSE},
    )


@pytest.fixture
def lab(server: Catalogue):
    """Makes sets: `place(...)`, `make(...)`; and the connection and storage that it does so by."""
    storage = WebDav(lambda: SimpleNamespace(token="", certificate="", key="", stamp=None))
    connection = Connection(
        timeout=60, clock=server.clock, observer=Silent(), make=server.client, sleep=lambda _: None
    )

    def place(wanted=SET, rse=RSE, scope=SCOPE, lifetime=timedelta(days=30)):
        return RucioSet(connection, storage, rse, scope, wanted, lifetime=lifetime, sleep=lambda _: None)

    def make(*args, **kwargs):
        made = place(*args, **kwargs)
        return fill(made, made.missing(), parallel=3, moved=lambda _: None)

    yield SimpleNamespace(place=place, make=make, connection=connection, storage=storage)
    storage.close()


def named(server: Catalogue) -> set[tuple[str, str]]:
    return set(server.datasets)


def written(dav: DavServer) -> dict[str, bytes]:
    return {path: content for path, content in dav.files.items() if path != "/rse/theirs"}


def test_a_set_is_uploaded_registered_kept_by_rules_and_closed(lab, server, dav):
    assert len(lab.make()) == 7
    assert named(server) == DIDS
    assert server.opened == set()
    assert [len(files) for files in server.datasets.values()] == [3, 3, 1]
    where = {server.place(RSE, SCOPE, name).removeprefix(dav.url): name for name in server.replicas[RSE]}
    assert set(where) == set(written(dav))
    for path, content in written(dav).items():
        assert server.checksums[where[path]] == f"{zlib.adler32(content):08x}"
    rules = [rule.row for rule in server.rules.values()]
    assert {(rule["scope"], rule["name"]) for rule in rules} == DIDS
    assert {(rule["rse_expression"], rule["comments"], rule["purge_replicas"]) for rule in rules} == {
        (RSE, "dc_inject data", True)
    }
    assert {moment - server.clock.now().replace(tzinfo=None) for moment in server.expired.values()} == {
        timedelta(days=30)
    }


def test_nothing_is_made_twice(lab, server, dav):
    lab.make()
    calls, asked = Counter(name for name, _, _ in server.calls), len(dav.asked)
    assert lab.make() == []
    more = Counter(name for name, _, _ in server.calls) - calls
    assert not {"add_dataset", "add_replication_rule", "add_replicas", "attach_dids_to_dids"} & set(more)
    assert len(dav.asked) == asked


def test_a_making_that_broke_off_goes_on_with_what_is_missing(lab, server, dav):
    left = [4]

    def some(handler):
        left[0] -= 1
        return handler.on_put() if left[0] >= 0 else handler.answer(507)

    for number in range(1, 8):
        folder, _, _ = server.place(RSE, SCOPE, SET.file(number)).removeprefix(dav.url).rpartition("/")
        dav.folders.add(folder)
    dav.tricks["PUT"] = some
    with pytest.raises(Permanent, match="507"):
        lab.make()
    assert named(server) == DIDS == server.opened
    registered = {name for files in server.datasets.values() for name in files}
    assert 1 <= len(registered) <= 4
    dav.tricks.clear()
    lab.make()
    assert server.opened == set()
    assert len(written(dav)) == 7
    assert sum(map(len, server.datasets.values())) == 7


def test_answers_that_are_lost_and_a_busy_database_cost_nothing(lab, server, dav):
    busy = [rucio.DatabaseException("locked") for _ in range(ASKED - 1)]
    for method in ("add_dataset", "add_replication_rule", "add_replicas", "attach_dids_to_dids"):
        server.losses[method] = [rucio.RucioException("An unknown exception occurred (http status code: 504)")]
        server.faults[method] = list(busy[:2])
    server.faults["set_status"] = busy
    lab.make()
    assert server.opened == set()
    assert len(server.rules) == 3
    assert sum(map(len, server.datasets.values())) == 7


def test_without_the_right_to_register_one_file_is_tried_and_deleted_again(lab, server, dav, wording):
    server.register.clear()
    with pytest.raises(Permanent) as caught:
        lab.make()
    wording(caught.value)
    assert "add_replicas" in caught.value.hint
    assert written(dav) == {}
    assert sum(line.startswith("PUT") and "dat" in line for line in dav.asked) <= 2  # the folder was missing once
    server.clock.time += timedelta(seconds=2)
    assert server.tidy() == []
    assert (named(server), server.rules) == (set(), {})


def test_a_scope_of_others_is_refused_before_anything_is_written(lab, server, dav, wording):
    with pytest.raises(Permanent) as caught:
        lab.make(scope="cms")
    wording(caught.value)
    assert "user.dcops" in caught.value.hint
    assert (written(dav), named(server)) == ({}, set())


def test_a_name_that_the_schema_refuses_is_told_with_what_to_do(lab, server):
    server.faults["add_dataset"] = [rucio.InvalidObject("Problem with name: does not match '^/store/'")]
    with pytest.raises(Permanent, match=r"schema refuses the name user\.dcops:dc_inject-data\.one") as caught:
        lab.make()
    assert "--name-prefix" in caught.value.hint


def test_an_account_without_a_scope_is_told_so(lab, server):
    server.scopes.clear()
    with pytest.raises(Permanent) as caught:
        lab.make()
    assert "(none)" in caught.value.hint


def test_too_little_quota_or_space_is_told_with_numbers_before_anything_is_made(lab, server, wording):
    server.rses[RSE].quota = 5000.0
    with pytest.raises(UsageError) as refused:
        lab.make()
    wording(refused.value)
    server.rses[RSE].quota, server.rses[RSE].space = None, 100
    server.clock.time += timedelta(minutes=1)
    with pytest.raises(UsageError, match="0 B of quota left"):
        lab.make()
    server.rses[RSE].quota = 10.0**15
    server.clock.time += timedelta(minutes=1)
    with pytest.raises(UsageError, match="has 100 B free"):
        lab.make()
    assert named(server) == set()


@pytest.mark.parametrize(
    "rse",
    [
        "FAKE",
        "TAPE",
        "NONE",
    ],
)
def test_an_rse_that_cannot_be_filled_says_why(lab, server, rse, wording):
    with pytest.raises(UsageError) as refused:
        lab.make(rse=rse)
    wording(refused.value)
    assert named(server) == set()


def test_an_rse_that_is_blocked_or_makes_no_paths_says_so(lab, server):
    server.deterministic = False
    with pytest.raises(UsageError, match="not deterministic"):
        lab.make()
    server.rses[RSE].write = False
    server.clock.time += timedelta(minutes=1)
    with pytest.raises(Temporary, match="blocked writing"):
        lab.make()


def test_http_to_another_machine_is_no_door(lab, server):
    server.doors[RSE] = "http://se.example.org/rse"
    with pytest.raises(UsageError, match="its protocols are http, root"):
        lab.make()


def test_where_an_rse_is_served_follows_from_its_protocols(lab, server, dav, monkeypatch):
    place = urlsplit(dav.url)
    assert endpoints(lab.connection, RSE) == [(place.hostname, place.port)]
    assert endpoints(lab.connection, "FAKE") == []
    monkeypatch.setattr(CatalogueClient, "get_protocols", FakeClient.get_protocols)
    server.rses["BARE"] = FakeRse(reads=(), writes=())
    assert endpoints(lab.connection, "BARE") == []


def test_a_set_of_that_name_with_other_files_or_elsewhere_is_refused(lab, server, wording):
    lab.make()
    with pytest.raises(UsageError) as refused:
        lab.make(FileSet("one", 7, 1000, 4))
    wording(refused.value)
    server.register.add("T1_YY")
    with pytest.raises(UsageError, match="is at T2_XX_SCRATCHDISK already"):
        lab.make(rse="T1_YY")
    assert named(server) == DIDS


def test_what_is_foretold_changes_nothing(lab, server, dav):
    place = lab.place()
    known = place.prospect()
    assert (known.account, known.admin, known.scopes) == ("dcops", False, (SCOPE,))
    assert place.missing() == list(range(1, 8))
    assert place.url(1) == server.place(RSE, SCOPE, SET.file(1))
    assert (named(server), server.rules, written(dav)) == (set(), {}, {})
    assert not {line.split()[0] for line in dav.asked} & {"PUT", "MKCOL", "DELETE"}


def test_sets_are_listed_with_what_rules_there_are_elsewhere(lab, server):
    lab.make()
    lab.make(FileSet("two", 2, 1000, 2))
    server.add(f"{SCOPE}:dc_inject-data.mine", RSE)
    server.add(f"{SCOPE}:dc_inject-data.one.7x1000by3.000004", RSE)  # it never had a fourth
    dataset = min(DIDS)
    server._rule(*dataset, "T1_YY", "dcops", {"comments": "dc_inject/1 test"})
    one, two = find_sets(lab.connection, SCOPE)
    assert (one.set, one.rse, one.files, one.bytes, one.elsewhere) == (SET, RSE, 7, 7000, {"T1_YY": 1})
    assert {(SCOPE, dataset) for dataset in one.datasets} == DIDS
    assert (two.set.name, two.files, two.elsewhere) == ("two", 2, {})
    assert [found_set.set.name for found_set in find_sets(lab.connection, SCOPE, name="two")] == ["two"]
    assert find_sets(lab.connection, SCOPE, before="x") == []
    assert find_sets(lab.connection, SCOPE, name="*") == []


def test_names_begin_as_the_policy_wants_it(lab, server):
    lab.make(FileSet("one", 2, 1000, 2, "user.me."))
    assert {name for _, name in server.datasets} == {"user.me.dc_inject-data.one.2x1000by2.000001"}
    assert find_sets(lab.connection, SCOPE) == []
    assert len(find_sets(lab.connection, SCOPE, "user.me.")) == 1


def test_what_is_erased_goes_with_its_rules_and_files_and_nothing_else(lab, server, dav, wording):
    lab.make()
    server.add(f"{SCOPE}:mine", RSE)
    (found_set,) = find_sets(lab.connection, SCOPE)
    assert sweep(lab.connection, lab.storage, found_set, RSE) == 0
    erase(lab.connection, found_set)
    server.clock.time += timedelta(seconds=2)
    with pytest.raises(Temporary) as refused:
        lab.make()
    wording(refused.value)
    assert {url.removeprefix(dav.url) for url in server.tidy()} == set(written(dav))
    assert named(server) == {(SCOPE, "mine")}
    erase(lab.connection, found_set)  # once more does no harm


def test_files_without_a_replica_are_swept_away(lab, server, dav):
    place = lab.place()
    place.missing()
    place.begin()
    for number in (1, 2):
        place.keep([(number, place.write(number, lambda _: None))])
    dark = place.write(5, lambda _: None)
    (found_set,) = find_sets(lab.connection, SCOPE)
    assert found_set.files == 2
    assert sweep(lab.connection, lab.storage, found_set, RSE) == 1
    assert dark.url.removeprefix(dav.url) not in written(dav)
    assert len(written(dav)) == 2


@pytest.mark.parametrize(
    "place",
    [
        "{url}/rse/theirs",
        "{url}/rse",
        "{url}",
        "{url}/elsewhere/{name}",
        "{url}/rsex/{name}",
        "{url}/rse/x{name}",
        "{url}/rse/{name}x",
        "{url}/rse/{name}/x",
        "{url}/rse/" + SET.file(1),
        "davs://other.example.org/rse/{name}",
    ],
)
def test_what_rucio_says_is_no_reason_to_delete(lab, server, dav, monkeypatch, place):
    """Only below the RSE's own prefix, and only a file of the set, by its name to the letter."""
    lab.make()
    for path in ("/elsewhere", "/rsex", "/rse"):
        for number in range(1, 8):
            dav.put(f"{path}/{SET.file(number)}")
    (found_set,) = find_sets(lab.connection, SCOPE)
    there = dict(dav.files)
    name = SET.file(3)
    for dataset in DIDS:
        server.datasets[dataset].pop(name, None)  # as an interrupted making leaves it
    monkeypatch.setattr(Catalogue, "place", lambda self, rse, scope, name: place.format(url=dav.url, name=name))
    with pytest.raises(NotOurs):
        sweep(lab.connection, lab.storage, found_set, RSE)
    assert dav.files == there
    assert dav.deleted() == []


def test_erasing_in_a_scope_of_others_says_whom_to_ask(lab, server):
    lab.make()
    (found_set,) = find_sets(lab.connection, SCOPE)
    server.scopes = {"other"}
    with pytest.raises(Permanent, match="does not let dcops erase") as caught:
        erase(lab.connection, found_set)
    assert "owns the scope user.dcops" in caught.value.hint


def test_what_is_missing_can_be_asked_for_twice(lab, server):
    """Each dataset is begun once all the same."""
    made = lab.place()
    assert made.missing() == made.missing()
    made.begin()
    assert len([name for name, _, _ in server.calls if name == "add_dataset"]) == len(DIDS)
