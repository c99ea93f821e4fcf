"""Threads for calls to services, and the engine's wait for them.

There is no thread per request: each owner has a fixed number of `Workers`, which share its calls. They are daemon
threads, since a call may hang for long in a socket or in a C library, and must not keep the process from leaving;
those of `concurrent.futures` are joined when the interpreter ends.

The engine waits on a `ThreadExecutor`, whose calls come back one by one, in whatever order. A back end that asks
many things of one service, and wants all answers, takes `Workers.map`.
"""

from __future__ import annotations

import os
import queue
import select
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from dc_inject.model import faults
from dc_inject.model.causes import Peer
from dc_inject.model.errors import ServiceError, make_service_error
from dc_inject.model.ports import Clock, Finished

A = TypeVar("A")
B = TypeVar("B")

_Tasks = queue.SimpleQueue[Callable[[], None] | None]


class Workers:
    """A few daemon threads that run tasks, made when wanted; they end when this object is gone."""

    def __init__(self, size: int, name: str) -> None:
        """Take how many tasks may run at once, and what the threads are called."""
        self._size = size
        self._name = name
        self._tasks: _Tasks = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started = False

    def start(self, task: Callable[[], None]) -> None:
        """Run a task, which must not raise, as soon as a thread is free; raises a ServiceError if there is none.

        Where this machine gives fewer threads than wanted, those that it gives do all tasks.
        """
        with self._lock:
            if not self._started:
                self._started = self._start_threads()
        self._tasks.put(task)

    def _start_threads(self) -> bool:
        for number in range(self._size):
            name = f"{self._name}-{number}"
            try:
                threading.Thread(target=_work, args=(self._tasks,), name=name, daemon=True).start()
            except RuntimeError as error:
                if number == 0:
                    fault = faults.judge(faults.Facts.of(error, Peer.FTS))  # the peer is in no word about threads
                    raise make_service_error(fault, fault.message()) from None
                break
        weakref.finalize(self, _dismiss, self._tasks, self._size)
        return True

    def map(self, act: Callable[[A], B], arguments: Iterable[A]) -> Iterator[B]:
        """Give act(argument) for each, in order, a group at a time; the first error of a group is raised."""
        left = iter(arguments)
        while group := list(islice(left, 8 * self._size)):
            done: queue.SimpleQueue[Finished] = queue.SimpleQueue()
            for number, argument in enumerate(group):
                self.start(partial(_run, number, partial(act, argument), done))
            by_number = {finished.tag: finished for finished in (done.get() for _ in group)}
            for number in range(len(group)):
                if (error := by_number[number].error) is not None:
                    raise error
                yield by_number[number].result


class ThreadExecutor:
    """Runs tasks on threads. Each lane (a service) has `size` of its own: one that hangs takes none from others.

    A pipe instead of a condition makes `wake` safe inside a signal handler.
    """

    def __init__(self, clock: Clock, size: int = 8, heartbeat: Callable[[], None] = lambda: None) -> None:
        """Take the clock; `size` bounds the calls of a lane that are under way at once.

        `heartbeat` is called whenever a caller waits, and every second meanwhile.
        """
        self._clock = clock
        self._heartbeat = heartbeat
        self._size = size
        self._lanes: dict[str, Workers] = {}
        self._finished: queue.SimpleQueue[Finished] = queue.SimpleQueue()
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        os.set_blocking(self._woken, False)

    def submit(self, tag: Hashable, task: Callable[[], Any], lane: str = "") -> None:
        """Run a task as soon as a thread of its lane is free."""
        if lane not in self._lanes:
            self._lanes[lane] = Workers(self._size, lane or "call")
        try:
            self._lanes[lane].start(partial(self._run, tag, task))
        except ServiceError as error:
            self._finished.put(Finished(tag, None, error))
            self.wake()

    def wait(self, until: datetime) -> list[Finished]:
        """Wait until tasks have finished, `wake` was called or `until` has come; return what finished."""
        self._heartbeat()
        finished = self._collect()
        # The system's clock may step: wait in slices of at most a second and look at it again. After one that
        # stepped back an hour it would be an hour until it shows what is waited for.
        last = time.monotonic() + self._left(until)
        while not finished and (left := min(self._left(until), last - time.monotonic())) > 0:
            ready, _, _ = select.select([self._woken], [], [], min(left, 1.0))
            self._heartbeat()
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

    def close(self) -> None:
        """Let idle threads end; those that hang in a call are left to the end of the process."""
        self._lanes.clear()

    def _run(self, tag: Hashable, task: Callable[[], Any]) -> None:
        _run(tag, task, self._finished)
        self.wake()

    def _collect(self) -> list[Finished]:
        finished = []
        while True:
            try:
                finished.append(self._finished.get_nowait())
            except queue.Empty:
                break
        return finished

    def _drain(self) -> None:
        try:
            while os.read(self._woken, 4096):
                pass
        except BlockingIOError:
            return


def _run(tag: Hashable, task: Callable[[], Any], done: queue.SimpleQueue[Finished]) -> None:
    """Run a task; hand back its result, or its error to whoever waits for it."""
    try:
        finished = Finished(tag, task(), None)
    except BaseException as error:  # noqa: BLE001  handed to whoever waits for it
        finished = Finished(tag, None, error)
    done.put(finished)


def _work(tasks: _Tasks) -> None:
    while task := tasks.get():
        task()
        del task  # what it refers to may keep the owner of the threads alive


def _dismiss(tasks: _Tasks, size: int) -> None:
    for _ in range(size):
        tasks.put(None)
