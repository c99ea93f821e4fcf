"""Who asks: a bearer token, a client certificate, or a process on this machine without either."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .refusals import Refused
from .settings import Settings, Token

BASE_ID = uuid.UUID("01874efb-4735-4595-bc9c-591aef8240c9")
CERTIFICATE, TOKEN, ANONYMOUS = "certificate", "oauth2", "unauthenticated"

_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "emailAddress": "emailAddress",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
}


@dataclass(frozen=True)
class Person:
    """A person: a name (a DN), a VO, and how they were authenticated."""

    dn: str
    vo: str
    method: str
    config: bool = False
    token: str | None = field(default=None, repr=False)

    @property
    def delegation_id(self) -> str:
        """The id under which a delegated credential is kept."""
        return hashlib.sha256(f"{self.method}{self.dn}".encode()).hexdigest()[:16]

    @property
    def vo_id(self) -> uuid.UUID:
        """What ids of jobs are made from."""
        return uuid.uuid5(BASE_ID, self.vo)

    def plain(self) -> dict[str, Any]:
        """Answer whoami."""
        level = {"transfer": "vo", "deleg": ""} | ({"config": "all"} if self.config else {})
        return {
            "user_dn": self.dn,
            "dn": [self.dn],
            "base_id": str(BASE_ID),
            "voms_cred": [],
            "vos": [self.vo],
            "vos_id": [str(self.vo_id)],
            "roles": [],
            "level": level,
            "delegation_id": self.delegation_id,
            "method": self.method,
            "is_root": False,
        }


def recognise(
    authorization: str | None, certificate: Mapping[str, Any] | None, encrypted: bool,
    tokens: Mapping[str, Token], settings: Settings,
) -> Person:  # fmt: skip
    """Return who asks. Raises Refused: 401 for a token that is unknown or expired, 403 without credentials."""
    if authorization:
        kind, _, token = authorization.partition(" ")
        owner = tokens.get(token.strip()) if kind.lower() == "bearer" else None
        if owner is None:
            raise Refused(401, "Invalid credentials: the token is not known")
        if owner.expires is not None and owner.expires <= time.time():
            raise Refused(401, "Invalid credentials: the token has expired")
        return Person(owner.user, owner.vo, TOKEN, owner.config, token.strip())
    if certificate:
        parts = [(_SHORT.get(key, key), value) for part in certificate["subject"] for key, value in part]
        dn = end_entity(parts)
        return Person(dn, settings.vos.get(dn, settings.vo), CERTIFICATE, dn in settings.config_users)
    if settings.anonymous and not encrypted:
        return Person("/CN=anonymous", settings.vo, ANONYMOUS, "/CN=anonymous" in settings.config_users)
    raise Refused(403, "No credentials: give a certificate or a token")


def end_entity(parts: Sequence[tuple[str, str]]) -> str:
    """Write a DN from its parts, without the common names that proxies append."""
    remaining = list(parts)
    while len(remaining) > 1:
        key, value = remaining[-1]
        if key != "CN" or not (value.isdigit() or value.endswith("proxy")):
            break
        remaining.pop()
    return "".join(f"/{key}={value}" for key, value in remaining)
