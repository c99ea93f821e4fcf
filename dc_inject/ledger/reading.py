"""Everything that can be read of a ledger: by the injector itself, and by status, metrics and reports."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

from dc_inject.ledger import lock, paths
from dc_inject.ledger.challenge import ChallengeReader
from dc_inject.ledger.inventory import InventoryReader
from dc_inject.ledger.overrides import OverrideReader
from dc_inject.ledger.series import SeriesReader
from dc_inject.ledger.tape import TapeReader
from dc_inject.ledger.types import SummaryLine, Totals


class Reader(SeriesReader, OverrideReader, InventoryReader, ChallengeReader, TapeReader):
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
        """Return who injects with this ledger now, in words; None when nobody does. Of shards it names each."""
        if self.files == [self.path]:
            return lock.holder(self.path)
        holders = {paths.shard_of(file)[0]: lock.holder(file) for file in self.files}
        count = max(paths.shard_of(file)[1] for file in self.files)
        words = (f"shard {index}: {holders.get(index) or 'none is running'}" for index in range(count))
        return "; ".join(words) if any(holders.values()) else None

    def copy_to(self, path: Path) -> None:
        """Write a copy of the ledger as it is now, for us alone; works while an injector runs."""
        self._db.copy_to(path)
