"""The live view of `run` on a terminal: the log stands above, and the terminal is as before however it ends."""

from __future__ import annotations

import codecs
import fcntl
import logging
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dc_inject.apps.report import live_view
from dc_inject.cli.shared import log_output
from tests.apps.link.linking import A, B
from tests.apps.report import campaigns_to_watch as campaigns
from tests.cli.ledgers import run

DEADLINE = 60.0
ROOT = Path(__file__).parents[3]

STORY = """
import logging, os, signal, sys, threading

os.login_tty(int(sys.argv.pop()))
from pathlib import Path
from dc_inject.apps.report import live_view
from dc_inject.cli.shared import hangup, log_output
from tests.apps.report import campaigns_to_watch as campaigns

ledger, file = map(Path, sys.argv[1:])
log = logging.getLogger("dc_inject.story")
stopped = threading.Event()

class Engine:
    def stop(self):
        stopped.set()

def broken(*_):
    raise RuntimeError("nobody expected this")

signal.signal(signal.SIGUSR1, broken)
assert log_output.talk(file=file)
live_view.REDRAW = 0.05
hangup.interrupt()
shown = live_view.shown(lambda: campaigns.standing(ledger))
with hangup.stopping(Engine().stop, "rules stay live"), shown:
    log.info("line one")
    while not stopped.wait(0.1):
        pass
    log.warning("the last line")
print("the table", flush=True)
"""


class Terminal:
    """As much of a terminal as is written to: lines, a cursor that goes up, and what is erased below it."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.rows = [""]
        self.at = 0
        self.rest = ""

    def write(self, text: str) -> None:
        text, self.rest = self.rest + text, ""
        for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|\x1b[^A-Za-z]*$|[^\x1b\r\n]+", text):
            if part.startswith("\x1b") and part[-1].isalpha():
                self._escape(part)
            elif part.startswith("\x1b"):
                self.rest = part
            elif part == "\n":
                self.at += 1
                self.rows += [""] * (self.at + 1 - len(self.rows))
            elif part != "\r":  # lines are written from their beginning
                self.rows[self.at] += part

    def _escape(self, escape: str) -> None:
        if escape.endswith("A"):
            self.at -= int(escape[2:-1])
            assert self.at >= 0
        elif escape == "\x1b[J":
            del self.rows[self.at :]
            self.rows.append("")
        else:
            assert escape.endswith("m"), f"{escape!r} changes more of the terminal than its colour"


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return campaigns.campaign(tmp_path_factory.mktemp("live") / "dc27.sqlite")


class Played:
    """The story on a terminal of its own, which sees its keys."""

    def __init__(self, ledger: Path, file: Path, **more: str) -> None:
        self.main, inner = pty.openpty()
        attributes = termios.tcgetattr(inner)
        attributes[3] |= termios.NOFLSH  # else Ctrl-C loses what is on its way, and rows are counted wrong
        termios.tcsetattr(inner, termios.TCSANOW, attributes)
        self.decode = codecs.getincrementaldecoder("utf-8")().decode
        self.terminal, self.raw = Terminal(100), ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", STORY, str(ledger), str(file), str(inner)],
            pass_fds=[inner], cwd=ROOT,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40", **more},
        )  # fmt: skip
        os.close(inner)

    def until(self, words: str | None) -> None:
        """Read on until the screen shows something; None: until the end."""
        deadline = time.monotonic() + DEADLINE
        while words is None or not any(words in row for row in self.terminal.rows):
            assert time.monotonic() < deadline, self.terminal.rows
            if not select.select([self.main], [], [], 0.5)[0]:
                continue
            try:
                part = self.decode(os.read(self.main, 65536))
            except OSError:  # it has gone
                break
            self.raw += part
            self.terminal.write(part)

    def fill(self) -> None:
        """Wait until so much is on its way that the writer waits in the middle of it."""
        deadline, before, waiting = time.monotonic() + DEADLINE, -1, 0
        while waiting > before or not waiting:
            assert time.monotonic() < deadline
            time.sleep(0.2)  # several frames
            before, waiting = waiting, struct.unpack("i", fcntl.ioctl(self.main, termios.FIONREAD, bytes(4)))[0]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE)
        if self.main >= 0:
            os.close(self.main)
            self.main = -1


@pytest.fixture
def played(ledger: Path, tmp_path: Path, signals_of_a_terminal: None) -> Iterator[Played]:
    del signals_of_a_terminal
    played = Played(ledger, tmp_path / "dc27.log")
    yield played
    played.close()


@pytest.mark.parametrize("how", ["ctrl-c", "SIGTERM", "SIGHUP"])
def test_a_stop_erases_the_lines_and_the_log_stays(played: Played, tmp_path: Path, how: str) -> None:
    """In its order, with what was said last, and what comes afterwards."""
    played.until("! short")
    assert any("line one" in row for row in played.terminal.rows)
    if how == "ctrl-c":
        played.fill()
        os.write(played.main, b"\x03")
    else:
        played.process.send_signal(signal.Signals[how])
    played.until(None)
    assert played.process.wait(DEADLINE) == 0
    rows = [row for row in played.terminal.rows if row]
    if how == "ctrl-c" and rows[0].startswith("^C"):  # what the terminal echoes
        rows[0] = rows[0][2:]
    name = "SIGINT" if how == "ctrl-c" else how
    shown = [re.sub(r"^(\^C)?\d\d-\d\d \S+Z ", "", row) for row in rows]
    assert shown.pop(1).startswith(f"WARNING {name}: ")
    assert shown == ["line one", "WARNING the last line", "the table"]
    logged = [line.split(" ", 1)[1] for line in (tmp_path / "dc27.log").read_text().splitlines()]
    assert logged.pop(1).startswith(f"WARNING {name}: ")
    assert logged == ["INFO line one", "WARNING the last line"]


def test_a_second_interrupt_or_an_error_leaves_the_terminal_as_it_was(played: Played) -> None:
    """The trace is whole and stands below the log."""
    played.until("! short")
    played.process.send_signal(signal.SIGUSR1)
    played.until(None)
    assert played.process.wait(DEADLINE) == 1
    rows = [row for row in played.terminal.rows if row]
    assert "line one" in rows[0]
    assert rows[1].startswith("Traceback")
    assert rows[-1] == "RuntimeError: nobody expected this"
    assert not any("! short" in row for row in rows)


def test_a_terminal_that_is_closed_ends_nothing_badly(played: Played, tmp_path: Path) -> None:
    played.until("! short")
    os.close(played.main)
    played.main = -1  # SIGHUP comes from the kernel
    assert played.process.wait(DEADLINE) == 0
    assert "the last line" in (tmp_path / "dc27.log").read_text()


def test_without_colours_and_without_letters_beyond_ascii(
    ledger: Path, tmp_path: Path, signals_of_a_terminal: None
) -> None:
    del signals_of_a_terminal
    played = Played(ledger, tmp_path / "dc27.log", NO_COLOR="1", PYTHONIOENCODING="ascii")
    try:
        played.until("! short")
        assert played.raw.isascii()
        assert not re.search(r"\x1b\[[0-9;]*3[0-9]", played.raw)
    finally:
        played.close()


def test_a_mini_challenge_is_shown_and_ends_as_ever(service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command itself: its log stays, in its order, and the lines are gone at the end."""
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda stream: stream.name == "<stderr>")
    monkeypatch.setattr(live_view, "REDRAW", 0.01)
    monkeypatch.setenv("TERM", "xterm")
    service()
    done = run("link", A, B, "--rate", "4Gb/s", "--for", "1h", "--campaign", "mini")
    assert done.exit_code == 0, done.exception
    terminal = Terminal(100)
    terminal.write(done.stderr)
    rows = "\n".join(terminal.rows)
    assert len(re.findall(r"(?m)^\d\d-\d\d \S+Z cycle 2027-02-08T10:10:00Z: 1 link, ", rows)) == 1
    assert "waits for" not in rows
    assert "──" not in rows


def test_a_view_that_breaks_leaves_the_log(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """Whatever is in a ledger, nobody loses a line."""

    def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(live_view, "REDRAW", 0.01)
    with live_view.shown(broken):
        screen = sys.stderr._screen
        deadline = time.monotonic() + DEADLINE
        while not screen._broken:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        print("a line of the log", file=sys.stderr)
    terminal = Terminal(100)
    terminal.write(capsys.readouterr().err)
    shown = [row for row in terminal.rows if row]
    assert (len(shown), shown[1]) == (2, "a line of the log")
    assert "ZeroDivisionError" in shown[0]


def test_it_is_for_terminals_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And for people who have not asked for something else."""
    assert log_output.talk() is False
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    file = tmp_path / "dc27.log"
    assert log_output.talk() is True
    assert log_output.talk(verbose=True, fmt="json", file=file) is True
    assert log_output.talk(quiet=True) is False
    assert log_output.talk(plain=True, file=file) is False
    assert log_output.talk(fmt="json") is False
    for kind in ("dumb", ""):
        monkeypatch.setenv("TERM", kind)
        assert log_output.talk() is False
    logging.getLogger("dc_inject").handlers.clear()


def test_there_are_no_more_lines_than_there_is_room_for(ledger: Path) -> None:
    lines = live_view.lines(campaigns.standing(ledger), 79)
    assert max(line.cell_len for line in lines) <= 79
    assert len(lines) < 22
    assert [line.plain for line in live_view.lines(None, 10, ascii_only=True)] == ["-" * 10]
