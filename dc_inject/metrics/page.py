"""The server of pages, for Prometheus and for browsers: on this machine only unless told otherwise."""

from __future__ import annotations

import contextlib
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
LONGEST = 30.0  # seconds that one connection may take in all
MOST = 16  # connections at a time; the next one is refused

App = Callable[..., Iterable[bytes]]


@contextlib.contextmanager
def serve(app: App, address: str, what: str = "metrics at http://{}/metrics") -> Iterator[str]:
    """Serve an app at `[HOST:]PORT` (127.0.0.1 unless told otherwise; port 0 is a free one), and log `what`.

    Gives the address as `HOST:PORT`; the server and its threads are gone at the exit. Raises UsageError for an
    address that is none, ServiceError when it cannot be had.
    """
    host, port = read_address(address)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        server = _server(family)((host, port), _Quiet)
    except OSError as error:
        hint = "another process may listen there: take another port, or 0 for a free one"
        raise ServiceError(f"cannot serve at {address}: {error.strerror or error}", hint) from None
    server.set_app(_guarded(app))
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

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name in the base class
        log.debug("metrics: " + format, *args)  # noqa: G003  the format comes from the standard library


def _server(family: int) -> type[wsgiref.simple_server.WSGIServer]:
    class Server(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
        """One thread for each scrape, so that a slow client does not keep others waiting."""

        address_family = family
        allow_reuse_address = True
        daemon_threads = True  # a client that reads slowly keeps nobody from ending

        def __init__(self, *args: Any) -> None:
            self._open: dict[socket.socket, float] = {}  # connections, and when their time is over
            self._lock = threading.Lock()
            super().__init__(*args)

        def verify_request(self, request: socket.socket, client_address: object) -> bool:  # type: ignore[override]  # TCP only
            """Take a connection unless there are too many; it is closed then."""
            del client_address
            with self._lock:
                if len(self._open) >= MOST:
                    return False
                self._open[request] = time.monotonic() + LONGEST
            return True

        def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]  # TCP only
            """Close a connection, and forget it."""
            with self._lock:
                self._open.pop(request, None)
            super().shutdown_request(request)

        def service_actions(self) -> None:
            """Cut connections whose time is over; called every tenth of a second."""
            self._cut(time.monotonic())

        def server_close(self) -> None:
            """Close, with all connections."""
            super().server_close()
            self._cut(math.inf)

        def _cut(self, now: float) -> None:
            with self._lock:
                over = [connection for connection, until in self._open.items() if until <= now]
            for connection in over:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

        def server_bind(self) -> None:
            """Bind without asking the DNS for our name, which can take long."""
            socketserver.TCPServer.server_bind(self)
            self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
            self.setup_environ()

        def handle_error(self, request: object, client_address: object) -> None:
            """Say nothing of a client that went away; a scrape that failed has been told by its answer."""
            del request
            log.debug("metrics: the connection of %s broke", client_address)

    return Server


def _guarded(app: App) -> App:
    """Let what nobody foresaw fail one scrape, without a trace on the terminal."""

    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            return app(environ, start_response)
        except Exception as error:  # noqa: BLE001  the last place: a scrape must not disturb the injector
            log.warning("a scrape of the metrics failed: %s", type(error).__name__)
            start_response("500 Internal Server Error", [("Content-Type", "text/plain")])
            return [b"the metrics cannot be read now\n"]

    return guarded
