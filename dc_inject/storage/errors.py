"""Translate what a storage or the network answers into our errors, without secrets.

A failure of one file is Permanent; one that may pass is Temporary; one that only new credentials cure is
NeedsOperator, and AccessDenied where this storage does not accept them. No request here is ever in doubt: each can
be repeated.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection

import requests
from urllib3.exceptions import TimeoutError as Urllib3TimeoutError

from dc_inject.model.errors import NeedsOperator, Permanent, ServiceError, Temporary
from dc_inject.model.redaction import scrub
from dc_inject.storage.types import AccessDenied, NotFound

CREDENTIALS = "credentials"
_RENEW = "renew your proxy or token (`dc-inject ping` shows which is used), or ask the site for the right"
_WRITE = (
    "ask the site for the right to write there (token: storage.create for that path; proxy: your VO and role), "
    "or renew proxy or token"
)
_TRUST = "set X509_CERT_DIR, or REQUESTS_CA_BUNDLE, to the certificates of the authorities that you trust"
_LATER = frozenset({408, 421, 423, 425, 429})
_FOR_GOOD = frozenset({501, 505, 507, 508})
_HINTS = {
    405: "the storage does not allow this method there",
    409: "a folder above it may be missing",
    423: "it is locked, perhaps because it is still being written",
    429: "the storage asks for fewer requests",
    507: "the storage is full, or your quota is used up",
}
_OURS = ("pem lib", "key_values_mismatch", "key values mismatch", "no start line", "ee key too small")


def of_status(method: str, url: str, status: int, reason: str = "", secrets: Collection[str] = ()) -> ServiceError:
    """Judge an answer that is not the one hoped for; `said` is what came with it."""
    words = scrub(reason, secrets)
    text = f"{method} {url}: the storage answered {status}" + (f" ({words})" if words else "")
    if status in {404, 410}:
        return NotFound(f"{method} {url}: there is no such file or folder")
    if status == 409 and method in {"MKCOL", "PUT"}:
        return NotFound(f"{text}, as a folder above it is missing")
    if status == 403 and method == "DELETE":
        return Permanent(text, "you may not delete there, or not this file: ask the site, or delete it by hand")
    if status in {401, 403} and method in {"PUT", "MKCOL"}:
        return AccessDenied(text, _WRITE, hold=CREDENTIALS)
    if status in {401, 403, 407}:
        return AccessDenied(text, _RENEW, hold=CREDENTIALS)
    if status in _LATER or (status >= 500 and status not in _FOR_GOOD):
        return Temporary(text, _HINTS.get(status))
    return Permanent(text, _HINTS.get(status))


def of_failure(method: str, url: str, error: Exception, secrets: Collection[str] = ()) -> ServiceError:
    """Judge what `requests` raised; its own words are used sparingly, as they hold whole URLs."""
    request = f"{method} {url}"
    if isinstance(error, requests.Timeout | Urllib3TimeoutError):
        return Temporary(f"{request}: no answer in time")
    if isinstance(error, requests.exceptions.SSLError) or _inner(error, ssl.SSLError):
        return _of_tls(request, error, secrets)
    if isinstance(error, requests.exceptions.InvalidURL | requests.exceptions.InvalidHeader):
        return Permanent(f"{request}: {type(error).__name__}")
    if isinstance(error, OSError) and not isinstance(error, requests.RequestException):
        return _of_files(request, error, secrets)
    cause = _inner(error, OSError)
    words = scrub(cause.strerror or str(cause), secrets) if isinstance(cause, OSError) else type(error).__name__
    return Temporary(f"{request}: no connection, or the connection broke ({words})")


def _of_tls(request: str, error: Exception, secrets: Collection[str]) -> ServiceError:
    cause = _inner(error, ssl.SSLError) or error
    words = scrub(str(cause), secrets)
    if isinstance(cause, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in words:
        reason = scrub(getattr(cause, "verify_message", "") or words, secrets)
        return Temporary(f"{request}: the storage's certificate cannot be trusted ({reason})", _TRUST)
    if "alert" in words.lower():
        return AccessDenied(f"{request}: your certificate was not accepted ({words})", _RENEW, hold=CREDENTIALS)
    if any(sign in words.lower() for sign in _OURS):
        return NeedsOperator(f"{request}: your certificate cannot be used ({words})", _RENEW, hold=CREDENTIALS)
    return Temporary(
        f"{request}: no TLS connection ({words})", "if this persists, the storage may not accept your certificate"
    )


def _of_files(request: str, error: OSError, secrets: Collection[str]) -> ServiceError:
    words = scrub(str(error), secrets)
    if "CA certificate bundle" in words:
        return NeedsOperator(f"{request}: {words}", _TRUST)
    return NeedsOperator(
        f"{request}: {words}", "the proxy or certificate cannot be read: check path and rights", hold=CREDENTIALS
    )


def _inner(error: BaseException, kind: type[OSError]) -> OSError | None:
    """Return the system's own error behind those of the libraries, which are OSErrors too."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, kind) and not isinstance(seen, requests.RequestException):
            return seen
        held = next(
            (part for part in (getattr(seen, "reason", None), *seen.args) if isinstance(part, Exception)), None
        )
        seen = held or seen.__cause__ or seen.__context__
    return None
