"""A small HTTP server in a thread of the test whose answers have no end, are bombs, drip, or lead elsewhere."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Trick = Callable[["Handler"], None]


class Server(ThreadingHTTPServer):
    """Answers by the beginning of the path; counts what it could send, and keeps what was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, Trick] = {}
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.sent = 0  # bytes of bodies
        self.over = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address) -> None:
        """Say nothing when a client hangs up: that is what is wanted."""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def handle_method(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = "/" + self.path.lstrip("/")
        self.server.asked.append(f"{self.command} {path}")
        self.server.headers.append(dict(self.headers))
        found = [trick for start, trick in self.server.answers.items() if path.startswith(start)]
        (found or [json_answer("{}", 404)])[0](self)

    do_GET = do_POST = do_PUT = do_DELETE = do_PROPFIND = do_HEAD = handle_method

    def begin(self, status: int = 200, **headers: str) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def write(self, data: bytes) -> None:
        self.wfile.write(data)
        self.server.sent += len(data)


def json_answer(text: str, status: int = 200, **headers: str) -> Trick:
    """Answer with this."""

    def answer(handler: Handler) -> None:
        body = text.encode()
        handler.begin(status, **{"Content_Type": "application/json", "Content_Length": str(len(body)), **headers})
        handler.write(body)

    return answer


def endless(start: bytes = b"[", piece: bytes = b"1," * 50_000, **headers: str) -> Trick:
    """Stream as fast as it is taken; 2 GB are without end for a test that goes wrong."""

    def answer(handler: Handler) -> None:
        handler.close_connection = True
        handler.begin(**{"Content_Type": "application/json", **headers})
        handler.write(start)
        with suppress(OSError):
            while handler.server.sent < 2_000_000_000 and not handler.server.over.is_set():
                handler.write(piece)

    return answer


def bomb(megabytes: int = 1000) -> Trick:
    """Answer with some MB of gzip that unpack to many."""
    zeros = gzip.compress(b"0" * 10_000_000, 6)
    body = zeros * (megabytes // 10)
    return json_answer_bytes(body, Content_Encoding="gzip")


def json_answer_bytes(body: bytes, **headers: str) -> Trick:
    """Answer with these bytes."""

    def answer(handler: Handler) -> None:
        handler.begin(Content_Type="application/json", Content_Length=str(len(body)), **headers)
        handler.write(body)

    return answer


def raw(start: bytes, piece: bytes) -> Trick:
    """Begin an answer like this and repeat a piece without end."""

    def answer(handler: Handler) -> None:
        handler.close_connection = True
        handler.wfile.write(start)
        with suppress(OSError):
            while handler.server.sent < 2_000_000_000 and not handler.server.over.is_set():
                handler.write(piece)

    return answer


def drip(start: bytes = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[") -> Trick:
    """Begin an answer like this, and go on a byte at a time, until nobody listens any more."""

    def answer(handler: Handler) -> None:
        handler.close_connection = True
        handler.wfile.write(start)
        with suppress(OSError):
            for _ in range(3000):
                if handler.server.over.wait(0.01):
                    return
                handler.write(b" ")

    return answer


def silence() -> Trick:
    """Take a request and say nothing, as long as the test lasts."""

    def answer(handler: Handler) -> None:
        handler.close_connection = True
        handler.server.over.wait(60)

    return answer


def redirect(url: str, status: int = 302) -> Trick:
    """Send whoever asks to the same path there."""
    return lambda handler: json_answer("", status, Location=url + handler.path)(handler)


@contextmanager
def running() -> Iterator[Server]:
    """Run a server until the end of the block."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join(30)
        server.server_close()
