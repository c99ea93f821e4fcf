"""Rucio's own client, made quiet, with a timeout of ours, and with notes of what the network did."""

from __future__ import annotations

import logging
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from rucio.client import Client
from rucio.common.exception import CannotAuthenticate
from urllib3.exceptions import MaxRetryError, NewConnectionError

from dc_inject import __version__
from dc_inject.backends.rucio.errors import Notes

# The client writes request headers to its log, and colours to stderr. This logger stands beside the tree of
# loggers, so that no setting of anybody can make it speak.
_MUTE = logging.Logger("rucio-client", logging.CRITICAL + 1)


class QuietClient(Client):  # type: ignore[misc]  # rucio has no types
    """A Rucio client for one thread, from rucio.cfg and RUCIO_* as the ecosystem keeps them."""

    def __init__(self, notes: Notes, timeout: float) -> None:
        """Authenticate; `timeout` is seconds that a connection, or a pause within an answer, may take."""
        self._notes = notes
        super().__init__(timeout=timeout, logger=_MUTE, user_agent=f"dc_inject-{__version__}")
        notes.met(self.auth_token)

    @property
    def session(self) -> requests.Session:
        """The session in use; the client takes a new one whenever its token was refused."""
        return self._session

    @session.setter
    def session(self, session: requests.Session) -> None:
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Watch(self._notes))
        self._session = session

    def _get_creds(self, creds: dict[str, Any] | None) -> dict[str, Any]:
        found: dict[str, Any] = super()._get_creds(creds)
        self._notes.met(str(found.get("password") or ""))
        return found

    def _BaseClient__get_token_oidc(self) -> bool:  # noqa: N802  overrides a private method of the client
        """Take a newer token from where tokens are kept; the client would ask a person and wait for an answer."""
        refused = self.auth_token
        if self._BaseClient__read_token() and self.auth_token != refused:
            return True
        raise CannotAuthenticate("no valid OIDC token was found")


class _Watch(HTTPAdapter):
    """Sends requests, and notes what became of each."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        super().__init__()

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        notes, writes = self._notes, request.method != "GET"
        notes.requests += 1
        try:
            response = super().send(request, *args, **kwargs)
        except requests.RequestException as error:
            notes.status, notes.trouble = 0, _words(error)
            notes.unanswered |= writes and not _never_sent(error)
            raise
        notes.status = response.status_code
        if writes and response.status_code >= 500 and "ExceptionClass" not in response.headers:
            notes.unanswered = True  # not Rucio itself speaks, so nobody knows what Rucio did
        return response


def _reason(error: requests.RequestException) -> BaseException:
    inner = error.args[0] if error.args else None
    if isinstance(inner, MaxRetryError) and inner.reason is not None:
        return inner.reason
    return inner if isinstance(inner, BaseException) else error


def _never_sent(error: requests.RequestException) -> bool:
    """Whether the connection was never made, so that nothing can have been carried out."""
    made_none = (requests.ConnectTimeout, requests.exceptions.SSLError, requests.exceptions.ProxyError)
    return isinstance(error, made_none) or isinstance(_reason(error), NewConnectionError)


def _words(error: requests.RequestException) -> str:
    text = str(_reason(error))
    return text.partition("object at 0x")[2].partition(": ")[2] or text
