"""Rucio in the twin: a back end over the simulated grid, so that the engine runs in it unchanged.

Time passes in the twin while the engine waits: `TwinClock` moves the world on, `backends.sim.InlineExecutor` waits
on the clock. Between two steps of the world nothing moves, so the clock stands only at their ends and just before
them. Rules, expiry, deletion and their delays are the world's (the folder `grid`). What a source holds is made
here, the same for each seed: the datasets of the grid file, under names that fit the menu's patterns.
"""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from dc_inject.apps.twin.grid.rucio import Rule
from dc_inject.apps.twin.grid.transfers import Queue
from dc_inject.apps.twin.grid.world import World
from dc_inject.backends.sim import SimClock
from dc_inject.engine.queues import AT_MOST
from dc_inject.model import EPOCH, Dataset, DatasetFilter, Entry, FileFilter, Injection, Item, Link, Slice, ports
from dc_inject.model.errors import Permanent, Temporary, TryOtherItem
from dc_inject.model.items import ItemId, Range, SliceId
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
from dc_inject.model.services import RUCIO, SIMULATED
from dc_inject.planning import pool

BEFORE = 1 / 10  # of a step: how long before its end the clock stands; nothing is released later in a cycle


class TwinClock(SimClock):
    """A simulated clock with which a world moves on; its second 0 is where the clock starts."""

    def __init__(self, start: datetime, world: World, passed: Callable[[datetime], None] = lambda _: None) -> None:
        """Start at an aware instant, with a new world; `passed` is called with the time as it advances."""
        super().__init__(start)
        self._start, self._world, self._passed = start, world, passed

    def advance(self, moment: datetime) -> None:
        """Move on to the next stand of the clock that is not before `moment`, and the world with it; never back.

        What is released in the last step of a cycle is released before the cycle is over.
        """
        step = timedelta(seconds=self._world.step)
        end = EPOCH - (EPOCH - moment) // step * step
        super().advance(end - step * BEFORE if moment <= end - step * BEFORE else end)
        self._world.advance(self.seconds(self.now()))
        self._passed(self.now())

    def seconds(self, moment: datetime) -> float:
        """Return a moment in the world's time."""
        return (moment - self._start).total_seconds()

    def moment(self, seconds: float) -> datetime:
        """Return the instant of a moment in the world's time."""
        return self._start + timedelta(seconds=seconds)


class TwinBackend:
    """Rucio in a world; while it is down there, every call fails as one that had no answer."""

    name = RUCIO.name

    def __init__(self, world: World, clock: TwinClock, seed: int) -> None:
        """Take the world, its clock, and the seed of its datasets."""
        self._world, self._clock, self._seed = world, clock, seed
        self._stock: dict[str, dict[str, Dataset]] = {}  # source -> name -> dataset, as inventories listed them
        self._observed: dict[str, tuple[object, Observation]] = {}  # most rules got no further since the last look
        self._parts: dict[tuple[str, str], dict[Range, str]] = {}  # (parent, destination) -> slices, their rules

    def check(self) -> Identity:
        """Return who we are: an account that may do what an experiment's policy lets it."""
        self._call()
        grid = self._world.grid
        address = f"{SIMULATED}{grid.name}"
        return Identity(self.name, address, "twin", "def", "twin", admin=False, may_end=grid.rucio.may_end)

    def resolve(self, expression: str) -> tuple[str, ...]:
        """Names and wildcards, joined by `|`, mean the storages of the grid."""
        self._call()
        names = self._world.grid.storages
        wanted = expression.split("|")
        matching = sorted(name for name in names if any(fnmatchcase(name, pattern.strip()) for pattern in wanted))
        if not matching:
            raise Permanent(f"no storage of the grid is {expression!r}", "the twin knows names, `*` and `|`")
        return tuple(matching)

    def inventory(
        self, source: str, datasets: DatasetFilter | FileFilter, note: Note | None = None
    ) -> Iterator[Item]:
        """Make the datasets that the grid file has for a source, under names that pass the filter."""
        del note  # all of them pass
        self._call()
        if isinstance(datasets, FileFilter) or datasets.landed:
            return
        stock = self._stock.setdefault(source, {})
        patterns = datasets.dids or datasets.containers
        count = 0
        for number, block in enumerate(self._world.grid.stocks):
            dice = random.Random(f"{self._seed} {source} {number}")  # noqa: S311  no secret
            for _ in range(block.count if {source, "*"} & {*block.sources} else 0):
                files = dice.randint(*block.files)
                size = dice.uniform(*block.file_size)
                name = named(patterns[count % len(patterns)], source, count)
                count += 1
                dataset = Dataset(name, round(files * size), files)
                if pool.matches(dataset, datasets, in_container=not datasets.dids):
                    yield stock.setdefault(name, dataset)

    def check_replicas(self, candidates: Sequence[Candidate]) -> Mapping[Candidate, ReplicaStatus]:
        """Return which candidates are at their source, and which at their destination."""
        self._call()
        return {candidate: self._replica_status(candidate) for candidate in candidates}

    def submit(self, injections: Sequence[Injection]) -> list[Outcome]:
        """Make a rule for each, unless its dataset is at the destination; one with the same key is adopted."""
        self._call()
        return [self._accept(injection) for injection in injections]

    def observe(self, entries: Sequence[Entry], *, exact: bool = False) -> list[Observation]:
        """Return how far each rule got: by the files that have arrived, which are all of one size."""
        self._call()
        return [self._observation(entry.injection.key, exact=exact) for entry in entries]

    def end(self, entries: Sequence[Entry]) -> list[Outcome]:
        """Let rules expire now; the judge ends them at its next pass."""
        self._call()
        if not self._world.grid.rucio.may_end:
            denied = Permanent("the account may not end rules")
            return [Outcome(entry.injection.key, error=denied) for entry in entries]
        now = self._clock.seconds(self._clock.now())
        for entry in entries:
            rule = self._world.rucio.rules.get(entry.injection.key)
            if rule is not None and rule.ended is None:
                self._world.rucio.end(rule, now)
        return [Outcome(entry.injection.key, entry.external_id) for entry in entries]

    def remove(self, entries: Sequence[Entry]) -> list[Removal]:
        """Return whose files the reaper has deleted, and how much is left of others."""
        self._call()
        rules = {entry.injection.key: self._world.rucio.rules.get(entry.injection.key) for entry in entries}
        return [Removal(key, gone=rule is None, left=rule.left if rule else 0) for key, rule in rules.items()]

    def sites(self, rses: Iterable[str]) -> Mapping[str, RseFacts]:
        """Return which storages there are, and their free space as Rucio knows it, which may be an hour old."""
        self._call()
        grid, numbers = self._world.grid, self._world.network.storages
        facts = {}
        for name in sorted(rses):
            spec = grid.storages.get(name)
            if spec is None:
                near = difflib.get_close_matches(name, numbers, 1)
                facts[name] = RseFacts(name, exists=False, near=near[0] if near else "")
                continue
            used = float(self._world.reported_used[numbers[name]])
            free = None if spec.space is None else max(int(spec.space - used), 0)
            at = self._clock.moment(self._world.reported_at)
            facts[name] = RseFacts(name, readable=True, writable=True, free=free, free_at=at, site=spec.site)
        return facts

    def endpoints(self, rse: str) -> list[Endpoint]:
        """Return nothing: there is nothing to connect to."""
        del rse
        return []

    def queues(self, links: Sequence[Link]) -> Mapping[Link, ports.LinkQueue | ports.Missing]:
        """Return what waits in FTS on links, if the grid file gives FTS a name; else nothing."""
        if not self._world.grid.fts.named:
            return dict.fromkeys(links, ports.Missing("", ""))
        queues = {link: queue(self._world, link.ends, self._clock) for link in links}
        return {link: of_link for link, of_link in queues.items() if of_link is not None}

    # ------------------------------------------------------------------ one rule

    def _call(self) -> None:
        if self._world.rucio_is_down:
            raise Temporary("Rucio is down, by a trouble of the grid file")

    def _accept(self, injection: Injection) -> Outcome:
        rules, key, destination = self._world.rucio, injection.key, injection.link.destination
        if key in rules.rules:
            return Outcome(key, key, adopted=True)
        item = injection.item.id
        if self._there(item, destination) is not None:
            return Outcome(key, error=TryOtherItem(f"{item} is at {destination} already"))
        if isinstance(item, SliceId):
            self._parts.setdefault((item.range.parent, destination), {})[item.range] = key
        now = self._clock.seconds(self._clock.now())
        queue = Queue(injection.link.source, destination, injection.activity, injection.service_priority)
        size, files = injection.item.bytes, injection.item.files
        ends = now + injection.lifetime.total_seconds()
        rules.add(Rule(key, str(item), queue, files, size, now, ends))
        return Outcome(key, key)

    def _there(self, item: ItemId, destination: str) -> Rule | None:
        """Return a rule that has files of this dataset or slice at a destination, if there is one."""
        rules = self._world.rucio
        parent, files = (item.range.parent, item.range) if isinstance(item, SliceId) else (item, None)
        whole = rules.there.get((parent, destination))
        if whole is not None:
            return whole
        parts = self._parts.get((parent, destination), {})
        for other, key in tuple(parts.items()):
            if key not in rules.rules:
                del parts[other]  # it is gone
            elif files is None or files.overlaps(other):
                return rules.rules[key]
        return None

    def _replica_status(self, candidate: Candidate) -> ReplicaStatus:
        source, destination, wanted = candidate.link.source, candidate.link.destination, candidate.item
        item, until = self._at_source(wanted, source), None
        if item is None and isinstance(wanted, str):
            first = self._world.rucio.there.get((wanted, source))
            if first is not None and first.completed is not None and first.ended is None:
                item, until = Dataset(wanted, first.bytes, first.files), self._clock.moment(first.expires)
        rule = self._there(wanted, destination)
        return ReplicaStatus(
            item=item,
            closed=True,
            source_complete=item is not None,
            source_locked=item is not None,
            source_until=until,
            destination_bytes=rule.arrived if rule else 0,
            destination_locked=rule is not None and rule.ended is None,
        )

    def _at_source(self, wanted: ItemId, source: str) -> Item | None:
        stock = self._stock.get(source, {})
        if not isinstance(wanted, SliceId):
            return stock.get(wanted)
        parent = stock.get(wanted.range.parent)
        if parent is None or parent.files != wanted.range.of:
            return None
        return Slice(wanted, parent.bytes * wanted.range.files // parent.files)

    def _observation(self, key: str, *, exact: bool) -> Observation:
        rule = self._world.rucio.rules.get(key)
        if rule is None or rule.ended is not None:
            self._observed.pop(key, None)
            return Observation(key, Status.ABSENT)
        if rule.completed is None:
            self._world.rucio.look(rule)
        if rule.completed is not None:
            status = Status.COMPLETE
        elif rule.failed and rule.done + rule.failed == rule.files:
            status = Status.STUCK
        else:  # also while its requests wait for the submitter: Rucio reports REPLICATING then
            status = Status.MOVING
        seen = status, rule.done, rule.failed, rule.expires, exact
        last = self._observed.get(key)
        if last is None or last[0] != seen:
            last = self._observed[key] = seen, self._make_observation(rule, status, exact=exact)
        return last[1]

    def _make_observation(self, rule: Rule, status: Status, *, exact: bool) -> Observation:
        return Observation(
            rule.name,
            status,
            rule.name,
            files_done=rule.done,
            files_stuck=rule.failed,
            moved=rule.arrived,
            exact=exact or status is Status.COMPLETE,
            expires_at=self._clock.moment(rule.expires),
            error=f"{rule.failed} of {rule.files} files failed" if rule.failed else "",
        )


def queue(world: World, ends: tuple[str, str], clock: TwinClock) -> ports.LinkQueue | None:
    """Return what FTS reports of a link between two storages; None while it knows nothing of it."""
    transfers, number = world.transfers, world.network.links.get(ends)
    if number is None:
        return None
    optimizer, lately = transfers.optimizer, transfers.optimizer.lately(number)
    return ports.LinkQueue(
        int(transfers.queued()[number]),
        lately.rate,
        round(lately.file),
        clock.moment(lately.at),
        limit=int(optimizer.value[number]),
        decision=AT_MOST if optimizer.is_at_most(number) else "",
    )


def named(pattern: str, source: str, number: int) -> str:
    """Return a name that fits a DID pattern: its wildcards are filled in, the last `*` with source and number."""
    scope, colon, name = pattern.rpartition(":")
    filled = re.sub(r"\[(.)[^\[\]]*\]|\?", lambda match: match[1] or "x", name)
    first, star, last = filled.rpartition("*")
    unique = f"{source}-{number:05}" if star else ""
    return f"{scope.replace('*', 'twin')}{colon}{first.replace('*', 'twin')}{unique}{last}"
