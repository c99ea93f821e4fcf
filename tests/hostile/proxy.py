"""A proxy that turns a real service into a hostile one for the tool, when it is told to; nobody else notices."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.chaos.proxy import Proxy, _Handler
from tests.hostile.modes import MODES

OTHERS = "dc_inject-sandbox-fts", "xrootd"  # user agents of those who copy between storages


class Trap(ThreadingHTTPServer):
    """The place that a redirect leads to: nobody should come, and nobody with a secret."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.2", 0), _Trapped)
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.url = f"http://127.0.0.2:{self.server_port}"

    def __enter__(self) -> Trap:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class _Trapped(BaseHTTPRequestHandler):
    server: Trap

    def log_message(self, *_: object) -> None:
        pass

    def _any(self) -> None:
        self.server.asked.append((self.command, self.path, dict(self.headers)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = do_PROPFIND = do_MKCOL = do_COPY = _any


class Hostile(Proxy):
    """Passes all on, until a `mode` is set: then what the tool asks is answered so. `met` is what was."""

    def __init__(self, service: str, trap: Trap) -> None:
        super().__init__(service, 0)
        self._server.RequestHandlerClass = type("Hostile", (Handler,), {"proxy": self})
        self.trap = trap
        self.mode = ""
        self.login: bool | None = (
            None  # whether only requests of a log-in are answered so, or only others; None: all
        )
        self.met: list[str] = []
        self.over = threading.Event()
        self.id = (
            ""  # of a rule or job, which an answer may name in place of each id; empty: the first that is seen
        )
        self.stray: list[str] = []  # what was asked of somebody else's place

    def __exit__(self, *more: object) -> None:
        self.over.set()
        super().__exit__(*more)


class Handler(_Handler):
    """One connection."""

    proxy: Hostile

    def _any(self) -> None:
        body = self._body()
        if self.path.startswith("/somebody"):
            self.proxy.stray.append(f"{self.command} {self.path}")
        ours = not self.headers.get("User-Agent", "").lower().startswith(OTHERS)
        with contextlib.suppress(Exception):  # whatever the tool does to this connection
            meant = self.proxy.login is None or self.proxy.login == self.path.startswith("/auth/")
            if not (self.proxy.mode and ours and meant):
                return self._pass(body)
            self.proxy.met.append(f"{self.command} {self.path}")
            MODES[self.proxy.mode](self, body)
        self.close_connection = True
        return None

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = do_PROPFIND = do_MKCOL = do_COPY = _any

    def raw(self, data: bytes) -> None:
        self.close_connection = True
        self.wfile.write(data)

    def redirect(self, place: str) -> None:
        self.raw(f"HTTP/1.1 307 Moved\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode())

    def carried_out(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        return self._carry_out(body)

    def say(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self._head(status, headers, str(len(content)))
        if self.command != "HEAD":
            self.wfile.write(content)
