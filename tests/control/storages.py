"""Storages for trials of control: files in memory, copies that take the time that a storage's model gives them.

All of them live in one process, so a copy moves no bytes.
"""

from __future__ import annotations

import random
import threading
import time
import zlib
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

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


class ModelStorage(ThreadingHTTPServer):
    """A storage that follows a model, on an address of the loopback network."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, host: str, places: dict[str, ModelStorage], model: Model, seed: int) -> None:
        """Begin to serve; `places` finds the other storages of the trial by `host:port`, and gets this one."""
        super().__init__((host, 0), _Verbs)
        self.model = model
        self.files: dict[str, tuple[int, str]] = {}  # size and checksum
        self.changed: dict[str, float] = {}
        self.folders = {"", "/data", "/in"}
        self.closing = threading.Event()
        self._places = places
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._shares: dict[int, float] = {}  # of the copies that run
        places[f"{host}:{self.server_address[1]}"] = self
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{self.server_address[0]}:{self.server_address[1]}"

    def put(self, path: str, content: bytes) -> None:
        """Have a file."""
        self.files[path] = len(content), f"{zlib.adler32(content):08x}"
        self.changed[path] = time.time() - 3600

    def refuses(self) -> bool:
        """Whether this request for a copy fails."""
        with self._lock:
            return self._random.random() < self.model.failing

    def fetch(self, source: str, path: str) -> str:
        """Copy a file; returns the last line of the answer."""
        parts = urlsplit(source)
        place = self._places[parts.netloc]
        if parts.path not in place.files:
            return "failure: Remote side failed with status code 404"
        size, checksum = place.files[parts.path]
        self._wait(place, size)
        with self._lock:
            if path not in self.files:
                return "failure: the file was deleted while it was written"
            used = sum(one for one, _ in self.files.values())
            if self.model.space and used + size > self.model.space:
                self.files.pop(path)
                return "failure: Unknown filesystem write failure"
            self.files[path] = size, checksum
        return "success: Created"

    def close(self) -> None:
        """Stop serving."""
        self.closing.set()
        self.shutdown()
        self.server_close()
        self._thread.join(timeout=10)

    def _wait(self, source: ModelStorage, size: int) -> None:
        """Wait for as long as the copy takes at the slower of both storages."""
        deadline = time.monotonic() + LONGEST
        slow = [place for place in (self, source) if place.model.rate]
        marks = [place.enter() for place in slow]
        left = float(size)
        try:
            while slow and left > 0 and time.monotonic() < deadline and not self.closing.wait(TICK):
                left -= TICK * min(place.part(mark) for place, mark in zip(slow, marks, strict=True))
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


class _Verbs(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ModelStorage

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(120)

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        if self.path not in self.server.files:
            return self._answer(404)
        size, checksum = self.server.files[self.path]
        return self._answer(200, length=size, headers={"Digest": f"adler32={checksum}"})

    def do_PROPFIND(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        folder = self.path.rstrip("/") in self.server.folders
        if not folder and self.path not in self.server.files:
            return self._answer(404)
        size, _ = self.server.files.get(self.path, (0, ""))
        when = time.gmtime(self.server.changed.get(self.path, 0))
        entry = _ENTRY.format(
            path=self.path, size=size, changed=time.strftime("%a, %d %b %Y %H:%M:%S GMT", when),
            kind="<D:collection/>" if folder else "",
        )  # fmt: skip
        body = f'<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">{entry}</D:multistatus>'.encode()
        self._answer(207, length=len(body), headers={"Content-Type": "application/xml"})
        self.wfile.write(body)
        return None

    def do_OPTIONS(self) -> None:
        self._answer(200, headers={"Allow": "OPTIONS, HEAD, PROPFIND, MKCOL, COPY, DELETE", "DAV": "1"})

    def do_MKCOL(self) -> None:
        self.server.folders.add(self.path.rstrip("/"))
        self._answer(201)

    def do_DELETE(self) -> None:
        self._answer(200 if self.server.files.pop(self.path, None) else 404)

    def do_COPY(self) -> None:
        if self.server.refuses():
            return self._answer(500)
        self.server.changed[self.path] = time.time()
        self.server.files[self.path] = 0, "00000001"  # it is open before anything is answered, as with XRootD
        self.send_response(201)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._chunk("Perf Marker\nEnd\n")
        self._chunk(self.server.fetch(self.headers["Source"], self.path) + "\n")
        self._chunk("")
        return None

    def _chunk(self, text: str) -> None:
        self.wfile.write(f"{len(text):x}\r\n{text}\r\n".encode())

    def _answer(self, status: int, length: int = 0, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
