"""Traffic is even: over a day no link strays by more than one of its datasets from what is due, at any instant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject.model import FlowKey
from dc_inject.planning.plan import Account, plan
from tests.core.builders import GB, LENGTH, NO_LIMITS, START, demand, flow, gbps, items, situation
from tests.core.day import Day
from tests.core.test_day import grid, pool, sources
from tests.engine import world as engine

BIN = 10  # of a link's largest datasets
PEAK = 1.2  # to the mean
few = settings(max_examples=2, deadline=None, derandomize=True)
Given = Mapping[FlowKey, Sequence[tuple[datetime, int]]]


def released(day: Day) -> Given:
    """When each link was given how many bytes."""
    made: dict[FlowKey, list[tuple[datetime, int]]] = {}
    for one in sorted(day.injections, key=lambda injection: injection.release):
        made.setdefault(one.flow, []).append((one.release, one.item.bytes))
    return made


def astray(
    some: Sequence[tuple[datetime, int]],
    rate: float,
    since: datetime = START,
    debt: float = 0,
    waited_for: int = 0,
) -> float:
    """By how many of its largest datasets a link strays from what is due, just before and after each release.

    `waited_for` is the largest that it had to wait for, since all smaller ones were at the destination.
    """
    largest, total, worst = max(waited_for, *(size for _, size in some)), 0, 0.0
    for moment, size in some:
        if moment >= since:
            ought = debt + rate * (moment - since).total_seconds()
            worst = max(worst, abs(total - ought), abs(total + size - ought))
            total += size
    return worst / largest


def peak_to_mean(some: Sequence[tuple[datetime, int]], rate: float, hours: float = 24) -> float:
    """The fullest of the bins worth ten of the largest datasets, to their mean; 0 for too few bins."""
    width = BIN * max(size for _, size in some) / rate
    bins = [0] * int(hours * 3600 / width)
    for moment, size in some:
        place = int((moment - START).total_seconds() // width)
        if place < len(bins):
            bins[place] += size
    return max(bins) * len(bins) / sum(bins) if len(bins) > 1 else 0


@given(seed=st.integers(0, 10**6))
@few
def test_a_day_of_many_links_is_even_for_each_of_them(seed: int) -> None:
    """From links with a dataset in some hours to links with several in a cycle."""
    flows = grid(seed)
    day = Day(sources(seed), lambda cycle: flows).run()
    for key, some in released(day).items():
        rate = next(one.rate for one in flows if one.key == key)
        assert astray(some, rate, waited_for=max(day.books[key].smallest)) <= 1, key
        assert peak_to_mean(some, rate) <= PEAK, key


@pytest.mark.parametrize("size", [26, 40, 200, 900])
def test_a_link_alone_is_even_however_fine(size: int) -> None:
    """From 86 datasets in a cycle to two."""
    one = flow("A", "B", 20)
    count = int(gbps(20) * 13 * 900 / (size * GB)) + 10
    day = Day({"A": items(*(size * GB + n for n in range(count)))}, lambda cycle: [one]).run(48)
    (some,) = released(day).values()
    assert astray(some, one.rate) <= 1.01
    assert peak_to_mean(some, one.rate, hours=12) <= PEAK


def test_after_an_outage_it_strays_by_no_more_than_the_debt() -> None:
    """Which is worked off evenly over the first cycle."""
    flows = [flow("S0", "D0", 20), flow("S1", "D1", 3)]
    day = Day(sources(1), lambda cycle: flows, down=lambda cycle: START <= cycle.start < START + 4 * LENGTH).run(
        24
    )
    back = START + 4 * LENGTH
    for key, some in released(day).items():
        rate = next(one.rate for one in flows if one.key == key)
        largest = max(size for _, size in some)
        carried = max(rate * LENGTH.total_seconds(), largest)  # what more there was is forgiven
        assert astray(some, rate, back, carried) <= 1 + carried / largest, key
        cycle = [size for moment, size in some if back <= moment < back + LENGTH]
        half = sum(size for moment, size in some if back <= moment < back + LENGTH / 2)
        if len(cycle) > 4:
            assert 0.35 <= half / sum(cycle) <= 0.65


def test_what_comes_on_top_of_a_due_is_no_debt() -> None:
    """What the controller adds is due over the whole cycle, and not when it begins."""
    stock = items(*[100 * GB] * 9)
    due, moments = 900 * GB, []
    for extra in (0, 100 * GB):
        account = Account(due - extra, extra=extra)
        links = [
            flow("A", f"B{n}") for n in range(40)
        ]  # more than there are calls for: no room to be early or late
        demands = [demand(link, due - extra, extra=extra, account=account) for link in links]
        made = plan(situation(demands, stock)).injections
        moments.append([injection.release for injection in made])
    assert len(moments[0]) == 40 * 9
    assert moments[0] == moments[1]


def test_a_large_link_among_many_is_even_too() -> None:
    """Together they have more datasets than calls: it has as many calls as it needs, the others three."""
    flows = [flow("S0", "D0", 20), *(flow(f"S{n % 8}", f"D{1 + n // 8}", 5) for n in range(64))]
    day = Day({f"S{n}": pool(n, 800, 0.05, 0.1) for n in range(8)}, lambda cycle: flows).run(12)
    for key, some in released(day).items():
        rate = next(one.rate for one in flows if one.key == key)
        assert astray(some, rate, waited_for=max(day.books[key].smallest)) <= 1.02, key
        assert peak_to_mean(some, rate, hours=3) <= PEAK, key


def test_where_a_limit_is_just_what_is_asked_for_no_link_loses_a_cycle() -> None:
    """Items are more than a budget now and then: not at the expense of those that choose last."""
    flows = [flow(f"S{n % 8}", f"D{n // 8}", 5) for n in range(32)]
    limits = replace(NO_LIMITS, total=sum(one.rate for one in flows))
    stock = {f"S{n}": pool(n, 800, 0.05, 0.15) for n in range(8)}
    day = Day(stock, lambda cycle: flows, limits=limits).run(24)
    assert len(day.books) == len(flows)
    for key, some in released(day).items():
        assert astray(some, flows[0].rate) <= 1.02, key
        assert sum(day.books[key].injected) >= 0.99 * sum(day.books[key].due)


def test_the_engine_and_the_service_make_it_no_worse(tmp_path) -> None:
    """A link of three datasets a cycle beside one of a dataset in two, for twelve hours."""
    flows = [engine.flow("A", "B", 10), engine.flow("C", "D", 1)]
    stock = {name: engine.items(name, 500, size) for name, size in (("A", 350 * GB), ("C", 220 * GB))}
    one = engine.world(tmp_path, engine.campaign(flows), stock)
    one.run(cycles=48)
    for link in flows:
        rules = [rule for rule in one.backend.rules.values() if rule.injection.link == link.link]
        some = sorted((rule.created, rule.injection.item.bytes) for rule in rules)
        assert len(some) >= 20
        assert astray(some, link.rate) <= 1
        assert peak_to_mean(some, link.rate, hours=12) <= PEAK
