"""Processes of a sandbox: started with a marker in their environment, found again by it, and ended.

A marker cannot be mistaken: process ids are used again, names are shared, but only what a sandbox started
(and its children) carries the sandbox's random marker. So whoever has the marker finds everything, whatever
crashed in between. Linux only, as it reads /proc.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from dc_inject.model.errors import DcInjectError

MARKER = "DC_INJECT_SANDBOX"
ROLE = "DC_INJECT_SANDBOX_ROLE"


# What a server may know of the caller's environment: no credentials, no settings of Rucio, Python, or PostgreSQL.
_KEPT = frozenset({"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "LD_LIBRARY_PATH"})
# What programs that fetch and install do not get; they need proxies and settings of their own.
_SECRET = re.compile(r"TOKEN|PASSW|SECRET|CREDENTIAL", re.IGNORECASE)
_GRID = ("RUCIO_", "X509_", "BEARER_", "DC_INJECT_")


def environment(marker: str, role: str, settings: Path, library: Path) -> dict[str, str]:
    """Return the environment of a server process: little of the caller's, and no credentials."""
    inherited = {key: value for key, value in os.environ.items() if key in _KEPT or key.startswith("LC_")}
    return inherited | {
        MARKER: marker,
        ROLE: role,
        "RUCIO_CONFIG": str(settings),
        "PYTHONPATH": str(library),
        "PYTHONSAFEPATH": "1",  # no modules of the caller's working folder
        "TZ": "UTC",
    }


def without_credentials() -> dict[str, str]:
    """Return the caller's environment for programs that fetch and install, without credentials of the grid."""
    return {
        key: value
        for key, value in os.environ.items()
        if key.startswith("PIP_") or not (key.startswith(_GRID) or _SECRET.search(key))
    }


def start(command: Sequence[str], env: Mapping[str, str], log: Path, listen: Sequence[int] = ()) -> int:
    """Start a process that outlives this one, in a session of its own, deaf to Ctrl-C; returns its id.

    Output goes to `log`; listening sockets, given by their descriptors, become the child's descriptors 3, 4 ...
    """
    actions: list[tuple[int, int, str, int, int] | tuple[int, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    # by way of numbers above all that are wanted, since a socket may have the number that another one is to get
    above = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3 + len(listen)) for descriptor in listen]
    actions += [(os.POSIX_SPAWN_DUP2, descriptor, 3 + at) for at, descriptor in enumerate(above)]
    try:
        pid = os.posix_spawn(command[0], list(command), dict(env), file_actions=actions, setsid=True)
    finally:
        for descriptor in above:
            os.close(descriptor)
    deadline = time.monotonic() + 5.0
    # Spawning returns a moment before the kernel shows the child's environment, by which it is found again.
    while not _environ(pid) and time.monotonic() < deadline:
        time.sleep(0.002)
    return pid


def _environ(pid: int) -> bytes:
    """Return the environment of a process; nothing of one that has ended meanwhile, or belongs to another user."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _living(marker: str) -> Iterator[tuple[int, str]]:
    """Yield the id and the role of each living process that carries the marker."""
    for entry in Path("/proc").iterdir():
        variables = _environ(int(entry.name)).split(b"\0") if entry.name.isdigit() else []
        if f"{MARKER}={marker}".encode() in variables:
            by_name = dict(variable.partition(b"=")[::2] for variable in variables)
            yield int(entry.name), by_name.get(ROLE.encode(), b"").decode()


def marked(marker: str, role: str | None = None) -> list[int]:
    """Return the ids of the living processes that carry the marker (and the role, when one is named)."""
    return [pid for pid, its in _living(marker) if role in {None, its} and pid != os.getpid()]


def roles(marker: str) -> set[str]:
    """Return the roles of all living processes that carry the marker."""
    return {role for _, role in _living(marker) if role}


def end(find: Callable[[], Sequence[int]], grace: float = 10.0) -> int:
    """End the processes that `find` returns: TERM, after `grace` seconds (0: at once) KILL; return their number.

    Raises DcInjectError when something survives even that.
    """
    seen: set[int] = set()
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
        if not patience:
            continue
        deadline = time.monotonic() + patience
        signalled: set[int] = set()
        while pids := set(find()):
            for pid in pids - signalled:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            signalled |= pids
            seen |= pids
            for pid in seen:
                with contextlib.suppress(ChildProcessError):  # another process started it
                    os.waitpid(pid, os.WNOHANG)
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        else:
            return len(seen)
    raise DcInjectError(f"processes {sorted(find())} do not end, not even when killed")
