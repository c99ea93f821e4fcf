"""A ledger that is only read: what status, metrics and reports show, from any process."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from dc_inject.ledger.database import Database
from dc_inject.ledger.reading import Reader


class LedgerView(Reader):
    """A ledger, read-only, also while an injector writes it.

    `with view.snapshot():` makes what is read inside of one instant. Keep it short: while it lasts, the ledger's
    write-ahead log cannot be cleared.
    """

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a ledger that exists; raises LedgerError with a hint."""
        return cls(Database.readable(path))
