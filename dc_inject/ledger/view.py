"""A ledger seen by those who only read: status, metrics, reports; from any process, while an injector runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from dc_inject.ledger.database import Database
from dc_inject.ledger.lock import holder
from dc_inject.ledger.reading import Reader, Totals
from dc_inject.model import FlowKey, Hold


@dataclass(frozen=True, slots=True)
class Line:
    """One flow in the closing table: its totals in bytes, and in how many cycles it was held for what."""

    key: FlowKey
    totals: Totals
    cycles: int
    holds: Mapping[Hold, int] = field(default_factory=dict)

    @property
    def due(self) -> int:
        """Bytes due."""
        return self.totals.due

    @property
    def injected(self) -> int:
        """Bytes injected."""
        return self.totals.injected

    @property
    def forgiven(self) -> int:
        """Bytes of due that will not be made up."""
        return self.totals.forgiven

    @property
    def moved(self) -> int:
        """Bytes that arrived; an estimate as far as `estimated` says."""
        return self.totals.moved

    @property
    def estimated(self) -> int:
        """The part of `moved` that is an estimate."""
        return self.totals.estimated

    @property
    def rules(self) -> int:
        """Rules or jobs that a service accepted."""
        return self.totals.rules


class LedgerView(Reader):
    """A ledger, read-only."""

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a ledger that exists; raises LedgerError with a hint."""
        return cls(Database(path, readonly=True))

    @property
    def path(self) -> Path:
        """The ledger's file."""
        return self._db.path

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def copy_to(self, path: Path) -> None:
        """Copy the ledger as it is now, also while an injector writes it."""
        self._db.copy_to(path)

    def snapshot(self) -> AbstractContextManager[None]:
        """Let several reads see one state of the ledger, whatever an injector writes meanwhile; may be nested."""
        return self._db.snapshot()

    def holder(self) -> str | None:
        """Return who injects with this ledger now, or None if nobody does."""
        return holder(self.path)

    def summary(self) -> tuple[Line, ...]:
        """Return the closing table: a line for each flow, by scenario and link."""
        with self._db.snapshot():
            holds: dict[FlowKey, Counter[Hold]] = {}
            cycles: Counter[FlowKey] = Counter()
            for row in self.rows():
                cycles[row.key] += row.due > 0
                if row.held is not None:
                    holds.setdefault(row.key, Counter())[row.held.hold] += 1
            return tuple(
                Line(key, totals, cycles[key], dict(holds.get(key, {})))
                for key, totals in sorted(self.accounts().items(), key=lambda pair: pair[0])
            )
