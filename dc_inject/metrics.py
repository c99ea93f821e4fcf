"""What Prometheus sees: counters of what this process did, and the ledger's numbers, read at each scrape."""

from __future__ import annotations

import contextlib
import logging
import socket
import socketserver
import threading
import wsgiref.simple_server
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, make_wsgi_app

from dc_inject.errors import ServiceError, UsageError
from dc_inject.model import Cycle

log = logging.getLogger(__name__)

RESULTS = frozenset({"ok", "temporary", "another-now", "permanent", "fatal", "lost"})
KINDS = frozenset({"temporary", "anothernow", "permanent", "fatal"})
CALL_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
CYCLE_BUCKETS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 900)
LATE = 0.1  # of a cycle: what is closed later than this after its end has taken time from the next one
PATIENCE = 5.0  # seconds that a client of the metrics' page may take to say what it wants


class Silent:
    """An observer that hears nothing."""

    def event(self, name: str, **numbers: Any) -> None:  # noqa: ANN401  numbers of any kind, by name
        """Let it pass."""


class Metrics:
    """An observer that counts, and a page of what it counted beside the numbers of the ledger.

    Labels come from bounded sets only: services, methods and results are words of the code, scenarios and links
    those of the menus. `event` may be called from any thread.
    """

    def __init__(self, ledger_path: Path) -> None:
        """Take the ledger's file; it is opened, read-only, at each scrape."""
        self._ledger_path = ledger_path
        self.registry = CollectorRegistry(auto_describe=False)
        self.counted: list[
            Counter | Histogram
        ] = []  # what this process counts, as opposed to the ledger's numbers
        self._opened: Cycle | None = None  # the newest cycle that this process has opened
        call = ("service", "method", "result")
        self._calls = self._counter("calls", "Calls to services by their result.", *call)
        self._call_seconds = self._histogram("call_seconds", "Time that calls took.", CALL_BUCKETS, *call)
        self._errors = self._counter("errors", "Errors that services answered with.", "service", "kind")
        self._refusals = self._counter("refusals", "Injections that a service refused.", "service", "kind")
        self._adopted = self._counter("adopted", "Injections found to be accepted earlier.", "service")
        self._set_aside = self._counter("set_aside", "Datasets that a last look found to be of no use.")
        self._unexpected = self._counter("unexpected_errors", "Errors that nobody foresaw.")
        self._menus_refused = self._counter("menus_refused", "Changed menus that were not taken up.")
        self._cycles = self._counter("cycles_closed", "Cycles closed by this process.")
        self._overruns = self._counter("cycle_overruns", "Cycles that took time from the next one.")
        self._planning = self._histogram(
            "cycle_planning_seconds", "Time from the start of planning to a plan on disk.", CYCLE_BUCKETS
        )
        self._lateness = self._histogram(
            "cycle_close_delay_seconds", "Time from a cycle's end to its closing.", CYCLE_BUCKETS
        )
        self._heard: dict[str, Callable[..., None]] = {
            "call": self._call,
            "error": self._error,
            "another-now": lambda service, **_: self._refusals.labels(service, "another-now").inc(),
            "permanent": lambda service, **_: self._refusals.labels(service, "permanent").inc(),
            "answered": self._answered,
            "set-aside": lambda **_: self._set_aside.inc(),
            "unexpected": lambda **_: self._unexpected.inc(),
            "menus-refused": lambda **_: self._menus_refused.inc(),
            "planned": lambda seconds, **_: self._planning.observe(seconds),
            "cycle-opened": self._cycle_opened,
            "cycle-closed": self._cycle_closed,
        }

    def event(self, name: str, **numbers: Any) -> None:  # noqa: ANN401  numbers of any kind, by name
        """Count one thing that happened; what nobody counts passes."""
        heard = self._heard.get(name)
        if heard is not None:
            heard(**numbers)

    # ------------------------------------------------------------------ what is counted

    def _call(self, *, service: str, method: str, seconds: float, result: str, **_: object) -> None:
        labels = (service, method, _known(result, RESULTS))
        self._calls.labels(*labels).inc()
        self._call_seconds.labels(*labels).observe(seconds)

    def _error(self, *, service: str, kind: str, **_: object) -> None:
        self._errors.labels(service, _known(kind, KINDS)).inc()

    def _answered(self, *, service: str, outcomes: Iterable[Any], **_: object) -> None:
        self._adopted.labels(service).inc(sum(outcome.adopted for outcome in outcomes))

    def _cycle_opened(self, *, cycle: Cycle, **_: object) -> None:
        self._opened = cycle

    def _cycle_closed(self, *, cycle: Cycle, seconds: float, **_: object) -> None:
        self._cycles.inc()
        if cycle != self._opened:
            return  # left open by an earlier process: nobody worked on it meanwhile, it did not take long
        self._lateness.observe(max(seconds, 0))
        if seconds > LATE * cycle.length.total_seconds():
            self._overruns.inc()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        made = Counter(f"dc_inject_{name}", text, labels, registry=self.registry)
        self.counted.append(made)
        return made

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        made = Histogram(f"dc_inject_{name}", text, labels, registry=self.registry, buckets=buckets)
        self.counted.append(made)
        return made

    # ------------------------------------------------------------------ the page

    @contextlib.contextmanager
    def serve(self, address: str) -> Iterator[str]:
        """Serve the page at `[HOST:]PORT` (127.0.0.1 unless told otherwise; port 0 is a free one).

        Gives the address as `HOST:PORT`; the server and its threads are gone at the exit. Raises UsageError for an
        address that is none, ServiceError when it cannot be had.
        """
        host, port = read_address(address)
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            server = _server(family)((host, port), _Quiet)
        except OSError as error:
            hint = "another process may listen there: take another port, or 0 for a free one"
            raise ServiceError(f"cannot serve metrics at {address}: {error.strerror or error}", hint) from None
        server.set_app(_guarded(make_wsgi_app(self.registry)))
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="metrics", daemon=True)
        thread.start()
        place = f"[{host}]:{server.server_port}" if ":" in host else f"{host}:{server.server_port}"
        log.info("metrics at http://%s/metrics", place)
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


def _known(word: str, words: frozenset[str]) -> str:
    return word if word in words else "other"


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


def _guarded(app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    """Let what nobody foresaw fail one scrape, without a trace on the terminal."""

    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            return app(environ, start_response)
        except Exception as error:  # noqa: BLE001  the last place: a scrape must not disturb the injector
            log.warning("a scrape of the metrics failed: %s", type(error).__name__)
            start_response("500 Internal Server Error", [("Content-Type", "text/plain")])
            return [b"the metrics cannot be read now\n"]

    return guarded
