"""Streamed reads without a worker's process and without a storage: paces, patterns, records, and the account."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject.apps.reads import records
from dc_inject.apps.reads.backend import ReadsBackend
from dc_inject.apps.reads.pacing import TokenBucket
from dc_inject.apps.reads.reader import Task, read
from dc_inject.apps.reads.records import Progress, Record
from dc_inject.backends.fts.inventory import SourceRefused
from dc_inject.model import (
    Bundle,
    DatasetFilter,
    Entry,
    File,
    FileFilter,
    JobOptions,
    Link,
    ReadOptions,
    State,
    transitions,
)
from dc_inject.model.errors import NeedsOperator, Permanent, Temporary
from dc_inject.model.ports import VANISHED, RseFacts, Status
from dc_inject.storage import NotFound
from tests.backends.support import CYCLE, injection, live

MB = 10**6
SOURCE = "root://se.example.org//dc"
LINK = Link(SOURCE, "T2_DE_DESY", "reads")


@pytest.fixture(autouse=True)
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(records.FOLDER, str(tmp_path / "spool"))
    return tmp_path / "spool"


class Time:
    """A clock that only sleeping and slow sources move."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


class Storage:
    """Files by URL, with their sizes; each block takes `seconds`, and `then` is called after it."""

    def __init__(self, files: dict[str, int], time: Time, seconds: float = 0.0) -> None:
        self.files, self.time, self.seconds = files, time, seconds
        self.blocks: list[tuple[str, int, int]] = []
        self.then: Callable[[int], None] = lambda count: None

    def open(self, task: Task, url: str, stopped: Callable[[], bool]) -> OpenFile:
        if url not in self.files:
            raise NotFound(f"open {url}: there is no such file or folder")
        return OpenFile(self, url)


class OpenFile:
    def __init__(self, storage: Storage, url: str) -> None:
        self.storage, self.url, self.size = storage, url, storage.files[url]

    def read(self, offset: int, length: int) -> int:
        self.storage.time.sleep(self.storage.seconds)
        self.storage.blocks.append((self.url, offset, length))
        self.storage.then(len(self.storage.blocks))
        return length

    def close(self) -> None:
        pass


def url(number: int) -> str:
    return f"{SOURCE}/{number}"


def task(options: ReadOptions, *sizes: int, until: float = 1e9, scitag: int | None = None) -> Task:
    return Task("key", tuple((url(n), options.size(size)) for n, size in enumerate(sizes)), options, until, scitag)


def read_all(task: Task, storage: Storage) -> Progress:
    read(task, storage.open, now=storage.time.now, sleep=storage.time.sleep)
    return records.load([task.key])[task.key]


# ------------------------------------------------------------------------------------- rates and patterns


@pytest.mark.parametrize(("seconds", "think"), [(0.0, 0.0), (0.3, 0.0), (0.05, 0.02)])
def test_a_reader_holds_its_rate_within_one_percent(seconds, think):
    """A block of 4 MB at 10 MB/s is due every 0.4 s, whatever part of that the source and the work take."""
    time = Time()
    storage = Storage({url(0): 6000 * MB}, time, seconds)
    done = read_all(task(ReadOptions(rate=10 * MB, think=think), 6000 * MB), storage)
    assert done.over
    assert done.read == 6000 * MB
    assert done.read / (time.at - 1000) == pytest.approx(10 * MB, rel=0.01)


def test_a_slow_source_gets_its_own_rate_and_is_not_pushed_afterwards():
    bucket = TokenBucket(10 * MB)
    assert bucket.take(4 * MB, 0.0) == 0
    assert bucket.take(4 * MB, 0.0) == pytest.approx(0.4)
    burst = 0
    while bucket.take(MB, 60.0) == 0:  # a minute of silence is over
        burst += 1
    assert burst <= 11


@settings(max_examples=200, deadline=None)
@given(whole=st.integers(0, 10**8), block=st.integers(1000, 64 * 2**20), fraction=st.floats(0.001, 1))
def test_what_is_planned_of_a_file_is_what_its_blocks_add_up_to(whole, block, fraction):
    options = ReadOptions(block=block, fraction=fraction)
    blocks = list(options.blocks(whole))
    assert options.size(whole) == sum(length for _, length in blocks)
    assert all(a + length <= b for (a, length), (b, _) in itertools.pairwise(blocks))
    assert all(offset + length <= whole for offset, length in blocks)
    assert options.size(whole) >= whole * fraction - block


def test_sparse_reads_leave_gaps_of_one_length():
    storage = Storage({url(0): 100 * MB}, Time())
    read_all(task(ReadOptions(block=MB, fraction=0.25), 100 * MB), storage)
    assert [offset for _, offset, _ in storage.blocks] == [n * 4 * MB for n in range(25)]


# ------------------------------------------------------------------------------------- one reader


def test_a_bundle_is_read_once_whoever_asks_again():
    storage = Storage({url(0): 8 * MB}, Time())
    once = task(ReadOptions(), 8 * MB)
    assert read_all(once, storage) == read_all(once, storage)
    assert sum(length for *_, length in storage.blocks) == 8 * MB


def test_a_file_that_fails_is_left_and_the_next_one_is_read():
    storage = Storage({url(1): 8 * MB}, Time())
    done = read_all(task(ReadOptions(), 8 * MB, 8 * MB), storage)
    assert (done.read, done.files, done.size, done.over) == (8 * MB, 1, 16 * MB, True)
    assert dict(done.reasons) == {"source-missing": 1}


def test_a_file_that_has_grown_counts_as_it_is():
    storage = Storage({url(0): 12 * MB}, Time())
    done = read_all(task(ReadOptions(), 8 * MB), storage)
    assert done.read == done.size == 12 * MB


def test_a_reader_stops_within_a_second_of_being_asked():
    time = Time()
    storage = Storage({url(0): 8000 * MB}, time)
    asked_at: list[float] = []

    def ask(count: int) -> None:
        if count == 5:
            records.stop(["key"])
            asked_at.append(time.at)

    storage.then = ask
    done = read_all(task(ReadOptions(rate=0.1 * MB), 8000 * MB), storage)  # a block takes 40 s
    assert done.stopped
    assert done.over
    assert done.read == 5 * 4 * MB
    assert time.at - asked_at[0] <= 1


def test_a_reader_ends_by_itself_when_its_time_is_over():
    time = Time()
    done = read_all(task(ReadOptions(rate=MB), 8000 * MB, until=1100.0), Storage({url(0): 8000 * MB}, time))
    assert done.stopped
    assert time.at == pytest.approx(1100, abs=1)
    assert done.read == pytest.approx(100 * MB, abs=4 * MB)


# ------------------------------------------------------------------------------------- the back end


class Site:
    """Workers that do what the test says; records are on this machine."""

    address = "tls://here:1"

    def __init__(self) -> None:
        self.begun: dict[str, tuple[Task, Callable[[], None]]] = {}
        self.refuses = False

    def check(self) -> None:
        return None

    def start(self, task: Task, done: Callable[[], None]) -> None:
        if self.refuses:
            raise Temporary("no workers")
        self.begun[task.key] = task, done

    def cancel(self, key: str) -> None:
        if key in self.begun:
            self.begun.pop(key)[1]()

    def ask(self, question: Callable[[Sequence[str]], object], keys: Sequence[str]) -> list[object]:
        return [question(keys)]

    def close(self) -> None:
        for _, done in [self.begun.pop(key) for key in list(self.begun)]:
            done()

    def work(self, storage: Storage) -> None:
        """Read what was begun by now."""
        for key, (todo, done) in list(self.begun.items()):
            read(todo, storage.open, now=storage.time.now, sleep=storage.time.sleep)
            if self.begun.pop(key, None):  # else it was cancelled
                done()


class Listed:
    """An inventory of one file of 100 MB."""

    def read(self, source: str, files: FileFilter) -> list[File]:
        return [File(f"{source}/0", 100 * MB)]


class Sites:
    """Storages by URL, which all answer."""

    def sites(self, prefixes: Iterable[str]) -> dict[str, RseFacts]:
        return {prefix: RseFacts(prefix, readable=True, free=7) for prefix in prefixes}


RSES = {
    "OPEN": RseFacts("OPEN", means=("OPEN",), readable=True, writable=False, quota_left=0),
    "CLOSED": RseFacts("CLOSED", means=("CLOSED",), readable=False),
    "TAPE": RseFacts("TAPE", means=("TAPE",), tape=True),
    "BOTH": RseFacts("BOTH", means=("BOTH", "OPEN")),
    "GONE": RseFacts("GONE", exists=False),
}


def describe(rses: Iterable[str]) -> dict[str, RseFacts]:
    """As Rucio does."""
    return {rse: RSES[rse] for rse in rses}


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def backend(site: Site) -> ReadsBackend:
    return ReadsBackend(site, Listed(), Sites(), lambda _url: True, describe, now=lambda: 1000.0)


def entries(backend: ReadsBackend, count: int, *, connections: int = 100, files: int = 2) -> list[Entry]:
    """Bundles of files of 8 MB, which the back end has accepted."""
    options = ReadOptions(connections=connections)
    made = []
    for number in range(count):
        members = tuple(File(url(n), 8 * MB) for n in range(files))
        bundle = Bundle(f"bundle {number}", 8 * MB * files, files, members)
        made.append(injection(bundle, LINK, job=JobOptions(reading=options)))
    return live(made, backend.submit(made))


def test_inventories_have_the_bytes_that_are_read(backend):
    files = FileFilter(folder="", reading=ReadOptions(block=MB, fraction=0.1))
    assert [item.bytes for item in backend.inventory(SOURCE, files)] == [10 * MB]


@pytest.mark.parametrize("rse", ["TAPE", "BOTH", "GONE"])
def test_an_rse_that_is_tape_or_no_single_rse_is_no_source(backend, rse):
    with pytest.raises(Permanent):
        list(backend.inventory(rse, FileFilter(datasets=DatasetFilter(("a:b",)))))
    assert backend.sites([rse])[rse] == RseFacts(rse)


def test_of_ends_it_is_known_only_whether_they_may_be_read(backend):
    """The site of the workers may have the name of an RSE, which is not asked for."""
    for rse in ("OPEN", "CLOSED"):
        assert list(backend.inventory(rse, FileFilter(datasets=DatasetFilter(("a:b",)))))
    assert backend.sites([SOURCE, "OPEN", "CLOSED", "TAPE"]) == {
        SOURCE: RseFacts(SOURCE, readable=True),
        "OPEN": RseFacts("OPEN", readable=True),
        "CLOSED": RseFacts("CLOSED", readable=False),
        "TAPE": RseFacts("TAPE"),
    }


def test_where_rucio_cannot_be_asked_only_its_rses_are_no_sources(site):
    """Other links go on; what is read already is read to its end."""
    refused = NeedsOperator("no rucio.cfg", "write one", hold="local")
    answers = iter([RSES, refused, refused])

    def ask(rses: Iterable[str]) -> dict[str, RseFacts]:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return {rse: answer[rse] for rse in rses}

    backend, files = ReadsBackend(site, Listed(), Sites(), lambda _url: True, ask), DatasetFilter(("a:b",))
    assert list(backend.inventory("OPEN", FileFilter(datasets=files)))
    facts = backend.sites([SOURCE, "OPEN"])
    assert (facts[SOURCE].readable, facts["OPEN"].readable, set(facts["OPEN"].missing)) == (
        True,
        None,
        {"readable"},
    )
    with pytest.raises(SourceRefused) as error:
        list(backend.inventory("CLOSED", FileFilter(datasets=files)))
    assert (error.value.hold, error.value.hint) == ("local", "write one")


def test_moved_is_what_workers_have_read(backend, site):
    some = entries(backend, 3)
    assert {seen.status for seen in backend.observe(some)} == {Status.WAITING}
    site.work(Storage({url(0): 8 * MB, url(1): 8 * MB}, Time()))
    for seen in backend.observe(some):
        assert (seen.status, seen.moved, seen.exact, seen.failed) == (Status.COMPLETE, 16 * MB, True, 0)


def test_what_could_not_be_read_has_failed(backend, site):
    some = entries(backend, 1)
    site.work(Storage({url(1): 8 * MB}, Time()))
    (seen,) = backend.observe(some)
    assert (seen.moved, seen.failed, dict(seen.reasons)) == (8 * MB, 8 * MB, {"source-missing": 1})


def test_what_a_reader_left_when_it_died_has_failed_and_what_it_read_has_moved(backend, site):
    some = entries(backend, 1)
    key = some[0].injection.key
    record = Record(records.folder(), key)
    record.write(Progress(read=10 * MB, files=1, size=16 * MB))
    (seen,) = backend.observe(some)
    assert (seen.status, seen.moved, seen.failed) == (Status.MOVING, 10 * MB, 0)
    record.close()
    (seen,) = backend.observe(some)
    assert (seen.status, seen.moved, seen.failed) == (Status.COMPLETE, 10 * MB, 6 * MB)
    assert dict(seen.reasons) == {VANISHED: 1}


def test_after_a_restart_what_never_began_has_failed_and_what_is_in_doubt_is_absent(backend):
    (known,) = entries(backend, 1)
    restarted = ReadsBackend(Site(), Listed(), Sites(), lambda _url: True, describe)
    (seen,) = restarted.observe([known])
    assert (seen.status, seen.moved or 0, seen.failed) == (Status.ABSENT, 0, 16 * MB)
    (doubt,) = restarted.observe([replace(known, state=State.CALLED)])
    assert (doubt.status, doubt.failed) == (Status.ABSENT, 0)


def test_a_source_has_no_more_readers_than_the_menu_allows(backend, site):
    some = entries(backend, 7, connections=3)
    order, storage = [], Storage({url(0): 8 * MB, url(1): 8 * MB}, Time())
    while site.begun:
        assert len(site.begun) <= 3
        order += list(site.begun)
        site.work(storage)
    assert order == [entry.injection.key for entry in some]
    assert {seen.status for seen in backend.observe(some)} == {Status.COMPLETE}


def test_asking_again_begins_no_second_reader(backend, site):
    some = entries(backend, 2, connections=1)
    backend.submit([entry.injection for entry in some])
    storage = Storage({url(0): 8 * MB, url(1): 8 * MB}, Time())
    site.work(storage)
    site.work(storage)
    assert site.begun == {}
    assert len(storage.blocks) == 2 * 2 * 2


def test_at_the_end_no_bundle_begins_in_place_of_one_that_ends(backend, site):
    """What was not read is due again at the next start."""
    both = entries(backend, 2, connections=1)
    backend.close()
    assert not site.begun
    observed = backend.observe(both)
    assert [(seen.status, seen.moved, seen.size, seen.failed) for seen in observed] == [
        (Status.ABSENT, 0, 0, 0)
    ] * 2


@pytest.mark.parametrize("begun", [0, 1])
def test_after_the_end_no_bundle_begins(backend, site, begun):
    """It would start workers that nothing ends. Of a call that had begun it is looked up what was read."""
    made = iter(range(4))
    backend._trusted = lambda _url: next(made) < 2 * begun or backend.close() is None
    with pytest.raises(Temporary) as refused:
        entries(backend, 2)
    assert (refused.value.lost, site.begun) == (True, {})


def test_what_an_ended_worker_had_not_read_is_taken_back_and_is_no_failure(backend, site):
    """Or else the links of a run that was started again would get a tenth of their rates."""
    (one,) = entries(backend, 1)
    record = Record(records.folder(), one.injection.key)
    record.write(Progress(read=9 * MB, files=1, size=16 * MB))
    record.close()
    assert backend.observe([one])[0].failed == 7 * MB
    backend.close()
    (observed,) = backend.observe([one])
    assert (observed.files_stuck, dict(observed.reasons), observed.error) == (0, {}, ""), "its files did not fail"
    seen = transitions.observed(one, observed, CYCLE.end)
    assert (seen.state, seen.moved, seen.injected, seen.failed) == (State.ENDED, 9 * MB, 9 * MB, 0)


def test_bundles_that_workers_do_not_take_are_not_lost(backend, site):
    site.refuses = True
    with pytest.raises(Temporary):
        entries(backend, 1)
    site.refuses = False
    (again,) = entries(backend, 1)
    assert list(site.begun) == [again.injection.key]


def test_ended_readers_count_for_what_they_have_read_and_leave_nothing(backend, site, spool):
    some = entries(backend, 2, connections=1)
    storage = Storage({url(0): 8 * MB, url(1): 8 * MB}, Time())
    storage.then = lambda count: backend.end(some) if count == 1 else None
    site.work(storage)
    asked = [replace(entry, end_asked_at=entry.accepted_at) for entry in some]
    seen = backend.observe(asked)
    assert [one.status for one in seen] == [Status.ABSENT, Status.ABSENT]
    assert [one.moved or 0 for one in seen] == [4 * MB * len(storage.blocks), 0]
    assert 1 <= len(storage.blocks) <= 2  # of four
    assert [one.failed for one in seen] == [0, 0]
    assert all(removal.gone for removal in backend.remove(asked))
    assert list(spool.iterdir()) == []


def test_a_task_knows_its_time_and_has_no_credentials(backend, site, monkeypatch):
    monkeypatch.setenv("BEARER_TOKEN", "s3cr3t")
    entries(backend, 1)
    ((todo, _),) = site.begun.values()
    assert todo.until == 1000.0 + 3600
    assert "s3cr3t" not in repr(todo)
