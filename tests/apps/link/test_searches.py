"""Searches on links that are not all they seem: counted in datasets, limited by us, or falling meanwhile."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from dc_inject.apps.link import verdicts
from dc_inject.apps.link.judging.progress import Progress
from dc_inject.apps.link.judging.reading import Reading
from dc_inject.apps.link.judging.verdict import StepOutcome
from dc_inject.model import Held, Hold
from tests.apps.link.simulated_link import CYCLE, GB, LADDER, Link, found, searched
from tests.engine.world import START

HOUR = timedelta(hours=1)


class Datasets(Link):
    """A link of which is told only when all of a dataset has moved."""

    size = 20 * GB

    def reading(self, at) -> Reading:
        known = super().reading(at)
        return replace(known, moved=known.moved // self.size * self.size, counted_by=self.size)


def test_an_interval_knows_that_a_trial_counts_few_datasets():
    """A hundred links without any noise: what differs is whether a dataset is the last of a trial or not yet.

    Of repeats that count the same the spread alone would tell that nothing is unsure.
    """
    inside = too_sure = 0
    for seed in range(100):
        capacity = random.Random(seed).uniform(0.5, 2) * GB
        told = found(searched(replace(LADDER, first=GB / 2, step=GB / 4), Datasets(capacity)))
        assert told.outcome is StepOutcome.REACHED, told
        low, high = told.interval
        inside += low <= capacity <= high
        too_sure += high - low < 0.01 * capacity
    assert inside >= 95
    assert not too_sure


class Limited(Link):
    """A link of which a limit of ours lets only a part be injected."""

    limit, held = 9.2 * GB, None

    def cycle(self, rate):
        self.held = Held(Hold.CAMPAIGN_LIMIT, {"limit": "rules_per_hour"}) if rate > self.limit else None
        super().cycle(min(rate, self.limit))

    def reading(self, at) -> Reading:
        return replace(super().reading(at), held=self.held)


@pytest.mark.parametrize(("highest", "stands"), [(9, 9), (9.5, 9.2), (10, 9.2), (12, 9)])
@pytest.mark.parametrize("capacity", [9.4, 30])
def test_a_limit_of_ours_is_never_what_a_link_carries(capacity, highest, stands, wording):
    """Also where it lets so much through that trials are reached."""
    told = found(searched(replace(LADDER, highest=highest * GB), Limited(capacity * GB)))
    assert told.capacity == pytest.approx(stands * GB)
    if highest < 9.2:
        assert (told.outcome, told.cause) == (StepOutcome.REACHED, None)
        return
    assert (told.outcome, told.cause.code) == (StepOutcome.INCONCLUSIVE, "campaign-limit")
    wording(told.reason)


def test_a_link_that_hardly_carries_the_most_is_not_told_to_carry_it():
    told = found(searched(replace(LADDER, highest=9.6 * GB), Link(9 * GB)))
    assert told.capacity == pytest.approx(9 * GB, rel=0.01)
    assert told.reason.startswith("of 76.8 Gb/s only 72 Gb/s moved, and ")
    assert told.cause.code == "saturated"


class Falls(Link):
    """A link that loses a part of its capacity after so many minutes."""

    after, part = 0, 0.5

    def cycle(self, rate):
        super().cycle(rate)
        self.after -= 1
        if self.after == 0:
            self.capacity *= self.part


@pytest.mark.parametrize("noise", [0, 0.05])
@pytest.mark.parametrize("part", [0.5, 0.75])
def test_a_capacity_that_falls_gives_no_mean_of_before_and_after(part, noise):
    """Whenever it does: either all repeats were before that, or all of them after it, and the verdict tells."""
    told_of = 0
    for minutes in range(20, 75):
        link = Falls(9.3 * GB, noise=noise, seed=minutes)
        link.after, link.part = minutes, part
        progress = searched(LADDER, link)
        told, fell = found(progress), link.after <= 0
        assert told.outcome is StepOutcome.REACHED
        near = [abs(told.capacity / capacity - 1) <= 0.06 for capacity in (9.3 * GB, part * 9.3 * GB)]
        assert any(near), (minutes, told)
        told_of += "fell from 7" in told.reason
        assert fell or " fell " not in told.reason
    assert told_of > 5


class Crowded(Link):
    """A link at a storage at which half fails, and half as fast, while much waits for it."""

    most = 6 * 60 * GB

    def cycle(self, rate):
        crowded = self.given - self.moved - self.failed > self.most
        good, self.failing = self.capacity, 0.5 if crowded else 0.0
        self.capacity /= 2 if crowded else 1
        super().cycle(rate)
        self.capacity = good


@pytest.mark.parametrize("capacity", [2.7, 3.3, 4])
def test_what_fails_while_much_waits_is_no_rate_of_the_link(capacity):
    """The search lets it arrive before it goes on."""
    progress = searched(LADDER, Crowded(capacity * GB))
    told = found(progress)
    assert told.outcome is StepOutcome.REACHED
    assert told.capacity == pytest.approx(capacity * GB, rel=0.06)
    pauses = [decision for decision in progress.decisions if decision.pause]
    assert pauses
    assert "failed: timeout" in told.reason


class Stuck(Crowded):
    """And nothing that waits ever arrives, once there is too much of it."""

    def cycle(self, rate):
        if self.given - self.moved - self.failed > self.most:
            self.capacity = GB / 1000
        super().cycle(rate)


def test_a_pause_does_not_last_for_ever():
    """Four steps at most; then the next rate is tried all the same."""
    progress, link, now, begun, lasted = Progress(LADDER, START + 20 * HOUR), Stuck(4 * GB), START, None, []
    progress.take(link.reading(now))
    while progress.over is None:
        now += CYCLE
        link.cycle(0 if progress.paused else progress.rate)
        progress.take(link.reading(now))
        begun = begun or (now if progress.paused else None)
        if begun and not progress.paused:
            lasted.append(now - begun)
            begun = None
    assert lasted
    assert max(lasted) == 4 * LADDER.every


@pytest.mark.parametrize("fresh", [False, True])
def test_a_search_that_is_stopped_in_a_pause_goes_on_with_the_rate_after_it(fresh):
    """What waited is gone after a stop; without one, the pause ends when it has arrived."""
    progress, link, now = Progress(LADDER, START + 20 * HOUR), Crowded(4 * GB), START
    progress.take(link.reading(now))
    while not progress.paused:
        assert progress.over is None
        now += CYCLE
        link.cycle(progress.rate)
        progress.take(link.reading(now))
    rate, trials = progress.rate, len(progress.verdicts)
    assert rate == progress.decisions[-1].rate
    if fresh:
        progress.stopped(link.reading(now + CYCLE))
        assert (progress.over, len(progress.verdicts)) == (now + CYCLE, trials)
        assert found(progress).cause.code == "time"
        progress.resume(START + 20 * HOUR)
        assert progress.rate == rate
    waiting = 1000 * GB if fresh else 0
    progress.take(replace(link.reading(now + 2 * CYCLE), coming=waiting, fresh=fresh))
    assert (progress.paused, progress.rate) == (False, rate)
    assert progress.step.readings


def test_a_search_of_an_older_version_has_no_verdict_and_still_a_status():
    kept = [(START, "asked", {"saturate": True, "search": 1, "until": START.isoformat()})]
    view = SimpleNamespace(holder=lambda: None, challenge=lambda: kept, path=Path("mini.sqlite"))
    assert "older version" in verdicts.describe(view)
