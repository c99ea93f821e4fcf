"""Slots: how many files FTS starts from each queue, where links, storages and the service itself have few left.

They are shared max-min fair, as bandwidth is, by the weights of activities.
"""

from __future__ import annotations

import numpy as np

from dc_inject.apps.twin.grid.arrays import Floats, Ints, summed
from dc_inject.apps.twin.grid.network import Network
from dc_inject.apps.twin.grid.sharing import Sharing

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
        room = np.maximum(np.concatenate([[np.inf, service], links, outgoing, incoming]), 0)
        shares = self._sharing.rates(wanted, self._weight, room, ROUNDS)
        whole = np.floor(shares + 1e-9).astype(np.int64)
        return whole + self._one_more(whole, shares, wanted, room)

    def _one_more(self, whole: Ints, shares: Floats, wanted: Floats, room: Floats) -> Ints:
        """Return one slot more for queues whose share has a fraction, by chance, as long as there is room."""
        more = np.zeros(len(whole), dtype=np.int64)
        candidates = np.flatnonzero((shares - whole > 1e-9) & (whole < wanted))
        if len(candidates):
            self._dice.shuffle(candidates)
            members = self._members[candidates]
            taken = summed(self._members.ravel(), np.repeat(whole, members.shape[1]), len(room))
            left = np.floor(room - taken + 1e-9)
            fits = np.ones(len(candidates), dtype=bool)
            for column in members.T:
                order = np.argsort(column, kind="stable")
                first = np.searchsorted(column[order], column[order], side="left")
                rank = np.empty(len(column))
                rank[order] = np.arange(len(column)) - first
                fits &= rank < left[column]
            more[candidates[fits]] = 1
        return more
