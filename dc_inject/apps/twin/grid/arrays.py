"""Arrays of the twin: their types, their sums by group, and cohorts of files as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias, cast

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


def floats(values: Sequence[float]) -> Floats:
    """Return an array of some numbers."""
    return np.array(values, dtype=np.float64)


def flags(values: Sequence[bool]) -> Flags:
    """Return an array of truth values."""
    return np.array(values, dtype=np.bool_)


def none() -> Ints:
    """Return an empty array of whole numbers."""
    return np.zeros(0, dtype=np.int64)


class Cohorts(NamedTuple):
    """Cohorts, each a column: its queue and job, how often tried, files, bytes left and size of each, start."""

    queue: Ints
    job: Ints
    tries: Ints
    files: Ints
    left: Floats
    size: Floats
    start: Floats

    def chosen(self, which: Flags) -> Cohorts:
        """Return some of them."""
        return Cohorts._make(column[which] for column in self)

    def plus(self, others: list[Cohorts]) -> Cohorts:
        """Return these and others."""
        cohorts = [self, *others]
        return Cohorts._make(np.concatenate(columns) for columns in zip(*cohorts, strict=True)) if others else self


def no_cohorts() -> Cohorts:
    """Return none."""
    return Cohorts(none(), none(), none(), none(), np.zeros(0), np.zeros(0), np.zeros(0))
