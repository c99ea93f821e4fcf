"""Uniqueness: what may not go out again, in the three meanings that this has.

1. **A call happens once.** The same campaign, scenario, cycle, link and item give the same key (`model/naming.py`:
   `key`), which Rucio keeps in a rule's comment and FTS with the job. A call whose answer was lost is made again
   with it, and what an earlier call has made is adopted: by `_duplicate` in `backends/rucio/rules.py`, by `_adopt`
   in `backends/fts/jobs.py`. A rule of ours with another key is still resident, and anybody else's is left alone:
   then another item goes out.
2. **An item is at a destination once**, where the service requires it (`Service.unique`): whatever its source and
   its scenario, a second rule would move nothing. `taken` returns what is there, on its way or set aside; planning
   keeps to it in `_line` of `planning/link_plan.py`, where a slice blocks its dataset as a whole too. Others may
   have brought it, so `why_not` in `engine/preflight.py` looks again before it goes out. Through FTS every copy
   has a name of its own, so that a file may go out again at once.
3. **An item goes out once in a scenario** whose goal requires it (`Flow.once`: a volume), through any service.
   `once_only` returns what did; it is kept from the intent on, and let out again by what did not arrive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from dc_inject.ledger import active_entries
from dc_inject.ledger.database import Database, Kept, stored
from dc_inject.ledger.entry_rows import EntryReader
from dc_inject.model import Entry, Injection, State
from dc_inject.model.items import ItemId, read_id, units_of
from dc_inject.model.services import SERVICES

# Services where an item can be at a destination only once, in words of SQL.
UNIQUE = f"({', '.join(repr(name) for name, service in SERVICES.items() if service.unique)})"
_DROPPED = frozenset({State.REFUSED, State.WITHDRAWN})
_OVER = frozenset({State.COMPLETE, State.ENDED, State.GONE})


class UniquenessReader(EntryReader):
    """Reads what is set aside, and what may go out only once."""

    def taken(self, now: datetime) -> set[tuple[ItemId, str]]:
        """Return every (item, destination) that is set aside now, or is or will be where it may be only once."""
        there = {
            (entry.injection.item.id, link.destination)
            for entry in self._entries(tuple(active_entries.STATES))
            if (link := entry.injection.link).service.unique
        }
        aside = self._db.rows(
            "SELECT item, destination FROM quarantine WHERE until IS NULL OR until > ?", stored(now)
        )
        return there | {(read_id(item), destination) for item, destination in aside}

    def once_only(self) -> set[tuple[str, str]]:
        """Return every (dataset or file, scenario) that is on its way or has arrived, and goes out once."""
        rows = self._db.rows(
            "SELECT once_only.item, scenario FROM once_only JOIN injection USING (key) "
            "JOIN account ON account.id = account"
        )
        return {(row["item"], row["scenario"]) for row in rows}


class Uniqueness(UniquenessReader):
    """What is written of it, inside the transactions of what happens to injections."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._any_once = Kept(database, lambda: database.row("SELECT 1 FROM once_only") is not None)

    def _keep_once_only(self, injections: Iterable[Injection]) -> None:
        names = [
            (injection.key, name)
            for injection in injections
            if injection.once
            for name in units_of(injection.item)
        ]
        if names:
            self._db.run_many("INSERT OR IGNORE INTO once_only VALUES (?, ?)", names)
            self._any_once.forget()

    def _let_out_again(
        self, changes: Iterable[tuple[Entry, Entry]], undone: Mapping[str, Collection[str]]
    ) -> None:
        """Let go out again what did not arrive of injections that are over or were dropped, as they were and are.

        `undone` names the files that did not arrive, by key; where it is unknown, none of them counts as arrived.
        """
        if not self._any_once():
            return  # most campaigns may give everything again
        for before, after in changes:
            key, item = before.injection.key, after.injection.item
            missing = undone.get(key, ())
            dropped = after.state in _DROPPED
            over = before.state not in _OVER and after.state in _OVER
            if dropped or (over and after.moved + after.present < item.bytes and not missing):
                self._db.run("DELETE FROM once_only WHERE key = ?", key)
            elif over and missing:
                names = ((key, name) for name in missing)
                self._db.run_many("DELETE FROM once_only WHERE key = ? AND item = ?", names)
