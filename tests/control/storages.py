"""Storages for trials of control: files in memory, copies that take the time that a storage's model gives them.

All of them live in one process, so a copy moves no bytes.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from email.utils import formatdate
from urllib.parse import urlsplit

from tests.sandbox.fts.webdav import Storage, Verbs, adler32

TICK = 0.05  # seconds between two steps of a copy
LONGEST = 600.0  # seconds that a copy may take

_ENTRY = (
    '<D:response xmlns:D="DAV:"><D:href>{path}</D:href><D:propstat><D:prop>'
    "<D:getcontentlength>{size}</D:getcontentlength><D:getlastmodified>{changed}</D:getlastmodified>"
    "<D:resourcetype>{kind}</D:resourcetype></D:prop>"
    "<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
)


@dataclass(frozen=True)
class Model:
    """What a storage can do: `rate` in bytes per second for all copies together, 0 for no limit.

    `failing` is the part of the requests for a copy that get 500, decided anew for each; `space` is in bytes,
    0 for no limit. `spread` is by how much the shares of copies differ: 1 means that all are equal.
    """

    rate: float = 0.0
    failing: float = 0.0
    space: int = 0
    spread: float = 1.0


class ModelStorage(Storage):
    """A storage that follows a model; of a file it has the size and the checksum."""

    def __init__(self, host: str, places: dict[str, ModelStorage], model: Model, seed: int) -> None:
        """Begin to serve; `places` finds the other storages of the trial by `host:port`, and gets this one."""
        self.model = model
        self._places = places
        self._random = random.Random(seed)
        self._shares: dict[int, float] = {}  # of the copies that run
        super().__init__(host, verbs=_Verbs)
        self.folders = {"", "/data", "/in"}
        places[f"{host}:{self.server_address[1]}"] = self

    def put(self, path: str, content: bytes) -> str:
        """Have a file."""
        url = super().put(path, content)
        self.files[path] = len(content), adler32(content)
        return url

    def look(self, path: str) -> tuple[int, str] | None:
        """Return its size and checksum; one that is being written has neither yet."""
        found = self.files.get(path)
        return None if found is None else found or (0, adler32(b""))

    def refuses(self) -> bool:
        """Whether this request for a copy fails."""
        with self._lock:
            return self._random.random() < self.model.failing

    def fetch(self, source: str, path: str) -> str:
        """Copy a file; returns the last line of the answer."""
        parts = urlsplit(source)
        place = self._places[parts.netloc]
        seen = place.look(parts.path)
        if seen is None:
            return "failure: Remote side failed with status code 404"
        size, checksum = seen
        self._wait(place, size)
        with self._lock:
            if path not in self.files:
                return "failure: the file was deleted while it was written"
            used = sum(one[0] for one in self.files.values() if one)
            if self.model.space and used + size > self.model.space:
                self.files.pop(path)
                return "failure: Unknown filesystem write failure"
            self.files[path] = size, checksum
        return "success: Created"

    def _wait(self, source: ModelStorage, size: int) -> None:
        """Wait for as long as the copy takes at the slower of both storages."""
        before = time.monotonic()
        deadline = before + LONGEST
        slow = [place for place in (self, source) if place.model.rate]
        marks = [place.enter() for place in slow]
        left = float(size)
        try:
            while slow and left > 0 and before < deadline and not self.closing.wait(TICK):
                now = time.monotonic()
                left -= (now - before) * min(place.part(mark) for place, mark in zip(slow, marks, strict=True))
                before = now
        finally:
            for place, mark in zip(slow, marks, strict=True):
                place.leave(mark)

    def enter(self) -> int:
        """Begin to take a share of the rate."""
        with self._lock:
            mark = self._random.getrandbits(62)
            self._shares[mark] = self._random.uniform(1, self.model.spread) ** 2
            return mark

    def part(self, mark: int) -> float:
        """Return the bytes per second of a copy."""
        with self._lock:
            return self.model.rate * self._shares[mark] / sum(self._shares.values())

    def leave(self, mark: int) -> None:
        """Give the share back."""
        with self._lock:
            del self._shares[mark]


class _Verbs(Verbs):
    timeout = 120
    server: ModelStorage

    def do_PROPFIND(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        folder, seen = self.path.rstrip("/") in self.server.folders, self.server.look(self.path)
        if not folder and seen is None:
            return self._answer(404)
        entry = _ENTRY.format(
            path=self.path,
            size=seen[0] if seen else 0,
            changed=formatdate(self.server.changed.get(self.path, 0), usegmt=True),
            kind="<D:collection/>" if folder else "",
        )
        body = f'<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">{entry}</D:multistatus>'.encode()
        self._answer(207, length=len(body), headers={"Content-Type": "application/xml"})
        self.wfile.write(body)
        return None

    def do_OPTIONS(self) -> None:
        self._answer(200, headers={"Allow": "OPTIONS, HEAD, PROPFIND, MKCOL, COPY, DELETE", "DAV": "1"})

    def do_MKCOL(self) -> None:
        self.server.folders.add(self.path.rstrip("/"))
        self._answer(201)

    def do_COPY(self) -> None:
        if self.server.refuses():
            return self._answer(500)
        del self.headers["Overwrite"]  # what is there is written anew
        return super().do_COPY()

    def _fetch(self) -> str:
        return self.server.fetch(self.headers["Source"], self.path)
