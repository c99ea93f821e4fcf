"""The ledger of a simulation: what becomes of an injection is merged until something is asked of the database.

A simulation is one transaction, and its ledger is read only after its end. So an injection that is planned, asked
for, accepted and observed in one cycle is written once. The state of control, which a restart would need, is not
kept. The ledger of an injector writes each change at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from dc_inject.ledger import Ledger, entry_rows
from dc_inject.ledger.database import PATIENCE, Database
from dc_inject.model import Entry


class SimulatedLedger(Ledger):
    """A new ledger that merges changes of injections; what it contains in the end is the same."""

    is_continued = False

    def __init__(self, database: _Late) -> None:
        """Take the database, which calls this ledger before each statement."""
        super().__init__(database)
        database.before_statement, database.after_undo = self._write_late, self._forget
        # New intents, their accounts, and when they were intended.
        self._intents: dict[str, tuple[Entry, int, datetime]] = {}
        # How an entry is in the database, what it has become, and when.
        self._changes: dict[str, tuple[Entry, Entry, datetime]] = {}
        # Entries that did not change otherwise, and when they were looked at.
        self._seen: dict[str, tuple[Entry, datetime]] = {}

    @classmethod
    def make(cls, path: Path) -> Self:
        """Make it at a new place."""
        return cls(_Late.writable(path, synchronous="OFF", patience=PATIENCE))

    def _write_intents(self, intents: Iterable[tuple[Entry, int, datetime]]) -> None:
        for intent in intents:
            self._intents.setdefault(intent[0].injection.key, intent)

    def _write_looks(self, seen: Mapping[str, Entry], now: datetime) -> None:
        for key, entry in seen.items():
            if change := self._changes.get(key):
                self._changes[key] = change[0], entry, now
            else:
                self._seen[key] = entry, now

    def _write_changes(self, changes: Iterable[tuple[Entry, Entry, datetime]]) -> None:
        for before, entry, now in changes:
            key = entry.injection.key
            earlier = self._changes.get(key)
            self._changes[key] = earlier[0] if earlier else before, entry, now

    def _write_late(self) -> None:
        if not (self._intents or self._changes or self._seen):
            return
        intents, changes, seen = self._intents, self._changes, self._seen
        self._forget()  # first: what writes them calls this again
        became = ((intent, changes.pop(intent[0].injection.key, None)) for intent in intents.values())
        rows = [entry_rows.intended(*intent, later and later[1:]) for intent, later in became]
        times: defaultdict[datetime, dict[str, Entry]] = defaultdict(dict)
        for key, (entry, at) in seen.items():
            times[at][key] = entry
        with self._db.write():  # an error undoes the whole, whatever statement it came before
            self._db.run_many(entry_rows.INTEND, rows)
            for at, entries in times.items():
                super()._write_looks(entries, at)
            super()._write_changes(changes.values())

    def _forget(self) -> None:
        self._intents, self._changes, self._seen = {}, {}, {}


class _Late(Database):
    """A connection that lets its ledger write what it has merged before each statement and each commit."""

    before_statement: Callable[[], None] = staticmethod(lambda: None)
    after_undo: Callable[[], None] = staticmethod(lambda: None)

    def _before_commit(self) -> None:
        super()._before_commit()
        self.before_statement()

    def _undo(self) -> None:
        super()._undo()
        self.after_undo()

    def run(self, sql: str, *values: object) -> int:
        self.before_statement()
        return super().run(sql, *values)

    def run_many(self, sql: str, values: Iterable[Sequence[object]]) -> None:
        if rows := list(values):
            self.before_statement()
            super().run_many(sql, rows)

    def rows(self, sql: str, *values: object) -> list[Any]:
        self.before_statement()
        return super().rows(sql, *values)

    def row(self, sql: str, *values: object) -> Any:  # noqa: ANN401  what a query gives
        self.before_statement()
        return super().row(sql, *values)

    def stream(self, sql: str, *values: object) -> Iterator[Any]:
        self.before_statement()
        return super().stream(sql, *values)
