"""Transfers: what FTS has queued, starts and moves, for all links at a time, in fixed steps.

Files wait in queues, one for each link, activity and priority, first come first served. FTS serves only the
highest waiting priority of a link, and shares its slots among activities by their weights. How many slots a link
has is the optimizer's word (`optimizer.py`); storages bound them too, and so does what the service can start
(`sharing.py`).

What moves is kept as cohorts: files of one job that started in the same step, and so end together. A step

1. starts files in free slots;
2. shares bandwidth among the links, weighted by their transfers, each of which takes at most what its file's speed
   and overhead allow: size / (overhead + size / speed);
3. moves each cohort on; where files end within the step, the next ones begin in their slots at once, with the time
   that is left, so that the length of a step does not change how much is moved;
4. lets some of the files that ended have failed: they wait again, until they have been tried often enough.

A job is some files of one size on one link. `done`, `failed` and `left` count its files.
"""

from __future__ import annotations

from collections import Counter, deque
from enum import Enum, auto
from typing import NamedTuple

import numpy as np

from dc_inject.apps.twin.grid import optimizer
from dc_inject.apps.twin.grid.arrays import Cohorts, Flags, Floats, Ints, divided, make_cohorts, none, summed
from dc_inject.apps.twin.grid.description import Grid
from dc_inject.apps.twin.grid.network import Network
from dc_inject.apps.twin.grid.optimizer import Optimizer
from dc_inject.apps.twin.grid.sharing import Sharing, Slots
from dc_inject.apps.twin.grid.storages import Storages

NEVER = 1e30  # seconds


class Queue(NamedTuple):
    """What waits together in FTS."""

    source: str
    destination: str
    activity: str
    priority: int


class Failure(Enum):
    """Why a file failed in its last attempt."""

    DOWN = auto()
    FULL = auto()
    OTHER = auto()


class _Waiting(NamedTuple):
    """Files of one job that wait, and how often they have been tried."""

    job: int
    files: int
    tries: int


class _Pace(NamedTuple):
    """How fast files of each queue go in a step: their overhead, their speed alone, and which part of that."""

    overhead: Floats
    speed: Floats
    share: Floats

    def of(self, queues: Ints, size: Floats) -> Floats:
        """Return the pace of files of queues in bytes per second, their overhead included."""
        return self.share[queues] * size / np.maximum(self.overhead[queues] + size / self.speed[queues], 1e-9)


class Transfers:
    """FTS with all its queues and transfers."""

    def __init__(self, grid: Grid, network: Network, storages: Storages, dice: np.random.Generator) -> None:
        """Begin without queues; `dice` decides which transfers fail."""
        self._grid, self._network, self._storages, self._dice = grid, network, storages, dice
        self.optimizer = Optimizer(grid.fts.mode)
        self.starting = True  # whether FTS starts anything
        self.down: set[int] = set()  # storages where everything fails
        self.bad: dict[int | None, float] = {}  # storage (None: all) -> part of transfers that fails
        self.at_its_limit = False  # whether FTS last started as many files as it can
        self.cancelling = 0.0  # files whose cancellation FTS has still to work off
        self.cancelled = 0  # files that were cancelled with FTS
        # Bytes that failed in all attempts, by link, why the last one did, and the storage whose fault it is.
        self.failed_bytes: Counter[tuple[int, Failure, int]] = Counter()
        # How many transfers FTS let each link have when its destination was full; 0 once it has as many again.
        self.before_full = np.zeros(0, dtype=np.int64)
        self._queues: dict[Queue, int] = {}
        self._lines: list[deque[_Waiting]] = []
        self._cohorts = make_cohorts(0)
        self._link, self._priority, self._weight = none(), none(), np.zeros(0)  # of each queue
        self.waiting = none()
        # Of each queue, files that FTS could have started in the last step, and did not.
        self._passed_over = none()
        self._head_job, self._head_left, self._head_tries = none(), none(), none()
        self.settled: list[int] = []  # jobs of which nothing is left, since the last look
        self.done, self.failed, self.left, self._waits, self._retries, self._job_queue = (none() for _ in range(6))
        self._untried = none()
        self._size, self._takes_space = np.zeros(0), np.zeros(0)
        self._free_jobs: list[int] = []
        specs = list(grid.storages.values())
        most = grid.fts.per_storage
        self.fts_out = np.array([most if spec.fts_out is None else spec.fts_out for spec in specs])
        self.fts_in = np.array([most if spec.fts_in is None else spec.fts_in for spec in specs])
        self._rates = np.zeros(0)  # of each queue, in the last step
        self._sharing: Sharing | None = None  # of bandwidth, and of slots; made again for a new queue
        self._slots: Slots | None = None
        self._priorities_differ, self._each_has_a_link = False, True  # of the queues

    # ------------------------------------------------------------------ jobs

    def open_job(self, queue: Queue, size: float, *, takes_space: bool = True, retries: int | None = None) -> int:
        """Make a job of files of one size, in bytes, which may take space at their destination.

        `retries` is how often a file is tried again, if not as often as in FTS's configuration.
        """
        if not self._free_jobs:
            self._grow_jobs()
        job = self._free_jobs.pop()
        self.done[job] = self.failed[job] = self.left[job] = self._waits[job] = self._untried[job] = 0
        self._size[job], self._takes_space[job], self._job_queue[job] = (
            size,
            float(takes_space),
            self._queue(queue),
        )
        self._retries[job] = self._grid.fts.retries if retries is None else retries
        return job

    def submit(self, job: int, files: int) -> None:
        """Queue files of a job."""
        self.left[job] += files
        self._untried[job] += files
        self._enqueue(_Waiting(job, files, 0))

    def waits(self, job: int) -> int:
        """Return how many files of a job FTS has not started, or not again."""
        return int(self._waits[job])

    def untried(self, job: int) -> int:
        """Return how many files of a job FTS has never started."""
        return int(self._untried[job])

    def close(self, jobs: list[int]) -> None:
        """Cancel what is left of jobs, which FTS then has to work off, and forget them."""
        for job in jobs:
            left, queue = int(self.left[job]), int(self._job_queue[job])
            self.cancelling += left
            self.cancelled += left
            self.waiting[queue] -= self._waits[job]
            if self._head_job[queue] == job:
                self._head_left[queue] = 0
            if self._waits[job]:
                line = self._lines[queue]
                self._lines[queue] = deque(waiting for waiting in line if waiting.job != job)
            self._waits[job] = self.left[job] = 0
        self._cohorts = self._cohorts.chosen(~np.isin(self._cohorts.job, jobs))
        self._free_jobs += jobs

    @property
    def active(self) -> int:
        """How many transfers are under way."""
        return int(self._cohorts.files.sum())

    def actives(self) -> Floats:
        """Return how many transfers each link has."""
        return self._by_link(summed(self._cohorts.queue, self._cohorts.files, len(self._lines)))

    def queued(self) -> Floats:
        """Return how many files wait on each link."""
        return self._by_link(self.waiting)

    def passed_over(self) -> Floats:
        """Return how many of the files that wait on each link also waited when FTS last started files."""
        return self._by_link(np.minimum(self._passed_over, self.waiting))

    def rates(self) -> Floats:
        """Return what each link moved in a second of the last step."""
        return summed(self._link[: len(self._rates)], self._rates, len(self._network.links))

    def sizes(self) -> Floats:
        """Return the mean size of the files that each link has not moved yet."""
        of_link = self._link[self._job_queue] if len(self._link) else none()
        files, size = (
            summed(of_link, amounts, len(self._network.links)) for amounts in (self.left, self.left * self._size)
        )
        return np.asarray(size / np.maximum(files, 1))

    def _by_link(self, amounts: Floats | Ints) -> Floats:
        """Return the sums over the queues of each link."""
        if self._each_has_a_link:
            return amounts.astype(np.float64)
        return summed(self._link, amounts, len(self._network.links))

    def optimize(self, now: float) -> None:
        """Let the optimizer run once."""
        if self._lines:
            self.optimizer.run(now, self.queued(), self.actives())
            self.before_full[self.optimizer.value >= self.before_full] = 0

    # ------------------------------------------------------------------ one step

    def step(self, now: float, length: float) -> None:
        """Move everything on by `length` seconds, then start files in the slots that are free."""
        if not self._lines:
            return
        if self._sharing is None:
            self._arrange()
        operations = self._grid.fts.operations * length
        worked_off = min(self.cancelling, operations / 2)  # cancelling and starting take turns
        self.cancelling -= worked_off
        freed = spare = np.zeros(len(self._lines))
        connections, pace, over, whole = np.zeros(self._storages.count), None, self._cohorts, list[Cohorts]()
        if len(over):
            connections = np.add(*self._network.sum_at_ends(self.actives()))
            freed, spare, pace, over = self._move(length, connections)
        if self.starting and np.count_nonzero(self.waiting):
            whole = self._start(operations - worked_off, freed, spare, pace, now + length)
        self._passed_over = self.waiting.copy()
        over = over.plus(whole)
        if len(over):
            self._settle(over, now + length, connections)

    def _move(self, length: float, connections: Floats) -> tuple[Floats, Floats, _Pace, Cohorts]:
        """Share bandwidth and move all cohorts on.

        Returns, of each queue, how many slots became free and the time that was left in them; the pace of files;
        and the cohorts that have ended.
        """
        cohorts, queues = self._cohorts, len(self._lines)
        count = summed(cohorts.queue, cohorts.files, queues)
        overhead, speed = self._network.overhead[self._link], self._network.speed_now(connections)[self._link]
        alone = _Pace(overhead, speed, np.ones(queues)).of(cohorts.queue, cohorts.size)
        wanted = summed(cohorts.queue, cohorts.files * alone, queues)
        assert self._sharing is not None
        rates = self._sharing.rates(wanted, count, self._network.capacity())
        self._rates = rates
        share = divided(rates, wanted, 0.0)
        pace = alone * share[cohorts.queue]
        needs, moves = divided(cohorts.left, pace, np.inf), pace * length
        if self.down:
            needs[self._is_down()[cohorts.queue]] = length
        ends = needs <= length
        self._sent(cohorts.queue, np.minimum(cohorts.left, moves) * cohorts.files)
        over = cohorts.chosen(ends)
        if len(over):
            cohorts, moves = cohorts.chosen(~ends), moves[~ends]
        cohorts.left -= moves
        self._cohorts = cohorts
        freed = summed(over.queue, over.files, queues)
        left_over = (length - needs[ends]) * over.files
        return freed, summed(over.queue, left_over, queues), _Pace(overhead, speed, share), over

    def _start(
        self, operations: float, freed: Floats, spare: Floats, pace: _Pace | None, now: float
    ) -> list[Cohorts]:
        """Start files in free slots; in slots that became free in this step, they use the rest of the step.

        Returns those that are whole by then.
        """
        network, actives = self._network, self.actives()
        outgoing, incoming = network.sum_at_ends(actives)
        wanted = (self.waiting * self._served()).astype(np.float64)
        assert self._slots is not None
        free = self.optimizer.value - actives, self.fts_out - outgoing, self.fts_in - incoming
        slots = self._slots.given(wanted, operations, *free)
        self.at_its_limit = bool(slots.sum() + 1 > operations)
        chosen = slots.nonzero()[0]
        if not len(chosen):
            return []
        free_here, time_here = self._by_link(freed), self._by_link(spare)
        free_to, time_to = (summed(network.target, of, self._storages.count) for of in (free_here, time_here))
        time = np.where(  # of a slot: of those of the link, or of any at its destination
            self._by_link(slots) <= free_here,
            time_here / np.maximum(free_here, 1),
            (time_to / np.maximum(free_to, 1))[network.target],
        )
        begun, whole = self._begin(chosen, slots[chosen], time[self._link[chosen]], pace, now)
        for started in (*begun, *whole):
            self._sent(started.queue, (started.size - started.left) * started.files)
        self._cohorts = self._cohorts.plus(begun)
        return whole

    def _sent(self, queues: Ints, sizes: Floats) -> None:
        """Count bytes that moved, whether or not their file arrives."""
        self.optimizer.count(optimizer.BYTES, self._by_link(summed(queues, sizes, len(self._lines))))

    def _served(self) -> Flags:
        """Return which queues FTS serves: those of the highest priority that waits on their link."""
        waits = self.waiting > 0
        if not self._priorities_differ:
            return waits
        highest = np.full(len(self._network.links), -1)
        np.maximum.at(highest, self._link[waits], self._priority[waits])
        return np.asarray(waits & (self._priority == highest[self._link]))

    def _begin(
        self, queues: Ints, slots: Ints, time: Floats, pace: _Pace | None, now: float
    ) -> tuple[list[Cohorts], list[Cohorts]]:
        """Take files from the heads of queues into slots; returns cohorts that are under way then, and whole ones.

        Each slot has been free for a `time` at which files went at a `pace`, if any did. The slot of a file that
        is whole after that takes the next one.
        """
        begun, ended = list[Cohorts](), list[Cohorts]()
        while True:
            for queue in queues[(self._head_left[queues] == 0) & (self.waiting[queues] > 0)]:
                self._next_head(int(queue))
            job, head = self._head_job[queues], self._head_left[queues]
            size, tries = self._size[job], self._head_tries[queues]
            moves = np.zeros(len(queues)) if pace is None else pace.of(queues, size)
            takes = divided(size, moves, NEVER)
            through = np.minimum(np.floor(time / takes).astype(np.int64) * slots, head)
            time = time - takes * through / slots
            taken = np.minimum(slots, head - through)
            made = make_cohorts(len(queues))
            made.queue[:], made.job[:], made.tries[:], made.size[:], made.start[:] = queues, job, tries, size, now
            if np.count_nonzero(through):
                made.files[:] = through
                ended.append(made.chosen(through > 0))
            made.files[:], made.left[:] = taken, np.maximum(size - time * moves, 0.0)
            begun.append(made if np.count_nonzero(taken) == len(taken) else made.chosen(taken > 0))
            files = taken + through
            self._head_left[queues] -= files
            self.waiting[queues] -= files
            self._waits[job] -= files  # each job is in one queue
            self._untried[job] -= files * (tries == 0)
            more = (taken < slots) & (self.waiting[queues] > 0)
            if not np.count_nonzero(more):
                return begun, ended
            queues, slots, time = queues[more], (slots - taken)[more], time[more]

    def _settle(self, over: Cohorts, now: float, connections: Floats) -> None:
        """Count the files that have ended: done, tried again, or failed for good."""
        link = self._link[over.queue]
        wrong = self._failures(connections)[link]
        if self.down:
            wrong[self._is_down()[over.queue]] = 1.0
        to, takes_space = self._network.target[link], self._takes_space[over.job]
        arriving = over.files * over.size * takes_space * (1 - wrong)
        refused = self._storages.refused(to, arriving) * (takes_space > 0)
        wrong = 1 - (1 - wrong) * (1 - refused)
        failed = np.zeros(len(over), dtype=np.int64)
        if np.count_nonzero(wrong):
            failed = self._dice.binomial(over.files, np.minimum(np.maximum(wrong, 0.0), 1.0))
        short_of_space = link[(refused > 0) & (failed > 0)]
        values = np.maximum(self.before_full[short_of_space], self.optimizer.value[short_of_space])
        self.before_full[short_of_space] = values
        right = over.files - failed
        self._storages.fill(to, right * over.size * takes_space)
        np.add.at(self.done, over.job, right)
        np.subtract.at(self.left, over.job, right)
        counts: dict[int, Floats | Ints] = {
            optimizer.FILES: right,
            optimizer.SIZES: right * over.size,
            optimizer.SECONDS: right * np.maximum(now - over.start, 1.0),
        }
        if np.count_nonzero(failed):
            counts |= {optimizer.FAILED: failed, optimizer.RETRIES: failed * (over.tries + 1)}
        for what, amounts in counts.items():
            self.optimizer.count(what, summed(link, amounts, len(self._network.links)))
        for at in failed.nonzero()[0]:
            why = self._why(int(link[at]), is_full=bool(refused[at] > 0))
            self._again(int(over.job[at]), int(failed[at]), int(over.tries[at]) + 1, int(link[at]), *why)
        self.settled += sorted({*over.job[self.left[over.job] == 0].tolist()})

    def _why(self, link: int, *, is_full: bool) -> tuple[Failure, int]:
        """Return why transfers of a link fail now, and the storage whose fault it is, else their destination."""
        source, target = int(self._network.source[link]), int(self._network.target[link])
        if self.down & {source, target}:
            return Failure.DOWN, source if source in self.down else target
        return Failure.FULL if is_full else Failure.OTHER, target

    def _again(self, job: int, files: int, tries: int, link: int, why: Failure, storage: int) -> None:
        """Let files that failed wait again, or count them as failed for good."""
        if tries <= self._retries[job]:
            self._enqueue(_Waiting(job, files, tries))
        else:
            self.failed[job] += files
            self.left[job] -= files
            self.failed_bytes[link, why, storage] += round(files * self._size[job] * self._takes_space[job])

    def _failures(self, connections: Floats) -> Floats:
        """Return the chance that a transfer of each link fails, but for what is full or down."""
        fine = 1 - self._network.failing_now(connections)
        for storage, part in self.bad.items():
            hit = (self._network.source == storage) | (self._network.target == storage) | (storage is None)
            fine = np.where(hit, fine * (1 - part), fine)
        return 1 - fine

    def _is_down(self) -> Flags:
        """Return for each queue whether one of its storages is down."""
        down = list(self.down)
        links = np.isin(self._network.source, down) | np.isin(self._network.target, down)
        return np.asarray(links[self._link])

    # ------------------------------------------------------------------ queues and links

    def _enqueue(self, what: _Waiting) -> None:
        queue = self._job_queue[what.job]
        self._lines[queue].append(what)
        self.waiting[queue] += what.files
        self._waits[what.job] += what.files

    def _next_head(self, queue: int) -> None:
        """Take the next files of a queue that wait to its head."""
        job, files, tries = self._lines[queue].popleft()
        self._head_job[queue], self._head_left[queue], self._head_tries[queue] = job, files, tries

    def _queue(self, queue: Queue) -> int:
        if queue in self._queues:
            return self._queues[queue]
        number = self._queues[queue] = len(self._lines)
        self._lines.append(deque())
        ends = queue.source, queue.destination
        if ends not in self._network.links:
            self._network.add(*ends)
            self.before_full = np.append(self.before_full, 0)
            self.optimizer.add(*(self._grid.traits(*ends).actives or self._grid.fts.actives))
        self._link = np.append(self._link, self._network.links[ends])
        self._each_has_a_link = len(self._link) == len(self._network.links)
        self._priority = np.append(self._priority, queue.priority)
        self._weight = np.append(self._weight, self._grid.fts.shares.get(queue.activity, 1.0))
        for name in ("waiting", "_passed_over", "_head_job", "_head_left", "_head_tries"):
            setattr(self, name, np.append(getattr(self, name), 0))
        self._sharing = None
        return number

    def _arrange(self) -> None:
        """Prepare the sharing of bandwidth and of slots for the queues that there are now."""
        network = self._network
        self._sharing = Sharing(network.members(self._link), network.resources)
        self._priorities_differ = len({*self._priority.tolist()}) > 1
        self._slots = Slots(network, self._link, self._weight, self._storages.count, self._dice)

    def _grow_jobs(self) -> None:
        """Make room for twice as many jobs."""
        before, size = len(self.done), max(2 * len(self.done), 1024)
        numbers = ("done", "failed", "left", "_waits", "_untried", "_retries", "_job_queue")
        for name in (*numbers, "_size", "_takes_space"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros(size - before, dtype=old.dtype)]))
        self._free_jobs = list(range(size - 1, before - 1, -1))
