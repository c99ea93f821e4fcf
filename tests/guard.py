"""`python tests/guard.py MARK`: end what a test run has left, when the run itself is gone.

Sandboxes outlive whoever starts them, and a run that is killed or interrupted does not always come to its
teardown. Its processes have MARK in their environment; it holds the other end of this process's standard input,
which ends with it however it ends.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "LC_DC_INJECT_TEST_RUN"  # servers of a sandbox get LC_ variables of the caller, and hardly any others
GRACE = 30.0  # seconds for teardowns that are under way, and then again for those that are asked to end


def left(mark: str) -> list[int]:
    """Return the ids of living processes with this mark.

    A resource tracker of multiprocessing ends with its owner, who may be waiting for us.
    """
    found = []
    for place in Path("/proc").iterdir():
        with suppress(OSError):
            if not place.name.isdigit() or b"multiprocessing.resource_tracker" in (place / "cmdline").read_bytes():
                continue
            if f"{MARK}={mark}".encode() in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
    return found


def main(mark: str) -> None:
    """Wait for the end of the run, then for its processes."""
    sys.stdin.buffer.read()
    for number in (0, signal.SIGTERM, signal.SIGKILL):
        for pid in left(mark):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + GRACE
        while left(mark) and time.monotonic() < deadline:
            time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1])
