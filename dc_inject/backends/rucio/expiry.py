"""Until when credentials are good, as far as a certificate or a token tells by itself."""

from __future__ import annotations

import base64
import binascii
import json
import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dc_inject.system import disk

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[^-]*+-----END CERTIFICATE-----")
LARGEST = 1_000_000  # bytes of a file that are read
_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17


def credentials_until(client: Any) -> datetime | None:  # noqa: ANN401  rucio has no types
    """Return when what the client authenticates with expires; None when it does not say.

    A password does not expire by itself, and tokens that Rucio gives for it are renewed without anybody.
    """
    if client.auth_type == "oidc":
        return token_until(client.auth_token)
    names = {"x509_proxy": "client_proxy", "x509": "client_cert"}
    place = client.creds.get(names.get(client.auth_type, ""))
    return certificates_until(Path(place)) if place else None


def token_until(token: str) -> datetime | None:
    """Return the `exp` of a JWT; nothing is verified, which is the server's business."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return datetime.fromtimestamp(claims["exp"], UTC)
    except (IndexError, KeyError, TypeError, ValueError, OverflowError, OSError, RecursionError, binascii.Error):
        return None


def certificates_until(path: Path) -> datetime | None:
    """Return when the first of the certificates in a PEM file expires; a proxy is no better than its chain."""
    try:
        text = disk.read(path, LARGEST).decode(errors="replace")
        return min(_not_after(ssl.PEM_cert_to_DER_cert(pem)) for pem in _CERTIFICATE.findall(text))
    except (OSError, ValueError, IndexError):
        return None


def _not_after(certificate: bytes) -> datetime:
    """Read the end of validity of a certificate (RFC 5280, 4.1): the second time in its fifth field."""
    (_, whole), *_ = _elements(certificate)
    (_, signed), *_ = _elements(whole)
    fields = [element for element in _elements(signed) if element[0] != _VERSION]
    _serial, _algorithm, _issuer, (tag, validity) = fields[:4]
    if tag != _SEQUENCE:
        raise ValueError("no certificate")
    _not_before, (kind, moment) = _elements(validity)
    form = "%y%m%d%H%M%SZ" if kind == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(moment.decode("ascii"), form).replace(tzinfo=UTC)


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Give tag and content of the DER elements that stand side by side."""
    at = 0
    while at < len(der):
        tag, size, at = der[at], der[at + 1], at + 2
        if size & 0x80:
            digits = size & 0x7F
            size, at = int.from_bytes(der[at : at + digits]), at + digits
        yield tag, der[at : at + size]
        at += size
