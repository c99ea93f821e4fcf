"""Debian's XRootD: found on this machine, or its packages unpacked into a folder, without root."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dc_inject.model.errors import ServiceError

from . import debian, ownership
from .locking import locked

PACKAGES = ("xrootd-server", "xrootd-server-plugins", "xrootd-plugins")
PLUGINS = ("libXrdHttp", "libXrdHttpTPC", "libXrdThrottle")
HINT = f"apt install {' '.join(PACKAGES)}"
SYSTEM = ":/usr/sbin:/usr/bin"  # looked into also when an ordinary user's PATH has them not
_COMPLETE = ".dc_inject-complete"


@dataclass(frozen=True)
class Xrootd:
    """The program, and the folder with its libraries when it is not installed where the system looks."""

    program: Path
    library: Path | None = None


def default_xrootd() -> Path:
    """Name the place of the unpacked packages by default; they fit one release on one architecture."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "dc_inject" / f"xrootd-{debian.release()}"


def installed() -> Xrootd | None:
    """Return the XRootD of the system if it has every plugin that the sandbox needs."""
    path = shutil.which("xrootd", path=os.environ.get("PATH", "") + SYSTEM)
    if not path:
        return None
    program = Path(path).resolve()
    return Xrootd(program) if _library(program.parent.parent) else None


def unpacked(folder: Path) -> Xrootd | None:
    """Find what was unpacked to its end in `folder`, for this release of the system."""
    marker, usr = folder / _COMPLETE, folder / "usr"
    if not marker.is_file() or marker.read_text().strip() != debian.release():
        return None
    library = _library(usr)
    return Xrootd(usr / "bin" / "xrootd", library) if library else None


def ensure_xrootd(folder: Path, report: Callable[[str], None]) -> Xrootd:
    """Return the system's XRootD, else one in `folder`, which is made when it is missing or half made.

    Raises UsageError for a folder that is something else, ServiceError with the install line when apt cannot help.
    """
    if of_system := installed():
        return of_system
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder, report):
        if xrootd := unpacked(folder):
            return xrootd
        if os.path.lexists(folder):
            ownership.remove(folder, "--xrootd")
        ownership.claim(folder, "--xrootd")
        report(f"fetching Debian's XRootD into {folder} (3 MB)")
        try:
            debian.unpack(folder, PACKAGES)
        except ServiceError as error:
            raise _no_xrootd(error.message) from None
        (folder / _COMPLETE).write_text(debian.release() + "\n")
        xrootd = unpacked(folder)
    if xrootd is None:
        raise _no_xrootd("the packages have no XRootD with HTTP plugins")
    return xrootd


def _no_xrootd(why: str) -> ServiceError:
    return ServiceError(f"there is no XRootD for the sandbox's storages: {why}", HINT)


def _library(usr: Path) -> Path | None:
    """Find the folder below `usr` that has every plugin; their file names carry XRootD's major version."""
    folders = (*sorted((usr / "lib").glob("*-linux-gnu*")), usr / "lib64", usr / "lib")
    return next((one for one in folders if all(any(one.glob(f"{plugin}-*.so")) for plugin in PLUGINS)), None)
