"""Keeps one program running: starts it again when it dies or hangs, ends it on request.

Run as `python -m sandbox_server.keeper FOLDER PROGRAM ARGUMENT...` with a listening socket as descriptor 3, which
the program gets as systemd would give it: the address stays the sandbox's own while the program comes and goes.
The program works in FOLDER.
It hangs when connections have been waiting at the socket for a while and none is accepted: XRootD 5.5.3 stops
accepting for good now and then, with all its threads idle. One that was stopped by a signal is left alone.
Gives up, with exit code 1, on a program that dies young several times in a row.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

YOUNG = 2.0  # seconds; a program that dies younger never worked
CHANCES = 5  # of such deaths in a row
HUNG = 15.0  # seconds in which a client was waiting at every check, and the program was not stopped
PAUSE = 2.0  # seconds between looks after which nothing is known: we were stopped, too, or the machine is busy
GRACE = 5.0  # seconds between the asking signal and KILL
LISTEN = 3
UNPRIVILEGED = 65534
# LISTEN_PID has to be the program's own id, which exec does not change; the kernel ends it if we are killed.
LAUNCH = ("sh", "-c", 'LISTEN_FDS=1 LISTEN_PID=$$ exec setpriv --pdeathsig KILL "$@"', "sh")
# XRootD and PostgreSQL refuse to be root. As the user `nobody` they can only use the sandbox's files.
AS_UNPRIVILEGED = (
    f"--reuid={UNPRIVILEGED}", f"--regid={UNPRIVILEGED}", "--clear-groups",
    "--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override", "--securebits=+no_setuid_fixup",
)  # fmt: skip


def never_root(program: Sequence[str]) -> list[str]:
    """Write the end of a `setpriv` command that runs the program, not as root."""
    return [*(AS_UNPRIVILEGED if os.geteuid() == 0 else ()), "--", *program]


class Waiting:
    """Who waits at a listening socket to be accepted, and for how long."""

    def __init__(self, listening: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the descriptor of the socket."""
        self._socket = socket.socket(fileno=os.dup(listening))
        self._clock = clock
        self._since: float | None = None  # when a client was first seen waiting
        self._looked = clock()

    def too_long(self, process: int) -> bool:
        """Return whether the process that should accept them has left a client waiting for HUNG seconds."""
        now, before = self._clock(), self._looked
        self._looked = now
        if self._count() == 0 or _is_stopped(process) or now - before > PAUSE:
            self._since = None
            return False
        self._since = now if self._since is None else self._since
        return now - self._since >= HUNG

    def close(self) -> None:
        """Close our copy of the descriptor."""
        self._socket.close()

    def _count(self) -> int:
        # Of a listening socket Linux has here the connections that are not accepted yet (tcpi_unacked).
        info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 28)
        return int(struct.unpack_from("I", info, 24)[0])


def _is_stopped(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state in {"T", "t"}


def run(command: Sequence[str], stop: threading.Event, ask: signal.Signals, sockets: Sequence[int] = ()) -> float:
    """Run it until it dies, hangs or has to stop, which `ask` requests; returns how many seconds it lived."""
    began = time.monotonic()
    queues = [Waiting(number) for number in sockets]
    with (
        contextlib.ExitStack() as stack,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=sockets) as child,
    ):
        for queue in queues:
            stack.callback(queue.close)
        while child.poll() is None and not stop.wait(0.1):
            if any(queue.too_long(child.pid) for queue in queues):
                report(f"nothing was accepted for {HUNG:.0f} s, so it is started again")
                child.kill()
                child.wait()
        if child.poll() is None:
            child.send_signal(ask)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(GRACE)
            child.kill()
    if not stop.is_set():
        report(f"the program ended with {child.returncode}")
    return time.monotonic() - began


def report(line: str) -> None:
    """Write a line to the log."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201 (this is a script: standard error is its log)


def keep(command: Sequence[str], ask: signal.Signals = signal.SIGTERM, sockets: Sequence[int] = ()) -> int:
    """Keep it running until SIGTERM; returns the exit code."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    young = 0
    while not stop.is_set():
        young = young + 1 if run(command, stop, ask, sockets) < YOUNG else 0
        if young == CHANCES and not stop.is_set():
            return 1
        stop.wait(0.1 * 2**young)
    return 0


def main(folder: str, *program: str) -> int:
    """Keep a program that serves our socket, in its folder."""
    os.chdir(folder)
    os.umask(0o077)
    return keep([*LAUNCH, *never_root(program)], sockets=(LISTEN,))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
