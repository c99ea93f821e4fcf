"""Estimates from repeats of a measurement: their mean, how sure it is, and whether they measured one thing at all.

Repeats of which only a value each is known differ: Student's t (`Estimate.of`). Of repeats that follow each other
without a gap more is known, the counts at all their readings, and so the estimate is better (`estimate_slope`):
where each of them begins and ends matters less to a line through all counts than to a mean, which only the first
and the last count decide.

How sure that line is depends on why counts leave it. A count may be late, since files that start together arrive
together: the next one then makes up for it. Or the link itself may carry more or less by chance: nothing makes up
for that. The first leaves the line more exact than its repeats are, by far; the second does not. So both are taken
as what they are, of a ratio that is not known: `_deviation` weighs ratios by how well each explains the counts, as
Bayes has it. That is known from few repeats: Student's t is taken of the repeats, not of the readings.

Besides, wholes are counted, datasets or files: repeats in a row know their rate to one of them over their time,
even if all count the same. A count that may begin and end anywhere within one is off by the difference of two
rectangular distributions, whose standard deviation is 1 / sqrt(6) of it (JCGM 100:2008, the GUM, F.2.2.1). It is
added as a variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from dc_inject.model.estimates import Estimate, student_t

Course = Sequence[tuple[float, float]]  # a repeat: seconds since its begin, and the count since then
EXACT = 1e-12  # part of the squares of all counts: what is less is the rounding of numbers
RATIOS = (0.0, 0.1, 1.0, 10.0, 100.0)  # variances: of what varies between two readings, in that of what is late
DIFFER = 0.1  # of the higher mean: repeats before and after a change differ by more than this


def estimate_slope(runs: Sequence[Sequence[Course]], whole: float) -> Estimate:
    """Return the slope of the line through all counts of repeats (two or more), with its interval.

    The repeats of a run follow each other without a gap; what moved between runs is not known. `whole` is the
    least by which a count can differ from another one (0: any).
    """
    repeats, lasted = sum(map(len, runs)), sum(course[-1][0] for run in runs for course in run)
    counted = len(runs) * (whole / lasted) ** 2 / 6
    half = student_t(repeats - 1) * math.sqrt(_deviation([_increments(run) for run in runs]) ** 2 + counted)
    return Estimate(slope(runs), half, repeats)


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


def _increments(run: Sequence[Course]) -> list[tuple[float, float]]:
    """Return the seconds and the counts from each reading of a run to the next."""
    readings = [[(0.0, 0.0), *course] for course in run]
    return [(b[0] - a[0], b[1] - a[1]) for course in readings for a, b in pairwise(course)]


def _deviation(runs: Sequence[Sequence[tuple[float, float]]]) -> float:
    """Return the standard deviation of a slope, by the increments of each run.

    That of a mixture of the ratios, each weighted by its likelihood whatever the slope and the size of both are.
    """
    fits = [_fit(runs, ratio) for ratio in RATIOS]
    if not all(fit.variance > 0 for fit in fits):
        return 0.0
    likeliest = max(fit.log_likelihood for fit in fits)
    weights = [math.exp(fit.log_likelihood - likeliest) for fit in fits]
    middle = sum(weight * fit.slope for weight, fit in zip(weights, fits, strict=True)) / sum(weights)
    squares = [fit.variance + (fit.slope - middle) ** 2 for fit in fits]
    return math.sqrt(sum(weight * square for weight, square in zip(weights, squares, strict=True)) / sum(weights))


class _Fit(NamedTuple):
    """A slope with its variance, and how likely the counts are with that."""

    slope: float
    variance: float
    log_likelihood: float


def _fit(runs: Sequence[Sequence[tuple[float, float]]], ratio: float) -> _Fit:
    """Return the slope by generalized least squares, where the ratio of both variances is known.

    What is late is in two increments, with opposite signs, and what varies in one, in proportion to its time: the
    covariances are a tridiagonal matrix, which is taken apart row by row (Cholesky).
    """
    usual = fmean(seconds for run in runs for seconds, _ in run)
    times = both = counts = logarithms = 0.0
    for run in runs:
        pivot, time, count = math.inf, 0.0, 0.0
        for seconds, counted in run:
            time, count = seconds + time / pivot, counted + count / pivot
            pivot = 2 + ratio * seconds / usual - 1 / pivot
            times, both, counts = times + time**2 / pivot, both + time * count / pivot, counts + count**2 / pivot
            logarithms += math.log(pivot)
    freedom = sum(map(len, runs)) - 1
    variance = max(counts - both**2 / times, 0.0) / freedom
    if variance <= counts * EXACT:
        return _Fit(both / times, 0.0, math.inf)
    return _Fit(both / times, variance / times, -(logarithms + math.log(times) + freedom * math.log(variance)) / 2)


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
    explained = student_t(len(values) - 2) * math.sqrt(variance * (1 / len(before) + 1 / len(after)))
    least = DIFFER if min(len(before), len(after)) > 1 else 2 * DIFFER
    return cut if apart > max(explained, least * max(means)) else 0


def _squares(values: Sequence[float]) -> float:
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values)
