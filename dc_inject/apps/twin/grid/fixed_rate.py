"""A fixed rate, as the injectors of Data Challenge 2024 had it: what a controller is compared with.

Each link goes its own way. When it wakes, it takes datasets in the order of its list until they sum to rate x
interval, and none that would make it more than 20 % too much. Their rules are made one after the other; then the
link sleeps for the interval, so that its cycles drift by the time that the work took. A dataset is fresh again
when the lifetime of its rule and a delay are over.

What was too little or too much in one cycle is not made up in the next, what a service refuses is not tried again,
and nothing that becomes of the rules changes anything.

That is the way of injecting, not one program: `WORK` and `DELAY` are assumed. An hour's delay is kind to it: it
needs a smaller pool than with the 12 hours after which datasets were used again in the challenge.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from dc_inject.apps.twin.grid.description import HOUR
from dc_inject.model import Dataset

MOST = 1.2  # times rate x interval
WORK = 0.3  # seconds to make a rule
DELAY = HOUR  # seconds after the end of a rule


class Lack(StrEnum):
    """Why a link took too little."""

    NOTHING = "its source has no datasets that fit"
    USED_UP = "its datasets were used up: each is free again an hour after the end of its rule"
    TOO_LARGE = "the next of its datasets was more than 20 % too large"


class Choice(NamedTuple):
    """What goes out; and where that is too little, by how many bytes, and why."""

    datasets: list[Dataset]
    missing: float = 0.0
    lack: Lack | None = None


class FixedRate:
    """One link, its datasets in their order, and when each of them is fresh again."""

    def __init__(self, datasets: Sequence[Dataset], lifetime: float) -> None:
        """Take the datasets, and the lifetime of their rules in seconds."""
        self._datasets, self._lifetime = datasets, lifetime
        self._fresh_at: dict[str, float] = {}

    def choose(self, amount: float, now: float) -> Choice:
        """Return what goes out for so many bytes, at a moment in seconds; these datasets are used then."""
        chosen: list[Dataset] = []
        total = 0
        for dataset in self._datasets:
            if total >= amount:
                break
            if self._is_fresh(dataset, now) and total + dataset.bytes <= MOST * amount:
                chosen.append(dataset)
                total += dataset.bytes
                self._fresh_at[dataset.name] = now + self._lifetime + DELAY
        return Choice(chosen) if total >= amount else Choice(chosen, amount - total, self._lack(now))

    def _lack(self, now: float) -> Lack:
        if not self._datasets:
            return Lack.NOTHING
        return Lack.TOO_LARGE if any(self._is_fresh(dataset, now) for dataset in self._datasets) else Lack.USED_UP

    def _is_fresh(self, dataset: Dataset, now: float) -> bool:
        return self._fresh_at.get(dataset.name, now) <= now
