"""The keeper of a storage starts it again when it accepts nobody any more, and only then."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator

import pytest

from dc_inject.sandbox.server import keeper

DEADLINE = 300.0


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """A socket at which somebody waits."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        yield server


class Clock:
    """A clock that only we move."""

    now = 100.0

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


def looked_at(queue: keeper.Waiting, clock: Clock, seconds: float, process: int) -> bool:
    """Look every second."""
    hung = queue.too_long(process)
    for _ in range(round(seconds)):
        clock.pass_(1)
        hung = queue.too_long(process)
    return hung


def test_a_program_that_accepts_nobody_for_long_hangs(listening: socket.socket) -> None:
    """And no sooner than after HUNG seconds; as soon as it accepts, it does not."""
    clock = Clock()
    queue = keeper.Waiting(listening.fileno(), clock)
    try:
        assert not looked_at(queue, clock, keeper.HUNG - 1, os.getpid())
        assert looked_at(queue, clock, 1, os.getpid())
        listening.accept()[0].close()
        assert not looked_at(queue, clock, 2 * keeper.HUNG, os.getpid())
    finally:
        queue.close()


def test_a_pause_of_the_keeper_itself_counts_for_nothing(listening: socket.socket) -> None:
    """It was stopped together with its program, or the machine was busy."""
    clock = Clock()
    queue = keeper.Waiting(listening.fileno(), clock)
    try:
        assert not queue.too_long(os.getpid())
        clock.pass_(10 * keeper.HUNG)
        assert not looked_at(queue, clock, keeper.HUNG - 1, os.getpid())
    finally:
        queue.close()


def test_a_program_that_somebody_stopped_does_not_hang(listening: socket.socket) -> None:
    """Tests stop storages, and they stay stopped."""
    clock = Clock()
    queue = keeper.Waiting(listening.fileno(), clock)
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)
            assert not looked_at(queue, clock, 2 * keeper.HUNG, process.pid)
            process.send_signal(signal.SIGCONT)
            os.waitpid(process.pid, os.WCONTINUED)
            assert looked_at(queue, clock, keeper.HUNG, process.pid)
        finally:
            process.kill()
            queue.close()


def test_what_hangs_is_killed(listening: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it is started again."""
    monkeypatch.setattr(keeper, "HUNG", 0.0)
    stop = threading.Event()
    too_late = threading.Timer(DEADLINE, stop.set)
    too_late.start()
    try:
        keeper.run(["sleep", "3600"], stop, signal.SIGTERM, [listening.fileno()])
        assert not stop.is_set(), "it was left alone"
    finally:
        too_late.cancel()
