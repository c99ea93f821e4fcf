"""Stop asking a storage that keeps failing to answer: each request would cost a time-out."""

from __future__ import annotations

import threading

from dc_inject.model.errors import Permanent, ServiceError
from dc_inject.storage import Later

GIVE_UP_AFTER = 3  # requests in a row


class Trouble:
    """What went wrong with requests to a storage in one round, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_a_row = 0
        self._last: ServiceError | None = None

    def note(self, error: ServiceError | None) -> None:
        """Take what became of a request; what the storage says of one file, or will do later, is an answer."""
        with self._lock:
            bad = error is not None and not isinstance(error, Permanent | Later)
            self._in_a_row = self._in_a_row + 1 if bad else 0
            self._last = error if bad else self._last

    @property
    def last(self) -> ServiceError | None:
        """The last thing that went wrong."""
        with self._lock:
            return self._last

    @property
    def hopeless(self) -> ServiceError | None:
        """The last error, when there were too many in a row."""
        with self._lock:
            return self._last if self._in_a_row >= GIVE_UP_AFTER else None
