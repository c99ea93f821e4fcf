"""Check a ledger without any service: its files, whether it is a ledger, and whether it agrees with itself."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from dc_inject.ledger import database, in_place, lock
from dc_inject.ledger.contradictions import Contradictions
from dc_inject.ledger.types import Finding
from dc_inject.model.errors import LedgerError
from dc_inject.system import disk

_BESIDE = ("", "-wal", "-shm", ".lock")  # what belongs to a ledger, by the end of its file's name


def check(path: Path) -> list[Finding]:
    """Return every contradiction of a ledger, errors first; one that is whole gives none, or notes only.

    Works while an injector runs: all is read from one state of it. Raises LedgerError when there is no such file.
    """
    findings = [*_files(path), *_left(path), *_log_lacks(path)]
    try:
        view = Contradictions.open(path)
    except LedgerError as error:
        code = database.kind(path)
        if code is None:
            raise
        return [*findings, Finding(code, path.name, f"{error.message}; {error.hint}")]
    try:
        with view, view.snapshot():
            findings += view.all()
    except LedgerError as error:
        if not getattr(error.__cause__, "sqlite_errorname", "").startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            raise
        findings.append(Finding("damaged", path.name, f"{error.message}; {error.hint}"))
    return sorted(findings, key=lambda finding: finding.note)


def _files(path: Path) -> Iterator[Finding]:
    """Tell of files that others can read or write (they have addresses and menus in them), and of second names."""
    for end in _BESIDE:
        file = path.with_name(path.name + end)
        if file.exists() and (mode := stat.S_IMODE(file.stat().st_mode)) & 0o077:
            message = f"other users can access it (mode {mode:04o}): run `chmod 600`"
            yield Finding("permissions", file.name, message)
    if path.exists() and (names := path.stat().st_nlink) > 1:
        yield Finding("names", path.name, f"it has {names} names (hard links): delete the others")


def _log_lacks(path: Path) -> Iterator[Finding]:
    """Tell of a write-ahead log that was truncated; once SQLite has opened the ledger, that is forgotten."""
    if not database.OPEN_HERE[disk.real(path)] and (lacks := in_place.missing_log(path)):
        yield Finding("log-truncated", f"{path.name}-wal", f"{lacks} bytes are missing: its last transactions")


def _left(path: Path) -> Iterator[Finding]:
    """Tell of a write-ahead log that nobody writes: its process died. SQLite reads it like the rest."""
    log = path.with_name(path.name + "-wal")
    size = log.stat().st_size if log.exists() else 0
    if size and lock.holder(path) is None:
        message = (
            f"{size} bytes are left from a process that died; they belong to the ledger, so keep this file with it"
        )
        yield Finding("log-left", log.name, message, note=True)
