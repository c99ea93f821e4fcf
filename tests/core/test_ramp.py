"""FTS's ramp: how long it grows, which steps are too short for it, and how a search waits for it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dc_inject.analysis import lint
from dc_inject.apps.link.judging.progress import Progress, conclusion
from dc_inject.apps.link.judging.steps import Ladder
from dc_inject.apps.link.judging.verdict import StepOutcome
from dc_inject.model import Campaign
from dc_inject.model.shape import Point, Shape
from dc_inject.planning import ramp
from tests.apps.link.simulated_link import CYCLE, Link
from tests.core.builders import START, flow, gbps
from tests.engine.world import campaign

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
MB = 10**6


@pytest.mark.parametrize(
    ("transfers", "before", "minutes"),
    [(10, 0, 0), (66, 0, 0), (68, 0, 1), (130, 0, 32), (500, 0, 32), (130, 100, 15), (130, 130, 0), (80, 120, 0)],
)
def test_fts_grows_by_two_transfers_a_minute_from_half_of_its_range(transfers, before, minutes) -> None:
    """66 transfers of 130; what a rate takes beyond the limit is never there."""
    assert ramp.time(6 * MB * transfers, 6 * MB * before) == minutes * MINUTE


@pytest.mark.parametrize(
    ("steps", "worst"),
    [
        ([(HOUR, 6 * MB * 66)], None),
        ([(HOUR / 2, 6 * MB * 126)], None),
        ([(HOUR / 2, 6 * MB * 130)], (6 * MB * 130, 32)),
        ([(HOUR / 2, 6 * MB * 120), (15 * MINUTE, 6 * MB * 130)], None),
        ([(10 * MINUTE, 6 * MB * 80), (10 * MINUTE, 6 * MB * 110)], (6 * MB * 110, 15)),
        ([(10 * MINUTE, 6 * MB * 100), (10 * MINUTE, 6 * MB * 100)], (6 * MB * 100, 17)),
        ([(HOUR, 6 * MB * 100), (MINUTE, 6 * MB * 10), (MINUTE, 6 * MB * 100)], None),  # it keeps what it has
    ],
)
def test_a_step_is_too_short_if_fts_has_not_grown_to_it(steps, worst) -> None:
    found = ramp.too_short(steps)
    assert (found and (found.rate, found.grows / MINUTE)) == worst


def found(made: Campaign) -> list[str]:
    return [problem.message for problem in lint.findings(made) if problem.code == "fts-ramp"]


def test_check_finds_steps_and_windows_that_are_too_short() -> None:
    """One for a scenario, with both times; not a day at one rate, nor what moves few files."""
    steps = Shape(START, (Point(timedelta(0), 0.5), Point(15 * MINUTE, 0.5), Point(15 * MINUTE, 1.0)))
    short = flow("A", "B", 6, end=START + HOUR / 2, shape=steps)
    (message,) = found(campaign([short, flow("A", "C", 5, end=START + HOUR / 6)]))
    for number in ("A -> B", "6 Gb/s", "15 min", "29 min 30 s", " 66 ", " 2 a minute"):
        assert number in message
    assert found(campaign([flow("A", "B", 6)])) == []
    assert found(campaign([flow("A", "B", 3, end=START + HOUR / 4)])) == []


class Growing(Link):
    """A link on which FTS has 66 transfers of 6 MB/s at the beginning, and two more in each minute."""

    def __init__(self, capacity: float, **more: float) -> None:
        super().__init__(capacity, **more)
        self.most, self.minutes = capacity, 0

    def cycle(self, rate: float) -> None:
        self.capacity = min(self.most, ramp.allowed(self.minutes * MINUTE))
        self.minutes += CYCLE // MINUTE
        super().cycle(rate)


def searched(capacity: float, noise: float = 0) -> Progress:
    """A search up to 6 Gb/s on a link that grows to a capacity (Gb/s)."""
    ladder = Ladder(gbps(2), 30 * MINUTE, gbps(1), gbps(6), saturate=True)
    link, progress, now = Growing(gbps(capacity), noise=noise), Progress(ladder, START + 20 * HOUR), START
    progress.take(link.reading(now))
    while progress.over is None:
        now += CYCLE
        link.cycle(progress.rate)
        progress.take(link.reading(now))
    return progress


@pytest.mark.parametrize(("capacity", "noise"), [(4, 0), (5.5, 0), (5.5, 0.02), (2.5, 0.02), (7, 0.02)])
def test_a_search_waits_until_fts_has_grown(capacity, noise) -> None:
    """It does not take for the link what is FTS's ramp, and says what it waits for."""
    progress = searched(capacity, noise)
    told = conclusion(progress.ladder, progress.verdicts, progress.decisions)
    assert told.outcome is StepOutcome.REACHED
    assert told.capacity == pytest.approx(gbps(min(capacity, 6)), rel=0.05)
    waits = [decision for decision in progress.decisions if decision.why == "FTS still ramping"]
    assert (waits != []) == (capacity > 3)
