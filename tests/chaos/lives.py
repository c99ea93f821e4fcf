"""Processes of the tool, each forked from one that has imported everything, so that a life costs no start."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path

from tests.chaos import driver
from tests.e2e.tool import Done

PATIENCE = 300.0  # seconds without an end, after which a life is a violation
_ONE = threading.Lock()  # multiprocessing looks at all processes at each start, and reads each exit code once
_NURSERY = multiprocessing.get_context("forkserver")
# The first is what a child imports to know the main program, and does not need.
_NURSERY.set_forkserver_preload(
    ["tests.chaos.lab", "dc_inject.cli.run", "dc_inject.cli.status", "dc_inject.backends.rucio.client",
     "dc_inject.backends.rucio", "dc_inject.backends.fts", "fts3.rest.client.easy"]
)  # fmt: skip


class Process:
    """A process with the methods of `subprocess.Popen` that are used here."""

    def __init__(self, arguments: Sequence[str], environ: Mapping[str, str], out: Path, err: Path) -> None:
        self.returncode: int | None = None
        self._process = _NURSERY.Process(
            target=driver.live, args=(list(arguments), dict(environ), str(out), str(err)), daemon=True
        )
        with _ONE:
            self._process.start()
        self.pid = int(self._process.pid or 0)

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs; less than 0 is the number of a signal."""
        with _ONE:
            if self.returncode is None and self._process.exitcode is not None:
                self.returncode = self._process.exitcode
                self._process.close()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; raises subprocess.TimeoutExpired."""
        if self.poll() is None:
            wait([self._process.sentinel], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("dc-inject", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        self.send_signal(signal.SIGKILL)


@dataclass
class Life:
    """One process of the tool, from its start to its end."""

    process: Process
    out: Path
    err: Path
    started: float = field(default_factory=time.monotonic)

    @property
    def age(self) -> float:
        return time.monotonic() - self.started

    @property
    def said(self) -> str:
        """What it has said until now; nothing before its output has a file."""
        return self.err.read_text() if self.err.exists() else ""

    def ended(self, patience: float = PATIENCE) -> Done:
        return Done(self.process.wait(patience), self.out.read_text(), self.err.read_text())
