"""A bounded number of threads that call services, and the wait of the engine on them."""

from __future__ import annotations

import os
import queue
import select
import threading
import time
from collections.abc import Callable, Hashable
from datetime import datetime
from typing import Any

from dc_inject.model.ports import Clock, Finished

_Tasks = queue.SimpleQueue[tuple[Hashable, Callable[[], Any]] | None]


class ThreadExecutor:
    """Runs tasks in daemon threads, so that a hanging call never keeps the process from leaving.

    Each lane (a service) has `size` threads of its own: one that hangs takes none from the others.

    A pipe instead of a condition makes `wake` safe inside a signal handler.
    """

    def __init__(self, clock: Clock, size: int = 8) -> None:
        """Take the clock; `size` bounds the calls of a lane that are under way at once."""
        self._clock = clock
        self._size = size
        self._lanes: dict[str, _Tasks] = {}
        self._finished: queue.SimpleQueue[Finished] = queue.SimpleQueue()
        self._busy = 0
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        os.set_blocking(self._woken, False)

    def submit(self, tag: Hashable, task: Callable[[], Any], lane: str = "") -> None:
        """Run a task as soon as a thread of its lane is free."""
        self._busy += 1
        if lane not in self._lanes:
            tasks: _Tasks = queue.SimpleQueue()
            self._lanes[lane] = tasks
            for number in range(self._size):
                name = f"{lane or 'call'}-{number}"
                threading.Thread(target=self._work, args=(tasks,), name=name, daemon=True).start()
        self._lanes[lane].put((tag, task))

    def wait(self, until: datetime) -> list[Finished]:
        """Wait until tasks have finished, `wake` was called or `until` has come; return what finished."""
        finished = self._collect()
        # The system's clock may step: wait in slices of at most a second and look at it again. After one that
        # stepped back an hour it would be an hour until it shows what is waited for.
        last = time.monotonic() + self._left(until)
        while not finished and (left := min(self._left(until), last - time.monotonic())) > 0:
            ready, _, _ = select.select([self._woken], [], [], min(left, 1.0))
            if ready:
                self._drain()
                finished = self._collect()
                break
        return finished

    def _left(self, until: datetime) -> float:
        """Return the seconds until the clock shows a moment."""
        return (until - self._clock.now()).total_seconds()

    def wake(self) -> None:
        """End a wait now; safe in a signal handler."""
        try:
            os.write(self._waker, b"x")
        except BlockingIOError:
            return  # the pipe is full: whoever waits will wake anyway

    @property
    def busy(self) -> int:
        """How many tasks were submitted and not yet handed back."""
        return self._busy

    def close(self) -> None:
        """Let idle threads end; those that hang in a call are left to the end of the process."""
        for tasks in self._lanes.values():
            for _ in range(self._size):
                tasks.put(None)

    def _work(self, tasks: _Tasks) -> None:
        while (job := tasks.get()) is not None:
            tag, task = job
            try:
                done = Finished(tag, task(), None)
            except BaseException as error:  # noqa: BLE001  handed to the engine, which decides
                done = Finished(tag, None, error)
            self._finished.put(done)
            self.wake()

    def _collect(self) -> list[Finished]:
        finished = []
        while True:
            try:
                finished.append(self._finished.get_nowait())
            except queue.Empty:
                break
        self._busy -= len(finished)
        return finished

    def _drain(self) -> None:
        try:
            while os.read(self._woken, 4096):
                pass
        except BlockingIOError:
            return
