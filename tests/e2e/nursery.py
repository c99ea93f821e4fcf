"""Processes of the tool, each forked from one that has imported everything: a start costs a second of CPU."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path

from dc_inject.ledger import Ledger

HERE = Path(__file__).parents[2]  # where the packages are
_ONE = threading.Lock()  # multiprocessing looks at all processes at each start, and reads each exit code once
_NURSERY = multiprocessing.get_context("forkserver")
# Among them is what a child imports to know the main program, and does not need.
_NURSERY.set_forkserver_preload(
    ["tests.chaos.lab", "tests.chaos.driver", "tests.e2e.driver", "dc_inject.cli.run", "dc_inject.cli.status",
     "dc_inject.cli.end", "dc_inject.apps.data.command", "dc_inject.apps.link.command",
     "dc_inject.apps.preview.command_check", "dc_inject.apps.rebuild.command", "dc_inject.backends.rucio.client",
     "dc_inject.backends.rucio", "dc_inject.backends.fts", "fts3.rest.client.easy"]
)  # fmt: skip


class Process:
    """A process with the methods of `subprocess.Popen` that are used here."""

    def __init__(
        self, live: Callable[[], None], arguments: Sequence[str], environ: Mapping[str, str], out: Path, err: Path
    ) -> None:
        """Start `live`, a function of a module, as the command line with these arguments; output goes to files."""
        self.returncode: int | None = None
        self._process = _NURSERY.Process(
            target=_begin, args=(live, list(arguments), dict(environ), str(out), str(err)), daemon=True
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


def _begin(live: Callable[[], None], arguments: list[str], environ: dict[str, str], out: str, err: str) -> None:
    """Be what `python -m dc_inject` finds at its start: folder, environment, streams, arguments, signals."""
    os.chdir(HERE)
    os.environ.clear()
    os.environ.update(environ)
    for number, (path, flags) in enumerate(
        [(os.devnull, os.O_RDONLY), (out, os.O_WRONLY | os.O_CREAT), (err, os.O_WRONLY | os.O_CREAT)]
    ):
        handle = os.open(path, flags, 0o600)
        os.dup2(handle, number)
        os.close(handle)
    sys.argv = ["dc-inject", *arguments]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
    Ledger.open.__func__.__kwdefaults__["synchronous"] = "OFF"  # type: ignore[attr-defined]  # no power cut
    live()
