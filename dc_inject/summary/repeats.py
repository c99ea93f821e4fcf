"""Repeats of a step: what moved each time that a scenario had the same rate, with its mean and interval.

One run of a step shows little: the grid is another one an hour later. Where a step was repeated, the spread of its
repeats shows how much a difference between two steps means, so that an A/B test of a setting can be read: of two
intervals that do not overlap, the higher one is better.

A stretch is a time of two cycles or more, without a break, in which a scenario was due the same in each. If it
has three or more, the first one does not count: what is injected first has not arrived when it ends. Stretches of
one rate (to 1 %) are repeats of one step. A mini-challenge judges its own steps (`apps/link/judging/progress.py`).

The interval is that of Student's t for 95 %: it takes repeats for independent of each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from dc_inject.ledger import Reader
from dc_inject.ledger.series import Period
from dc_inject.model import Cycle
from dc_inject.model.estimates import Estimate

SHORTEST = 2  # cycles of a stretch: rates that follow a curve are no steps
SAME = 0.01  # part by which rates of one step may differ


class Stretch(NamedTuple):
    """A time at one rate: what was due and what moved, in bytes per second."""

    scenario: str
    rate: float
    moved: float


def repeats(view: Reader, chosen: Period) -> list[dict[str, Any]]:
    """Return the steps that were repeated, by scenario and rate."""
    steps: list[list[tuple[int, Stretch]]] = []
    for number, stretch in sorted(
        enumerate(_stretches(view, chosen)), key=lambda numbered: (numbered[1].scenario, numbered[1].rate)
    ):
        if steps and (last := steps[-1][0][1]).scenario == stretch.scenario and _same(last.rate, stretch.rate):
            steps[-1].append((number, stretch))
        else:
            steps.append([(number, stretch)])
    return [_summary([stretch for _, stretch in sorted(step)]) for step in steps if len(step) > 1]


def _summary(step: Sequence[Stretch]) -> dict[str, Any]:
    rates = [stretch.moved for stretch in step]
    estimated = Estimate.of(rates)
    return {
        "scenario": step[0].scenario,
        "rate": fmean(stretch.rate for stretch in step),
        "repeats": len(step),
        "mean": estimated.mean,
        "interval": list(estimated.interval),
        "each": rates,
    }


def _same(rate: float, other: float) -> bool:
    return abs(rate - other) <= SAME * max(rate, other)


def _stretches(view: Reader, chosen: Period) -> Iterator[Stretch]:
    by_scenario: dict[str, list[tuple[Cycle, int, int]]] = defaultdict(list)
    for cycle, scenario, due, moved in view.by_scenario(chosen):
        by_scenario[scenario].append((cycle, due, moved))
    for scenario, rows in by_scenario.items():
        for part in _unbroken(rows):
            if len(part) < SHORTEST:
                continue
            counting = part[1:] if len(part) > 2 else part
            seconds = sum(cycle.length.total_seconds() for cycle, _, _ in counting)
            due, moved = sum(due for _, due, _ in counting), sum(moved for _, _, moved in counting)
            yield Stretch(scenario, due / seconds, moved / seconds)


def _unbroken(rows: Iterable[tuple[Cycle, int, int]]) -> Iterator[list[tuple[Cycle, int, int]]]:
    """Yield rows that follow each other and are due the same; what was due nothing is no step."""
    part: list[tuple[Cycle, int, int]] = []
    for row in rows:
        if part and not (part[-1][0].end == row[0].start and _same(part[-1][1], row[1])):
            yield part
            part = []
        if row[1]:
            part.append(row)
    if part:
        yield part
