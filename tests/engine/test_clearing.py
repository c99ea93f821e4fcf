"""Clearing up on demand: all in one go however much it is, each known at once, no storage waited for in vain."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from dc_inject.backends.sim import SimClock
from dc_inject.engine.ending import THREADS, Drain
from dc_inject.ledger import Ledger
from dc_inject.model import Bundle, Cycle, Entry, Injection, Link, State
from dc_inject.model.errors import Permanent, ServiceError, Temporary
from dc_inject.model.ports import Finished, Removal
from tests.sim import SimBackend

START = datetime(2027, 2, 8, 10, tzinfo=UTC)
NEVER = datetime.max.replace(tzinfo=UTC)
A_MINUTE = timedelta(minutes=1)
PATIENCE = timedelta(minutes=2)  # that of the command
SOURCE = "davs://a.example.org/dc"


class Slow:
    """An executor of some threads on a simulated clock: a task lasts as long as its service says."""

    def __init__(self, clock: SimClock, lasts: Callable[[], timedelta | None]) -> None:
        self._clock = clock
        self._lasts = lasts
        self._free = [clock.now()] * THREADS  # when each thread is free again
        self._ends: list[tuple[datetime, int, Finished]] = []
        self._count = 0
        self.most = 0  # that were under way at once

    def submit(self, tag: Hashable, task: Callable[[], Any], lane: str = "") -> None:
        """Take the first free thread; the task itself runs now, and is heard of at its end."""
        begin = max(heapq.heappop(self._free), self._clock.now())
        done = Finished(tag, task(), None)
        lasts = self._lasts()
        end = NEVER if lasts is None or begin is NEVER else begin + lasts
        heapq.heappush(self._free, end)
        self._count += 1
        heapq.heappush(self._ends, (end, self._count, done))
        self.most = max(self.most, len(self._ends))

    def wait(self, until: datetime) -> list[Finished]:
        """Let time pass until a task ends."""
        next_end = self._ends[0][0] if self._ends else NEVER
        self._clock.advance(min(next_end, until))
        finished = []
        while self._ends and self._ends[0][0] <= self._clock.now():
            finished.append(heapq.heappop(self._ends)[2])
        return finished

    def wake(self) -> None:
        pass


@dataclass
class Book:
    """A record of who is gone, and when that was written."""

    known: dict[str, datetime] = field(default_factory=dict)
    campaign: str = "test"

    def gone(self, keys: Sequence[str], now: datetime) -> None:
        assert not set(keys) & set(self.known)
        self.known |= dict.fromkeys(keys, now)


class Service(SimBackend):
    """Storages that take `a_file` a file, hang or time out at some destinations, and refuse some keys often."""

    a_file = timedelta(milliseconds=100)

    def __init__(
        self,
        clock: SimClock,
        *,
        hangs: Iterable[str] = (),
        silent: Iterable[str] = (),
        refuses: dict[str, int] | None = None,
        refused: ServiceError | None = None,
    ) -> None:
        super().__init__(clock, {}, name="fts")
        self.hangs, self.silent = set(hangs), set(silent)
        self.refused = refused or Temporary("busy")
        self.refuses = Counter(refuses or {})
        self.asked: Counter[str] = Counter()
        self.order: list[str] = []
        self.lasts: timedelta | None = None

    def remove(self, entries: Sequence[Entry]) -> list[Removal]:
        self.asked.update(entry.injection.key for entry in entries)
        self.order += [entry.injection.link.destination for entry in entries]
        hangs = any(entry.injection.link.destination in self.hangs for entry in entries)
        self.lasts = None if hangs else sum((e.injection.item.files * self.a_file for e in entries), timedelta())
        if any(entry.injection.link.destination in self.silent for entry in entries):
            self.lasts = A_MINUTE
            return [Removal(e.injection.key, gone=False, error=Temporary("no answer in time")) for e in entries]
        return [self._answer(entry.injection.key) for entry in entries]

    def _answer(self, key: str) -> Removal:
        if self.refuses[key] > 0:
            self.refuses[key] -= 1
            return Removal(key, gone=False, error=self.refused)
        return Removal(key, gone=True)


def place(host: str) -> str:
    return f"davs://{host}.example.org/dc"


def job(number: int, host: str = "b", files: int = 200) -> Entry:
    """A job that is over, with all its files at a destination."""
    injection = Injection(
        key=f"{host}-{number}",
        campaign="test",
        cycle=Cycle(START, timedelta(minutes=15)),
        scenario="export",
        link=Link(SOURCE, place(host), "fts"),
        item=Bundle("files", files, files),
        release=START,
        lifetime=timedelta(hours=1),
        activity="",
        service_priority=3,
        contact="",
    )
    return Entry(injection, State.ENDED, ended_at=START, files_done=files)


def _said(removal: Removal) -> str:
    return removal.error.message if removal.error else ""


@dataclass
class Cleared:
    """What became of clearing up: what was asked, written, told of each key (one thing), and said of waiting."""

    service: Service
    book: Book
    told: dict[str, Removal]
    waits: list[tuple[datetime, str, str]]
    took: timedelta
    at_once: int


def clear(entries: Sequence[Entry], change: Callable[[Service], None] | None = None, **more: Any) -> Cleared:
    """Clear up with the patience of the command."""
    clock = SimClock(START)
    service, book = Service(clock, **more), Book()
    if change is not None:
        change(service)
    executor, waits = Slow(clock, lambda: service.lasts), []
    drain = Drain(ledger=cast("Ledger", book), backends={"fts": service}, clock=clock, executor=executor)
    told = list(drain.remove(entries, PATIENCE, lambda where, why: waits.append((clock.now(), where, why))))
    assert len(told) == len({removal.key for removal in told}) == len(entries)
    by_key = {removal.key: removal for removal in told}
    return Cleared(service, book, by_key, waits, clock.now() - START, executor.most)


def test_a_large_campaign_is_known_to_be_gone_after_one_go() -> None:
    """25,000 files at 100 ms each take longer than any patience; each is deleted once, and written when it is."""
    done = clear([job(number) for number in range(125)])
    assert all(removal.gone for removal in done.told.values())
    assert set(done.service.asked.values()) == {1}
    assert len(done.book.known) == 125
    # One alone, until the storage has answered; then sixteen rounds of eight threads.
    assert len(set(done.book.known.values())) == 1 + 16


def test_no_more_is_asked_than_there_are_threads() -> None:
    """What waits for a thread would be late before it has begun."""
    assert clear([job(number) for number in range(100)]).at_once == THREADS


def test_a_call_that_does_not_come_back_is_left_out_and_never_made_twice() -> None:
    """The others go on beside it; what became of it is not known."""
    entries = [job(0, "hung"), *(job(number) for number in range(100))]
    done = clear(entries, hangs=[place("hung")])
    assert done.service.asked["hung-0"] == 1
    assert "no answer" in _said(done.told["hung-0"])
    assert len(done.book.known) == 100


def test_storages_that_hang_do_not_keep_the_others() -> None:
    """Each storage gets its turn: the well one has all its jobs done; what was not asked at all is said."""
    entries = [job(number, host) for host in ("hung", "dead") for number in range(50)]
    done = clear([*entries, *(job(n) for n in range(50))], hangs=[place("hung"), place("dead")])
    assert set(done.service.order[:3]) == {place("hung"), place("dead"), place("b")}
    assert set(done.service.asked.values()) == {1}
    assert len(done.book.known) == 50
    assert sum(done.service.asked[entry.injection.key] for entry in entries) == 2
    said = {_said(done.told[entry.injection.key]) for entry in entries}
    assert any(f"not asked to delete at {place('hung')}" in one for one in said)


def test_more_hanging_storages_than_threads_are_an_end_too() -> None:
    """No thread is left for what is well: that is said, and not waited for."""
    entries = [job(0, f"hung{n}") for n in range(THREADS)] + [job(0, "last")]
    done = clear(entries, hangs=[place(f"hung{n}") for n in range(THREADS)])
    assert "all threads" in _said(done.told["last-0"])
    assert done.took < timedelta(minutes=20)


def test_a_storage_that_times_out_costs_minutes_and_not_hours() -> None:
    """500 jobs at a storage of which each call takes a minute to fail: a few are tried, all are told of."""
    entries = [job(number, "mute") for number in range(500)]
    done = clear([*entries, *(job(n) for n in range(50))], silent=[place("mute")])
    assert done.took <= timedelta(minutes=5)
    assert len(done.book.known) == 50
    assert max(done.book.known.values()) <= START + timedelta(minutes=3)
    assert sum(done.service.asked[entry.injection.key] for entry in entries) <= 5
    assert "no answer in time" in _said(done.told["mute-0"])


def test_what_is_waited_for_is_said_once_for_each_destination() -> None:
    """Also before a first time-out, which takes a minute; and nothing is said of what answers."""
    entries = [job(number, host, files=50) for host in ("mute", "hung", "b") for number in range(50)]
    done = clear(entries, silent=[place("mute")], hangs=[place("hung")])
    first, second = sorted(done.waits)
    assert {first[1], second[1]} == {place("mute"), place("hung")}
    assert {first[0], second[0]} == {START + timedelta(seconds=10)}
    assert "nothing heard" in first[2]


def test_what_a_storage_refuses_is_said_as_its_reason() -> None:
    done = clear([job(0, files=50)], refuses={"b-0": 10**9}, refused=Permanent("403 for DELETE"))
    assert [(where, why) for _, where, why in done.waits] == [(place("b"), "403 for DELETE")]


def test_a_refusal_of_some_jobs_does_not_slow_the_others() -> None:
    """What a storage says of one job it says at once, and it is no sign that it cannot do the others."""
    refuses = {f"b-{number}": 10**9 for number in range(100)}
    done = clear([job(n) for n in range(200)], refuses=refuses, refused=Permanent("403 for DELETE"))
    assert len(done.book.known) == 100
    assert max(done.book.known.values()) <= START + timedelta(minutes=10)
    assert set(done.service.asked) == {f"b-{number}" for number in range(200)}


def test_what_resists_is_asked_for_again_as_long_as_anything_gets_on() -> None:
    """A refused job is gone at a later try; one that never is, is given up when nothing gets on for a while."""
    done = clear([job(number) for number in range(125)], refuses={"b-0": 3, "b-1": 10**9})
    assert done.told["b-0"].gone
    assert done.service.asked["b-0"] == 4
    assert _said(done.told["b-1"]) == "busy"
    assert len(done.book.known) == 124


def test_an_answer_that_comes_late_still_counts() -> None:
    """A job that took longer than its patience, while others were at work, is written down and not asked again."""

    def slow_at_one(service: Service) -> None:
        real = service.remove

        def slow(entries: Sequence[Entry]) -> list[Removal]:
            told = real(entries)
            if entries[0].injection.link.destination == place("late"):
                service.lasts = timedelta(minutes=4)
            return told

        service.remove = slow  # type: ignore[method-assign]

    done = clear([job(0, "late", files=0), *(job(number) for number in range(125))], slow_at_one)
    assert done.told["late-0"].gone
    assert done.service.asked["late-0"] == 1
    assert done.book.known["late-0"] == START + timedelta(minutes=4)
