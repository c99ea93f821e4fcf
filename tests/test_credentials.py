"""Credentials are found where the ecosystem keeps them, read again when they change, and never shown."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dc_inject.credentials import Credential, Credentials, read_token
from dc_inject.credentials.expiry import read_pem, token_until, validity
from dc_inject.model.errors import NeedsOperator
from tests.certificates import Pair, end_of, make, make_proxy, openssl

NOW = datetime(2026, 11, 21, 16, tzinfo=UTC)
SECRET = "opaque-token-0123456789-abcdefghij"


class Clock:
    """A clock that stands where a test puts it."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> datetime:
        return self.at


def jwt(**claims: object) -> str:
    """Return a token as issuers write it, signed by nobody."""
    parts = [{"alg": "none", "typ": "JWT"}, claims]
    return (
        ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
        + ".c2ln"
    )


@pytest.fixture(scope="session")
def person(tmp_path_factory) -> Pair:
    folder = tmp_path_factory.mktemp("person")
    return make(folder, "person", "person", days=40, by=make(folder, "authority", "authority", days=400))


@pytest.fixture(scope="session")
def proxy(tmp_path_factory, person) -> Path:
    return make_proxy(tmp_path_factory.mktemp("proxy"), "proxy", person)


@pytest.fixture
def clock() -> Clock:
    """A clock that is right: certificates are made now."""
    clock = Clock()
    clock.at = datetime.now(UTC)
    return clock


@pytest.fixture
def found_in(clock, tmp_path):
    """Look for credentials in an environment; files that nothing names are looked for in `shared`."""
    (tmp_path / "shared").mkdir()

    def look(**environ: object) -> Credentials:
        texts = {name: str(value) for name, value in environ.items()}
        return Credentials(texts, clock, shared=tmp_path / "shared")

    return look


@pytest.fixture
def token_file(tmp_path):
    """Write a token into a file for its owner only."""

    def write(token: str | bytes = SECRET, name: str = "token") -> Path:
        path = tmp_path / name
        path.write_bytes(token if isinstance(token, bytes) else token.encode())
        path.chmod(0o600)
        return path

    return write


def fatal(call) -> NeedsOperator:
    with pytest.raises(NeedsOperator) as caught:
        call()
    assert caught.value.hold == "credentials"
    assert caught.value.hint
    assert SECRET[:16] not in f"{caught.value}{caught.value.hint}{caught.value!r}"
    return caught.value


# Where they are found


def test_what_is_named_for_a_purpose_comes_first(found_in, token_file):
    credentials = found_in(
        DC_INJECT_FTS_TOKEN_FILE=token_file("for-fts", "a"),
        DC_INJECT_SOURCE_TOKEN_FILE=token_file("for-source", "b"),
        DC_INJECT_DESTINATION_TOKEN_FILE=token_file("for-destination", "c"),
        BEARER_TOKEN="for-all",
    )
    assert credentials.access("fts").token == "for-fts"
    assert credentials.access("source").token == "for-source"
    assert credentials.access("destination").token == "for-destination"
    assert credentials.transfer_tokens() == ("for-source", "for-destination")


def test_tokens_for_sources_and_destinations_go_together(found_in, token_file, wording):
    for name in ("SOURCE", "DESTINATION"):
        credentials = found_in(**{f"DC_INJECT_{name}_TOKEN_FILE": token_file()}, BEARER_TOKEN="for-all")
        assert credentials.access("fts").token == "for-all"
        for call in (
            lambda credentials=credentials: credentials.access("source"),
            lambda credentials=credentials: credentials.access("destination"),
            credentials.transfer_tokens,
        ):
            wording(fatal(call).message)
    assert found_in(BEARER_TOKEN="for-all").transfer_tokens() is None


def test_the_order_of_what_serves_all_purposes(found_in, token_file, proxy, person, tmp_path):
    """Each place is taken only when the ones before it name nothing."""
    shared, runtime = tmp_path / "shared", tmp_path / "runtime"
    runtime.mkdir()
    found_proxy = shared / f"x509up_u{os.getuid()}"
    found_proxy.write_bytes(proxy.read_bytes())
    for folder in (runtime, shared):
        (folder / f"bt_u{os.getuid()}").write_text(f"found-in-{folder.name}\n")
    environ = {
        "BEARER_TOKEN": "from-variable",
        "BEARER_TOKEN_FILE": token_file("from-file"),
        "X509_USER_PROXY": proxy,
        "X509_USER_CERT": person.certificate,
        "X509_USER_KEY": person.key,
        "XDG_RUNTIME_DIR": runtime,
    }

    def now() -> Credential:
        return found_in(**environ).access("destination")

    assert now().token == "from-variable"
    environ["BEARER_TOKEN"] = " "
    assert now().token == "from-file"
    del environ["BEARER_TOKEN_FILE"]
    assert (now().kind, now().certificate, now().key) == ("proxy", str(proxy), str(proxy))
    environ["X509_USER_PROXY"] = ""
    assert (now().kind, now().certificate) == ("proxy", str(found_proxy))
    found_proxy.unlink()
    assert (now().kind, now().certificate, now().key) == ("certificate", str(person.certificate), str(person.key))
    del environ["X509_USER_CERT"], environ["X509_USER_KEY"]
    assert now().token == "found-in-runtime"
    del environ["XDG_RUNTIME_DIR"]
    assert now().token == "found-in-shared"
    (shared / f"bt_u{os.getuid()}").unlink()
    assert now().kind == "nothing"


def test_nothing_is_an_answer_unless_something_is_needed(found_in):
    credentials = found_in()
    assert credentials.access("source") == Credential("nothing", "")
    assert credentials.until("source") is None
    assert "X509_USER_PROXY" in fatal(lambda: credentials.access("fts", needed=True)).hint


def test_a_file_of_somebody_else_in_a_shared_folder_is_not_used(clock, tmp_path, wording):
    (tmp_path / "bt_u4711").write_text(SECRET)
    credentials = Credentials({}, clock, uid=4711, shared=tmp_path)
    assert credentials.access("fts").kind == "nothing"
    wording(credentials.warnings())


# Trouble


@pytest.mark.parametrize("name", ["DC_INJECT_FTS_TOKEN_FILE", "BEARER_TOKEN_FILE", "X509_USER_PROXY"])
@pytest.mark.parametrize("kind", ["missing", "folder"])
def test_what_cannot_be_read_is_told(found_in, tmp_path, name, kind, wording):
    path = tmp_path if kind == "folder" else tmp_path / "none"
    error = fatal(lambda: found_in(**{name: path}).access("fts"))
    wording(error.message)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b" \n",
        f"{SECRET} {SECRET}".encode(),
        f"{SECRET}\n{SECRET}".encode(),
        f"<{SECRET}>".encode(),
        f"{SECRET}\u00e9".encode(),
        SECRET.encode() + b"\0",
        SECRET.encode() * 2000,
        b"{'token': '%s'}" % SECRET.encode(),
    ],
)
def test_garbage_is_no_token_and_never_shown(found_in, token_file, content, wording):
    error = fatal(lambda: found_in(BEARER_TOKEN_FILE=token_file(content)).access("fts"))
    wording(error.message)
    text = content.decode("utf-8", "replace")
    if text.strip():
        error = fatal(lambda: found_in(BEARER_TOKEN=text).access("fts"))
        wording(error.message)


def test_white_space_around_a_token_does_not_count(found_in, token_file):
    assert found_in(BEARER_TOKEN_FILE=token_file(f"\n {SECRET} \r\n")).access("fts").token == SECRET


@pytest.mark.parametrize(
    "part",
    [
        "certificate",
        "key",
        "broken",
        "cut",
    ],
)
def test_a_proxy_that_is_none_is_told(found_in, person, tmp_path, part, wording):
    certificate, key = person.certificate.read_text(), person.key.read_text()
    lines = certificate.splitlines()
    contents = {
        "certificate": certificate,
        "key": key,
        "broken": "\n".join([lines[0], "!" * 64, *lines[2:]]) + key,
        "cut": "\n".join(lines[:2] + lines[-1:]) + key,
    }
    path = tmp_path / "proxy"
    path.write_text(contents[part])
    error = fatal(lambda: found_in(X509_USER_PROXY=path).access("fts"))
    wording(error.message)
    assert "voms-proxy-init" in error.hint


@pytest.mark.parametrize("form", [[], ["-traditional"]])
def test_a_key_with_a_password_is_refused(found_in, tmp_path, person, form):
    """Else the TLS library would ask for it on the terminal, in the middle of a run."""
    key = tmp_path / "key"
    openssl("rsa" if form else "pkey", "-in", _rsa(tmp_path), "-aes256", "-passout", "pass:x", *form, "-out", key)
    error = fatal(lambda: found_in(X509_USER_CERT=person.certificate, X509_USER_KEY=key).access("fts"))
    assert "password" in error.message


def _rsa(folder: Path) -> Path:
    openssl("genrsa", "-out", folder / "rsa", "2048")
    return folder / "rsa"


@pytest.mark.parametrize("name", ["X509_USER_CERT", "X509_USER_KEY"])
def test_a_certificate_and_its_key_go_together(found_in, person, name, wording):
    credentials = found_in(**{name: person.certificate})
    wording(fatal(lambda: credentials.access("fts")).message)


def test_secrets_that_others_can_read_are_told_but_used(found_in, token_file, proxy, tmp_path, wording):
    path = token_file(name="my token")
    credentials = found_in(BEARER_TOKEN_FILE=path)
    assert credentials.warnings() == ()
    path.chmod(0o640)
    wording(credentials.warnings())
    assert credentials.access("fts").token == SECRET
    loose = tmp_path / "loose"
    loose.write_bytes(proxy.read_bytes())
    loose.chmod(0o604)
    assert f"chmod 600 {loose}" in found_in(X509_USER_PROXY=loose).warnings()[0]
    assert found_in(X509_USER_PROXY=tmp_path / "none").warnings() == ()


# The end


def test_a_token_expires_at_its_own_word(found_in, clock):
    end = clock.at.replace(microsecond=0) + timedelta(hours=1)
    credentials = found_in(BEARER_TOKEN=jwt(exp=end.timestamp(), sub="me"))
    assert credentials.until("fts") == end
    assert credentials.access("fts").until == end
    clock.at = end
    error = fatal(lambda: credentials.access("fts"))
    assert error.message == f"the token of BEARER_TOKEN expired at {end:%Y-%m-%dT%H:%M:%SZ}"
    assert credentials.until("fts") == end


@pytest.mark.parametrize(
    "token",
    [
        SECRET,
        "a.b.c",
        "a.b",
        "....",
        jwt(),
        jwt(exp="soon"),
        jwt(exp=1e300),
        jwt(exp=None),
        jwt(exp=[1]),
        "a.W10.c",
    ],
)
def test_a_token_that_does_not_tell_has_no_known_end(found_in, token):
    assert found_in(BEARER_TOKEN=token).until("fts") is None


def test_a_proxy_ends_with_the_first_of_its_chain(found_in, person, tmp_path, clock):
    short = make_proxy(tmp_path, "short", person, days=2)
    long = make_proxy(tmp_path, "long", person, days=300)
    ends = {path: _openssl_end(path) for path in (short, long, person.certificate)}
    assert found_in(X509_USER_PROXY=short).until("fts") == ends[short]
    assert found_in(X509_USER_PROXY=long).until("fts") == ends[person.certificate] < ends[long]
    clock.at = ends[short]
    error = fatal(lambda: found_in(X509_USER_PROXY=short).access("fts"))
    assert error.message.startswith(f"the proxy of X509_USER_PROXY {short} expired at ")
    assert found_in(X509_USER_PROXY=long).access("fts").kind == "proxy"


def _openssl_end(path: Path) -> datetime:
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(end_of(path)), UTC)


@pytest.mark.parametrize("days", [1, 30, 3650, 8400, 8800, 36500])
def test_ends_are_those_that_openssl_tells(tmp_path, days):
    """Before 2050 and after it a time is written in two ways."""
    made = make(tmp_path, "one", "server", days=days)
    assert read_pem(made.certificate.read_bytes()).until == _openssl_end(made.certificate)


def test_a_certificate_that_is_cut_is_none(person):
    der = ssl.PEM_cert_to_DER_cert(person.certificate.read_text())
    assert validity(der)[1] == _openssl_end(person.certificate)
    for end in (0, 1, 3, len(der) // 4, len(der) // 2, len(der) - 1):
        with pytest.raises(ValueError, match="element"):
            validity(der[:end])


def test_a_certificate_of_the_first_version_is_read(tmp_path):
    key, config, certificate = (tmp_path / name for name in ("key", "config", "certificate"))
    config.write_text("[req]\ndistinguished_name = none\n[none]\n")
    usage = subprocess.run(["openssl", "req", "-help"], check=False, capture_output=True, text=True, timeout=60)
    old = ["-x509v1"] if "-x509v1" in usage.stderr else []  # later ones make version 3 without it
    made = ("-newkey", "rsa:2048", "-nodes", "-keyout", key, "-subj", "/CN=old", "-days", 7, "-out", certificate)
    openssl("req", "-x509", *old, "-config", config, *made)
    assert "Version: 1" in openssl("x509", "-in", certificate, "-noout", "-text")
    assert read_pem(certificate.read_bytes()).until == _openssl_end(certificate)


def test_two_digits_of_a_year_are_read_as_the_standard_says():
    def certificate(tag: int, end: bytes) -> bytes:
        def element(tag: int, content: bytes) -> bytes:
            return bytes([tag, len(content)]) + content

        times = element(0x17, b"000101000000Z") + element(tag, end)
        parts = element(0x02, b"\1") + element(0x30, b"") + element(0x30, b"") + element(0x30, times)
        return element(0x30, element(0x30, parts))

    assert validity(certificate(0x17, b"491231235959Z"))[1] == datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert validity(certificate(0x17, b"500101000000Z"))[1] == datetime(1950, 1, 1, tzinfo=UTC)
    assert validity(certificate(0x18, b"99991231235959Z"))[1] == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    for tag, end in [
        (0x17, b"4912312359Z"),
        (0x18, b"20491231235959+0100"),
        (0x16, b"491231235959Z"),
        (0x17, b""),
    ]:
        with pytest.raises(ValueError, match="time"):
            validity(certificate(tag, end))


@given(st.binary(max_size=80), st.integers(0, 400))
def test_no_bytes_break_the_reading_of_a_certificate(garbage, cut):
    for der in (garbage, b"\x30\x82\x01\x00\x30\x30" + garbage, bytes(range(256))[:cut]):
        with pytest.raises(ValueError, match=r"time|element|codec|[Dd]ate"):
            validity(der)


# Changes


def test_files_are_read_again_when_they_change(found_in, token_file, clock):
    path = token_file("first")
    credentials = found_in(BEARER_TOKEN_FILE=path)
    first = credentials.access("fts")
    assert credentials.access("fts") == first
    replacement = token_file("other", "new")
    os.utime(replacement, ns=(path.stat().st_mtime_ns,) * 2)
    replacement.replace(path)  # same size and time, another place on the disk
    second = credentials.access("fts")
    assert (second.token, second.stamp != first.stamp) == ("other", True)
    path.write_text("another")
    assert credentials.access("fts").token == "another"
    path.unlink()
    fatal(lambda: credentials.access("fts"))
    token_file("back")
    assert credentials.access("fts").token == "back"


def test_a_file_that_did_not_change_is_not_read_again(found_in, token_file):
    path = token_file("first")
    credentials = found_in(BEARER_TOKEN_FILE=path)
    credentials.access("fts")
    before = path.stat().st_mtime_ns
    path.write_text("2nd..")
    os.utime(path, ns=(before, before))
    assert credentials.access("fts").token == "first"


def test_a_new_key_is_seen_beside_the_old_certificate(found_in, person, tmp_path):
    key = tmp_path / "key"
    key.write_bytes(person.key.read_bytes())
    credentials = found_in(X509_USER_CERT=person.certificate, X509_USER_KEY=key)
    before = credentials.access("fts")
    key.write_bytes(person.key.read_bytes() + b"\n")
    assert replace(before, stamp=None) == replace(credentials.access("fts"), stamp=None)
    assert before.stamp != credentials.access("fts").stamp


# Secrets


def test_nothing_that_is_printed_shows_a_secret(found_in, token_file):
    credentials = found_in(BEARER_TOKEN_FILE=token_file())
    opened = credentials.access("fts")
    assert SECRET not in f"{credentials!r} {credentials} {opened!r} {opened} {credentials.warnings()}"
    assert repr(found_in(BEARER_TOKEN=SECRET)) == "Credentials(...)"


def test_tokens_that_were_read_are_taken_out_of_texts(found_in, token_file):
    path = token_file("first-token-that-was-used")
    credentials = found_in(BEARER_TOKEN_FILE=path)
    credentials.access("fts")
    path.write_text(SECRET)
    credentials.access("fts")
    text = credentials.scrub(f"echo first-token-that-was-used and {SECRET[:20]}... there")
    assert text == "echo *** and ***... there"


def test_a_token_is_what_the_standard_says():
    assert read_token(b"abc.DEF-1_2~3+4/5==\n") == "abc.DEF-1_2~3+4/5=="
    assert token_until("abc") is None
