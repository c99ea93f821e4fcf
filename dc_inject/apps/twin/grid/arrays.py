"""Arrays of the twin: their types, their sums by group, and cohorts of files as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]


def summed(by: Ints, amounts: Floats | Ints | Flags, groups: int) -> Floats:
    """Return the sum of amounts in each of so many groups; `by` has the group of each amount."""
    if not len(by):
        return np.zeros(groups)  # which bincount would give as integers
    return cast("Floats", np.bincount(by, amounts, groups))


def divided(amounts: Floats | Ints, by: Floats, otherwise: float) -> Floats:
    """Return quotients, and another number where the divisor is not above 0."""
    positive = by > 0
    if np.count_nonzero(positive) == len(by):
        return amounts / by
    quotients: Floats = np.divide(amounts, by, out=np.full(len(by), otherwise), where=positive)
    return quotients


def floats(values: Sequence[float]) -> Floats:
    """Return an array of some numbers."""
    return np.array(values, dtype=np.float64)


def flags(values: Sequence[bool]) -> Flags:
    """Return an array of truth values."""
    return np.array(values, dtype=np.bool_)


def none() -> Ints:
    """Return an empty array of whole numbers."""
    return np.zeros(0, dtype=np.int64)


class Cohorts:
    """Cohorts, each a column: its queue and job, how often tried, files, bytes left and size of each, start.

    They are rows of two tables, since choosing from a table costs no more than from one row.
    """

    __slots__ = ("files", "job", "left", "queue", "size", "start", "tables", "tries")

    def __init__(self, numbers: Ints, sizes: Floats) -> None:
        """Take the tables: queues, jobs, tries and files; bytes left, sizes and starts."""
        self.tables = numbers, sizes
        self.queue, self.job, self.tries, self.files = numbers
        self.left, self.size, self.start = sizes

    def __len__(self) -> int:
        """How many there are."""
        return len(self.queue)

    def chosen(self, which: Flags) -> Cohorts:
        """Return copies of some of them."""
        at = which.nonzero()[0]
        numbers, sizes = self.tables
        return Cohorts(numbers.take(at, 1), sizes.take(at, 1))

    def plus(self, others: list[Cohorts]) -> Cohorts:
        """Return these and others."""
        if not others:
            return self
        some = [self, *others] if len(self) else others
        if len(some) == 1:
            return some[0]
        numbers, sizes = zip(*(one.tables for one in some), strict=True)
        return Cohorts(np.concatenate(numbers, axis=1), np.concatenate(sizes, axis=1))


def make_cohorts(count: int) -> Cohorts:
    """Return so many, to be filled in."""
    return Cohorts(np.zeros((4, count), dtype=np.int64), np.zeros((3, count)))
