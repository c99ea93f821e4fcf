"""A storage of the sandbox as its folder shows it: what lies there is the truth, whatever a service answers."""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dc_inject.model.content import Content
from dc_inject.model.errors import UsageError

_BLOCK = 1 << 20


@dataclass(frozen=True)
class Stored:
    """A file on a storage: its path there, its size in bytes, its checksum as grid software writes it."""

    path: str
    size: int
    adler32: str


def data_folder(sandbox: Path, name: str) -> Path:
    """Name the folder whose content a storage serves."""
    return sandbox / "storage" / name / "data"


def write(data: Path, path: str, size: int, seed: object = 0) -> Stored:
    """Write a file of `size` bytes that depend on `seed` alone, some hundred MB a second; folders are made."""
    target = data / _relative(path)
    _make_folders(data, target.parent)
    checksum = 1
    with target.open("wb") as out:
        target.chmod(0o600)
        for piece in Content(str(seed), size):
            checksum = zlib.adler32(piece, checksum)
            out.write(piece)
    return Stored(_absolute(path), size, f"{checksum:08x}")


def read(data: Path, path: str) -> Stored:
    """Look at a file as it lies there. Raises FileNotFoundError when it does not."""
    size, checksum = 0, 1
    with (data / _relative(path)).open("rb") as file:
        while block := file.read(_BLOCK):
            size += len(block)
            checksum = zlib.adler32(block, checksum)
    return Stored(_absolute(path), size, f"{checksum:08x}")


def walk(data: Path, under: str = "/") -> Iterator[tuple[str, int]]:
    """Yield path and size of every file there, below a folder of the storage; a missing folder has none."""
    for folder, _, names in os.walk(data / _relative(under)):
        for name in names:
            file = Path(folder, name)
            with contextlib.suppress(FileNotFoundError):  # deleted just now
                yield f"/{file.relative_to(data)}", file.stat().st_size


def _relative(path: str) -> PurePosixPath:
    """Take a path on the storage to one below its folder; nothing leads out of there."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise UsageError(f"{path} leads out of the storage")
    return PurePosixPath(*parts)


def _absolute(path: str) -> str:
    return f"/{_relative(path)}"


def _make_folders(data: Path, folder: Path) -> None:
    """Make a folder and those above it, for the owner only; `mkdir(parents=True)` would open them to others."""
    for path in reversed((folder, *folder.parents)):
        if path.is_relative_to(data):
            path.mkdir(mode=0o700, exist_ok=True)
