"""FTS in the twin: a back end for links that use FTS directly, over the same simulated grid as Rucio's.

The ends of such links are URLs; a storage of the grid is found by the host that its file gives it, by which FTS
distinguishes storages, too. Queues, the optimizer and storages are the world's (the folder `grid`), jobs
`grid/jobs.py`. What a source holds is made of the grid's datasets, file by file, or is the list that a menu names.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from dc_inject.apps.twin.backend import TwinClock, named, queue
from dc_inject.apps.twin.grid.jobs import Job
from dc_inject.apps.twin.grid.transfers import Queue
from dc_inject.apps.twin.grid.world import World
from dc_inject.model import (
    DatasetFilter,
    Entry,
    File,
    FileFilter,
    Injection,
    Item,
    JobOptions,
    Link,
    State,
    ports,
    urls,
)
from dc_inject.model.errors import Permanent, Temporary
from dc_inject.model.ports import (
    Candidate,
    Endpoint,
    Identity,
    Note,
    Observation,
    Outcome,
    Removal,
    ReplicaStatus,
    RseFacts,
    Status,
)
from dc_inject.model.services import FTS, SIMULATED
from dc_inject.planning import pool

MOST_FILES = 200_000  # of one source
_NOTHING = ReplicaStatus(None, True, True, True, None, 0, False)


class TwinFts:
    """FTS in a world; while it is down there, every call fails as one that had no answer."""

    name = FTS.name

    def __init__(self, world: World, clock: TwinClock, seed: int) -> None:
        """Take the world, its clock, and the seed of its files."""
        self._world, self._clock, self._seed = world, clock, seed

    def check(self) -> Identity:
        """Return who we are."""
        self._call()
        address = f"{SIMULATED}{self._world.grid.name}"
        return Identity(self.name, address, "twin", "def", "twin", admin=False, may_end=True)

    def resolve(self, expression: str) -> tuple[str, ...]:
        """Return the URL prefix itself; raises Permanent when no storage of the grid has its host."""
        self._storage(expression)
        return (urls.normal(expression),)

    def inventory(
        self, source: str, datasets: DatasetFilter | FileFilter, note: Note | None = None
    ) -> Iterator[Item]:
        """Stream the files of a menu's list, or those of the grid's datasets at a source, that pass the filter."""
        del note  # FTS has no datasets
        self._call()
        if not isinstance(datasets, FileFilter) or datasets.landed:
            return
        files = self._files(source, datasets) if datasets.listing is None else datasets.listing.files
        for file in islice(files, MOST_FILES):
            url = file.name if urls.is_url(file.name) else urls.join(source, file.name)
            item = File(url, file.bytes, file.checksum)
            if url.startswith(f"{source}/") and pool.passes(item, source, datasets):
                yield item

    def check_replicas(self, candidates: Sequence[Candidate]) -> Mapping[Candidate, ReplicaStatus]:
        """Return nothing new: every copy has a name of its own."""
        return dict.fromkeys(candidates, _NOTHING)

    def submit(self, injections: Sequence[Injection]) -> list[Outcome]:
        """Make a job for each; one with the same key is adopted."""
        self._call()
        return [self._accept(injection) for injection in injections]

    def observe(self, entries: Sequence[Entry], *, exact: bool = False) -> list[Observation]:
        """Return the state of jobs; all files of a job have one size."""
        del exact
        self._call()
        return [self._observation(entry) for entry in entries]

    def end(self, entries: Sequence[Entry]) -> list[Outcome]:
        """Cancel jobs; one that is over is a success."""
        self._call()
        for entry in entries:
            job = self._world.jobs.jobs.get(entry.injection.key)
            if job is not None:
                self._world.jobs.end(job)
        return [Outcome(entry.injection.key, entry.external_id) for entry in entries]

    def remove(self, entries: Sequence[Entry]) -> list[Removal]:
        """Delete the copies of ended jobs, and return whose are gone."""
        jobs, now = self._world.jobs, self._clock.seconds(self._clock.now())
        removals = []
        for entry in entries:
            key = entry.injection.key
            job = jobs.jobs.get(key)
            if job is not None:
                jobs.end(job)
                jobs.delete(job, now)
                if job.is_gone:
                    del jobs.jobs[key]
            removals.append(Removal(key, gone=job is None or job.is_gone))
        return removals

    def sites(self, rses: Iterable[str]) -> Mapping[str, RseFacts]:
        """Return for storages whether they answer, and their free space as it is."""
        grid, facts = self._world.grid, {}
        for prefix in sorted(rses):
            name = self._storage(prefix)
            number, spec = self._world.network.storages[name], grid.storages[name]
            answers = number not in self._world.transfers.down
            used = float(self._world.storages.used[number])
            free = None if spec.space is None else max(int(spec.space - used), 0)
            closed = {} if answers else dict.fromkeys(("readable", "writable"), f"{name} does not answer")
            facts[prefix] = RseFacts(prefix, readable=answers, writable=answers, free=free, closed=closed)
        return facts

    def endpoints(self, rse: str) -> list[Endpoint]:
        """Return nothing: there is nothing to connect to."""
        del rse
        return []

    def queues(self, links: Sequence[Link]) -> Mapping[Link, ports.LinkQueue]:
        """Return the transfers that wait on links, whoever asked for them."""
        self._call()
        return {link: of_link for link in links if (of_link := self._queue(link)) is not None}

    # ------------------------------------------------------------------ storages, files and one job

    def _call(self) -> None:
        if not self._world.transfers.starting:
            raise Temporary("FTS is down, by a trouble of the grid file")

    def _storage(self, url: str) -> str:
        """Return the storage of the grid that a URL is at."""
        name = self._world.grid.storage_at(url)
        if name is None:
            host = urls.host_of(url)
            hint = f"give one of the grid's storages `host: {host}`"
            raise Permanent(f"no storage of the grid has the host of {url}", hint)
        return name

    def _files(self, source: str, chosen: FileFilter) -> Iterator[File]:
        """Make the files of the datasets that the grid file has for a source, below the menu's folder."""
        storage, count = self._storage(source), 0
        for number, block in enumerate(self._world.grid.stocks):
            dice = random.Random(f"{self._seed} {storage} {number}")  # noqa: S311  no secret
            for _ in range(block.count if {storage, "*"} & {*block.sources} else 0):
                for _ in range(dice.randint(*block.files)):
                    path = named(chosen.pattern, storage, count)
                    if chosen.folder and not path.startswith(f"{chosen.folder}/"):
                        path = f"{chosen.folder}/{path}"
                    count += 1
                    yield File(urls.join(source, path), round(dice.uniform(*block.file_size)))

    def _accept(self, injection: Injection) -> Outcome:
        jobs, key, item = self._world.jobs, injection.key, injection.item
        if key in jobs.jobs:
            return Outcome(key, key, adopted=True)
        ends = self._storage(injection.link.source), self._storage(injection.link.destination)
        waiting_in = Queue(*ends, injection.activity, injection.service_priority)
        options = injection.job or JobOptions()
        jobs.submit(key, Job(waiting_in, item.files, item.bytes), options.retry)
        return Outcome(key, key)

    def _observation(self, entry: Entry) -> Observation:
        key = entry.injection.key
        job = self._world.jobs.jobs.get(key)
        if job is None:
            return Observation(key, Status.ABSENT)
        self._world.jobs.look(job)
        asked = entry.end_asked_at is not None
        if not job.is_over:
            status = Status.WAITING if job.waiting == job.files else Status.MOVING
        else:
            status = Status.ABSENT if asked else Status.COMPLETE
        over = job.is_over and entry.state is not State.COMPLETE
        failed = job.failed if job.is_over else 0
        missing = job.bytes - job.size(job.done) if job.done + failed == job.files else job.size(failed)
        return Observation(
            key,
            status,
            key,
            files_done=job.done,
            files_stuck=failed,
            moved=job.size(job.done),
            exact=True,
            failed=missing,
            reasons={"other": failed} if over and failed else {},
            error=f"{failed} of {job.files} files failed" if failed else "",
        )

    def _queue(self, link: Link) -> ports.LinkQueue | None:
        return queue(self._world, (self._storage(link.source), self._storage(link.destination)), self._clock)
