"""Delegated credentials: the service makes a key and a request, the client signs it with its own certificate."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from typing import Any

from aiohttp import web
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from .answers import moment
from .frontend import Frontend
from .people import ANONYMOUS, Person, end_entity
from .refusals import Refused

_LEAST = 3600  # seconds that a delegated credential has to live for a submit
_LONG = 30 * 86400  # seconds; those without credentials need none


class Delegations:
    """The credentials that were delegated, kept in the database."""

    def __init__(self, database: sqlite3.Connection, frontend: Frontend) -> None:
        self._database = database
        self._frontend = frontend

    def routes(self) -> list[tuple[str, str, Callable[..., Any]]]:
        """Name method, path and handler of each."""
        return [
            ("GET", "/delegation/{id}", self.view),
            ("DELETE", "/delegation/{id}", self.delete),
            ("GET", "/delegation/{id}/request", self.request),
            ("PUT", "/delegation/{id}/credential", self.credential),
            ("POST", "/delegation/{id}/credential", self.credential),
        ]

    def refuse_without(self, person: Person) -> None:
        """Raise Refused (419) unless there is a delegated credential that lives for an hour."""
        row = self._row(person)
        if row is None or row["expires"] is None:
            raise Refused(419, f'No delegation found for "{person.dn}"')
        left = row["expires"] - time.time()
        if left < 0:
            raise Refused(
                419, f"The delegated credentials expired {-left:.0f} seconds ago ({person.delegation_id})"
            )
        if left < _LEAST:
            raise Refused(419, f"The delegated credentials has less than one hour left ({person.delegation_id})")

    async def view(self, request: web.Request) -> web.Response:
        """Return until when the delegated credential is valid; null if there is none."""
        person = self._owner(request)
        row = self._row(person)
        expires = row["expires"] if row else None
        if person.method == ANONYMOUS:
            expires = time.time() + _LONG
        return web.json_response(expires and {"termination_time": moment(expires), "voms_attrs": []})

    async def delete(self, request: web.Request) -> web.Response:
        """Forget the delegated credential."""
        person = self._owner(request)
        if self._row(person) is None:
            raise Refused(404, "Delegated credentials not found")
        self._database.execute("DELETE FROM credential WHERE delegation_id = ?", (person.delegation_id,))
        return web.Response(status=204)

    async def request(self, request: web.Request) -> web.Response:
        """Make a key, and a request to be signed; the same one until a credential has come."""
        person = self._owner(request)
        if self._row(person) is None:
            key, wanted = await asyncio.to_thread(_new_request)
            self._database.execute(
                "INSERT OR IGNORE INTO credential (delegation_id, user_dn, private_key, request) "
                "VALUES (?, ?, ?, ?)",
                (person.delegation_id, person.dn, key, wanted),
            )
        row = self._row(person)
        assert row
        return web.Response(text=row["request"], headers={"X-Delegation-ID": person.delegation_id})

    async def credential(self, request: web.Request) -> web.Response:
        """Take the signed credential."""
        person = self._owner(request)
        row = self._row(person)
        if row is None:
            raise Refused(400, "No credential cache found")
        proxy = await self._frontend.body(request)
        expires = _check(proxy, row["private_key"], person)
        self._database.execute(
            "UPDATE credential SET proxy = ?, expires = ? WHERE delegation_id = ?",
            (proxy.decode(), expires, person.delegation_id),
        )
        return web.Response(status=201)

    def _owner(self, request: web.Request) -> Person:
        person = self._frontend.who(request)
        if request.match_info["id"] != person.delegation_id:
            raise Refused(403, "The requested ID and the credentials ID do not match")
        return person

    def _row(self, person: Person) -> sqlite3.Row | None:
        query = "SELECT * FROM credential WHERE delegation_id = ?"
        row: sqlite3.Row | None = self._database.execute(query, (person.delegation_id,)).fetchone()
        return row


def _new_request() -> tuple[str, str]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "Dummy")])
    wanted = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pem.decode(), wanted.public_bytes(serialization.Encoding.PEM).decode()


def _check(proxy: bytes, private_key: str, person: Person) -> float:
    """Return when a signed credential ends; raises Refused when it belongs to another person or key."""
    try:
        chain = x509.load_pem_x509_certificates(proxy)
        signed, issuer = chain[:2]
        signed.verify_directly_issued_by(issuer)
    except (ValueError, TypeError):
        raise Refused(400, "Could not process the proxy: Malformed proxy") from None
    except InvalidSignature:
        raise Refused(400, "Could not process the proxy: Failed to verify the proxy") from None
    key = serialization.load_pem_private_key(private_key.encode(), None)
    if signed.public_key() != key.public_key():
        text = "The proxy does not match the stored associated private key"
        raise Refused(400, f"Could not process the proxy: {text}")
    parts, before = _parts(signed.subject), _parts(issuer.subject)
    if parts[:-1] != before or parts[-1][0] != "CN":
        raise Refused(400, "Could not process the proxy: The subject and the issuer of the proxy do not match")
    if end_entity(before) != person.dn:
        raise Refused(400, "Could not process the proxy: it is not of the one who sends it")
    return float(signed.not_valid_after_utc.timestamp())


def _parts(name: x509.Name) -> list[tuple[str, str]]:
    return [(part.rfc4514_attribute_name, str(part.value)) for part in name]
