"""The law of the controller, on a toy link: what is in flight is bounded, so that a queue does not expire."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dc_inject.model import Control, FlowKey, Hold, Link, Mode
from dc_inject.planning import control
from dc_inject.planning.control import (
    CYCLES,
    HIGHEST,
    LEAST,
    LOWEST,
    MOST,
    LinkShare,
    Memory,
    Past,
    Signals,
    decide,
    redistributed,
)
from dc_inject.planning.plan import Account, plan
from tests.core.builders import demand, flow, items, situation
from tests.core.toy import Toy

DAY = 96  # cycles
GB = 10**9
T = timedelta(minutes=15)
WORTH = 900 * GB  # a cycle's at SEEN's target
SEEN = Signals(
    target=GB,
    length=T,
    lifetime=8 * T,
    in_flight=0,
    past=(Past(WORTH, WORTH, WORTH),) * 4,
    completion=T,
    age=T / 5,
    oldest=T,
)


def steady(capacity: float, **more) -> Toy:
    return Toy(lambda _t: capacity, **more)


# --------------------------------------------------------------------------- what it is for


def test_a_link_at_seven_tenths_of_its_target_expires_nothing_with_control_and_a_fifth_without():
    blind = steady(0.7, policy="fixed").run(DAY)
    assert blind.expired_part == pytest.approx(0.21, abs=0.015)
    controlled = steady(0.7).run(DAY)
    assert controlled.expired_part == 0
    assert sum(controlled.moved) == pytest.approx(sum(blind.moved)), "and it is full all the time"
    assert max(controlled.in_flight) <= 4


@pytest.mark.parametrize("capacity", [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98])
@pytest.mark.parametrize("lifetime", [4.0, 8.0])
def test_a_link_that_carries_less_than_its_target_is_full_and_its_queue_is_not(capacity, lifetime):
    toy = steady(capacity, lifetime=lifetime).run(DAY)
    assert sum(toy.moved) >= 0.99 * capacity * (DAY - 1)
    assert toy.expired_part < 0.015, "only of what was given before anything was known"
    assert max(toy.in_flight) <= 4


@pytest.mark.parametrize("lifetime", [4.0, 8.0])
def test_a_link_that_carries_very_little_expires_only_what_was_given_before_anything_was_known(lifetime):
    toy = steady(0.2, lifetime=lifetime).run(DAY)
    assert toy.expired < lifetime / 2
    later = replace(toy)
    later.expired = 0.0
    assert later.run(DAY).expired == 0


@pytest.mark.parametrize("lifetime", [1.0, 1.5, 2.0, 3.0, 8.0])
@pytest.mark.parametrize("capacity", [1.0, 1.2, 2.0])
def test_a_link_that_carries_its_target_is_left_alone(capacity, lifetime):
    toy = steady(capacity, lifetime=lifetime).run(DAY)
    assert set(toy.injected) <= {1.0, 1.05}
    assert not any(decision.limits for decision in toy.decisions)
    assert sum(toy.moved) >= 0.99 * DAY


# --------------------------------------------------------------------------- the traps


@pytest.mark.parametrize("capacity", [1.05, 1.2])
def test_after_an_outage_the_target_is_reached_within_three_cycles_and_without_a_burst(capacity):
    """In flight never is more than the window was before; no cycle gives more than one and a half."""
    toy = Toy(lambda t: 0.0 if 20 <= t < 28 else capacity).run(60)
    assert max(toy.in_flight) < 2.5
    assert max(toy.injected) <= MOST
    assert min(toy.moved[28:31]) >= 0.9
    assert toy.expired_part < 0.05, "what was in the queue when it began"


def test_the_bias_does_not_wind_up_at_a_limit():
    """A link that gets half of its due by somebody's limit moves half: more bias would not help."""
    toy = steady(1.2, pool=lambda t: 0.5 if t < 200 else 9.0).run(230)
    assert abs(toy.decisions[199].memory.bias) < 0.001
    assert max(toy.injected) <= MOST, "a debt of half a cycle is made up"
    assert max(toy.injected[205:]) <= 1.05


def test_the_bias_does_not_wind_up_at_the_window():
    toy = steady(0.7).run(2 * DAY)
    assert toy.decisions[-1].memory.bias < 0.01


def test_the_bias_makes_up_for_what_is_lost():
    toy = steady(1.2, lost=0.05).run(3 * DAY)
    late = toy.moved[-DAY:]
    assert sum(late) / len(late) == pytest.approx(1.0, abs=0.01)
    assert 0.04 < toy.decisions[-1].memory.bias < 0.07


def test_signals_that_are_four_cycles_old_make_high_gains_swing_and_this_one_not(monkeypatch):
    def biases() -> list[float]:
        toy = steady(1.2, lost=0.05, latency=4.0, lifetime=12.0).run(3 * DAY)
        return [decision.memory.bias for decision in toy.decisions[-DAY:]]

    calm = biases()
    monkeypatch.setattr(control, "GAIN", 0.5)
    wild = biases()
    assert max(calm) - min(calm) < 0.03
    assert max(wild) - min(wild) > 0.15


def test_links_shorter_than_the_signals_age_are_not_limited():
    """What completes in a minute and is looked at every 45 minutes looks as if it were in flight."""
    toy = steady(3.0, latency=0.05, seen_every=3.0).run(DAY)
    assert min(toy.injected[3:]) >= 0.95, "in the first cycles nothing has been seen"
    assert sum(toy.moved) >= 0.99 * DAY


def test_hourly_signals():
    enough = steady(1.2, seen_every=4.0).run(DAY)
    assert sum(enough.moved) >= 0.99 * DAY
    assert min(enough.injected[10:]) >= 0.95
    little = steady(0.7, seen_every=4.0).run(DAY)
    assert little.expired_part == 0
    assert max(little.in_flight) <= 5, "an hour's worth may have arrived unseen"
    assert sum(little.moved) >= 0.69 * DAY


@pytest.mark.parametrize("phase", [0, 5])
def test_a_loop_of_fifteen_minutes_does_not_beat_with_one_of_ten(phase):
    """Something else on the way (FTS's optimizer, say) turns up and down with a period of its own."""
    toy = Toy(lambda t: 0.7 if (15 * t + phase) % 20 < 10 else 1.5, seen_every=10 / 15).run(2 * DAY)
    assert max(toy.injected) <= 1.1
    assert min(toy.injected) >= 0.95
    assert abs(toy.decisions[-1].memory.bias) < 0.01
    assert toy.expired_part == 0


def test_it_does_not_grow_while_the_link_is_short_of_work():
    toy = steady(1.2, pool=lambda t: 0.1 if t < DAY else 9.0).run(DAY)
    windows = [decision.window for decision in toy.decisions]
    assert max(windows[DAY // 2 :]) == min(windows[DAY // 2 :])
    toy.run(20)
    assert max(toy.injected[DAY:]) <= MOST
    assert sum(toy.injected[DAY + 2 :]) / 18 <= 1.02


@pytest.mark.parametrize("latency", [0.05, 1.0, 2.0, 3.0, 4.0, 5.0])
def test_a_long_latency_is_no_queue(latency):
    toy = steady(2.0, latency=latency).run(DAY)
    assert sum(toy.moved) >= 0.95 * (DAY - latency)
    assert toy.expired_part == 0


@pytest.mark.parametrize("ago", range(4))
def test_a_link_on_which_whole_datasets_arrive_at_once_carries_their_mean(ago):
    """Their files move side by side for three and a half cycles, and nothing arrives in between."""
    moved = [0] * 8
    moved[7 - ago] = moved[3 - ago] = round(3.6 * WORTH)
    past = tuple(Past(WORTH, size, round(3.6 * WORTH)) for size in moved[-CYCLES:])
    seen = replace(SEEN, lifetime=12 * T, completion=3.5 * T, past=past)
    assert decide(Memory(0.0, 3.5 * T, 0.02 * GB), seen).delivered == pytest.approx(0.9 * GB)
    slow = replace(seen, completion=11 * T)
    assert decide(Memory(0.0, 3.5 * T, 0.02 * GB), slow).delivered < 0.03 * GB, "one that took eleven cycles"
    quick = replace(seen, completion=T)
    assert decide(Memory(0.0, T, 0.02 * GB), quick).delivered < 0.03 * GB, "one good cycle says nothing"


def test_a_dataset_of_several_cycles_worth_is_not_late_while_a_link_at_its_target_would_move_it():
    past = (Past(WORTH, 0, 0), *(Past(WORTH, 0, 3 * WORTH),) * 2)
    seen = replace(SEEN, lifetime=12 * T, completion=None, past=past, in_flight=3 * WORTH)
    in_time, late = (decide(Memory(), replace(seen, oldest=age)).delivered for age in (3 * T, 4 * T))
    assert in_time == GB
    assert late == LEAST * GB


def test_a_ramp_is_followed():
    toy = steady(1.2, wanted=lambda t: min(1.0, (t + 1) / 20)).run(DAY)
    assert sum(toy.injected) == pytest.approx(sum(min(1.0, (t + 1) / 20) for t in range(DAY)), rel=0.02)


@pytest.mark.parametrize("capacity", [0.1, 0.2, 0.3])
def test_a_new_link_is_not_given_what_its_lifetime_would_allow(capacity):
    toy = steady(capacity).run(12)
    assert max(toy.in_flight) <= 2.5
    assert toy.expired <= max(2.5 - 8 * capacity, 0), "what does not arrive of it in a lifetime"


def test_a_link_that_collapses_expires_what_was_under_way_and_is_not_filled_again():
    """FTS takes a link's transfers away: a twentieth of the target is left, and a good cycle now and then."""
    toy = Toy(lambda t: 1.2 if t < 20 or 0 <= t % 12 < 0.5 else 0.05).run(DAY)
    assert toy.expired_part < 0.06


def test_what_expired_was_late_though_nothing_is_late_any_more():
    """All that was on its way for long has expired: what is under way now is young."""
    recent = (Past(WORTH, WORTH // 20, WORTH),) * 3
    young = replace(SEEN, past=(*recent, Past(WORTH, WORTH // 20, WORTH, expired=WORTH)), oldest=T / 2)
    assert decide(Memory(completion=T), young).delivered == pytest.approx(0.05 * GB)
    fresh = replace(young, past=(*recent, recent[0]))
    assert decide(Memory(completion=T), fresh).delivered == GB


@pytest.mark.parametrize("short_of_work", [{0}, {1}, {0, 1}, set()])
def test_a_link_that_was_short_of_work_in_either_of_two_cycles_is_not_measured_by_them(short_of_work):
    """Little arrived since little was under way: one stuck file that expires says nothing of the rest."""
    had = [WORTH // 10 if cycle in short_of_work else WORTH for cycle in range(2)]
    past = tuple(Past(WORTH, WORTH // 10, in_flight, expired=GB) for in_flight in (WORTH, WORTH, *had))
    delivered = decide(Memory(), replace(SEEN, past=past)).delivered
    assert delivered == pytest.approx(GB if short_of_work else GB / 10)


def test_one_good_cycle_does_not_make_a_slow_link_a_fast_one():
    slow, good = Past(WORTH, WORTH // 20, WORTH), Past(WORTH, WORTH, WORTH)
    seen = replace(SEEN, past=(slow, slow, slow, good))
    known = Memory(completion=T, delivered=0.05 * GB)
    assert decide(known, seen).delivered == pytest.approx(1.05 * 0.05 * GB)
    assert decide(known, replace(seen, past=(slow, slow, good, good))).delivered == GB


def test_the_window_does_not_follow_the_queue_of_a_link_that_makes_up_for_an_outage():
    """It moves all that is due and a little more: what it is given on top makes a queue, and no latency."""
    toy = Toy(lambda t: 0.0 if 20 <= t < 28 else 1.05).run(60)
    assert max(toy.in_flight[30:]) < 1.5


def test_what_a_link_is_given_on_top_is_neither_latency_nor_success_of_the_bias():
    catching_up = replace(
        SEEN, past=(Past(WORTH, 3 * WORTH // 2, WORTH),) * 4, completion=3 * T, in_flight=WORTH // 2
    )
    known = Memory(completion=T)
    usual = decide(known, catching_up).memory
    assert usual.completion == 3 * T
    assert usual.bias < 0
    owing = decide(known, replace(catching_up, catches_up=True)).memory
    assert (owing.completion, owing.bias) == (T, 0)


def test_nothing_is_added_to_what_is_late():
    """It takes longer than usual, and more is in flight than arrives in that time: as much goes out as arrived."""
    slow = replace(SEEN, past=(Past(WORTH, WORTH // 4, WORTH),) * 4, in_flight=WORTH, oldest=3 * T)
    known = Memory(completion=T)
    assert decide(known, slow).allowed == WORTH // 4
    assert decide(known, replace(slow, oldest=2 * T)).allowed > WORTH // 2, "as long as usual"
    assert decide(known, replace(slow, in_flight=WORTH // 2)).allowed > WORTH // 2, "one that is tried again"


def test_a_link_that_becomes_slower_and_faster_again():
    toy = Toy(lambda t: 0.4 if 30 <= t < 60 else 1.2).run(DAY)
    assert toy.expired_part < 0.02
    assert min(toy.moved[63:]) >= 0.9


# --------------------------------------------------------------------------- the law itself


def test_the_window_is_littles_law_with_a_cycle_and_the_age_on_top():
    decision = decide(Memory(), SEEN)
    assert decision.window == pytest.approx(WORTH * (1 + 1 + 0.2))
    assert decision.allowed == MOST * WORTH
    assert decide(Memory(), replace(SEEN, in_flight=2 * WORTH)).allowed == pytest.approx(0.2 * WORTH, abs=2)


def test_what_is_in_flight_arrives_within_its_lifetime():
    slow = replace(SEEN, past=(Past(WORTH, WORTH // 10, 3 * WORTH),) * 4, oldest=5 * T, in_flight=3 * WORTH)
    decision = decide(Memory(completion=T), slow)
    assert decision.window == pytest.approx(WORTH * 0.1 * 7.2, rel=0.001)
    assert decision.allowed == 0


def test_the_floor_is_given_to_an_empty_link():
    coarse = replace(SEEN, floor=20 * WORTH)
    assert decide(Memory(), coarse).allowed == 20 * WORTH
    assert decide(Memory(), replace(coarse, in_flight=20 * WORTH)).allowed == 0


def test_a_cycle_makes_up_half_of_its_due_and_what_is_beyond_two_cycles_worth_is_forgiven():
    books = {"account": Account(10 * WORTH, 15 * WORTH // 2), "decision": decide(Memory(), replace(SEEN, past=()))}
    made = plan(situation([demand(flow(), WORTH, **books)], items(*[10 * GB] * 500)))
    (row,) = made.decisions
    assert (row.want, row.cap, row.budget, row.forgiven) == tuple(int(n * WORTH) for n in (2.5, 1.5, 1.5, 0.5))


BACKLOG = [  # bytes in flight, of a window of 2.2 cycles' worth; a dataset, in cycles' worth; how many go out
    ("a full window", 2.2, 0.3, 0),
    ("less than half of a dataset is left of it", 2.1, 0.3, 0),
    ("half of one is", 2.0, 0.3, 1),
    ("one that is more than a cycle may give", 0.2, 4, 1),
    ("one of which less than half fits", 0.3, 4, 0),
    ("the same, and the link is empty", 0, 9, 1),
]


@pytest.mark.parametrize(("why", "in_flight", "size", "count"), BACKLOG, ids=[row[0] for row in BACKLOG])
def test_what_waits_in_the_debt_for_a_dataset_does_not_let_it_out_on_a_full_link(why, in_flight, size, count):
    decision = decide(Memory(), replace(SEEN, in_flight=int(in_flight * WORTH)))
    books = {"coming": decision.signals.in_flight, "decision": decision, "before": None}
    owes = demand(flow(), WORTH, account=Account(9 * WORTH), **books)
    made = plan(situation([owes], items(*[int(size * WORTH)] * 20)))
    assert len(made.injections) == count
    (row,) = made.decisions
    assert count or (row.held is not None and row.held.hold is Hold.BACKLOG)


@pytest.mark.parametrize(("size", "count"), [(0.5, 1), (0.6, 0)])
def test_a_dataset_goes_out_only_if_all_of_it_arrives_within_its_lifetime(size, count):
    """At a tenth of the target 0.86 cycles' worth do, 0.3 are in flight, and half of both fits into the window."""
    slow = replace(SEEN, past=(Past(WORTH, WORTH // 10, WORTH),) * 4, in_flight=3 * WORTH // 10)
    decision = decide(Memory(completion=T, delivered=WORTH / T.total_seconds() / 10), slow)
    assert decision.room > 0.3 * WORTH
    owes = demand(flow(), WORTH, account=Account(9 * WORTH), coming=slow.in_flight, decision=decision, before=None)
    made = plan(situation([owes], items(*[int(size * WORTH)] * 20)))
    assert len(made.injections) == count


PROBES = [(0.01, 0.1), (0.12, 0.12), (0.3, 0.3), (4, 4)]  # a dataset, and what goes out, in cycles' worth


@pytest.mark.parametrize(("size", "probe"), PROBES)
@pytest.mark.parametrize("coming", [0, 8])
def test_a_link_that_fails_gets_its_probe_however_coarse_it_is(size, probe, coming):
    """Also while what has failed for good is on its way until it expires: else the hold would never end."""
    decision = decide(Memory(delivered=GB / 50), replace(SEEN, past=()))
    owes = {"account": Account(4 * WORTH), "coming": coming * WORTH, "failed": 1.0, "decision": decision}
    acts = flow(control=Control(Mode.ACT))
    made = plan(situation([demand(acts, WORTH, **owes)], items(*[int(size * WORTH)] * 200)))
    assert sum(injection.item.bytes for injection in made.injections) == pytest.approx(probe * WORTH)


def test_missing_signals_are_named_and_done_without():
    blind = replace(SEEN, completion=None, age=None, oldest=None)
    assert decide(Memory(), blind).window == 8 * WORTH, "the lifetime alone"
    new = decide(Memory(), replace(blind, past=()))
    assert new.signals.missing == ("completion", "age", "delivered")
    assert new.window == pytest.approx(2 * WORTH), "of a link of which nothing is known"
    assert SEEN.missing == ()


KEYS = [FlowKey("day", Link("A", name)) for name in "BCDEF"]


@given(
    st.dictionaries(
        st.sampled_from(KEYS),
        st.builds(
            LinkShare,
            due=st.integers(0, 10**6),
            asked=st.integers(0, 10**6),
            debt=st.integers(-(10**6), 10**6),
            priority=st.integers(1, 5),
            left=st.integers(0, 10**6),
            written_off=st.integers(0, 10**6),
            held=st.booleans(),
        ),
    )
)
def test_what_is_redistributed_keeps_the_sum_and_every_bound(links):
    added, left = redistributed(links)
    assert sum(added.values()) == sum(left.values())
    assert all(size <= links[key].left for key, size in left.items())
    forgiven = {key: links[key].forgiven_of(size) for key, size in left.items()}
    off = sum(added.values()) - sum(forgiven.values())
    assert 0 <= off <= sum(min(part.left, part.written_off) for part in links.values())
    for key, size in forgiven.items():
        assert 0 <= size <= min(links[key].left, max(links[key].debt, 0))
    for key, size in added.items():
        part = links[key]
        assert size == 0 or (not part.held and part.asked + max(part.debt, 0) + size <= MOST * part.due)
    assert not {key for key, size in added.items() if size} & {key for key, size in forgiven.items() if size}


def test_what_was_made_up_or_is_owed_from_long_ago_is_not_left_to_others():
    """The link gave nine of ten and owes seven: one is left; another has given all and owes only three of them."""
    one, other, taker = KEYS[:3]
    links = {one: LinkShare(10, 10, 7, 3, left=1, held=True), taker: LinkShare(100, 100, 0, 3)}
    assert redistributed(links) == ({taker: 1}, {one: 1})
    links = {other: LinkShare(10, 10, 3, 3, left=10, held=True), taker: LinkShare(100, 100, 0, 3)}
    assert redistributed(links) == ({taker: 3}, {other: 3})


def test_what_was_written_off_goes_to_others_and_is_not_forgiven_again():
    """The link was short of ten: it owes three of them, and six were written off, so that one was made up."""
    one, taker = KEYS[:2]
    links = {
        one: LinkShare(10, 10, 3, 3, left=10, written_off=6, held=True),
        taker: LinkShare(100, 100, 0, 3),
    }
    assert redistributed(links) == ({taker: 9}, {one: 9})
    assert links[one].forgiven_of(9) == 3


@given(
    st.builds(
        Signals,
        target=st.floats(1, 1e12),
        length=st.just(T),
        lifetime=st.timedeltas(T, 100 * T),
        in_flight=st.integers(0, 10**17),
        past=st.lists(st.builds(Past, *[st.integers(0, 10**16)] * 3), max_size=4),
        completion=st.none() | st.timedeltas(timedelta(0), 100 * T),
        age=st.none() | st.timedeltas(timedelta(0), 100 * T),
        oldest=st.none() | st.timedeltas(timedelta(0), 100 * T),
        floor=st.integers(0, 10**15),
        limited=st.booleans(),
    ),
    st.floats(LOWEST, HIGHEST),
)
def test_whatever_the_signals_say_bounds_are_kept(seen, bias):
    decision = decide(Memory(bias), seen)
    worth = seen.target * T.total_seconds()
    assert 0 <= decision.allowed <= max(MOST * worth, seen.floor)
    assert decision.allowed <= max(decision.window - seen.in_flight, 0) + 1
    assert LOWEST <= decision.memory.bias <= HIGHEST
    assert decision.window >= seen.floor - 1
