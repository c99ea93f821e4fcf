"""What control keeps: a restart changes nothing, and what cannot be read is learnt again."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from dc_inject.control.law import FIRST, ROUNDS
from dc_inject.control.windows import NAME, Windows, subject_of, text_of
from dc_inject.model import Control, Entry, Mode, State
from dc_inject.model.ports import Observation, Status
from tests.control.small import AB, AC, DB, DUE, GB, LENGTH, MOMENT, ROUND, Make, settled, went_out
from tests.engine.world import campaign, flow, items, opened, world


class Killed(BaseException):
    """The process is gone: nothing may catch it."""


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
    one.ledger.record_signals([(NAME, "from A", text_of("from A", held), "")], one.now)
    one.restart()
    one.ask(AB, 9)
    assert one.storage("from A").refused == now
    late = replace(one.link(AC), ratios=[(99.0, 9.0)])
    never = replace(one.storage("from A"), moved=0.0)  # or it would be taken to stand
    rows = [(NAME, subject_of(AC), text_of("link", late), ""), (NAME, "from A", text_of("from A", never), "")]
    one.ledger.record_signals(rows, one.now)
    one.restart()
    one.progress = {key: done for key, done in one.progress.items() if one.ledger.entry(key).injection.flow == AB}
    one.look({}, after=9 * ROUND)  # of AB alone
    assert one.storage("from A").window is None
    freed = [one.link(key).freed for key in (AB, AC)]
    assert min(freed) > now
    one.restart()
    assert [one.link(key).freed for key in (AB, AC)] == freed


def test_an_answer_writes_the_links_that_it_is_about(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers come in parts: writing all links with each would take as many times longer as there are parts."""
    one = make(AB, AC)
    one.ask(AB)
    one.ask(AC)
    written: list[list[str]] = []
    monkeypatch.setattr(one.ledger, "record_signals", lambda rows, _now: written.append([row[1] for row in rows]))
    for entry in one.ledger.entries(State.LIVE):
        key = entry.injection.key
        one.governor.observed({key: entry}, [Observation(key, Status.MOVING, files_done=1)], one.now)
    assert sorted(written) == [[subject_of(AB)], [subject_of(AC)]]


def test_a_kill_between_an_observation_and_its_windows_keeps_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the files would be known as arrived, and never count as an arrival of their link."""
    known: dict[str, Entry] = {}

    def killed(_: Windows, before: Mapping[str, Entry], observations: Sequence[Observation], __: datetime) -> None:
        if any(seen.files_done for seen in observations):
            known.update(before)
            raise Killed

    monkeypatch.setattr(Windows, "observed", killed)
    links = [replace(flow("A", "B", 1.0), control=Control(Mode.ACT))]
    one = world(tmp_path, campaign(links), {"A": items("A", 100, 10 * GB)})
    with pytest.raises(Killed):
        one.run(cycles=3)
    one.ledger.close()
    assert known
    assert {key: opened(one.path).entry(key) for key in known} == known


@pytest.mark.parametrize(
    "name", ["nonsense", "5", '["a"]', '[1, "A", "B", "rucio"]', '["t", "A", "B", []]', "[" * 99999]
)
def test_a_state_with_a_name_that_cannot_be_read_is_left_alone(
    make: Make, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = make()
    one.ledger.record_signals([(NAME, f"link {name}", text_of("link", one.link(AB)), "")], one.now)
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
