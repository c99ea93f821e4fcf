"""A terminal that was closed: nothing can be written to it, and work has to end in good order.

A closed terminal sends SIGHUP more than once, from its shell and from the kernel, and a session's manager may add
SIGTERM. So SIGHUP asks for the end in good order, and never for an exit at once: only Ctrl-C and SIGTERM do, the
second time.
"""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

log = logging.getLogger(__name__)

STDERR = 2
OUTPUTS = (1, STDERR)
_GONE = (errno.EIO, errno.EPIPE)  # the terminal is closed; the reader of the pipe has gone


def signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a command in good order: SIGTERM, and those of a terminal unless ignored.

    `nohup` ignores SIGHUP, and a shell without job control SIGINT for what it starts with `&`. Both have to stay
    so: the Ctrl-C that ends a script is not meant for what it left in the background.
    """
    of_terminal = (signal.SIGINT, signal.SIGHUP)
    heeded = (number for number in of_terminal if signal.getsignal(number) is not signal.SIG_IGN)
    return (signal.SIGTERM, *heeded)


def interrupt() -> None:
    """Let each of them end what is under way at once, as Ctrl-C does; any SIGHUP after it is ignored."""
    outlive_readers()
    for number in signals():
        signal.signal(number, _interrupted)


def interrupt_once() -> Callable[[], None]:
    """Let the first end what is under way, and ignore all after it: a second one would end the clean-up.

    Python drops what a handler raises inside a finalizer or a callback. Long work therefore calls the function
    that this returns, which raises KeyboardInterrupt if there was a signal.
    """
    received: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for each in signals():
            signal.signal(each, signal.SIG_IGN)
        outlive_readers()
        signal.default_int_handler(number, frame)

    def check() -> None:
        if received:
            raise KeyboardInterrupt

    for number in signals():
        signal.signal(number, end)
    return check


@contextlib.contextmanager
def stopping(stop: Callable[[], None], words: str) -> Iterator[None]:
    """Let the first of these signals stop the work in good order, and a second Ctrl-C or SIGTERM leave at once.

    `stop` must be safe in a signal handler; `words` are what becomes of rules or jobs. After the first signal, and
    after the end, SIGHUP is ignored.
    """

    def first(number: int, frame: FrameType | None) -> None:
        del frame
        if number != signal.SIGHUP:
            interrupt()
        ignore_hangups()
        stop()
        again = "" if number == signal.SIGHUP else "; press again to exit at once"
        log.warning("%s: stopping; %s%s", signal.Signals(number).name, words, again)

    before = {number: signal.signal(number, first) for number in signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, ignored if number == signal.SIGHUP else handler)


def ignore_hangups() -> None:
    """Let a SIGHUP change nothing from now on: the end is under way."""
    if signal.SIGHUP in signals():
        signal.signal(signal.SIGHUP, ignored)


def ignored(_number: int, _frame: FrameType | None) -> None:
    """Do nothing, which the programs that we start do not inherit."""


def _interrupted(number: int, frame: FrameType | None) -> None:
    ignore_hangups()
    signal.default_int_handler(number, frame)


def outlive_readers() -> None:
    """Let what is written to a terminal or reader that has gone vanish, instead of failing.

    Of stderr, whatever cannot be written vanishes: a message must not keep rules from being ended.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        buffer = getattr(stream, "buffer", None)
        raw = getattr(buffer, "raw", buffer)  # with PYTHONUNBUFFERED they are one
        if not isinstance(raw, io.FileIO) or isinstance(raw, _Output) or raw.fileno() not in OUTPUTS:
            continue  # a view of a run has taken it
        with contextlib.suppress(OSError, RuntimeError):  # of which the second is a write that a signal interrupts
            stream.flush()
        output = _Output(raw.fileno(), "w", closefd=False)
        text = io.TextIOWrapper(
            output if buffer is raw else io.BufferedWriter(output),
            encoding=stream.encoding, errors=stream.errors,
            line_buffering=stream.line_buffering, write_through=stream.write_through,
        )  # fmt: skip
        setattr(sys, name, text)


class _Output(io.FileIO):
    """A standard output whose reader may go."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write it, or do as if."""
        try:
            return super().write(data)
        except OSError as error:
            if self.fileno() != STDERR and error.errno not in _GONE:
                raise
            return memoryview(data).nbytes


def replace_closed_outputs() -> None:
    """Replace a terminal that has gone by the null device: libraries write to its number."""
    for number in OUTPUTS:
        try:
            os.fstat(number)
        except OSError:
            continue
        poll = select.poll()
        poll.register(number, 0)
        if any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0)):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, number)
            os.close(nowhere)
