"""Why the gate ends or refuses an exchange."""

from __future__ import annotations


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
