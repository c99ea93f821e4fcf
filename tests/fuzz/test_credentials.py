"""Whatever a token or X.509 file holds: it is read, or refused with a message that shows nothing of it."""

from __future__ import annotations

import base64
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from dc_inject.backends.sim import SimClock
from dc_inject.credentials import Credentials, read_token
from dc_inject.credentials.expiry import read_pem, token_until
from dc_inject.model.errors import NeedsOperator
from dc_inject.model.redaction import scrub

from .broken import ECHO, SECRET, VALUES, no_secret
from .cases import fuzz

# A self-signed certificate (P-256, CN=fuzz, no key of anybody's): something right to begin with.
CERTIFICATE = base64.b64decode(
    "MIIBczCCARmgAwIBAgIUQbOZ0cTCWz0l4n5cuQ3JYbH2y8swCgYIKoZIzj0EAwIwDzENMAsGA1UEAwwEZnV6ejAeFw0yNzAyMDgxMDAwMDBa"
    "Fw0yNzAyMDkxMDAwMDBaMA8xDTALBgNVBAMMBGZ1enowWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQ="
)
TEXTS = st.sampled_from([SECRET, ECHO, "a.b.c", "..", "Bearer x", "x" * 40_000, "\x00", "é", " \n", ""])
CLAIMS = st.dictionaries(st.sampled_from(["exp", "sub", "x"]), st.sampled_from(VALUES) | st.integers(), max_size=3)


def _jwt(claims: Any) -> str:
    try:
        text = json.dumps(claims)
    except (TypeError, ValueError):  # what no JSON can hold
        text = "{"
    return ".".join(["e30", base64.urlsafe_b64encode(text.encode()).decode().rstrip("="), "hunter2"])


TOKENS = TEXTS | CLAIMS.map(_jwt) | st.text(max_size=40) | st.text("ABCabc.-_=", max_size=40)


@fuzz(250, text=TOKENS)
def test_whatever_is_given_as_a_token(text: str) -> None:
    """It is a token, whose end is known or not, or a ValueError."""
    content = text.encode("utf-8", "surrogatepass")
    try:
        token = read_token(content)
    except ValueError as error:
        no_secret(error)
    else:
        assert token.isascii()
        assert token.isprintable()
    until = token_until(text)
    assert until is None or until.tzinfo is UTC


@fuzz(150, nested=st.integers(1, 100_000), exp=st.integers(-(10**30), 10**30))
def test_tokens_that_are_made_to_hurt(nested: int, exp: int) -> None:
    """Neither deep nesting nor any number is an exception."""
    deep = base64.urlsafe_b64encode(b"[" * nested).decode().rstrip("=")
    late = base64.urlsafe_b64encode(b'{"exp":%d}' % exp).decode().rstrip("=")
    for payload in (deep, late):
        until = token_until(f"e30.{payload}.x")
        assert until is None or until.tzinfo is UTC


CHANGES = st.lists(st.tuples(st.integers(0, len(CERTIFICATE) - 1), st.integers(0, 255)), max_size=6)


def _pem(der: bytes) -> bytes:
    return b"-----BEGIN CERTIFICATE-----\n" + base64.b64encode(der) + b"\n-----END CERTIFICATE-----\n"


def _changed(changes: list[tuple[int, int]], end: int) -> bytes:
    der = bytearray(CERTIFICATE)
    for place, byte in changes:
        der[place] = byte
    return bytes(der[:end])


DER = st.builds(_changed, CHANGES, st.integers(0, len(CERTIFICATE)) | st.just(len(CERTIFICATE))) | st.binary(
    max_size=60
)
PIECES = st.sampled_from(
    [b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----", b"-----BEGIN PRIVATE KEY-----\nhunter2\n",
     b"\n", b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n", b"hunter2", b"\xff\x00"]
)  # fmt: skip
FILES = st.lists(DER.map(_pem) | PIECES | st.binary(max_size=10), max_size=4).map(b"".join)


@fuzz(250, content=FILES)
def test_whatever_is_given_as_a_certificate(content: bytes) -> None:
    """Its end is read, or it is a ValueError that shows nothing of it."""
    try:
        read_pem(content)
    except ValueError as error:
        no_secret(error)


@fuzz(40, content=FILES | TOKENS.map(lambda text: text.encode("utf-8", "surrogatepass")), variable=st.sampled_from(
    ["X509_USER_PROXY", "BEARER_TOKEN_FILE", "DC_INJECT_FTS_TOKEN_FILE"]))  # fmt: skip
def test_whatever_a_credential_file_holds(content: bytes, variable: str) -> None:
    """A file is a credential, or NeedsOperator with a hint; neither shows what is in it."""
    with tempfile.TemporaryDirectory(prefix="dc_inject-fuzz-") as folder:
        file = Path(folder) / "file"
        file.write_bytes(content)
        made = Credentials({variable: str(file)}, SimClock(datetime(2027, 2, 8, tzinfo=UTC)), shared=Path(folder))
        try:
            no_secret(repr(made.access("fts")))
        except NeedsOperator as error:
            no_secret(error.message, error.hint)


@fuzz(
    150,
    before=st.text(max_size=20),
    after=st.text(max_size=20),
    space=st.sampled_from([" ", "\n", "=", ": ", "'"]),
)
def test_a_secret_in_any_surroundings_is_taken_out(before: str, after: str, space: str) -> None:
    """A known token goes, wherever it stands; what is left is one printable line."""
    said = scrub(f"{before}{space}{SECRET}{space}{after}", [SECRET])
    assert SECRET not in said
    assert said.isprintable()
