"""Why the gate ends or refuses an exchange, and the TLS alert behind a connection that broke.

With TLS 1.3 a server refuses a certificate after the handshake. By then the request is on its way, and a server
that closes the connection with the request unread resets it: the alert is lost. So a new connection is made on
which nothing is sent, and the alert is read from it.
"""

from __future__ import annotations

import contextlib
import ssl
from typing import Any

from dc_inject.model.faults import chain

WAIT = 1.0  # seconds for an alert
_READS = frozenset({"GET", "HEAD", "OPTIONS", "PROPFIND"})
_BROKE = frozenset({"ConnectionResetError", "BrokenPipeError", "RemoteDisconnected", "SSLEOFError"})


class TransportError(Exception):
    """An exchange that was ended by us; `model/faults.py` knows each class by its name."""

    def __init__(self, host: str, what: str) -> None:
        """Take the host, and what it did."""
        super().__init__(f"{host}: {what}")
        self.what = what


class TooLong(TransportError):
    """The exchange took longer than any may."""


class TooLarge(TransportError):
    """More bytes came than any answer may have."""


class Compressed(TransportError):
    """The answer is compressed, which was not asked for."""


class Redirected(TransportError):
    """The service sends us elsewhere; password, token and certificate would go along."""


class Unverified(TransportError):
    """TLS would not have been verified."""


class ProxyUnusable(TransportError):
    """The proxy that the environment names is of a kind that cannot be used."""


class PlainProxy(TransportError):
    """A password or token would pass a proxy in clear."""


def may_hide_alert(error: Exception, method: str | None, url: str | None) -> bool:
    """Return whether an alert may be behind an error; a request that changes something stays in doubt."""
    tls = (url or "").startswith("https:") and method in _READS
    return tls and not _BROKE.isdisjoint(type(one).__name__ for one in chain(error))


def alert(pool: Any) -> ssl.SSLError | None:  # noqa: ANN401  a pool of urllib3, known to the gate alone
    """Return the alert with which a server ends a new connection of a pool; None where it sends none."""
    connection = pool._new_conn()  # noqa: SLF001  there is no other way to a connection without a request
    try:
        connection.connect()
        connection.sock.settimeout(WAIT)
        connection.sock.recv(1)
    except ssl.SSLError as error:
        error.__context__ = None  # what was met before is not behind it
        return error if "ALERT" in (error.reason or "") else None
    except Exception:  # noqa: BLE001  whatever else is wrong, the error that was met before counts
        return None
    finally:
        with contextlib.suppress(OSError):
            connection.close()
    return None
