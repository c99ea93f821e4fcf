"""Weighted max-min sharing: who gets how much when several want the same.

Each flow wants at most so much, has a weight, and passes several resources (a storage, a WAN, a link). The
shares are max-min fair: no flow can get more per weight without taking from one that has no more per weight.
TCP connections share a bottleneck about like that, with the number of connections as the weight, and so FTS
shares the slots of a storage among links (`Slots`).

It is found by progressive filling, many flows at a time. In each round the level of a resource is what it has
left per weight of the flows that are still open. Levels only rise from round to round, so two kinds of flows can
be settled at once: those that want no more than the lowest level on their way; and those of a resource which is
the lowest level for all of its open flows, none of which is of the first kind. A resource on which less is wanted
than it has limits no flow, and is left out from the start.
"""

from __future__ import annotations

import numpy as np

from dc_inject.apps.twin.grid.arrays import Flags, Floats, Ints, divided, summed
from dc_inject.apps.twin.grid.network import Network

_HAIR = 1e-12  # two levels that differ by less, relatively, are the same


class Sharing:
    """Shares the same resources among the same flows again and again.

    `members[flow]` are the numbers of the resources that a flow passes; resource 0 stands for none and is
    without limit.
    """

    def __init__(self, members: Ints, resources: int) -> None:
        """Take which flow passes which resources, and how many resources there are, 0 included."""
        self._columns = [column.copy() for column in members.T]
        self._resources = resources

    def rates(self, wanted: Floats, weights: Floats, capacity: Floats, rounds: int | None = None) -> Floats:
        """Return what each flow gets, at most what it wants; flows that weigh nothing get nothing.

        After `rounds` rounds, flows that are still open get what the levels of that round allow, which may leave
        some capacity unused.
        """
        active = ((wanted > 0) & (weights > 0)).nonzero()[0]
        rates = np.zeros(len(wanted))
        rates[active] = wants = wanted[active]
        columns = [column[active] for column in self._columns]
        scarce = self._loads(columns, wants) > capacity
        scarce[0] = False
        if not np.count_nonzero(scarce):
            return rates
        short = [scarce[column] for column in columns]
        limited = np.logical_or.reduce(short)
        flows, wants, weighs = active[limited], wants[limited], weights[active[limited]]
        columns = [
            (column * is_short)[limited]  # 0 is without limit
            for column, is_short in zip(columns, short, strict=True)
            if np.count_nonzero(is_short)
        ]
        left = capacity.copy()  # flows without limit pass nothing that is scarce
        while True:
            level = self._levels(columns, weighs, left)
            lowest = level[columns[0]]
            for column in columns[1:]:
                np.minimum(lowest, level[column], out=lowest)
            fair = weighs * lowest
            content = wants <= fair * (1 + _HAIR)
            rates[flows] = given = np.where(content, wants, fair)
            contents = np.count_nonzero(content)
            if rounds == 1 or contents == len(flows) or (len(columns) == 1 and not contents):
                return rates
            open_ = ~(content | self._at_bottleneck(columns, lowest, level, ~content))
            rounds = None if rounds is None else rounds - 1
            if not np.count_nonzero(open_):
                return rates
            left -= self._loads([column[~open_] for column in columns], given[~open_])
            flows, wants, weighs = flows[open_], wants[open_], weighs[open_]
            columns = [column[open_] for column in columns]

    def _loads(self, columns: list[Ints], amounts: Floats) -> Floats:
        """Return the sum of amounts at each resource."""
        loads = summed(columns[0], amounts, self._resources)
        for column in columns[1:]:
            loads += summed(column, amounts, self._resources)
        return loads

    def _levels(self, columns: list[Ints], weights: Floats, left: Floats) -> Floats:
        """Return what each resource has left per weight of its flows."""
        levels = divided(np.maximum(left, 0.0), self._loads(columns, weights), np.inf)
        levels[0] = np.inf
        return levels

    def _at_bottleneck(self, columns: list[Ints], lowest: Floats, level: Floats, hungry: Flags) -> Flags:
        """Return which flows pass a resource that is the lowest for all of its flows, all of which want more."""
        tight = np.isfinite(level)
        for column in columns:
            tight[column[~(hungry & (lowest >= level[column] * (1 - _HAIR)))]] = False
        at_bottleneck: Flags = np.logical_or.reduce([tight[column] for column in columns])
        return at_bottleneck


ROUNDS = 3  # of sharing: what is left over is shared in the next step


class Slots:
    """Shares free slots among the same queues again and again."""

    def __init__(
        self, network: Network, link: Ints, weight: Floats, storages: int, dice: np.random.Generator
    ) -> None:
        """Take the link and the weight of each queue; `dice` decides who gets a slot that cannot be divided."""
        links = len(network.links)
        out = 2 + links + network.source[link]
        into = 2 + links + storages + network.target[link]
        self._members = np.stack([np.ones_like(out), 2 + link, out, into], axis=1)
        self._sharing = Sharing(self._members, 2 + links + 2 * storages)
        self._weight, self._dice = weight, dice

    def given(self, wanted: Floats, service: float, links: Floats, outgoing: Floats, incoming: Floats) -> Ints:
        """Return how many slots each queue gets, at most what it wants.

        `service` is how many the whole service has, `links` how many each link has, and `outgoing` and `incoming`
        each storage; those below 0 count as none.
        """
        room = np.concatenate([(np.inf, service), links, outgoing, incoming])
        np.maximum(room, 0.0, out=room)
        shares = self._sharing.rates(wanted, self._weight, room, ROUNDS)
        whole = np.floor(shares + 1e-9).astype(np.int64)
        return whole + self._one_more(whole, shares, wanted, room)

    def _one_more(self, whole: Ints, shares: Floats, wanted: Floats, room: Floats) -> Ints:
        """Return one slot more for queues whose share has a fraction, by chance, as long as there is room."""
        more = np.zeros(len(whole), dtype=np.int64)
        candidates = ((shares - whole > 1e-9) & (whole < wanted)).nonzero()[0]
        if len(candidates):
            self._dice.shuffle(candidates)
            members = self._members[candidates]
            taken = summed(self._members.ravel(), whole.repeat(members.shape[1]), len(room))
            left = np.floor(room - taken + 1e-9)
            passed = members.ravel()  # no two columns have a resource in common
            order = passed.argsort(kind="stable")
            ordered = passed[order]
            rank = np.empty(len(passed), dtype=np.int64)
            rank[order] = np.arange(len(passed)) - ordered.searchsorted(ordered)
            fits = (rank < left[passed]).reshape(members.shape).all(axis=1)
            more[candidates[fits]] = 1
        return more
