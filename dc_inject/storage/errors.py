"""Translate what a storage or the network answers into our errors, without secrets.

`model/faults.py` judges them. Here is what is special about storages: a failure of one file is Permanent; one that
may pass is Temporary; NeedsOperator is for what is wrong at this machine, the same for all storages, and
AccessDenied for credentials that this storage does not accept. No request here is ever in doubt: each can be
repeated.
"""

from __future__ import annotations

from collections.abc import Collection

from dc_inject.model import faults
from dc_inject.model.causes import Cause, Peer, Remedy
from dc_inject.model.errors import Permanent, ServiceError, Temporary, judged, make_service_error
from dc_inject.model.faults import Facts, Fault
from dc_inject.model.redaction import scrub
from dc_inject.storage.types import AccessDenied, NotFound
from dc_inject.system.transport_errors import TransportError

_WRITE = (
    "ask the site for the right to write there (token: storage.create for that path; proxy: your VO and role), "
    "or renew proxy or token"
)


def of_status(
    method: str, url: str, status: int, reason: str = "", secrets: Collection[str] = (), credential: str = ""
) -> ServiceError:
    """Return the error for an answer that is not the one hoped for; `reason` is what came with it."""
    words = scrub(reason, secrets)
    text = f"{method} {url}: the storage answered {status}" + (f" ({words})" if words else "")
    fault = faults.judge(Facts(peer=Peer.STORAGE, status=status, text=words, credential=credential))
    if fault.cause is Cause.NOT_FOUND:
        return judged(NotFound(f"{method} {url}: there is no such file or folder"), fault)
    if fault.cause is Cause.CONFLICT and method in {"MKCOL", "PUT"}:
        return judged(NotFound(f"{text}, as a folder above it is missing"), fault)
    if status == 403 and method == "DELETE":
        hint = "you may not delete there, or not this file: ask the site, or delete it by hand"
        return judged(Permanent(text, hint), fault)
    return _of_storage(fault, text, _WRITE if method in {"PUT", "MKCOL"} else None)


def of_failure(
    method: str, url: str, error: Exception, secrets: Collection[str] = (), credential: str = ""
) -> ServiceError:
    """Return the error for what `requests` raised; its own words are used sparingly, as they hold whole URLs."""
    fault = faults.judge(Facts.of(error, Peer.STORAGE, credential=credential))
    detail = error.what if isinstance(error, TransportError) else faults.detail(error)  # the URL has the host
    return _of_storage(fault, f"{method} {url}: {fault.message(scrub(detail, secrets))}")


def _of_storage(fault: Fault, text: str, write: str | None = None) -> ServiceError:
    """Return the error of one storage: others may work, unless it is this machine that fails."""
    if fault.cause.remedy is not Remedy.PERSON or fault.ours:
        return make_service_error(fault, text)
    if fault.cause.hold == "credentials":
        return judged(AccessDenied(text, write or fault.hint, hold=fault.cause.hold), fault)
    return judged(Temporary(text, fault.hint), fault)
