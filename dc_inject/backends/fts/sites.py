"""Storages at the ends of links: whether they answer, what they allow, and how much space is left."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from dc_inject.backends.service_connection import Breaker
from dc_inject.credentials import Credentials, Purpose
from dc_inject.credentials.trust import hint, refusal
from dc_inject.model.errors import NeedsOperator, Permanent, ServiceError, Temporary
from dc_inject.model.ports import Clock, RseFacts
from dc_inject.storage import VERBS, AccessDenied, FileStatus, Later, Reach, StorageAt
from dc_inject.system.executor import Workers

GIVE_UP_AFTER = 3  # requests in a row that a storage does not answer
FRESH = timedelta(seconds=30)  # 1,200 links do not ask one storage 1,200 times

log = logging.getLogger(__name__)

_Answer = Reach | ServiceError
_NO_SPACE = "the storage does not report its space (quota-available-bytes)"
Role = Literal["source", "destination"]


def may_open(credentials: Credentials, trusted: Callable[[str], bool], purpose: Purpose, url: str) -> None:
    """Raise AccessDenied where a token would go to a host that no person has named: it could be used elsewhere."""
    if credentials.access(purpose).token and not trusted(url):
        raise AccessDenied(refusal(url, "your token"), hint(url), hold="credentials")


class StorageBreaker(Breaker[ServiceError]):
    """Opens when a storage keeps failing to answer in one round: each request would cost a time-out."""

    def note(self, failure: ServiceError | None) -> None:
        """Take what became of a request; what a storage reports of one file, or will do later, is an answer."""
        super().note(None if isinstance(failure, Permanent | Later) else failure)


class Sites:
    """Asks each storage prefix one cheap question, and keeps the answer for a short time.

    A prefix is asked as a source and as a destination, once when both are opened by the same credentials.
    """

    def __init__(
        self, source: StorageAt, destination: StorageAt, alike: Callable[[], bool], workers: Workers, clock: Clock
    ) -> None:
        """Take the storages with short timeouts, and what decides whether their credentials are the same."""
        self._storages: Mapping[Role, StorageAt] = {"source": source, "destination": destination}
        self._alike = alike
        self._workers = workers
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[datetime, RseFacts]] = {}
        self._wrong: dict[str, str] = {}  # of each prefix, what is wrong with it

    def sites(self, prefixes: Iterable[str]) -> dict[str, RseFacts]:
        """Return the facts of each prefix."""
        names, now = sorted(set(prefixes)), self._clock.now()
        with self._lock:
            self._kept = {name: (at, fact) for name, (at, fact) in self._kept.items() if now - at < _fresh(fact)}
            facts = {name: self._kept[name][1] for name in names if name in self._kept}
        asked = [name for name in names if name not in facts]
        for name, fact in zip(asked, self._workers.map(self._ask, asked), strict=True):
            facts[name] = fact
            with self._lock:
                self._kept[name] = self._clock.now(), fact
        return {name: facts[name] for name in names}

    def ask(self, sources: Iterable[str], destinations: Iterable[str]) -> list[StorageEnd]:
        """Return for each prefix whether it can be reached, and which verbs are allowed there."""
        asked: list[tuple[Role, str]] = [("source", prefix) for prefix in sorted(set(sources))]
        asked += [("destination", prefix) for prefix in sorted(set(destinations))]
        return list(self._workers.map(self._end, asked))

    def stat(self, files: Sequence[str]) -> list[FileStatus | ServiceError]:
        """Return the status of source files, or why that cannot be done."""
        return list(self._workers.map(self._stat, files))

    def _end(self, asked: tuple[Role, str]) -> StorageEnd:
        role, prefix = asked
        unknown: Mapping[str, bool | None] = dict.fromkeys(VERBS)
        try:
            reach = self._storages[role](prefix).reachable(prefix)
        except ServiceError as error:
            # One that does not answer is not asked again, each time until the timeout.
            verbs = unknown if isinstance(error, Temporary) else self._verbs(role, prefix)
            return StorageEnd(prefix, role, verbs, error=error)
        return StorageEnd(prefix, role, self._verbs(role, prefix), reach)

    def _verbs(self, role: Role, prefix: str) -> Mapping[str, bool | None]:
        try:
            return self._storages[role](prefix).verbs(prefix)
        except ServiceError:  # some refuse OPTIONS itself: then nothing is known
            return dict.fromkeys(VERBS)

    def _stat(self, url: str) -> FileStatus | ServiceError:
        try:
            storage = self._storages["source"](url)
            status = storage.stat(url)
            nearline = storage.reachable(url).nearline if status.exists else None
        except ServiceError as error:
            return error
        return replace(status, nearline=nearline)

    def _ask(self, prefix: str) -> RseFacts:
        as_destination = _reach(self._storages["destination"], prefix)
        silent = isinstance(as_destination, Temporary)  # whoever asks: it is not waited for twice
        as_source = as_destination if silent or self._alike() else _reach(self._storages["source"], prefix)
        self._log_trouble(prefix, as_source, as_destination)
        readable, writable = _usable(as_source), _usable(as_destination)
        why = {
            signal: (usable, answer.message)
            for signal, usable, answer in (
                ("readable", readable, as_source),
                ("writable", writable, as_destination),
            )
            if not isinstance(answer, Reach)
        }
        missing = {signal: message for signal, (usable, message) in why.items() if usable is None}
        closed = {signal: message for signal, (usable, message) in why.items() if usable is False}
        if isinstance(as_source, Reach) and not as_source.exists:
            readable, closed["readable"] = False, "there is no such folder"  # as a destination: FTS makes it
        free = as_destination.free if isinstance(as_destination, Reach) else None
        if free is None:
            missing["free"] = _NO_SPACE if isinstance(as_destination, Reach) else as_destination.message
        return RseFacts(prefix, readable=readable, writable=writable, free=free, missing=missing, closed=closed)

    def _log_trouble(self, prefix: str, *answers: _Answer) -> None:
        """Log what is wrong with a storage when that begins, changes and ends, and not each time it is asked."""
        wrong = "; ".join(dict.fromkeys(answer.message for answer in answers if isinstance(answer, ServiceError)))
        with self._lock:
            before = self._wrong.pop(prefix, "")
            if wrong:
                self._wrong[prefix] = wrong
        if wrong and wrong != before:
            log.warning("%s", wrong)
        elif before and not wrong:
            log.info("%s answers again", prefix)


def _reach(at: StorageAt, prefix: str) -> _Answer:
    try:
        return at(prefix).reachable(prefix)
    except ServiceError as error:
        return error


def _fresh(fact: RseFacts) -> timedelta:
    """Return how long a fact is believed: a storage that is down may be back soon, and its links wait for it."""
    return FRESH / 6 if fact.writable is False else FRESH


def _usable(answer: _Answer) -> bool | None:
    """Return whether the storage is there; None where it is, but does not let us ask.

    A token that may write and no more is refused here and good enough for the transfers.
    """
    if isinstance(answer, Reach):
        return True
    return None if isinstance(answer, Permanent | NeedsOperator) else False


@dataclass(frozen=True, slots=True)
class StorageEnd:
    """What a storage answers about a URL prefix as a source or as a destination.

    `verbs` has for each of `storage.VERBS` whether it is allowed there, None where that is not known.
    `error` is why `reach` is not known.
    """

    prefix: str
    role: Role
    verbs: Mapping[str, bool | None]
    reach: Reach | None = None
    error: ServiceError | None = None

    @property
    def reachable(self) -> bool | None:
        """Whether it answers; None when it, or what opens it, refused the question."""
        return True if self.reach else False if isinstance(self.error, Temporary) else None
