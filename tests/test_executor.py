"""Calls share a few threads, which come and go with their owner."""

from __future__ import annotations

import gc
import threading
from datetime import UTC, datetime, timedelta

import pytest

from dc_inject.system.clock import SystemClock
from dc_inject.system.executor import ThreadExecutor, Workers


def workers(name: str = "storage") -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith(f"{name}-")}


def test_its_threads_end_with_it():
    """A process that makes many back ends, one after the other, does not gather threads."""
    before = workers()
    shared = Workers(3, "storage")
    assert list(shared.map(str, range(50))) == [str(number) for number in range(50)]
    mine = workers() - before
    assert len(mine) == 3
    del shared
    gc.collect()
    for thread in mine:
        thread.join(30)
        assert not thread.is_alive()


def test_the_first_error_is_raised_and_the_threads_live_on():
    shared = Workers(2, "storage")
    with pytest.raises(ZeroDivisionError):
        list(shared.map(lambda number: 1 // number, [1, 0, 2]))
    assert list(shared.map(lambda number: -number, [1, 2])) == [-1, -2]


def next_finished(executor):
    """Wait for one task; a wait may also end because it was woken, with nothing."""
    until = datetime.now(UTC) + timedelta(seconds=30)
    for _ in range(100):
        if found := executor.wait(until):
            (finished,) = found
            return finished
    raise AssertionError("nothing has finished")


@pytest.mark.parametrize("most", [0, 1])
def test_with_fewer_threads_than_wanted_each_task_comes_back(monkeypatch, most):
    """With none as an error of this machine, so that nobody waits for it; later threads are tried for again."""
    start, started = threading.Thread.start, []

    def limited(thread):
        if len(started) >= most:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    executor = ThreadExecutor(SystemClock(), 3)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", limited)
        executor.submit("a", lambda: 7, "few")
        finished = next_finished(executor)
    assert finished.result == (7 if most else None)
    assert getattr(finished.error, "hold", None) == (None if most else "local")
    executor.submit("b", lambda: 8, "few")
    finished = next_finished(executor)
    assert finished.result == 8
    executor.close()


def test_a_closed_executor_lets_its_threads_go_when_they_have_done_their_tasks():
    before, executor, goes_on = workers("a lane"), ThreadExecutor(SystemClock(), 2), threading.Event()
    executor.submit("hung", lambda: goes_on.wait(30), "a lane")
    executor.submit("done", lambda: 7, "a lane")
    (finished,) = executor.wait(datetime.max.replace(tzinfo=UTC))
    assert (finished.tag, finished.result) == ("done", 7)
    mine = workers("a lane") - before
    assert len(mine) == 2
    executor.close()
    goes_on.set()
    for thread in mine:
        thread.join(30)
        assert not thread.is_alive()
    assert [finished.tag for finished in executor.wait(datetime.max.replace(tzinfo=UTC))] == ["hung"]
