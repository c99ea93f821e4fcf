"""Deleting on demand: all in one go however much it is, each known at once, nothing asked twice beside itself."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from dc_inject.backends.sim import SimBackend, SimClock
from dc_inject.engine.ending import Ending
from dc_inject.errors import Temporary
from dc_inject.model import Cycle, Entry, Injection, Item, Link, State
from dc_inject.ports import Finished, Observation, Removal

START = datetime(2027, 2, 8, 10, tzinfo=UTC)
NEVER = datetime.max.replace(tzinfo=UTC)
THREADS = 8
SOURCE = "davs://a.example.org/dc"


class Slow:
    """An executor of some threads on a simulated clock: a task lasts as long as its service says."""

    def __init__(self, clock: SimClock, lasts: Callable[[], timedelta | None]) -> None:
        self._clock = clock
        self._lasts = lasts
        self._free = [clock.now()] * THREADS  # when each thread is free again
        self._ends: list[tuple[datetime, int, Finished]] = []
        self._count = 0

    def submit(self, tag: Hashable, task: Callable[[], Any]) -> None:
        """Take the first free thread; the task itself runs now, and is heard of at its end."""
        begin = max(heapq.heappop(self._free), self._clock.now())
        done = Finished(tag, task(), None)
        lasts = self._lasts()
        end = NEVER if lasts is None or begin is NEVER else begin + lasts
        heapq.heappush(self._free, end)
        self._count += 1
        heapq.heappush(self._ends, (end, self._count, done))

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

    @property
    def busy(self) -> int:
        return len(self._ends)


@dataclass
class Book:
    """A record of who is gone, and when that was written."""

    clock: SimClock
    known: dict[str, datetime] = field(default_factory=dict)

    def gone(self, keys: Sequence[str], now: datetime) -> None:
        assert not set(keys) & set(self.known)
        self.known |= dict.fromkeys(keys, now)

    def end_asked(self, keys: Sequence[str], now: datetime) -> None:
        raise AssertionError

    def observe(self, observations: Sequence[Observation], now: datetime) -> None:
        raise AssertionError

    def withdraw(self, keys: Sequence[str], why: str, now: datetime) -> None:
        raise AssertionError


class Service(SimBackend):
    """Storages that take `a_file` a file, hang at some destinations, and refuse some keys so many times."""

    a_file = timedelta(milliseconds=100)

    def __init__(
        self, clock: SimClock, *, hangs: Iterable[str] = (), refuses: dict[str, int] | None = None
    ) -> None:
        super().__init__(clock, {}, name="fts", cleans_up=False)
        self.hangs = set(hangs)
        self.refuses = Counter(refuses or {})
        self.asked: Counter[str] = Counter()
        self.order: list[str] = []
        self.lasts: timedelta | None = None

    def remove(self, entries: Sequence[Entry]) -> list[Removal]:
        self.asked.update(entry.injection.key for entry in entries)
        self.order += [entry.injection.link.destination for entry in entries]
        hangs = any(entry.injection.link.destination in self.hangs for entry in entries)
        self.lasts = None if hangs else sum((e.injection.item.files * self.a_file for e in entries), timedelta())
        return [self._answer(entry.injection.key) for entry in entries]

    def _answer(self, key: str) -> Removal:
        if self.refuses[key] > 0:
            self.refuses[key] -= 1
            return Removal(key, gone=False, error=Temporary("busy"))
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
        item=Item("files", files, files),
        release=START,
        lifetime=timedelta(hours=1),
        activity="",
        service_priority=3,
        contact="",
    )
    return Entry(injection, State.ENDED, ended_at=START, files_done=files)


def _said(removal: Removal) -> str:
    return removal.error.message if removal.error else ""


def ending(clock: SimClock, service: Service, book: Book) -> Ending:
    executor = Slow(clock, lambda: service.lasts)
    return Ending(backends={"fts": service}, clock=clock, executor=executor, record=book, at_once=THREADS)


def remove(entries: Sequence[Entry], **more: Any) -> tuple[Service, Book, dict[str, Removal]]:
    """Delete with the patience of the command; what is told of each key, which has to be one thing."""
    clock = SimClock(START)
    service, book = Service(clock, **more), Book(clock)
    told = list(ending(clock, service, book).remove(entries, timedelta(minutes=2)))
    assert len(told) == len({removal.key for removal in told}) == len(entries)
    return service, book, {removal.key: removal for removal in told}


def test_a_large_campaign_is_known_to_be_gone_after_one_go() -> None:
    """25,000 files at 100 ms each take longer than any patience; each is deleted once, and written when it is."""
    service, book, told = remove([job(number) for number in range(125)])
    assert all(removal.gone for removal in told.values())
    assert set(service.asked.values()) == {1}
    assert len(book.known) == 125
    assert len(set(book.known.values())) == 125 / THREADS + 0.375  # sixteen rounds of eight threads


def test_no_more_is_asked_than_there_are_threads() -> None:
    """What waits for a thread would be late before it has begun."""
    clock = SimClock(START)
    service, book = Service(clock), Book(clock)
    deleting = ending(clock, service, book).remove([job(number) for number in range(100)], timedelta(minutes=2))
    next(deleting)
    assert len(service.asked) == THREADS


def test_a_call_that_does_not_come_back_is_left_out_and_never_made_twice() -> None:
    """The others go on beside it; what became of it is not known."""
    entries = [job(0, "hung"), *(job(number) for number in range(100))]
    service, book, told = remove(entries, hangs=[place("hung")])
    assert service.asked["hung-0"] == 1
    assert "no answer yet" in _said(told["hung-0"])
    assert len(book.known) == 100


def test_storages_that_hang_do_not_keep_the_others() -> None:
    """Each storage gets its turn: the well one has all its jobs done; what was not asked at all is said."""
    entries = [job(number, host) for host in ("hung", "dead") for number in range(50)]
    service, book, told = remove([*entries, *(job(n) for n in range(50))], hangs=[place("hung"), place("dead")])
    assert set(service.order[:3]) == {place("hung"), place("dead"), place("b")}
    assert set(service.asked.values()) == {1}
    assert len(book.known) == 50
    assert sum(service.asked[entry.injection.key] for entry in entries) <= THREADS
    said = {_said(told[entry.injection.key]) for entry in entries}
    assert any(f"not asked to delete at {place('hung')}" in one for one in said)


def test_what_resists_is_asked_for_again_as_long_as_anything_gets_on() -> None:
    """A refused job is gone at a later try; one that never is, is given up when nothing gets on for a while."""
    entries = [job(number) for number in range(125)]
    service, book, told = remove(entries, refuses={"b-0": 3, "b-1": 10**9})
    assert told["b-0"].gone
    assert service.asked["b-0"] == 4
    assert _said(told["b-1"]) == "busy"
    assert len(book.known) == 124


def test_an_answer_that_comes_late_still_counts() -> None:
    """A job that took longer than its patience, while others were at work, is written down and not asked again."""
    clock = SimClock(START)
    service, book = Service(clock), Book(clock)
    late = [job(0, "late", files=0)]
    real = service.remove

    def slow(entries: Sequence[Entry]) -> list[Removal]:
        told = real(entries)
        if entries[0].injection.link.destination == place("late"):
            service.lasts = timedelta(minutes=4)
        return told

    service.remove = slow  # type: ignore[method-assign]
    others = [job(number) for number in range(125)]
    told = {r.key: r for r in ending(clock, service, book).remove([*late, *others], timedelta(minutes=2))}
    assert told["late-0"].gone
    assert service.asked["late-0"] == 1
    assert book.known["late-0"] == START + timedelta(minutes=4)
