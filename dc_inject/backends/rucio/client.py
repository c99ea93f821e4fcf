"""Rucio's own client, made quiet, with a timeout of ours, and with a record of what the network did.

Before it sends anything, the `check_` functions make sure whom it trusts, and where it stores its token.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import requests
from rucio.client import Client
from rucio.common.exception import CannotAuthenticate
from rucio.common.utils import parse_response

from dc_inject import __version__, credentials
from dc_inject.backends.rucio.errors import RucioCallRecord
from dc_inject.model.causes import Cause, Peer
from dc_inject.model.errors import NeedsOperator, ServiceError, make_service_error
from dc_inject.model.faults import Fault
from dc_inject.system import transport
from dc_inject.system.clock import SystemClock
from dc_inject.system.transport_errors import TransportError

# The client writes request headers to its log, and colours to stderr. This logger stands outside of the tree of
# loggers, so that no setting of anybody can make it speak.
_MUTE = logging.Logger("rucio-client", logging.CRITICAL + 1)


_SHOWN = {"userpass": "password", "x509": "certificate", "x509_proxy": "proxy", "oidc": "token"}
CREDENTIALS = "credentials"


class QuietClient(Client):  # type: ignore[misc]  # rucio has no types
    """A Rucio client for one thread, from rucio.cfg and RUCIO_* as the ecosystem keeps them."""

    def __init__(self, record: RucioCallRecord, timeout: float) -> None:
        """Authenticate; `timeout` is seconds that a connection, or a pause within an answer, may take."""
        self._record = record
        self._limits = transport.ExchangeLimits(timeout * transport.TOTAL)
        super().__init__(timeout=timeout, logger=_MUTE, user_agent=f"dc_inject-{__version__}")
        record.met(self.auth_token)

    @property
    def session(self) -> requests.Session:
        """The session in use; the client takes a new one whenever its token was refused."""
        return self._session

    @session.setter
    def session(self, _session: requests.Session) -> None:
        """Take one of ours instead of the client's own, whose calls would have no bounds."""
        old: requests.Session | None = getattr(self, "_session", None)
        if old is not None:
            old.close()
        self._session = transport.Session(_Watch(self._record, self._limits))

    def _get_auth_tokens(self) -> tuple[str | None, str, str, str]:
        """Set where the token is kept, once what the client has read so far is known to be safe."""
        places: tuple[str | None, str, str, str] = super()._get_auth_tokens()
        check_trust(self.ca_cert, self.host, self.auth_host)
        check_place(places)
        return places

    def _load_json_data(self, response: requests.Response) -> Iterator[Any]:
        """Read a stream by bounded lines; one answer of the client's own is read in pieces of 512 bytes.

        Raises ValueError for a page, as a proxy sends it, which the client would return as the first row.
        """
        if transport.is_lines(response):
            return (parse_response(line) for line in transport.lines(response) if line)
        if response.text.lstrip().startswith("<"):
            raise ValueError("the answer is a page, which Rucio itself does not send")
        documents: Iterator[Any] = super()._load_json_data(response)
        return documents

    def _get_creds(self, creds: dict[str, Any] | None) -> dict[str, Any]:
        self._record.credential = _SHOWN.get(self.auth_type, "")
        try:
            stored: dict[str, Any] = super()._get_creds(creds)
        except KeyError as error:
            if error.args != ("client_proxy",):
                raise
            raise no_proxy() from None
        self._record.met(str(stored.get("password") or ""))
        check_found(stored.get("client_proxy"))
        return stored

    def _BaseClient__read_token(self) -> bool:  # noqa: N802  overrides a private method of the client
        """Take no token that another user has put where the client looks by itself."""
        if self.auth_type == "oidc":
            check_discovery()
        return bool(super()._BaseClient__read_token())

    def _BaseClient__get_token_x509(self) -> bool:  # noqa: N802  overrides a private method of the client
        """Look at the files before they are shown: the server's answer shows less of what is wrong with them."""
        if self.auth_type == "x509_proxy":
            certificate = key = Path(self.creds["client_proxy"])
        else:
            certificate = Path(self.creds["client_cert"])
            key = Path(self.creds.get("client_key") or certificate)
        kind: credentials.CredentialKind = "proxy" if certificate == key else "certificate"
        credentials.check_files(certificate, key, kind, SystemClock().now())
        return bool(super()._BaseClient__get_token_x509())

    def _BaseClient__get_token_oidc(self) -> bool:  # noqa: N802  overrides a private method of the client
        """Take a newer token from where tokens are kept; the client would ask a person and wait for an answer."""
        refused = self.auth_token
        if self._BaseClient__read_token() and self.auth_token != refused:
            return True
        raise CannotAuthenticate("no valid OIDC token was found")


class _Watch(transport.Adapter):
    """Sends requests, and notes what became of each."""

    def __init__(self, record: RucioCallRecord, limits: transport.ExchangeLimits) -> None:
        self._record = record
        super().__init__(limits)

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        record, writes = self._record, request.method != "GET"
        record.requests += 1
        try:
            response = super().send(request, *args, **kwargs)
            if not kwargs.get("stream"):
                _ = response.content  # now: what goes wrong with it is noted as well
        except (requests.RequestException, TransportError) as error:
            record.failed(error, writes=writes)
            raise
        record.status = response.status_code
        if writes and response.status_code >= 500 and "ExceptionClass" not in response.headers:
            record.unanswered = True  # this is not Rucio's own answer, so it is unknown what Rucio did
        return response


def check_trust(authorities: object, *hosts: str) -> None:
    """Raise NeedsOperator where the client would not verify TLS: that is what it makes of an empty path."""
    if authorities or not any(host.startswith("https:") for host in hosts):
        return
    empty = "X509_CERT_DIR" if os.environ.get("X509_CERT_DIR") == "" else "ca_cert in rucio.cfg"
    raise NeedsOperator(
        f"{empty} is empty, which would turn the verification of TLS off",
        "set it to the folder or file of the authorities that you trust, or remove it",
    )


def check_place(places: Sequence[str | None]) -> None:
    """Raise NeedsOperator where others could give us their token, or read ours; `places` are the client's.

    They are the configured file, the file of the expiry, the file of the token, and their folder. The folder may
    belong to root, and be open to all as /tmp is: there only its owner can replace a file.
    """
    _, expiry, token, folder = (Path(place or ".") for place in places)
    me = os.geteuid()
    for place in _up_to_shared(folder):
        about = _about(place, follow=True)
        if about is not None and (about.st_uid not in {me, 0} or (about.st_mode & 0o022 and not _shared(about))):
            raise _needs_operator(place)
    for file in (token, expiry):
        about = _about(file, follow=False)
        if about is not None and (about.st_uid != me or not stat.S_ISREG(about.st_mode) or about.st_mode & 0o022):
            raise _needs_operator(file)


def check_found(proxy: object) -> None:
    """Raise NeedsOperator for a proxy in the place where anybody can put one, if it is another user's."""
    if proxy == f"/tmp/x509up_u{os.geteuid()}":  # noqa: S108  where the client looks
        _check_owner(Path(str(proxy)))


def check_discovery(shared: Path = Path("/tmp")) -> None:  # noqa: S108  where the client looks
    """Raise NeedsOperator where the client would find a bearer token of another user."""
    if not (os.environ.get("BEARER_TOKEN") or os.environ.get("BEARER_TOKEN_FILE")):
        _check_owner(shared / f"bt_u{os.geteuid()}")


def no_proxy() -> ServiceError:
    """Return what to do where rucio.cfg wants a proxy and there is none."""
    message = "auth_type is x509_proxy, and there is no proxy"
    hint = "create one (voms-proxy-init), or name it: X509_USER_PROXY, or client_x509_proxy in rucio.cfg"
    return make_service_error(Fault(Cause.NO_CREDENTIALS, Peer.RUCIO, credential="proxy"), message, hint=hint)


def _check_owner(path: Path) -> None:
    about = _about(path, follow=True)
    if about is not None and about.st_uid != os.geteuid():
        raise NeedsOperator(
            f"{path} belongs to another user and is not used",
            "name your own proxy or token (X509_USER_PROXY, BEARER_TOKEN_FILE)",
            hold=CREDENTIALS,
        )


def _up_to_shared(folder: Path) -> list[Path]:
    """Return a folder and those above it below one that all may write to, such as /tmp; just itself elsewhere."""
    path = Path(os.path.realpath(folder))
    for number, parent in enumerate(path.parents):
        about = _about(parent, follow=True)
        if about is not None and _shared(about):
            return [path, *path.parents[:number]]
    return [path]


def _shared(about: os.stat_result) -> bool:
    """Whether it is a folder of root where all may write, but may replace only their own files."""
    return about.st_uid == 0 and bool(about.st_mode & stat.S_ISVTX)


def _about(path: Path, *, follow: bool) -> os.stat_result | None:
    """Return what is known of a file; None where there is none that we may see, nor the client."""
    try:
        return path.stat(follow_symlinks=follow)
    except OSError:
        return None


def _needs_operator(path: Path) -> NeedsOperator:
    return NeedsOperator(
        f"Rucio's token is not taken from {path}: others own it or can write there",
        "remove it, or set auth_token_file_path in rucio.cfg to a file in a folder that only you can write to",
        hold=CREDENTIALS,
    )
