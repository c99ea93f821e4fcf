"""Calls to services with what follows on each: the engine's thread starts them and hears their end."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from dc_inject.model import Entry
from dc_inject.model.errors import ServiceError, Temporary
from dc_inject.model.groups import grouped
from dc_inject.model.ports import Clock, Executor

log = logging.getLogger(__name__)

K = TypeVar("K")
T = TypeVar("T")
Then = Callable[[Any, ServiceError | None], None]


@dataclass(frozen=True, slots=True)
class Batch(Generic[K, T]):
    """The call that asks a service about some things; one that hangs holds up calls of the same `service` only."""

    service: str
    subjects: Sequence[K]
    call: Callable[[], T]


class Calls:
    """Starts tasks on the executor and runs each one's continuation in the engine's thread."""

    def __init__(self, executor: Executor, clock: Clock) -> None:
        """Take the executor that runs the tasks and the clock that deadlines are measured on."""
        self._executor = executor
        self._clock = clock
        self._then: dict[int, Then] = {}
        self._tags = itertools.count()
        self._afterwards: list[Callable[[], None]] = []
        self.stopping = False  # set when the program is to end: then no gathering waits any longer

    def start(self, task: Callable[[], Any], then: Then, lane: str = "") -> None:
        """Run `task` in another thread; `then(result, error)` is called in the engine's thread.

        `lane` is the service that is called: one that hangs holds up its own calls only.
        """
        tag = next(self._tags)
        self._then[tag] = then
        self._executor.submit(tag, task, lane)

    def afterwards(self, do: Callable[[], None]) -> None:
        """Let a continuation have something done once all others of this wait have run."""
        self._afterwards.append(do)

    def wait(self, until: datetime) -> None:
        """Wait for ends of tasks, a wake, or `until`; run the continuations of what has ended.

        One that fails keeps no other from running; the first failure is raised when all have run.
        """
        failures: list[Exception] = []
        for finished in self._executor.wait(until):
            error = None if finished.error is None else _as_service_error(finished.error)
            try:
                self._then.pop(int(str(finished.tag)))(finished.result, error)
            except Exception as failure:  # noqa: BLE001  raised again below
                failures.append(failure)
        afterwards, self._afterwards = self._afterwards, []
        for do in afterwards:
            try:
                do()
            except Exception as failure:  # noqa: BLE001  raised again below
                failures.append(failure)
        if failures:
            raise failures[0]

    def gather(
        self, batches: Sequence[Batch[K, T]], deadline: datetime
    ) -> tuple[list[tuple[Batch[K, T], T]], list[tuple[Batch[K, T], ServiceError]]]:
        """Make calls side by side, and wait for all of them or the deadline; return the answers, and the errors.

        Continuations of other tasks run meanwhile. A call that is late counts as failed; its answer is dropped.
        """
        done: dict[int, tuple[Any, ServiceError | None]] = {}

        def keep(number: int) -> Then:
            def then(answer: Any, error: ServiceError | None) -> None:  # noqa: ANN401  any call's answer
                done[number] = answer, error

            return then

        for number, batch in enumerate(batches):
            self.start(batch.call, keep(number), batch.service)
        while len(done) < len(batches) and self._clock.now() < deadline and not self.stopping:
            self.wait(deadline)
        why = "stopped before {} answered" if self.stopping else "no answer from {} in time"  # not its fault, then
        answers, errors = [], []
        for number, batch in enumerate(batches):
            answer, error = done.get(number, (None, Temporary(why.format(batch.service), lost=True)))
            if error is None:
                answers.append((batch, answer))
            else:
                errors.append((batch, error))
        return answers, errors

    @property
    def under_way(self) -> int:
        """How many tasks have not come back."""
        return len(self._then)


def by_service(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Return entries by the service that they went through."""
    return grouped((entry.injection.link.through, entry) for entry in entries)


def _as_service_error(error: BaseException) -> ServiceError:
    """Return a ServiceError as it is; anything else is a fault of ours, whose call may have been carried out."""
    if isinstance(error, ServiceError):
        return error
    if not isinstance(error, Exception):
        raise error
    log.error("unexpected %s in a call to a service", type(error).__name__, exc_info=error)
    return Temporary(f"unexpected {type(error).__name__} in a call", lost=True)
