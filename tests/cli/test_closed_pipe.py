"""A reader that has gone (`dc-inject ... | head -1`) ends a command quietly, as SIGPIPE ends other programs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.ledgers import FNAL, make

PROGRAM = [sys.executable, "-m", "dc_inject"]
DEADLINE = 60.0


@pytest.fixture
def pipe() -> Iterator[int]:
    """The writer's end of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["status", "--help"],
        ["status", "LEDGER"],
        ["status", "LEDGER", "--summary"],
        ["status", "LEDGER", "--format", "json"],
        ["status", "LEDGER", "--summary", "--format", "csv"],
        ["export", "LEDGER"],
    ],
    ids=" ".join,
)
def test_a_closed_pipe_ends_a_command_quietly(words: list[str], pipe: int, tmp_path: Path) -> None:
    """Also where all that is written fits into a buffer, which is written at the exit only."""
    ledger = str(make(tmp_path / "dc27.sqlite", {FNAL: 3}).path)
    command = [*PROGRAM, *(ledger if word == "LEDGER" else word for word in words)]
    done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


def test_an_error_that_nobody_reads_ends_it_in_the_same_way(pipe: int, tmp_path: Path) -> None:
    command = [*PROGRAM, "status", str(tmp_path / "none.sqlite")]
    done = subprocess.run(command, stdout=pipe, stderr=pipe, timeout=DEADLINE, check=False)
    assert done.returncode == 128 + signal.SIGPIPE


def test_a_full_disk_is_told_although_all_fits_into_a_buffer(tmp_path: Path) -> None:
    ledger = make(tmp_path / "dc27.sqlite", {FNAL: 3}).path
    command = [*PROGRAM, "status", str(ledger), "--summary", "--format", "csv"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=DEADLINE, check=False)
    assert done.returncode == 1
    assert b": No space left on device" in done.stderr
