"""`watch`: keys sort, filter and scroll, the terminal is left as it was, and trouble with the ledger is shown."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dc_inject.apps.report import watch_figures
from dc_inject.model.errors import LedgerError, UsageError
from tests.apps.report import campaigns_to_watch as campaigns
from tests.apps.report.campaigns_to_watch import LAST, NOW
from tests.cli.ledgers import run

pytest.importorskip("textual")

from textual.widgets import DataTable

from dc_inject.apps.report import command_watch
from dc_inject.apps.report.watch_app import WatchApp
from tests.bench import bench_report
from tests.cli.screens import app, on_screen, on_screens, text

DEADLINE = 60.0
WIDE = (200, 40)
MANY = 300  # links: seven screens


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return campaigns.campaign(tmp_path_factory.mktemp("watch") / "dc27.sqlite")


def played(app: WatchApp, story: Callable[[Any], Awaitable[None]], size: tuple[int, int] = (80, 24)) -> None:
    """Let a story happen on a screen."""

    async def play() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await story(pilot)

    asyncio.run(play())


def column(lines: list[str], name: str) -> list[str]:
    """Return a column of the table on a screen, by its head."""
    (head,) = [
        number for number, line in enumerate(lines) if re.match(r" *(scenario|source|destination)v? ", line)
    ]
    begin = re.search(rf"\b{name}\b", lines[head]).start()
    rows = lines[head + 1 :]
    last = next(number for number, line in enumerate(rows) if " % " not in line)
    return [re.split(r" {2,}", line[begin:])[0].strip() for line in rows[:last]]


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (120, 30), (200, 50), (40, 12)])
def test_it_fits_a_terminal_of_any_size(ledger: Path, size: tuple[int, int]) -> None:
    """What does not fit of the chosen link is told below the table; free rows show the other groups."""
    lines = text(on_screen(app(ledger), size))
    assert max(map(len, lines)) <= size[0]
    assert len(lines) <= size[1]
    if size[0] >= 80:
        assert any(line.strip().startswith("t0-export T2_CH_CERN -> T1_IT_CNAF_Disk: target") for line in lines)
        assert sum("! " in line for line in lines) >= 4
        assert any(" pool-dry: T2_CH_CERN -> T1_IT" in line for line in lines) == (size[0] >= 120)
        assert any("%" in line and "!!" in line for line in lines), "signs stand beside colours"


def test_without_colour_it_says_the_same(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coloured = on_screen(app(ledger), (80, 24))
    monkeypatch.setenv("NO_COLOR", "1")
    plain = on_screen(app(ledger), (80, 24))
    assert text(plain) == text(coloured)
    shades = set(re.findall(r"fill: #([0-9a-f]{6})", plain)) - {"c5c8c6"}  # what Rich draws a terminal with
    assert [shade for shade in shades if len({shade[:2], shade[2:4], shade[4:]}) > 1] == []


def test_keys_sort_turn_group_and_leave_out(ledger: Path) -> None:
    by_ratio, turned = map(text, on_screens(app(ledger), WIDE, "s", "r"))
    assert column(by_ratio, "held")[:2] == ["! pool-dry", "! failing"]
    assert any("14 links, by ratio" in line for line in by_ratio)
    assert column(turned, "destination") == column(by_ratio, "destination")[::-1]
    scenarios, destinations, short = map(text, on_screens(app(ledger), WIDE, "g", "gg", "gh"))
    assert column(scenarios, "scenario") == ["t0-export", "us-mesh", "uk"]
    assert len(column(destinations, "destination")) == 12
    assert column(short, "held") == [
        "! pool-dry",
        "! failing",
        "! destination-full",
    ]


def test_words_filter_until_escape(ledger: Path) -> None:
    words = ["u", "k", "space", "L", "o", "n"]
    steps = ("slash", *words), ("enter", "r"), ("slash", "u", "escape"), ("slash", "x", "y")
    asked, kept, everything, nothing = map(text, on_screens(app(ledger), WIDE, *steps))
    assert len(column(asked, "source")) == 3
    assert any("3 links, with 'uk Lon', reversed" in line for line in kept)
    assert len(column(everything, "source")) == 14
    assert any("0 links, with 'xy'" in line for line in nothing)


def test_many_links_are_scrolled_and_filtered(tmp_path: Path) -> None:
    """Seven screens of them; where the cursor stands, it stays when new figures come."""
    path = tmp_path / "dc27.sqlite"
    bench_report.make(path, 4 / 96, MANY)
    now = bench_report.START + 4 * bench_report.LENGTH
    many = WatchApp(watch_figures.read(path, str(path), now, LAST), lambda: None)

    async def story(pilot: Any) -> None:
        table = many.query_one(DataTable)
        assert table.row_count == MANY
        await pilot.press("ctrl+end", "pageup", "up")
        row, at = table.cursor_row, table.scroll_y
        assert row > MANY - 100
        many.take(watch_figures.read(path, str(path), now, LAST), "", 60.0)
        await pilot.pause()
        assert (table.cursor_row, table.scroll_y) == (row, at)
        await pilot.press("slash", *"007")
        await pilot.pause()
        assert 0 < table.row_count < MANY / 3

    played(many, story, WIDE)


def test_a_terminal_that_changes_its_size(ledger: Path) -> None:
    watched = app(ledger)

    async def story(pilot: Any) -> None:
        wide = [str(one.label) for one in watched.query_one(DataTable).ordered_columns]
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        narrow = [str(one.label) for one in watched.query_one(DataTable).ordered_columns]
        assert "why" in wide
        assert set(narrow) < set(wide)
        assert max(map(len, text(watched.export_screenshot()))) <= 80

    played(watched, story, WIDE)


def test_a_ledger_that_is_gone_leaves_its_last_figures(ledger: Path) -> None:
    """With a line that says of when they are; when it is back, so are its figures."""
    trouble = [LedgerError("there is no ledger any more", "")]

    def read() -> watch_figures.Standing:
        if trouble:
            raise trouble[0]
        return campaigns.standing(ledger)

    watched = WatchApp(campaigns.standing(ledger), read)

    async def story(pilot: Any) -> None:
        for told in (True, False):
            watched._next = 0.0
            watched._tick()
            await watched.workers.wait_for_complete()
            await pilot.pause()
            shown = "\n".join(text(watched.export_screenshot()))
            assert ("! these figures are of 10:07:31Z: there is no ledger any more" in shown) is told
            assert "pool-dry" in shown
            trouble.clear()

    played(watched, story)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_a_key_ends_it(ledger: Path, key: str) -> None:
    watched = app(ledger)

    async def story(pilot: Any) -> None:
        await pilot.press(key)
        assert not watched.is_running or watched._exit

    played(watched, story)
    assert watched.return_code == 0


def test_an_end_in_the_middle_of_a_renewal_is_no_error(ledger: Path) -> None:
    """Messages about the table come when the table is taken down already."""
    watched = app(ledger)

    async def story(_pilot: Any) -> None:
        watched._show()
        watched.exit()

    played(watched, story)
    assert watched.return_code == 0


def test_without_a_terminal_it_names_status(ledger: Path, monkeypatch: pytest.MonkeyPatch, wording) -> None:
    error = run("watch", ledger).exception
    assert isinstance(error, UsageError)
    wording(error.message)
    assert f"dc-inject status {ledger}`" in (error.hint or "")
    monkeypatch.setattr(command_watch, "_terminal", lambda: True)
    monkeypatch.setattr(command_watch, "find_spec", lambda _name: None)
    error = run("watch", ledger).exception
    assert isinstance(error, UsageError)
    assert "[watch]" in (error.hint or "")


def test_a_ledger_that_cannot_be_read_is_told_before_the_screen(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not there, no ledger, or of another version: exit code 3, and the terminal is not touched."""
    monkeypatch.setattr(command_watch, "_terminal", lambda: True)
    monkeypatch.setattr(WatchApp, "run", lambda _self: pytest.fail("the screen was opened"))
    (tmp_path / "text.sqlite").write_text("hello " * 1000)
    newer = tmp_path / "newer.sqlite"
    newer.write_bytes(ledger.read_bytes())
    connection = sqlite3.connect(newer)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    for path in (tmp_path / "none.sqlite", tmp_path / "text.sqlite", newer):
        assert isinstance(run("watch", path).exception, LedgerError), path


def test_it_reads_while_somebody_writes_and_holds_nobody_up(ledger: Path, tmp_path: Path) -> None:
    """In the middle of a transaction it shows the state before; a writer is not kept waiting by what was read."""
    path = tmp_path / "dc27.sqlite"
    path.write_bytes(ledger.read_bytes())
    writer = sqlite3.connect(path, isolation_level=None, timeout=0)
    before = watch_figures.read(path, str(path), NOW, LAST)
    writer.execute("BEGIN EXCLUSIVE")
    writer.execute("DELETE FROM pause")
    assert watch_figures.read(path, str(path), NOW, LAST).status == before.status
    writer.execute("COMMIT")
    assert watch_figures.read(path, str(path), NOW, LAST).status["pauses"] == []
    writer.close()


@pytest.mark.usefixtures("signals_of_a_terminal")
@pytest.mark.parametrize("end", ["q", "\x03", signal.SIGTERM], ids=["q", "ctrl-c", "SIGTERM"])
def test_the_terminal_is_left_as_it_was(ledger: Path, end: str | signal.Signals) -> None:
    """The second screen is closed and the cursor is shown, however it ends."""
    main, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "dc_inject", "watch", str(ledger)],
        stdin=terminal, stdout=terminal, stderr=terminal,
        start_new_session=True, env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"},
    )  # fmt: skip
    os.close(terminal)
    shown = b""
    deadline = time.monotonic() + DEADLINE
    asked = False
    try:
        while time.monotonic() < deadline:
            if select.select([main], [], [], 0.2)[0]:
                try:
                    part = os.read(main, 65536)
                except OSError:  # it has gone
                    break
                shown += part
            if not asked and b"Short only" in shown:
                asked = True
                process.send_signal(end) if isinstance(end, signal.Signals) else os.write(main, end.encode())
        assert process.wait(DEADLINE) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(DEADLINE)
        os.close(main)
    assert shown.rfind(b"\x1b[?1049l") > shown.rfind(b"\x1b[?1049h") >= 0
    assert shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l")
