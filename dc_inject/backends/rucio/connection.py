"""The connection to Rucio: one client for each thread, who we are there, and the only way by which calls leave."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from rucio.common import constants
from rucio.common.config import clean_cached_config, config_get, get_config_dirs
from rucio.common.exception import AccessDenied, RuleNotFound

from dc_inject.backends import answers
from dc_inject.backends.answers import name
from dc_inject.backends.rucio.errors import WHERE, RucioCallRecord, translate
from dc_inject.backends.service_connection import Breaker, ServiceConnection, unusable
from dc_inject.credentials import LARGEST
from dc_inject.credentials.expiry import read_pem, token_until
from dc_inject.model import urls
from dc_inject.model.errors import NeedsOperator, Permanent, ServiceError, Temporary
from dc_inject.model.events import Observer
from dc_inject.model.ports import Clock, Identity
from dc_inject.model.redaction import scrub
from dc_inject.planning.reconcile import backoff
from dc_inject.system import disk, transport
from dc_inject.system.transport_errors import TooLarge

Row = Mapping[str, Any]
T = TypeVar("T")

MOST_ROWS = 300_000  # of an answer that is kept: in memory a row takes many times its bytes
ASK = 3  # times at most that a question is asked
PAUSE = timedelta(milliseconds=200)  # before it is asked again; then twice that
DOWN_AFTER = 6  # failures in a row, after which questions are asked once only
OLDEST, NEWEST = 38, 41  # tested; as in pyproject.toml
# Schemes that go together in a copy by third party. Releases before 41 have the table under another name.
SCHEME_MAP: Mapping[str, list[str]] = getattr(constants, "SCHEME_MAP", None) or constants.BASE_SCHEME_MAP
# The plugin with Rucio's own columns, to be named: clients before 41 ask for another one by default, which a
# server of release 41 answers with an error (SQLite), or with names alone (PostgreSQL).
METADATA_PLUGIN = "DID_COLUMN"
PROBES = 3  # of the right to end, since planning without it gives links much less
_FOR_GOOD = timedelta.max

understood = partial(answers.understood, "Rucio", "a Rucio server of version 32")


def configuration() -> Path | None:
    """Return the rucio.cfg that the client will read; None if there is none."""
    named = os.environ.get("RUCIO_CONFIG")
    places = [Path(named)] if named else [Path(folder) / "rucio.cfg" for folder in get_config_dirs()]
    return next((place for place in places if place.exists()), None)


def refuse_odd_configuration() -> None:
    """Raise NeedsOperator when rucio.cfg is no regular file: opening a pipe would block for ever."""
    file = configuration()
    if file is not None and not file.is_file():
        raise NeedsOperator(f"{file} cannot be read: it is not a regular file", WHERE)


def quiet_client(record: RucioCallRecord, timeout: float) -> Any:  # noqa: ANN401  rucio has no types
    """Make a client for this thread, with a `timeout` in seconds."""
    check_client()
    refuse_odd_configuration()
    # Only here: the import reads rucio.cfg, and what is wrong with it has to be reported like any other trouble.
    from dc_inject.backends.rucio.client import QuietClient  # noqa: PLC0415  as above

    return QuietClient(record, timeout)


def _configured(option: str) -> str:
    """Return an option of the client's configuration; empty where it has none, or cannot be read."""
    try:
        refuse_odd_configuration()
        return str(config_get("client", option))
    except Exception:  # noqa: BLE001  whatever is wrong with it is reported where it is used
        return ""


def _all(rows: Iterator[Any]) -> list[Any]:
    """Return all rows; raises TooLarge where they are too many."""
    result = list(islice(rows, MOST_ROWS + 1))
    if len(result) > MOST_ROWS:
        raise TooLarge("rucio", f"the answer has more than {MOST_ROWS:,} rows")
    return result


class Connection(ServiceConnection[RucioCallRecord]):
    """Calls of Rucio's client by name, from any thread; every error that leaves is a ServiceError.

    Its cause is the error that Rucio's client raised, for callers that need more than its class.
    """

    def __init__(
        self,
        *,
        timeout: float,
        clock: Clock,
        observer: Observer,
        make: Callable[[RucioCallRecord, float], Any] = quiet_client,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Take seconds that a call may wait for an answer; `make` makes the client of a thread."""
        super().__init__("rucio", RucioCallRecord, clock, observer)
        self._sleep = sleep
        self._breaker = Breaker[ServiceError](DOWN_AFTER)  # of all threads' calls
        self._timeout = timeout
        self._make = make
        self._kept: dict[tuple[str, ...], tuple[datetime, Any]] = {}

    def call(self, method: str, *args: object, writes: bool = False, **kwargs: object) -> Any:  # noqa: ANN401  JSON
        """Call a method of the client, and read its whole stream; `writes`: it changes something.

        A read that failed at once is repeated up to twice, since a step makes several, and one lost answer would
        cost all of it. Not when nothing has worked lately, or the last call took long: a service that is down gets
        one call at a time.
        """
        for more in reversed(range(1 if writes else ASK)):
            began = self._clock.now()
            try:
                with self._translated(method, writes=writes) as client:
                    answer = getattr(client, method)(*args, **kwargs)
                    result = _all(answer) if isinstance(answer, Iterator) else answer
            except Temporary as error:
                took_long = (self._clock.now() - began).total_seconds() > self._timeout / 2
                if error.outage:
                    self._breaker.note(error)
                if not more or took_long or self._breaker.open or not error.outage:
                    raise
                self._sleep(backoff(ASK - more, method, PAUSE).total_seconds())
            else:
                self._breaker.note(None)
                return result
        raise AssertionError("one of the tries returns or raises")

    def stream(self, method: str, *args: object, **kwargs: object) -> Iterator[Row]:
        """Call a method of the client and give its rows as they come; that may take an hour."""
        with self._translated(method, writes=False) as client:
            with transport.listing():
                rows = getattr(client, method)(*args, **kwargs)
            yield from rows

    def kept(self, name: tuple[str, ...], age: timedelta, read: Callable[[], T]) -> T:
        """Return what `read` gave at most `age` ago, or call it again."""
        with self._lock:
            cached = self._kept.get(name)
        now = self._clock.now()
        if cached is not None and now - cached[0] < age:
            return cached[1]  # type: ignore[no-any-return]  # the same name always has the same reader
        value = read()
        with self._lock:
            self._kept[name] = now, value
        return value

    def client(self) -> Any:  # noqa: ANN401  rucio has no types
        """Return this thread's client; made, and authenticated, when there is none."""
        local = self._local
        if getattr(local, "generation", None) != self._generation:
            generation = self._generation
            try:
                local.client = self._make(self._my_record(), self._timeout)
            except Exception as error:
                raise translate(error, self._my_record(), making=True) from error
            local.generation = generation
        return local.client

    def renew(self) -> None:
        """Forget clients, configuration and cached answers: a person may have repaired something."""
        clean_cached_config()
        super().renew()
        with self._lock:
            self._kept.clear()

    @property
    def address(self) -> str:
        """The server's address, if the configuration has it."""
        host = getattr(getattr(self._local, "client", None), "host", None)
        return scrub(str(host or _configured("rucio_host") or "(no address)"))

    def find_unencrypted_servers(self) -> list[str]:
        """Return the servers on other machines that would be spoken to without TLS, as far as that is known."""
        servers = set()
        for key in ("rucio_host", "auth_host"):
            try:
                url = urlsplit(_configured(key))
                host, port = url.hostname or "", f":{url.port}" if url.port else ""
            except ValueError:  # no URL, which is reported where it is used
                continue
            if url.scheme == "http" and host and not urls.is_loopback(host):
                servers.add(scrub(f"http://{host}{port}"))
        return sorted(servers)

    @contextmanager
    def _translated(self, method: str, *, writes: bool) -> Iterator[Any]:
        with self._recorded(method) as record:
            try:
                yield self.client()
            except Exception as error:  # noqa: BLE001  all of it is translated, here and nowhere else
                translated = translate(error, record, writes=writes)
                if translated is not error:
                    translated.__cause__ = error
                raise translated from translated.__cause__

    def _result(self, error: ServiceError) -> str:
        """Return the word for what became of a call; that a rule is gone is news, but no trouble."""
        return "ok" if isinstance(error.__cause__, RuleNotFound) else super()._result(error)


def check_client(installed: str = "") -> None:
    """Raise NeedsOperator unless the installed rucio-clients is of a release that this tool works with."""
    installed = installed or version("rucio-clients")
    release = installed.partition(".")[0]
    if not (release.isdigit() and OLDEST <= int(release) <= NEWEST):
        raise NeedsOperator(
            f"rucio-clients {installed} is installed; dc-inject works with releases {OLDEST} to {NEWEST}",
            f"pip install 'rucio-clients>={OLDEST},<{NEWEST + 1}'",
        )


def check(connection: Connection, service: str) -> Identity:
    """Return who we are; raises NeedsOperator with address and hint when nothing will work."""
    connection.renew()
    try:
        version = name(connection.call("ping")["version"])
        account = account_of(connection)
        client = connection.client()
        return Identity(
            service=service,
            address=connection.address,
            version=version,
            vo=str(client.vo),
            account=account,
            admin=is_admin(connection),
            may_end=_may_end(connection),
            credentials_until=credentials_until(client),
        )
    except ServiceError as error:
        hint = "check rucio_host and auth_host in rucio.cfg, and that the server runs"
        raise unusable(error, f"Rucio at {connection.address}", hint) from error.__cause__


def credentials_until(client: Any) -> datetime | None:  # noqa: ANN401  rucio has no types
    """Return when what the client authenticates with expires; None when that is not known.

    A password does not expire by itself, and tokens that Rucio gives for it are renewed without anybody.
    """
    if client.auth_type == "oidc":
        return token_until(client.auth_token)
    names = {"x509_proxy": "client_proxy", "x509": "client_cert"}
    file = client.creds.get(names.get(client.auth_type, ""))
    try:
        return read_pem(disk.read(Path(file), LARGEST)).until if file else None
    except (OSError, ValueError):
        return None  # the server will answer what is wrong with it


def account_of(connection: Connection) -> str:
    """Return the account that Rucio knows us by; asked once."""
    return connection.kept(("account",), _FOR_GOOD, lambda: name(connection.call("whoami")["account"]))


def is_admin(connection: Connection) -> bool:
    """Whether this is an administrator's account, which Rucio lets go beyond quotas; asked once."""
    account = account_of(connection)
    return connection.kept(("admin",), _FOR_GOOD, lambda: account == "root" or _admin(connection, account))


def _admin(connection: Connection, account: str) -> bool:
    try:
        rows = _flat(connection.call("list_account_attributes", account))
    except Permanent:
        return False  # who may not even read its own attributes is no administrator
    return any(row["key"] == "admin" and str(row["value"]).lower() not in {"false", "0"} for row in rows)


def _flat(rows: Iterable[Any]) -> Iterator[Row]:
    """Give the attributes one by one: the server sends a list of them in one row."""
    for row in rows:
        if isinstance(row, list):
            yield from _flat(row)
        else:
            yield row


def _may_end(connection: Connection) -> bool | None:
    """Find out without harm whether rules can be ended: the right is checked before the rule is looked for."""
    for _ in range(PROBES):
        try:
            connection.call("update_replication_rule", uuid.uuid4().hex, {"lifetime": 0}, writes=True)
        except ServiceError as error:
            if isinstance(error.__cause__, RuleNotFound):
                return True
            if isinstance(error.__cause__, AccessDenied):
                return False
    return None
