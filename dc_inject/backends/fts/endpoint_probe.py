"""The storages at the ends of links, asked one by one: whether they answer, and what they allow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dc_inject.model.errors import ServiceError, Temporary
from dc_inject.storage import VERBS, FileStatus, Reach, Storage
from dc_inject.system.executor import Workers

Role = Literal["source", "destination"]


@dataclass(frozen=True, slots=True)
class StorageEnd:
    """What a storage says of a URL prefix as a source or as a destination.

    `verbs` says for each of `storage.VERBS` whether it is allowed there, None where the storage does not say.
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


class EndpointProbe:
    """Asks storages questions that change nothing; what goes wrong is part of the answer."""

    def __init__(self, source: Storage, destination: Storage, workers: Workers) -> None:
        """Take the storages as they are opened for sources and for destinations."""
        self._storages: Mapping[Role, Storage] = {"source": source, "destination": destination}
        self._workers = workers

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
            reach = self._storages[role].reachable(prefix)
        except ServiceError as error:
            # One that does not answer is not asked again, each time until the timeout.
            verbs = unknown if isinstance(error, Temporary) else self._verbs(role, prefix)
            return StorageEnd(prefix, role, verbs, error=error)
        return StorageEnd(prefix, role, self._verbs(role, prefix), reach)

    def _verbs(self, role: Role, prefix: str) -> Mapping[str, bool | None]:
        try:
            return self._storages[role].verbs(prefix)
        except ServiceError:  # some refuse OPTIONS itself: then nothing is known
            return dict.fromkeys(VERBS)

    def _stat(self, url: str) -> FileStatus | ServiceError:
        storage = self._storages["source"]
        try:
            status = storage.stat(url)
            nearline = storage.reachable(url).nearline if status.exists else None
        except ServiceError as error:
            return error
        return replace(status, nearline=nearline)
