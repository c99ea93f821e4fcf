"""The gate of control: what has room goes out, what arrives makes room, and a restart changes nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic_core import to_json

from dc_inject.control.law import FIRST, LONG, ROUNDS
from dc_inject.control.windows import FINE, NAME, SPARE, subject_of
from dc_inject.model import Control, FlowKey, Held, Hold, Limits, Link, Mode
from dc_inject.model.ports import Observation, Status
from dc_inject.planning.release import CALLS
from tests.control.small import DUE, FILES, GB, LENGTH, MOMENT, ROUND, Small
from tests.core.builders import NO_LIMITS

AB, AC, DB = (FlowKey("test", Link(*ends)) for ends in ("AB", "AC", "DB"))
Make = Callable[..., Small]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Small] = []

    def one(*keys: FlowKey, mode: Mode = Mode.ACT, name: str = "one", **more: object) -> Small:
        made.append(Small(tmp_path / name, [key.link for key in keys or (AB,)], mode, **more))
        made[-1].plan()
        return made[-1]

    yield one
    for small in made:
        small.ledger.close()


def went_out(answers: list[Held | None]) -> int:
    return answers.count(None)


def settled(one: Small, *keys: FlowKey, rounds: int = 4 * ROUNDS) -> None:
    """Let links carry what they are due for a while, each file within two rounds."""
    for number in range(rounds):
        for key in keys or (AB,):
            one.ask(key, DUE // ROUNDS // FILES)
        one.look(dict.fromkeys(keys or (AB,), DUE // ROUNDS))
        if number % ROUNDS == ROUNDS - 1:
            one.plan()


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


def test_a_storage_that_is_held_lets_out_for_all_its_links_together(make: Make) -> None:
    one = make(AB, AC)
    settled(one, AB, AC)
    one.ask(AB, 2)
    one.ask(AC, 1)
    state = replace(one.storage("from A"), window=35.0, decided=one.now.timestamp(), refused=0.0)
    one.ledger.record_signals([(NAME, "from A", to_json(state).decode(), "")], one.now)
    one.restart()
    assert went_out(one.ask(AC)) == 1
    (held,) = one.ask(AB)
    assert held is not None
    assert (held.numbers["storage"], held.numbers["window"]) == ("from A", 35 * GB)
    assert held.numbers["in_flight"] == pytest.approx(40 * GB, rel=0.01)  # as if it went on arriving


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


def test_a_few_files_of_a_dataset_do_not_show_how_long_files_take(make: Make) -> None:
    """The first may have been under way for no longer than a moment, for somebody else."""
    one = make()
    one.ask(AB, 1)
    one.look({AB: 1})
    assert one.link(AB).slow is None
    one.look({AB: 2})
    assert one.link(AB).slow is not None


def test_an_observation_of_a_link_whose_state_cannot_be_read_is_dropped(make: Make) -> None:
    one = make()
    one.ask(AB, 1)
    before = {key: one.ledger.entry(key) for key in one.progress}
    one.governor.observed(before, [Observation(key, Status.MOVING) for key in before], one.now)
    (subject,) = (s.subject for s in one.ledger.signals(NAME) if s.subject.startswith("link"))
    one.ledger.signal(NAME, subject, '["old"]', one.now)
    one.restart()
    one.governor.turn(one.now)
    assert one.plan()[AB].window["window"] == 0


# --------------------------------------------------------------------------- restarts


def test_what_was_released_counts_before_it_is_seen_also_after_a_restart(make: Make) -> None:
    one = make()
    one.ask(AB, 9)
    one.restart()
    one.governor.turn(one.now)
    one.plan()
    assert went_out(one.ask(AB)) == 0


@pytest.mark.parametrize("is_new", [True, False])
def test_what_was_released_before_a_plan_counts_once_after_a_restart(make: Make, is_new: bool) -> None:
    """The plan keeps what is known of its link, and the entries tell of what went out since it was seen."""
    one = make()
    if not is_new:
        settled(one)
    one.ask(AB, 2)
    one.plan()
    told = []
    for _ in range(2):
        (held,) = one.ask(AB, 1, files=50 * DUE)
        assert held is not None
        told.append(held.numbers)
        one.restart()
    assert told[0] == told[1]


@pytest.mark.parametrize("seed", range(3))
def test_a_governor_made_after_each_look_decides_as_one_that_lived(make: Make, seed: int) -> None:
    """Also across a time without looks, a standstill, and a storage that is held."""
    both = [make(AB, AC, DB, name=name) for name in ("lives", "restarts")]
    dice = random.Random(seed)
    out = 0
    for number in range(8 * ROUNDS):
        carries = 0.3 if 15 <= number < 25 else 1.0
        wanted = {key: dice.randrange(5) for key in (AB, AC, DB)}
        comes = {key: int(carries * dice.randrange(2 * DUE // ROUNDS)) for key in wanted}
        after = 6 * ROUND if number == 30 else ROUND
        answers = [{key: one.ask(key, count) for key, count in wanted.items()} for one in both]
        assert answers[0] == answers[1]
        if number % 3 == 0:
            assert both[0].plan() == both[1].plan()
            both[1].restart()
        out += sum(went_out(one) for one in answers[0].values())
        for one in both:
            one.look(comes if number not in range(32, 38) else {}, after, restarts=one is both[1])
        both[1].restart()
        if number % ROUNDS == ROUNDS - 1:
            plans = [one.plan() for one in both]
            assert plans[0] == plans[1]
    for key in (AB, AC, DB):
        assert both[0].link(key) == both[1].link(key)
    assert both[0].ledger.decisions() == both[1].ledger.decisions()
    assert out > 100


def test_what_went_out_just_after_a_look_counts_after_a_restart(make: Make) -> None:
    """The turn and the call are at one time."""
    one = make()
    settled(one)
    one.now -= MOMENT
    one.governor.turn(one.now)
    one.ask(AB, 3)
    (held,) = one.ask(AB, 1, files=50 * DUE)
    one.restart()
    assert one.ask(AB, 1, files=50 * DUE) == [held]


def test_what_a_storage_and_its_links_have_become_is_known_after_a_restart(make: Make) -> None:
    """It has been given up, so its links are freed; and something had to wait for it."""
    one = make(AB, AC)
    settled(one, AB, AC)
    for key in (AB, AC):
        one.ask(key, 2)
    now = one.now.timestamp()
    held = replace(one.storage("from A"), window=35.0, floor=40.0, decided=0.0, refused=0.0)
    one.ledger.record_signals([(NAME, "from A", to_json(held).decode(), "")], one.now)
    one.restart()
    one.ask(AB, 9)
    assert one.storage("from A").refused == now
    late = replace(one.link(AC), ratios=[(99.0, 9.0)])
    one.ledger.record_signals([(NAME, subject_of(AC), to_json(late).decode(), "")], one.now)
    one.restart()
    one.progress = {key: done for key, done in one.progress.items() if one.ledger.entry(key).injection.flow == AB}
    one.look({}, after=9 * ROUND)  # of AB alone
    assert one.storage("from A").window is None
    freed = [one.link(key).freed for key in (AB, AC)]
    assert min(freed) > now
    one.restart()
    assert [one.link(key).freed for key in (AB, AC)] == freed


@pytest.mark.parametrize(
    "name", ["nonsense", "5", '["a"]', '[1, "A", "B", "rucio"]', '["t", "A", "B", []]', "[" * 99999]
)
def test_a_state_with_a_name_that_cannot_be_read_is_left_alone(
    make: Make, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = make()
    one.ledger.record_signals([(NAME, f"link {name}", to_json(one.link(AB)).decode(), "")], one.now)
    one.restart()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize(
    "value",
    [
        '{"target": "1"}', '{"arrived": [{"at": "1", "files": 1, "took": 1, "size": 1}]}',
        '{"fresh": [{"at": NaN, "files": 1, "took": 1, "size": 1}]}', '{"arrived": [[1, 1, 1, 1]]}',
    ],
)  # fmt: skip
def test_a_state_with_values_of_another_kind_is_learnt_again(make: Make, value: str) -> None:
    one = make()
    subject = subject_of(AB)
    one.ledger.record_signals([(NAME, subject, value, "")], one.now)
    one.restart()
    one.plan()
    assert one.link(AB).target == DUE * GB / LENGTH.total_seconds()
    assert one.link(AB).arrived == one.link(AB).fresh == []


@pytest.mark.parametrize("became", ["act", "unreadable"])
def test_a_link_that_control_finds_with_files_on_their_way_begins_as_a_new_one(make: Make, became: str) -> None:
    one = make(mode=Mode.OFF if became == "act" else Mode.ACT)
    one.ask(AB, 2)
    if became == "act":
        one.flows = [replace(one.flows[0], control=Control(Mode.ACT))]
    else:
        one.ledger.record_signals([(NAME, subject_of(AB), "[]", "")], one.now)
        one.restart()
    one.plan()
    one.look({AB: 1})
    assert one.link(AB).window == pytest.approx(FIRST * DUE)


@pytest.mark.parametrize("value", ["{", "[1, 2]", "null", '{"target": NaN, "window": NaN, "moved": NaN}'])
def test_a_state_that_cannot_be_read_is_learnt_again(
    make: Make, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = make()
    one.ask(AB, 9)
    for signal in one.ledger.signals(NAME):
        one.ledger.record_signals([(NAME, signal.subject, value, "")], one.now)
    one.restart()
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert len(caplog.records) == len(one.ledger.signals(NAME))
    one.plan()
    one.look()
    assert one.link(AB).files == 30
    assert went_out(one.ask(AB)) == 0


# --------------------------------------------------------------------------- silence


@pytest.mark.parametrize("arrives", [1, 20])
def test_a_time_of_silence_makes_nothing_late(make: Make, arrives: int) -> None:
    """Neither what arrives after it, nor what is still on its way."""
    one = make(AB, DB)
    settled(one, AB, DB)
    for key in (AB, DB):
        one.ask(key, 2)
    one.look()
    one.look({AB: arrives, DB: arrives}, after=10 * LONG * ROUND)
    state = one.link(AB)
    assert max(ratio for _, ratio in state.ratios) < 2
    assert max(arrival.took for arrival in state.arrived) < 2 * ROUND.total_seconds()


@pytest.mark.parametrize("both", [False, True])
def test_time_in_which_nothing_arrives_anywhere_is_no_latency(make: Make, both: bool) -> None:
    """On a single link it may be the link's own."""
    keys = (AB, DB) if both else (AB,)
    one = make(AB, DB)
    settled(one, AB, DB)
    for key in keys:
        one.ask(key, 2)
    stands = 6 * ROUNDS
    for _ in range(stands):
        one.look({} if both else {DB: 0})
    one.look(dict.fromkeys(keys, 20))
    late = [arrival for arrival in one.link(AB).arrived if arrival.at == (one.now - MOMENT).timestamp()]
    assert late
    assert all((arrival.took < LONG * ROUND.total_seconds()) is both for arrival in late)
    assert (max(ratio for _, ratio in one.link(AB).ratios or [(0, 1.0)]) > LONG) is not both


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
