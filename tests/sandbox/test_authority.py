"""The sandbox's own certificates: trusted by those who know its authority, by nobody else."""

from __future__ import annotations

import socket
import ssl
import stat
import threading
from contextlib import suppress

import pytest

from dc_inject.model.errors import ServiceError
from dc_inject.sandbox import authority


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return authority.create(tmp_path_factory.mktemp("authority") / "ca")


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> dict:
    """Shake hands over a pair of sockets; returns what the server saw of the client's certificate."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.settimeout(20)
    seen: dict = {}

    def serve() -> None:
        # when the client does not like us, it tells the test itself
        with suppress(OSError), ours, server.wrap_socket(ours, server_side=True) as connection:
            seen.update(connection.getpeercert() or {})
            connection.send(b"!")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with theirs, client.wrap_socket(theirs, server_hostname=host) as connection:
            assert connection.recv(1) == b"!"
    finally:
        thread.join(20)
    return seen


def contexts(made: authority.Authority) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, capath=str(made.directory))
    server.load_cert_chain(*made.issue("storage", hosts=["localhost", "127.0.0.2"]))
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=str(made.certificate))
    client.load_cert_chain(*made.issue("alice"))
    return server, client


@pytest.mark.parametrize("host", ["localhost", "127.0.0.2"])
def test_both_sides_trust_what_the_authority_issued(made, host):
    seen = handshake(*contexts(made), host)
    assert (("commonName", "alice"),) in seen["subject"]


def test_a_host_that_was_not_named_is_not_trusted(made):
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(*contexts(made), "127.0.0.3")


def test_everything_is_for_its_owner_only(made):
    made.issue("bob")
    for path in (made.folder, *made.folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_what_openssl_refuses_is_told(made):
    with pytest.raises(ServiceError, match="openssl x509 failed"):
        made.issue("mallory", hosts=["127.0.0.1,nonsense"])


def test_a_machine_without_openssl_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServiceError, match="no openssl"):
        authority.create(tmp_path / "ca")
