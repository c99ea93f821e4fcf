"""A day of 96 cycles: what must hold of the books at the end of every cycle, and of the day."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject.model import Exclusion, Flow, Held, Hold, Item, Limits, RseSpec, Site
from dc_inject.planning.limits import TOLERANCE
from tests.core.builders import GB, LENGTH, START, TB, flow, gbps, items
from tests.core.day import HOUR, Books, Day

few = settings(max_examples=2, deadline=None, derandomize=True)


def pool(seed: int, count: int = 400, smallest: float = 0.05, largest: float = 8) -> list[Item]:
    """Datasets of 0.05 to 8 TB, as many of each decade."""
    draw = random.Random(seed)
    return items(*(int(smallest * TB * (largest / smallest) ** draw.random()) for _ in range(count)))


def grid(seed: int, links: int = 10, **more: object) -> list[Flow]:
    """Links from 0.1 to 100 Gb/s between 8 sources and 5 destinations."""
    draw = random.Random(seed)
    pairs = draw.sample([(f"S{a}", f"D{b}") for a in range(8) for b in range(5)], links)
    return [flow(source, destination, 0.1 * 1000 ** draw.random(), **more) for source, destination in pairs]


def sources(seed: int, count: int = 400) -> dict[str, list[Item]]:
    """Every source holds the same datasets, so that uniqueness at the destinations matters."""
    return {f"S{a}": pool(seed, count) for a in range(8)}


def drift(books: Books, cycles: int | None = None, overhead: float = 0.0) -> float:
    """Bytes by which injected and forgiven are ahead of (or, negative, behind) what was due."""
    part = slice(cycles)
    return sum(books.injected[part]) + sum(books.forgiven[part]) - sum(books.due[part]) * (1 + overhead)


def within(books: Books, end: int) -> float:
    """The largest drift that a cycle may end with.

    That is the overshoot, the largest dataset chosen, or the smallest that was free before or after the cycle: a
    debt that waited for a large one is still there when a small one comes free at the cycle's end.
    """
    return max(0.2 * max(books.due[:end]), *books.largest[:end], *books.smallest[max(end - 2, 0) : end])


def tolerance(books: Books) -> float:
    """What a day may be off by: 0.5 % of its due, or half of the smallest dataset that there was to choose."""
    return max(0.005 * sum(books.due), max(books.smallest[-12:]) / 2) + 1


@given(seed=st.integers(0, 10**6))
@few
def test_every_link_is_on_its_account_at_every_cycle_and_over_the_day(seed: int) -> None:
    """However coarse or fine, a link is within a dataset of its account always, and half of one over the day."""
    flows = grid(seed)
    day = Day(sources(seed), lambda cycle: flows).run()
    for books in day.books.values():
        for end in range(1, 97):
            assert abs(drift(books, end)) <= within(books, end)
        assert sum(books.forgiven) == 0
        assert abs(sum(books.injected) - sum(books.due)) <= tolerance(books)


@given(seed=st.integers(0, 10**6), gap=st.integers(2, 40))
@few
def test_a_coarse_link_keeps_its_account_when_sizes_are_far_apart(seed: int, gap: int) -> None:
    """What waits for a large dataset is not forgiven when a small one comes free in the meantime."""
    small = 50 * GB
    sizes = items(small, gap * small, gap * small + 1, *([8 * TB] * 3))
    draw = random.Random(seed)
    one = flow(rate=0.1 + draw.random())
    day = Day({"A": sizes}, lambda cycle: [one]).run()
    (books,) = day.books.values()
    assert sum(books.forgiven) == 0
    assert abs(drift(books)) <= max(books.smallest) / 2 + 1


@given(seed=st.integers(0, 10**6))
@few
def test_an_overhead_of_ten_percent_gives_ten_percent_more(seed: int) -> None:
    """Overhead is exact over the day."""
    flows = [replace(one, overhead=0.1) for one in grid(seed, 5)]
    day = Day(sources(seed), lambda cycle: flows).run()
    for books in day.books.values():
        assert abs(sum(books.injected) - 1.1 * sum(books.due)) <= tolerance(books)
        assert sum(books.forgiven) == 0


@given(seed=st.integers(0, 10**6))
@few
def test_the_day_does_not_depend_on_the_order_of_anything(seed: int) -> None:
    """Demands, pools and sites may come in any order."""
    flows, draw = grid(seed, overhead=0.05), random.Random(seed)
    pools = sources(seed, 200)
    mixed = {source: draw.sample(some, len(some)) for source, some in reversed(pools.items())}
    one = Day(pools, lambda cycle: flows).run(24)
    other = Day(mixed, lambda cycle: flows[::-1], turn=lambda some: draw.sample(some, len(some))).run(24)
    assert one.plans == other.plans


def nothing_planned(day: Day, off) -> None:
    """The service could not be asked for anything."""
    day.down = off


def destination_off(day: Day, off) -> None:
    """A site has taken its RSE out for writing."""
    day.held = lambda cycle, flow: Held(Hold.DESTINATION_UNAVAILABLE, {"rse": "D0"}) if off(cycle) else None


@pytest.mark.parametrize("switch", [nothing_planned, destination_off])
def test_after_an_outage_two_cycles_worth_come_back_and_the_rest_is_forgiven(switch) -> None:
    """Eight lost cycles give one of twice the due; seven are forgiven, and the account is even again."""
    flows = [flow("S0", "D0", 20), flow("S1", "D1", 0.3)]
    day = Day(sources(1), lambda cycle: flows)
    switch(day, lambda cycle: 20 <= (cycle.start - START) // LENGTH < 28)
    day.run()
    fine, coarse = (day.books[one.key] for one in flows)
    due = fine.due[0]
    assert fine.injected[20:28] == [0] * 8
    assert fine.injected[28] <= 2.2 * due
    assert abs(fine.injected[28] - 2 * due) <= 0.4 * due
    assert abs(sum(fine.forgiven) - 7 * due) <= 0.5 * due
    assert abs(drift(fine)) <= tolerance(fine)
    assert max(coarse.injected) <= 2 * max(coarse.smallest)
    assert abs(drift(coarse)) <= tolerance(coarse)
    held = [h.hold if h else None for h in fine.held[20:29]]
    assert all(hold is not None for hold in held[:8])


def test_a_pause_adds_no_due_and_nothing_is_made_up() -> None:
    """Two hours of pause are two hours without traffic, and the next cycle is as every other."""
    one = flow("S0", "D0", 20)
    off = range(30, 38)
    day = Day(sources(2), lambda c: [one], paused=lambda c, f: (c.start - START) // LENGTH in off).run()
    (books,) = day.books.values()
    assert books.due[30:38] == books.injected[30:38] == [0] * 8
    assert {h.hold for h in books.held[30:38] if h} == {Hold.PAUSED}
    assert books.injected[38] <= 1.4 * books.due[0]
    assert abs(sum(books.injected) - 88 * books.due[0]) <= tolerance(books)
    assert sum(books.forgiven) <= books.due[0]


def test_an_edit_at_noon_changes_the_future_only() -> None:
    """At noon the rate halves: the morning's due stays, and the account stays even."""
    one, noon = flow("S0", "D0", 20), START + timedelta(hours=2)
    day = Day(sources(3), lambda c: [one if c.start < noon else replace(one, rate=one.rate / 2)]).run()
    (books,) = day.books.values()
    assert books.due == [int(gbps(20) * 900)] * 8 + [int(gbps(10) * 900)] * 88
    assert abs(sum(books.injected) - sum(books.due)) <= tolerance(books)


def test_a_change_of_menu_at_ten_goes_over_without_a_gap_or_a_burst() -> None:
    """Yesterday's menu ends where today's begins, with another rate for one link, and another link."""
    change = START + timedelta(hours=6)
    kept = flow("S0", "D0", 20, end=change), flow("S0", "D0", 40, start=change)
    gone, new = flow("S1", "D0", 10, end=change), flow("S2", "D0", 10, start=change)
    day = Day(sources(4), lambda c: [*kept, gone, new]).run()
    books = day.books[kept[0].key]
    assert books.due == [int(gbps(20) * 900)] * 24 + [int(gbps(40) * 900)] * 72
    assert abs(drift(books)) <= tolerance(books)
    assert len(day.books[gone.key].due) == 24
    assert len(day.books[new.key].due) == 72
    for key, some in day.books.items():
        assert abs(drift(some)) <= tolerance(some), key
        assert all(got <= 1.5 * due + max(some.smallest) for got, due in zip(some.injected, some.due, strict=True))


def test_an_exclusion_is_not_made_up_and_its_rate_goes_to_the_others() -> None:
    """With `redistribute` the scenario keeps its rate while one site is in downtime."""
    flows = [flow("S0", "D0", 10), flow("S1", "D1", 20), flow("S2", "D2", 30)]
    off = Exclusion(START + HOUR, START + 3 * HOUR, "downtime", site="D2", redistribute=True)
    day = Day(sources(5), lambda c: flows, exclusions=[off]).run(24)
    first, second, third = (day.books[one.key] for one in flows)
    assert third.due[4:12] == [0] * 8
    assert {h.hold for h in third.held[4:12] if h} == {Hold.EXCLUDED}
    assert first.due[4:12] == [2 * first.due[0]] * 8
    assert second.due[4:12] == [2 * second.due[0]] * 8
    for books in day.books.values():
        assert abs(drift(books)) <= max(0.2 * max(books.due), max(books.smallest) / 2) + 1


def per_hour(day: Day, where) -> dict[object, list[int]]:
    """Bytes by place, for every hour of four whole cycles."""
    cycles: dict[object, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for injection in day.injections:
        cycles[where(injection)][(injection.cycle.start - START) // LENGTH] += injection.item.bytes
    return {place: [sum(some[i + k] for k in range(4)) for i in range(96)] for place, some in cycles.items()}


@pytest.mark.parametrize("seed", [1, 2, 5171])
def test_limits_are_never_exceeded_over_an_hour_and_are_made_use_of(seed: int) -> None:
    """Sites and campaign stay below their limits in every hour, and get most of what is allowed in the end."""
    flows = grid(seed)
    total = sum(one.rate for one in flows)
    limits = Limits(total=total / 2, per_site=total / 4, rules_per_hour=10**6, files_in_flight=10**9)
    sites = (Site("X", wan=total / 6, max_ingress=total, rses={"D0": RseSpec(), "D1": RseSpec()}),)
    site_of = {"D0": "X", "D1": "X"}
    day = Day(sources(seed), lambda c: flows, limits=limits, sites=sites, site_of=site_of).run(48)
    for hours, limit in (
        (per_hour(day, lambda i: "all")["all"], limits.total),
        (per_hour(day, lambda i: site_of.get(i.link.destination)).get("X", [0]), total / 6),
    ):
        assert max(hours) <= limit * 3600 * (1 + TOLERANCE)
    for place in (lambda i: i.link.source, lambda i: i.link.destination):
        for name, hours in per_hour(day, place).items():
            assert max(hours) <= limits.per_site * 3600, name
    got = sum(i.item.bytes for i in day.injections)
    assert got <= limits.total * 48 * 900
    for books in day.books.values():
        for end in range(1, 49):
            assert abs(drift(books, end)) <= within(books, end) + 2 * max(books.due)


def test_no_hour_has_more_rules_than_the_limit_and_every_cycle_has_some() -> None:
    """A hundred an hour are twenty-five a cycle, not a hundred and then nothing."""
    flows = grid(6)
    limits = Limits(1e15, 1e15, rules_per_hour=100, files_in_flight=10**9)
    day = Day(sources(6), lambda c: flows, limits=limits).run(24)
    assert [len(made.injections) for made in day.plans] == [25] * 24


def test_a_saturated_limit_is_used_up_and_shared_by_priority() -> None:
    """Half of what three links want: the first priority gets all of it, the others the rest in proportion."""
    flows = [
        flow("S0", "D0", 20, priority=5),
        flow("S1", "D1", 20),
        flow("S2", "D2", 40),
    ]
    limits = Limits(gbps(40), gbps(1000), 10**6, 10**9)
    day = Day(sources(7), lambda c: flows, limits=limits).run(48)
    first, second, third = (sum(day.books[one.key].injected) / (48 * 900) for one in flows)
    assert first == pytest.approx(gbps(20), rel=0.01)
    assert first + second + third == pytest.approx(gbps(40), rel=0.02)
    assert third / second == pytest.approx(2, rel=0.1)
    assert {h.hold for h in day.books[flows[2].key].held if h} == {Hold.CAMPAIGN_LIMIT}


@pytest.mark.parametrize(("space", "lag"), [(40, 0), (60, 1), (500, 1)])
def test_a_destination_is_never_filled_beyond_its_space_and_gets_a_steady_rate(space: int, lag: int) -> None:
    """What does not fit is cut evenly: no filling up and stopping."""
    flows = [flow("S0", "D0", 40), flow("S1", "D0", 40)]
    day = Day(sources(8), lambda c: flows, space={"D0": space * TB}, lag=lag * HOUR)
    most = 0
    for number in range(96):
        day.run(1, START + number * LENGTH)
        there = sum(size for (_, rse), (_, size) in day.resident.items() if rse == "D0")
        most = max(most, there)
        assert there <= space * TB
    stay = flows[0].lifetime_min.total_seconds() + lag * 3600 + 900
    steady = min(2 * gbps(40), space * TB / stay)
    sums = [sum(day.books[one.key].injected[number] for one in flows) for number in range(96)]
    assert sum(sums[16:]) / (80 * 900) == pytest.approx(steady, rel=0.1)
    if steady < gbps(80):
        assert min(sum(sums[n : n + 4]) for n in range(16, 92)) > 0.5 * steady * 3600
        assert Hold.DESTINATION_FULL in {h.hold for h in day.books[flows[0].key].held if h}


def test_quota_is_never_used_up_to_the_last_byte() -> None:
    """Rucio wants more left than the dataset has."""
    one = flow("S0", "D0", 40)
    day = Day({"S0": items(*[TB] * 100)}, lambda c: [one], quota={"D0": 5 * TB}).run(12)
    there = max(
        sum(i.item.bytes for i in day.injections if i.release <= moment < i.release + i.lifetime)
        for moment in (START + n * LENGTH for n in range(12))
    )
    assert there == 4 * TB
    assert Hold.QUOTA in {h.hold for h in day.books[one.key].held if h}


def test_a_pool_that_is_too_small_is_paced() -> None:
    """20 TB of datasets, each usable once in two hours, give 20 TB in two hours, evenly."""
    one = flow("S0", "D0", 40)
    day = Day({"S0": items(*[250 * GB] * 80)}, lambda c: [one]).run(48)
    (books,) = day.books.values()
    assert Hold.POOL_DRY in {h.hold for h in books.held if h}
    paced = 20 * TB / 9
    assert sum(books.injected[8:]) / 40 == pytest.approx(paced, rel=0.1)
    assert min(books.injected[8:]) >= 0.7 * paced


def test_every_pair_is_taken_once_at_a_time_and_bytes_are_released_evenly() -> None:
    """(dataset, destination) is checked by the driver; released bytes grow as a straight line in every cycle."""
    flows = grid(11)
    day = Day(sources(11), lambda c: flows).run(12)
    for made in day.plans:
        ordered = sorted(made.injections, key=lambda i: i.release)
        total, span = sum(i.item.bytes for i in ordered), LENGTH * 0.98
        largest, before = max(i.item.bytes for i in ordered), 0
        for injection in ordered:
            moment = made.cycle.start + span * (before / total)
            tick = LENGTH / 30
            slip = span * (largest / total)
            assert moment - tick - slip <= injection.release <= moment + tick + slip
            before += injection.item.bytes


def test_every_cycle_with_less_than_due_says_why() -> None:
    """Exactly one reason, with numbers; none when a link got its due."""
    flows = grid(12)
    day = Day(sources(12), lambda c: flows).run(24)
    for books in day.books.values():
        for got, due, held in zip(books.injected, books.due, books.held, strict=True):
            assert (held is not None) == (got < due)
            assert held is None or held.numbers
            assert held is None or held.numbers.get("left", 0) >= 0
