"""Credentials' expiry: until when a token or a certificate is good, and what follows from it.

This is the one reader of both. Nothing is verified, which is for the services: of a certificate only the validity
is read (RFC 5280, section 4.1), of a token only the claim `exp`, if it is a JWT. A PEM file is as good as the
first of its certificates to expire: a proxy ends with the chain behind it. What has no known end gives None,
and is used until a service refuses it.

Who asks, and what comes of it:

1. FTS and storages: `Credentials.access` (in `__init__.py`) decides. It reads the file again when it has changed,
   and raises NeedsOperator with the hold `credentials` for one that has expired or is not valid yet, or whose key
   is that of another certificate or too short: no call is made with it. FTS acts with a proxy that is delegated to
   it for 12 hours at most, and again below 6 hours (`backends/fts/client.py`).
2. Rucio: its client finds credentials by rucio.cfg. `credentials_until` in `backends/rucio/connection.py` asks
   here for the end of what the client uses. Before a proxy or certificate is shown, `check_files` looks at it as
   in 1; while a token from before is good, none is shown (`backends/rucio/client.py`).
3. The warning: both give their end to `Identity.credentials_until`. `_watch` in `engine/health_checks.py` logs it
   once, and keeps a signal in the ledger while it is soon; `_soon` decides what soon is. From then on the service
   is asked every few minutes whether the credentials have been renewed.
4. The hold: NeedsOperator from any call reaches `EngineContext.fail`, which marks the whole service as broken.
   `_held` in `engine/opening.py` gives its links the hold in the next cycle, `engine/closing.py` in the open one.
   A storage that refuses us while a source is listed is no such trouble: it shows nothing about FTS, so that only
   links from this source are held, by `source-unavailable` (`_of_source` in `backends/fts/inventory.py`).
5. The way back: `engine/health_checks.py` asks a broken service until it accepts us. What is in a file is renewed
   in its place, without a restart. A token in the variable BEARER_TOKEN cannot be renewed from outside: a process
   keeps the environment with which it began, so that `run` has to be started again.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----([^-]++)-----END CERTIFICATE-----")
_KEY = re.compile(rb"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----")
_ENCRYPTED = re.compile(rb"BEGIN ENCRYPTED PRIVATE KEY|Proc-Type:\s*4,\s*ENCRYPTED")

_SEQUENCE, _INTEGER, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0x02, 0xA0, 0x17, 0x18


@dataclass(frozen=True, slots=True)
class Pem:
    """What a PEM file holds: from when to when its certificates are valid, if any, and whether it has a key."""

    until: datetime | None  # the earliest end of all certificates: a chain is as good as its first to expire
    key: bool
    encrypted: bool
    since: datetime | None = None  # the latest begin of all certificates


def token_until(token: str) -> datetime | None:
    """Return when a JWT expires, by its own `exp`; None if it is no JWT or has none."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        payload = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return datetime.fromtimestamp(payload["exp"], UTC)
    except (ValueError, TypeError, KeyError, OverflowError, OSError, RecursionError):
        return None


def read_pem(content: bytes) -> Pem:
    """Read a PEM file; raises ValueError, without anything of the file in it, when a certificate is broken."""
    times = [_validity(match[1]) for match in _CERTIFICATE.finditer(content)]
    since, until = max((begin for begin, _ in times), default=None), min((end for _, end in times), default=None)
    encrypted = _ENCRYPTED.search(content) is not None
    return Pem(until, encrypted or _KEY.search(content) is not None, encrypted, since)


def _validity(text: bytes) -> tuple[datetime, datetime]:
    try:
        return validity(base64.b64decode(b"".join(text.split()), validate=True))
    except ValueError:
        raise ValueError("a certificate in it is broken") from None


def validity(der: bytes) -> tuple[datetime, datetime]:
    """Return from when to when a certificate is valid, in UTC; raises ValueError if it is no certificate."""
    certificate, _ = _take(der, _SEQUENCE)
    rest, _ = _take(certificate, _SEQUENCE)  # what is signed: version, serial, algorithm, issuer, validity, ...
    if rest[:1] == bytes([_VERSION]):
        _, rest = _take(rest, _VERSION)
    for tag in (_INTEGER, _SEQUENCE, _SEQUENCE):
        _, rest = _take(rest, tag)
    times, _ = _take(rest, _SEQUENCE)
    _, after = _take(times)
    return _time(times), _time(after)


def _take(der: bytes, tag: int | None = None) -> tuple[bytes, bytes]:
    """Return the content of the first element, which has to have this tag, and what follows it."""
    if len(der) < 2 or (tag is not None and der[0] != tag):
        raise ValueError("an element is not the expected one")
    length, start = der[1], 2
    if length & 0x80:  # long form: so many bytes hold the length
        start += length & 0x7F
        length = int.from_bytes(der[2:start], "big")
    if start > 6 or start + length > len(der):
        raise ValueError("an element is cut off")
    return der[start : start + length], der[start + length :]


def _time(der: bytes) -> datetime:
    tag, (content, _) = der[0] if der else None, _take(der)
    text = content.decode("ascii")
    if tag == _UTC_TIME:  # two digits of the year: 1950 to 2049
        text = ("19" if text[:2] >= "50" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("not a time")
    if not re.fullmatch(r"[0-9]{14}Z", text):
        raise ValueError("not a time in UTC")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
