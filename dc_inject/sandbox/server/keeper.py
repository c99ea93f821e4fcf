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

YOUNG = 2.0  # seconds; a program that dies younger never worked
CHANCES = 5  # of such deaths in a row
GRACE = 5.0  # seconds between TERM and KILL
LISTEN = 3
# LISTEN_PID has to be the program's own id, which exec does not change; the kernel ends it if we are killed.
LAUNCH = ("sh", "-c", 'LISTEN_FDS=1 LISTEN_PID=$$ exec setpriv --pdeathsig KILL "$@"', "sh")
# XRootD refuses to be root. As nobody it has only the right to use the sandbox's files, which are root's.
AS_NOBODY = (
    "--reuid=65534", "--regid=65534", "--clear-groups",
    "--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override", "--securebits=+no_setuid_fixup",
)  # fmt: skip


def command(program: list[str]) -> list[str]:
    """Write the command that starts the program with the socket, and never as root."""
    return [*LAUNCH, *(AS_NOBODY if os.geteuid() == 0 else ()), "--", *program]


def run(program: list[str], stop: threading.Event) -> float:
    """Run it until it dies or we are told to stop; returns how many seconds it lived."""
    began = time.monotonic()
    with subprocess.Popen(command(program), stdin=subprocess.DEVNULL, pass_fds=(LISTEN,)) as child:
        while child.poll() is None and not stop.wait(0.1):
            pass
        if child.poll() is None:
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(GRACE)
            child.kill()
    if not stop.is_set():
        say(f"{program[0]} ended with {child.returncode}")
    return time.monotonic() - began


def say(line: str) -> None:
    """Tell whoever reads the log."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201 (this is a script: standard error is its log)


def main(folder: str, *program: str) -> int:
    """Keep it until SIGTERM; returns the exit code."""
    os.chdir(folder)
    os.umask(0o077)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    young = 0
    while not stop.is_set():
        young = young + 1 if run(list(program), stop) < YOUNG else 0
        if young == CHANCES and not stop.is_set():
            return 1
        stop.wait(0.1 * 2**young)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
