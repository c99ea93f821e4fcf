"""Debian's packages, unpacked into a folder of our own, without root."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from dc_inject.model.errors import ServiceError

from .processes import without_credentials

_PATIENCE = 300.0  # seconds for one call of apt


def unpack(folder: Path, packages: Sequence[str]) -> None:
    """Fetch packages with apt, and unpack them below a folder; raises ServiceError when apt cannot help."""
    # apt works in a folder of its own: it locks nothing of the system's, and leaves nothing there
    apt = folder / "apt"
    for part in ("cache/archives/partial", "lists/partial"):
        (apt / part).mkdir(parents=True)
    fetch = ("-y", "--no-install-recommends", "--download-only", "install", *packages)
    try:
        _apt(apt, *fetch)
    except ServiceError:  # the system's lists are missing or old, as in most images
        own = f"Dir::State::lists={apt / 'lists'}"
        _apt(apt, "-o", own, "update")
        _apt(apt, "-o", own, *fetch)
    for package in sorted(apt.glob("cache/archives/*.deb")):
        _run("dpkg-deb", "-x", str(package), str(folder))
    shutil.rmtree(apt / "cache")
    shutil.rmtree(apt / "lists")


def _apt(folder: Path, *words: str) -> None:
    _run("apt-get", "-qq", "-o", "Debug::NoLocking=1", "-o", f"Dir::Cache={folder / 'cache'}", *words)


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_PATIENCE,
            env=without_credentials() | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
        )  # fmt: skip
    except FileNotFoundError:
        raise ServiceError(f"there is no {command[0]} to fetch it with") from None
    except subprocess.TimeoutExpired:
        raise ServiceError(f"{command[0]} did not end within {_PATIENCE:.0f} s") from None
    if done.returncode:
        last = "; ".join((done.stderr or done.stdout).strip().splitlines()[-2:])
        raise ServiceError(f"{command[0]} failed: {last}")


def release() -> str:
    """Return the release of the system and its architecture: unpacked programs fit no other."""
    try:
        fields = platform.freedesktop_os_release()
    except OSError:
        fields = {}
    return f"{fields.get('ID', 'linux')}{fields.get('VERSION_ID', '')}-{platform.machine()}"
