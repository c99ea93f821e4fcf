"""What connections to services have in common: a record of each thread's calls, what became of them, a breaker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from dc_inject.model.errors import NeedsOperator, ServiceError, Temporary, blame
from dc_inject.model.events import Observer, RequestMade
from dc_inject.model.ports import Clock


class CallRecord(Protocol):
    """What is known of the calls of one thread."""

    requests: int  # since the beginning

    def begin(self) -> None:
        """Forget the last call."""


E = TypeVar("E")
N = TypeVar("N", bound=CallRecord)


class Breaker(Generic[E]):
    """Opens after some failures in a row, from any thread: a service that does not answer gets a rest."""

    def __init__(self, most: int) -> None:
        """Take how many failures in a row open it."""
        self._most = most
        self._in_a_row = 0
        self._lock = threading.Lock()
        self.last: E | None = None  # failure

    def note(self, failure: E | None) -> None:
        """Take a failure, or None for an answer."""
        with self._lock:
            self._in_a_row = 0 if failure is None else self._in_a_row + 1
            self.last = self.last if failure is None else failure

    @property
    def open(self) -> E | None:
        """The last failure while there are too many in a row."""
        with self._lock:
            return self.last if self._in_a_row >= self._most else None


def unusable(error: ServiceError, where: str, hint: str) -> NeedsOperator:
    """Return why a service as a whole cannot be used; `hint` is for an error that has none."""
    hold = error.hold if isinstance(error, Temporary | NeedsOperator) else "api-errors"
    passing = error.passing if isinstance(error, NeedsOperator) else isinstance(error, Temporary)
    whole = NeedsOperator(f"{where}: {error.message}", error.hint or hint, hold=hold, passing=passing)
    return blame(whole, error.fault)


class ServiceConnection(Generic[N]):
    """A connection from any thread: clients serve one thread, so each has its own, with a record of its own."""

    def __init__(self, service: str, record: Callable[[], N], clock: Clock, observer: Observer) -> None:
        """Take the service's name, how to make the record of a thread, and who hears of calls."""
        self._service = service
        self._make_record = record
        self._clock = clock
        self._observer = observer
        self._local = threading.local()
        self._lock = threading.Lock()
        self._generation = 0  # of clients; those of older ones are not used again
        self._records: list[N] = []

    def now(self) -> datetime:
        """Return the present instant."""
        return self._clock.now()

    @property
    def requests(self) -> int:
        """How many requests have left so far, those for tokens and the clients' own retries included."""
        with self._lock:
            return sum(record.requests for record in self._records)

    def renew(self) -> None:
        """Forget clients: a person may have repaired something."""
        with self._lock:
            self._generation += 1

    @contextmanager
    def _recorded(self, method: str) -> Iterator[N]:
        """Clear this thread's record, and report the call to the observer; it raises ServiceErrors only."""
        record, started, result, answered = self._my_record(), self._clock.now(), "ok", True
        record.begin()
        try:
            yield record
        except ServiceError as error:
            result = self._result(error)
            answered = not error.outage and getattr(error, "hold", "") != "local"
            raise
        finally:
            seconds = (self._clock.now() - started).total_seconds()
            self._observer.event(RequestMade(self._service, method, seconds, result, answered))

    def _result(self, error: ServiceError) -> str:
        """Return the word for what became of a call."""
        return "lost" if isinstance(error, Temporary) and error.lost else error.kind

    def _my_record(self) -> N:
        if not hasattr(self._local, "record"):
            self._local.record = self._make_record()
            with self._lock:
                self._records.append(self._local.record)
        record: N = self._local.record
        return record
