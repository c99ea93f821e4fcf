"""Files of a campaign that no ledger has, for `dc-inject end --sweep`: which of them may be deleted.

Their paths show whose they are, not whether an injector still works on them: files that are young, and files of
jobs at work, are left alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from dc_inject.ledger import Reader
from dc_inject.model.errors import ServiceError, UsageError
from dc_inject.model.ports import Backend, Clock, Status, Stray, in_parts

YOUNG = timedelta(days=1)
AT_ONCE = 1000  # files deleted by one call
_QUIET = frozenset({Status.ABSENT, Status.COMPLETE})  # what a job is when it writes nothing any more


@runtime_checkable
class Sweeper(Protocol):
    """A service that can look for files of a campaign where they were copied to."""

    def sweep(self, prefix: str, campaign: str) -> Iterator[Stray]:
        """Stream files whose whole path is one of ours."""

    def statuses(self, keys: Iterable[str]) -> Mapping[str, Status]:
        """Return how the jobs of injections stand, by the keys of these."""

    def delete(self, urls: Sequence[str], prefix: str, campaign: str) -> list[tuple[str, ServiceError | None]]:
        """Delete files of a campaign, and folders of its jobs that are then empty; return what was in the way."""


@dataclass(frozen=True, slots=True)
class Strays:
    """All files of a campaign below a prefix that are in no ledger, and what becomes of them.

    `young` files stay because of their age, `working` and `unknown` ones because their jobs are at work, or may
    be; `free` ones may be deleted, of which some may be `recent`, which is less than a day old.
    """

    every: Sequence[Stray]
    young: Sequence[Stray]
    working: Sequence[Stray]
    unknown: Sequence[Stray]
    free: Sequence[Stray]
    recent: bool


@dataclass(frozen=True, slots=True)
class Sweep:
    """A search for files of a campaign below a prefix, by a service that may leave some.

    `ledger` has those that are known, if there is one.
    """

    backend: Backend
    prefix: str
    campaign: str
    ledger: Reader | None
    clock: Clock

    def find(self, *, include_recent: bool) -> Strays:
        """Return the files that are in no ledger. Raises UsageError for a service that leaves no files.

        Files that are less than a day old, or whose cycles are, stay unless `include_recent`; those of active jobs
        always.
        """
        if not isinstance(self.backend, Sweeper):
            raise UsageError(f"{self.backend.name} leaves no files to sweep")
        known = self.ledger.entries() if self.ledger else ()
        keys = {entry.injection.key for entry in known if entry.state.resident}
        every = [stray for stray in self.backend.sweep(self.prefix, self.campaign) if stray.copy.key not in keys]
        since = self.clock.now() - YOUNG
        young = [stray for stray in every if not include_recent and _newest(stray) > since]
        old = [stray for stray in every if include_recent or _newest(stray) <= since]
        statuses = self.backend.statuses(dict.fromkeys(stray.copy.key for stray in old))
        groups: dict[str, list[Stray]] = defaultdict(list)
        for stray in old:
            status = statuses[stray.copy.key]
            group = "free" if status in _QUIET else "unknown" if status is Status.UNKNOWN else "working"
            groups[group].append(stray)
        recent = any(_newest(stray) > since for stray in groups["free"])
        return Strays(every, young, groups["working"], groups["unknown"], groups["free"], recent)

    def delete(self, strays: Sequence[Stray]) -> Iterator[list[ServiceError | None]]:
        """Delete files that were found; give for many files at a time what stood in the way of each."""
        assert isinstance(self.backend, Sweeper)
        urls = sorted(stray.url for stray in strays)  # so that the files of a folder go together
        for part in in_parts(urls, AT_ONCE):
            yield [error for _, error in self.backend.delete(part, self.prefix, self.campaign)]


def _newest(stray: Stray) -> datetime:
    return max(stray.copy.cycle, stray.modified or stray.copy.cycle)
