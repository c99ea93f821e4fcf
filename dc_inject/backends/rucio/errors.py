"""Translate what Rucio, its client and the network raise into our errors, without secrets.

One principle decides between the classes: what is wrong with the item is TryOtherItem or Permanent, with the link
(quota, space, a site's brake, the policy) LinkRefused, with the service (its database, the network) Temporary, and
what only a person can repair is NeedsOperator.
"""

from __future__ import annotations

import configparser
import logging
import re
from dataclasses import dataclass, field

import requests
from rucio.common import exception as rucio

from dc_inject.model.errors import LinkRefused, NeedsOperator, Permanent, ServiceError, Temporary, TryOtherItem
from dc_inject.model.redaction import remember, scrub
from dc_inject.system.transport import TransportError

log = logging.getLogger(__name__)

WHERE = "set RUCIO_CONFIG, or put rucio.cfg into $RUCIO_HOME/etc, $VIRTUAL_ENV/etc or /opt/rucio/etc"

_PERSON = (
    rucio.CannotAuthenticate,
    rucio.NoAuthInformation,
    rucio.IdentityError,
    rucio.IdentityNotFound,
    rucio.MissingClientParameter,
    rucio.MissingModuleException,
    rucio.ErrorLoadingCredentials,
)
_CONFIGURATION = (
    rucio.ConfigNotFound,
    rucio.ConfigLoadingError,
    rucio.ConfigurationError,
    rucio.ClientProtocolNotFound,
    rucio.ClientProtocolNotSupported,
    configparser.Error,
    requests.exceptions.InvalidURL,
    requests.exceptions.InvalidSchema,
    requests.exceptions.MissingSchema,
)
_LATER = (
    rucio.DatabaseException,
    rucio.ServiceUnavailable,
    rucio.ResourceTemporaryUnavailable,
    rucio.ServerConnectionException,
    requests.RequestException,
)
_ANOTHER = (
    rucio.DuplicateRule,
    rucio.ReplicationRuleCreationTemporaryFailed,  # replicas at the destination are still being deleted
    rucio.MissingSourceReplica,
)
_OPERATORS = "there is an answer, but Rucio does not work: ask its operators"
_HINTS: dict[type[Exception], str] = {
    rucio.DatabaseException: "Rucio answers, but its database does not: ask its operators",
    rucio.InsufficientAccountLimit: "ask for more quota at this destination, or let rules end sooner",
    rucio.RSEOverQuota: "the destination is over its own limit: wait, or take another one",
    rucio.RSEWriteBlocked: "the site does not take data now: wait, or exclude it",
    rucio.AccessDenied: "the experiment's policy does not let this account do that",
    rucio.InvalidObject: "one of activity, priority or comment is not allowed there; the menu sets the activity",
    rucio.InvalidSourceReplicaExpression: "the source is no RSE (any more)",
    rucio.InvalidRSEExpression: "an RSE is gone, or a global limit of the account names RSEs that do not exist",
}
# What Rucio refuses for the two RSEs of a link, whatever the dataset, with the hold of the link.
_OF_THE_LINK: dict[type[Exception], str] = {
    rucio.InsufficientAccountLimit: "quota",
    rucio.InsufficientTargetRSEs: "destination-unavailable",
    rucio.RSEOverQuota: "destination-full",
    rucio.RSEWriteBlocked: "destination-unavailable",
}
_OF_THE_ITEM = (rucio.DataIdentifierNotFound, rucio.UnsupportedDIDType, rucio.DIDError)
_STATUS = re.compile(r"http status code: (\d{3})")
# Locks, deadlocks and lost connections, as some calls pass them on. Rucio says "badly formatted" of any statement
# with an id that failed; the ids that we send are its own.
_DATABASE = re.compile(
    r"\([\w.]+\.(OperationalError|DatabaseError|DeadlockDetected)\) "
    r"|A StatementError occurred while|Badly formatted (rule id|input) \("
)


@dataclass(slots=True)
class RucioCallRecord:
    """What the network did during one call: the client's own retries hide it, and it decides what is in doubt.

    `unanswered`: an attempt to change something may have been carried out without an answer to us.
    """

    unanswered: bool = False
    status: int = 0  # of the last response; 0 when there was none
    trouble: str = ""  # the last trouble of the network, in words
    requests: int = 0  # since the beginning
    secrets: set[str] = field(default_factory=set)

    def met(self, secret: str) -> None:
        """Know a secret, so that no echo of it is shown."""
        self.secrets.add(secret)
        remember(secret)

    def begin(self) -> None:
        """Forget the last call."""
        self.unanswered, self.status, self.trouble = False, 0, ""


def translate(
    error: Exception, record: RucioCallRecord, *, writes: bool = False, making: bool = False
) -> ServiceError:
    """Return the error that says what to do next; `making` is for what comes up while a client is made.

    If an attempt of a call that `writes` was left without an answer, that is what counts, whatever later
    attempts were reported: the call may have been carried out.
    """
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, TransportError):
        meant = error.meant()
    else:
        meant = _meant(error, record, writes=writes, making=making)
    if writes and record.unanswered and not isinstance(error, rucio.DuplicateRule):
        return Temporary(meant.message, meant.hint, lost=True)
    return meant


def _meant(error: Exception, record: RucioCallRecord, *, writes: bool, making: bool) -> ServiceError:
    text = scrub(_text(error, record), record.secrets)
    if isinstance(error, _PERSON) and record.status >= 500:
        return Temporary(text, _OPERATORS)  # the server is broken, not the credentials
    if isinstance(error, _PERSON):
        return NeedsOperator(text, _credentials_hint(error), hold="credentials")
    if isinstance(error, _CONFIGURATION):
        return NeedsOperator(text, WHERE)
    if isinstance(error, _ANOTHER):
        return TryOtherItem(text)
    if isinstance(error, _LATER):
        return Temporary(text, _hint(error))
    if type(error) in _OF_THE_LINK:
        return LinkRefused(text, _hint(error), hold=_OF_THE_LINK[type(error)])
    if type(error) is rucio.RucioException and (status := _STATUS.search(str(error))):
        return _by_status(int(status[1]), text)
    if type(error) is rucio.RucioException and _DATABASE.search(text):
        return Temporary(f"Rucio's database is busy: {text}", _HINTS[rucio.DatabaseException])
    if isinstance(error, rucio.RucioException):
        return Permanent(text, _hint(error))
    if making or isinstance(error, OSError):
        return NeedsOperator(
            text, "check rucio.cfg, and that certificate, proxy or token exist", hold="credentials"
        )
    if isinstance(error, AttributeError | LookupError | TypeError | ValueError):
        return Temporary(f"Rucio's answer cannot be understood ({text})", lost=writes)
    log.error("unexpected %s while Rucio was called", type(error).__name__, exc_info=error)
    return Temporary(f"unexpected {text}", lost=writes)


def of_a_new_rule(error: ServiceError) -> ServiceError:
    """Return the error of a call that makes rules: a refusal for another reason than its datasets is the link's.

    The hold of the link is `quarantined` where the reason has no hold of its own. An error without a class of its
    own, as of a request that is too large, is the dataset's.
    """
    cause = error.__cause__
    if not isinstance(error, Permanent) or isinstance(cause, _OF_THE_ITEM) or type(cause) is rucio.RucioException:
        return error
    refused = LinkRefused(error.message, error.hint)
    refused.__cause__ = cause
    return refused


def _by_status(status: int, text: str) -> ServiceError:
    """Judge an answer that did not come from Rucio itself, but from what stands before it."""
    if status in {401, 403}:
        return NeedsOperator(text, "the credentials may have expired", hold="credentials")
    if status == 413:
        return Permanent(text, "the request is too large for the server")
    if status == 429:
        return Temporary(text, "the server asks for fewer calls: lower rules_per_hour")
    return Temporary(text, _OPERATORS if status >= 500 else None)


def _text(error: Exception, record: RucioCallRecord) -> str:
    if isinstance(error, configparser.ParsingError):
        return f"{error.source} cannot be parsed"  # its own words show the line, which may be a password
    if isinstance(error, configparser.InterpolationError):
        return f"option {error.option} in section {error.section} has a % that must be written %%"
    if isinstance(error, rucio.ServerConnectionException):
        return f"cannot connect to the Rucio server: {record.trouble}" if record.trouble else "cannot connect"
    if isinstance(error, requests.Timeout):
        return f"no answer in time ({error})"
    if isinstance(error, rucio.RucioException):
        details = " ".join(str(part) for part in error.args if part) or str(error)
        name = type(error).__name__
        return details if name == "RucioException" or details.startswith(name) else f"{name}: {details}"
    return f"{type(error).__name__}: {error}"


def _hint(error: Exception) -> str | None:
    return next((hint for kind, hint in _HINTS.items() if isinstance(error, kind)), None)


def _credentials_hint(error: Exception) -> str:
    text = str(error).lower()
    if "proxy" in text or "x509" in text or "x.509" in text:
        return "make a new proxy (voms-proxy-init), or check client_cert and client_key in rucio.cfg"
    if "token" in text or "oidc" in text:
        return "renew the token (BEARER_TOKEN_FILE, or `rucio whoami` once by hand)"
    return "check auth_type, username, password and account in rucio.cfg and RUCIO_*"
