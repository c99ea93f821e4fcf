"""Who is trusted, and how we show who we are: with a proxy or certificate, read again when it changed."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from dc_inject.model.errors import NeedsOperator, Temporary
from dc_inject.storage import AccessDenied, WebDav
from tests.certificates import Pair, make, make_proxy, openssl
from tests.storage.conftest import Opens
from tests.storage.ours import FILE, JOB, copy
from tests.storage.server import DavServer, drip, running, status

ALLOW_PROXIES = 0x40  # OpenSSL's X509_V_FLAG_ALLOW_PROXY_CERTS, which ssl does not name


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="session")
def authority(folder) -> Pair:
    return make(folder, "authority", "authority", days=10)


@pytest.fixture(scope="session")
def person(folder, authority) -> Pair:
    return make(folder, "person", "person", days=5, by=authority)


@pytest.fixture(scope="session")
def proxy(folder, person) -> Path:
    return make_proxy(folder, "proxy", person)


@pytest.fixture(scope="session")
def of_server(folder, authority) -> Pair:
    return make(folder, "server", "server", days=5, by=authority)


@pytest.fixture
def secure(of_server, authority) -> Iterator[DavServer]:
    """A storage that wants a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(of_server.certificate, of_server.key)
    context.load_verify_locations(authority.certificate)
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # a refusal is told before the first request, not beside it
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ALLOW_PROXIES
    with running(context) as server:
        server.put("/dc/a", b"abc")
        yield server


@pytest.fixture
def storage_with(authority):
    """Make a storage with this access and trust, and close it at the end."""
    made = []

    def make_storage(access: Opens, verify=None) -> WebDav:
        made.append(WebDav(lambda: access, verify=verify or str(authority.certificate), connect=30, read=30))
        return made[-1]

    yield make_storage
    for storage in made:
        storage.close()


def davs(server: DavServer, path: str = "/dc/a") -> str:
    return server.url.replace("https", "davs") + path


def test_a_proxy_opens_a_storage(secure, storage_with, proxy):
    storage = storage_with(Opens(certificate=str(proxy), key=str(proxy)))
    assert storage.stat(davs(secure)).bytes == 3
    assert [found.url for found in storage.list(davs(secure, "/dc"))] == [davs(secure)]


def test_a_certificate_with_its_key_opens_a_storage(secure, storage_with, person, authority, tmp_path):
    """And a folder of authorities, as the grid has it, is trusted."""
    (tmp_path / "authority.pem").write_text(authority.certificate.read_text())
    openssl("rehash", tmp_path)
    storage = storage_with(Opens(certificate=str(person.certificate), key=str(person.key)), str(tmp_path))
    assert storage.stat(davs(secure)).bytes == 3


def test_without_a_certificate_a_person_is_wanted(secure, storage_with):
    with pytest.raises(AccessDenied) as caught:
        storage_with(Opens()).stat(davs(secure))
    assert (caught.value.hold, caught.value.fault.cause) == ("credentials", "credentials-missing")


def test_a_strange_certificate_is_for_a_person(secure, storage_with, tmp_path):
    stranger = make(tmp_path, "stranger", "person", days=5)
    storage = storage_with(Opens(certificate=str(stranger.certificate), key=str(stranger.key)))
    with pytest.raises(AccessDenied) as caught:
        storage.stat(davs(secure))
    assert (caught.value.hold, caught.value.fault.cause) == ("credentials", "credentials-refused")


def test_files_that_are_none_are_for_a_person(secure, storage_with, tmp_path):
    none, empty = tmp_path / "none", tmp_path / "empty"
    empty.write_text("")
    for path in (none, empty):
        with pytest.raises(NeedsOperator, match=r"davs://127.0.0.1:\d+/dc/a: ") as caught:
            storage_with(Opens(certificate=str(path), key=str(path))).stat(davs(secure))
        assert caught.value.hold == "credentials"
        assert not isinstance(caught.value, AccessDenied)  # no storage was asked: none would take it


def test_a_storage_that_nobody_vouches_for_is_not_spoken_to(secure, storage_with, proxy):
    secret = Opens(token="opaque-token", certificate=str(proxy), key=str(proxy))
    with pytest.raises(Temporary, match="certificate of the storage") as caught:
        storage_with(secret, True).stat(davs(secure))
    assert "X509_CERT_DIR" in (caught.value.hint or "")
    assert secure.asked == []


def test_trust_that_is_not_there_is_for_a_person(secure, storage_with, tmp_path):
    with pytest.raises(NeedsOperator) as caught:
        storage_with(Opens(), str(tmp_path / "none")).stat(davs(secure))
    assert str(tmp_path / "none") in caught.value.message
    assert "X509_CERT_DIR" in (caught.value.hint or "")


def test_a_new_proxy_is_used_at_once(secure, storage_with, proxy, tmp_path):
    """What was opened with the old one is closed when the files changed."""
    access = Opens(certificate=str(proxy), key=str(proxy), stamp=1)
    storage = storage_with(access)
    storage.stat(davs(secure))
    storage.stat(davs(secure))
    assert list(secure.connections.values()) == [2]
    access.stamp = 2
    storage.stat(davs(secure))
    assert sorted(secure.connections.values()) == [1, 2]
    stranger = make(tmp_path, "stranger", "person", days=5)
    access.certificate, access.key, access.stamp = str(stranger.certificate), str(stranger.key), 3
    with pytest.raises(NeedsOperator):
        storage.stat(davs(secure))


def test_an_answer_that_drips_is_given_up_over_tls_too(secure, authority, proxy, wording):
    secure.tricks["PROPFIND"] = drip(b"HTTP/1.1 207 Multi-Status\r\n\r\n<D:multistatus")
    access = Opens(certificate=str(proxy), key=str(proxy))
    storage = WebDav(lambda: access, verify=str(authority.certificate), read=30, longest=0.5)
    with pytest.raises(Temporary) as refused:
        storage.reachable(davs(secure))
    wording(refused.value)
    storage.close()


def test_from_a_secure_storage_no_plain_one_is_reached_elsewhere(secure, storage_with, proxy):
    secure.tricks["DELETE"] = status(307, Location="http://se.example.org/dc/a?authz=hunter2")
    access = Opens(certificate=str(proxy), key=str(proxy))
    with pytest.raises(Exception, match="not https") as caught:
        storage_with(access).delete(copy(davs(secure, "")))
    assert "hunter2" not in str(caught.value)


@pytest.fixture
def curious(of_server, authority) -> Iterator[tuple[DavServer, DavServer]]:
    """Two storages that take a certificate if they get one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(of_server.certificate, of_server.key)
    context.load_verify_locations(authority.certificate)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags |= ALLOW_PROXIES
    with running(context) as one, running(context) as other:
        yield one, other


@pytest.mark.parametrize("call", ["stat", "list", "delete"])
def test_a_certificate_is_shown_only_to_the_storage_that_was_meant(curious, storage_with, proxy, call):
    """Not where it redirects to, nor afterwards on a way back: who sent us on must not use our name."""
    one, other = curious
    for server in curious:
        server.put(FILE)
    storage = storage_with(Opens(certificate=str(proxy), key=str(proxy)))
    for server in curious:  # connections with a certificate are open
        storage.stat(davs(server, FILE))
    path = JOB if call == "list" else FILE
    verb = {"stat": "HEAD", "list": "PROPFIND", "delete": "DELETE"}[call]
    seen: list[tuple[str, bool]] = []

    def shown(handler, name: str) -> None:
        seen.append((name, bool(handler.connection.getpeercert())))

    def away(handler) -> None:
        shown(handler, "one")
        if len(seen) == 1:
            return handler.answer(307, Location=f"{other.url}{path}")
        return getattr(handler, f"on_{verb.lower()}")()

    def back(handler) -> None:
        shown(handler, "other")
        handler.answer(307, Location=f"{one.url}{path}")

    one.tricks[verb], other.tricks[verb] = away, back
    told = getattr(storage, call)(copy(davs(one, "")) if call == "delete" else davs(one, path))
    if call == "list":
        list(told)
    assert seen == [("one", True), ("other", False), ("one", False)]
