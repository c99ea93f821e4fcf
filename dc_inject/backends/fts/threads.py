"""A bounded number of requests to storages at a time, from whichever threads they are wanted."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")

_Task = tuple[Callable[[Any], Any], Any, int, "queue.SimpleQueue[tuple[int, Any, Exception | None]]"]


class Threads:
    """A few daemon threads, so that a hanging storage never keeps the process from leaving.

    They are made when wanted, and end when nobody has this object any more.
    """

    def __init__(self, size: int) -> None:
        """Take how many requests may be under way at once."""
        self._size = size
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started = False

    def map(self, act: Callable[[A], B], things: Iterable[A]) -> Iterator[B]:
        """Give act(thing) for each thing, in order, a group at a time; the first error of a group is raised."""
        self._start()
        left = iter(things)
        while group := list(islice(left, 8 * self._size)):
            done: queue.SimpleQueue[tuple[int, Any, Exception | None]] = queue.SimpleQueue()
            for number, thing in enumerate(group):
                self._tasks.put((act, thing, number, done))
            results = sorted((done.get() for _ in group), key=lambda result: result[0])
            for _, value, error in results:
                if error is not None:
                    raise error
                yield value

    def _start(self) -> None:
        with self._lock:
            if not self._started:
                self._started = True
                for number in range(self._size):
                    threading.Thread(
                        target=_work, args=(self._tasks,), name=f"storage-{number}", daemon=True
                    ).start()
                weakref.finalize(self, _dismiss, self._tasks, self._size)


def _work(tasks: queue.SimpleQueue[_Task | None]) -> None:
    while task := tasks.get():
        act, thing, number, done = task
        try:
            done.put((number, act(thing), None))
        except Exception as error:  # noqa: BLE001  handed to whoever waits for it
            done.put((number, None, error))
        del task, act, thing, done  # what they refer to may keep the owner of the threads alive


def _dismiss(tasks: queue.SimpleQueue[_Task | None], size: int) -> None:
    for _ in range(size):
        tasks.put(None)
