"""Changes of injections that are not in the database yet: each row is written once for all that changed of it.

They are written before anything else is asked of the database, and with the commit at the latest, so that nobody
can tell. In a simulation, which commits rarely, an injection that is asked for, accepted and observed in one cycle
costs one statement, and not one for each of them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from dc_inject.ledger import entry_rows
from dc_inject.ledger.database import Database, stored
from dc_inject.model import Entry


class Unwritten:
    """What has changed since it was last written."""

    def __init__(self, database: Database) -> None:
        """Take the database that they will be written to."""
        self._db = database
        # By key: how it is in the database, how it is now, and when it became so.
        self._changes: dict[str, tuple[Entry, Entry, datetime]] = {}
        self._looks: dict[str, datetime] = {}  # when it was looked at last, of what is else as it was

    def changed(self, before: Entry, entry: Entry, now: datetime) -> None:
        """Keep that an entry has become another one; inside a transaction."""
        self._db.put_off(self._write, self._forget)
        key = entry.injection.key
        self._changes[key] = self._changes[key][0] if key in self._changes else before, entry, now

    def looked_at(self, entries: Iterable[Entry], now: datetime) -> None:
        """Keep that entries were looked at without any other news; inside a transaction."""
        self._db.put_off(self._write, self._forget)
        for entry in entries:
            key = entry.injection.key
            if (change := self._changes.get(key)) is None:
                self._looks[key] = now
            else:
                self._changes[key] = change[0], entry, now

    def _write(self) -> None:
        times: dict[datetime, list[str]] = defaultdict(list)
        for key, time in self._looks.items():
            times[time].append(key)
        for time, keys in times.items():
            self._db.run(entry_rows.update(("observed_at",), several=True), stored(time), json.dumps(keys))
        # What becomes of many at once is mostly the same: one statement for all is half the work of one for each.
        alike: dict[tuple[tuple[str, ...], tuple[object, ...]], list[str]] = defaultdict(list)
        for key, (before, entry, now) in self._changes.items():
            if names := entry_rows.differing(before, entry):
                alike[names, entry_rows.written(entry, names, now)].append(key)
        statements: dict[str, list[tuple[object, ...]]] = defaultdict(list)
        for (names, values), keys in alike.items():
            several = len(keys) > 1
            statements[entry_rows.update(names, several=several)].append(
                (*values, json.dumps(keys) if several else keys[0])
            )
        for statement, rows in statements.items():
            self._db.run_many(statement, rows)
        self._forget()

    def _forget(self) -> None:
        self._changes.clear()
        self._looks.clear()
