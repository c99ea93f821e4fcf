"""Translate what FTS, its client and the network raise into our errors, without secrets.

The status of the last answer decides, and where there was none, what became of the connection.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import requests
from urllib3.exceptions import MaxRetryError, NewConnectionError

from dc_inject.model.errors import LinkRefused, NeedsOperator, Permanent, ServiceError, Temporary
from dc_inject.system.transport import TransportError

log = logging.getLogger(__name__)

CREDENTIALS = "credentials"
INSTALL = (
    "install the extra `fts`, for which M2Crypto is compiled: apt install gcc libssl-dev python3-dev; "
    "pip install 'setuptools>=77' 'setuptools-scm>=8.1' 'swig>=4.2'; "
    "then, in the clone, pip install --no-build-isolation '.[fts]'"
)
NO_VO = "give a proxy with a VO (voms-proxy-init), or a token"
_RENEW = "renew the proxy or token (`dc-inject ping` tells which are used)"
_ENDPOINT = "check FTS's endpoint: it is like https://fts3-pilot.cern.ch:8446"
_TRUST = "set X509_CERT_DIR, or REQUESTS_CA_BUNDLE, to the certificates of the authorities that you trust"
_BANNED = re.compile(r"(?<!\S)(?=(\S+?://))(\1\S++) is banned")
_OF_TOKENS = re.compile(
    r"access[-_]token|(?:source|destination)_tokens|token does not|token for |unknown issuer|unmanaged tokens",
    re.IGNORECASE,
)
_SAID = 4000  # characters of an error's body that are looked at


class Banned(LinkRefused):
    """FTS takes nothing for a storage; whether it is the source or the destination, its caller knows."""

    def __init__(self, message: str, storage: str, *, hold: str = "destination-unavailable") -> None:
        """Take the message, and the storage as FTS names it."""
        super().__init__(message, "FTS's operators have banned it: ask them why", hold=hold)
        self.storage = storage


class Slow(Temporary):
    """There was no answer in time, or too large a one: a smaller question may get one."""


@dataclass(slots=True)
class FtsCallRecord:
    """The answer to the last request of a thread, of which FTS's client reports too little."""

    status: int = 0  # 0: no answer
    reason: str = ""
    unknown: bool = False  # FTS itself says that it has no such thing; a 404 may come from whoever is before it
    requests: int = 0  # since the beginning

    def begin(self) -> None:
        """Forget the last answer."""
        self.status, self.reason, self.unknown = 0, "", False

    def answered(self, status: int, body: str) -> None:
        """Keep the status, and what an error says."""
        self.status = status
        self.reason = _message(body[:_SAID]) if status >= 400 else ""
        self.unknown = status == 404 and _is_of_fts(body[:_SAID])


def translate(
    error: Exception,
    record: FtsCallRecord,
    scrub: Callable[[str], str],
    *,
    writes: bool = False,
    making: bool = False,
) -> ServiceError:
    """Return the error that says what to do next; `making` is for what comes up while a client is made.

    `scrub` takes secrets out of what others wrote.
    """
    if isinstance(error, ServiceError):
        return error
    ours = next((cause for cause in _chain(error) if isinstance(cause, TransportError)), None)
    if ours is not None and ours.repaired_by_a_person:
        return ours.meant()
    if ours is not None:
        return Slow(str(ours), lost=writes)  # a smaller question may have a smaller answer
    network = next((cause for cause in _chain(error) if isinstance(cause, requests.RequestException)), None)
    if network is not None:
        return _of_network(network, scrub, writes=writes)
    if record.status >= 400:
        return _of_status(record.status, scrub(record.reason), writes=writes)
    text = scrub(str(error)) or type(error).__name__
    files = next((cause for cause in _chain(error) if isinstance(cause, OSError)), None)
    if files is not None and ("CA certificate bundle" in text or "CA certificate bundle" in str(files)):
        return NeedsOperator(f"the authorities' certificates cannot be read ({scrub(str(files))})", _TRUST)
    if record.status:
        message = f"FTS's answer cannot be understood ({type(error).__name__}: {text})"
        return (
            NeedsOperator(message, _ENDPOINT, passing=True)
            if making
            else Temporary(message, _ENDPOINT, lost=writes)
        )
    if making or files is not None:
        message = f"the proxy or certificate cannot be used ({text})"
        return NeedsOperator(
            message, "check X509_USER_PROXY, or make a new proxy (voms-proxy-init)", hold=CREDENTIALS
        )
    log.error("unexpected %s while FTS was called", type(error).__name__, exc_info=error)
    return Temporary(f"unexpected {type(error).__name__}: {text}")


def _of_status(status: int, reason: str, *, writes: bool) -> ServiceError:
    text = f"FTS answered {status}" + (f" ({reason})" if reason else "")
    banned = _BANNED.search(reason) if status == 403 else None
    if banned:
        return Banned(text, banned[2])
    if status == 419:
        return NeedsOperator(f"{text}: FTS has no delegated proxy of ours that lasts", _RENEW, hold=CREDENTIALS)
    if status in {401, 402, 403} or (status == 400 and _OF_TOKENS.search(reason)):
        return NeedsOperator(text, _RENEW, hold=CREDENTIALS)
    if status in {413, 414}:
        return Permanent(f"{text}: the job is too large for it", "lower `jobs: {files: N}` in the menu")
    if status == 503:
        return Temporary(f"{text}: it asks to try again later")
    if status == 429:
        return Temporary(text, "FTS asks for fewer calls: lower rules_per_hour")
    if status >= 500 or status == 408:
        return Temporary(text, lost=writes)
    if status == 404:
        return Permanent(text, _ENDPOINT)
    return Permanent(text, "FTS does not take it as it is: the reason names what is wrong")


def _of_network(error: requests.RequestException, scrub: Callable[[str], str], *, writes: bool) -> ServiceError:
    words = scrub(_words(error))
    if isinstance(error, requests.exceptions.SSLError):
        if "CERTIFICATE_VERIFY_FAILED" in words or "certificate verify failed" in words:
            return NeedsOperator(f"FTS's certificate cannot be trusted ({words})", _TRUST)
        if "alert" in words.lower():
            return NeedsOperator(f"FTS did not accept our certificate ({words})", _RENEW, hold=CREDENTIALS)
        # While it is made, or while the answer is read, as when a server dies: the libraries do not say.
        return Temporary(f"no TLS connection to FTS ({words})", lost=writes)
    if isinstance(error, requests.ConnectTimeout) or _never_sent(error):
        return Temporary(f"cannot connect to FTS ({words})", _ENDPOINT)
    if isinstance(error, requests.Timeout):
        return Slow("no answer of FTS in time", lost=writes)
    if isinstance(error, requests.ConnectionError | requests.exceptions.ChunkedEncodingError):
        return Temporary(f"the connection to FTS broke ({words})", lost=writes)
    return Temporary(f"no answer of FTS ({words})", _ENDPOINT, lost=writes)


def _never_sent(error: requests.RequestException) -> bool:
    reason = error.args[0] if error.args else None
    return isinstance(reason, MaxRetryError) and isinstance(reason.reason, NewConnectionError)


def _words(error: BaseException) -> str:
    """Return the system's own words: those of the libraries hold whole URLs."""
    reason = error.args[0] if error.args else None
    inner = getattr(reason, "reason", None) or reason
    for cause in _chain(inner if isinstance(inner, BaseException) else error):
        if isinstance(cause, OSError) and not isinstance(cause, requests.RequestException):
            return cause.strerror or str(cause)
    return type(inner if isinstance(inner, BaseException) else error).__name__


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Give an error and those behind it: FTS's client wraps what it catches, and loses the class."""
    seen: BaseException | None = error
    for _ in range(10):
        if seen is None:
            return
        yield seen
        seen = seen.__cause__ or seen.__context__


def _is_of_fts(body: str) -> bool:
    """Return whether a 404 has one of the two forms that FTS writes: of a request, or of one job."""
    try:
        answer = json.loads(body)
    except ValueError:
        return False
    if not isinstance(answer, dict):
        return False
    status = (
        answer.get("status") if "message" in answer else answer.get("http_status") if "job_id" in answer else None
    )
    return isinstance(status, str) and status.startswith("404")


def _message(body: str) -> str:
    """Return what an error's body says, if it is FTS that says it and no page of a proxy before it."""
    try:
        answer = json.loads(body)
    except ValueError:
        return "" if body.lstrip().startswith("<") else body.strip()
    if isinstance(answer, dict):
        return str(answer.get("message") or answer.get("http_message") or answer.get("status") or "")
    return ""
