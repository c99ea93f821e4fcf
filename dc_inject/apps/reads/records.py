"""What readers have read, in one small file each, so that it survives the death of worker, scheduler and injector.

A record is claimed once: no bundle is read twice on one machine, whoever asks for it again. Its reader holds a
lock on it, which the kernel lets go when the process dies: so everyone sees whether a reader lives. What is
written is there for others even if the process is killed the moment after.
"""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from dc_inject.ledger.paths import default_folder

FOLDER = "DC_INJECT_READS_FOLDER"  # in the environment of a worker: where its records are
SIZE = 5000  # bytes of a record, written in one call: JSON takes twelve for a character of an error
LONGEST_ERROR = 300
TRIES = 20  # to read a record while it is being written


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a reader is: bytes and whole files that it has read.

    `size` is what all of the bundle turned out to have. `reasons` counts the files that could not be read, by
    class. `over` is set at the end; `stopped` if that was asked for, or the time was over. `dead` is a reader
    whose process has died.
    """

    read: int = 0
    files: int = 0
    size: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    error: str = ""
    over: bool = False
    stopped: bool = False
    dead: bool = False


def folder() -> Path:
    """Return where the records of this machine are; it is made if it is missing, for this user only."""
    named = os.environ.get(FOLDER)
    place = Path(named) if named else default_folder(os.environ) / "reads"
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return place


class Record:
    """The record of one reader, which this process has claimed."""

    def __init__(self, place: Path, key: str) -> None:
        """Claim a key; raises FileExistsError if it was claimed before, by whomever."""
        self._stop = place / f"{key}.stop"
        draft = place / f"{key}.{os.getpid()}"
        self._file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self.write(Progress())
            os.link(draft, place / key)
        except BaseException:
            os.close(self._file)
            raise
        finally:
            draft.unlink()

    def write(self, progress: Progress) -> None:
        """Write how far the reader is."""
        values = asdict(replace(progress, error=progress.error[:LONGEST_ERROR]))
        text = json.dumps(values).encode()
        os.pwrite(self._file, f"{zlib.crc32(text):08x} ".encode() + text.ljust(SIZE) + b"\n", 0)

    @property
    def stop_asked(self) -> bool:
        """Whether this reader was asked to stop."""
        return self._stop.exists()

    def close(self) -> None:
        """Let the lock go."""
        os.close(self._file)


def load(keys: Sequence[str]) -> dict[str, Progress]:
    """Return how far the readers are that have a record on this machine, by key."""
    place = folder()
    found = {key: _load(place / key) for key in keys}
    return {key: progress for key, progress in found.items() if progress is not None}


def stop(keys: Sequence[str]) -> None:
    """Ask readers on this machine to stop; one that has not begun will stop when it does."""
    for key in keys:
        (folder() / f"{key}.stop").touch(mode=0o600)


def forget(keys: Sequence[str]) -> None:
    """Delete the records of readers that are over."""
    for key in keys:
        for name in (key, f"{key}.stop"):
            (folder() / name).unlink(missing_ok=True)


def _load(path: Path) -> Progress | None:
    with suppress(FileNotFoundError), path.open("rb") as file:
        for _ in range(TRIES):
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                dead = True
            except BlockingIOError:
                dead = False
            checksum, _, text = os.pread(file.fileno(), SIZE + 10, 0).rstrip(b" \n").partition(b" ")
            if checksum == f"{zlib.crc32(text):08x}".encode():
                progress = Progress(**json.loads(text))
                return replace(progress, dead=dead and not progress.over)
        if not dead:
            raise OSError(f"the record {path.name} cannot be read")
    return None  # also where a reader could not write it whole, and has died: a full disk
