"""What holds back a link on which files wait: the answer to why it moves less than it could.

The first of these that holds: FTS starts nothing; one of its storages is down; its destination has no space; a
limit is reached; transfers are free, and many files failed just now and are to be tried again; FTS does not get on
with starting files. Files that have come since FTS last started any are not held back.

Limits are what parts of the network carry, the connections that storages can serve, FTS's limits of transfers at
storages, and what its optimizer allows the link, perhaps little, because it took some away while the destination
was full, or while many failed, and has not given them back. A limit that is reached need not hold a link back:
others may have taken it, while something else allows this link less. All of them are shared fairly among links, so
that one holds a link back which has as much of it as any other link. If a link has reached several, that one
counts of which it has most, compared with the others there; where it has as much of several, the network before
the number of transfers, of which more would share the same; else all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dc_inject.apps.twin.grid.arrays import Floats, Ints, summed
from dc_inject.apps.twin.grid.network import Network
from dc_inject.apps.twin.grid.storages import Storages
from dc_inject.apps.twin.grid.transfers import Failure, Transfers

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


def holding_back(
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
        outgoing, incoming = network.at_ends(actives)
        self._none_out, self._none_in = outgoing >= transfers.fts_out, incoming >= transfers.fts_in
        self._overloaded = network.overloaded(outgoing + incoming)
        members = network.members(np.arange(len(self._rates)))
        passed, carried = members.ravel(), np.repeat(self._rates, members.shape[1])
        self._tight = summed(passed, carried, network.resources) >= NEARLY * network.capacity()
        self._most_carried = _most(passed, carried, network.resources)
        self._most_out = _most(network.source, self._files, len(network.storages))
        self._most_in = _most(network.target, self._files, len(network.storages))

    def holding(self, ends: tuple[str, str], link: int) -> str:
        """Say which of them holds back a link; nothing if it has reached none."""
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
