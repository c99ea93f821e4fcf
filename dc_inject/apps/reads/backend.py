"""Streamed reads as a service: an injection is a bundle of files that one reader reads at its own rate."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import version

from dc_inject.apps.reads import records
from dc_inject.apps.reads.cluster import Cluster, cluster
from dc_inject.apps.reads.reader import PATIENCE, Task, web
from dc_inject.apps.reads.records import Progress
from dc_inject.backends.fts.inventory import Inventory, SourceRefused
from dc_inject.backends.fts.sites import Sites
from dc_inject.credentials.trust import Wanted
from dc_inject.model import (
    Bundle,
    DatasetFilter,
    Entry,
    FileFilter,
    Injection,
    Item,
    Link,
    ReadOptions,
    State,
    urls,
)
from dc_inject.model.errors import NeedsOperator, Permanent, ServiceError, Temporary
from dc_inject.model.ports import (
    VANISHED,
    Candidate,
    Endpoint,
    Identity,
    LinkQueue,
    Note,
    Observation,
    Outcome,
    Removal,
    ReplicaStatus,
    RseFacts,
    Status,
)
from dc_inject.model.services import READS
from dc_inject.storage import Storages, Xrootd
from dc_inject.system.account import who
from dc_inject.system.executor import Workers

_NOTHING = ReplicaStatus(None, True, True, True, None, 0, False)
QUICK = 10  # seconds in which a storage has to answer


def reads(wanted: Wanted) -> ReadsBackend:
    """Return the back end of the workers that are named."""
    from dc_inject.backends.build import rucio  # noqa: PLC0415  only for files that are named by datasets

    at_work = cluster(wanted.workers)
    storage, asked = (
        Storages(web(wanted.trusted.allow, seconds), partial(Xrootd, timeout=seconds))
        for seconds in (PATIENCE, QUICK)
    )
    threads, known = Workers(8, "storage"), cache(lambda: rucio(wanted))
    inventory = Inventory(storage, threads, lambda source, datasets: known().replicas(source, datasets))
    return ReadsBackend(
        at_work,
        inventory,
        Sites(asked, asked, lambda: True, threads, wanted.clock),
        wanted.trusted.allow,
        lambda rses: known().sites(rses),
    )


class ReadsBackend:
    """Implements `ports.Backend` with workers that read; nothing is written anywhere but their records."""

    name = READS.name

    def __init__(
        self,
        at_work: Cluster,
        inventory: Inventory,
        storages: Sites,
        trusted: Callable[[str], bool],
        facts: Callable[[Iterable[str]], Mapping[str, RseFacts]],
        now: Callable[[], float] = time.time,
    ) -> None:
        """Take the workers, what lists sources, what asks whether they answer, and the time since 1970.

        `trusted` decides whether the host of a URL may get a token of the workers; `facts` asks Rucio about RSEs.
        """
        self._cluster = at_work
        self._inventory = inventory
        self._sites = storages
        self._trusted = trusted
        self._facts = facts
        self._rses: set[str] = set()  # that are sources
        self._now = now
        self._queue = Queue(at_work)

    def check(self) -> Identity:
        """Return who we are; raises NeedsOperator if there can be no workers."""
        until = self._cluster.check()
        return Identity(self.name, self._cluster.address, version("distributed"), "", who(), False, True, until)

    def resolve(self, expression: str) -> tuple[str, ...]:
        """Return the end itself: there are no expressions here."""
        return (expression,)

    def inventory(
        self, source: str, datasets: DatasetFilter | FileFilter, note: Note | None = None
    ) -> Iterator[Item]:
        """Stream the files below a source that pass the filter, each with the bytes that are read of it."""
        del note
        if not isinstance(datasets, FileFilter):
            raise Permanent("readers are given files, and the menu names datasets")
        if not urls.is_url(source):
            self._admit(source)
        options = datasets.reading or ReadOptions()
        for file in self._inventory.read(source, datasets):
            yield replace(file, bytes=options.size(file.bytes))

    def check_replicas(self, candidates: Sequence[Candidate]) -> Mapping[Candidate, ReplicaStatus]:
        """Return nothing new: a file may be read as often as one likes."""
        return dict.fromkeys(candidates, _NOTHING)

    def submit(self, injections: Sequence[Injection]) -> list[Outcome]:
        """Give bundles to readers; a source has at most `connections` of them at a time, the others wait."""
        for one in injections:
            self._queue.add(self._task(one))
        return [Outcome(one.key, one.key) for one in injections]

    def observe(self, entries: Sequence[Entry], *, exact: bool = False) -> list[Observation]:
        """Return how far readers are; everything here is exact."""
        del exact
        keys = [entry.injection.key for entry in entries]
        # First: it may begin meanwhile.
        waiting = None if self._queue.closed else {key for key in keys if key in self._queue}
        found: dict[str, Progress] = {}
        for answer in self._cluster.ask(records.load, keys):
            for key, progress in answer.items():
                if key not in found or found[key].read <= progress.read:
                    found[key] = progress
        return [observation(entry, found.get(entry.injection.key), waiting) for entry in entries]

    def end(self, entries: Sequence[Entry]) -> list[Outcome]:
        """Stop readers, which takes less than a second."""
        keys = [entry.injection.key for entry in entries]
        self._cluster.ask(records.stop, keys)
        for key in keys:
            self._queue.drop(key)
        return [Outcome(key) for key in keys]

    def close(self) -> None:
        """End the workers of this machine; what their readers have left is due again."""
        self._queue.close()
        self._cluster.close()

    def remove(self, entries: Sequence[Entry]) -> list[Removal]:
        """Forget readers that are over; they leave nothing at their site."""
        keys = [entry.injection.key for entry in entries]
        self._cluster.ask(records.forget, keys)
        return [Removal(key, gone=True) for key in keys]

    def sites(self, rses: Iterable[str]) -> Mapping[str, RseFacts]:
        """Return whether sources answer, or may be read; of the site of the workers nothing is known."""
        names = set(rses)
        facts = self._sites.sites({name for name in names if urls.is_url(name)})
        if known := self._rses & names:
            try:
                facts |= self._facts(known)
            except ServiceError as error:
                facts |= {name: RseFacts(name, missing={"readable": error.message}) for name in known}
        read = {}
        for name, fact in facts.items():
            missing = {signal: why for signal, why in fact.missing.items() if signal == "readable"}
            read[name] = RseFacts(name, readable=fact.readable, missing=missing)
        return {name: read.get(name, RseFacts(name)) for name in names}

    def endpoints(self, rse: str) -> list[Endpoint]:
        """Return where a source is served."""
        if not urls.is_url(rse):
            return []
        parsed = urls.parse(rse)
        return [(parsed.host, parsed.port or urls.PORTS[parsed.scheme])]

    def queues(self, links: Sequence[Link]) -> Mapping[Link, LinkQueue]:
        """Return nothing: no link of readers waits in FTS."""
        del links
        return {}

    def _admit(self, rse: str) -> None:
        """Raise Permanent for a source that is no RSE, means other RSEs, or is tape: reads would recall files.

        Where Rucio cannot be asked, only sources that are RSEs are without files.
        """
        try:
            fact = self._facts([rse])[rse]
        except NeedsOperator as error:
            refused = SourceRefused(f"Rucio cannot be asked for {rse}: {error.message}", error.hint)
            refused.hold = error.hold  # it is no fault of the source
            raise refused from None
        if not fact.exists:
            hint = f"did you mean {fact.near}?" if fact.near else "check its spelling"
            raise Permanent(f"the RSE {rse} does not exist in Rucio", hint)
        if fact.ambiguity:
            raise Permanent(f"Rucio: {fact.ambiguity}", "take another RSE, or its URL")
        if fact.tape:
            raise Permanent(f"{rse} is tape, and workers read from disk only", "recall its files first")
        self._rses.add(rse)

    def _task(self, one: Injection) -> Task:
        if not isinstance(one.item, Bundle) or one.job is None or one.job.reading is None:
            raise Permanent(f"{one.item.name} is no bundle of files to read")
        files = tuple((member.name, member.bytes) for member in one.item.members)
        until = self._now() + one.lifetime.total_seconds()
        trusted = all(self._trusted(url) for url, _ in files)
        return Task(one.key, files, one.job.reading, until, one.job.scitag, trusted)


class Queue:
    """Bundles that wait for their source, and those that are with the workers; the caps of sources are kept."""

    def __init__(self, at_work: Cluster) -> None:
        """Take the workers."""
        self._cluster = at_work
        self._lock = threading.RLock()
        self.closed = False
        self._waiting: dict[str, dict[str, Task]] = defaultdict(dict)  # by the storage that they read from, by key
        self._running: dict[str, set[str]] = defaultdict(set)  # keys by storage

    def __contains__(self, key: str) -> bool:
        with self._lock:
            return any(key in some for some in (*self._running.values(), *self._waiting.values()))

    def add(self, task: Task) -> None:
        """Take a bundle, once, and begin with it if its source has a connection left.

        Raises Temporary after the end: those of the same call may have begun before it.
        """
        place = urls.host_key(task.files[0][0])
        with self._lock:
            if self.closed:
                raise Temporary("the workers of this run have ended", lost=True)
            if task.key not in self:
                self._waiting[place][task.key] = task
            self._begin(place)

    def drop(self, key: str) -> None:
        """Forget a bundle that waits; of one that is with the workers only if it has not begun."""
        with self._lock:
            for waiting in self._waiting.values():
                waiting.pop(key, None)
        self._cluster.cancel(key)

    def close(self) -> None:
        """Forget all bundles, so that none begins any more."""
        with self._lock:
            self.closed = True
            self._waiting.clear()
            self._running.clear()

    def _begin(self, place: str) -> None:
        """Begin with those that waited longest; what the workers do not take goes on waiting."""
        waiting, running = self._waiting[place], self._running[place]
        for task in list(waiting.values()):
            if len(running) >= task.options.connections:
                return
            running.add(task.key)
            try:
                self._cluster.start(task, partial(self._ended, place, task.key))
            except BaseException:
                running.discard(task.key)
                raise
            waiting.pop(task.key, None)

    def _ended(self, place: str, key: str) -> None:
        with self._lock:
            self._running[place].discard(key)
            self._begin(place)


def observation(entry: Entry, progress: Progress | None, waiting: set[str] | frozenset[str] | None) -> Observation:
    """Return how an entry stands, by its record, if there is one, or whether it waits for a reader.

    Without `waiting` its worker was ended at the end of the run: what it had not read is taken back, which shows
    nothing of the source.
    What a reader that was stopped has not read is gone with it; what could not be read, or was left by a reader
    that died, has failed, and is due again.
    """
    key, item, asked = entry.injection.key, entry.injection.item, entry.end_asked_at is not None
    if waiting is None and not asked and (progress is None or progress.dead):
        read = max(entry.moved, progress.read if progress else 0)
        return Observation(key, Status.ABSENT, moved=read, exact=True, size=read)
    if progress is None:
        if waiting and key in waiting and not asked:
            return Observation(key, Status.WAITING, key, moved=0, exact=True)
        if entry.state not in {State.LIVE, State.COMPLETE} or asked:
            return Observation(key, Status.ABSENT)
        left = item.files - entry.files_done
        return Observation(
            key,
            Status.ABSENT,
            files_done=entry.files_done,
            files_stuck=left,
            failed=item.bytes - entry.moved,
            reasons={VANISHED: left},
            error="its reader was lost before it began, or with its records",
        )
    over, size = progress.over or progress.dead, progress.size or item.bytes
    reasons = Counter(progress.reasons)
    if progress.dead:
        reasons[VANISHED] += max(item.files - progress.files - sum(reasons.values()), 0)
    status = (Status.ABSENT if asked else Status.COMPLETE) if over else Status.MOVING
    return Observation(
        key,
        status,
        key,
        files_done=progress.files,
        files_stuck=sum(reasons.values()),
        moved=progress.read,
        exact=True,
        size=None if size == item.bytes else size,
        failed=size - progress.read if over and not progress.stopped else 0,
        reasons=reasons,
        error=progress.error or ("its reader ended before its last file" if progress.dead else ""),
    )
