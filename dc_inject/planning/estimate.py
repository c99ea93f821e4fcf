"""What repeats of a measurement tell: their mean, how sure it is, and whether they measured one thing at all.

The interval has two parts. Repeats differ: that is Student's t. And each of them counts whole datasets or files,
so it is never known better than to one of them over its length, even if all repeats count the same. A count that
may begin and end anywhere within one is off by the difference of two rectangular distributions, whose standard
deviation is 1 / sqrt(6) of it (JCGM 100:2008, the GUM, F.2.2.1). Both are added as variances, and multiplied by t:
a few repeats tell of neither for sure.

Repeats that follow each other without a gap tell more together: where each of them begins and ends matters less to
a line through all counts (`slope`) than to a mean, which only the first and the last count decide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

# Student's t for 95 % (two-sided), by degrees of freedom from one on
T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
Course = Sequence[tuple[float, float]]  # a repeat: seconds since its begin, and the count since then
DIFFER = 0.1  # of the higher mean: repeats before and after a change differ by more than this


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean, and half of the interval of 95 % around it, both in the unit of the values; of so many repeats."""

    mean: float
    half: float
    repeats: int

    @classmethod
    def of(cls, values: Sequence[float], resolutions: Sequence[float] = ()) -> Estimate:
        """Return the mean of repeats (two or more), with its interval.

        `resolutions` is the least by which each value can differ from another one, in their unit (0: any).
        """
        counted = sum(resolution**2 for resolution in resolutions) / 6 / len(values)
        return cls(
            fmean(values),
            _t(len(values) - 1) * math.sqrt((stdev(values) ** 2 + counted) / len(values)),
            len(values),
        )

    @property
    def interval(self) -> tuple[float, float]:
        """From and to; nothing is less than 0."""
        return max(self.mean - self.half, 0.0), self.mean + self.half


def slope(runs: Sequence[Sequence[Course]]) -> float:
    """Return the slope of the line through all counts of repeats, by least squares, in their unit per second.

    The repeats of a run follow each other without a gap; what moved between runs is not known. Each has a length.
    """
    above = below = 0.0
    for run in runs:
        times, counts = [0.0], [0.0]
        for course in run:
            since, before = times[-1], counts[-1]
            times += [since + seconds for seconds, _ in course]
            counts += [before + count for _, count in course]
        middle, mean = fmean(times), fmean(counts)
        above += sum((time - middle) * (count - mean) for time, count in zip(times, counts, strict=True))
        below += _squares(times)
    return above / below


def changed(values: Sequence[float]) -> int:
    """Return how many of the first values were of something else than the later ones; 0 if all are of one.

    Of all ways to cut them in two, the one is taken within whose parts they differ least. The parts are of two
    things if their means differ by more than a tenth (a fifth where one of them is a single value), and by more
    than how the values differ within the parts explains with a probability of 95 % (Student's t of two samples).
    """
    cuts = range(1, len(values)) if len(values) > 2 else ()
    cut = min(cuts, key=lambda place: _squares(values[:place]) + _squares(values[place:]), default=0)
    if not cut:
        return 0
    before, after = values[:cut], values[cut:]
    variance = (_squares(before) + _squares(after)) / (len(values) - 2)
    apart, means = abs(fmean(before) - fmean(after)), (fmean(before), fmean(after))
    explained = _t(len(values) - 2) * math.sqrt(variance * (1 / len(before) + 1 / len(after)))
    least = DIFFER if min(len(before), len(after)) > 1 else 2 * DIFFER
    return cut if apart > max(explained, least * max(means)) else 0


def _squares(values: Sequence[float]) -> float:
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values)


def _t(freedom: int) -> float:
    return T[min(freedom, len(T)) - 1]
