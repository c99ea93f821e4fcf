"""The gate of control: what has room goes out, what arrives makes room, and a restart changes nothing."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta

import pytest

from dc_inject.control.law import FIRST, ROUNDS, StorageState, highest
from dc_inject.control.windows import FINE, NAME, SPARE, subject_of, text_of
from dc_inject.model import FlowKey, Hold, Limits, Link, Mode
from dc_inject.model.ports import Observation, Status
from dc_inject.planning.release import CALLS
from tests.control.small import (
    AB,
    AC,
    DB,
    DUE,
    FILES,
    GB,
    LENGTH,
    MOMENT,
    ROUND,
    START,
    Make,
    Small,
    settled,
    went_out,
)
from tests.core.builders import NO_LIMITS

# --------------------------------------------------------------------------- the gate


def test_an_empty_link_takes_anything_and_then_what_its_window_has_room_for(make: Make) -> None:
    one = make()
    assert went_out(one.ask(AB, 1, files=50 * DUE)) == 1
    (held,) = one.ask(AB)
    assert held is not None
    assert held.hold is Hold.BACKLOG
    assert held.numbers == {"window": FIRST * DUE * GB, "in_flight": 50 * DUE * GB}
    one.look({AB: 50 * DUE})
    assert one.link(AB).window < 99 * DUE
    assert went_out(one.ask(AB, 1, files=500 * DUE)) == 1


def test_datasets_go_out_until_a_quarter_of_the_next_has_no_room(make: Make) -> None:
    one = make()
    answers = one.ask(AB, 9)
    assert went_out(answers) == 3  # 20 + 10 / 4 files are in a window of 25
    assert answers[-1] is not None


def test_what_may_go_out_at_a_moment_counts_at_that_moment(make: Make) -> None:
    """Before anything has been asked of the service."""
    one = make()
    one.ask(AB)
    entries = [one.ledger.entry(injection.key) for injection in one.intents(AB, 5)]
    one.governor.turn(one.now)
    answers = [one.governor.withheld(entry, one.now) for entry in entries]
    assert went_out(answers) == 2
    one.governor.turn(one.now)
    assert one.governor.withheld(entries[0], one.now) is None, "those did not go out"


def test_what_is_seen_to_be_done_makes_room(make: Make) -> None:
    one = make()
    one.ask(AB, 9)
    one.look({}, after=ROUND / 2)
    assert went_out(one.ask(AB)) == 0
    one.look({AB: 20}, after=ROUND / 2)
    assert went_out(one.ask(AB)) == 1


def test_windows_are_set_once_for_answers_that_come_in_parts(make: Make) -> None:
    one = make()
    settled(one)
    one.ask(AB, 2)
    one.look({AB: 5})
    known = one.link(AB).renewed
    for after, renewed in ((ROUND / 10, known), (ROUND / 4, known + ROUND.total_seconds() * 0.35)):
        one.look({AB: 1}, after=after - MOMENT)
        assert one.link(AB).renewed == pytest.approx(renewed, abs=1)


def test_after_a_clock_leapt_ahead_and_back_a_link_is_known_to_carry_what_it_carries(make: Make) -> None:
    """Also one that began meanwhile. All times that are kept have the type of what is forgotten then."""
    one = make()
    for days in (1, -1):
        one.now += days * timedelta(days=1)
        one.plan()
        settled(one, rounds=2)
    settled(one, rounds=4)
    state = one.link(AB)
    assert highest(state.best) == pytest.approx(DUE / LENGTH.total_seconds(), rel=0.01)
    for known in (state, one.storage("to B")):
        numbers = {one.name: getattr(known, one.name) for one in fields(known) if one.type == "float"}
        assert {name for name, value in numbers.items() if value > START.timestamp() / 2} == {
            "size"
        } & numbers.keys()


def test_a_service_that_does_not_answer_makes_no_room(make: Make) -> None:
    one = make()
    one.ask(AB, 9)
    before = {key: one.ledger.entry(key) for key in one.progress}
    one.look()
    known = one.link(AB)
    one.now += ROUND
    one.governor.observed(before, [Observation(key, Status.UNKNOWN) for key in before], one.now)
    one.governor.turn(one.now)
    assert one.link(AB) == known
    assert went_out(one.ask(AB)) == 0


def test_a_link_that_is_not_planned_any_more_is_not_held(make: Make) -> None:
    """As in a menu that was changed: what is left of its intents goes out."""
    one = make(AB, DB)
    one.ask(DB, 9)
    assert went_out(one.ask(DB)) == 0
    del one.flows[1]
    one.plan()
    assert went_out(one.ask(DB)) == 1


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.ADVISE])
def test_nothing_is_withheld_where_control_does_not_act(make: Make, mode: Mode) -> None:
    one = make(mode=mode)
    assert went_out(one.ask(AB, 20)) == 20
    one.look()
    decided = one.plan()[AB]
    assert (decided.releasable, dict(decided.window)) == (None, {})
    holds = [decision.hold for decision in one.ledger.decisions()]
    assert holds == ([] if mode is Mode.OFF else [Hold.BACKLOG])


def full_storage(one: Small) -> StorageState:
    """Let files of two links be in flight; return their source with a window that is full."""
    settled(one, AB, AC)
    one.ask(AB, 2)
    one.ask(AC, 1)
    return replace(one.storage("from A"), window=35.0, decided=one.now.timestamp(), refused=0.0)


def test_a_storage_that_is_held_lets_out_for_all_its_links_together(make: Make) -> None:
    one = make(AB, AC)
    state = full_storage(one)
    one.ledger.record_signals([(NAME, "from A", text_of("from A", state), "")], one.now)
    one.restart()
    assert went_out(one.ask(AC)) == 1
    (held,) = one.ask(AB)
    assert held is not None
    assert (held.numbers["storage"], held.numbers["window"]) == ("from A", 35 * GB)
    assert held.numbers["in_flight"] == pytest.approx(40 * GB, rel=0.01)  # as if it went on arriving


def test_the_window_of_a_storage_is_the_same_for_all_its_links_and_named_in_the_next_plan(make: Make) -> None:
    """In bytes, though files of the links differ in size; and though there is nothing in flight on one of them."""
    one = make(AB, AC)
    state = full_storage(one)
    large = replace(one.link(AC), size=3 * GB)
    states = [("from A", state), (subject_of(AC), large)]
    one.ledger.record_signals([(NAME, name, text_of(name, state), "") for name, state in states], one.now)
    one.restart()
    one.ask(AC)
    (ab,), (ac,) = one.ask(AB), one.ask(AC)
    assert ab is not None
    assert ac is not None
    assert ab.numbers["window"] == ac.numbers["window"]
    assert 35 * GB < ab.numbers["window"] < 3 * 35 * GB
    one.look({AB: 999, AC: 999}, after=MOMENT)  # there is room again
    of = [dict(decided.window) for decided in one.plan().values()]
    assert [numbers.get("storage") for numbers in of] == ["from A", "from A"]
    assert len({(numbers["window"], numbers["in_flight"]) for numbers in of}) == 1


def test_what_a_service_did_not_take_is_not_in_flight(make: Make) -> None:
    one = make()
    keys = [entry.injection for entry in one.ledger.entries()]
    assert not keys
    one.ask(AB, 9)
    assert went_out(one.ask(AB)) == 0
    for key in one.progress:
        one.governor.returned(one.ledger.entry(key))
    one.governor.turn(one.now)
    assert went_out(one.ask(AB)) == 1


def test_what_ended_without_an_observation_leaves_the_window_with_the_next_plan(make: Make) -> None:
    """As `dc-inject end` does, between two runs."""
    one = make()
    settled(one)
    one.ask(AB, 99)
    assert went_out(one.ask(AB)) == 0
    one.ledger.observe([Observation(key, Status.ABSENT) for key in one.progress], one.now)
    one.progress.clear()
    one.plan()
    assert went_out(one.ask(AB)) == 1


def test_what_others_had_brought_does_not_show_how_long_files_take(make: Make) -> None:
    one = make()
    one.ask(AB, 1)
    (key,) = one.progress
    before = {key: one.ledger.entry(key)}
    one.now += ROUND
    seen = Observation(key, Status.COMPLETE, files_done=FILES, moved=0, present=FILES * GB, exact=True)
    one.ledger.observe([seen], one.now)
    one.governor.observed(before, [seen], one.now)
    one.governor.turn(one.now)
    state = one.link(AB)
    assert (state.slow, state.rate) == (None, 0.0)


@pytest.mark.parametrize("status", [Status.MOVING, Status.COMPLETE])
def test_files_that_were_there_are_no_arrivals_though_a_service_counts_them(make: Make, status: Status) -> None:
    one = make()
    one.ask(AB, 1)
    (key,) = one.progress
    before = {key: one.ledger.entry(key)}
    one.now += ROUND
    done = FILES if status is Status.COMPLETE else FILES // 2
    seen = Observation(key, status, files_done=done, moved=0, present=done * GB, exact=True)
    one.ledger.observe([seen], one.now)
    one.governor.observed(before, [seen], one.now)
    one.governor.turn(one.now)
    assert (one.link(AB).slow, one.link(AB).rate) == (None, 0.0)


def test_an_observation_of_a_link_whose_state_cannot_be_read_is_dropped(make: Make) -> None:
    one = make()
    one.ask(AB, 1)
    before = {key: one.ledger.entry(key) for key in one.progress}
    one.governor.observed(before, [Observation(key, Status.MOVING) for key in before], one.now)
    (subject,) = (s.subject for s in one.ledger.signals(NAME) if s.subject.startswith("link"))
    one.ledger.signal(NAME, subject, '["old"]', one.now)
    one.ledger.signal(NAME, "service fts", "{}", one.now)
    one.restart()
    one.governor.turn(one.now)
    assert one.plan()[AB].window["window"] == 0


# --------------------------------------------------------------------------- the plan


def test_a_link_that_had_to_wait_is_given_what_has_room_and_what_arrives_in_a_cycle(make: Make) -> None:
    one = make()
    settled(one)
    assert one.plan()[AB].releasable is None
    one.ask(AB, 99)
    one.look({AB: DUE // ROUNDS})
    decided, state = one.plan()[AB], one.link(AB)
    room = max(state.window - state.files, 0) + max(DUE, 900 * max(rate for _, rate in state.best))
    assert decided.releasable == pytest.approx(room * GB, abs=GB)  # what arrives in a moment
    assert {"window", "in_flight", "arrives"} == set(decided.window)
    last = one.ledger.decisions()[-1]
    assert (last.hold, last.mode, last.numbers) == (Hold.BACKLOG, "act", dict(decided.window))
    assert last.target == DUE * GB / LENGTH.total_seconds()


def test_a_new_link_that_had_to_wait_is_given_what_it_is_due_while_it_is_not_slow(make: Make) -> None:
    """It waited for its first window, and what it has carried so far says little."""
    one = make()
    one.ask(AB, 99)
    one.look({AB: 4})
    decided = one.plan()[AB]
    assert decided.releasable is not None
    assert decided.releasable >= DUE * GB


def test_datasets_are_small_parts_of_a_window_if_the_rules_an_hour_suffice(make: Make) -> None:
    one = make(grain=1.0)
    assert one.plan()[AB].flow.grain == 1.0, "while it is not known how long files take"
    settled(one)
    window = one.link(AB).window
    assert one.plan()[AB].flow.grain == pytest.approx(FINE * window / DUE)
    few = replace(NO_LIMITS, rules_per_hour=10)
    assert one.plan(few)[AB].flow.grain == pytest.approx(4 / (SPARE * 10))
    assert one.plan(Limits(rules_per_hour=1))[AB].flow.grain == 1.0


def test_datasets_are_not_so_small_that_the_calls_of_a_cycle_do_not_suffice(make: Make) -> None:
    """Those of links without control would go out in fewer moments, too."""
    keys = [FlowKey("test", Link("A", f"D{number}")) for number in range(30)]
    one = make(*keys, grain=1.0)
    settled(one, *keys, rounds=ROUNDS)
    assert one.plan()[keys[0]].flow.grain == pytest.approx(30 / CALLS)
