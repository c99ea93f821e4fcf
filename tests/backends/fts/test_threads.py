"""Requests to storages share a few threads, which come and go with their owner."""

from __future__ import annotations

import gc
import threading

import pytest

from dc_inject.backends.fts.threads import Threads


def workers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("storage-")}


def test_its_threads_end_with_it():
    """A process that makes many back ends, one after the other, does not gather threads."""
    before = workers()
    threads = Threads(3)
    assert list(threads.map(str, range(50))) == [str(number) for number in range(50)]
    mine = workers() - before
    assert len(mine) == 3
    del threads
    gc.collect()
    for thread in mine:
        thread.join(30)
        assert not thread.is_alive()


def test_the_first_error_is_raised_and_the_threads_live_on():
    threads = Threads(2)
    with pytest.raises(ZeroDivisionError):
        list(threads.map(lambda number: 1 // number, [1, 0, 2]))
    assert list(threads.map(lambda number: -number, [1, 2])) == [-1, -2]
