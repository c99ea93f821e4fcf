"""A closed terminal: `run` and `link` stop in good order, though nothing can be written to it any more."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

DEADLINE = 60.0

STORY = """
import pathlib, sys, threading
import click
from dc_inject.cli import hangup
from dc_inject.cli.run import _signals

stopped = threading.Event()

class Engine:
    def stop(self):
        stopped.set()

with _signals(Engine(), "rules stay live"):
    click.echo("ready")
    assert stopped.wait(60)
pathlib.Path(sys.argv[1]).write_text("stopped in good order")
hangup.mind()
for _ in range(3):
    click.echo("nobody reads this", err=True)
    print("nor this", flush=True)
pathlib.Path(sys.argv[2]).write_text("and went on")
"""


@pytest.mark.usefixtures("signals_of_a_terminal")
def test_a_closed_terminal_is_no_error(tmp_path: Path) -> None:
    """The process stops as with SIGTERM, and what it says then goes nowhere."""
    leader, terminal = pty.openpty()
    stopped, ended = tmp_path / "stopped", tmp_path / "ended"
    process = subprocess.Popen(
        [sys.executable, "-c", STORY, str(stopped), str(ended)],
        stdin=terminal, stdout=terminal, stderr=terminal,
        preexec_fn=_own_terminal,  # noqa: PLW1509  as a login shell does it; nothing else runs in this process
    )  # fmt: skip
    try:
        os.close(terminal)
        assert b"ready" in os.read(leader, 100)
        os.close(leader)  # the kernel sends SIGHUP, and writing gives EIO
        assert process.wait(DEADLINE) == 0
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait(DEADLINE)
    assert stopped.read_text() == "stopped in good order"
    assert ended.read_text() == "and went on"


def _own_terminal() -> None:
    import fcntl  # noqa: PLC0415  in the child
    import termios  # noqa: PLC0415

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
