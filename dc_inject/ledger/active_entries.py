"""What is at its destination, or may come there, as the ledger has it, kept by the one who writes it.

Each round of observation looks at what lives again, and each plan at what is taken: neither reads it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from dc_inject.ledger.database import Database
from dc_inject.model import Bundle, Entry, State, transitions

STATES = frozenset(state for state in State if state.resident)
_HERE = frozenset({State.LIVE, State.COMPLETE})


class Living:
    """Entries in these states by their keys: read once, and followed from then on.

    They are read anew when another connection has written to the file, and when a change did not come to its end.
    """

    def __init__(self, database: Database, read: Callable[[], Iterable[Entry]]) -> None:
        """Take the database, and what reads all entries in these states from it."""
        self._db = database
        self._read = read
        self._entries: dict[str, Entry] | None = None
        self._version: object = None

    def entries(self) -> dict[str, Entry]:
        """Return them as they are now; not to be changed."""
        version = self._db.version()
        if self._entries is None or version != self._version:
            self._entries = {entry.injection.key: entry for entry in self._read()}
            self._version = version  # as it was before the reading: what came between is seen the next time
        return self._entries

    @contextmanager
    def changing(self) -> Iterator[Callable[[Entry], None]]:
        """Write inside, and tell of each entry that was written; after an error nothing is known any more."""
        entries, self._entries = self.entries(), None

        def put(entry: Entry) -> None:
            if entry.state in STATES:
                entries[entry.injection.key] = _as_read(entry)
            else:
                entries.pop(entry.injection.key, None)

        yield put
        self._entries = entries


def _as_read(entry: Entry) -> Entry:
    """Return an entry as it comes out of the ledger.

    Files are named only in what is still to be asked for; those that did not arrive only until it has ended.
    """
    if entry.undone and entry.state not in _HERE:
        entry = entry.changed(undone=())
    injection = entry.injection
    item = injection.item
    if not isinstance(item, Bundle) or not item.members or entry.state in transitions.UNASKED:
        return entry
    return entry.changed(injection=replace(injection, item=replace(item, members=())))
