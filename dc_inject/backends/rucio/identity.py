"""Who we are at a Rucio, and what we may do there."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from rucio.common.exception import AccessDenied, RuleNotFound

from dc_inject.backends.answers import name
from dc_inject.backends.rucio.connection import Connection, Row
from dc_inject.backends.service_connection import unusable
from dc_inject.credentials import LARGEST
from dc_inject.credentials.expiry import read_pem, token_until
from dc_inject.model.errors import Permanent, ServiceError
from dc_inject.model.ports import Identity
from dc_inject.system import disk

PROBES = 3  # of the right to end, since planning without it gives links much less
_FOR_GOOD = timedelta.max


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
    """Return when what the client authenticates with expires; None when it does not say.

    A password does not expire by itself, and tokens that Rucio gives for it are renewed without anybody.
    """
    if client.auth_type == "oidc":
        return token_until(client.auth_token)
    names = {"x509_proxy": "client_proxy", "x509": "client_cert"}
    file = client.creds.get(names.get(client.auth_type, ""))
    try:
        return read_pem(disk.read(Path(file), LARGEST)).until if file else None
    except (OSError, ValueError):
        return None  # the server will say what is wrong with it


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
