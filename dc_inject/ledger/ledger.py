"""The ledger of one campaign: the durable record of due, intents, outcomes, holds and changes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Self

from dc_inject.ledger import database, in_place, lock
from dc_inject.ledger.accounts import recomputed
from dc_inject.ledger.challenge import Challenge
from dc_inject.ledger.cycles import Cycles
from dc_inject.ledger.database import PATIENCE, Database
from dc_inject.ledger.inventory import Inventory
from dc_inject.ledger.overrides import Overrides
from dc_inject.ledger.reading import Reader
from dc_inject.ledger.store import flow_key
from dc_inject.ledger.types import Totals
from dc_inject.model import FlowKey
from dc_inject.system import disk


class Ledger(Cycles, Overrides, Inventory, Challenge, Reader):
    """One file, one campaign, one injector at a time; every method is one transaction and takes the time.

    Only one thread may use a Ledger. Other processes may write small things to the same file meanwhile, such as a
    pause or an end that was asked for. Every error is a LedgerError, with a hint where a person can act.
    """

    @classmethod
    def open(cls, path: Path, *, synchronous: str = "FULL", patience: timedelta = PATIENCE) -> Self:
        """Open a ledger to write; makes the file (0600), and its folder (0700), when there is none.

        `synchronous` is SQLite's: with FULL, what a method has written survives a power cut. `patience` is how
        long a writer waits for another process's transaction.
        """
        lacks = 0 if database.OPEN_HERE[disk.real(path)] else in_place.missing_log(path)
        ledger = cls(Database.writable(path, synchronous=synchronous, patience=patience))
        ledger.log_lacks, ledger._files = lacks, in_place.FileWatch(path)
        return ledger

    log_lacks = 0  # bytes that were missing from the log when the ledger was opened
    _files: in_place.FileWatch | None = None

    def hold(
        self, who: str, patience: timedelta = timedelta(0), does: str = lock.INJECTS
    ) -> AbstractContextManager[None]:
        """Be the one injector inside the block, or do something else that excludes it; wait so long for that.

        The lock frees itself when the process dies. Raises InUse that names its holder, or LedgerError with
        another name of the file.
        """
        self.require_in_place()
        return lock.held(self.path, who, patience, does)

    def require_in_place(self) -> None:
        """Raise LedgerError if the file was moved, deleted, replaced or linked, or its log truncated."""
        if self._files is not None:
            self._files.look()

    def together(self) -> AbstractContextManager[None]:
        """Make what is written inside one transaction, where many small ones would be slow."""
        return self._db.write()

    def totals_from_rows(self) -> Mapping[FlowKey, Totals]:
        """Return the accounts as they follow from rows and injections, read one by one: to check `accounts` by."""
        with self.snapshot():
            rows = self._db.rows(
                "SELECT scenario, source, destination, through, sum(r.due) AS due, sum(r.forgiven) AS forgiven "
                "FROM cycle_row AS r JOIN account ON id = account GROUP BY id"
            )
            dues = {flow_key(row): (row["due"], row["forgiven"]) for row in rows}
            return recomputed(dues, self._entries())
