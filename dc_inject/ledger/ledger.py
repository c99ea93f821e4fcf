"""The ledger of one campaign: `Ledger` writes and reads it, `LedgerView` only reads it, from any process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Self

from dc_inject.ledger import database, in_place, lock, paths
from dc_inject.ledger.cycles import Cycles
from dc_inject.ledger.database import PATIENCE, Database
from dc_inject.ledger.inventory import Inventory, InventoryReader
from dc_inject.ledger.records import RecordReader, Records
from dc_inject.ledger.series import SeriesReader
from dc_inject.ledger.types import SummaryLine, Totals
from dc_inject.system import disk


class Reader(SeriesReader, RecordReader, InventoryReader):
    """Reads one ledger; nothing here changes it."""

    @property
    def path(self) -> Path:
        """The ledger's file."""
        return self._db.path

    def close(self) -> None:
        """Close the file; twice is once."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def snapshot(self) -> AbstractContextManager[None]:
        """Let all that is read inside be of one instant, whatever an injector writes meanwhile; may be nested."""
        return self._db.snapshot()

    def summary(self) -> tuple[SummaryLine, ...]:
        """Return the closing table: a line for every flow key, by scenario and link."""
        with self.snapshot():
            holds, cycles = self.hold_counts(), self.cycle_counts()
            return tuple(
                SummaryLine(key, totals, cycles[key], holds.get(key, {}))
                for key, totals in self.accounts().items()
            )

    def totals(self) -> Totals:
        """Return the totals of the whole campaign."""
        return sum(self.accounts().values(), Totals())

    @property
    def files(self) -> Sequence[Path]:
        """The ledger's file, or those of all shards."""
        return self._db.files

    def holder(self) -> str | None:
        """Return who injects with this ledger now, in words; None without an injector. Of shards it names each."""
        if self.files == [self.path]:
            return lock.holder(self.path)
        holders = {paths.shard_of(file)[0]: lock.holder(file) for file in self.files}
        count = max(paths.shard_of(file)[1] for file in self.files)
        words = (f"shard {index}: {holders.get(index) or 'none is running'}" for index in range(count))
        return "; ".join(words) if any(holders.values()) else None

    def copy_to(self, path: Path) -> None:
        """Write a copy of the ledger as it is now, for us alone; works while an injector runs."""
        self._db.copy_to(path)


class LedgerView(Reader):
    """A ledger, read-only, also while an injector writes it.

    `with view.snapshot():` makes what is read inside of one instant. Keep it short: while it lasts, the ledger's
    write-ahead log cannot be cleared.
    """

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a ledger that exists; raises LedgerError with a hint."""
        return cls(Database.readable(path))


class Ledger(Cycles, Records, Inventory, Reader):
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

    is_continued = True  # by another process, which takes up the state of control
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
