"""The Rucio server's own Python environment, installed from the lock that ships with the package.

The server and rucio-clients cannot share one: they contain the same files and want different versions.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path

from dc_inject.model.errors import ServiceError, UsageError

from . import ownership
from .locking import locked
from .processes import without_credentials

_COMPLETE, _POSTGRES = ".dc_inject-complete", ".dc_inject-postgres"
_LOCKS = {"41": "requirements.txt", "38": "requirements-38.txt"}
RELEASES = tuple(_LOCKS)  # of Rucio, that a sandbox can be of; the first one by default
_POSTGRES_LOCK = files("dc_inject.sandbox") / "requirements-postgres.txt"  # what comes on top


def lock_of(release: str) -> Traversable:
    """Return the lock of one of RELEASES; raises UsageError for another."""
    if release not in _LOCKS:
        raise UsageError(f"the sandbox has no Rucio {release!r}", f"known are {', '.join(RELEASES)}")
    return files("dc_inject.sandbox") / _LOCKS[release]


def lock_hash(release: str = RELEASES[0]) -> str:
    """Return which lock an environment has to be made from."""
    return hashlib.sha256(lock_of(release).read_bytes()).hexdigest()


def default_environment(release: str = RELEASES[0]) -> Path:
    """Name the place where environments are kept by default; one per lock."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "dc_inject" / f"sandbox-server-{lock_hash(release)[:12]}"


def python_of(folder: Path) -> Path:
    """Name the environment's interpreter."""
    return folder / "bin" / "python"


def is_complete(folder: Path, release: str = RELEASES[0]) -> bool:
    """Return whether the environment was installed to its end from the present lock of a release."""
    marker = folder / _COMPLETE
    return marker.is_file() and marker.read_text().strip() == lock_hash(release) and python_of(folder).exists()


def installed_release(folder: Path) -> str:
    """Return the release that an environment was made with; the first one where there is none yet."""
    return next((release for release in RELEASES if is_complete(folder, release)), RELEASES[0])


def ensure_environment(folder: Path, report: Callable[[str], None], release: str = RELEASES[0]) -> None:
    """Install the environment with a release of Rucio unless it is complete.

    A half one, or one of another lock, is made again.

    Raises UsageError for a folder that is something else, ServiceError when the installation fails.
    """
    lock = lock_of(release)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder, report):
        if is_complete(folder, release):
            return
        if os.path.lexists(folder):
            ownership.remove(folder, "--env")
        ownership.claim(folder, "--env")
        report(f"making a Python environment for the Rucio server, release {release}, in {folder}")
        _run([sys.executable, "-m", "venv", str(folder)])
        report("installing the Rucio server there (about half a minute)")
        _install(folder, lock)
        (folder / _COMPLETE).write_text(lock_hash(release) + "\n")


def ensure_postgres(folder: Path, report: Callable[[str], None]) -> None:
    """Install PostgreSQL and its client into a complete environment, unless they are there.

    Raises ServiceError when that fails.
    """
    marker, wanted = folder / _POSTGRES, hashlib.sha256(_POSTGRES_LOCK.read_bytes()).hexdigest()
    with locked(folder, report):
        if marker.is_file() and marker.read_text().strip() == wanted:
            return
        report("installing PostgreSQL there (30 MB, once)")
        _install(folder, _POSTGRES_LOCK)
        marker.write_text(wanted + "\n")


def _install(folder: Path, lock: Traversable) -> None:
    python = str(python_of(folder))
    with as_file(lock) as file:
        words = ["install", "--quiet", "--no-deps", "--require-hashes", "-r", str(file)]
        try:  # uv, where the tool's environment has it, needs a tenth of pip's time
            _run([sys.executable, "-m", "uv", "pip", *words, "--python", python])
        except ServiceError:
            # Bytecode of all that is never imported would cost a third of the time.
            _run([python, "-m", "pip", *words, "--no-input", "--no-compile", "--disable-pip-version-check"])


def _run(command: list[str]) -> None:
    env = {key: value for key, value in without_credentials().items() if not key.startswith("PYTHON")}
    # uv does not read pip's variables. Where it finds no index, pip does the work.
    env |= {"UV_SYSTEM_CERTS": "1", "UV_DEFAULT_INDEX": env.get("PIP_INDEX_URL", "")}
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "; ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise ServiceError(
            f"the Rucio server's environment cannot be installed: {last}",
            "pip needs its package index; PIP_INDEX_URL and PIP_FIND_LINKS are honoured",
        )
