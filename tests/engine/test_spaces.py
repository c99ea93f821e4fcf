"""How large a space is found: never larger than it is, whatever was deleted unseen when its free part was told."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.engine.spaces import Seen
from dc_inject.model import Control, Mode, RseSpec, Site, State
from dc_inject.model.events import Observed
from tests.engine.world import CYCLE, GB, START, TB, campaign, flow, items, world

ACT = Control(Mode.ACT)
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("moment", "there"),
    [
        (5, 0),  # nobody had looked yet
        (10, 30),
        (19, 30),  # the rest came unseen
        (20, 100),
        (49, 100),  # before its end, until which it is kept
        (50, 60),  # what the next look found
        (60, 40),  # as a look asks that begins in the same moment, it may have gone since
        (70, 0),
        (90, 0),  # nobody has looked since
    ],
)
def test_of_an_injection_counts_what_looks_around_a_moment_found_at_the_least(moment, there):
    seen = Seen(ends=50, arrived=[(10, 30), (20, 100)], left=[(60, 60), (70, 40), (80, 0)])
    assert seen.there(moment) == there


def hourly(one, late: timedelta = timedelta(0)) -> None:
    """Let free space be told once an hour, with its time, so long after the hour has begun."""
    look, told = one.backend.sites, {}

    def sites(rses):
        facts, now = look(rses), one.clock.now()
        hour = max(now - late - START, timedelta(0)) // timedelta(hours=1)
        if hour not in told:
            told[hour] = (facts["B"].free, now)
        free, at = told[hour]
        return facts | {"B": replace(facts["B"], free=free, free_at=at)}

    one.backend.sites = sites


def on_disk(one) -> int:
    """Bytes that have arrived and were not deleted yet."""
    return sum(rule.moved for rule in one.backend.rules.values() if rule.deleted is None)


def found(one) -> list[int]:
    """The spaces of the last cycles."""
    (kept,) = [json.loads(signal.value) for signal in one.ledger.signals() if signal.name == "spaces"]
    return list(kept["seen"].values())


def coarse(tmp_path, lag, sites=()):
    """A disk of 2 TB for datasets of 200 GB that live for an hour, at 8 Gb/s: nearly two lifetimes' worth."""
    link = flow("A", "B", 8.0, control=ACT, lifetime_min=4 * CYCLE, lifetime_max=4 * CYCLE)
    return world(
        tmp_path, campaign([link], sites=sites), {"A": items("A", 200, 200 * GB)}, deletion_lag=lag, may_end=False,
        speed=lambda _: 1.25 * GB, space={"B": 2 * TB},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("lag", "again"),
    [(1, True), (10, False), (30, True)],
    ids=["1-a run for each cycle", "10-one run", "30-a run for each cycle"],
)
def test_no_space_is_found_larger_than_it_is_and_no_disk_above_98_percent(tmp_path, lag, again):
    """Each dataset is a tenth of it, and is deleted while nobody looks, just before free space is told."""
    one, most, largest = coarse(tmp_path, lag * MINUTE), [], []
    hourly(one, 2 * MINUTE)

    def look() -> None:
        most.append(on_disk(one))
        largest.extend(found(one))

    one.heard.at[Observed] = look
    for _ in range(16 if again else 1):
        one.run(cycles=1 if again else 16)
    assert max(largest) <= 2 * TB
    assert max(most) <= 0.98 * 2 * TB
    given = sum(row.injected for row in one.ledger.rows())
    assert given >= 0.7 * 16 * CYCLE / (4 * CYCLE + lag * MINUTE) * 2 * TB  # what fits, less what is not known


def test_what_ended_before_it_had_arrived_is_not_there(tmp_path):
    """What expires on a link that stands still is in the ledger until it is known to be gone."""
    one, largest = coarse(tmp_path, timedelta(days=2)), []
    one.heard.at[Observed] = lambda: largest.extend(found(one))
    one.run(cycles=2)
    one.backend.speed = lambda _: 0.01 * GB
    one.run(cycles=10)
    assert [entry for entry in one.ledger.entries(State.ENDED) if entry.completed_at is None]
    assert max(largest) <= 2 * TB


def test_a_run_that_begins_while_free_space_is_not_told_goes_on_with_what_was_told(tmp_path):
    granted = (Site("S", rses={"B": RseSpec(space=3 * TB)}),)
    one = coarse(tmp_path, MINUTE, sites=granted)
    hourly(one)
    one.run(cycles=6)
    before, look = found(one), one.backend.sites
    one.backend.sites = lambda rses: {name: replace(fact, free=None) for name, fact in look(rses).items()}
    one.run(cycles=1)
    assert min(found(one)) == min(before)


def test_a_menu_that_grants_more_than_there_is_changes_nothing(tmp_path):
    """While what was deleted unseen counts as ours, there seems to be even more than it grants."""
    one, most = coarse(tmp_path, MINUTE, sites=(Site("S", rses={"B": RseSpec(space=2100 * GB)}),)), []
    hourly(one, 2 * MINUTE)
    one.heard.at[Observed] = lambda: most.append(on_disk(one))
    one.run(cycles=16)
    assert max(most) <= 0.98 * 2 * TB


@pytest.mark.parametrize("percent", [0.7, 12])
def test_others_that_fill_a_disk_are_noticed_with_the_next_word_of_it(tmp_path, percent):
    """So many percent an hour. Words are an hour apart, and a cycle may go by until one is planned with."""
    one, space, before, over = coarse(tmp_path, MINUTE), 2 * TB, 0, []
    hourly(one)
    look = one.backend.sites

    def left() -> float:
        return space * (1 - percent / 100 * ((one.clock.now() - START) / timedelta(hours=1)))

    def sites(rses):
        one.backend.space = {"B": int(left())}
        return look(rses)

    def arrived() -> None:
        nonlocal before
        if on_disk(one) > before:
            over.append(on_disk(one) - (left() - 0.02 * space))
        before = on_disk(one)

    one.backend.sites = sites
    one.heard.at[Observed] = arrived
    one.run(cycles=16)
    assert max(over) <= max(1.25 * percent - 1, 0) / 100 * space
    assert (max(over) > 0) == (percent > 1)
