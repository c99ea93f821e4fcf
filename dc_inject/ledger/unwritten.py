"""Changes of injections that are not in the database yet: each row is written once for all that changed of it.

They are written before anything else is asked of the database, and with the commit at the latest, so that nobody
can tell. In a simulation, which commits rarely, an injection that is planned, asked for, accepted and observed in
one cycle costs one statement, and not one for each of them.
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
        # By key: intents that are not in the database, their accounts, and since when they are intended.
        self._intents: dict[str, tuple[Entry, int, datetime]] = {}
        # By key: how it is in the database, how it is now, and when it became so.
        self._changes: dict[str, tuple[Entry, Entry, datetime]] = {}
        self._looks: dict[str, datetime] = {}  # when it was looked at last, of what is else as it was

    def intended(self, entry: Entry, account: int, now: datetime) -> None:
        """Keep a new intent, which has never been in the database; inside a transaction."""
        self._put_off()
        self._intents.setdefault(entry.injection.key, (entry, account, now))

    def changed(self, before: Entry, entry: Entry, now: datetime) -> None:
        """Keep that an entry has become another one; inside a transaction."""
        self._put_off()
        key = entry.injection.key
        earlier = self._changes.get(key)
        self._changes[key] = before if earlier is None else earlier[0], entry, now

    def looked_at(self, entries: Iterable[Entry], now: datetime) -> None:
        """Keep that entries were looked at without any other news; inside a transaction."""
        self._put_off()
        for entry in entries:
            key = entry.injection.key
            if (change := self._changes.get(key)) is None:
                self._looks[key] = now
            else:
                self._changes[key] = change[0], entry, now

    def _put_off(self) -> None:
        if not (self._intents or self._changes or self._looks):
            self._db.put_off(self._write, self._forget)

    def _write(self) -> None:
        if self._intents:
            self._db.run_many(entry_rows.INTEND, [self._intended(key) for key in self._intents])
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

    def _intended(self, key: str) -> tuple[object, ...]:
        """Return all that is written of a new intent, with what it has become since."""
        intent, account, at = self._intents[key]
        _, entry, now = self._changes.pop(key, (intent, intent, at))
        return entry_rows.intended(intent.injection, account, at, entry, now)

    def _forget(self) -> None:
        self._intents.clear()
        self._changes.clear()
        self._looks.clear()
