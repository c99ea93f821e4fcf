"""Who we are at an FTS, and whether it can act for us."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dc_inject.backends.fts.connection import Connection, Me
from dc_inject.backends.fts.errors import CREDENTIALS, NO_VO
from dc_inject.backends.service_connection import unusable
from dc_inject.model.errors import NeedsOperator, ServiceError
from dc_inject.model.ports import Identity

_NOBODY = "anon"  # what FTS calls somebody without credentials


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
        connection.recognise(me)  # whether we may go on as somebody else is not said here, but by who asked
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
    if me.account in {"", _NOBODY} or not me.vo:
        message = "it does not know us, or no virtual organisation of ours"
        raise NeedsOperator(message, NO_VO, hold=CREDENTIALS)
    level = answer.get("level")
    if isinstance(level, Mapping) and level and not {"transfer", "*"} & set(level):
        raise NeedsOperator(
            f"{me.account} may not submit transfers", "ask FTS's operators for the right", hold=CREDENTIALS
        )
    return me
