"""The world of the twin: time in fixed steps, with a heap for what happens at moments.

Transfers move in steps of one length, on a grid of their own, so that it does not matter how often it is observed.
Between two steps everything happens whose moment has come: passes of the daemons, runs of the optimizer, new
production traffic, the begin and end of troubles. The same grid, calls and seed give the same world.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import NamedTuple

import numpy as np

from dc_inject.apps.twin.grid import optimizer
from dc_inject.apps.twin.grid.arrays import Floats, Ints, summed
from dc_inject.apps.twin.grid.description import Fault, Grid, Production, Trouble
from dc_inject.apps.twin.grid.jobs import Jobs
from dc_inject.apps.twin.grid.network import Network
from dc_inject.apps.twin.grid.rucio import Rules
from dc_inject.apps.twin.grid.storages import Storages
from dc_inject.apps.twin.grid.transfers import Failure, Queue, Transfers

STEP = 30.0  # seconds, at most
STEPS = 30  # of a cycle, at least
ARRIVALS = 300.0  # seconds between two arrivals of production files on a link
SAMPLES = 900.0  # seconds between two samples


def choose_step_length(cycle: float) -> float:
    """Return the length of a step, in seconds, for a campaign with cycles of so many seconds."""
    return min(STEP, cycle / STEPS)


class Sample(NamedTuple):
    """How the grid stood at a moment: files that wait for the submitter, in FTS, under way, to delete.

    `overdue` are the bytes on each storage that slow deletions left there; `arrived` are those that arrived since
    the beginning.
    """

    at: float
    unsent: int
    queued: int
    active: int
    cancelling: int
    to_delete: int
    overdue: tuple[float, ...]
    arrived: float


class Waits(NamedTuple):
    """The moments of samples in which files waited on a link for one reason, and how many did."""

    at: array[float]
    files: array[float]


class World:
    """A grid, and what has become of it since the simulation began."""

    def __init__(self, grid: Grid, seed: int, step: float = STEP) -> None:
        """Begin at 0 s with an empty grid."""
        self.grid, self.now, self.step = grid, 0.0, step
        self._dice = np.random.default_rng(seed)
        self.network, self.storages = Network(grid), Storages(grid)
        self.transfers = Transfers(grid, self.network, self.storages, self._dice)
        self.rucio = Rules(grid.rucio, self.transfers, self.storages, self.network.storages)
        self.jobs = Jobs(self.transfers, self.storages, self.network.storages, self.rucio.lost)
        self.rucio_is_down = False
        self.samples: list[Sample] = []
        self.held_back: dict[tuple[str, str], dict[str, Waits]] = {}  # link -> samples that each cause explains
        self.reported_used = np.zeros(self.storages.count)  # as Rucio reports it
        self.reported_at = 0.0  # when it was so, in seconds
        self._production: dict[Production, int] = {}
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()
        daemons = grid.rucio
        self._every(optimizer.EVERY, self.transfers.optimize)
        self._every(daemons.submit_every, self._unless_down(lambda _: self.rucio.submit()))
        self._every(daemons.poll_every, self._unless_down(self.rucio.poll))
        self._every(daemons.judge_every, self._unless_down(self.rucio.judge))
        self._every(daemons.reap_every, self._unless_down(lambda now: self._reap(now, daemons.reap_every)))
        self._every(daemons.usage_every, self._report_usage)
        self._every(SAMPLES, self._sample, first=SAMPLES / 2)  # between the passes of the daemons
        for traffic in grid.production:
            self._every(ARRIVALS, partial(self._arrive, traffic))
        for trouble in grid.troubles:
            self._at(trouble.at, partial(self._trouble, trouble, True))
            self._at(trouble.at + trouble.lasting, partial(self._trouble, trouble, False))

    def advance(self, to: float) -> None:
        """Let time pass: all steps that end by then."""
        while self.now + self.step <= to + 1e-6:
            while self._heap and self._heap[0][0] <= self.now + 1e-6:
                heapq.heappop(self._heap)[2](self.now)
            self.transfers.step(self.now, self.step)
            self.storages.watch(self.step)
            self.now += self.step

    def failed_for_good(self, link: tuple[str, str]) -> dict[str, int]:
        """Return the bytes that failed in all attempts on a link between two storages, by why the last one did."""
        return failed_for_good(self.transfers, self.network, link)

    # ------------------------------------------------------------------ what happens at moments

    def _at(self, moment: float, what: Callable[[float], None]) -> None:
        heapq.heappush(self._heap, (moment, next(self._order), what))

    def _every(self, seconds: float, what: Callable[[float], None], first: float = 0.0) -> None:
        def again(now: float) -> None:
            what(now)
            self._at(now + seconds, again)

        self._at(first, again)

    def _unless_down(self, what: Callable[[float], None]) -> Callable[[float], None]:
        return lambda now: None if self.rucio_is_down else what(now)

    def _reap(self, now: float, every: float) -> None:
        self.storages.reap(now, now - every)

    def _report_usage(self, now: float) -> None:
        self.reported_used, self.reported_at = self.storages.used.copy(), now

    def _arrive(self, traffic: Production, _: float) -> None:
        """Queue files of others, as many as chance has it."""
        files = int(self._dice.poisson(traffic.rate * ARRIVALS / traffic.file_size))
        if traffic not in self._production:
            queue = Queue(traffic.source, traffic.destination, traffic.activity, traffic.priority)
            self._production[traffic] = self.transfers.open_job(queue, traffic.file_size, takes_space=False)
        if files:
            self.transfers.submit(self._production[traffic], files)

    def _trouble(self, trouble: Trouble, begins: bool, _: float) -> None:
        """Begin or end a trouble."""
        storage = self.network.storages.get(trouble.subject)
        transfers = self.transfers
        match trouble.fault:
            case Fault.RUCIO_DOWN:
                self.rucio_is_down = begins
            case Fault.FTS_DOWN:
                transfers.starting = not begins
            case Fault.STORAGE_DOWN if storage is not None:
                (transfers.down.add if begins else transfers.down.discard)(storage)
            case Fault.CAPACITY:
                self.network.scale(trouble.subject, trouble.part if begins else 1.0)
            case Fault.FAILURES:
                transfers.bad[storage] = trouble.part if begins else 0.0
            case Fault.DELETION if storage is not None:
                self.storages.slower[storage] = trouble.part if begins else 1.0

    def _not_passed_on(self) -> Iterator[tuple[tuple[str, str], str, float]]:
        """Yield each link with requests that Rucio should have passed on to FTS, with why it has not."""
        why = "Rucio is down" if self.rucio_is_down else "Rucio's submitter passes on too few requests"
        for link, files in self.rucio.held_back(is_down=self.rucio_is_down).items():
            if files:
                yield link, why, float(files)

    def _sample(self, now: float) -> None:
        transfers, storages = self.transfers, self.storages
        for link, why, files in (*find_held_back(transfers, self.network, storages), *self._not_passed_on()):
            waits = self.held_back.setdefault(link, {}).setdefault(why, Waits(array("d"), array("d")))
            waits.at.append(now)
            waits.files.append(files)
        self.samples.append(
            Sample(
                now,
                self.rucio.unsent,
                int(transfers.waiting.sum()),
                transfers.active,
                int(transfers.cancelling),
                sum(storages.backlog(number) for number in range(storages.count)),
                tuple(storages.overdue(number) for number in range(storages.count)),
                storages.arrived,
            )
        )


NEARLY = 0.99  # of what something carries
AS_MUCH = 0.8  # of what another has: no less, since transfers are whole, and come and go
# What holds back a link, as reports have it.
IN_USE = "all transfers that FTS lets the link have are in use"
FEW = "FTS keeps few transfers, because many failed"
FEWER = "FTS keeps fewer transfers than before {} was full"
RETRIED = "many transfers fail, and are tried again"
NOT_STARTED = "FTS has not started them yet"
FROM = "FTS's limit of transfers from {}"
TO = "FTS's limit of transfers to {}"
FULL = "{} carries no more"
CONNECTIONS = "{} has more connections than it can serve"


def find_held_back(
    transfers: Transfers, network: Network, storages: Storages
) -> Iterator[tuple[tuple[str, str], str, float]]:
    """Yield each link on which files are held back, with what does it now, and how many files wait."""
    if not network.links:
        return
    no_space = storages.used >= 0.98 * storages.space
    queued, passed_over, limits = transfers.queued(), transfers.passed_over(), _Limits(transfers, network)
    for ends, link in network.links.items():
        if not queued[link]:
            continue
        source, destination = network.storages[ends[0]], network.storages[ends[1]]
        if not transfers.starting:
            why = "FTS is down"
        elif {source, destination} & transfers.down:
            why = f"{ends[0] if source in transfers.down else ends[1]} is down"
        elif no_space[destination]:
            why = f"{ends[1]} is full"
        elif limit := limits.holding(ends, link):
            why = limit
        elif transfers.optimizer.failing[link]:
            why = RETRIED
        elif passed_over[link] and transfers.at_its_limit:
            why = "FTS works off cancelled files" if transfers.cancelling else NOT_STARTED
        else:
            continue
        yield ends, why, float(queued[link])


class _Limits:
    """Which limits links have reached, and which part of each a link has, compared with the one that has most."""

    def __init__(self, transfers: Transfers, network: Network) -> None:
        self._before_full, self._optimizer, self._network = transfers.before_full, transfers.optimizer, network
        actives, self._rates = transfers.actives(), transfers.rates()
        self._files = self._rates / np.maximum(transfers.sizes(), 1)  # as slots are shared: as they become free
        self._all_in_use = actives >= self._optimizer.value
        outgoing, incoming = network.sum_at_ends(actives)
        self._none_out, self._none_in = outgoing >= transfers.fts_out, incoming >= transfers.fts_in
        self._overloaded = network.overloaded(outgoing + incoming)
        members = network.members(np.arange(len(self._rates)))
        passed, carried = members.ravel(), np.repeat(self._rates, members.shape[1])
        self._tight = summed(passed, carried, network.resources) >= NEARLY * network.capacity()
        self._most_carried = _most(passed, carried, network.resources)
        self._most_out = _most(network.source, self._files, len(network.storages))
        self._most_in = _most(network.target, self._files, len(network.storages))

    def holding(self, ends: tuple[str, str], link: int) -> str:
        """Yield which of them holds back a link; nothing if it has reached none."""
        kinds = [dict(reached(ends, link)) for reached in (self._of_network, self._of_fts)]
        enough = AS_MUCH * max((part for kind in kinds for part in kind.values()), default=0.0)
        holding = ([limit for limit, part in kind.items() if part >= enough] for kind in kinds)
        return " and ".join(next(filter(None, holding), []))

    def _of_network(self, ends: tuple[str, str], link: int) -> Iterator[tuple[str, float]]:
        for number, name in self._network.passed(link):
            if self._tight[number]:
                yield FULL.format(name), self._rates[link] / self._most_carried[number]
        for end in ends:
            if self._overloaded[self._network.storages[end]]:
                yield CONNECTIONS.format(end), 1.0

    def _of_fts(self, ends: tuple[str, str], link: int) -> Iterator[tuple[str, float]]:
        source, destination = (self._network.storages[end] for end in ends)
        if self._none_out[source]:
            yield FROM.format(ends[0]), self._files[link] / self._most_out[source]
        if self._none_in[destination]:
            yield TO.format(ends[1]), self._files[link] / self._most_in[destination]
        if self._all_in_use[link]:
            yield self._of_optimizer(ends, link), 1.0

    def _of_optimizer(self, ends: tuple[str, str], link: int) -> str:
        value, optimizer = self._optimizer.value[link], self._optimizer
        if value < self._before_full[link]:
            return FEWER.format(ends[1])
        if optimizer.failing[link] or value < optimizer.before_failing[link]:
            return FEW
        return IN_USE


def _most(by: Ints, amounts: Floats, groups: int) -> Floats:
    """Return the largest of the amounts in each of so many groups, and never 0."""
    most = np.full(groups, np.finfo(float).tiny)
    np.maximum.at(most, by, amounts)
    return most


def failed_for_good(transfers: Transfers, network: Network, ends: tuple[str, str]) -> dict[str, int]:
    """Return the bytes of a link that failed in all attempts, by why the last one did."""
    words = {
        Failure.DOWN: "files failed in all attempts while {} was down",
        Failure.FULL: "files failed in all attempts while {} was full",
        Failure.OTHER: "files failed in all attempts",
    }
    names, link = list(network.storages), network.links.get(ends)
    return {
        words[why].format(names[storage]): size
        for (number, why, storage), size in transfers.failed_bytes.items()
        if number == link
    }
