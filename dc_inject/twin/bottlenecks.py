"""What holds back a link on which files wait: the answer to why it moves less than it could.

The first of these that holds: FTS starts nothing; one of its storages is down; its destination has no space; a
part of the network that it passes carries all that it can; one of its storages has more connections than it can
serve; FTS's limit of transfers at one of its storages is reached; the link has all the transfers that FTS's
optimizer allows, perhaps few, because many fail, or because many failed while its destination was full.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dc_inject.twin.network import Network
from dc_inject.twin.storages import Storages
from dc_inject.twin.transfers import Transfers

NEARLY = 0.99  # of what something carries


def holding_back(
    transfers: Transfers, network: Network, storages: Storages
) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield each link on which files wait, with what holds it back now."""
    tight = transfers.loads() >= NEARLY * network.capacity()
    slots, from_, to = transfers.full()
    overloaded = network.overloaded(np.add(*network.at_ends(transfers.actives())))
    no_space = storages.used >= 0.98 * storages.space
    queued, failing = transfers.queued(), transfers.optimizer.failing
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
        elif from_[source] or to[destination]:
            why = f"FTS's limit of transfers {f'from {ends[0]}' if from_[source] else f'to {ends[1]}'}"
        elif slots[link] and transfers.optimizer.value[link] < transfers.before_full[link]:
            why = f"FTS keeps fewer transfers than before {ends[1]} was full"
        elif slots[link] and failing[link]:
            why = "FTS keeps few transfers, because many fail"
        elif slots[link]:
            why = "all transfers that FTS lets the link have are in use"
        else:
            why = "FTS works off cancelled files" if transfers.cancelling else "FTS has not started them yet"
        yield ends, why
