"""The server of pages, for Prometheus and for browsers: on this machine only unless configured otherwise.

Its limits are here, for all pages: connections, the time of a request and of an answer, and the names (`Host`)
that it answers to. Where it listens on this machine only, those are names of this machine: a browser visits
strange pages, too, and the name of one may lead here (DNS rebinding).

A client that takes long to ask never keeps another one out: where connections are too many, the oldest that has
not asked yet is cut.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import math
import socket
import socketserver
import threading
import time
import wsgiref.simple_server
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dc_inject.model.errors import ServiceError, UsageError

log = logging.getLogger(__name__)

PATIENCE = 5.0  # seconds of silence that a client may keep
ASKING = 10.0  # seconds that a request may take to come
LONGEST = 30.0  # seconds that one connection may take in all
MOST = 16  # connections at a time
QUIET = 60.0  # seconds between two warnings of too many
OURS = frozenset({"127.0.0.1", "localhost", "[::1]"})  # a port may follow: of a tunnel, it is another one

App = Callable[..., Iterable[bytes]]


@contextlib.contextmanager
def serve(app: App, address: str, what: str = "metrics at http://{}/metrics") -> Iterator[str]:
    """Serve an app at `[HOST:]PORT` (127.0.0.1 by default; port 0 is a free one), and log `what`.

    Gives the address as `HOST:PORT`; the server and its threads are gone at the exit. Raises UsageError for an
    address that is none, ServiceError when it cannot be had.
    """
    host, port = read_address(address)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        server = _Server(family, (host, port), _Quiet)
    except OSError as error:
        hint = "another process may listen there: take another port, or 0 for a free one"
        raise ServiceError(f"cannot serve at {address}: {error.strerror or error}", hint) from None
    is_here = ipaddress.ip_address(str(server.server_address[0])).is_loopback
    server.set_app(_guarded(only_here(app) if is_here else app))
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="metrics", daemon=True)
    thread.start()
    place = f"[{host}]:{server.server_port}" if ":" in host else f"{host}:{server.server_port}"
    log.info("%s", what.format(place))
    try:
        yield place
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def read_address(text: str) -> tuple[str, int]:
    """Return host and port of `[HOST:]PORT`, where an IPv6 host stands in brackets. Raises UsageError."""
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise UsageError(f"{text!r} is no address to listen at", "write a port, such as 9465, or HOST:PORT")
    return host or "127.0.0.1", int(port)


class _Quiet(wsgiref.simple_server.WSGIRequestHandler):
    """A handler that does not write a line for every scrape, nor waits for ever on a client."""

    timeout = PATIENCE

    def parse_request(self) -> bool:
        """Read a request's head; once it is there, the connection is not cut for another one."""
        asked = super().parse_request()
        self.server.has_asked(self.connection)  # type: ignore[attr-defined]  # ours
        return asked

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name in the base class
        log.debug("metrics: " + format, *args)  # noqa: G003  the format comes from the standard library


class _Server(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
    """One thread for each scrape, so that a slow client does not keep others waiting."""

    allow_reuse_address = True
    daemon_threads = True  # a slow client does not delay the end of the process

    def __init__(self, family: int, *args: Any) -> None:
        self.address_family = family
        self._open: dict[socket.socket, float] = {}  # connections, and when their time is over
        self._asking: dict[socket.socket, float] = {}  # of those that have not asked yet, the oldest first
        self._warned = -math.inf
        self._lock = threading.Lock()
        super().__init__(*args)

    def verify_request(self, request: socket.socket, client_address: tuple[str, int]) -> bool:  # type: ignore[override]  # TCP only
        """Take a connection in place of one that has not asked yet, if they are too many; else close it."""
        now = time.monotonic()
        with self._lock:
            full = len(self._open) >= MOST
            slow = next(iter(self._asking), None) if full else None
            if slow is not None:
                self._forget(slow)
                _cut(slow)
            if takes := not full or slow is not None:
                self._open[request], self._asking[request] = now + LONGEST, now + ASKING
        if full and now >= self._warned + QUIET:
            self._warned = now
            what = "one that does not ask is cut for each new one" if takes else "new ones are refused"
            host, port = str(client_address[0]), self.server_port
            log.warning("port %d has %d connections, the last from %s: %s", port, MOST, host, what)
        return takes

    def has_asked(self, request: socket.socket) -> None:
        """Let a connection live until its answer is given."""
        with self._lock:
            self._asking.pop(request, None)

    def _forget(self, request: socket.socket) -> None:
        self._open.pop(request, None)
        self._asking.pop(request, None)

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]  # TCP only
        """Close a connection, and forget it."""
        with self._lock:
            self._forget(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cut connections whose time is over; called every tenth of a second."""
        self._cut_all(time.monotonic())

    def server_close(self) -> None:
        """Close, with all connections."""
        super().server_close()
        self._cut_all(math.inf)

    def _cut_all(self, now: float) -> None:
        with self._lock:
            times = (*self._open.items(), *self._asking.items())
            for connection in {connection for connection, until in times if until <= now}:
                _cut(connection)

    def server_bind(self) -> None:
        """Bind without asking the DNS for our name, which can take long."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that went away; a failed scrape has had its answer."""
        del request
        log.debug("metrics: the connection of %s broke", client_address)


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def only_here(app: App) -> App:
    """Let an app answer only to names of this machine; everybody else learns nothing of it."""

    def checked(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        host = str(environ.get("HTTP_HOST", ""))
        name, _, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
        if (name or port) in OURS and (not name or port == "" or port.isdigit()):
            return app(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain"), ("X-Content-Type-Options", "nosniff")])
        return [b"This page is only for this machine: ask for 127.0.0.1.\n"]

    return checked


def _guarded(app: App) -> App:
    """Let an unexpected error fail one scrape, without a trace on the terminal."""

    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            return app(environ, start_response)
        except Exception as error:  # noqa: BLE001  the last place: a scrape must not disturb the injector
            log.warning("a scrape of the metrics failed: %s", type(error).__name__)
            start_response("500 Internal Server Error", [("Content-Type", "text/plain")])
            return [b"the metrics cannot be read now\n"]

    return guarded
