"""The time that one request may take in all: where answers drip, no time-out of a socket ever runs out."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

_AGAIN = 0.1  # seconds: at the end there may be no connection yet, or already the next one

_here = threading.local()  # `bound`: that of the request which this thread is at


class Bound:
    """Cuts the connection of the request that is made inside of it when its time is `over`."""

    def __init__(self, seconds: float) -> None:
        """Take how long it may take."""
        self.over = False
        self._seconds = seconds
        self._socket: socket.socket | None = None
        self._left = False
        self._lock = threading.Lock()

    def __enter__(self) -> Bound:
        _here.bound = self
        self._arm(self._seconds)
        return self

    def __exit__(self, *_: object) -> None:
        _here.bound = None
        with self._lock:
            self._left = True
            self._timer.cancel()

    def take(self, connection: socket.socket | None) -> None:
        """Hear which connection the request is made by; its owner forgets it before the last byte has come."""
        self._socket = connection or self._socket

    def _arm(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def _cut(self) -> None:
        with self._lock:
            if self._left:
                return  # the connection is another request's by now
            self.over = True
            if self._socket is not None:
                with suppress(OSError):
                    # Not the method of a TLS socket: that would give what is left as if it had been decrypted.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            self._arm(_AGAIN)


class BoundAdapter(HTTPAdapter):
    """An adapter whose connections tell the `Bound` that they are used in."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make pools of such connections."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}


class _Http(HTTPConnection):
    def connect(self) -> None:
        super().connect()
        _tell(self)

    def request(self, *args: Any, **kwargs: Any) -> None:
        _tell(self)
        super().request(*args, **kwargs)


class _Https(HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        _tell(self)

    def request(self, *args: Any, **kwargs: Any) -> None:
        _tell(self)
        super().request(*args, **kwargs)


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _Http


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _Https


def _tell(connection: HTTPConnection) -> None:
    bound = getattr(_here, "bound", None)
    if bound is not None:
        bound.take(connection.sock)
