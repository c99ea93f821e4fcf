"""Translate what FTS, its client and the network raise into our errors, without secrets.

`model/faults.py` judges them; here are the facts it needs, and the text of the message.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass

from dc_inject.model import faults
from dc_inject.model.causes import Cause, Peer
from dc_inject.model.errors import LinkRefused, ServiceError, Temporary, blame, make_service_error
from dc_inject.model.faults import Facts

log = logging.getLogger(__name__)

CREDENTIALS = "credentials"
INSTALL = (
    "install the extra `fts`, for which M2Crypto is compiled: apt install gcc libssl-dev python3-dev; "
    "pip install 'setuptools>=77' 'setuptools-scm>=8.1' 'swig>=4.2'; "
    "then, in the clone, pip install --no-build-isolation '.[fts]'"
)
NO_VO = "give a proxy with a VO (voms-proxy-init), or a token"
_BANNED = re.compile(r"(?<!\S)(?=(\S+?://))(\1\S++) is banned")
_MOST = 4000  # characters of an error's body that are looked at


class Banned(LinkRefused):
    """FTS takes nothing for a storage; whether it is the source or the destination, its caller knows."""

    def __init__(
        self, message: str, hint: str | None, storage: str, *, hold: str = "destination-unavailable"
    ) -> None:
        """Take the message, the hint, and the storage as FTS names it."""
        super().__init__(message, hint, hold=hold)
        self.storage = storage


class Slow(Temporary):
    """There was no answer in time, or too large a one: a smaller question may get one."""


@dataclass(slots=True)
class FtsCallRecord:
    """The answer to the last request of a thread, of which FTS's client reports too little."""

    status: int = 0  # 0: no answer
    reason: str = ""
    page: bool = False  # the body is a page, which FTS itself does not send
    unknown: bool = False  # FTS itself answered that it has no such thing; a 404 may come from a proxy before it
    requests: int = 0  # since the beginning
    credential: str = ""  # what is shown: a token, a proxy, a certificate or nothing

    def begin(self) -> None:
        """Forget the last answer."""
        self.status, self.reason, self.page, self.unknown = 0, "", False, False

    def answered(self, status: int, body: str) -> None:
        """Keep the status, and the text of an error."""
        self.status = status
        self.reason = _message(body[:_MOST]) if status >= 400 else ""
        self.page = body[:_MOST].lstrip().startswith("<")
        self.unknown = status == 404 and _is_of_fts(body[:_MOST])


def translate(
    error: Exception,
    record: FtsCallRecord,
    scrub: Callable[[str], str],
    *,
    writes: bool = False,
    making: bool = False,
) -> ServiceError:
    """Return the error that decides what follows; `making` is for what comes up while a client is made.

    `scrub` takes secrets out of what others wrote.
    """
    if isinstance(error, ServiceError):
        return error
    credential, reason = record.credential, scrub(record.reason)
    if refused := record.status >= 400:
        facts = Facts(peer=Peer.FTS, status=record.status, text=reason, page=record.page, credential=credential)
    else:
        facts = Facts.of(error, Peer.FTS, status=record.status, credential=credential, making=making)
    fault = faults.judge(facts)
    if fault.cause is Cause.UNEXPECTED:
        log.error("unexpected %s while FTS was called", type(error).__name__, exc_info=error)
    lost = writes and fault.in_doubt
    message = f"FTS answered {record.status}" + (f" ({reason})" if reason else "") if refused else ""
    message = message or fault.message(scrub(faults.detail(error)))
    if fault.cause in {Cause.NO_ANSWER, Cause.TOO_LARGE}:
        return blame(Slow(message, fault.hint, lost=lost), fault)
    if fault.cause is Cause.BANNED and (banned := _BANNED.search(reason)):
        return blame(Banned(message, fault.hint, banned[2]), fault)
    return make_service_error(fault, message, lost=lost)


def _is_of_fts(body: str) -> bool:
    """Return whether a 404 has one of the two forms that FTS writes: of a request, or of one job."""
    answer = _read(body)
    if not isinstance(answer, dict):
        return False
    status = (
        answer.get("status") if "message" in answer else answer.get("http_status") if "job_id" in answer else None
    )
    return isinstance(status, str) and status.startswith("404")


def _message(body: str) -> str:
    """Return the text of an error's body, if it is from FTS and no page of a proxy before it."""
    answer = _read(body)
    if isinstance(answer, dict):
        return str(answer.get("message") or answer.get("http_message") or answer.get("status") or "")
    return "" if answer is not None or body.lstrip().startswith("<") else body.strip()


def _read(body: str) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
