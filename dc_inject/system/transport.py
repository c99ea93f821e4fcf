"""The one way by which HTTP leaves: every exchange has a total time, a bound on its bytes, and verified TLS.

The time-out of a socket bounds a pause only: an answer that drips a byte a second never runs into it. So each
read and each send gets what is left of the exchange's time, and every byte that comes is counted, headers and
framing included. Compressed answers are not asked for and not unpacked, so what is counted is what is kept.
Of a host's large answers only one is received at a time, however many threads ask, so memory stays bounded.
Back ends and storages use `Session`; nothing else here makes a connection.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPResponse
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.exceptions import SSLError
from requests.utils import get_environ_proxies, select_proxy
from urllib3 import connection as urllib3_connection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from dc_inject.model import units, urls
from dc_inject.model.faults import PROXY_NOTE
from dc_inject.model.ports import Endpoint
from dc_inject.system import clock as system_clock
from dc_inject.system import transport_errors as errors

__all__ = ["Adapter", "Exchange", "ExchangeLimits", "Session", "connects"]

LARGEST = 64_000_000  # bytes of an answer that is kept in memory
LARGE = 1_000_000  # bytes from which on an answer that is kept waits for its host's turn
LARGEST_LISTING = 4_000_000_000  # bytes of one that is read line by line
LONGEST_LISTING = 3600.0  # seconds that this may take
LONGEST_LINE = 16_000_000  # bytes
TOTAL = 10  # a call may take so many times as long as a pause within it
CONNECTING = 2.0  # seconds that an attempt to connect may take which sends nothing
_PIECE = 65_536
_LINE = 65_536  # bytes of a line of the protocol itself, such as the length of a chunk
_SECRET = re.compile(r"^(authorization|cookie)$|token|passw|secret", re.IGNORECASE)  # names of headers
_BODY_IS_READ = frozenset({"GET", "POST", "PROPFIND"})

_turns: dict[str, threading.Lock] = {}  # of hosts, for their large answers
_here = threading.local()  # `exchange`: the one that this thread is at; `listing`: whether it may be a long one


@dataclass(frozen=True, slots=True)
class ExchangeLimits:
    """How long one exchange may take from its first byte to its last, and how many bytes may come."""

    seconds: float
    bytes: int = LARGEST
    clock: Callable[[], float] = time.monotonic


def _give_back() -> None:
    """Let the C library give memory back that is free: what was received before, by whichever thread.

    A heap of the GNU C library shrinks by itself from its end only, and each thread has one. So an error about a
    large answer, made last and kept, would hold the 64 MB before it, once for each thread.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library has no such heaps
        ctypes.CDLL(None).malloc_trim(0)


class Exchange:
    """One request with its answer, or with those of the hosts that it was redirected to."""

    def __init__(self, host: str, limits: ExchangeLimits) -> None:
        """Begin now; `host` is for messages."""
        self.host = host
        self.limits = limits
        self.gated = False  # whether an answer came by a connection of ours
        self._began = limits.clock()
        self._bytes = 0
        self._turn: threading.Lock | None = None

    def left(self) -> float:
        """Return the seconds that are left; raises TooLong when there are none."""
        left = self._began + self.limits.seconds - self.limits.clock()
        if left <= 0:
            raise errors.TooLong(self.host, f"the answer did not end within {self.limits.seconds:.4g} s")
        return left

    def took(self, count: int) -> None:
        """Count bytes that came; raises TooLarge when they are too many.

        The rest of a large answer waits until no other of this host is being received; raises TooLong where that
        takes all of its time.
        """
        self._bytes += count
        if self._bytes > self.limits.bytes:
            raise errors.TooLarge(self.host, f"the answer is larger than {units.format_size(self.limits.bytes)}")
        if self._bytes > LARGE and self.limits.bytes <= LARGEST and self._turn is None:
            turn = _turns.setdefault(self.host, threading.Lock())
            if not turn.acquire(timeout=self.left()):
                self.left()
            self._turn = turn
            _give_back()

    def received(self) -> None:
        """Give the turn on: an answer is at its end, or it is read no further."""
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.release()

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Let what this thread sends inside the block belong to this exchange."""
        before = getattr(_here, "exchange", None)
        _here.exchange = self
        try:
            yield
        finally:
            _here.exchange = before


@contextmanager
def listing() -> Iterator[None]:
    """Let answers to what is sent inside the block be long, as long as they are read line by line."""
    before = getattr(_here, "listing", False)
    _here.listing = True
    try:
        yield
    finally:
        _here.listing = before


def lines(response: requests.Response) -> Iterator[bytes]:
    """Give the lines of an answer; raises TooLarge for one that is too long."""
    pieces: list[bytes] = []
    size = 0
    for chunk in response.iter_content(_PIECE):
        first, *others = chunk.split(b"\n")
        pieces.append(first)
        size += len(first)
        for other in others:
            yield b"".join(pieces)
            pieces, size = [other], len(other)
        if size > LONGEST_LINE:
            host = urlsplit(response.url).hostname or ""
            raise errors.TooLarge(host, f"a line of the answer is longer than {units.format_size(LONGEST_LINE)}")
    if size:
        yield b"".join(pieces)


def connects(endpoint: Endpoint) -> Endpoint | None:
    """Make a connection and close it at once; return the address that accepted it, None where none did."""
    try:
        with socket.create_connection(endpoint, CONNECTING) as connection:
            return connection.getpeername()[:2]  # type: ignore[no-any-return]  # as the address family has it
    except (OSError, UnicodeError):
        return None


class Session(requests.Session):
    """A session through the gate, which keeps no cookies, reads no ~/.netrc and stays on a server.

    With `environment` it takes proxies and REQUESTS_CA_BUNDLE from there, as users of `requests` expect. Where
    `redirects` are `returned`, they come back as answers; else they are errors.
    """

    def __init__(self, adapter: Adapter, *, environment: bool = True, redirects_returned: bool = False) -> None:
        super().__init__()
        self.trust_env = False  # else ~/.netrc would replace a token, or be sent to whoever is asked
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self.headers["Accept-Encoding"] = "identity"
        self.max_redirects = 5
        self.adapters.clear()
        self.mount("https://", adapter)
        self.mount("http://", adapter)
        self._environment = environment
        self._redirects_returned = redirects_returned

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return where to go on, on the same server only and only to read: Rucio answers `whoami` so."""
        if not resp.is_redirect or self._redirects_returned:
            return None
        location = super().get_redirect_target(resp) or ""
        here = resp.url or ""
        elsewhere = _origin(here, location)
        same = elsewhere == _origin(here)
        if same and resp.request.method in {"GET", "HEAD"}:
            return location
        resp.close()
        host = urlsplit(here).hostname or ""
        to = f" to {elsewhere[1]}" if elsewhere and elsewhere[1] and not same else ""
        raise errors.Redirected(host, f"it answered {resp.status_code}, a redirect{to}, which is not followed")

    def merge_environment_settings(  # type: ignore[override]  # requests has a type of its own for it
        self,
        url: str | None,
        proxies: dict[str, str] | None,
        stream: bool,
        verify: str | bool | None,
        cert: object,
    ) -> dict[str, Any]:
        """Add what the environment has of proxies and authorities, and nothing else of it."""
        if self._environment:
            here = urls.is_loopback(urlsplit(str(url)).hostname or "")  # no proxy leads back to this machine
            proxies = {**({} if here else get_environ_proxies(str(url))), **(proxies or {})}
            if verify is None or verify is True:
                bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
                verify = bundle or True
        return {
            "proxies": proxies or {},
            "stream": stream,
            "verify": True if verify is None else verify,
            "cert": cert or self.cert,
        }


class Adapter(HTTPAdapter):
    """Sends requests by connections that keep to the limits of their exchange."""

    def __init__(self, limits: ExchangeLimits, **pools: Any) -> None:
        """Take what bounds an exchange, and the sizes of pools."""
        self._limits = limits
        super().__init__(max_retries=0, **pools)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make pools of our connections."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **proxy_kwargs: Any) -> Any:  # noqa: ANN401  urllib3's
        """Return a manager of connections by a proxy, which are ours as well."""
        manager = super().proxy_manager_for(proxy, **proxy_kwargs)
        manager.pool_classes_by_scheme = _POOLS
        return manager

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,  # noqa: ANN401  as requests has it
        verify: Any = True,  # noqa: ANN401  the same
        cert: Any = None,  # noqa: ANN401  the same
        proxies: Any = None,  # noqa: ANN401  the same
    ) -> requests.Response:
        """Send a request; the answer is a TransportError where it broke a bound."""
        url = urlsplit(request.url or "")
        host = url.hostname or ""
        if url.scheme == "https" and not verify:
            raise errors.Unverified(host, "TLS would not be verified, so nothing was sent")
        proxy = _checked_proxy(request, host, select_proxy(request.url or "", proxies))
        exchange = getattr(_here, "exchange", None) or Exchange(host, self._limits)
        try:
            with exchange.under_way():
                response = super().send(request, stream, timeout, verify, cert, proxies)
        except Exception as error:
            if proxy:
                error.add_note(f"{PROXY_NOTE}{proxy}")
            elif errors.may_hide_alert(error, request.method, request.url):
                with exchange.under_way():
                    refusal = errors.alert(self.get_connection_with_tls_context(request, verify, cert=cert))
                if refusal is not None:
                    raise SSLError(refusal) from error
            raise
        if not exchange.gated:
            response.close()
            raise AssertionError("an answer came by a connection without bounds")
        system_clock.note_date(request.url or "", response.headers)
        response.encoding = "utf-8"  # not that of the answer: some encodings take forever
        _refuse_compression(response, host)
        if stream and getattr(_here, "listing", False) and is_lines(response):
            seconds = max(exchange.limits.seconds, LONGEST_LISTING)
            exchange.limits = replace(exchange.limits, seconds=seconds, bytes=LARGEST_LISTING)
        return response


def _checked_proxy(request: requests.PreparedRequest, host: str, proxy: str | None) -> str:
    """Return the proxy (host:port) that a request goes through, empty without one; raises where it may not.

    Over TLS a proxy learns the host alone; over plain http it reads everything.
    """
    try:
        place = urls.proxy(proxy) if proxy else ""
    except ValueError as error:
        raise errors.ProxyUnusable(host, f"the proxy of the environment cannot be used: {error}") from None
    if place and (request.url or "").startswith("http:") and any(map(_SECRET.search, request.headers)):
        raise errors.PlainProxy(host, f"nothing was sent: the proxy {place} would read your password or token")
    return place


def is_lines(response: requests.Response) -> bool:
    """Return whether an answer is one JSON value a line, as Rucio's streams are."""
    kind = response.headers.get("Content-Type", "")
    return response.ok and kind == "application/x-json-stream"


def _refuse_compression(response: requests.Response, host: str) -> None:
    """See to it that nothing unpacks the answer; raises Compressed where it would be read."""
    kind = response.headers.get("Content-Encoding", "identity")
    if kind.lower() == "identity":
        return
    del response.raw.headers["Content-Encoding"]  # urllib3 decides by it
    if response.ok and response.request.method in _BODY_IS_READ:
        response.close()
        raise errors.Compressed(host, "the answer is compressed, though that was not asked for")


class _Counted(io.RawIOBase):
    """The bytes of one answer, as they come from its socket."""

    def __init__(self, raw: io.RawIOBase, connection: socket.socket, exchange: Exchange) -> None:
        self._raw = raw
        self._socket = connection
        self._exchange = exchange
        self._pause = connection.gettimeout()

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._raw.fileno()

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401  a buffer has no type before 3.12
        left = self._exchange.left()
        self._socket.settimeout(left if self._pause is None else min(left, self._pause))
        try:
            count = self._raw.readinto(buffer)
        except TimeoutError:
            self._exchange.left()  # if it was the end of the exchange, that is the error to raise
            raise
        self._exchange.took(count or 0)
        return count

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
            self._exchange.received()
        super().close()


class _Lines(io.BufferedReader):
    """A reader whose lines are bounded also where http.client and urllib3 do not bound them."""

    def __init__(self, counted: _Counted, host: str) -> None:
        super().__init__(counted, _PIECE)
        self._host = host

    def readline(self, size: int | None = -1) -> bytes:
        if size is not None and size >= 0:
            return super().readline(size)
        line = super().readline(_LINE)
        if len(line) == _LINE:
            raise errors.TooLarge(self._host, "a line of its protocol is too long")
        return line


class _Response(HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        exchange = _current()
        exchange.gated = True
        self.fp: Any = _Lines(_Counted(self.fp.detach(), sock, exchange), exchange.host)


class _Gated:
    """What both kinds of connections have in common."""

    response_class: Any = _Response
    sock: socket.socket | None
    timeout: float | None

    def connect(self) -> None:
        left = _current().left()
        self.timeout = left if self.timeout is None else min(left, self.timeout)
        super().connect()  # type: ignore[misc]  # urllib3's
        _current().left()

    def send(self, data: Any) -> None:  # noqa: ANN401  as http.client has it
        """Send by pieces: each may take what is left."""
        for piece in _pieces(data) if isinstance(data, bytes) else [data]:
            left = _current().left()
            if self.sock is not None:
                pause = self.sock.gettimeout()
                self.sock.settimeout(left if pause is None else min(left, pause))
            try:
                super().send(piece)  # type: ignore[misc]  # urllib3's
            except TimeoutError:
                _current().left()
                raise


class HTTPConnection(_Gated, urllib3_connection.HTTPConnection):
    """A plain connection through the gate; urllib3's messages show the name of the class."""


class HTTPSConnection(_Gated, urllib3_connection.HTTPSConnection):
    """The same with TLS."""


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = HTTPConnection


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = HTTPSConnection


_POOLS = {"http": _HttpPool, "https": _HttpsPool}


def _current() -> Exchange:
    exchange: Exchange | None = getattr(_here, "exchange", None)
    assert exchange is not None, "a connection is used outside of an exchange"
    return exchange


def _pieces(data: bytes) -> Iterator[bytes]:
    return (data[start : start + _PIECE] for start in range(0, len(data), _PIECE))


def _origin(url: str, location: str = "") -> tuple[str, str, int] | None:
    """Return scheme, host and port of a URL, or of where it sends us; None for one that cannot be used."""
    try:
        parts = urlsplit(urljoin(url, location))
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme, 0)
    except ValueError:
        return None
    return None if parts.username is not None else (parts.scheme, parts.hostname or "", port)
