"""A storage for tests: files in memory, with the verbs of WebDAV and the pull of HTTP third-party copy."""

from __future__ import annotations

import http.client
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

PATIENCE = 300.0  # seconds that anything may take on a machine that is busy with other things


def adler32(content: bytes) -> str:
    return f"{zlib.adler32(content):08x}"


class Storage(ThreadingHTTPServer):
    """A storage on an address of the loopback network; what goes wrong with it can be chosen."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, host: str = "127.0.0.1", port: int = 0, verbs: type[Verbs] | None = None) -> None:
        super().__init__((host, port), verbs or Verbs)
        self.files: dict[str, bytes] = {}
        self.changed: dict[str, float] = {}
        self.folders: set[str] = {""}
        self.asked: Counter[str] = Counter()
        self.tokens: list[tuple[str | None, str | None]] = []  # of COPY: for itself, for the source
        self.lies: dict[str, str] = {}  # checksums that are told instead of the true ones, by path
        self.refuse_parents = False  # a COPY into a folder that is not there fails
        self.fail_copies: list[str] = []  # last lines of the next copies, which copy nothing
        self.truncate = False  # copies lose their last byte
        self.silent = False  # nothing is answered
        self.deaf = False  # nothing is deleted
        self.gate = threading.Event()  # copies wait here
        self.gate.set()
        self.late = False  # copies begin only when somebody has looked for them in vain
        self.blind_to = ""  # a path that a copy does not see
        self.drop_copies: list[bool] = []  # whether the next copies lose their connection instead of an answer
        self.copying: list[str] = []  # paths in the order of their COPY
        self.now_copying = 0
        self.most_copying = 0
        self.slow_looks = False
        self.now_looking = 0
        self.most_looking = 0
        self.closing = threading.Event()
        self.missed = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host}:{port}"

    @property
    def se(self) -> str:
        return f"http://{self.server_address[0]}"

    def put(self, path: str, content: bytes) -> str:
        self.files[path] = content
        self.changed[path] = time.time() - 3600
        return self.url + path

    def look(self, path: str) -> tuple[int, str] | None:
        """Return the size and the checksum of a file as they are told; None where there is none."""
        content = self.files.get(path)
        return None if content is None else (len(content), self.lies.get(path, adler32(content)))

    def count_copy(self, change: int) -> None:
        with self._lock:
            self.now_copying += change
            self.most_copying = max(self.most_copying, self.now_copying)

    @contextmanager
    def looking(self) -> Iterator[None]:
        with self._lock:
            self.now_looking += 1
            self.most_looking = max(self.most_looking, self.now_looking)
        if self.slow_looks:
            time.sleep(0.02)
        yield
        with self._lock:
            self.now_looking -= 1

    def close(self) -> None:
        self.gate.set()
        self.closing.set()
        self.shutdown()
        self.server_close()
        self._thread.join(timeout=10)


class Verbs(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 20
    server: Storage

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def parse_request(self):
        understood = super().parse_request()
        if self.server.silent:
            self.server.closing.wait(30)
        return understood

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.server.asked["HEAD"] += 1
        with self.server.looking():
            return self._look()

    def _look(self):
        seen = self.server.look(self.path)
        if seen is None:
            return self._answer(404)
        headers = {"Digest": f"adler32={seen[1]}"} if self.headers.get("Want-Digest") else {}
        return self._answer(200, length=seen[0], headers=headers)

    def do_GET(self):
        self.server.asked["GET"] += 1
        content = self.server.files.get(self.path)
        if content is None:
            return self._answer(404)
        self._answer(200, length=len(content))
        self.wfile.write(content)
        return None

    def do_PROPFIND(self):
        self.server.asked["PROPFIND"] += 1
        if self.path not in self.server.files:
            self._answer(404)
            return self.server.missed.set()
        told = formatdate(self.server.changed[self.path], usegmt=True)
        kept = f"<lp1:getlastmodified>{told}</lp1:getlastmodified><lp1:iscollection>0</lp1:iscollection>"
        row = f"<D:href>{self.path}</D:href><D:propstat><D:prop>{kept}</D:prop></D:propstat>"  # as XRootD
        body = f"<D:multistatus><D:response>{row}</D:response></D:multistatus>".encode()
        self._answer(207, length=len(body))
        self.wfile.write(body)
        return None

    def do_DELETE(self):
        self.server.asked["DELETE"] += 1
        if self.server.deaf:
            return self._answer(500)
        return self._answer(404 if self.server.files.pop(self.path, None) is None else 200)

    def do_MKCOL(self):
        self.server.asked["MKCOL"] += 1
        path = self.path.rstrip("/")
        if path in self.server.folders:
            return self._answer(405)
        if path.rpartition("/")[0] not in self.server.folders:
            return self._answer(409)
        self.server.folders.add(path)
        return self._answer(201)

    def do_COPY(self):
        server = self.server
        server.asked["COPY"] += 1
        server.tokens.append((self.headers.get("Authorization"), self.headers.get("TransferHeaderAuthorization")))
        if self.headers.get("Overwrite") == "F" and self.path in server.files and self.path != server.blind_to:
            return self._answer(412)
        if server.refuse_parents and self.path.rpartition("/")[0] not in server.folders:
            return self._answer(409)
        server.copying.append(self.path)
        if server.late:
            server.missed.wait(PATIENCE)
        if server.drop_copies and server.drop_copies.pop():
            server.files.setdefault(self.path, b"half")
            server.changed.setdefault(self.path, time.time())
            self.close_connection = True
            return None
        server.changed[self.path] = time.time()
        server.files[self.path] = b""  # it is open before anything is answered, as with XRootD
        self.send_response(201)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._chunk("Perf Marker\nStripe Bytes Transferred: 0\nEnd\n")
        server.count_copy(1)
        try:
            last = self._fetch()
        finally:
            server.count_copy(-1)
        self._chunk(last + "\n")
        self._chunk("")
        return None

    def _fetch(self) -> str:
        server = self.server
        deadline = time.monotonic() + PATIENCE
        while not server.gate.wait(0.02):
            self._chunk("Perf Marker\nEnd\n")  # raises when nobody listens any more
            if time.monotonic() > deadline:
                return "failure: nobody opened the gate"
        if server.fail_copies:
            return server.fail_copies.pop(0)
        source = urlsplit(self.headers["Source"])
        connection = http.client.HTTPConnection(source.hostname, source.port, timeout=60)
        try:
            connection.request("GET", source.path)
            answer = connection.getresponse()
            content = answer.read()
        except OSError as error:
            return f"failure: {error}"
        finally:
            connection.close()
        if answer.status != 200:
            return f"failure: Remote side failed with status code {answer.status}"
        if self.path in server.files:  # what is deleted while it is written is gone
            server.files[self.path] = content[:-1] if server.truncate else content
        return "success: Created"

    def _chunk(self, text: str) -> None:
        self.wfile.write(f"{len(text):x}\r\n{text}\r\n".encode())

    def _answer(self, status: int, length: int = 0, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
