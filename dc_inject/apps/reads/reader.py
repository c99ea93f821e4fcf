"""What a worker does: it reads a bundle of files at a rate, and throws the bytes away.

Credentials are found in the worker's own environment and files; a task has none.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Protocol, TypeVar

from dc_inject.apps.reads import records
from dc_inject.apps.reads.pacing import TokenBucket
from dc_inject.apps.reads.records import Progress, Record
from dc_inject.backends.fts.sites import may_open
from dc_inject.credentials import Credentials
from dc_inject.model import ReadOptions, urls
from dc_inject.model.errors import Permanent, ServiceError
from dc_inject.model.failed_files import classify
from dc_inject.model.redaction import scrub
from dc_inject.storage import WebDav, trust, xrootd
from dc_inject.storage.http_transport import of_status
from dc_inject.system.clock import SystemClock
from dc_inject.system.executor import Workers

T = TypeVar("T")

PATIENCE = 60  # seconds that a request to a storage may last
STOPS_WITHIN = 0.5  # seconds after which a reader looks whether it is to stop
# The library's own settings are for copies that no user waits for: half an hour of silence, and connections that
# stay open for 5 to 20 minutes after their last file. Here they are closed 1 to 2 seconds after it.
SETTINGS = {
    "XRD_CONNECTIONWINDOW": "20",
    "XRD_CONNECTIONRETRY": "2",
    "XRD_STREAMERRORWINDOW": "60",
    "XRD_DATASERVERTTL": "1",
    "XRD_LOADBALANCERTTL": "1",
    "XRD_TIMEOUTRESOLUTION": "1",
}


@dataclass(frozen=True, slots=True)
class Task:
    """A bundle to read: URLs with the bytes that are to be read of each, until a time in seconds since 1970.

    `trusted` is whether a person has named the hosts of all URLs, so that they may get a token over HTTP.
    """

    key: str
    files: tuple[tuple[str, int], ...]
    options: ReadOptions
    until: float
    scitag: int | None = None
    trusted: bool = False


class Stopped(Exception):
    """The reader is to stop, or its time is over."""


class Source(Protocol):
    """An open file; its methods raise ServiceError, and Stopped as soon as `stopped` returns true."""

    size: int

    def read(self, offset: int, length: int) -> int:
        """Read, and return how many bytes came."""

    def close(self) -> None:
        """Close it."""


Open = Callable[[Task, str, Callable[[], bool]], Source]


def open_source(task: Task, url: str, stopped: Callable[[], bool]) -> Source:
    """Open a file of a task by the protocol of its URL."""
    return (XrootdSource if urls.parse(url).scheme in urls.XROOTD else HttpSource)(task, url, stopped)


class XrootdSource:
    """A file of a storage over root://."""

    def __init__(self, task: Task, url: str, stopped: Callable[[], bool]) -> None:
        """Open it, and ask for its size."""
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)  # read when the library is loaded
        client, flags = xrootd.load()
        self._url, self._stopped = url, stopped
        self._file = client.File()
        marked = f"{url}?scitag.flow={task.scitag}" if task.scitag else url
        self._ask("open", lambda **how: self._file.open(marked, flags.OpenFlags.READ, **how))
        self.size = int(self._ask("stat", self._file.stat).size)

    def read(self, offset: int, length: int) -> int:
        """Read, and return how many bytes came."""
        return len(self._ask("read", lambda **how: self._file.read(offset, length, **how)))

    def close(self) -> None:
        """Close it without waiting for the answer."""
        self._file.close(timeout=PATIENCE, callback=lambda *_: None)

    def _ask(self, request: str, start: Callable[..., Any]) -> Any:  # noqa: ANN401  the library has no types
        answer: Future[tuple[Any, ...]] = Future()
        status, value = start(timeout=PATIENCE, callback=lambda *values: answer.set_result(values)), None
        if status.ok:
            status, value, *_ = _await(answer, self._stopped)
        if not status.ok:
            raise xrootd.translated(f"{request} {self._url}", status)
        return value


class HttpSource:
    """A file of a storage over davs:// or https://, read by GET with a Range; its connections end with it.

    A thread of its own makes the requests, so that the reader stops at once also while a storage is silent.
    """

    def __init__(self, task: Task, url: str, stopped: Callable[[], bool]) -> None:
        """Ask for its size."""
        self._url, self._stopped, self._closed = url, stopped, False
        self._headers = {"SciTag": str(task.scitag)} if task.scitag else {}
        self._web = web(lambda _url: task.trusted, PATIENCE)
        self._thread = Workers(1, "read")
        try:
            self.size = self._ask(self._size)
        except BaseException:
            self.close()
            raise

    def read(self, offset: int, length: int) -> int:
        """Read, and return how many bytes came."""
        return self._ask(lambda: self._get(offset, length))

    def close(self) -> None:
        """Close it, and its connections; a request that is under way is given up with its next bytes."""
        self._closed = True
        self._web.close()

    def _size(self) -> int:
        found = self._web.stat(self._url)
        if not found.exists:
            raise of_status("HEAD", self._url, 404)
        if found.bytes is None:
            raise Permanent(f"HEAD {self._url}: the storage does not report its size")
        return found.bytes

    def _get(self, offset: int, length: int) -> int:
        asked, came = f"bytes={offset}-{offset + length - 1}", 0
        with self._web.ask("GET", self._url, {**self._headers, "Range": asked}) as answer:
            if answer.status not in {200, 206}:
                raise answer.error()
            part = f"{answer.headers.get('Content-Range', '')}/".partition("/")[0].replace(" ", "=")
            if part != asked if answer.status == 206 else length != self.size:  # 200: the whole file
                given = scrub(part) or "the whole file"
                raise Permanent(f"GET {self._url}: asked for {asked}, the storage gave {given}")
            for piece in answer.body():
                came += len(piece)
                if came > length or self._closed:
                    raise Permanent(f"GET {self._url}: more than the {length} bytes came that were asked for")
        return came

    def _ask(self, act: Callable[[], T]) -> T:
        answer: Future[T] = Future()

        def work() -> None:
            try:
                answer.set_result(act())
            except BaseException as error:  # noqa: BLE001  raised where the answer is awaited
                answer.set_exception(error)

        self._thread.start(work)
        return _await(answer, self._stopped)


def web(trusted: Callable[[str], bool], patience: float) -> WebDav:
    """Return what speaks HTTP to sources, with the credentials of this process; `patience` is in seconds.

    A token goes only to URLs that are `trusted`.
    """
    keys = Credentials(os.environ, SystemClock())
    return WebDav(
        lambda: keys.access("source"),
        verify=trust(os.environ),
        read=patience,
        longest=patience,
        may_open=partial(may_open, keys, trusted, "source"),
    )


def _await(answer: Future[T], stopped: Callable[[], bool]) -> T:
    """Return an answer when it has come; raises Stopped as soon as `stopped` returns true."""
    while not wait([answer], STOPS_WITHIN).done:
        if stopped():
            raise Stopped
    return answer.result()


def read(
    task: Task,
    opened: Open = open_source,
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
            source = self._opened(self._task, url, self._stopped)
            try:
                self._blocks(source, size)
            finally:
                source.close()
        except ServiceError as error:
            reason = classify("FAILED", text := f"SOURCE {error.message}")
            if reason == "source-error" and getattr(error, "hold", "") == "credentials":
                reason, text = "permission", f"SOURCE no permission: {error.message}"  # views classify it again
            reasons = Counter(self._progress.reasons) + Counter([reason])
            self._write(reasons=dict(reasons), error=self._progress.error or text)
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
