"""FTS as a service that moves bytes: jobs of files between storages, and their deletion by us."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from math import ceil

from dc_inject.backends.fts.connection import (
    Connection,
    Delegation,
    Make,
    check,
    checked,
    delegation,
    real_client,
    understood,
)
from dc_inject.backends.fts.inventory import Inventory, Replicas
from dc_inject.backends.fts.jobs import JobList, Jobs
from dc_inject.backends.fts.limits import limits, queues
from dc_inject.backends.fts.observing import Observing, Rows
from dc_inject.backends.fts.removing import CopyDeletion
from dc_inject.backends.fts.sites import Sites, StorageEnd, may_open
from dc_inject.credentials import TOKEN_FILES, Credentials, Purpose
from dc_inject.model import DatasetFilter, Entry, FileFilter, Item, Link, ports, urls
from dc_inject.model.errors import Permanent, ServiceError
from dc_inject.model.events import Observer
from dc_inject.model.naming import Origin
from dc_inject.model.services import FTS
from dc_inject.storage import Storage, StorageAt, Storages, WebDav, Xrootd, trust
from dc_inject.system.executor import Workers

__all__ = ["Delegation", "FtsBackend", "StorageEnd"]

QUICK = 10.0  # seconds of silence in which a storage has to answer; in all it may take twice that
_NOTHING = ports.ReplicaStatus(None, True, True, True, None, 0, False)


class FtsBackend:
    """Implements `ports.Backend` with FTS's own client; one injection is one job.

    FTS ends nothing by itself but what waits too long in its queue, and deletes nothing: both are done here. What
    storages are asked is in `sites.py`, and what is deleted at them in `removing.py`.
    """

    name = FTS.name

    def __init__(
        self,
        endpoint: str,
        *,
        campaign: str,
        clock: ports.Clock,
        observer: Observer,
        credentials: Credentials,
        timeout: float = 60.0,
        threads: int = 8,
        replicas: Replicas | None = None,
        storage: Storage | None = None,
        make: Make = real_client,
        trusted: Callable[[str], bool] = lambda _url: True,
        origin: Origin | None = None,
    ) -> None:
        """Take the endpoint, what opens it and the storages, and what bounds a call.

        `timeout` are seconds without an answer, `threads` the requests to storages under way at once. `replicas`
        looks up datasets in Rucio. `storage` is spoken to in place of the real ones, `make` makes the client of
        a thread. `trusted` decides whether the host of a URL may get a token. `origin` goes into each job. Nothing
        is asked before the first call. Raises UsageError for an endpoint that cannot be one.
        """
        self.campaign = campaign
        self.connection = Connection(
            checked(endpoint),
            timeout=timeout,
            clock=clock,
            observer=observer,
            credentials=credentials,
            make=make,
        )
        self._credentials = credentials
        self._trusted = trusted

        def reached(purpose: Purpose, patience: float, longest: float | None = None) -> StorageAt:
            if storage is not None:
                return lambda _url: storage
            return Storages(
                WebDav(
                    lambda: credentials.access(purpose),
                    verify=trust(os.environ),
                    connect=10.0 if longest is None else min(10.0, longest / 4),  # of each address that it has
                    read=patience,
                    longest=longest,
                ),
                lambda: Xrootd(timeout=ceil(patience)),
                partial(may_open, credentials, trusted, purpose),
            )

        pool, quick = Workers(threads, "storage"), min(timeout, QUICK)
        self._jobs = Jobs(self.connection, trusted, origin)
        self._observing = Observing(self.connection, self._jobs, Rows(self.connection))
        asking, changing = understood(), understood(lost=True)
        self.submit, self.end = changing(self._jobs.submit), changing(self._jobs.cancel)
        self.limits = asking(partial(limits, self.connection))
        self.statuses = asking(self._observing.statuses)
        copies = CopyDeletion(reached("destination", timeout), self.end, pool, clock)
        self.remove, self.sweep, self.tidy, self.delete = copies.remove, copies.sweep, copies.tidy, copies.delete
        self._inventory = Inventory(reached("source", timeout), pool, replicas)
        source, destination = (reached(end, quick, 2 * quick) for end in ("source", "destination"))
        sites = Sites(source, destination, self._alike, Workers(threads, "storage"), clock)
        self.sites, self.storages, self.stat_sources = sites.sites, sites.ask, sites.stat

    def check(self) -> ports.Identity:
        """Return who we are; credentials are read again, and a proxy is delegated where that is needed.

        Raises NeedsOperator also when what opens the storages cannot be used: no job could be made, or be deleted.
        """
        with understood():
            for purpose in TOKEN_FILES:
                self._credentials.access(purpose)
            ends = [end for purpose in TOKEN_FILES if (end := self._credentials.until(purpose)) is not None]
            return check(self.connection, self.name, min(ends, default=None))

    def resolve(self, expression: str) -> tuple[str, ...]:
        """Return the URL prefix itself: FTS knows no expressions."""
        try:
            return (urls.normal(expression),)
        except ValueError as error:
            raise Permanent(f"{expression!r} is no end of a link through FTS: {error}") from None

    def inventory(
        self, source: str, datasets: DatasetFilter | FileFilter, note: ports.Note | None = None
    ) -> Iterator[Item]:
        """Stream the files below a source that pass the filter, each with its URL and size."""
        del note  # FTS has no datasets
        if not isinstance(datasets, FileFilter):
            raise Permanent("FTS is given files, and the menu names datasets")
        with understood():
            yield from self._inventory.read(source, datasets)

    def check_replicas(
        self, candidates: Sequence[ports.Candidate]
    ) -> Mapping[ports.Candidate, ports.ReplicaStatus]:
        """Return nothing new: every copy has a name of its own, so nothing can be in its way.

        What became of the source files since the inventory shows when they are copied.
        """
        return dict.fromkeys(candidates, _NOTHING)

    def observe(self, entries: Sequence[Entry], *, exact: bool = False) -> list[ports.Observation]:
        """Return the state of jobs; everything here is exact."""
        del exact
        with understood():
            return self._observing.observe(entries)

    def endpoints(self, rse: str) -> list[ports.Endpoint]:
        """Return where a URL prefix is served."""
        parsed = urls.parse(rse)
        return [(parsed.host, parsed.port or urls.PORTS[parsed.scheme])]

    def queues(self, links: Sequence[Link]) -> Mapping[Link, ports.LinkQueue]:
        """Return the transfers that wait on links, whoever submitted them."""
        pairs = {link: (urls.host_key(link.source), urls.host_key(link.destination)) for link in links}
        with understood():
            queues_by_pair = queues(self.connection, sorted(set(pairs.values())))
        return {link: queues_by_pair[pair] for link, pair in pairs.items() if pair in queues_by_pair}

    def credentials_from(self) -> str:
        """Return in words what FTS is asked with, and where it comes from."""
        access = self._credentials.access("fts")
        if access.kind == "nothing":
            return "none found"
        return f"{access.kind} of {access.origin}" if access.origin else access.kind

    def delegation(self) -> Delegation:
        """Return whether FTS acts with a proxy of ours, and how long the one that it has is good."""
        with understood():
            return delegation(self.connection)

    def ours(
        self, campaign: str | None = None, *, since: datetime | None = None
    ) -> Iterator[ports.FoundInjection]:
        """Stream the jobs of this campaign (or of another one) that FTS has, found by their metadata."""
        with understood():
            yield from JobList(self.connection, self.name).ours(campaign or self.campaign, since)

    def made(self, campaign: str, *, since: datetime) -> Iterator[ports.Made]:
        """Stream who made the jobs of a campaign since then."""
        with understood():
            yield from JobList(self.connection, self.name).made(campaign, since)

    def _alike(self) -> bool:
        """Whether sources and destinations are opened by the same."""
        try:
            source, destination = self._credentials.access("source"), self._credentials.access("destination")
        except ServiceError:
            return False  # reported by their users
        return (source.token, source.certificate) == (destination.token, destination.certificate)
