"""Files read over HTTP, from a server in this process that can misbehave."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dc_inject.apps.reads import records
from dc_inject.apps.reads.reader import HttpSource, Task, read
from dc_inject.apps.reads.records import Progress
from dc_inject.model import ReadOptions
from dc_inject.storage import AccessDenied
from dc_inject.summary.failed_files import classify
from tests.storage.server import DavServer, Handler, running

MB, BLOCK = 10**6, 1000
CONTENT = bytes(range(250)) * 10  # two and a half blocks
TOKEN = "opaque-token-0123456789-abcdefghij-secret"


@pytest.fixture(autouse=True)
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker without credentials, unless a test gives it some."""
    for name in ("X509_USER_PROXY", "X509_USER_CERT", "X509_USER_KEY", "BEARER_TOKEN", "BEARER_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv(records.FOLDER, str(tmp_path / "spool"))


@pytest.fixture
def server() -> Iterator[DavServer]:
    with running() as server:
        for name in ("/dc/0", "/dc/1"):
            server.put(name, CONTENT)
        yield server


def task(server: DavServer, *, fraction: float = 1, trusted: bool = False, scitag: int | None = None) -> Task:
    options = ReadOptions(rate=MB, block=BLOCK, fraction=fraction)
    files = tuple((f"{server.url}/dc/{number}", options.size(len(CONTENT))) for number in range(2))
    return Task("key", files, options, time.time() + 60, scitag, trusted)


def read_all(task: Task) -> Progress:
    read(task)
    return records.load([task.key])[task.key]


def gets(server: DavServer) -> list[dict[str, str]]:
    return [headers for line, headers in zip(server.asked, server.headers, strict=True) if line.startswith("GET")]


def test_files_are_read_block_by_block_and_no_connection_is_left(server):
    done = read_all(task(server, scitag=77))
    assert (done.read, done.files, done.over, done.error) == (2 * len(CONTENT), 2, True, "")
    asked = [headers["Range"] for headers in gets(server)]
    assert asked == ["bytes=0-999", "bytes=1000-1999", "bytes=2000-2499"] * 2
    assert {headers["SciTag"] for headers in gets(server)} == {"77"}
    assert len(server.connections) == 2  # one for each file
    assert {server.ended.get(timeout=120) for _ in range(2)} == set(server.connections)


def test_closing_a_file_closes_its_connections(server):
    source = HttpSource(task(server), f"{server.url}/dc/0", lambda: False)
    assert source.read(0, BLOCK) == BLOCK
    assert server.ended.empty()
    source.close()
    assert server.ended.get(timeout=120) in server.connections


def test_sparse_reads_ask_for_their_parts_only(server):
    done = read_all(task(server, fraction=0.4))
    assert done.read == sum(size for _, size in task(server, fraction=0.4).files) < len(CONTENT) * 2
    assert [headers["Range"] for headers in gets(server)] == ["bytes=0-999"] * 2


def whole(handler: Handler) -> None:
    handler.answer(200, CONTENT)


def other_part(handler: Handler) -> None:
    handler.answer(206, CONTENT[:BLOCK], Content_Range=f"bytes 1-{BLOCK}\x1b[2J/{len(CONTENT)}")


def longer(handler: Handler) -> None:
    first, last = handler.headers["Range"].removeprefix("bytes=").split("-")
    handler.answer(206, CONTENT, Content_Range=f"bytes {first}-{last}/{len(CONTENT)}")


def shorter(handler: Handler) -> None:
    first, last = handler.headers["Range"].removeprefix("bytes=").split("-")
    part = f"bytes {first}-{last}/{len(CONTENT)}"
    handler.answer(206, CONTENT[: BLOCK // 2], Content_Range=part, Content_Length=str(BLOCK), Connection="close")
    handler.close_connection = True


def refuse(status: int) -> Callable[[Handler], None]:
    def refused(handler: Handler) -> None:
        handler.answer(status, ("\U0001f4a5" * 300).encode())  # as long as a record allows

    return refused


def to_plain_http(handler: Handler) -> None:
    handler.answer(302, Location="http://elsewhere.example.org/dc/0")


@pytest.mark.parametrize(
    ("verb", "trick", "reason"),
    [
        ("GET", whole, "source-error"),
        ("GET", other_part, "source-error"),
        ("GET", longer, "source-error"),
        ("GET", shorter, "connection"),
        ("GET", to_plain_http, "source-error"),
        ("GET", refuse(404), "source-missing"),
        ("HEAD", refuse(404), "source-missing"),
        ("GET", refuse(403), "permission"),
        ("GET", refuse(503), "source-error"),
    ],
)
def test_what_is_not_what_was_asked_for_has_failed_and_is_not_counted(server, verb, trick, reason):
    """Of the first file one block comes; the second one is read whole."""
    seen = []

    def once(handler: Handler) -> None:
        seen.append(handler.path)
        if verb == "HEAD" or len(seen) > 1:
            trick(handler)
        else:
            handler.on_get()

    server.tricks[f"{verb} /dc/0"] = once
    done = read_all(task(server))
    assert done.read == len(CONTENT) + (BLOCK if verb == "GET" else 0)
    assert (done.files, dict(done.reasons)) == (1, {reason: 1})
    assert done.error
    assert done.error.isprintable()
    assert classify(done.error) == reason, "as views do"


def test_a_whole_file_may_come_where_all_of_it_was_asked_for(server):
    server.put("/dc/0", CONTENT[:BLOCK])
    server.tricks["GET /dc/0"] = lambda handler: handler.answer(200, CONTENT[:BLOCK])
    assert read_all(task(server)).error == ""


def test_a_token_goes_to_named_hosts_only_and_not_on_by_a_redirect(server, monkeypatch):
    monkeypatch.setenv("BEARER_TOKEN", TOKEN)
    done = read_all(task(server))
    assert (dict(done.reasons), classify(done.error)) == ({"permission": 2}, "permission")
    assert server.asked == []
    with pytest.raises(AccessDenied) as refused:
        HttpSource(task(server), f"{server.url}/dc/0", lambda: False)
    assert TOKEN not in str(refused.value)
    with running() as data:
        data.put("/dc/0", CONTENT)
        server.tricks["GET /dc/0"] = lambda handler: handler.answer(307, Location=f"{data.url}/dc/0")
        source = HttpSource(task(server, trusted=True), f"{server.url}/dc/0", lambda: False)
        assert source.read(0, BLOCK) == BLOCK
        source.close()
        assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {TOKEN}"}
        assert [headers.get("Authorization") for headers in data.headers] == [None]


def test_a_silent_storage_does_not_keep_a_reader_from_stopping(server):
    """The server answers after the reader has ended: it has seen that it is to stop."""
    over, given_up = server.over, []

    def hang(handler: Handler) -> None:
        records.stop(["key"])
        given_up.append(not over.wait(120))

    server.tricks["GET"] = hang
    try:
        done = read_all(task(server))
        assert given_up == []
    finally:
        over.set()
    assert (done.over, done.stopped, done.read) == (True, True, 0)


def test_a_worker_without_the_token_that_it_is_to_use_asks_for_nothing(server, monkeypatch, tmp_path):
    monkeypatch.setenv("BEARER_TOKEN_FILE", str(tmp_path / "gone"))
    done = read_all(task(server, trusted=True))
    assert (done.read, done.files, sum(done.reasons.values())) == (0, 0, 2)
    assert server.asked == []
