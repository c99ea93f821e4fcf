"""Whose fault an error is: of errors that libraries really raise, and of answers that services really give."""

from __future__ import annotations

import contextlib
import http.server
import os
import resource
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dc_inject.model import Hold, faults
from dc_inject.model.causes import Party, Peer
from dc_inject.model.faults import Facts
from dc_inject.system.transport import Adapter, ExchangeLimits, Session
from tests.certificates import Pair, make, make_between

USER, SERVICE, SITE, UNKNOWN = Party
PAGE = "<!DOCTYPE html><html><head><title>ERROR</title></head><body>Access Denied.</body></html>"
BARE = "no error information passed (http status code: {})"


# ------------------------------------------------------------------------------- really raised


class Page(http.server.BaseHTTPRequestHandler):
    """Answers everything with a page, as a proxy does."""

    def answer(self) -> None:
        self.send_response(self.server.status)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE.encode())
        self.server.seen.append(f"{self.requestline} {dict(self.headers)}")

    do_GET = do_POST = do_CONNECT = answer

    def log_message(self, *_) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, status: int = 200, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Page)
        self.status, self.seen = status, []
        if context:
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, *_) -> None:
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def pairs(folder: Path) -> dict[str, Pair]:
    """Certificates of servers and people, good and bad."""
    authority, other = (make(folder, name, "authority", days=10) for name in ("authority", "other"))
    past = {"start": "20250101000000Z", "end": "20250201000000Z"}
    future = {"start": "20990101000000Z", "end": "20990201000000Z"}
    good = {"start": "20250101000000Z", "end": "20990201000000Z"}
    return {
        "authority": authority,
        "other": other,
        "server": make(folder, "server", "server", days=5, by=authority),
        "self-signed": make(folder, "self-signed", "server", days=5),
        "expired server": make_between(folder, "expired-server", "server", by=authority, **past),
        "future server": make_between(folder, "future-server", "server", by=authority, **future),
        "weak server": make_between(folder, "weak-server", "server", by=authority, bits=1024, **good),
        "elsewhere": make(folder, "elsewhere", "person", days=5, by=authority),  # its name is not 127.0.0.1
        "person": make(folder, "person", "person", days=5, by=authority),
        "stranger": make(folder, "stranger", "person", days=5, by=other),
        "expired": make_between(folder, "expired", "person", by=authority, **past),
        "future": make_between(folder, "future", "person", by=authority, **future),
        "weak": make_between(folder, "weak", "person", by=authority, bits=1024, **good),
    }


@pytest.fixture
def serve(request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """Start a server and return its URL."""
    with contextlib.ExitStack() as stack:

        def start(
            certificate: str = "", *, wants: bool = False, version: str = "", ciphers: str = "", status=200
        ) -> str:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if certificate else None
            if context:
                if ciphers:
                    context.set_ciphers(ciphers)
                if version:
                    context.maximum_version = ssl.TLSVersion[version]
                    if version == "TLSv1":
                        context.minimum_version = ssl.TLSVersion.TLSv1
                pairs = request.getfixturevalue("pairs")
                context.load_cert_chain(pairs[certificate].certificate, pairs[certificate].key)
                if wants:
                    context.verify_mode = ssl.CERT_REQUIRED
                    context.load_verify_locations(pairs["authority"].certificate)
            server = Server(status, context)
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()

            def stop() -> None:
                server.shutdown()
                thread.join(30)
                server.server_close()

            stack.callback(stop)
            start.servers.append(server)
            return f"{'https' if context else 'http'}://127.0.0.1:{server.server_port}/"

        start.servers = []
        yield start


def raised(url: str, method: str = "GET", seconds: float = 30, **options) -> Exception:
    """The error of a request through the gate."""
    with Session(Adapter(ExchangeLimits(60))) as session, pytest.raises(Exception) as caught:
        session.request(method, url, timeout=seconds, **options)
    return caught.value


def cause(error: Exception, credential: str = "proxy") -> tuple[str, str]:
    fault = faults.judge(Facts.of(error, Peer.FTS, credential=credential))
    assert Hold(fault.cause.hold)
    assert fault.message(faults.detail(error))
    return str(fault.cause), fault.party


TLS = [  # server, what its context has besides, what the client has besides, cause, party
    ("expired server", {}, {}, "server-certificate", SERVICE),
    ("future server", {}, {}, "clock", USER),
    ("weak server", {"ciphers": "ALL:@SECLEVEL=0"}, {}, "server-certificate", SERVICE),
    ("elsewhere", {}, {}, "server-certificate", SERVICE),
    ("self-signed", {}, {}, "issuer-unknown", USER),
    ("server", {}, {"verify": "other"}, "issuer-unknown", USER),
    ("server", {}, {"verify": "an empty file"}, "ca-bundle", USER),
    ("server", {}, {"verify": "no file"}, "ca-bundle", USER),
    ("server", {}, {"verify": "a broken file"}, "ca-bundle", USER),
    ("server", {}, {"verify": "an empty folder"}, "issuer-unknown", USER),
    ("server", {"wants": True}, {}, "credentials-missing", USER),
    ("server", {"wants": True}, {"cert": "expired"}, "credentials-expired", USER),
    ("server", {"wants": True}, {"cert": "future"}, "credentials-refused", USER),  # all that the server says
    ("server", {"wants": True}, {"cert": "stranger"}, "credentials-refused", USER),
    ("server", {"wants": True, "version": "TLSv1_2"}, {}, "credentials-missing", USER),
    ("server", {"wants": True, "version": "TLSv1_2"}, {"cert": "expired"}, "credentials-expired", USER),
    ("server", {"wants": True, "version": "TLSv1_2"}, {"cert": "stranger"}, "credentials-refused", USER),
    ("server", {}, {"cert": "weak"}, "weak-key", USER),
    ("server", {}, {"cert": ("person", "stranger")}, "key-mismatch", USER),
    ("server", {}, {"cert": ("an empty file", "person")}, "credentials-unreadable", USER),
    ("server", {}, {"cert": ("person", "an empty file")}, "credentials-unreadable", USER),
    ("server", {}, {"cert": ("no file", "person")}, "credentials-unreadable", USER),
    ("server", {}, {"cert": ("person", "no file")}, "credentials-unreadable", USER),
    ("server", {"version": "TLSv1", "ciphers": "ALL:@SECLEVEL=0"}, {"cert": "person"}, "tls-version", SERVICE),
    ("server", {"version": "TLSv1_2", "ciphers": "ADH:@SECLEVEL=0"}, {"cert": "person"}, "tls-version", SERVICE),
    ("", {}, {}, "not-tls", USER),
]


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1:DeprecationWarning")
@pytest.mark.parametrize(("server", "context", "client", "why", "whose"), TLS)
def test_tls(serve, pairs, folder, server, context, client, why, whose):
    paths = {"no file": folder / "none", "an empty file": folder / "empty", "a broken file": folder / "broken"}
    paths["an empty folder"] = folder / "nothing"
    paths["an empty file"].write_text("")
    paths["a broken file"].write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    paths["an empty folder"].mkdir(exist_ok=True)

    def file(name: str, end: str = "certificate") -> str:
        return str(paths.get(name) or getattr(pairs[name], end))

    options = {"verify": file(client.get("verify", "authority"))}
    if shown := client.get("cert"):
        certificate, key = (shown, shown) if isinstance(shown, str) else shown
        options["cert"] = (file(certificate), file(key, "key"))
    url = serve(server, **context).replace("http:", "https:")
    error = raised(url, **options)
    assert cause(error, "certificate" if shown else "nothing") == (why, whose)
    token = cause(error, "token")  # with a token nothing is said about a certificate that was never shown
    assert shown or token[0] not in {"credentials-refused", "credentials-expired"}


def accept(what: Callable[[socket.socket], None]) -> Callable[[], tuple[str, Callable[[], None]]]:
    """Return what listens, and does this with each connection."""

    def start() -> tuple[str, Callable[[], None]]:
        listener = socket.create_server(("127.0.0.1", 0))
        over = threading.Event()

        def work() -> None:
            while not over.is_set():
                with contextlib.suppress(OSError):
                    connection, _ = listener.accept()
                    what(connection)

        thread = threading.Thread(target=work)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"

        def stop() -> None:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            thread.join(30)

        return url, stop

    return start


def reset(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def says(text: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(text)
        connection.close()

    return answer


held: list[socket.socket] = []
CONNECTIONS = [
    (reset, {}, "connection-lost", SERVICE),
    (says(b""), {}, "connection-lost", SERVICE),
    (says(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"), {}, "connection-lost", SERVICE),
    (says(b"SSH-2.0-OpenSSH_9.2\r\n"), {}, "not-understood", SERVICE),
    (held.append, {"seconds": 0.2}, "no-answer", SERVICE),
]


@pytest.mark.parametrize(("does", "options", "why", "whose"), CONNECTIONS)
def test_connections(does, options, why, whose):
    url, stop = accept(does)()
    try:
        error = raised(url, **options)
        assert cause(error) == (why, whose)
        assert faults.judge(Facts.of(error, Peer.STORAGE)).party == SITE
        assert faults.judge(Facts.of(error, Peer.FTS)).in_doubt
    finally:
        stop()
        while held:
            held.pop().close()


def unused() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


@pytest.mark.parametrize(
    ("url", "why", "whose"),
    [
        ("http://{unused}/", "down", SERVICE),
        ("https://no-such-host.invalid/", "name", USER),
        (f"https://{'a' * 70}.example.org/", "address", USER),
        ("http://127.0.0.1:99999/", "address", USER),
        ("ftp://127.0.0.1/", "address", USER),
        ("http:///x", "address", USER),
    ],
)
def test_addresses(url, why, whose):
    error = raised(url.format(unused=unused()))
    assert cause(error) == (why, whose)
    assert not faults.judge(Facts.of(error, Peer.FTS)).in_doubt


PROXIES = [  # what the proxy answers (0: it is not there), what is asked, cause
    (403, "https://host.invalid/", {}, "proxy-refused"),
    (407, "https://host.invalid/", {}, "proxy-login"),
    (503, "https://host.invalid/", {}, "proxy-down"),
    (0, "https://host.invalid/", {}, "proxy-down"),
    (0, "http://host.invalid/", {}, "proxy-down"),
    (200, "http://host.invalid/", {"headers": {"Authorization": "Bearer opaque"}}, "proxy-plain-http"),
    (200, "http://host.invalid/", {"headers": {"X-Rucio-Password": "hunter2"}}, "proxy-plain-http"),
    (200, "http://host.invalid/", {"headers": {"X-Rucio-Auth-Token": "opaque"}}, "proxy-plain-http"),
]


@pytest.mark.parametrize(("status", "url", "options", "why"), PROXIES)
def test_a_proxy_is_named_and_never_sees_a_secret(serve, monkeypatch, status, url, options, why):
    place = serve(status=status).split("/")[2] if status else unused()
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, f"http://me:hunter2@{place}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    error = raised(url, **options)
    assert cause(error) == (why, USER)
    fault = faults.judge(Facts.of(error, Peer.FTS))
    told = fault.message(faults.detail(error))
    assert place in told
    assert "hunter2" not in f"{told} {fault.hint}"
    assert not fault.in_doubt
    assert not [line for server in serve.servers for line in server.seen if "opaque" in line or "Rucio" in line]


@pytest.mark.parametrize("proxy", ["socks5h://127.0.0.1:9", "ftp://127.0.0.1:9", "http://:3128"])
def test_a_proxy_of_another_kind(monkeypatch, proxy):
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ALL_PROXY", proxy)
    assert cause(raised("https://host.invalid/")) == ("proxy-unusable", USER)


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "socks5h://127.0.0.1:9"])
def test_this_machine_is_reached_without_a_proxy(serve, monkeypatch, name, proxy):
    for other in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, proxy)
    url = serve()
    with Session(Adapter(ExchangeLimits(60))) as session:
        for host in ("127.0.0.1", "localhost"):
            address = url.replace("127.0.0.1", host)
            assert session.get(address, timeout=30, headers={"Authorization": "x"}).status_code == 200


def test_too_many_open_files(serve, pairs):
    url = serve("server")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    options = {"verify": str(pairs["authority"].certificate)}
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, limits[1]))
    try:
        error = raised(url, **options)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert cause(error) == ("descriptors", USER)
