"""Pairs of a key and a value, put together by their keys: values in lists, or numbers in sums."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
N = TypeVar("N", int, float)


def grouped(pairs: Iterable[tuple[K, V]]) -> defaultdict[K, list[V]]:
    """Return the values of each key, in the order in which they come; of any other key there are none."""
    groups: defaultdict[K, list[V]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups


def summed(pairs: Iterable[tuple[K, N]]) -> defaultdict[K, N]:
    """Return the sum of the numbers of each key; of any other key it is 0."""
    sums: defaultdict[K, N] = defaultdict(int)
    for key, number in pairs:
        sums[key] += number
    return sums
