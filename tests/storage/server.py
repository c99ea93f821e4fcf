"""A small WebDAV server in a thread of the test, which can be told to misbehave."""

from __future__ import annotations

import queue
import ssl
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, unquote, urlsplit
from xml.sax.saxutils import escape

ROW = """<D:response><D:href>{href}</D:href><D:propstat><D:prop>{props}</D:prop>
<D:status>HTTP/1.1 200 OK</D:status></D:propstat><D:propstat><D:prop><D:quota-used-bytes>1</D:quota-used-bytes>
</D:prop><D:status>HTTP/1.1 404 Not Found</D:status></D:propstat></D:response>"""
WHOLE = '<?xml version="1.0" encoding="utf-8"?><D:multistatus xmlns:D="DAV:" xmlns:c="x">{rows}</D:multistatus>'

Trick = Callable[["Handler"], None]


class DavServer(ThreadingHTTPServer):
    """Files and folders in memory; `tricks` by verb, or verb and path, answer instead of it."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.folders: set[str] = {""}
        self.tricks: dict[str, Trick] = {}
        self.asked: list[str] = []  # verb and path of every request
        self.headers: list[dict[str, str]] = []
        self.connections: Counter[tuple[str, int]] = Counter()
        self.ended: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()  # connections
        self.free: int | None = None
        self.href: Callable[[str], str] = quote
        self.over = threading.Event()
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self.server_port}"
        if context:
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def put(self, path: str, content: bytes = b"x") -> None:
        """Have a file, and the folders above it."""
        self.files[path] = content
        parts = path.split("/")[:-1]
        self.folders |= {"/".join(parts[:end]) for end in range(1, len(parts) + 1)}

    def deleted(self) -> list[str]:
        return [line for line in self.asked if line.startswith("DELETE")]

    def handle_error(self, request, client_address) -> None:
        """Say nothing when a client hangs up: some tests are about that."""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are written apart: else each answer waits for 40 ms
    server: DavServer

    def finish(self) -> None:
        super().finish()
        self.server.ended.put(self.client_address)

    def log_message(self, *_) -> None:
        pass

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    @property
    def name(self) -> str:
        return unquote(urlsplit(self.path).path).rstrip("/")

    def handle_method(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append(f"{self.command} {self.path}")
        self.server.headers.append(dict(self.headers))
        self.server.connections[self.client_address] += 1
        tricks = self.server.tricks
        trick = tricks.get(f"{self.command} {self.name}") or tricks.get(self.command)
        if trick:
            trick(self)
        else:
            getattr(self, f"on_{self.command.lower()}")()

    do_GET = do_PROPFIND = do_DELETE = do_MKCOL = do_HEAD = do_OPTIONS = do_PUT = handle_method

    def on_head(self) -> None:
        content = self.server.files.get(self.name)
        if content is None:
            return self.answer(404)
        digest = {"Digest": f"adler32={zlib.adler32(content):x}"} if self.headers.get("Want-Digest") else {}
        return self.answer(200, Content_Length=str(len(content)), **digest)

    def on_get(self) -> None:
        """Give a file, or the part of it that is asked for."""
        content = self.server.files.get(self.name)
        if content is None:
            return self.answer(404)
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        part = f"bytes {first}-{last}/{len(content)}"
        return self.answer(206, content[first : last + 1], Content_Range=part)

    def on_options(self) -> None:
        self.answer(200, Allow="OPTIONS, PROPFIND,DELETE", DAV="1")

    def on_delete(self) -> None:
        """Delete whatever it is with all that is in it, as the RFC says and as we fear."""
        name = self.name
        there = [path for path in [*self.server.files, *self.server.folders] if f"{path}/".startswith(f"{name}/")]
        for path in there:
            self.server.files.pop(path, None)
            self.server.folders.discard(path)
        self.answer(204 if there else 404)

    def on_put(self) -> None:
        """Write a file; as the RFC says, a folder above it that is missing is a conflict."""
        if self.name.rpartition("/")[0] not in self.server.folders:
            return self.answer(409, b"no parent")
        self.server.files[self.name] = self.body
        return self.answer(201)

    def on_mkcol(self) -> None:
        if self.name in self.server.folders:
            return self.answer(405, b"exists")
        if self.name.rpartition("/")[0] not in self.server.folders:
            return self.answer(409, b"no parent")
        self.server.folders.add(self.name)
        return self.answer(201)

    def on_propfind(self) -> None:
        name, depth = self.name, self.headers["Depth"]
        if name not in self.server.folders and name not in self.server.files:
            return self.answer(404)
        there = [name]
        if depth == "1" and name in self.server.folders:
            every = [*self.server.folders, *self.server.files]
            there += sorted(path for path in every if path and path.rpartition("/")[0] == name)
        return self.multistatus("".join(self.row(path) for path in there))

    def row(self, path: str) -> str:
        free = "" if self.server.free is None else self.server.free
        props = f"<D:quota-available-bytes>{free}</D:quota-available-bytes>"
        content = self.server.files.get(path)
        if content is None:
            props += "<D:resourcetype><D:collection/></D:resourcetype>"
        else:
            props += (
                f"<D:resourcetype/><D:getcontentlength>{len(content)}</D:getcontentlength>"
                f"<c:Checksums>md5=00,adler32={zlib.adler32(content):08x}</c:Checksums>"
                "<D:getlastmodified>Sat, 21 Nov 2026 15:28:29 GMT</D:getlastmodified>"
            )
        return ROW.format(href=escape(self.server.href(path or "/")), props=props)

    def multistatus(self, rows: str) -> None:
        self.answer(207, WHOLE.format(rows=rows).encode(), Content_Type="text/xml")


def status(code: int, body: bytes = b"", **headers: str) -> Trick:
    """Answer with this and nothing else."""
    return lambda handler: handler.answer(code, body, **headers)


def hang(handler: Handler) -> None:
    """Do not answer until the test is over."""
    handler.server.over.wait(60)
    handler.close_connection = True


def hang_up(handler: Handler) -> None:
    """Close the connection without an answer."""
    handler.close_connection = True


def drip(start: bytes) -> Trick:
    """Begin an answer like this, and go on a byte at a time, until nobody listens any more."""

    def answer(handler: Handler) -> None:
        handler.close_connection = True
        handler.wfile.write(start)
        for _ in range(200):
            if handler.server.over.wait(0.02):
                return
            handler.wfile.write(b"x")

    return answer


def propfind(text: str) -> Trick:
    """Answer with this text as a multistatus."""
    return lambda handler: handler.answer(207, text.encode(), Content_Type="text/xml")


def rows(*texts: str) -> Trick:
    """Answer with a multistatus of these rows."""
    return propfind(WHOLE.format(rows="".join(texts)))


def row(href: str, props: str = "") -> str:
    """Return one row for `rows`."""
    return ROW.format(href=href, props=props)


@contextmanager
def running(context: ssl.SSLContext | None = None) -> Iterator[DavServer]:
    """Run a server until the end of the block."""
    server = DavServer(context)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join(30)
        server.server_close()
