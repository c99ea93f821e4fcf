"""When a reader may read its next block. Pure: the time is an argument."""

from __future__ import annotations

MADE_UP = 1.0  # seconds of its rate that a reader that was late may make up


class TokenBucket:
    """Holds a reader to its rate; it starts full."""

    def __init__(self, rate: float) -> None:
        """Take the rate in bytes per second."""
        self._rate = rate
        self._free_at: float | None = None  # when all that was taken so far is paid for

    def take(self, size: int, now: float) -> float:
        """Take `size` bytes, and return after how many seconds they may be read.

        What a slow source has held up is made up for at most a second's worth, so that it is not pushed further.
        """
        begin = now if self._free_at is None else max(self._free_at, now - MADE_UP)
        self._free_at = begin + size / self._rate
        return max(0.0, begin - now)
