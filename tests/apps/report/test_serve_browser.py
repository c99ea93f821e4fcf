"""The live page in a real Chromium: what the ledger gets is shown without reload, and nothing else is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dc_inject.apps.report import page
from dc_inject.apps.report.serving import Pages
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.metrics import page as server
from dc_inject.model import Cycle, FlowKey, Link
from dc_inject.summary import figures
from dc_inject.summary.figures import ReportScope
from tests import browser
from tests.apps.report.test_serve import ask
from tests.browser import Browser
from tests.cli.ledgers import CYCLE, GB, START

pytest.importorskip("vl_convert")
EVERY = 0.2  # seconds


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser.running(tmp_path_factory.mktemp("profile")) as started:
        yield started


def make(path: Path) -> bytes:
    with LedgerView.open(path) as view:
        told = figures.report(view, ReportScope(), None, CYCLE.end)
    assert told is not None
    return page.html(told, EVERY).encode()


def cycle(path: Path, number: int, *destinations: str) -> None:
    """Have one more cycle in the ledger."""
    one = Cycle(START + number * CYCLE.length, CYCLE.length)
    keys = [FlowKey("export", Link("CERN", name)) for name in destinations]
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.open_cycle(one, {key: (rank * GB, None) for rank, key in enumerate(keys, 1)}, one.start)
        ledger.close_cycle(one, one.end)


def test_what_the_ledger_gets_is_shown_without_reload(chromium: Browser, tmp_path: Path) -> None:
    """What was unfolded or sorted stays so; the page asks its own address and no other."""
    path = tmp_path / "dc27.sqlite"
    cycle(path, 0, "KIT", "PIC")
    pages = Pages({"dc27": path}, make, EVERY)
    # A busy machine may need longer for the first one than a browser waits.
    assert any(ask(pages)[0] == "200" for _ in range(10))
    with server.serve(pages, "127.0.0.1:0") as place:
        opened = chromium.page(f"http://{place}/")
        opened.run("window.isTheSame = true")
        opened.run("document.querySelector('#over-time details').open = true")
        opened.run("document.querySelector('#destinations th > button').click()")
        cycle(path, 1, "KIT", "PIC", "ARNES")
        opened.until("document.querySelector('#destinations tbody').rows.length === 3")
        assert opened.run("window.isTheSame")
        assert opened.run("document.querySelector('#over-time details').open")
        names = "Array.from(document.querySelector('#destinations tbody').rows, row => row.cells[0].textContent)"
        assert opened.run(names) == ["ARNES", "KIT", "PIC"]
        assert opened.run("document.querySelectorAll('#over-time tbody tr').length") == 2
        opened.until("document.getElementById('renewed').textContent.startsWith('Renewed ')")
        assert opened.run("Array.from(document.querySelectorAll('main > *'), one => one.id).slice(0, 3)") == [
            "top",
            "parts",
            "verdict",
        ]
        assert opened.errors == []
        assert set(opened.requests) == {f"http://{place}/"}
        # A part that is new comes in its place, and one that is gone goes.
        with Ledger.open(path) as ledger:
            ledger.change("me", "note", "token trouble", START)
        opened.until("document.getElementById('marks')?.textContent.includes('token trouble')")
        assert opened.run("document.getElementById('marks').nextElementSibling.id") == "method"
    opened.until("document.getElementById('renewed').textContent.startsWith('No answer')")
    assert opened.run("window.isTheSame")
