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

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from dc_inject.ledger import active_entries, entry_rows
from dc_inject.ledger.database import Database, Kept, Store, stored
from dc_inject.ledger.schema import ENDS
from dc_inject.model import Cycle, Entry, Injection, State
from dc_inject.model.items import ItemId, read_id, units_of
from dc_inject.model.services import SERVICES

# Services where an item can be at a destination only once, in words of SQL.
UNIQUE = f"({', '.join(repr(name) for name, service in SERVICES.items() if service.unique)})"
_DROPPED = frozenset({State.REFUSED, State.WITHDRAWN})
_OVER = frozenset({State.COMPLETE, State.ENDED, State.GONE})


class EntryReader(Store):
    """Reads entries, in no order; what is set aside, and what may go out only once."""

    def _entries(
        self, states: Sequence[State] = (), cycle: Cycle | None = None, since: datetime | None = None
    ) -> Iterator[Entry]:
        conditions: list[str] = ["1"]
        values: list[str | int] = []
        if states:
            conditions.append(f"state IN ({', '.join('?' * len(states))})")
            values += [str(state) for state in states]
            if all(f"'{state}'" not in ENDS for state in states):
                conditions.append(f"state NOT IN {ENDS}")  # in the words of the partial index, which it takes then
        if cycle is not None:
            conditions.append("cycle = ?")
            values.append(stored(cycle.start))
        if since is not None:
            conditions.append("cycle >= ?")
            values.append(stored(since))
        for row in self._db.stream(f"{entry_rows.PLAINLY} WHERE {' AND '.join(conditions)}", *values):
            yield entry_rows.entry_of(row)

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


def any_once(database: Database) -> Kept[bool]:
    """Make the question whether anything goes out once only: most campaigns may give everything again."""
    return Kept(database, lambda: database.row("SELECT 1 FROM once_only") is not None)


def keep_once_only(database: Database, injections: Iterable[Injection]) -> bool:
    """Keep what goes out once, in the transaction of its intents; return whether anything does."""
    names = [
        (injection.key, name) for injection in injections if injection.once for name in units_of(injection.item)
    ]
    database.run_many("INSERT OR IGNORE INTO once_only VALUES (?, ?)", names)
    return bool(names)


def let_out_again(
    database: Database, changes: Iterable[tuple[Entry, Entry]], undone: Mapping[str, Collection[str]]
) -> None:
    """Let go out again what did not arrive of injections that are over or were dropped, as they were and are.

    `undone` names the files that did not arrive, by key; where it is unknown, none of them counts as arrived.
    """
    for before, after in changes:
        key, item = before.injection.key, after.injection.item
        missing = undone.get(key, ())
        dropped = after.state in _DROPPED
        over = before.state not in _OVER and after.state in _OVER
        if dropped or (over and after.moved + after.present < item.bytes and not missing):
            database.run("DELETE FROM once_only WHERE key = ?", key)
        elif over and missing:
            names = ((key, name) for name in missing)
            database.run_many("DELETE FROM once_only WHERE key = ? AND item = ?", names)
