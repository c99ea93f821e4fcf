"""Intents that wait for their moment of release, by their links."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from heapq import heappop, heappush

from dc_inject.model import Entry, FlowKey


class IntentQueue:
    """Intents of the current cycle by their keys, none of which has been called for."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._moments: list[tuple[datetime, FlowKey, str]] = []  # a heap, also of what has gone
        self._ready: dict[FlowKey, dict[str, Entry]] = {}  # those whose moment has come

    def put(self, entry: Entry) -> None:
        """Let an intent wait, or wait for another moment than before."""
        injection = entry.injection
        self.take(injection.key)
        self._entries[injection.key] = entry
        heappush(self._moments, (moment(entry), injection.flow, injection.key))

    def take(self, key: str) -> Entry | None:
        """Return an intent, which waits no longer; None when it does not wait."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            ready = self._ready.get(entry.injection.flow, {})
            if ready.pop(key, None) is not None and not ready:
                del self._ready[entry.injection.flow]
        return entry

    def clear(self) -> None:
        """Empty the queue."""
        self._entries, self._moments, self._ready = {}, [], {}

    def __iter__(self) -> Iterator[Entry]:
        """Give all that wait."""
        return iter(tuple(self._entries.values()))

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._entries)

    def next_moment(self) -> datetime | None:
        """Return when the next intent may go out, besides those that are ready."""
        return self._moments[0][0] if self._current() else None

    def ready(self, now: datetime) -> dict[FlowKey, dict[str, Entry]]:
        """Return what may go out by now, by flow: the one that waits longest first, and so inside each."""
        while self._current() and self._moments[0][0] <= now:
            _, flow, key = heappop(self._moments)
            self._ready.setdefault(flow, {})[key] = self._entries[key]
        return self._ready

    def _current(self) -> bool:
        """Drop from the heap's head what waits no longer, or for another moment; return whether any is left."""
        while self._moments:
            at, _, key = self._moments[0]
            entry = self._entries.get(key)
            if entry is not None and moment(entry) == at and key not in self._ready.get(entry.injection.flow, {}):
                return True
            heappop(self._moments)
        return False


def moment(entry: Entry) -> datetime:
    """Return when an intent may go out."""
    release = entry.injection.release
    return max(release, entry.not_before) if entry.not_before else release
