"""Arrays of the twin: their types, and the one thing that is done with all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]


def summed(by: Ints, amounts: Floats | Ints | Flags, groups: int) -> Floats:
    """Return the sum of amounts in each of so many groups; `by` tells the group of each amount."""
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
