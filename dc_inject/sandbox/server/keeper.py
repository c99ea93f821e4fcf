"""Keeps one program running: starts it again when it dies, ends with it when told to.

Run as `python -m sandbox_server.keeper FOLDER PROGRAM ARGUMENT...` with a listening socket as descriptor 3, which
the program gets as systemd would give it: the address stays the sandbox's own while the program comes and goes.
The program works in FOLDER.
Gives up, with exit code 1, on a program that dies young several times in a row.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

YOUNG = 2.0  # seconds; a program that dies younger never worked
CHANCES = 5  # of such deaths in a row
GRACE = 5.0  # seconds between the asking signal and KILL
LISTEN = 3
NOBODY = 65534
# LISTEN_PID has to be the program's own id, which exec does not change; the kernel ends it if we are killed.
LAUNCH = ("sh", "-c", 'LISTEN_FDS=1 LISTEN_PID=$$ exec setpriv --pdeathsig KILL "$@"', "sh")
# XRootD and PostgreSQL refuse to be root. As nobody they have only the right to use the sandbox's files, which
# are root's.
AS_NOBODY = (
    f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
    "--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override", "--securebits=+no_setuid_fixup",
)  # fmt: skip


def never_root(program: Sequence[str]) -> list[str]:
    """Write the end of a `setpriv` command that runs the program, not as root."""
    return [*(AS_NOBODY if os.geteuid() == 0 else ()), "--", *program]


def run(command: Sequence[str], stop: threading.Event, ask: signal.Signals, sockets: Sequence[int] = ()) -> float:
    """Run it until it dies, or we are told to stop and `ask` it to end; returns how many seconds it lived."""
    began = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=sockets) as child:
        while child.poll() is None and not stop.wait(0.1):
            pass
        if child.poll() is None:
            child.send_signal(ask)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(GRACE)
            child.kill()
    if not stop.is_set():
        say(f"the program ended with {child.returncode}")
    return time.monotonic() - began


def say(line: str) -> None:
    """Tell whoever reads the log."""
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
