"""Who is copied when: limits, priorities, retries, patience, and the copies that are under way."""

from __future__ import annotations

import asyncio
import heapq
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

from .copying import Transfer, clean, copy
from .failures import CopyFailed
from .jobs import Jobs
from .limits import Limits
from .optimizer import Optimizer, Over, Pair
from .settings import Knobs
from .storages import Storages

Link = tuple[str, str, str]  # VO, source storage, destination storage

log = logging.getLogger("fts")
_TICK = 0.25  # seconds between two looks at what only time brings


class Queue:
    """The files that wait. Of a link only those of its highest waiting priority are served, as FTS3 does."""

    def __init__(self) -> None:
        self._links: dict[Link, dict[int, dict[int, None]]] = {}
        self._places: dict[int, tuple[Link, int]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def add(self, link: Link, priority: int, file_id: int) -> None:
        """Let a file wait behind those of its link and priority."""
        self.drop(file_id)
        self._links.setdefault(link, {}).setdefault(priority, {})[file_id] = None
        self._places[file_id] = (link, priority)

    def drop(self, file_id: int) -> None:
        """Let a file wait no longer."""
        link, priority = self._places.pop(file_id, (None, 0))
        if link is None:
            return
        priorities = self._links[link]
        del priorities[priority][file_id]
        if not priorities[priority]:
            del priorities[priority]
        if not priorities:
            del self._links[link]

    def take(self, has_room: Callable[[Link], bool]) -> tuple[Link, int] | None:
        """Take the next file of the first link that has room; that link goes to the end of the line."""
        link = next((candidate for candidate in self._links if has_room(candidate)), None)
        if link is None:
            return None
        priorities = self._links.pop(link)
        self._links[link] = priorities
        file_id = next(iter(priorities[max(priorities)]))
        self.drop(file_id)
        return link, file_id


class Scheduler:
    """Starts copies while there is room, and writes down how they end."""

    def __init__(self, jobs: Jobs, limits: Limits, knobs: Knobs, storages: Storages, optimizer: Optimizer) -> None:
        """Take up what waits in the database."""
        self._jobs, self._limits, self._knobs = jobs, limits, knobs
        self._storages, self._optimizer = storages, optimizer
        self._queue = Queue()
        self._later: list[tuple[float, int]] = []
        self._active: dict[int, asyncio.Task[None]] = {}
        self._on_link: Counter[Pair] = Counter()
        self._out_of: Counter[str] = Counter()
        self._into: Counter[str] = Counter()
        self._copying: Counter[str] = Counter()  # by destination: of its active files, those that really run
        self._room = asyncio.Condition()
        self._wake = asyncio.Event()
        self._left = jobs.recover()
        for row in jobs.waiting():
            self._wait(row)

    async def run(self) -> None:
        """Work until cancelled."""
        for file_id in self._left:
            self._spawn(file_id, None, self._clean(file_id))
        looked, passed, next_tick = time.time(), 0.0, 0.0
        while True:
            self._wake.clear()
            now, settings = time.time(), self._knobs.now
            stopped = settings.standstill or settings.database_down
            if now >= next_tick and not stopped:
                next_tick = now + _TICK
                self.drop(self._jobs.expire(now))
                self._hold(now)
                while self._later and self._later[0][0] <= now:
                    self.add([heapq.heappop(self._later)[1]])
            next_look = looked + settings.optimizer_interval * settings.time_scale
            if now >= next_look and not stopped:
                looked, next_look = now, now + settings.optimizer_interval * settings.time_scale
                self._look(now)
            pause = settings.scheduler_interval * settings.time_scale - (now - passed)
            if pause <= 0 and not stopped:
                passed, pause = now, settings.scheduler_interval * settings.time_scale
                self._start()
            rests = [_TICK] if stopped else [_TICK, next_look - now, *([pause] if self._queue else [])]
            with suppress(TimeoutError):  # until something is to be done, or time may have brought something
                async with asyncio.timeout(max(min(rests), 0.001)):
                    await self._wake.wait()

    async def stop(self, patience: float) -> None:
        """End the copies that are under way, and clean up behind them; their files wait again after a start."""
        for task in self._active.values():
            task.cancel()
        if self._active:
            await asyncio.wait(self._active.values(), timeout=patience)

    def add(self, file_ids: Iterable[int]) -> None:
        """Let files wait for their turn."""
        for file_id in file_ids:
            row = self._jobs.file(file_id)
            if row and row["file_state"] == "SUBMITTED":
                self._wait(row)
        self._wake.set()

    def drop(self, file_ids: Iterable[int]) -> None:
        """Files were cancelled: those that wait wait no longer, those under way are ended."""
        for file_id in file_ids:
            self._queue.drop(file_id)
            if file_id in self._active:
                self._active[file_id].cancel()
        self._wake.set()

    # parts ------------------------------------------------------------------------------------------------

    def _wait(self, row: sqlite3.Row) -> None:
        if row["not_before"] > time.time():
            heapq.heappush(self._later, (row["not_before"], row["file_id"]))
        else:
            link = (row["vo_name"], row["source_se"], row["dest_se"])
            self._queue.add(link, row["priority"], row["file_id"])

    def _hold(self, now: float) -> None:
        """Let files wait whose storage is banned until that is over, and those whose tokens are prepared."""
        settings = self._knobs.now
        self.drop(self._jobs.hold(settings.held, now))
        if settings.hold_timeout:
            self._jobs.give_up(now, now - settings.hold_timeout)
        self.add(self._jobs.release(settings.held, now))

    def _start(self) -> None:
        settings = self._knobs.now
        limits = self._limits

        def has_room(link: Link) -> bool:
            _, source, destination = link
            return (
                self._on_link[source, destination]
                < self._optimizer.slots((source, destination), *limits.of_link(source, destination, settings))
                and self._out_of[source] < limits.of_storage(source, "outbound_max_active", settings)
                and self._into[destination] < limits.of_storage(destination, "inbound_max_active", settings)
            )

        while taken := self._queue.take(has_room):
            link, file_id = taken
            self._jobs.ready(file_id)
            self._count(link, 1)
            self._spawn(file_id, link, self._copy(link[1:], file_id))

    def _spawn(self, file_id: int, link: Link | None, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._active[file_id] = task
        task.add_done_callback(lambda done: self._over(file_id, link, done))

    def _over(self, file_id: int, link: Link | None, task: asyncio.Task[None]) -> None:
        """Count it out; not in the task itself, as one that is cancelled before its first step never begins."""
        if self._active.get(file_id) is task:  # it may have been started again already
            del self._active[file_id]
        if link:
            self._count(link, -1)
            self._jobs.ended(file_id, time.time())
        self._wake.set()

    def _count(self, link: Link, change: int) -> None:
        _, source, destination = link
        self._on_link[source, destination] += change
        self._out_of[source] += change
        self._into[destination] += change

    async def _copy(self, pair: Pair, file_id: int) -> None:
        """Copy a file when there is room for one more copy at its destination."""
        self._jobs.start(file_id, time.time())
        destination = pair[1]
        async with self._room:
            await self._room.wait_for(lambda: self._copying[destination] < self._knobs.now.max_active)
            self._copying[destination] += 1
        try:
            await self._really_copy(pair, file_id)
        finally:
            self._copying[destination] -= 1
            async with self._room:
                self._room.notify_all()

    async def _really_copy(self, pair: Pair, file_id: int) -> None:
        row, settings = self._jobs.file(file_id), self._knobs.now
        assert row
        began = time.monotonic()
        try:
            if settings.copy_delay:
                await asyncio.sleep(settings.copy_delay)
            transfer = Transfer.of(row, settings.copy_timeout)
            size = await copy(
                self._storages,
                transfer,
                lambda asked: self._jobs.mark(file_id, asked),
                lambda there: self._jobs.sized(file_id, there),
            )
        except CopyFailed as failure:
            # without its text, which is the storage's, and may repeat a token
            log.info("file %d of job %s failed: %s [%d]", file_id, row["job_id"], failure.end, failure.number)
            self._failed(pair, row, failure.reason, time.monotonic() - began, final=failure.final)
        except Exception:
            log.exception("file %d", file_id)
            reason = "TRANSFER [5] The sandbox's FTS failed itself; see its log"
            self._failed(pair, row, reason, time.monotonic() - began, final=True)
        else:
            seconds, now = time.monotonic() - began, time.time()
            self._jobs.finish(file_id, now, size, seconds)
            self._optimizer.note(pair, Over(now, size, seconds))

    def _failed(self, pair: Pair, row: sqlite3.Row, reason: str, seconds: float, *, final: bool) -> None:
        now, settings = time.time(), self._knobs.now
        again = not final and row["retry"] < (row["allowed"] or settings.retries)
        self._optimizer.note(pair, Over(now, None, seconds, again=again))
        if again:
            pause = (settings.retry_pause + row["retry_delay"] * 60) * settings.time_scale
            self._jobs.again(row["file_id"], now, now + pause, reason)
            self.add([row["file_id"]])
        elif other := self._jobs.fail(row["file_id"], now, reason):
            self.add([other])

    async def _clean(self, file_id: int) -> None:
        """Delete what a cancelled copy had left when the service was killed."""
        row = self._jobs.file(file_id)
        assert row
        try:
            if row["asked"] and row["cleanup"]:
                transfer = Transfer.of(row, self._knobs.now.copy_timeout)
                await clean(self._storages, transfer, row["asked"])
                self._jobs.mark(file_id, None)
        except CopyFailed as failure:  # the next start tries again
            log.warning("what is left of file %d could not be deleted: %s", file_id, failure.reason)
        self._jobs.ended(file_id, time.time())

    def _look(self, now: float) -> None:
        active, waiting = self._jobs.counts("ACTIVE"), self._jobs.counts("SUBMITTED")
        settings = self._knobs.now
        ranges = {pair: self._limits.of_link(*pair, settings) for pair in {*active, *waiting}}
        self._optimizer.look(now, active, waiting, ranges, settings.time_scale)
