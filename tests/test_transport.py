"""The gate: no exchange takes longer, or more bytes, than it may, and nothing goes by another way."""

from __future__ import annotations

import ast
import itertools
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

import dc_inject
from dc_inject.system import transport
from dc_inject.system.transport import Adapter, Exchange, ExchangeLimits, Session
from dc_inject.system.transport_errors import (
    Compressed,
    ProxyUnusable,
    Redirected,
    TooLarge,
    TooLong,
    Unverified,
)
from tests.gate import Server, bomb, drip, endless, json_answer, raw, redirect, running, silence

MB = 1_000_000
OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def other() -> Iterator[Server]:
    with running() as server:
        yield server


def session(seconds: float = 60, most: int = MB, clock=None) -> Session:
    return Session(Adapter(ExchangeLimits(seconds, most, *([clock] if clock else []))))


def get(server: Server, **limits) -> bytes:
    with session(**limits) as one:
        return one.get(f"{server.url}/x", timeout=30).content


def test_what_keeps_to_the_bounds_comes_whole(server: Server):
    server.answers["/"] = json_answer("1" * 500_000)
    assert get(server) == b"1" * 500_000


@pytest.mark.parametrize(
    "trick",
    [
        endless(),
        endless(Transfer_Encoding="chunked", start=b"1869f\r\n" + b"1" * 99_999 + b"\r\n", piece=b"1\r\n1\r\n"),
        raw(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1" * 10_000),
        raw(OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n" * 1000),
        raw(b"HTTP/1.1 100 Continue\r\n", b"X: y\r\n\r\nHTTP/1.1 100 Continue\r\n"),
    ],
    ids=["body", "chunks", "length of a chunk", "trailers", "interim answers"],
)
def test_an_answer_without_end_is_ended(server: Server, trick):
    server.answers["/"] = trick
    # Who comes first, our bound or the library's own on a line, hangs on how the bytes arrive.
    words = r"^127\.0\.0\.1: (the answer is larger than 1 MB|a line of)|chunk size line exceeded|interim resp"
    with pytest.raises(
        (TooLarge, requests.ConnectionError, requests.exceptions.ChunkedEncodingError), match=words
    ):
        get(server)
    assert server.sent < 20 * MB  # what the kernel's buffers took is not with us


def test_of_large_answers_of_a_host_one_is_received_at_a_time(server: Server, monkeypatch: pytest.MonkeyPatch):
    """The others wait; small ones, and those of other hosts, do not."""
    monkeypatch.setattr(transport, "LARGE", MB)
    server.answers["/x"] = json_answer("1" * 3 * MB)
    server.answers["/small"] = json_answer("1" * 1000)
    with session(most=10 * MB) as first, session(seconds=0.5, most=10 * MB) as second:
        begun = first.get(f"{server.url}/x", timeout=30, stream=True)
        pieces = begun.iter_content(2 * MB)
        received = len(next(pieces))
        with pytest.raises(TooLong):
            second.get(f"{server.url}/x", timeout=30)
        assert len(second.get(f"{server.url}/small", timeout=30).content) == 1000
        elsewhere = server.url.replace("127.0.0.1", "localhost")
        assert len(second.get(f"{elsewhere}/x", timeout=30).content) == 3 * MB
        assert received + sum(map(len, pieces)) == 3 * MB
        assert len(second.get(f"{server.url}/x", timeout=30).content) == 3 * MB


def test_a_large_answer_that_is_given_up_lets_the_next_one_come(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transport, "LARGE", MB // 2)
    server.answers["/"] = endless()
    for _ in range(2):
        with pytest.raises(TooLarge):
            get(server, seconds=30)


THREADS = """
import sys, threading
from pathlib import Path
from dc_inject.system.transport import Adapter, ExchangeLimits, Session

kept = []

def ask():
    for _ in range(2):
        try:
            session.get(sys.argv[1], timeout=60)
        except Exception as error:
            kept.append(error)

session = Session(Adapter(ExchangeLimits(60)))
threads = [threading.Thread(target=ask) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(kept) == 16
print(int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024)
"""


def test_large_answers_to_many_threads_need_the_memory_of_a_few(server: Server):
    """Also while the errors about them are kept: each of 16 answers had 64 MB, of which half a GB stayed."""
    server.answers["/"] = endless(
        Transfer_Encoding="chunked", start=b"", piece=b"10000\r\n" + b"1" * 65_536 + b"\r\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", THREADS, f"{server.url}/x"], capture_output=True, timeout=120, check=True
    )
    assert int(done.stdout) < 250 * MB, done.stdout


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nX: "])
def test_headers_without_end_are_ended(server: Server, start):
    server.answers["/"] = raw(start, b"X: y\r\n" if start.endswith(b"\n") else b"y" * 1000)
    with pytest.raises(requests.ConnectionError):
        get(server)
    assert server.sent < 20 * MB


def test_a_compressed_answer_is_not_unpacked(server: Server):
    server.answers["/"] = bomb()
    tracemalloc.start()
    try:
        with pytest.raises(Compressed):
            get(server, most=100 * MB)
        assert tracemalloc.get_traced_memory()[1] < 20 * MB
    finally:
        tracemalloc.stop()
    assert server.headers[0]["Accept-Encoding"] == "identity"


def test_an_error_that_is_compressed_is_still_an_error(server: Server):
    server.answers["/"] = json_answer("no gzip", 500, Content_Encoding="gzip")
    with session() as one:
        answer = one.get(f"{server.url}/x", timeout=30)
    assert (answer.status_code, answer.content) == (500, b"no gzip")


@pytest.mark.parametrize(
    "start", [b"HT", OK, OK + b"X-Slow: ", OK + b"\r\n", OK + b"Transfer-Encoding: chunked\r\n\r\n"]
)
def test_an_answer_that_drips_is_ended(server: Server, start):
    """The clock leaps with each byte, so that no pause of the test's machine decides."""
    server.answers["/"] = drip(start)
    leaping = itertools.count()
    with pytest.raises(TooLong, match=r"^127\.0\.0\.1: .* 20 s$"):
        get(server, seconds=20, clock=lambda: next(leaping))
    assert server.sent < 100


def test_a_body_that_is_sent_counts_as_well(server: Server):
    server.answers["/"] = silence()  # an early answer would end the sending before the clock does
    leaping = itertools.count()
    pieces = (b"x" * 1000 for _ in range(1000))
    with session(seconds=20, clock=lambda: next(leaping)) as one, pytest.raises(TooLong):
        one.put(f"{server.url}/x", data=pieces, timeout=30)


def test_all_hosts_of_a_redirect_share_one_time(server: Server):
    server.answers["/"] = json_answer("{}")
    now = [0.0]
    limits = ExchangeLimits(10, MB, lambda: now[0])
    exchange = Exchange("first", limits)
    with session() as one:
        with exchange.under_way():
            one.get(f"{server.url}/x", timeout=30)
        now[0] = 11
        with exchange.under_way(), pytest.raises(TooLong, match="first"):
            one.get(f"{server.url}/x", timeout=30)


def test_the_next_exchange_on_a_kept_connection_has_its_own_time(server: Server):
    server.answers["/"] = json_answer("{}")
    now = [0.0]
    with session(seconds=10, clock=lambda: now[0]) as one:
        for moment in (0, 100, 200):
            now[0] = moment
            assert one.get(f"{server.url}/x", timeout=30).ok


def test_a_line_without_end_is_ended(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transport, "LONGEST_LINE", MB)
    server.answers["/"] = endless(Content_Type="application/x-json-stream")
    with session(most=100 * MB) as one, pytest.raises(TooLarge, match="a line of"):
        list(transport.lines(one.get(f"{server.url}/x", timeout=30, stream=True)))


def test_lines_are_those_that_were_sent(server: Server):
    server.answers["/"] = json_answer("a\n\nbb\n" + "c" * 200_000 + "\nd")
    with session() as one:
        found = list(transport.lines(one.get(f"{server.url}/x", timeout=30, stream=True)))
    assert found == [b"a", b"", b"bb", b"c" * 200_000, b"d"]


@pytest.mark.parametrize(
    ("kind", "stream", "asked_for", "fits"),
    [
        ("application/x-json-stream", True, True, True),
        ("application/x-json-stream", True, False, False),
        ("application/x-json-stream", False, True, False),
        ("application/json", True, True, False),
    ],
)
def test_only_what_is_read_line_by_line_may_be_long(server: Server, kind, stream, asked_for, fits):
    server.answers["/"] = json_answer("x\n" * MB, Content_Type=kind)

    def read() -> int:
        with session() as one:
            if not asked_for:
                return len(list(transport.lines(one.get(f"{server.url}/x", timeout=30, stream=stream))))
            with transport.listing():
                answer = one.get(f"{server.url}/x", timeout=30, stream=stream)
            return len(list(transport.lines(answer)))

    if fits:
        assert read() == MB
    else:
        with pytest.raises(TooLarge):
            read()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_to_another_server_is_followed(server: Server, other: Server, status):
    server.answers["/"] = redirect(other.url.replace("127.0.0.1", "localhost"), status)
    with session() as one, pytest.raises(Redirected, match="to localhost"):
        one.get(f"{server.url}/x", timeout=30, headers={"X-Password": "hunter2"})
    assert other.asked == []


def test_another_port_or_an_unreadable_address_is_another_server(server: Server, other: Server):
    for where in (other.url, server.url.replace("//", "//me:hunter2@"), "https://[", "ftp://127.0.0.1"):
        server.answers["/"] = redirect(where)
        with session() as one, pytest.raises(Redirected) as caught:
            one.get(f"{server.url}/x", timeout=30)
        assert "hunter2" not in str(caught.value)
    assert other.asked == []


def test_a_redirect_on_the_same_server_is_followed_a_few_times(server: Server):
    server.answers["/accounts/whoami"] = json_answer("", 303, Location="/accounts/me")
    server.answers["/accounts/me"] = json_answer("me")
    server.answers["/round"] = json_answer("", 302, Location=f"{server.url}/round")
    with session() as one:
        answer = one.get(f"{server.url}/accounts/whoami", timeout=30, headers={"X-Token": "t"})
        assert (answer.content, server.headers[-1]["X-Token"]) == (b"me", "t")
        with pytest.raises(requests.TooManyRedirects):
            one.get(f"{server.url}/round", timeout=30)
    assert len(server.asked) == 8


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["DELETE", "POST", "PUT"])
def test_what_changes_something_follows_no_redirect(server: Server, method: str, status: int):
    """What is meant for a job of ours would be done to somebody else's thing on the same server."""
    server.answers["/jobs"] = redirect(f"{server.url}/somebody/elses", status)
    with session() as one, pytest.raises(Redirected, match=f" {status}, "):
        one.request(method, f"{server.url}/jobs/1", timeout=30)
    assert server.asked == [f"{method} /jobs/1"]


def test_nothing_is_sent_where_tls_would_not_be_verified():
    with session() as one:
        for off in (False, ""):
            with pytest.raises(Unverified, match=r"^host\.invalid: "):
                one.get("https://host.invalid/", verify=off, timeout=1)


def test_of_the_environment_only_proxies_and_authorities_are_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.org:3128")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/bundle")
    with session() as one:
        found = one.merge_environment_settings("https://host.example.org", {}, True, True, None)
        told = one.merge_environment_settings("https://host.example.org", {}, True, "/told", None)
    assert found["proxies"]["https"] == "http://proxy.example.org:3128"
    assert (found["verify"], told["verify"]) == ("/bundle", "/told")


def test_netrc_is_not_read(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password hunter2\n")
    monkeypatch.setenv("NETRC", str(netrc))
    server.answers["/"] = json_answer("{}")
    get(server)
    assert "Authorization" not in server.headers[0]


def test_what_goes_by_a_proxy_is_bounded_as_well(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", server.url)
    monkeypatch.setenv("NO_PROXY", "")
    server.answers["/"] = endless()
    with session() as one, pytest.raises(TooLarge):
        one.get("http://host.invalid/x", timeout=30)
    with session() as one, pytest.raises(ProxyUnusable):
        one.get("http://host.invalid/x", timeout=30, proxies={"http": "socks5://127.0.0.1:1"})


def test_an_answer_that_came_by_another_way_is_not_handed_on(server: Server, monkeypatch: pytest.MonkeyPatch):
    server.answers["/"] = json_answer("{}")
    adapter = Adapter(ExchangeLimits(10))
    adapter.poolmanager.pool_classes_by_scheme = requests.adapters.HTTPAdapter().poolmanager.pool_classes_by_scheme
    with Session(adapter) as one, pytest.raises(AssertionError, match="without bounds"):
        one.get(f"{server.url}/x", timeout=30)


# No call without the gate

HOME = Path(dc_inject.__file__).parent
CLIENTS = {"urllib.request", "http.client", "ftplib", "aiohttp", "httpx", "pycurl"}
ONLY = {  # of `requests`, what may be named elsewhere: what it returns and raises, but nothing that calls
    "Response", "PreparedRequest", "Session", "RequestException", "Timeout", "ConnectTimeout", "ConnectionError",
    "ReadTimeout", "exceptions", "utils", "DEFAULT_CA_BUNDLE_PATH",
}  # fmt: skip


def ours() -> list[Path]:
    """All modules but the gate, and the sandbox, which is a world of its own and talks to this machine only."""
    files = [file for file in HOME.rglob("*.py") if "sandbox" not in file.relative_to(HOME).parts]
    return [file for file in files if file != HOME / "system" / "transport.py"]


def faults(tree: ast.AST) -> list[str]:
    """What in a module could make a connection."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
                found += [name for name in modules if name in CLIENTS or name.startswith(("urllib3", "requests."))]
            case ast.ImportFrom(module=str(module), names=names):
                what = {alias.name for alias in names}
                if (
                    module in CLIENTS
                    or (module == "urllib" and "request" in what)
                    or (module, "client")
                    == (
                        "http",
                        next(iter(what)),
                    )
                ):
                    found.append(module)
                if module.partition(".")[0] in {"requests", "urllib3"}:
                    fine = module.endswith("exceptions") or what <= ONLY - {"Session"}
                    found += [] if fine else [f"{module}: {sorted(what)}"]
            case ast.Attribute(value=ast.Name(id="requests"), attr=name) if name not in ONLY:
                found.append(f"requests.{name}")
            case ast.Call(func=ast.Attribute(value=ast.Name(id="requests"), attr=name)):
                found.append(f"requests.{name}()")
            case ast.Attribute(value=ast.Name(id="socket"), attr="create_connection" | "connect" as name):
                found.append(f"socket.{name}")
    return found


def test_no_module_makes_a_connection_by_itself():
    found = {str(file.relative_to(HOME)): faults(ast.parse(file.read_text())) for file in ours()}
    assert len(found) > 300
    assert {name: some for name, some in found.items() if some} == {}


@pytest.mark.parametrize(
    "text",
    [
        "import requests\nrequests.get('x')",
        "import requests\nrequests.Session()",
        "from requests import get",
        "from requests import Session",
        "from requests.adapters import HTTPAdapter",
        "import requests.adapters",
        "import urllib3",
        "from urllib3 import PoolManager",
        "import urllib.request",
        "from urllib import request",
        "from urllib.request import urlopen",
        "import http.client",
        "from http import client",
        "from http.client import HTTPConnection",
        "import socket\nsocket.create_connection(('x', 1))",
    ],
)
def test_a_call_without_the_gate_would_be_found(text: str):
    assert faults(ast.parse(text))
