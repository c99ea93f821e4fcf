"""A proxy that breaks things: between the tool and a real service, seeded, counted, and told in a log.

What befalls the n-th request of one kind (method and place) hangs on the seed, the kind and n alone, so that a run
which failed meets the same again, however its threads take turns.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

PIECE = 65536
PATIENCE = 60.0  # seconds that the service may take
_ID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)
_OF_THE_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "proxy-authorization"}


class Fault(StrEnum):
    """What is done to a request; the words after the dash tell whether the service carried it out."""

    DELAY = "delay"
    LATE = "late"  # carried out after the client has given up
    DROP_BEFORE = "drop-before"
    DROP_AFTER = "drop-after"
    S429 = "429"
    S500 = "500"
    S502 = "502"
    S503 = "503"
    S504 = "504"
    S502_AFTER = "502-after"
    S504_AFTER = "504-after"
    S401 = "401"
    TRUNCATE = "truncate"
    HTML = "html"
    HTML_AFTER = "html-after"
    DRIP = "drip"
    DATABASE = "database"  # the service's own words for a lock that it did not get
    AWAY = "away"  # nobody answers for a while


CARRIED_OUT = {Fault.DELAY, Fault.LATE, Fault.DROP_AFTER, Fault.S502_AFTER, Fault.S504_AFTER, Fault.TRUNCATE,
               Fault.HTML_AFTER, Fault.DRIP}  # fmt: skip
HTML = b"<html><head><title>Bad Gateway</title></head><body><h1>No server was found</h1></body></html>"
RUCIO_DATABASE = (
    "Database exception.\nDetails: (sqlite3.OperationalError) database is locked\n"
    "[SQL: INSERT INTO rules (id, account) VALUES (?, ?)]"
)


def rucio_trouble() -> tuple[dict[str, str], bytes]:
    """Return headers and body of Rucio's answer when its database does not do what it should."""
    headers = {"ExceptionClass": "DatabaseException", "ExceptionMessage": RUCIO_DATABASE.replace("\n", " ")}
    return headers, json.dumps(headers).encode()


def fts_trouble() -> tuple[dict[str, str], bytes]:
    """Return headers and body of FTS's answer when its database does not do what it should."""
    message = "(OperationalError) (1205, 'Lock wait timeout exceeded; try restarting transaction')"
    return {}, json.dumps({"status": "500 Internal Server Error", "message": message}).encode()


@dataclass(frozen=True)
class Weather:
    """How bad it is: `part` of all requests is hit, by faults with these weights.

    A request is told by its `METHOD /path?query`; the first of `places` that matches says another part. `calm`
    requests are never hit. Times are ranges in seconds.
    """

    part: float = 0.05
    weights: Mapping[Fault, float] = field(default_factory=lambda: dict.fromkeys(Fault, 1.0) | {Fault.AWAY: 0.2})
    places: Sequence[tuple[str, float]] = ()
    delay: tuple[float, float] = (0.05, 0.8)
    late: float = 3.0  # longer than the client waits
    drip: tuple[float, float] = (0.3, 2.0)
    away: tuple[float, float] = (0.5, 3.0)


CALM = Weather(part=0.0)


@dataclass
class Blow:
    """One fault as it was dealt."""

    kind: str
    number: int
    fault: Fault
    seconds: float
    dice: random.Random = field(repr=False)


class Proxy:
    """Listens on a free port of 127.0.0.1 and passes requests on to a service of plain http.

    `weather` can be changed at any time. `faults` counts what was dealt, by class; `log` tells each in words.
    """

    def __init__(
        self,
        service: str,
        seed: object,
        weather: Weather = CALM,
        trouble: Callable[[], tuple[dict[str, str], bytes]] = rucio_trouble,
    ) -> None:
        address = urlsplit(service)
        self.target = (str(address.hostname), int(address.port or 80))
        self.weather, self.trouble, self._seed = weather, trouble, seed
        self.faults: Counter[Fault] = Counter()
        self.requests = 0
        self.log: list[str] = []
        self.refused: tuple[str, ...] = ()  # how Rucio's tokens begin that have ended, whatever Rucio remembers
        self._numbers: Counter[str] = Counter()
        self._away_until = 0.0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": self}))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE)

    def begin(self, seed: object, weather: Weather) -> None:
        """Count anew, in another weather."""
        with self._lock:
            self.weather, self._seed = weather, seed
            self.faults, self.requests, self.log, self._numbers = Counter(), 0, [], Counter()

    def away(self, seconds: float) -> None:
        """Let nobody answer for so long."""
        self._away_until = time.monotonic() + seconds

    @property
    def is_away(self) -> bool:
        return time.monotonic() < self._away_until

    def turn_away(self) -> None:
        """Count a request that met nobody."""
        with self._lock:
            self.requests += 1
            self.faults[Fault.AWAY] += 1

    def opened(self, connection: socket.socket, *, now: bool) -> None:
        with self._lock:
            (self._open.add if now else self._open.discard)(connection)

    def blow(self, method: str, path: str) -> Blow | None:
        """Draw what befalls a request; None when it passes."""
        weather, kind = self.weather, kind_of(method, path)
        with self._lock:
            self.requests += 1
            self._numbers[kind] += 1
            number = self._numbers[kind]
        part = next((part for place, part in weather.places if re.search(place, f"{method} {path}")), weather.part)
        dice = random.Random(f"{self._seed} {kind} {number}")
        if dice.random() >= part:
            return None
        fault = dice.choices(list(weather.weights), list(weather.weights.values()))[0]
        spans = {Fault.DELAY: weather.delay, Fault.DRIP: weather.drip, Fault.AWAY: weather.away}
        seconds = weather.late if fault is Fault.LATE else dice.uniform(*spans.get(fault, (0.0, 0.0)))
        with self._lock:
            self.faults[fault] += 1
            self.log.append(
                f"{time.time():.3f} {kind} #{number}: {fault}" + (f" {seconds:.2f} s" if seconds else "")
            )
        if fault is Fault.AWAY:
            self.away(seconds)
        return Blow(kind, number, fault, seconds, dice)


def kind_of(method: str, path: str) -> str:
    """Name the kind of a request: its path without ids and queries, at most three parts of it."""
    parts = [part for part in _ID.sub("ID", path.partition("?")[0]).split("/") if part]
    return f"{method} /{'/'.join(parts[:2] + ['...'] * (len(parts) > 2))}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: connections that break are what this is for."""


class _Dropped(Exception):
    """The connection is to break."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy
    timeout = PATIENCE

    def log_message(self, *_: object) -> None:
        pass

    def handle(self) -> None:
        self.proxy.opened(self.connection, now=True)
        try:
            with contextlib.suppress(OSError, http.client.HTTPException):
                super().handle()
        finally:
            self.proxy.opened(self.connection, now=False)

    def _any(self) -> None:
        if self.proxy.is_away:
            self.proxy.turn_away()
            return self._drop(reset=True)
        body = self._body()
        token = self.headers.get("X-Rucio-Auth-Token", "")
        if token.startswith(self.proxy.refused) and not self.path.startswith("/auth/"):
            return self._refuse()
        blow = self.proxy.blow(self.command, self.path)
        try:
            self._pass(body) if blow is None else self._strike(blow, body)
        except _Dropped:
            self._drop(reset=blow is not None and blow.dice.random() < 0.5)
        return None

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = do_PATCH = _any

    def _strike(self, blow: Blow, body: bytes) -> None:
        match blow.fault:
            case Fault.DELAY | Fault.LATE:
                time.sleep(blow.seconds)
                self._pass(body)
            case Fault.DROP_BEFORE | Fault.AWAY:
                raise _Dropped
            case Fault.DROP_AFTER:
                self._carry_out(body)
                raise _Dropped
            case Fault.S429 | Fault.S500 | Fault.S502 | Fault.S503 | Fault.S504:
                self._say(int(blow.fault), HTML, {"Content-Type": "text/html"})
            case Fault.S502_AFTER | Fault.S504_AFTER:
                self._carry_out(body)
                self._say(int(blow.fault[:3]), HTML, {"Content-Type": "text/html"})
            case Fault.S401:
                self._refuse()
            case Fault.HTML:
                self._say(200, HTML, {"Content-Type": "text/html"})
            case Fault.HTML_AFTER:
                self._carry_out(body)
                self._say(200, HTML, {"Content-Type": "text/html"})
            case Fault.DATABASE:
                headers, words = self.proxy.trouble()
                self._say(500, words, {"Content-Type": "application/json", **headers})
            case Fault.TRUNCATE:
                status, headers, words = self._carry_out(body)
                self._head(status, headers, str(len(words) + 7))
                self.wfile.write(words[: blow.dice.randrange(len(words) + 1)])
                raise _Dropped
            case Fault.DRIP:
                status, headers, words = self._carry_out(body)
                self._head(status, headers, str(len(words)))
                for piece in _slices(words, 40):
                    self.wfile.write(piece)
                    time.sleep(blow.seconds / 40)

    def _refuse(self) -> None:
        headers = {"ExceptionClass": "CannotAuthenticate", "ExceptionMessage": "Cannot authenticate"}
        self._say(401, json.dumps(headers).encode(), headers)

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            whole = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                whole += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return whole
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    @contextlib.contextmanager
    def _asked(self, body: bytes) -> Iterator[http.client.HTTPResponse]:
        service = http.client.HTTPConnection(*self.proxy.target, timeout=PATIENCE)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in {*_OF_THE_HOP, "content-length"}}
            if body or self.command in {"POST", "PUT"}:
                headers["Content-Length"] = str(len(body))
            service.request(self.command, self.path, body or None, headers)
            yield service.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise _Dropped from error
        finally:
            service.close()

    def _carry_out(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        with self._asked(body) as answer:
            return answer.status, answer.getheaders(), answer.read()

    def _pass(self, body: bytes) -> None:
        """Pass a request on, and its answer back as it comes."""
        with self._asked(body) as answer:
            bare = self.command == "HEAD" or answer.status in {204, 304}
            length = answer.getheader("Content-Length")
            self._head(answer.status, answer.getheaders(), length or ("0" if bare else None))
            while not bare and (piece := answer.read1(PIECE)):
                self.wfile.write(piece if length else b"%x\r\n%s\r\n" % (len(piece), piece))
            if not bare and not length:
                self.wfile.write(b"0\r\n\r\n")

    def _head(self, status: int, headers: Sequence[tuple[str, str]], length: str | None) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in {*_OF_THE_HOP, "content-length"}:
                self.send_header(name, value)
        self.send_header(*("Content-Length", length) if length else ("Transfer-Encoding", "chunked"))
        self.end_headers()

    def _say(self, status: int, words: bytes, headers: Mapping[str, str]) -> None:
        self._head(status, list(headers.items()), str(len(words)))
        if self.command != "HEAD":
            self.wfile.write(words)

    def _drop(self, *, reset: bool) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.wfile.flush()
            if reset:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                self.connection.shutdown(socket.SHUT_RDWR)
            self.connection.close()


def _slices(words: bytes, count: int) -> Iterator[bytes]:
    """Cut into at most `count` pieces, of a byte each when it is that short."""
    step = max(1, -(-len(words) // count))
    for start in range(0, len(words), step):
        yield words[start : start + step]
