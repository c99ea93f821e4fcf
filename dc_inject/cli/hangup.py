"""A terminal that was closed: nothing can be written to it, and work has to end in good order."""

from __future__ import annotations

import os
import select
import signal
from types import FrameType

OUTPUTS = (1, 2)


def signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a command in good order: SIGTERM, and those of a terminal unless ignored.

    `nohup` ignores SIGHUP, and a shell without job control SIGINT for what it starts with `&`. Both have to stay
    so: the Ctrl-C that ends a script is not meant for what it left in the background.
    """
    of_terminal = (signal.SIGINT, signal.SIGHUP)
    heeded = (number for number in of_terminal if signal.getsignal(number) is not signal.SIG_IGN)
    return (signal.SIGTERM, *heeded)


def interrupt() -> None:
    """Let each of them end what is under way at once, as Ctrl-C does."""
    for number in signals():
        signal.signal(number, signal.default_int_handler)


def interrupt_once() -> None:
    """Let the first end what is under way, and ignore all after it: a second one would end the clean-up."""

    def end(number: int, frame: FrameType | None) -> None:
        for each in signals():
            signal.signal(each, signal.SIG_IGN)
        signal.default_int_handler(number, frame)

    for number in signals():
        signal.signal(number, end)


def mind() -> None:
    """Let what is written to a terminal or reader that has gone vanish, instead of failing."""
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
