"""What `run --once` publishes is read by a real node_exporter and Pushgateway, and nothing of it harms a run."""

from __future__ import annotations

import logging
import os
import socket
import stat
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from dc_inject.ledger import Ledger
from dc_inject.metrics import Metrics, publishing
from dc_inject.model.errors import UsageError
from tests.cli.ledgers import FNAL, GB, make
from tests.metrics.prometheus import free_address, needed, serving, until

DUE = 'dc_inject_due_bytes_total{campaign="dc27",destination="T1_US_FNAL_Disk",'


@pytest.fixture
def metrics(tmp_path: Path) -> Metrics:
    """Those of a campaign with a link that is due 450 GB."""
    return Metrics(make(tmp_path / "dc27.sqlite", {FNAL: 2}).path, "dc27")


def page(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def line(text: str, start: str) -> str:
    return next((one for one in text.splitlines() if one.startswith(start)), "")


def test_a_textfile_is_there_as_a_whole_and_everybody_may_read_it(metrics: Metrics, tmp_path: Path) -> None:
    """node_exporter runs as another user; the umask of cron and the mode of an old file do not matter."""
    path = tmp_path / "dc27.prom"
    before = os.umask(0o077)
    try:
        for old_mode in (None, 0o600):
            if old_mode is not None:
                path.chmod(old_mode)
            publishing.to_textfile(metrics.text(), path)
            assert stat.S_IMODE(path.stat().st_mode) == 0o644
    finally:
        os.umask(before)
    assert line(path.read_text(), DUE)
    assert sorted(one.name for one in tmp_path.iterdir() if "prom" in one.name) == ["dc27.prom"]


def test_a_real_node_exporter_reads_the_textfile(metrics: Metrics, tmp_path: Path) -> None:
    exporter, folder, address = needed("prometheus-node-exporter"), tmp_path / "textfiles", free_address()
    folder.mkdir()
    publishing.to_textfile(metrics.text(), folder / "dc27.prom")
    command = [
        str(exporter),
        "--collector.disable-defaults",
        "--collector.textfile",
        f"--collector.textfile.directory={folder}",
        f"--web.listen-address={address}",
    ]
    with serving(command, tmp_path / "log"):
        until(lambda: page(address), (tmp_path / "log").read_text())
        text = page(address)
    assert float(line(text, DUE).split()[-1]) == 450 * GB
    assert line(text, "node_textfile_scrape_error ") == "node_textfile_scrape_error 0"
    assert 'node_textfile_mtime_seconds{file="' in text


def test_a_real_pushgateway_keeps_what_the_last_run_sent(metrics: Metrics, tmp_path: Path) -> None:
    """Of each campaign the last; another campaign's stays."""
    gateway, address = needed("prometheus-pushgateway"), free_address()
    with serving([str(gateway), f"--web.listen-address={address}"], tmp_path / "log"):
        until(lambda: page(address), (tmp_path / "log").read_text())
        url = f"http://{address}/"
        publishing.to_pushgateway(metrics.text(), url, "dc27")
        publishing.to_pushgateway(Metrics(tmp_path / "none.sqlite", "other").text(), url, "other")
        assert float(line(page(address), DUE).split()[-1]) == 450 * GB
        with Ledger.open(tmp_path / "dc27.sqlite", synchronous="OFF") as ledger:
            ledger.pause("*", "me", "lunch", ledger.entries()[0].injection.release)
        publishing.to_pushgateway(metrics.text(), url, "dc27")
        text = page(address)
    pauses = line(text, 'dc_inject_pauses{campaign="dc27"')
    assert 'job="dc_inject"' in pauses
    assert pauses.endswith(" 1")
    assert line(text, 'dc_inject_ledger_up{campaign="other"').endswith(" 0")
    assert line(text, 'push_failure_time_seconds{campaign="dc27"').endswith(" 0")


# --------------------------------------------------------------------------- what goes wrong


def test_a_pushgateway_that_hangs_is_given_up_and_told(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It takes the connection, and never says a word."""
    monkeypatch.setattr(publishing, "LONGEST", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        publishing.to_pushgateway(metrics.text(), url, "dc27")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "not published" in record.getMessage()


def test_a_pushgateway_that_is_down_or_refuses_is_told_without_secrets(
    metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    down = free_address()
    publishing.to_pushgateway(metrics.text(), f"http://me:secret-word@{down}", "dc27")
    with answering(400, b"text format parsing error\x1b[2J") as address:
        publishing.to_pushgateway(metrics.text(), f"http://{address}", "dc27")
    first, second = (record.getMessage() for record in caplog.records)
    assert down in first
    assert "secret-word" not in first
    assert "answered 400: text format parsing error [2J" in second


class answering:  # noqa: N801  a context
    """A server that gives one answer to everything."""

    def __init__(self, status: int, body: bytes) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> str:
        self._thread.start()
        return f"127.0.0.1:{self._server.server_port}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def test_a_textfile_that_cannot_be_written_is_told(
    metrics: Metrics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    publishing.to_textfile(metrics.text(), tmp_path / "gone" / "dc27.prom")
    assert ["not published" in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ({"textfile": "dc27.txt"}, ".prom"),
        ({"textfile": "nowhere/dc27.prom"}, "no folder"),
        ({"pushgateway": "localhost:9091"}, "no address"),
        ({"pushgateway": "http://"}, "no address"),
        ({"pushgateway": "http://[::1"}, "no address"),
        ({"pushgateway": "http://127.0.0.1:9091/?token=x"}, "no address"),
        ({"pushgateway": "http://127.0.0.1:9091", "once": False}, "--once"),
        ({"textfile": "dc27.prom", "once": False}, "--once"),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(words: dict[str, object], what: str, tmp_path: Path) -> None:
    textfile = words.get("textfile")
    with pytest.raises(UsageError, match=what) as error:
        publishing.check(
            None if textfile is None else tmp_path / str(textfile),
            words.get("pushgateway"),  # type: ignore[arg-type]
            once=bool(words.get("once", True)),
        )
    assert error.value.hint


def test_what_can_work_is_not_refused_and_what_is_not_wanted_not_asked_for(tmp_path: Path) -> None:
    publishing.check(tmp_path / "a.prom", "https://push.example.org/prefix", once=True)
    publishing.check(None, None, once=False)
    never: Callable[[], bytes] = lambda: pytest.fail("nobody wants it")  # noqa: E731
    publishing.publish(never, "dc27", None, None)
