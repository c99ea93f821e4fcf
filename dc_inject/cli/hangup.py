"""A terminal that was closed: nothing can be written to it any more, and work has to end in good order."""

from __future__ import annotations

import os
import select
import signal

OUTPUTS = (1, 2)


def signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a command in good order; not SIGHUP where that is ignored, as under nohup."""
    some = (signal.SIGINT, signal.SIGTERM)
    return some if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*some, signal.SIGHUP)


def mind() -> None:
    """Let what is written to a terminal or reader that has gone vanish, instead of failing."""
    for number in OUTPUTS:
        try:
            os.fstat(number)
        except OSError:
            continue
        seen = select.poll()
        seen.register(number, 0)
        if any(what & (select.POLLHUP | select.POLLERR) for _, what in seen.poll(0)):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, number)
            os.close(nowhere)
