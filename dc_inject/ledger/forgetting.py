"""Forgetting a campaign: its ledger and the files beside it are deleted, never while somebody uses it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from dc_inject.ledger import lock
from dc_inject.ledger.reading import Reader
from dc_inject.model import State
from dc_inject.model.errors import LedgerError


def unended(view: Reader) -> int:
    """Return how many rules and jobs may still exist, or have left files that only this ledger knows of."""
    in_service = view.entries(*(state for state in State if state.in_service))
    ended = view.entries(State.ENDED)
    return len(in_service) + sum(1 for entry in ended if not entry.injection.link.service.cleans_up)


def forget(path: Path, who: str) -> None:
    """Delete a ledger, its log and its lock; raises LedgerError while it is used, or if that fails."""
    with lock.held(path, who, timedelta(0)):
        try:
            for end in ("", "-wal", "-shm"):
                path.with_name(path.name + end).unlink(missing_ok=True)
            lock.lock_file(path).unlink(missing_ok=True)
        except OSError as error:
            message = f"{error.filename or path} cannot be deleted: {error.strerror or error}"
            raise LedgerError(message, "check the rights on its folder") from None
