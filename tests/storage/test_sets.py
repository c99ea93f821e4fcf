"""Sets of test files at a storage: made by several threads, gone on with, listed, dropped with nothing else."""

from __future__ import annotations

import threading
import zlib
from collections import Counter

import pytest

from dc_inject.apps.data.filling import BATCH, fill
from dc_inject.model.errors import Permanent, Temporary, UsageError
from dc_inject.model.samples import FileSet
from dc_inject.storage.sets import SetStatus, StorageSet, Written, drop, find_sets
from tests.storage.server import status

SET = FileSet("one", 7, 1000)
BELOW = "/dc/dc_inject-data/one/7x1000"


@pytest.fixture
def prefix(server) -> str:
    server.put("/dc/theirs")
    return f"{server.url}/dc"


def made(storage, prefix, wanted=SET, parallel=3):
    place = StorageSet(storage, prefix, wanted, sleep=lambda _: None)
    return fill(place, place.missing(), parallel=parallel, moved=lambda _: None)


def puts(server) -> Counter[str]:
    return Counter(line for line in server.asked if line.startswith("PUT"))


def test_a_set_is_made_listed_and_dropped_and_nothing_else_is_touched(server, storage, prefix):
    written = made(storage, prefix)
    files = {path: content for path, content in server.files.items() if path != "/dc/theirs"}
    assert [number for number, _ in written] == list(range(1, 8))
    assert {one.url.removeprefix(server.url): one.adler32 for _, one in written} == {
        path: f"{zlib.adler32(content):08x}" for path, content in files.items()
    }
    assert {len(content) for content in files.values()} == {1000}
    assert len(set(files.values())) == 7
    assert list(find_sets(storage, prefix)) == [SetStatus(SET, 7, 7000)]
    assert list(drop(storage, prefix, SET)) == [1000] * 7
    assert server.files == {"/dc/theirs": b"x"}
    assert server.folders == {"", "/dc", "/dc/dc_inject-data"}  # another set may just be made in there
    assert list(find_sets(storage, prefix)) == []


def test_a_making_that_broke_off_goes_on_and_ends_with_the_same_set(server, storage, prefix):
    lock, left = threading.Lock(), [4]

    def some(handler):
        with lock:
            left[0] -= 1
        return handler.on_put() if left[0] >= 0 else handler.answer(507)

    server.folders |= {"/dc/dc_inject-data", "/dc/dc_inject-data/one", BELOW}
    server.tricks["PUT"] = some
    with pytest.raises(Permanent, match="507"):
        made(storage, prefix)
    (found_set,) = find_sets(storage, prefix)
    assert found_set == SetStatus(SET, 4, 4000)
    del server.tricks["PUT"]
    first, server.asked[:] = dict(server.files), []
    made(storage, prefix)
    assert sum(puts(server).values()) == 3  # what was there was not written again
    assert first.items() <= server.files.items()
    kept = dict(server.files)
    server.files.clear()
    server.put("/dc/theirs")
    made(storage, prefix)
    assert server.files == kept


def test_a_set_of_the_same_name_with_other_files_is_refused(storage, server, prefix, wording):
    made(storage, prefix)
    with pytest.raises(UsageError) as refused:
        made(storage, prefix, FileSet("one", 8, 1000))
    wording(refused.value)
    assert len(server.files) == 8


def test_a_prefix_that_does_not_exist_is_told_before_anything_is_written(storage, server, prefix, wording):
    with pytest.raises(Permanent) as refused:
        made(storage, f"{prefix}/none")
    wording(refused.value)
    assert puts(server) == Counter()


def test_what_is_not_of_the_set_to_the_letter_stays_with_its_folders(server, storage, prefix):
    made(storage, prefix)
    strangers = {f"{BELOW}/000008.dat", f"{BELOW}/notes.txt", "/dc/dc_inject-data/one/mine/000001.dat"}
    for path in strangers:
        server.put(path)
    assert len(list(drop(storage, prefix, SET))) == 7
    assert set(server.files) == strangers | {"/dc/theirs"}


def test_a_file_that_was_cut_off_is_counted_and_dropped(server, storage, prefix):
    server.put(f"{BELOW}/000003.dat", b"x" * 10)
    assert list(find_sets(storage, prefix)) == [SetStatus(SET, 1, 10)]
    assert list(StorageSet(storage, prefix, SET).find_unwritten()) == list(range(1, 8))
    assert list(drop(storage, prefix, SET)) == [10]
    assert server.folders == {"", "/dc", "/dc/dc_inject-data"}  # another set may just be made in there


@pytest.mark.parametrize("name", ["..", "a/b", "", "one"])
def test_a_name_that_no_set_has_finds_nothing(storage, prefix, name):
    assert list(find_sets(storage, prefix, name)) == []


def test_without_the_right_to_write_one_file_is_tried(server, storage, prefix):
    server.tricks["PUT"] = status(403)
    with pytest.raises(Exception, match="403"):
        made(storage, prefix)
    assert len(puts(server)) == 1


# Filling, whatever the place


class Slow:
    """A place whose files arrive when a test says so."""

    def __init__(self, fails: int = 0) -> None:
        self.fails, self.kept, self.events = fails, [], []

    def missing(self):
        return range(1, 101)

    def begin(self):
        self.events.append("begin")

    def url(self, number):
        return f"u{number}"

    def write(self, number, moved):
        moved(1)
        if number == self.fails:
            raise Temporary("no answer in time")
        return Written(self.url(number), 1, "00000001", True)

    def keep(self, written):
        self.events.append(len(written))
        self.kept += [number for number, _ in written]

    def finish(self):
        self.events.append("finish")


def test_the_first_file_goes_alone_and_the_others_are_kept_in_batches():
    place, moved = Slow(), []
    done = fill(place, place.missing(), parallel=4, moved=moved.append)
    assert [number for number, _ in done] == list(range(1, 101))
    assert sorted(place.kept) == list(range(1, 101))
    assert place.events[:2] == ["begin", 1]
    assert place.events[-1] == "finish"
    assert all(count >= BATCH for count in place.events[2:-2])
    assert sum(moved) == 100


def test_what_arrived_before_an_error_is_kept_and_nothing_is_finished():
    place = Slow(fails=50)
    with pytest.raises(Temporary):
        fill(place, place.missing(), parallel=4, moved=lambda _: None)
    assert set(range(1, 40)) <= set(place.kept)
    assert 50 not in place.kept
    assert "finish" not in place.events
    assert len(set(place.kept)) == len(place.kept) < 70


def test_nothing_missing_is_finished_all_the_same():
    place = Slow()
    assert fill(place, [], parallel=4, moved=lambda _: None) == []
    assert place.events == ["begin", "finish"]
