"""A bound on the processor time of what must not be slow by its nature: it ends what would take hours."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class Exceeded(AssertionError):
    """It would have taken much longer than its length allows."""


@contextmanager
def budget(seconds: float, what: str) -> Iterator[None]:
    """Raise Exceeded in this block when it has had so many seconds of a processor.

    Not the time that passed: how busy a machine is does not count. Bounds are hundreds of times what is needed,
    and what is to be found exceeds them by thousands.
    """

    def exceeded(*_: object) -> None:
        raise Exceeded(f"{what}: more than {seconds} s of a processor")

    before = signal.signal(signal.SIGVTALRM, exceeded)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
