"""What is at its destination, or may come there, as the ledger has it, kept by the one who writes it.

Each round of observation looks at what lives again. Each plan looks at what is taken, and at how long those took
that were completed in the last hours. None of them reads it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from dc_inject.ledger.database import Database, Kept, stored
from dc_inject.model import Bundle, Entry, FlowKey, State, transitions

KEPT = timedelta(hours=4)  # before what was asked for: plans ask for six hours, control for eight cycles
STATES = frozenset(state for state in State if state.resident)
_HERE = frozenset({State.LIVE, State.COMPLETE})


class Completion(NamedTuple):
    """When something was completed, its flow, and the microseconds that this took from its acceptance on."""

    at: datetime
    flow: FlowKey
    taken: int


def by_release(entry: Entry) -> tuple[datetime, datetime, str]:
    """Return what entries are sorted by: cycle, moment of release, key."""
    injection = entry.injection
    return injection.cycle.start, injection.release, injection.key


class Living:
    """Entries in these states by their keys, in the order of their release: read once, then followed."""

    def __init__(self, database: Database, read: Callable[[], Iterable[Entry]]) -> None:
        """Take the database, and what reads all entries in these states from it."""
        self._kept = Kept(database, lambda: {one.injection.key: one for one in sorted(read(), key=by_release)})
        self._in_order = True

    def entries(self) -> dict[str, Entry]:
        """Return them as they are now; not to be changed."""
        entries = self._kept()
        if not self._in_order:
            ordered = sorted(entries.values(), key=by_release)
            entries.clear()
            entries.update((entry.injection.key, entry) for entry in ordered)
            self._in_order = True
        return entries

    @contextmanager
    def changing(self) -> Iterator[Callable[[Entry], None]]:
        """Write inside, and report each entry that was written; after an error all are read again."""
        with self._kept.changing() as entries:

            def put(entry: Entry) -> None:
                if entry.state in STATES:
                    self._in_order = self._in_order and entry.injection.key in entries
                    entries[entry.injection.key] = _as_read(entry)
                else:
                    entries.pop(entry.injection.key, None)

            yield put


class Completions:
    """What was completed lately: as what lives, it is read once, and followed from then on."""

    def __init__(self, database: Database, read: Callable[[datetime], Iterable[Completion]]) -> None:
        """Take the database, and what reads all of it since a moment."""
        self._begin = datetime.max.replace(tzinfo=UTC)  # since when it is known
        self._kept = Kept(database, lambda: deque(read(self._begin)))

    def since(self, moment: datetime) -> Iterator[Completion]:
        """Yield what was completed since a moment."""
        if moment < self._begin:
            self._begin = moment
            self._kept.forget()
        known = self._kept()
        while known and self._begin < moment - KEPT and known[0].at < moment - KEPT:
            known.popleft()
        self._begin = max(self._begin, moment - KEPT)
        return (completion for completion in known if completion.at >= moment)

    @contextmanager
    def changing(self) -> Iterator[Callable[[Entry, Entry], None]]:
        """Write inside, and report each entry that was written, before and after; an error forgets everything."""
        with self._kept.changing() as known:

            def put(before: Entry, entry: Entry) -> None:
                if (
                    before.completed_at is None
                    and entry.completed_at is not None
                    and entry.accepted_at is not None
                ):
                    taken = stored(entry.completed_at - entry.accepted_at)
                    known.append(Completion(entry.completed_at, entry.injection.flow, max(taken, 0)))

            yield put


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
