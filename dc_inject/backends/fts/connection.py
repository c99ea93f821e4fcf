"""The connection to FTS: one client for each thread, who we are there, and the only way by which calls leave."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from requests.utils import DEFAULT_CA_BUNDLE_PATH

from dc_inject.backends import answers
from dc_inject.backends.fts.errors import CREDENTIALS, INSTALL, NO_VO, FtsCallRecord, translate
from dc_inject.backends.service_connection import ServiceConnection, unusable
from dc_inject.credentials import Credentials
from dc_inject.menu import addresses
from dc_inject.menu.values import WrongError
from dc_inject.model.errors import NeedsOperator, Permanent, ServiceError, UsageError
from dc_inject.model.events import Observer
from dc_inject.model.ports import Clock, Identity
from dc_inject.model.redaction import scrub
from dc_inject.storage.http_transport import trust
from dc_inject.storage.types import Access, credential

# What may be asked before it is known whom FTS takes us for: nothing of it is about jobs.
_BEFORE = frozenset({"version", "whoami", "needs_delegation", "delegate", "delegated_until"})
_REMEMBERED = 16  # credentials that FTS has recognised
Make = Callable[[str, Access, FtsCallRecord, float, str], Any]
_ANONYMOUS = "anon"  # what FTS calls a user without credentials

understood = partial(answers.understood, "FTS", "an FTS server of version 3.12")


class Me(NamedTuple):
    """Whom FTS takes us for: the name of the certificate or token, and the first of its VOs (empty: none)."""

    account: str
    vo: str

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Me:
        """Read what FTS reports about us."""
        return cls(scrub(str(answer.get("user_dn") or "")), scrub(str((answer.get("vos") or [""])[0])))

    def __str__(self) -> str:
        return f"{self.account} of {self.vo or 'no VO'}"


def real_client(endpoint: str, access: Access, record: FtsCallRecord, timeout: float, authorities: str) -> Any:  # noqa: ANN401  fts3 has no types
    """Make a client for this thread (`timeout` in seconds); raises NeedsOperator without the `fts3` package."""
    try:
        # Only here: the package is an extra, and compiled where it is installed.
        from dc_inject.backends.fts.client import Client  # noqa: PLC0415  as above
    except ImportError as error:
        raise NeedsOperator(f"FTS's client cannot be imported ({error})", INSTALL) from error
    return Client(endpoint, access, record, timeout, authorities)


class Connection(ServiceConnection[FtsCallRecord]):
    """Calls of FTS's client by name, from any thread; every error that leaves is a ServiceError.

    Ids of jobs are made of the VO, and jobs belong to a user. So whoever FTS took us for first, we stay: when
    credentials have changed it is asked again, and nothing is done as anybody else.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        timeout: float,
        clock: Clock,
        observer: Observer,
        credentials: Credentials,
        make: Make = real_client,
    ) -> None:
        """Take seconds that a call may wait for an answer; `make` makes the client of a thread."""
        super().__init__("fts", FtsCallRecord, clock, observer)
        self.endpoint = endpoint
        self.credentials = credentials
        self._timeout = timeout
        self._make = make
        self._delegating = threading.Lock()
        self._me: Me | None = None
        self._recognised: deque[Hashable] = deque(maxlen=_REMEMBERED)  # stamps of credentials that are ours

    def call(self, method: str, *args: object, writes: bool = False, **kwargs: object) -> Any:  # noqa: ANN401  JSON
        """Call a method of the client, which may write (`writes`). After a 419, delegate and call once more."""
        try:
            return self._call(method, *args, writes=writes, **kwargs)
        except NeedsOperator:
            if self.status != 419:
                raise
        with self._delegating:
            self._call("delegate", force=True)
        return self._call(method, *args, writes=writes, **kwargs)

    def delegate(self) -> None:
        """Make sure that FTS has a proxy of ours that lasts, if it needs one."""
        with self._delegating:
            self._call("delegate")

    @property
    def status(self) -> int:
        """The HTTP status of the last answer to this thread; 0 if there was none."""
        return self._my_record().status

    @property
    def unknown(self) -> bool:
        """Whether the last answer to this thread was FTS's own word that it has no such thing."""
        return self._my_record().unknown

    def vo(self) -> str:
        """Return the virtual organisation that FTS takes us for."""
        me = self._me
        if me is None:
            me = Me.of(self.call("whoami"))
            if not me.vo:
                raise NeedsOperator("FTS knows no virtual organisation of ours", NO_VO, hold=CREDENTIALS)
            self.recognise(me)
        return me.vo

    def recognise(self, me: Me) -> bool:
        """Take our identity as FTS has just reported it; false if it is another one than at first."""
        with self._lock:
            self._me = self._me or me
            if me == self._me:
                self._recognised.append(self._local.stamp)
            return me == self._me

    def _call(self, method: str, *args: object, writes: bool = False, **kwargs: object) -> Any:  # noqa: ANN401  JSON
        with self._translated(method, writes=writes) as client:
            return getattr(client, method)(*args, **kwargs)

    def _client(self) -> Any:  # noqa: ANN401  fts3 has no types
        """Return this thread's client; made when there is none, or when credentials have changed."""
        access, local = self.credentials.access("fts"), self._local
        self._my_record().credential = credential(access)
        stamp: Hashable = (self._generation, access.stamp)
        if getattr(local, "stamp", None) != stamp:
            local.stamp = None
            # FTS's client would look for authorities only where the grid has them.
            path = trust(os.environ)
            authorities = path if isinstance(path, str) else str(DEFAULT_CA_BUNDLE_PATH)
            local.client = self._make(self.endpoint, access, self._my_record(), self._timeout, authorities)
            local.stamp = stamp
        return local.client

    def _prove(self, client: Any) -> None:  # noqa: ANN401  fts3 has no types
        """Check who we are if this client's credentials are new; raises NeedsOperator if we are another user."""
        with self._lock:
            was = None if self._local.stamp in self._recognised else self._me
        if was is None:
            return
        now = Me.of(client.whoami())
        if not self.recognise(now):
            message = self.credentials.scrub(f"FTS takes us for {now}; until now we were {was}")
            raise NeedsOperator(
                message, "go back to the credentials of before, or begin another campaign", hold=CREDENTIALS
            )

    @contextmanager
    def _translated(self, method: str, *, writes: bool) -> Iterator[Any]:
        making = True
        with self._recorded(method) as record:
            try:
                client = self._client()
                if method not in _BEFORE:
                    self._prove(client)
                making = False
                record.begin()
                yield client
            except Exception as error:  # noqa: BLE001  all of it is translated, here and nowhere else
                if record.status == 401:
                    self._local.stamp = None  # what it was made with is refused: the next call begins again
                translated = translate(
                    error, record, self.credentials.scrub, writes=writes and not making, making=making
                )
                raise translated from (None if translated is error else error)

    def _result(self, error: ServiceError) -> str:
        """Return the word for what became of a call; that a job is unknown or known already is no trouble."""
        return "ok" if isinstance(error, Permanent) and self.status in {404, 409} else super()._result(error)


def checked(endpoint: str) -> str:
    """Return an endpoint in its canonical form; credentials would be readable on a plain connection."""
    try:
        return addresses.endpoint(endpoint)
    except WrongError as error:
        raise UsageError(f"the address of FTS cannot be used: {error.message}", error.hint) from None


@dataclass(frozen=True, slots=True)
class Delegation:
    """Whether FTS acts with a proxy of ours (with a token it does not), and until when it has one that is good."""

    needed: bool
    until: datetime | None = None


def delegation(connection: Connection) -> Delegation:
    """Return how it stands with the proxy that FTS acts with; nothing is delegated."""
    needed: bool = connection.call("needs_delegation")
    return Delegation(needed, connection.call("delegated_until") if needed else None)


def check(connection: Connection, service: str, until: datetime | None) -> Identity:
    """Return who we are; raises NeedsOperator with address and hint when nothing will work.

    With a certificate, FTS is given a proxy that lasts for some hours. No right to configure FTS makes an
    administrator of us: it only shows its limits.
    """
    connection.renew()
    try:
        version = connection.call("version")
        answer: Mapping[str, Any] = connection.call("whoami")
        me = _known(answer)
        connection.recognise(me)  # the caller decides whether we may go on as another user
        connection.delegate()
    except ServiceError as error:
        hint = "check FTS's endpoint, and that the service runs"
        raise unusable(error, f"FTS at {connection.endpoint}", hint) from error.__cause__
    return Identity(
        service=service,
        address=connection.endpoint,
        version=version,
        vo=me.vo,
        account=me.account,
        admin=False,
        may_end=True,
        credentials_until=until,
    )


def _known(answer: Mapping[str, Any]) -> Me:
    """Return our name and VO as FTS has them; raises NeedsOperator if it does not know us or grants us nothing."""
    me = Me.of(answer)
    if me.account in {"", _ANONYMOUS} or not me.vo:
        message = "it does not know us, or no virtual organisation of ours"
        raise NeedsOperator(message, NO_VO, hold=CREDENTIALS)
    level = answer.get("level")
    if isinstance(level, Mapping) and level and not {"transfer", "*"} & set(level):
        raise NeedsOperator(
            f"{me.account} may not submit transfers", "ask FTS's operators for the right", hold=CREDENTIALS
        )
    return me
