"""Deleting what ended jobs left at their destinations: some at a time, each job known as soon as it is told."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial

from dc_inject.engine.calls import Calls, Then
from dc_inject.errors import ServiceError, Temporary
from dc_inject.model import Entry
from dc_inject.ports import Backend, Clock, Removal

AGAIN_AFTER = timedelta(seconds=5)  # between two tries to delete
A_FILE = timedelta(seconds=3)  # that each file of a job adds to how long its call is waited for


class Removals:
    """Asks for jobs one by one, at most so many at a time, and hears of each as it comes.

    No more is handed out than can begin at once, so that a call's patience counts its own time and not that of a
    queue. A call that does not come back within it is left out and never made again beside itself: it still holds
    its thread. Each storage gets its turn, so that a slow one does not keep the others.
    """

    def __init__(
        self,
        entries: Iterable[Entry],
        backends: Mapping[str, Backend],
        calls: Calls,
        clock: Clock,
        *,
        at_once: int,
        patience: timedelta,
    ) -> None:
        """Take what is to be deleted, the calls under way at once, and how long one without files may take."""
        self._entries = {entry.injection.key: entry for entry in entries}
        self._backends = backends
        self._calls = calls
        self._clock = clock
        self._at_once = at_once
        self._patience = patience
        self._ready: dict[str, deque[str]] = {}  # keys to ask for now, by destination
        self._later: dict[str, datetime] = {}  # keys to ask for again, and when
        self._asked: dict[str, datetime] = {}  # until when each call that is under way is waited for
        self._lost: set[str] = set()  # whose calls did not come back in time
        self._answers: deque[Removal] = deque()
        self._heard: dict[str, Removal] = {}  # the last answer of each
        for key in self._entries:
            self._put(key)

    def told(self, patience: timedelta) -> Iterator[list[Removal]]:
        """Give what is known of each, some at a time as it comes.

        What is not gone is asked for again until nothing has got on for `patience`; then it is given as it is.
        """
        until = self._clock.now() + patience
        while self._ready or self._later or self._asked:
            self._hand_out()
            if not self._free and not self._asked and self._clock.now() >= until:
                break  # every thread hangs
            self._calls.wait(min([*self._asked.values(), *self._later.values()], default=until))
            now, known = self._clock.now(), []
            while self._answers:
                removal = self._answers.popleft()
                if removal.gone or removal.key not in self._heard:
                    until = now + patience
                self._heard[removal.key] = removal
                again = max(removal.again_at or now, now + AGAIN_AFTER)
                if removal.gone or again > until or removal.key in self._lost:
                    self._lost.discard(removal.key)
                    known.append(removal)
                else:
                    self._later[removal.key] = again
            self._lose(now)
            yield known
        yield [self._untold(key) for key in (*self._lost, *self._later, *_all(self._ready))]

    @property
    def _free(self) -> int:
        return self._at_once - len(self._asked) - len(self._lost)

    def _put(self, key: str) -> None:
        self._ready.setdefault(self._entries[key].injection.link.destination, deque()).append(key)

    def _hand_out(self) -> None:
        """Start as many calls as there is room for, where the fewest are under way first."""
        now = self._clock.now()
        for key in [key for key, moment in self._later.items() if moment <= now]:
            del self._later[key]
            self._put(key)
        busy = Counter(self._entries[key].injection.link.destination for key in (*self._asked, *self._lost))
        while self._ready and self._free > 0:
            destination = min(self._ready, key=lambda name: busy[name])
            busy[destination] += 1
            self._ask(self._ready[destination].popleft())
            if not self._ready[destination]:
                del self._ready[destination]

    def _ask(self, key: str) -> None:
        entry = self._entries[key]
        self._asked[key] = self._clock.now() + self._patience + entry.injection.item.files * A_FILE
        remove = self._backends[entry.injection.link.through].remove
        self._calls.start(partial(remove, [entry]), self._then(key))

    def _then(self, key: str) -> Then:
        def then(removals: list[Removal] | None, error: ServiceError | None) -> None:
            self._asked.pop(key, None)
            self._answers += removals or [Removal(key, gone=False, error=error)]

        return then

    def _lose(self, now: datetime) -> None:
        for key in [key for key, moment in self._asked.items() if moment <= now]:
            del self._asked[key]
            self._lost.add(key)

    def _untold(self, key: str) -> Removal:
        if known := self._heard.get(key):
            return known
        where = self._entries[key].injection.link.destination
        if key in self._lost:
            error = Temporary(f"deleting at {where} takes too long: no answer yet", lost=True)
        else:
            error = Temporary(f"not asked to delete at {where}: calls that take too long hold all threads")
        return Removal(key, gone=False, error=error)


def _all(ready: Mapping[str, deque[str]]) -> Iterator[str]:
    for keys in ready.values():
        yield from keys
