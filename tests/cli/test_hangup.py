"""A closed terminal: `run` and `link` stop in good order, though nothing can be written to it any more."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dc_inject.cli.shared import hangup

DEADLINE = 60.0

STORY = """
import pathlib, signal, sys, time
import click
from dc_inject.cli.shared import hangup

stopped, hangups = [], int(sys.argv[3])

class Engine:
    def stop(self):
        stopped.append(True)

hangup.interrupt()
with hangup.stopping(Engine().stop, "rules stay live"):
    click.echo("ready")
    deadline = time.monotonic() + 60
    while not stopped and time.monotonic() < deadline:
        time.sleep(0.05)
    assert stopped
    for _ in range(hangups):
        signal.raise_signal(signal.SIGHUP)
for _ in range(hangups):
    signal.raise_signal(signal.SIGHUP)
pathlib.Path(sys.argv[1]).write_text("stopped in good order")
for _ in range(3):
    click.echo("nobody reads this", err=True)
    print("nor this", flush=True)
pathlib.Path(sys.argv[2]).write_text("and went on")
"""


@pytest.mark.usefixtures("signals_of_a_terminal")
@pytest.mark.parametrize("make", [pty.openpty, os.pipe])
@pytest.mark.parametrize("more", [0, 1, 2])
def test_a_closed_terminal_is_no_error(tmp_path: Path, make: Callable[[], tuple[int, int]], more: int) -> None:
    """The process stops as with SIGTERM, and its output goes nowhere; the same where a pipe's reader has gone.

    The signals are sent here: one comes from the shell, and one from the kernel, and neither is a second Ctrl-C.
    """
    reader, writer = make()
    stopped, ended = tmp_path / "stopped", tmp_path / "ended"
    process = subprocess.Popen(
        [sys.executable, "-c", STORY, str(stopped), str(ended), str(more)],
        stdin=subprocess.DEVNULL, stdout=writer, stderr=writer, start_new_session=True,
    )  # fmt: skip
    try:
        os.close(writer)
        assert b"ready" in os.read(reader, 100)
        os.close(reader)
        process.send_signal(signal.SIGHUP)
        assert process.wait(DEADLINE) == 0
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait(DEADLINE)
    assert stopped.read_text() == "stopped in good order"
    assert ended.read_text() == "and went on"


@pytest.mark.usefixtures("signals_of_a_terminal")
@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_ends_a_command_and_a_hangup_does_not_end_its_cleaning_up(first: signal.Signals) -> None:
    hangup.interrupt()
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(first)
    finally:
        signal.raise_signal(signal.SIGHUP)


IGNORING = """
import signal, sys
from dc_inject.cli.shared import hangup

class Engine:
    def stop(self):
        print("stopped")

begin, number = sys.argv[1], signal.Signals[sys.argv[2]]
try:
    if begin == "run":
        with hangup.stopping(Engine().stop, "rules stay live"):
            signal.raise_signal(number)
    else:
        getattr(hangup, begin)()
        signal.raise_signal(number)
    print("went on")
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.usefixtures("signals_of_a_terminal")
@pytest.mark.parametrize("begin", ["interrupt", "interrupt_once", "run"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_what_was_ignored_from_the_start_stays_ignored(begin: str, number: signal.Signals) -> None:
    """As SIGINT of a shell's background job, and SIGHUP under nohup; SIGTERM always ends a command."""
    taken = _said(begin, number)
    assert taken in {"interrupted\n", "stopped\nwent on\n"}
    signal.signal(number, signal.SIG_IGN)  # a process that we start has it so
    assert _said(begin, number) == (taken if number is signal.SIGTERM else "went on\n")


def _said(begin: str, number: signal.Signals) -> str:
    command = [sys.executable, "-c", IGNORING, begin, number.name]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=DEADLINE).stdout


@pytest.mark.usefixtures("signals_of_a_terminal")
def test_a_signal_whose_exception_was_dropped_ends_the_work_at_its_next_check() -> None:
    check = hangup.interrupt_once()
    check()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        check()


IN_A_WRITE = """
import io, signal, sys
from dc_inject.cli.shared import hangup

class Raw(io.FileIO):
    def write(self, data):
        signal.raise_signal(signal.SIGINT)
        return super().write(data)

sys.stderr = io.TextIOWrapper(io.BufferedWriter(Raw(2, "w", closefd=False)))
hangup.interrupt_once()
try:
    print("10 %", file=sys.stderr, flush=True)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.usefixtures("signals_of_a_terminal")
def test_a_signal_while_something_is_written_ends_the_work_like_any_other() -> None:
    command = [sys.executable, "-c", IN_A_WRITE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr
