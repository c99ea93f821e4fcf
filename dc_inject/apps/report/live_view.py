"""What `run` and `link` show live on a terminal while they work: a few lines that are renewed, below their log.

A thread of its own reads the ledger, as `watch` does from elsewhere, and alone writes to the terminal: whatever
else is written to stderr meanwhile is handed to it, and stands above. So a terminal that does not take what is
written (Ctrl-S, a connection that hangs) holds no injection up.

It takes nothing from the terminal that it would have to give back: the cursor stays visible, there is no second
screen, and Ctrl-C is what it always is. The lines are erased at the end; after a kill they stay, and do no harm.
"""

from __future__ import annotations

import contextlib
import io
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.text import Text

from dc_inject.apps.report import live_lines, watch_figures
from dc_inject.apps.report.watch_figures import Standing
from dc_inject.model.errors import LedgerError
from dc_inject.model.ports import Clock
from dc_inject.summary.first_lines import one_line

EVERY = 2.0  # seconds between two readings of the ledger, at least
REST = 50  # times as long as a reading takes nothing is read: the engine needs the processor more
REDRAW = 1.0  # seconds
ROOM = 16  # rows of a terminal in which other groups of short links are shown
ENDING = 5.0  # seconds in which the last lines have to be written, or the terminal is left as it is


def of_campaign(path: Path, campaign: str, clock: Clock) -> contextlib.AbstractContextManager[None]:
    """Show how the campaign of a ledger stands for as long as this lasts."""
    return shown(lambda: watch_figures.read(path, campaign, clock.now()))


@contextlib.contextmanager
def shown(read: Callable[[], Standing]) -> Iterator[None]:
    """Show how a campaign stands for as long as this lasts; what is written to stderr stands above."""
    terminal = sys.stderr
    screen = _Screen(terminal, read)
    continued = signal.signal(signal.SIGCONT, lambda *_: screen.forget())  # the shell has written below
    sys.stderr = _Above(screen)
    try:
        yield
    finally:
        sys.stderr = terminal
        signal.signal(signal.SIGCONT, continued)
        screen.end()


def lines(standing: Standing | None, width: int, *, ascii_only: bool = False) -> list[Text]:
    """Return what is to be seen of a campaign: its first lines, and the other groups of links that are short."""
    shown = [Text(("-" if ascii_only else "─") * width, "dim")]
    if standing is not None:
        shown += live_lines.heading(standing, width, ROOM, ascii_only=ascii_only)
    for line in shown:
        line.truncate(width, overflow="crop" if ascii_only else "ellipsis")
    return shown


class _Above(io.TextIOBase):
    """Stands for stderr: what is written to it is shown above. It may be called within itself, by a signal."""

    encoding = "utf-8"

    def __init__(self, screen: _Screen) -> None:
        self._screen = screen

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError("this takes texts only")
        if text:
            self._screen.write(text)
        return len(text)

    def writable(self) -> bool:
        return True


class _Screen:
    """The thread that writes to the terminal."""

    def __init__(self, terminal: TextIO, read: Callable[[], Standing]) -> None:
        """Begin."""
        self._terminal, self._read = terminal, read
        self._console = Console(file=terminal, highlight=False, markup=False, emoji=False)
        self._texts: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._standing: Standing | None = None
        self._trouble = ""
        self._drawn: Sequence[int] = ()  # how long the lines are that are there to be renewed
        self._again = 0.0
        self._broken = False
        self._thread = threading.Thread(target=self._run, name="live", daemon=True)
        self._thread.start()

    def write(self, text: str) -> None:
        """Have a text written above."""
        self._texts.put(text)

    def forget(self) -> None:
        """Renew no line that was written before."""
        self._drawn = ()

    def end(self) -> None:
        """Erase the lines, and write what is still to be written."""
        self._texts.put(None)
        self._thread.join(ENDING)

    # ------------------------------------------------------------------ in the thread

    def _run(self) -> None:
        rest, over = "", False
        with contextlib.suppress(OSError):  # the terminal is gone, and with it the reader of these lines
            while not over:
                text, over = self._take()
                whole, newline, rest = (rest + text).rpartition("\n")
                if over:
                    self._write(whole + newline + rest, ())
                else:
                    self._write(whole + newline, self._view())
                    self._look()  # afterwards: what is written does not wait for it

    def _take(self) -> tuple[str, bool]:
        """Return what is to be written by now, and whether that is the end; waits a moment for some."""
        parts: list[str] = []
        with contextlib.suppress(queue.Empty):
            part = self._texts.get(timeout=REDRAW)
            while part is not None:
                parts.append(part)
                part = self._texts.get_nowait()
            return "".join(parts), True
        return "".join(parts), False

    def _view(self) -> Sequence[Text]:
        """Return the lines to be seen."""
        if not self._in_front():
            self.forget()  # they are among the shell's
            return ()
        return () if self._broken else self._lines()

    def _look(self) -> None:
        """Read the ledger, if it is time."""
        began = time.monotonic()
        if self._broken or began < self._again:
            return
        try:
            standing = self._read()
            lines(standing, self._console.width)  # what cannot be shown is found out here
            self._standing, self._trouble = standing, ""
        except LedgerError as error:
            self._trouble = error.message
        except Exception as error:  # noqa: BLE001  whatever is wrong with the view: the log goes on
            self._broken = True
            self.write(f"the view is left out: unexpected {type(error).__name__}\n")
        ended = time.monotonic()
        self._again = ended + max(EVERY, REST * (ended - began))

    def _in_front(self) -> bool:
        """Whether the terminal is ours now, and not a shell's from which we were sent to the background."""
        try:
            return os.tcgetpgrp(self._terminal.fileno()) == os.getpgrp()
        except OSError:  # it has no jobs
            return True

    def _lines(self) -> list[Text]:
        """Return what is to be seen, as many lines as there is room for."""
        size, ascii_only = self._console.size, self._console.options.ascii_only
        shown = lines(self._standing, size.width - 1, ascii_only=ascii_only)
        if self._trouble:
            shown.insert(
                1, Text(one_line(f"! the ledger cannot be read now: {self._trouble}"), live_lines.WARNING)
            )
            shown[1].truncate(size.width - 1)
        return shown[: max(size.height - 2, 0)]

    def _write(self, above: str, below: Sequence[Text]) -> None:
        """Write everything at once: over the old lines what stands above, and the new lines below."""
        width = max(self._console.width, 1)
        old = sum(max(-(-length // width), 1) for length in self._drawn)  # a narrower terminal folds them
        with self._console.capture() as capture:
            for line in below:
                self._console.print(line, no_wrap=True, crop=True)
        self._drawn = [line.cell_len for line in below]
        erased = f"\r\x1b[{old}A\x1b[J" if old else ""
        self._terminal.write(erased + above + capture.get())
        self._terminal.flush()
