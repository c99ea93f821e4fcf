"""Reports that are served: read-only, to browsers on this machine, made when somebody asks and not more often."""

from __future__ import annotations

import shutil
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dc_inject.apps.report import serving
from dc_inject.apps.report.serving import Pages
from dc_inject.ledger import Ledger
from dc_inject.metrics import Metrics
from dc_inject.metrics.page import only_here
from dc_inject.model.errors import ServiceError, UsageError
from tests.cli.ledgers import CYCLE, FNAL, GB, run

HERE = "127.0.0.1:9466"


Answer = tuple[str, dict[str, str], bytes]


def ask(app: Pages, path: str = "/", method: str = "GET", host: str | None = HERE, **more: str) -> Answer:
    """Ask the app as a server does."""
    heard: list[Any] = []
    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, **more} | ({} if host is None else {"HTTP_HOST": host})
    body = b"".join(only_here(app)(environ, lambda status, headers: heard.extend([status, dict(headers)])))
    return heard[0][:3], heard[1], body


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "dc27.sqlite"
    with Ledger.open(path, synchronous="OFF") as made:
        made.open_cycle(CYCLE, {FNAL: (GB, None)}, CYCLE.start)
        made.close_cycle(CYCLE, CYCLE.end)
    return path


@pytest.fixture
def pages(ledger: Path) -> Pages:
    return Pages({"dc27": ledger}, lambda path: f"<p>{path.name}</p>".encode(), 10)


def test_a_page_may_do_nothing_but_renew_itself(pages: Pages) -> None:
    """Whatever the answer is, its headers say so."""
    for path, method, host, status in (
        ("/", "GET", HERE, "200"),
        ("/none", "GET", HERE, "404"),
        ("/", "POST", HERE, "405"),
    ):
        found, headers, _ = ask(pages, path, method, host)
        assert found == status
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")
        assert "connect-src 'self'" in policy
        assert policy.endswith("frame-ancestors 'none'")
        assert "unsafe-inline" not in policy.partition("script-src")[2]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("host", [HERE, "127.0.0.1", "localhost:8080", "localhost", "[::1]:9466", "[::1]"])
def test_names_of_this_machine_are_answered(pages: Pages, host: str) -> None:
    """Of a tunnel the port is another one."""
    assert ask(pages, host=host)[::2] == ("200", b"<p>dc27.sqlite</p>")


@pytest.mark.parametrize(
    "host",
    [None, "", "evil.example.org", "127.0.0.1.evil.org", "localhost.evil.org:9466", "127.0.0.1:x", "::1", ":"],
)
def test_other_names_are_not(pages: Pages, host: str | None) -> None:
    """A page elsewhere whose name leads here is of another origin, and must not read this one; nor metrics."""
    status, _, body = ask(pages, host=host)
    assert (status, b"dc27" in body) == ("403", False)
    with_metrics = Pages({}, lambda path: b"", 10, lambda environ, start: pytest.fail("asked"))
    assert ask(with_metrics, "/metrics", host=host)[0] == "403"


def test_only_reading_is_allowed(pages: Pages) -> None:
    """HEAD has the headers alone."""
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
        status, headers, _ = ask(pages, method=method)
        assert (status, headers["Allow"]) == ("405", "GET, HEAD")
    status, headers, body = ask(pages, method="HEAD")
    assert (status, headers["Content-Length"], body) == ("200", str(len(b"<p>dc27.sqlite</p>")), b"")


def test_several_campaigns_are_listed(tmp_path: Path, ledger: Path) -> None:
    """Each has a page of its own; nothing else is reached by a name."""
    pytest.importorskip("jinja2")
    pages = Pages({"a": ledger, "b": ledger}, lambda path: b"page", 10)
    status, _, body = ask(pages)
    assert status == "200"
    assert b'<a href="/campaign/a">' in body
    assert ask(pages, "/campaign/b")[::2] == ("200", b"page")
    for path in ("/campaign/../b", "/campaign/", "/a/b", "/campaign/c", f"/campaign/{ledger}"):
        assert ask(pages, path)[0] == "404"


def test_a_page_is_made_anew_only_for_a_changed_ledger_and_not_too_often(
    ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known already is not sent again."""
    now = [1000.0]
    monkeypatch.setattr(serving.time, "monotonic", lambda: now[0])
    made: list[Path] = []

    def make(path: Path) -> bytes:
        made.append(path)
        return b"page %d" % len(made)

    pages = Pages({"dc27": ledger}, make, 10)
    _, headers, body = ask(pages)
    assert body == b"page 1"
    assert ask(pages, HTTP_IF_NONE_MATCH=headers["ETag"])[::2] == ("304", b"")
    now[0] += 30
    assert ask(pages)[2] == b"page 1", "nothing has changed"
    with Ledger.open(ledger) as changed:
        changed.change("me", "note", "x", CYCLE.end)
        assert ask(pages, HTTP_IF_NONE_MATCH=headers["ETag"])[::2] == ("200", b"page 2")
        now[0] += 9
        changed.change("me", "note", "y", CYCLE.end)
        assert ask(pages)[2] == b"page 2", "too soon"
        now[0] += 1
        assert ask(pages)[2] == b"page 3"
    now[0] += serving.UNCHANGED
    assert ask(pages)[2] == b"page 4"


def test_whoever_asks_while_a_page_is_made_waits_and_it_is_made_once(ledger: Path) -> None:
    """However many there are."""
    going, made = threading.Event(), []

    def make(path: Path) -> bytes:
        made.append(path)
        assert going.wait(60)
        return b"page"

    pages = Pages({"dc27": ledger}, make, 10)
    found: list[bytes] = []
    askers = [threading.Thread(target=lambda: found.append(ask(pages)[2])) for _ in range(5)]
    for asker in askers:
        asker.start()
    going.set()
    for asker in askers:
        asker.join(60)
    assert (found, len(made)) == ([b"page"] * 5, 1)


def failing(error: Exception) -> Callable[[Path], bytes]:
    def make(path: Path) -> bytes:
        raise error

    return make


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ServiceError("no <cycle> so far"), b"no &lt;cycle&gt; so far"),
        (KeyError("secret"), b"cannot be made: KeyError"),
    ],
)
def test_a_page_that_cannot_be_made_says_why_and_is_asked_again(
    ledger: Path, error: Exception, says: bytes
) -> None:
    """And a browser asks again by itself."""
    pytest.importorskip("jinja2")
    status, headers, body = ask(Pages({"dc27": ledger}, failing(error), 10))
    assert (status, headers["Retry-After"]) == ("503", "5")
    assert says in body
    assert b"secret" not in body
    assert b'http-equiv="refresh"' in body


def get(place: str, path: str, **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(f"http://{place}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=90) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def made(place: str, status: int, words: bytes) -> bytes:
    """Ask until the page is made, which takes its time on a busy machine, and return it."""
    deadline = time.monotonic() + 300
    while True:
        found, body = get(place, "/")
        if (found, words in body) == (status, True):
            return body
        assert found == 503, body
        assert time.monotonic() < deadline, body


def test_the_page_and_metrics_share_a_port_on_this_machine(ledger: Path) -> None:
    """Made by a process of its own, from the ledger; the port is closed afterwards."""
    pytest.importorskip("vl_convert")
    with serving.serve_pages({"dc27": ledger}, 0, metrics=Metrics(ledger, "dc27").app()) as place:
        assert place.startswith("127.0.0.1:")
        assert b'data-every="10"' in made(place, 200, b"<h1>Report: dc27</h1>")
        status, body = get(place, "/metrics")
        assert (status, b"dc_inject_due_bytes_total" in body) == (200, True)
        assert get(place, "/", Host="evil.example.org")[0] == 403
    with pytest.raises(urllib.error.URLError):
        get(place, "/")


def test_a_ledger_without_a_cycle_says_so(tmp_path: Path) -> None:
    """Until there is one."""
    pytest.importorskip("vl_convert")
    Ledger.open(tmp_path / "new.sqlite").close()
    with serving.serve_pages({"new": tmp_path / "new.sqlite"}, 0) as place:
        assert made(place, 503, b"no cycle")


def test_a_campaign_that_is_named_twice_is_served_once(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one ledger, however it is called; which of two ledgers is meant nobody can know."""
    monkeypatch.chdir(ledger.parent)
    assert serving.find_ledgers([str(ledger), ledger.name]) == {"dc27": ledger}
    (elsewhere := ledger.parent / "elsewhere").mkdir()
    copy = Path(shutil.copy(ledger, elsewhere))
    with pytest.raises(UsageError, match=f"{ledger} and {copy} "):
        serving.find_ledgers([str(ledger), str(copy)])


def test_what_cannot_be_served_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No campaign, one without a ledger, and a menu where a port is expected."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert isinstance(run("serve").exception, UsageError)
    assert "no ledger" in str(run("serve", "nobody").exception)
    done = run("run", "--serve", "menu.yaml")
    assert done.exit_code == 2
    assert "--serve behind" in done.stderr
