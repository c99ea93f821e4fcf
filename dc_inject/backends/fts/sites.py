"""Facts of storages: whether they answer, and how much may still be put there."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from dc_inject.backends.fts.threads import Threads
from dc_inject.errors import Fatal, Permanent, ServiceError, Temporary
from dc_inject.ports import Clock, RseFacts
from dc_inject.storage import Reach, Storage

FRESH = timedelta(seconds=30)  # 1,200 links do not ask one storage 1,200 times

log = logging.getLogger(__name__)

_Answer = Reach | ServiceError
_NO_SPACE_TOLD = "the storage does not tell its space (quota-available-bytes)"


class Sites:
    """Asks each storage prefix one cheap question, and keeps the answer for a short time.

    A prefix is asked as a source and as a destination, once when both are opened by the same credentials.
    """

    def __init__(
        self, source: Storage, destination: Storage, alike: Callable[[], bool], threads: Threads, clock: Clock
    ) -> None:
        """Take the storages with short timeouts, and who tells whether their credentials are the same."""
        self._source = source
        self._destination = destination
        self._alike = alike
        self._threads = threads
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[datetime, RseFacts]] = {}

    def sites(self, prefixes: Iterable[str]) -> dict[str, RseFacts]:
        """Return the facts of each prefix."""
        names, now = sorted(set(prefixes)), self._clock.now()
        with self._lock:
            self._kept = {name: kept for name, kept in self._kept.items() if now - kept[0] < FRESH}
            facts = {name: self._kept[name][1] for name in names if name in self._kept}
        asked = [name for name in names if name not in facts]
        for name, told in zip(asked, self._threads.map(self._ask, asked), strict=True):
            facts[name] = told
            with self._lock:
                self._kept[name] = self._clock.now(), told
        return {name: facts[name] for name in names}

    def _ask(self, prefix: str) -> RseFacts:
        as_destination = _reach(self._destination, prefix)
        silent = isinstance(as_destination, Temporary)  # whoever asks: it is not waited for twice
        as_source = as_destination if silent or self._alike() else _reach(self._source, prefix)
        missing: dict[str, str] = {}
        readable = _usable(as_source, "readable", missing)
        writable = _usable(as_destination, "writable", missing)
        if isinstance(as_source, Reach) and not as_source.exists:
            readable = False  # as a destination it is fine: FTS makes the folders
        free = as_destination.free if isinstance(as_destination, Reach) else None
        if free is None:
            missing["free"] = _NO_SPACE_TOLD if isinstance(as_destination, Reach) else as_destination.message
        return RseFacts(prefix, readable=readable, writable=writable, free=free, missing=missing)


def _reach(storage: Storage, prefix: str) -> _Answer:
    try:
        return storage.reachable(prefix)
    except ServiceError as error:
        return error


def _usable(answer: _Answer, signal: str, missing: dict[str, str]) -> bool | None:
    """Return whether the storage is there; None where it is, but does not let us ask.

    A token that may write and no more is refused here and good enough for the transfers.
    """
    if isinstance(answer, Reach):
        return True
    log.info("%s", answer.message)
    if not isinstance(answer, Permanent | Fatal):
        return False
    missing[signal] = answer.message
    return None
