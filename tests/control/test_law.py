"""The law of control: the window of a link and of a storage, from what was seen to arrive. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import pytest

from dc_inject.control.law import (
    AIM,
    DAY,
    FIRST,
    GAIN,
    GROW,
    HOUR,
    HOURS,
    LEAST,
    LIFE,
    ROUNDS,
    SHY,
    Arrival,
    LinkState,
    StorageState,
    forget_future,
    highest,
    slowness,
)
from tests.control.links import BASE, CYCLE, GB, ROUND, START, TARGET, carry, flights, link, look, near

# --------------------------------------------------------------------------- a link


def test_a_new_link_begins_with_a_part_of_a_cycles_worth() -> None:
    one = link(base=None)
    look(one, flights(1, 0.0), START)
    assert one.window == pytest.approx(FIRST * TARGET)


def test_it_grows_until_it_is_known_how_long_files_take_to_what_arrives_in_a_lifetime() -> None:
    one = link(base=None, lifetime=4 * CYCLE)
    look(one, flights(1, 0.0), START)
    look(one, flights(1), START + CYCLE)
    assert one.window == pytest.approx(GROW * FIRST * TARGET)
    for cycle in range(2, 6):
        look(one, flights(1), START + cycle * CYCLE)
    assert one.window == pytest.approx(LIFE * 4 * TARGET)


@pytest.mark.parametrize("rounds", [1, 2, ROUNDS])
def test_it_grows_in_proportion_to_the_time_however_often_it_is_observed(rounds: int) -> None:
    one = link(window=10.0, renewed=START)
    for number in range(1, rounds + 1):
        look(one, flights(1), START + number * CYCLE / rounds)
    assert one.window == pytest.approx(10 * GROW)


def test_files_that_take_longer_than_a_cycle_make_it_grow_as_much_slower() -> None:
    one = link(base=4 * CYCLE, window=100.0, renewed=START)
    look(one, flights(1), START + 2 * CYCLE)
    assert one.window == pytest.approx(100 * GROW**0.5)


def test_a_link_that_yields_grows_slowly() -> None:
    one = link(window=10.0, renewed=START, shy=True, yielded=START)
    look(one, flights(1), START + CYCLE)
    assert one.window == pytest.approx(10 * SHY)


def test_a_link_that_yielded_long_ago_grows_as_others() -> None:
    one = link(window=10.0, renewed=START + HOURS, shy=True, yielded=START)
    look(one, flights(1), START + HOURS + CYCLE)
    assert (one.window, one.shy) == (pytest.approx(10 * GROW), False)


def test_a_link_that_comes_back_after_days_gets_no_window_without_bounds() -> None:
    """What it is known to take doubles once at most, however long it was away, or a clock was wrong."""
    windows = []
    for away in (1.0, 7.0, 1100.0, 20000.0):
        one = link(renewed=START, window=10.0)
        look(one, flights(1), START + away * DAY)
        windows.append(one.window)
        assert one.base == pytest.approx(2 * BASE)
    assert max(windows) == min(windows)


@pytest.mark.parametrize("ahead", [HOUR, DAY])
def test_after_a_clock_leapt_ahead_and_back_files_on_their_way_count(ahead: float) -> None:
    """And what arrived meanwhile, or was refused, does not count until that time comes."""
    one, same = link(renewed=START, window=10.0), link(renewed=START, window=10.0)
    one.fresh = [Arrival(START + ahead, 5, BASE, GB)]
    one.began = one.refused = START + ahead
    one.freed = START + DAY
    look(one, [], START + ahead)
    for other in (one, same):
        look(other, flights(10), START + ROUND)
        other.fresh = [Arrival(START + 2 * ROUND, 3, BASE, GB)]
        look(other, flights(10), START + 2 * ROUND)
    assert one.files == 10
    assert (one.rate, one.refused, one.freed) == (same.rate, 0, 0)
    one.freed, one.refused = START + HOURS, START + 4 * ROUND
    look(one, flights(10), START + 3 * ROUND)
    assert (one.freed, one.refused) == (START + HOURS, START + 4 * ROUND)  # so far ahead they may be


@pytest.mark.parametrize("kind", [LinkState, StorageState])
def test_each_moment_of_a_state_is_forgotten_when_it_lies_ahead(
    kind: type[LinkState] | type[StorageState],
) -> None:
    """It has a type of its own; some may lie ahead, by HOURS."""
    state = kind(**{one.name: START for one in fields(kind) if one.type in {"Moment", "Until"}})
    forget_future(state, START)
    assert state != kind()
    forget_future(state, START - HOURS - 1)
    assert state == kind()


def test_a_window_is_never_empty_however_long_nothing_arrives() -> None:
    one = link(renewed=START, window=10.0)
    for number in range(1, 60):
        look(one, flights(10, number * ROUND), START + number * ROUND)
    assert one.window >= LEAST * one.aim * CYCLE > 1


def test_a_link_that_was_idle_for_weeks_is_taken_up_again() -> None:
    one = link(renewed=START, window=10.0)
    look(one, flights(1), START + 5000 * CYCLE)
    assert 10 <= one.window < 1e6


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


def test_the_best_rate_is_remembered_for_four_hours() -> None:
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
    # Its highest rate is no measure then, since it may have been chance.
    carry(one, START + 40 * ROUND, 8, TARGET / ROUNDS / 4, 2 * BASE)
    assert one.window == near(max(one.lately, one.rate) * LIFE * BASE)
    assert one.window < 0.9 * highest(one.best) * LIFE * BASE


def test_nothing_is_seen_to_be_faster_than_a_round() -> None:
    one = link(base=1.0)
    assert one.base == ROUND
    carry(one, START, 40, TARGET / ROUNDS, 1.0)
    assert one.window == near(GAIN * TARGET * ROUND / CYCLE)


def test_a_file_that_a_later_one_has_overtaken_waits_in_no_queue() -> None:
    """It is tried again after a pause, say: it counts neither in flight nor as slow, also once it arrives."""
    one, took = link(), BASE + ROUND / 2
    one.fresh = [Arrival(START, 1, took, GB)]
    look(one, [*flights(3, took + 1.01 * BASE), *flights(5, took + 0.99 * BASE)], START)
    assert (one.files, len(one.ratios)) == (5, 2)
    one.fresh = [Arrival(START + 1, 3, took + 1.01 * BASE + 1, GB)]
    look(one, [], START + 1)
    assert (one.files, one.ratios, one.is_slowed) == (0, [(1, near(1.0))], False)
    assert sum(arrival.files for arrival in one.arrived) == 4


def test_in_a_queue_that_is_served_in_its_order_all_files_are_in_flight() -> None:
    one, rounds = link(), 20
    for number in range(1, 2 * rounds):
        now = START + number * ROUND
        one.fresh = [Arrival(now, 3, rounds * ROUND, GB)] if number >= rounds else []
        look(one, [f for age in range(min(number, rounds)) for f in flights(3, age * ROUND)], now)
    assert one.files == 3 * rounds
    assert one.is_slowed


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
    look(one, [*flights(10, 10 * CYCLE), *flights(99, AIM * BASE * 0.99)], START)
    assert one.ratios == [(pytest.approx(1.0), pytest.approx(10 * CYCLE / BASE))]


def test_a_file_is_as_late_as_its_size_says() -> None:
    one = link(size=2.0 * GB, renewed=START)
    one.arrived = [Arrival(START, 1, 4 * BASE, 4 * GB), Arrival(START, 1, 4 * BASE, GB)]
    look(one, [], START + 1)
    assert sorted(ratio for _, ratio in one.ratios) == [near(1.0), near(4.0)]


def test_files_that_are_tried_again_after_a_long_pause_show_no_queue() -> None:
    """One of six works at once; all that arrive late were overtaken, though they outnumber the others."""
    one, pause = link(base=ROUND), 2 * ROUNDS
    for number in range(1, 2 * pause):
        now = START + number * ROUND
        one.fresh = [Arrival(now, 1, 1.5 * ROUND, GB), Arrival(now, 5, pause * ROUND, GB)][: 1 + number // pause]
        look(one, [f for age in range(min(number, pause)) for f in flights(5, age * ROUND)], now)
        assert not one.is_slowed
    assert one.files < 5 * 4


def test_files_that_are_on_their_way_for_longer_than_any_that_arrived_are_late() -> None:
    one = link()
    one.arrived = [Arrival(START, 1, 2 * BASE, GB)]
    look(one, [*flights(1, 1.9 * BASE), *flights(7, 4 * BASE)], START)
    assert [ratio for _, ratio in one.ratios] == [2.0, 4.0]
