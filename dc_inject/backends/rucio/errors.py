"""Translate what Rucio, its client and the network raise into our errors, without secrets.

`model/faults.py` judges them; here are the facts it needs, and the text of the message. What is wrong with the
item is TryOtherItem or Permanent, with the link (quota, space, a site's brake, the policy) LinkRefused, with the
service (its database, the network) Temporary, and what only a person can repair is NeedsOperator.
"""

from __future__ import annotations

import configparser
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rucio.common import exception as rucio

from dc_inject.model import faults
from dc_inject.model.causes import WORDS, Cause, Peer
from dc_inject.model.errors import LinkRefused, Permanent, ServiceError, Temporary, blame, make_service_error
from dc_inject.model.faults import Facts
from dc_inject.model.redaction import remember, scrub
from dc_inject.system.transport_errors import TransportError

log = logging.getLogger(__name__)

WHERE = WORDS[Peer.RUCIO]["places"]

_OF_THE_ITEM = (rucio.DataIdentifierNotFound, rucio.UnsupportedDIDType, rucio.DIDError)
_STATUS = re.compile(r"http status code: (\d{3})")


@dataclass(slots=True)
class RucioCallRecord:
    """What the network did during one call: the client's own retries hide it, and it decides what is in doubt.

    `unanswered`: an attempt to change something may have been carried out without an answer to us. `credential` is
    what the client shows: a password, a proxy, a certificate or a token.
    """

    unanswered: bool = False
    status: int = 0  # of the last response; 0 when there was none
    trouble: Exception | None = None  # the last trouble of the network
    requests: int = 0  # since the beginning
    credential: str = ""
    secrets: set[str] = field(default_factory=set)

    def met(self, secret: str) -> None:
        """Know a secret, so that no echo of it is shown."""
        self.secrets.add(secret)
        remember(secret)

    def begin(self) -> None:
        """Forget the last call."""
        self.unanswered, self.status, self.trouble = False, 0, None

    def failed(self, error: Exception, *, writes: bool) -> None:
        """Note that an attempt got no answer."""
        self.status, self.trouble = 0, error
        self.unanswered |= writes and faults.judge(Facts.of(error, Peer.RUCIO)).in_doubt


def translate(
    error: Exception, record: RucioCallRecord, *, writes: bool = False, making: bool = False
) -> ServiceError:
    """Return the error that decides what follows; `making` is for what comes up while a client is made.

    If an attempt of a call that `writes` was left without an answer, that is what counts, whatever later
    attempts were reported: the call may have been carried out.
    """
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, rucio.ServerConnectionException) and record.trouble is not None:
        error = record.trouble  # the client hides it
    answer = scrub(_text(error), record.secrets)
    by_rucio = isinstance(error, rucio.RucioException)
    fault = faults.judge(
        Facts.of(
            error,
            Peer.RUCIO,
            status=_status(error, record),
            text=answer if by_rucio else None,
            credential=record.credential,
            answered=by_rucio,
            making=making,
        )
    )
    if fault.cause is Cause.UNEXPECTED:
        log.error("unexpected %s while Rucio was called", type(error).__name__, exc_info=error)
    message = answer or fault.message(scrub(faults.detail(error), record.secrets))
    if writes and record.unanswered and not isinstance(error, rucio.DuplicateRule):
        return blame(Temporary(message, fault.hint, lost=True), fault)
    return make_service_error(fault, message, lost=writes and fault.in_doubt and not by_rucio)


@contextmanager
def tolerated(*causes: type[Exception]) -> Iterator[None]:
    """Go on after the block where Rucio answered one of these errors; others leave it."""
    try:
        yield
    except ServiceError as error:
        if not isinstance(error.__cause__, causes):
            raise


def translate_refusal(error: ServiceError) -> ServiceError:
    """Return the error of a call that makes rules: a refusal for another reason than its datasets is the link's.

    The hold of the link is `quarantined` where the reason has no hold of its own. An error without a class of its
    own, as of a request that is too large, is the dataset's.
    """
    cause = error.__cause__
    if not isinstance(error, Permanent) or isinstance(cause, _OF_THE_ITEM) or type(cause) is rucio.RucioException:
        return error
    refused = blame(LinkRefused(error.message, error.hint), error.fault)
    refused.__cause__ = cause
    return refused


def _status(error: Exception, record: RucioCallRecord) -> int:
    """Return the HTTP status where it shows more than the class of the error."""
    if type(error) is rucio.RucioException:  # what stands before Rucio has answered
        status = _STATUS.search(str(error))
        return int(status[1]) if status else 0
    return record.status if type(error).__name__ in faults.LOGIN else 0


def _text(error: Exception) -> str:
    """Return the text of Rucio or of the parser of its configuration; empty for other errors.

    A line of the configuration is never shown, since it may be a password.
    """
    match error:
        case configparser.MissingSectionHeaderError():
            begins = "the file begins with a byte order mark (BOM): save it as UTF-8 without one"
            odd = begins if error.line.startswith("\ufeff") else "this stands before the first [section]"
            return f"{error.source}, line {error.lineno}: {odd}"
        case configparser.ParsingError():
            lines = ", ".join(str(number) for number, _ in error.errors[:5])
            return f"{error.source}, line {lines}: this is neither `option = value` nor a [section]"
        case configparser.DuplicateSectionError():
            return f"{error.source}, line {error.lineno}: section [{error.section}] appears twice"
        case configparser.DuplicateOptionError():
            return f"{error.source}, line {error.lineno}: {error.option} appears twice in [{error.section}]"
        case configparser.InterpolationError():
            return f"option {error.option} in section {error.section} has a % that must be written %%"
        case configparser.Error():
            return f"rucio.cfg: {error}"
        case UnicodeDecodeError():
            return f"rucio.cfg, or a file that it names, is not UTF-8 (byte {error.start})"
        case rucio.RucioException():
            return _answer(error)
        case OSError() | TransportError():
            return ""
    return f"{type(error).__name__}: {error}"


def _answer(error: rucio.RucioException) -> str:
    details = " ".join(str(part) for part in error.args if part) or str(error)
    name = type(error).__name__
    if details.lstrip().startswith("<"):
        details = "the answer is a page, which Rucio itself does not send"
    return details if name == "RucioException" or details.startswith(name) else f"{name}: {details}"
