"""Debian's XRootD: found on this machine, or its packages unpacked into a folder, for which nobody needs root."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dc_inject.errors import ServiceError, UsageError

from .locking import locked

PACKAGES = ("xrootd-server", "xrootd-server-plugins", "xrootd-plugins")
PLUGINS = ("libXrdHttp", "libXrdHttpTPC", "libXrdThrottle")
HINT = f"apt install {' '.join(PACKAGES)}"
SYSTEM = ":/usr/sbin:/usr/bin"  # looked into also when an ordinary user's PATH has them not
_COMPLETE = ".dc_inject-complete"
_PATIENCE = 300.0  # seconds for one call of apt


@dataclass(frozen=True)
class Xrootd:
    """The program, and the folder with its libraries when it is not installed where the system looks."""

    program: Path
    library: Path | None = None


def default_xrootd() -> Path:
    """Name the place of the unpacked packages unless told otherwise; they fit one release on one architecture."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "dc_inject" / f"xrootd-{_release()}"


def installed() -> Xrootd | None:
    """Find the XRootD of the system, when it has every plugin that the sandbox needs."""
    found = shutil.which("xrootd", path=os.environ.get("PATH", "") + SYSTEM)
    if not found:
        return None
    program = Path(found).resolve()
    return Xrootd(program) if _library(program.parent.parent) else None


def unpacked(folder: Path) -> Xrootd | None:
    """Find what was unpacked to its end in `folder`, for this release of the system."""
    marker, usr = folder / _COMPLETE, folder / "usr"
    if not marker.is_file() or marker.read_text().strip() != _release():
        return None
    library = _library(usr)
    return Xrootd(usr / "bin" / "xrootd", library) if library else None


def ensure_xrootd(folder: Path, say: Callable[[str], None]) -> Xrootd:
    """Return the system's XRootD, else one in `folder`, which is made when it is missing or half made.

    Raises UsageError for a folder that is something else, ServiceError with the install line when apt cannot help.
    """
    if found := installed():
        return found
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder, say):
        if found := unpacked(folder):
            return found
        if folder.exists():
            if any(folder.iterdir()) and not (folder / "apt").exists():
                raise UsageError(f"{folder} is in use for something else", "name another folder with --xrootd")
            shutil.rmtree(folder)
        say(f"fetching Debian's XRootD into {folder} (3 MB)")
        _unpack(folder)
        (folder / _COMPLETE).write_text(_release() + "\n")
        made = unpacked(folder)
    if made is None:
        raise _no_xrootd("the packages have no XRootD with HTTP plugins")
    return made


def _unpack(folder: Path) -> None:
    # apt works in a folder of its own: it locks nothing of the system's, and leaves nothing there
    apt = folder / "apt"
    for part in ("cache/archives/partial", "lists/partial"):
        (apt / part).mkdir(parents=True)
    fetch = ("-y", "--no-install-recommends", "--download-only", "install", *PACKAGES)
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
            env=os.environ | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
        )  # fmt: skip
    except FileNotFoundError:
        raise _no_xrootd(f"there is no {command[0]} to fetch it with") from None
    except subprocess.TimeoutExpired:
        raise _no_xrootd(f"{command[0]} did not end within {_PATIENCE:.0f} s") from None
    if done.returncode:
        last = "; ".join((done.stderr or done.stdout).strip().splitlines()[-2:])
        raise _no_xrootd(f"{command[0]} says: {last}")


def _no_xrootd(why: str) -> ServiceError:
    return ServiceError(f"there is no XRootD for the sandbox's storages: {why}", HINT)


def _library(usr: Path) -> Path | None:
    """Find the folder below `usr` that has every plugin; their file names carry XRootD's major version."""
    for folder in _library_folders(usr):
        if all(any(folder.glob(f"{plugin}-*.so")) for plugin in PLUGINS):
            return folder
    return None


def _library_folders(usr: Path) -> Iterator[Path]:
    yield from sorted((usr / "lib").glob("*-linux-gnu*"))
    yield from (usr / "lib64", usr / "lib")


def _release() -> str:
    try:
        told = platform.freedesktop_os_release()
    except OSError:
        told = {}
    return f"{told.get('ID', 'linux')}{told.get('VERSION_ID', '')}-{platform.machine()}"
