"""What a worker does: it reads a bundle of files at a rate, and throws the bytes away.

The XRootD library finds its credentials in the worker's own environment and files; a task has none.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

from dc_inject.apps.reads import records
from dc_inject.apps.reads.pacing import TokenBucket
from dc_inject.apps.reads.records import Progress, Record
from dc_inject.backends.fts.failed_files import classify
from dc_inject.credentials import Credentials
from dc_inject.model import ReadOptions
from dc_inject.model.errors import ServiceError
from dc_inject.storage import xrootd
from dc_inject.system.clock import SystemClock

PATIENCE = 60  # seconds that a request to a storage may last
STOPS_WITHIN = 0.5  # seconds after which a reader looks whether it is to stop
# The library's own settings are for copies that no user waits for: half an hour of silence.
SETTINGS = {"XRD_CONNECTIONWINDOW": "20", "XRD_CONNECTIONRETRY": "2", "XRD_STREAMERRORWINDOW": "60"}


@dataclass(frozen=True, slots=True)
class Task:
    """A bundle to read: URLs with the bytes that are to be read of each, until a time in seconds since 1970."""

    key: str
    files: tuple[tuple[str, int], ...]
    options: ReadOptions
    until: float
    scitag: int | None = None


class Stopped(Exception):
    """The reader is to stop, or its time is over."""


class Source(Protocol):
    """An open file; its methods raise ServiceError, and Stopped as soon as `stopped` returns true."""

    size: int

    def read(self, offset: int, length: int) -> int:
        """Read, and return how many bytes came."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


Open = Callable[[str, Callable[[], bool]], Source]


class XrootdSource:
    """A file of a storage over root://."""

    def __init__(self, url: str, stopped: Callable[[], bool]) -> None:
        """Open it, and ask for its size."""
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)  # read when the library is loaded
        client, flags = xrootd.load()
        self._url, self._stopped = url.partition("?")[0], stopped
        self._file = client.File()
        self._ask("open", lambda **how: self._file.open(url, flags.OpenFlags.READ, **how))
        self.size = int(self._ask("stat", self._file.stat).size)

    def read(self, offset: int, length: int) -> int:
        """Read, and return how many bytes came."""
        return len(self._ask("read", lambda **how: self._file.read(offset, length, **how)))

    def close(self) -> None:
        """Close it without waiting for the answer."""
        self._file.close(timeout=PATIENCE, callback=lambda *_: None)

    def _ask(self, request: str, start: Callable[..., Any]) -> Any:  # noqa: ANN401  the library has no types
        answered, answer = threading.Event(), list[Any]()

        def take(*values: Any) -> None:
            answer.extend(values)
            answered.set()

        status = start(timeout=PATIENCE, callback=take)
        while status.ok and not answered.wait(STOPS_WITHIN):
            if self._stopped():
                raise Stopped
        status = answer[0] if status.ok else status
        if not status.ok:
            raise xrootd.translated(f"{request} {self._url}", status)
        return answer[1]


def read(
    task: Task,
    opened: Open = XrootdSource,
    *,
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Read a bundle, and write down after each block how far it is.

    Does nothing if the bundle was begun before. Of a file that fails the rest is left, and the next one read.
    """
    try:
        record = Record(records.folder(), task.key)
    except FileExistsError:
        return
    try:
        Reader(task, record, opened, now, sleep).run()
    finally:
        record.close()


class Reader:
    """Reads one bundle."""

    def __init__(
        self,
        task: Task,
        record: Record,
        opened: Open,
        now: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        """Take the record that was claimed for it, what opens files, and the time."""
        self._task, self._record, self._opened, self._now, self._sleep = task, record, opened, now, sleep
        self._bucket = TokenBucket(task.options.rate)
        self._progress = Progress(size=sum(size for _, size in task.files))
        self._looked_at, self._stop = float("-inf"), False

    def run(self) -> None:
        """Read all files."""
        stopped = False
        try:
            for url, size in self._task.files:
                self._file(url, size)
        except Stopped:
            stopped = True
        self._write(over=True, stopped=stopped)

    def _file(self, url: str, size: int) -> None:
        """Read a file, or note why it cannot be read."""
        try:
            source = self._opened(
                f"{url}?scitag.flow={self._task.scitag}" if self._task.scitag else url, self._stopped
            )
            try:
                self._blocks(source, size)
            finally:
                source.close()
        except ServiceError as error:
            reasons = Counter(self._progress.reasons) + Counter([classify("FAILED", f"SOURCE {error.message}")])
            self._write(reasons=dict(reasons), error=self._progress.error or error.message)
        else:
            self._write(files=self._progress.files + 1)

    def _blocks(self, source: Source, size: int) -> None:
        options = self._task.options
        grown = options.size(source.size) - size
        if grown:
            self._write(size=self._progress.size + grown)
        for offset, length in options.blocks(source.size):
            self._pause(self._bucket.take(length, self._now()))
            came = source.read(offset, length)
            self._write(read=self._progress.read + came)
            if came != length:
                raise ServiceError(
                    f"read: {came} of {length} bytes came from offset {offset}: the file has changed"
                )
            self._pause(options.think)

    def _write(self, **values: Any) -> None:
        self._progress = replace(self._progress, **values)
        self._record.write(self._progress)

    def _pause(self, seconds: float) -> None:
        """Wait; raises Stopped as soon as the reader is to stop."""
        end = self._now() + seconds
        while True:
            if self._stopped():
                raise Stopped
            left = end - self._now()
            if left <= 0:
                return
            self._sleep(min(left, STOPS_WITHIN))

    def _stopped(self) -> bool:
        now = self._now()
        if now - self._looked_at >= STOPS_WITHIN:
            self._looked_at, self._stop = now, now >= self._task.until or self._record.stop_asked
        return self._stop


def credentials_until() -> datetime | None:
    """Return when the credentials of this worker expire; None if that is not known."""
    return Credentials(os.environ, SystemClock()).until("source")
