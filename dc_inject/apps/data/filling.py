"""Make a set of test files, several at once; what exists is kept, and an interrupted run can be repeated."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Protocol

from dc_inject.storage.sets import Moved, Written

BATCH = 20  # files that are registered in a catalogue at once
Filled = tuple[int, Written]  # a file by its number


class SetWriter(Protocol):
    """Where a set is made; only `write` is called from several threads."""

    def missing(self) -> Sequence[int]:
        """Return the numbers of the files that are not known to be there; raises when the set cannot be made."""

    def begin(self) -> None:
        """Make what has to be there before the first file."""

    def url(self, number: int) -> str:
        """Return where a file that is missing has to lie."""

    def write(self, number: int, moved: Moved) -> Written:
        """Write one file, unless its storage has it."""

    def keep(self, written: Sequence[Filled]) -> None:
        """Let files that are at their storage count, also if all else fails."""

    def finish(self) -> None:
        """Close what is complete."""


class _Stopped(Exception):
    """A file was left half-way, as all is to end."""


def fill(writer: SetWriter, waiting: Sequence[int], *, parallel: int, moved: Moved) -> list[Filled]:
    """Make what is `missing` of a set, `parallel` files at once, and return it by number.

    The first file goes alone, so that a right that is missing costs one file. At the first error, or Ctrl-C, what
    is on its way is left, what has arrived is kept, and the error raised: called again it goes on from there.
    """
    writer.begin()
    done = [(number, writer.write(number, moved)) for number in waiting[:1]]
    if done:
        writer.keep(done)
    stop = threading.Event()

    def step(count: int) -> None:
        if count > 0 and stop.is_set():
            raise _Stopped
        moved(count)

    # Not daemon threads: uploads are waited for, so that what has arrived counts.
    with ThreadPoolExecutor(parallel, "upload") as pool:
        running: dict[Future[Written], int] = {}
        arrived: list[Filled] = []
        try:
            for number in waiting[1:]:
                running[pool.submit(writer.write, number, step)] = number
                if len(running) >= 2 * parallel:
                    _collect(running, arrived)
                    _keep(writer, arrived, done, at_least=BATCH)
            while running:
                _collect(running, arrived)
                _keep(writer, arrived, done, at_least=BATCH)
        except BaseException:
            stop.set()
            for future in running:
                future.cancel()
            arrived += [(running[future], future.result()) for future in _succeeded(running)]
            _keep(writer, arrived, done)
            raise
        _keep(writer, arrived, done)
    writer.finish()
    return sorted(done)


def _collect(running: dict[Future[Written], int], arrived: list[Filled]) -> None:
    """Wait until at least one file has arrived, or raise what kept it from that."""
    over, _ = wait(running, return_when=FIRST_COMPLETED)
    failed = [future for future in over if future.exception() is not None]
    arrived += [(running.pop(future), future.result()) for future in over.difference(failed)]
    for future in failed:
        running.pop(future)
        future.result()


def _succeeded(running: Iterable[Future[Written]]) -> list[Future[Written]]:
    over, _ = wait(running)
    return [future for future in over if not future.cancelled() and future.exception() is None]


def _keep(writer: SetWriter, arrived: list[Filled], done: list[Filled], at_least: int = 1) -> None:
    if len(arrived) >= at_least:
        writer.keep(arrived)
        done += arrived
        arrived.clear()
