"""Means of repeated measurements, and how sure they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

# Student's t for 95 % (two-sided), by degrees of freedom from one on
T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


def student_t(freedom: int) -> float:
    """Return Student's t for 95 %, which changes little beyond nine degrees of freedom."""
    return T[min(freedom, len(T)) - 1]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean, and half of the interval of 95 % around it, both in the unit of the values; of so many repeats."""

    mean: float
    half: float
    repeats: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """Return the mean of repeats (two or more), with its interval."""
        return cls(fmean(values), student_t(len(values) - 1) * stdev(values) / sqrt(len(values)), len(values))

    @property
    def interval(self) -> tuple[float, float]:
        """From and to; nothing is less than 0."""
        return max(self.mean - self.half, 0.0), self.mean + self.half
