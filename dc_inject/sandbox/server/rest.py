"""Rest between the passes of the daemons: the longer, the longer they have had nothing to do.

A pass of which nothing comes costs some ten milliseconds of CPU, which a laptop would rather save.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from rucio.db.sqla.session import get_engine
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

log = logging.getLogger("sandbox")

# Queries whose result changes with each write.
VERSIONS = {"sqlite": "PRAGMA data_version", "postgresql": "SELECT pg_current_wal_insert_lsn()::text"}
LONGEST = 1.0  # seconds: an arrival, which only the time brings, waits no longer for a pass
QUIET = 3.0  # seconds: nor does the end of a lifetime, where nothing is on its way
GROWTH = 1.5
LOOK = 0.2  # seconds between two checks for a caller in a hurry, however long the shortest rest is


class Rest:
    """Waits between two passes: `interval` seconds at least, and no longer while a caller is in a hurry."""

    def __init__(self, interval: float, hurry: Callable[[], bool]) -> None:
        """Take the shortest rest in seconds, and a function that returns whether a caller waits for a pass."""
        self._interval = interval
        self._hurry = hurry
        self._length = interval
        self._ask = VERSIONS[get_engine().dialect.name]
        self._reader: Connection | None = None
        self._version: object = None

    def wait(self, stop: threading.Event, *, idle: bool, longest: float = LONGEST) -> None:
        """Wait after a pass, longer after each idle one, up to `longest` seconds.

        Ends early when anybody writes, or `stop` is set.
        """
        idle = idle and not self._has_been_written()
        self._length = min(self._length * GROWTH, max(longest, self._interval)) if idle else self._interval
        start = now = time.monotonic()
        until = start + self._length
        while not stop.wait(max(min(self._interval, LOOK, until - now), 0.0)):
            now = time.monotonic()
            if now >= until or self._hurry() or (now >= start + self._interval and self._has_been_written()):
                return

    def _has_been_written(self) -> bool:
        try:
            if self._reader is None:
                self._reader = get_engine().connect().execution_options(isolation_level="AUTOCOMMIT")
            version = self._reader.exec_driver_sql(self._ask).scalar_one()
        except SQLAlchemyError:  # a database that is away is no reason to end
            log.exception("it is unknown whether there is anything to do")
            self._reader, broken = None, self._reader
            if broken is not None:
                broken.invalidate()
            return False
        self._version, before = version, self._version
        return bool(version != before)
