"""What holds back a link on which files wait: the answer to why it moves less than it could.

The first of these that holds: FTS starts nothing; one of its storages is down; its destination has no space; a
part of the network that it passes carries all that it can; one of its storages has more connections than it can
serve; FTS's limit of transfers at one of its storages is reached; the link has all the transfers that FTS's
optimizer allows, perhaps few, because it took some away while the destination was full, or while many failed, and
has not given them back; transfers are free, and many files failed just now and are to be tried again; FTS does not
get on with starting files. Files that have come since FTS last started any are not held back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from dc_inject.twin.network import Network
from dc_inject.twin.storages import Storages
from dc_inject.twin.transfers import Failure, Transfers

NEARLY = 0.99  # of what something carries


def holding_back(
    transfers: Transfers, network: Network, storages: Storages
) -> Iterator[tuple[tuple[str, str], str, float]]:
    """Yield each link on which files are held back, with what does it now, and how many files wait."""
    tight = transfers.loads() >= NEARLY * network.capacity()
    overloaded = network.overloaded(np.add(*network.at_ends(transfers.actives())))
    no_space = storages.used >= 0.98 * storages.space
    queued, in_fts = transfers.queued(), _in_fts(transfers)
    for ends, link in network.links.items():
        if not queued[link]:
            continue
        source, destination = network.storages[ends[0]], network.storages[ends[1]]
        carried_out = [name for number, name in network.passed(link) if tight[number]]
        if not transfers.starting:
            why = "FTS is down"
        elif {source, destination} & transfers.down:
            why = f"{ends[0] if source in transfers.down else ends[1]} is down"
        elif no_space[destination]:
            why = f"{ends[1]} is full"
        elif carried_out:
            why = f"{carried_out[0]} carries no more"
        elif overloaded[source] or overloaded[destination]:
            why = f"{ends[0] if overloaded[source] else ends[1]} has more connections than it can serve"
        else:
            why = in_fts(ends, link, source, destination)
        if why:
            yield ends, why, float(queued[link])


def _in_fts(transfers: Transfers) -> Callable[[tuple[str, str], int, int, int], str]:
    """Return what says why FTS does not start the files that wait on a link; nothing if it will at once."""
    slots, from_, to = transfers.full()
    passed_over, optimizer = transfers.passed_over(), transfers.optimizer
    few = optimizer.failing | (optimizer.value < optimizer.before_failing)

    def why(ends: tuple[str, str], link: int, source: int, destination: int) -> str:
        if from_[source] or to[destination]:
            return f"FTS's limit of transfers {f'from {ends[0]}' if from_[source] else f'to {ends[1]}'}"
        if slots[link] and optimizer.value[link] < transfers.before_full[link]:
            return f"FTS keeps fewer transfers than before {ends[1]} was full"
        if slots[link] and few[link]:
            return "FTS keeps few transfers, because many failed"
        if slots[link]:
            return "all transfers that FTS lets the link have are in use"
        if optimizer.failing[link]:
            return "many transfers fail, and are tried again"
        if not passed_over[link] or not transfers.at_its_limit:
            return ""
        return "FTS works off cancelled files" if transfers.cancelling else "FTS has not started them yet"

    return why


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
