"""The law of control: the window of a link and of a storage, from what was seen to arrive. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import Any

import pytest

from dc_inject.control import law
from dc_inject.control.law import (
    AIM,
    ALONE,
    FALLS,
    FIRST,
    GAIN,
    GROW,
    HOURS,
    LEAST,
    LIFE,
    OVER,
    ROUNDS,
    SHY,
    SLOW,
    Arrival,
    Flight,
    LinkState,
    StorageState,
    renew_link,
    renew_storage,
    slowness,
    yield_to_fast,
)

GB = 10**9
CYCLE = 900.0
ROUND = CYCLE / ROUNDS
START = 1e6
TARGET = 100  # files a cycle
BASE = 600.0  # seconds that a file takes here, unless told otherwise
PLACES = count()  # links of their own, each
near = partial(pytest.approx, rel=0.05)  # how long files take is forgotten slowly


def link(base: float | None = BASE, **more: Any) -> LinkState:
    """A link that is due 100 files of a GB a cycle, of which it is known how long they take; None: it is not."""
    known = {} if base is None else {"slow": base / GB}
    usual = {"acts": True, "target": TARGET * GB / CYCLE, "lifetime": 1e5, "size": float(GB), "least": ROUND}
    return LinkState(**{**usual, **known, "place": str(next(PLACES)), "began": START, "arrived_at": START, **more})


def renew(storage: StorageState, links: Sequence[LinkState], now: float) -> None:
    """Renew a storage just after its links were observed, and let its links yield."""
    for one in links:
        one.renewed = now
    renew_storage(storage, links, now, CYCLE)
    for one in links:
        yield_to_fast(one, [(storage, links)], now, CYCLE)


def flights(count: float, age: float = ROUND) -> list[Flight]:
    return [Flight(count, age, GB)] if count else []


def carry(one: LinkState, now: float, rounds: int, files: float, took: float, waiting: float = 0.0) -> float:
    """Let so many files arrive in each of some rounds, each after the same time; return when that ends."""
    slow = one.slow
    for _ in range(rounds):
        now += ROUND
        one.slow = slow  # seen again and again
        one.arrived.append(Arrival(now, files, took, GB))
        one.arrived_at = now
        renew_link(one, flights(files, ROUND) + flights(waiting, took), now, CYCLE)
    return now


# --------------------------------------------------------------------------- a link


def test_a_new_link_begins_with_a_part_of_a_cycles_worth() -> None:
    one = link(base=None)
    renew_link(one, flights(1, 0.0), START, CYCLE)
    assert one.window == pytest.approx(FIRST * TARGET)


def test_it_grows_until_it_is_known_how_long_files_take_to_what_arrives_in_a_lifetime() -> None:
    one = link(base=None, lifetime=4 * CYCLE)
    renew_link(one, flights(1, 0.0), START, CYCLE)
    renew_link(one, flights(1), START + CYCLE, CYCLE)
    assert one.window == pytest.approx(GROW * FIRST * TARGET)
    for cycle in range(2, 6):
        renew_link(one, flights(1), START + cycle * CYCLE, CYCLE)
    assert one.window == pytest.approx(LIFE * 4 * TARGET)


@pytest.mark.parametrize("rounds", [1, 2, ROUNDS])
def test_it_grows_in_proportion_to_the_time_however_often_it_is_observed(rounds: int) -> None:
    one = link(window=10.0, renewed=START)
    for number in range(1, rounds + 1):
        renew_link(one, flights(1), START + number * CYCLE / rounds, CYCLE)
    assert one.window == pytest.approx(10 * GROW)


def test_files_that_take_longer_than_a_cycle_make_it_grow_as_much_slower() -> None:
    one = link(base=4 * CYCLE, window=100.0, renewed=START)
    renew_link(one, flights(1), START + 2 * CYCLE, CYCLE)
    assert one.window == pytest.approx(100 * GROW**0.5)


def test_a_link_that_yields_grows_slowly() -> None:
    one = link(window=10.0, renewed=START, shy=True, yielded=START)
    renew_link(one, flights(1), START + CYCLE, CYCLE)
    assert one.window == pytest.approx(10 * SHY)


def test_a_link_that_yielded_long_ago_grows_as_others() -> None:
    one = link(window=10.0, renewed=START + ALONE, shy=True, yielded=START)
    renew_link(one, flights(1), START + ALONE + CYCLE, CYCLE)
    assert (one.window, one.shy) == (pytest.approx(10 * GROW), False)


def test_a_window_is_never_empty_however_long_nothing_arrives() -> None:
    one = link(renewed=START, window=10.0)
    for number in range(1, 60):
        renew_link(one, flights(10, number * ROUND), START + number * ROUND, CYCLE)
    assert one.window >= LEAST * one.aim * CYCLE > 1


def test_a_link_that_was_idle_for_weeks_is_taken_up_again() -> None:
    one = link(renewed=START, window=10.0)
    renew_link(one, flights(1), START + 5000 * CYCLE, CYCLE)
    assert 10 <= one.window < 1e6


def test_links_of_several_scenarios_between_the_same_storages_blame_none_of_them() -> None:
    late, storage = [(10.0, 2 * OVER)], StorageState(most=[(START, 1000.0)])
    links = [link(ratios=late, rate=0.1), link(ratios=late, rate=0.1)]
    for one in links:
        one.place = "same"
    renew(storage, links, START)
    assert storage.window is None
    links[0].place = "other"
    renew(storage, links, START)
    assert storage.window is not None


def test_links_that_are_idle_do_not_count_at_a_storage() -> None:
    late, storage = [(10.0, 2 * OVER)], StorageState(most=[(START, 1000.0)])
    idle, one = link(ratios=late, rate=0.1, renewed=START - 10 * CYCLE), link(ratios=late, renewed=START)
    renew_storage(storage, [idle, one], START, CYCLE)
    assert storage.window is None


def test_a_trial_of_yielding_ends_also_where_the_other_storage_has_no_fast_link() -> None:
    slow, fast = shared()
    here, there = StorageState(), StorageState()
    now = START
    while fast.alone < now:
        now += ROUND
        assert now < START + 100 * CYCLE
        for one in (slow, fast):
            one.renewed = now
        renew_storage(here, [slow, fast], now, CYCLE)
        yield_to_fast(slow, [(here, [slow, fast]), (there, [slow])], now, CYCLE)
    assert not slow.shy


def test_a_link_that_carries_its_target_may_have_as_much_waiting_as_moves() -> None:
    """By Little's law a file's time at the target moves; a link that is slower than that is let grow as well."""
    one = link()
    carry(one, START, 40, TARGET / ROUNDS, BASE)
    assert one.runs == near(TARGET * BASE / CYCLE)
    assert one.window == near(GAIN * one.runs)
    slow = link()
    carry(slow, START, 40, TARGET / ROUNDS / 4, BASE)
    assert slow.window == near(one.window)


def test_a_link_with_a_queue_gets_what_its_best_rate_needs() -> None:
    one = link()
    carry(one, START, 60, TARGET / ROUNDS / 4, 2 * BASE, waiting=50)
    assert one.window == near(GAIN * one.runs)
    assert one.runs == near(TARGET / 4 * BASE / CYCLE)


def test_the_best_rate_is_remembered_for_two_hours() -> None:
    one = link()
    now = carry(one, START, 40, TARGET / ROUNDS, 2 * BASE)
    before = one.window
    now = carry(one, now, int(HOURS / ROUND / 2), TARGET / ROUNDS / 4, 2 * BASE)
    assert one.window == near(before)
    carry(one, now, int(HOURS / ROUND), TARGET / ROUNDS / 4, 2 * BASE)
    assert one.window == near(before / 4)


def test_what_is_in_flight_arrives_within_its_lifetime() -> None:
    one = link(lifetime=BASE)
    carry(one, START, 40, TARGET / ROUNDS, BASE)
    assert one.window == near(TARGET / CYCLE * LIFE * BASE)


def test_a_link_from_which_nothing_arrives_for_most_of_a_lifetime_falls_back() -> None:
    """Only if a file has been on its way for as long, however little was given lately."""
    lifetime = 8 * CYCLE
    one = link(lifetime=lifetime)
    now = carry(one, START, 40, TARGET / ROUNDS, BASE)
    before, late = one.window, 1.01 * LIFE * lifetime
    renew_link(one, flights(50, ROUND), now + late, CYCLE)
    assert one.window == near(before)
    renew_link(one, flights(50, 0.9 * LIFE * lifetime), now + late, CYCLE)
    assert one.window > FIRST * TARGET
    renew_link(one, flights(50, late), now + late, CYCLE)
    assert one.window == near(FIRST * TARGET)


def test_nothing_is_seen_to_be_faster_than_a_round() -> None:
    one = link(base=1.0)
    assert one.base == ROUND
    carry(one, START, 40, TARGET / ROUNDS, 1.0)
    assert one.window == near(GAIN * TARGET * ROUND / CYCLE)


def test_files_that_nobody_waits_for_are_not_in_flight_while_the_others_take_no_longer() -> None:
    """A file that is stuck would close the window of its link for days."""
    one = link()
    now = carry(one, START, 20, TARGET / ROUNDS, BASE)
    renew_link(one, flights(7, ROUND) + flights(3, 1.1 * OVER * BASE), now, CYCLE)
    assert one.files == 7
    now = carry(one, now, 20, TARGET / ROUNDS, 2 * BASE)
    renew_link(one, flights(7, ROUND) + flights(3, 1.1 * OVER * BASE), now, CYCLE)
    assert one.files == 10


# --------------------------------------------------------------------------- how slow files are


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([], 1.0),
        ([(1, 5.0)], 5.0),
        ([(1, 9.0), (1, 1.0), (1, 4.0), (1, 2.0)], 1.0),
        ([(1, 9.0), (2, 1.0), (5, 4.0)], 1.0),
        ([(1, 1.0), (7, 4.0)], 4.0),
        ([(0.5, 1.0), (0.5, 2.0), (3.5, 8.0)], 8.0),
    ],
)
def test_the_lower_quartile_counts_files_by_their_weight(
    ratios: Sequence[tuple[float, float]], expected: float
) -> None:
    assert slowness(ratios) == expected


def test_late_files_count_by_how_often_such_files_come() -> None:
    """A file that takes ten rounds of its link is seen ten times before it arrives."""
    one = link()
    renew_link(one, [*flights(10, 10 * CYCLE), *flights(99, AIM * BASE * 0.99)], START, CYCLE)
    assert one.ratios == [(pytest.approx(1.0), pytest.approx(10 * CYCLE / BASE))]


def test_a_file_is_as_late_as_its_size_says() -> None:
    one = link(size=2.0 * GB)
    one.arrived = [Arrival(START, 1, 4 * BASE, 4 * GB), Arrival(START, 1, 4 * BASE, GB)]
    renew_link(one, [], START + 1, CYCLE)
    assert sorted(ratio for _, ratio in one.ratios) == [pytest.approx(1.0), pytest.approx(4.0)]


def test_what_arrived_in_a_time_that_is_not_known_counts_in_the_rate_and_is_no_latency() -> None:
    one = link()
    one.arrived = [Arrival(START + CYCLE, 90, None, GB)]
    renew_link(one, [], START + CYCLE, CYCLE)
    assert (one.rate, one.ratios) == (pytest.approx(90 / CYCLE), [])


# --------------------------------------------------------------------------- a storage

QUICK = 100.0  # seconds that files take there


def busy(rate: float, ratio: float, **more: Any) -> LinkState:
    """A link of a storage: files a second, and how long they take."""
    one = link(base=QUICK, least=10.0, rate=rate, lately=rate, **more)
    one.ratios = [(10.0, ratio)]
    return one


def held(storage: StorageState, links: list[LinkState], now: float) -> float:
    """Let it be overloaded for so long that it is noticed; return when."""
    for one in links:
        one.rate, one.ratios = 1.0, [(10.0, 1.0)]
    renew(storage, links, now)
    for one in links:
        one.rate, one.ratios = 0.5, [(10.0, 1.5 * OVER)]
    for _ in range(3):
        now += ROUND
        renew(storage, links, now)
    return now


def test_a_storage_is_held_at_the_most_that_ran_when_fewer_run_and_files_take_far_too_long() -> None:
    storage, links = StorageState(), [busy(1.0, 1.0), busy(1.0, 1.0)]
    renew(storage, links, START)
    assert storage.window is None
    held(storage, links, START + ROUND)
    assert storage.window == pytest.approx(2 * QUICK)


@pytest.mark.parametrize("other", ["no link", "no latency", "unknown"])
def test_a_single_link_is_no_sign_of_a_storage(other: str) -> None:
    """Its own window answers to its own trouble."""
    storage, one = StorageState(), busy(1.0, 1.0)
    two = link(base=None) if other == "unknown" else busy(1.0, 1.0)
    links = [one] if other == "no link" else [one, two]
    renew(storage, links, START)
    one.rate, one.ratios, two.rate, two.ratios = 0.5, [(10.0, 9.0)], 0.5, []
    for number in range(1, 9):
        renew(storage, links, START + number * ROUND)
    assert storage.window is None


@pytest.mark.parametrize(("part", "ratio"), [(1.0, 2 * OVER), (0.5, 0.99 * OVER)])
def test_a_queue_without_a_loss_is_no_alarm_and_a_loss_without_a_queue_is_none(part: float, ratio: float) -> None:
    storage, links = StorageState(), [busy(1.0, 1.0), busy(1.0, 1.0)]
    renew(storage, links, START)
    for one in links:
        one.rate, one.ratios = part, [(10.0, ratio)]
    for number in range(1, 9):
        renew(storage, links, START + number * ROUND)
    assert storage.window is None
    assert part > FALLS or ratio < OVER


@pytest.mark.parametrize(("ratio", "factor"), [(1.21 * AIM, 1 / 1.1), (1.44 * AIM, 1 / 1.2)])
def test_the_window_of_a_storage_shrinks_by_the_root_of_how_much_too_long_files_take(
    ratio: float, factor: float
) -> None:
    storage, links = StorageState(), [busy(1.0, 1.0), busy(1.0, 1.0)]
    now = held(storage, links, START)
    before = storage.window
    for one in links:
        one.ratios = [(10.0, ratio)]
    renew(storage, links, now + CYCLE / 2)
    assert storage.window == before, "once in a cycle"
    renew(storage, links, now + CYCLE)
    assert before is not None
    assert storage.window == pytest.approx(before * factor)


def test_it_waits_for_what_is_in_flight_there_before_it_shrinks_again() -> None:
    """Files that take an hour say nothing of what was decided a quarter of an hour ago."""
    storage, links = StorageState(), [busy(1.0, 1.0), busy(1.0, 1.0)]
    now = held(storage, links, START)
    for one in links:
        one.slow, one.ratios = 20 * QUICK / GB, [(10.0, 1.21 * AIM)]
    before = storage.window
    renew(storage, links, now + 1.1 * 20 * QUICK)
    assert storage.window == before
    renew(storage, links, now + 1.21 * AIM * 20 * QUICK)
    assert storage.window != before


@pytest.mark.parametrize(("ratio", "factor"), [(1.0, law.FAST), (0.99 * AIM, law.UP)])
def test_it_grows_while_something_has_to_wait_for_it(ratio: float, factor: float) -> None:
    storage, links = StorageState(), [busy(1.0, 1.0), busy(1.0, 1.0)]
    now = held(storage, links, START) + CYCLE
    for one in links:
        one.ratios = [(10.0, ratio)]
    before = storage.window
    assert before is not None
    storage.refused = now - 1
    renew(storage, links, now)
    assert storage.window == pytest.approx(before * factor)
    renew(storage, links, now + CYCLE)
    assert storage.window == pytest.approx(before * factor)


def test_it_is_free_again_when_nothing_had_to_wait_for_it_for_long() -> None:
    storage, links = StorageState(), [busy(1.0, 1.0), busy(1.0, 1.0)]
    now = held(storage, links, START)
    for one in links:
        one.ratios = [(10.0, 1.0)]
    for _ in range(int((ALONE - (now - storage.refused)) / CYCLE) + 1):
        assert storage.window is not None
        now += CYCLE
        renew(storage, links, now)
    assert storage.window is None


def test_a_storage_that_others_fill_is_given_up_and_its_links_are_not_blamed_for_its_queue() -> None:
    """As little as this would not overload it: what is ours is not why files take so long."""
    storage, links = StorageState(), [busy(1.0, 1.0), busy(1.0, 1.0)]
    now = held(storage, links, START)
    for one in links:
        one.ratios = [(10.0, 4 * OVER)]
    seen = []
    for _ in range(5):
        if storage.window is None:
            break
        seen.append(storage.window)
        now += 4 * OVER * QUICK + CYCLE
        renew(storage, links, now)
    assert min(seen) == pytest.approx(law.FLOOR * 2 * QUICK)
    assert all(one.freed > now for one in links)
    storage.most.append((now, 9.0 * QUICK))
    renew(storage, links, now + CYCLE)
    assert storage.window is None
    renew(storage, links, max(one.freed for one in links) + 1)
    storage.most.append((max(one.freed for one in links), 9.0 * QUICK))
    renew(storage, links, max(one.freed for one in links) + ROUND)
    assert storage.window is not None


def test_a_link_of_a_storage_that_others_fill_may_have_what_its_target_needs() -> None:
    """Its queue is not its own, so its own window does not answer to it."""
    made = {}
    for freed in (0.0, START + 1e6):
        one = link(freed=freed)
        carry(one, START, 60, TARGET / ROUNDS / 4, 2 * BASE)
        made[freed] = one.window
    assert made[START + 1e6] == near(4 * made[0.0])


# --------------------------------------------------------------------------- yielding


def shared(**fast: Any) -> tuple[LinkState, LinkState]:
    """A slow link that takes the slots of a storage, and a fast one that waits for them."""
    slow = link(base=10 * QUICK, window=500.0, rate=0.1, lately=0.1, least=10.0)
    usual = {"target": GB, "rate": 0.2, "lately": 0.2, "files": 100.0, "best": [(START, 0.2)], "least": 10.0}
    return slow, link(base=QUICK, **{**usual, **fast})


def test_a_slow_link_leaves_a_fast_one_what_that_needs() -> None:
    """100 files of the slow link and 20 of the fast one ran in the last hour: those 20 are the fast one's."""
    slow, fast = shared()
    renew(StorageState(), [slow, fast], START)
    assert (slow.window, slow.shy) == (pytest.approx(100.0), True)
    assert not fast.shy


def test_it_does_not_count_on_what_links_use_that_yield_to_nobody() -> None:
    """30 files of a third link, as slow but for a little."""
    slow, fast = shared()
    third = link(base=6 * QUICK, rate=0.05, lately=0.05, least=10.0)
    fast.slow = 3 * QUICK / GB
    fast.files, fast.best = 1000.0, [(START, 0.2)]
    renew(StorageState(), [slow, third, fast], START)
    ran = 10 * QUICK * 0.1 + 6 * QUICK * 0.05 + 3 * QUICK * 0.2
    assert (slow.window, third.shy) == (pytest.approx(ran - 6 * QUICK * 0.05 - 3 * QUICK * 0.2), False)


@pytest.mark.parametrize(
    "fast",
    [
        {"lately": 0.95, "files": 200.0},  # moves its target
        {"files": 20.0},  # nothing waits
        {"alone": START + 1},
        {"slow": 1.1 * 10 * QUICK / SLOW / GB},  # hardly faster
        {"slow": None},
    ],
    ids=lambda fast: next(iter(fast)),
)
def test_it_yields_only_to_what_is_much_faster_and_waits(fast: dict[str, Any]) -> None:
    slow, other = shared(**fast)
    renew(StorageState(), [slow, other], START)
    assert (slow.window, slow.shy, slow.yields) == (500.0, False, 0.0)


@pytest.mark.parametrize("gains", [False, True])
def test_it_is_given_up_where_the_fast_link_gains_nothing_by_it(gains: bool) -> None:
    """What that link waits for is something else; here it gains a half in a trial, or nothing."""
    slow, fast = shared()
    storage, now, given_up = StorageState(), START, False
    for _ in range(36):  # two trials
        renew(storage, [slow, fast], now)
        given_up = given_up or fast.alone > now
        now += ROUND
        if gains:
            fast.rate = fast.lately = min(fast.lately * 1.05, 0.8)
            fast.best.append((now, fast.rate))
    assert given_up is not gains
    assert slow.shy is gains
    assert (fast.alone > now) is not gains
