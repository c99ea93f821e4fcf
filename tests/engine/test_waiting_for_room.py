"""Where a disk is nearly full and control acts, a plan counts on deletions, and releases wait for them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.backends.sim import InlineExecutor
from dc_inject.engine.spaces import REMEMBERED
from dc_inject.model import Control, Hold, Mode, State
from tests.engine import world as worlds
from tests.engine.world import CYCLE, GB, START, TB, campaign, flow, items, world

ACT = Control(Mode.ACT)


def on_disk(one) -> int:
    """Bytes that have arrived and were not deleted yet."""
    return sum(rule.moved for rule in one.backend.rules.values() if rule.deleted is None)


def nearly_full(tmp_path, datasets=300, mode=Mode.ACT, space=1350, size=30, **more):
    """Rules of an hour, deleted a quarter of an hour later: 1.2 TB at 2 Gb/s, on a disk of 1.35 TB."""
    link = flow("A", "B", 2.0, control=Control(mode), lifetime_min=4 * CYCLE, lifetime_max=4 * CYCLE)
    return world(
        tmp_path, campaign([link], **more), {"A": items("A", datasets, size * GB)}, deletion_lag=CYCLE,
        space={"B": space * GB}, may_end=False,
    )  # fmt: skip


def test_a_space_that_is_just_enough_is_used_by_counting_on_what_is_deleted(tmp_path):
    one, most = nearly_full(tmp_path), 0
    for _ in range(14):
        one.run(cycles=1)
        most = max(most, on_disk(one))
    rows = one.ledger.rows()[8:]
    assert sum(row.injected for row in rows) >= 0.98 * sum(row.due for row in rows)
    assert most <= 0.98 * 1350 * GB


def test_what_was_complete_is_asked_for_as_soon_as_it_has_ended(tmp_path):
    """Elsewhere a cycle later: what is deleted unseen would be counted as if it were there."""
    one = nearly_full(tmp_path)
    one.backend.deletion_lag = timedelta(minutes=1)
    one.backend.space = {"B": 1100 * GB}
    one.run(cycles=16)
    gone = one.ledger.entries(State.GONE, since=START + 5 * CYCLE)
    assert len(gone) > 50
    assert [e for e in gone if e.gone_at > e.ended_at + 2 / 5 * CYCLE] == []


def test_what_counts_on_deletions_that_do_not_come_waits_for_room_and_is_withdrawn(tmp_path):
    one = nearly_full(tmp_path, datasets=600, size=15)
    one.run(cycles=12)
    one.backend.deletion_lag = timedelta(days=2)
    for _ in range(3):
        one.run(cycles=1)
        assert on_disk(one) <= 0.98 * 1350 * GB
    held = [row.held for row in one.ledger.rows()[12:] if row.held]
    assert held[0].hold is Hold.DESTINATION_FULL  # what does not go might just be slow
    assert held[-1].hold is Hold.DELETION_LAG
    assert any("withdrawn" in reason.numbers for reason in held)
    assert one.ledger.rows()[-1].injected == 0


@pytest.mark.parametrize("mode", [Mode.ACT, Mode.ADVISE])
@pytest.mark.parametrize(("space", "hold"), [(1350, Hold.DELETION_LAG), (900, Hold.DESTINATION_FULL)])
def test_a_disk_that_fills_since_nothing_is_deleted_is_blamed_on_deletions_unless_it_is_too_small(
    tmp_path, mode, space, hold
):
    """1.2 TB are needed if what ends is gone a quarter of an hour later, so 900 GB are too small in any case."""
    one = nearly_full(tmp_path, mode=mode, space=space)
    one.backend.deletion_lag = timedelta(days=2)
    one.run(cycles=9)
    held = of_last(one).held
    assert (of_last(one).injected, held.hold) == (0, hold)
    assert ("message" in held.numbers) == (hold is Hold.DESTINATION_FULL)
    assert "lag" not in held.numbers  # nobody has measured it: nothing is gone yet


@pytest.mark.parametrize("length", [CYCLE, CYCLE / 3])
def test_an_old_word_of_free_space_counts_with_what_had_arrived_then(tmp_path, monkeypatch, length):
    """Told an hour long, three quarters of it late, with its time: what went and came since changes no space."""
    monkeypatch.setattr(worlds, "CYCLE", length)
    one = nearly_full(tmp_path, cycle=length)
    look, told = one.backend.sites, {}

    def sites(rses):
        facts, now = look(rses), one.clock.now()
        told.setdefault((now - START) // timedelta(hours=1), (facts["B"].free, now))
        free, at = told[max((now - 3 * CYCLE - START) // timedelta(hours=1), 0)]
        return facts | {"B": replace(facts["B"], free=free, free_at=at)}

    one.backend.sites = sites
    for _ in range(10 * (CYCLE // length)):
        one.run(cycles=1)
        (kept,) = [json.loads(signal.value) for signal in one.ledger.signals() if signal.name == "spaces"]
        assert min(kept["seen"].values()) == pytest.approx(1350 * GB, rel=0.05)
    assert on_disk(one) <= 0.98 * 1350 * GB


def told(one, free: int | None, age: timedelta = timedelta(0)) -> None:
    """Let the storage tell so much of free space from now on, as it was so long ago; None: it tells nothing."""
    look, at = type(one.backend).sites, one.clock.now() - age
    one.backend.sites = lambda rses: {
        name: replace(fact, free=free, free_at=at) if name == "B" else fact
        for name, fact in look(one.backend, rses).items()
    }


def of_last(one):
    """The last row."""
    return one.ledger.rows()[-1]


@pytest.mark.parametrize("times", [1, 3])
def test_a_space_that_was_small_is_forgotten_although_what_is_told_then_never_changes(tmp_path, times):
    """Rucio tells the same as long as a storage does: only the latest word counts for longer than five cycles."""
    one = nearly_full(tmp_path)
    one.run(cycles=4)
    for number in range(times):
        told(one, number)
        one.run(cycles=1)
        assert of_last(one).held.hold is Hold.DESTINATION_FULL
    told(one, 10 * TB)
    one.run(cycles=REMEMBERED)
    assert of_last(one).injected > 0
    assert of_last(one).held is None or of_last(one).held.hold is Hold.BACKLOG


def test_a_space_that_is_not_told_any_more_is_not_known(tmp_path):
    """It was full when it was told last. When it is told again, it counts as it is then."""
    one = nearly_full(tmp_path)
    one.run(cycles=4)
    told(one, 0)
    one.run(cycles=2)
    assert of_last(one).injected == 0
    told(one, None)
    one.run(cycles=2)
    assert of_last(one).held is None
    assert of_last(one).injected > 0
    told(one, 0)
    one.run(cycles=1)
    assert of_last(one).held.hold is Hold.DESTINATION_FULL


def test_what_is_held_by_a_space_says_how_old_the_word_of_it_is(tmp_path):
    one = nearly_full(tmp_path)
    one.run(cycles=4)
    told(one, 0, 2 * CYCLE)
    one.run(cycles=3)
    held = of_last(one).held
    assert held.hold is Hold.DESTINATION_FULL
    assert held.numbers["age"] == 4 * CYCLE.total_seconds()


def test_what_waits_for_room_on_an_old_word_goes_out_with_a_new_one(tmp_path):
    """It waits till the end of its cycle, and says for what; the next cycle reads the room anew."""
    one = nearly_full(tmp_path, datasets=600, size=15)
    one.run(cycles=12)
    one.backend.deletion_lag = timedelta(days=2)
    one.run(cycles=1)
    waited = of_last(one).held
    assert waited.hold is Hold.DESTINATION_FULL
    assert {"withdrawn", "not_sent", "space", "resident", "age"} <= set(waited.numbers)
    one.backend.deletion_lag = CYCLE
    told(one, 10 * TB)
    one.run(cycles=REMEMBERED)
    assert of_last(one).injected >= of_last(one).due
    assert of_last(one).held is None


def test_what_waits_for_room_leads_although_a_small_pool_took_more(tmp_path):
    """The pool leaves less than half, of which nothing goes out: more datasets would be no help."""
    one = nearly_full(tmp_path, datasets=17)
    one.run(cycles=12)
    assert of_last(one).held.hold is Hold.POOL_DRY
    one.backend.deletion_lag = timedelta(days=2)
    told(one, 20 * GB, CYCLE)
    one.run(cycles=1)
    waited = of_last(one).held
    assert (of_last(one).injected, waited.hold) == (0, Hold.DESTINATION_FULL)
    assert 2 * waited.numbers["withdrawn"] < of_last(one).due


def test_what_waited_for_room_does_not_say_that_there_is_no_time_for_others(tmp_path):
    """A link that begins then needs more rules than were made in any cycle before: nobody is short of time."""
    times = {"lifetime_min": 4 * CYCLE, "lifetime_max": 4 * CYCLE}
    late = flow("A", "C", 6.0, start=START + 12 * CYCLE, **times)
    full = [flow(source, "B", 1.0, control=ACT, **times) for source in "AD"]
    one = world(
        tmp_path, campaign([*full, late]), {source: items(source, 600, 15 * GB) for source in "AD"},
        deletion_lag=CYCLE, space={"B": 1350 * GB}, may_end=False,
    )  # fmt: skip
    one.run(cycles=12)
    one.backend.deletion_lag = timedelta(days=2)
    one.run(cycles=3)
    rows = [row for row in one.ledger.rows() if row.cycle.start >= START + 12 * CYCLE]
    waited = [row for row in rows if row.held and "not_sent" in row.held.numbers]
    assert {row.held.hold for row in waited} == {Hold.DESTINATION_FULL, Hold.DELETION_LAG}
    assert [row.held for row in rows if row.key == late.key and row.held] == []


class LateAnswers(InlineExecutor):
    """An executor that hands back some answers a quarter of a cycle late: those after which somebody says so."""

    late = False

    def __init__(self, clock):
        super().__init__(clock)
        self._clock, self._kept = clock, []

    def submit(self, tag, task, lane=""):
        super().submit(tag, task, lane)
        if type(self).late:
            type(self).late = False
            self._kept.append((self._clock.now() + CYCLE / 4, self._finished.pop()))

    def wait(self, until):
        over = [kept for kept in self._kept if kept[0] <= self._clock.now()]
        self._kept = [kept for kept in self._kept if kept not in over]
        self._finished.extend(done for _, done in over)
        return super().wait(min([until, *(at for at, _ in self._kept)]))


def test_looking_often_where_room_is_waited_for_keeps_nobody_from_looking_elsewhere(tmp_path, monkeypatch):
    """Answers of one destination come so late that one is awaited when every other cycle turns."""
    times = {"lifetime_min": 4 * CYCLE, "lifetime_max": 4 * CYCLE}
    links = [flow("A", "B", 2.0, control=ACT, **times), flow("A", "C", 0.1, **times)]
    one = world(
        tmp_path, campaign(links), {"A": items("A", 300, 30 * GB)}, deletion_lag=CYCLE, space={"B": 1350 * GB},
        may_end=False,
    )  # fmt: skip
    remove = one.backend.remove

    def slow(entries):
        LateAnswers.late = any(entry.injection.link.destination == "B" for entry in entries)
        return remove(entries)

    one.backend.remove = slow
    monkeypatch.setattr(worlds, "InlineExecutor", LateAnswers)
    one.run(cycles=16)
    stays = [
        entry
        for entry in one.ledger.entries(State.ENDED)
        if entry.injection.link.destination == "C" and entry.ended_at <= one.clock.now() - 2 * CYCLE
    ]
    assert stays == []


def test_a_disk_that_a_cycle_fills_is_filled_again_as_soon_as_it_is_emptied(tmp_path):
    """It takes little more than a cycle gives: what is seen to go makes room within the cycle."""
    link, space = flow("A", "B", 2.0, control=ACT, lifetime_min=4 * CYCLE, lifetime_max=8 * CYCLE), 250 * GB
    one = world(
        tmp_path, campaign([link]), {"A": items("A", 300, 10 * GB)}, deletion_lag=timedelta(minutes=5),
        space={"B": space},
    )  # fmt: skip
    there = []
    for _ in range(12):
        one.run(cycles=1)
        there.append(one.ledger.resident().get("B", 0))
    rows = one.ledger.rows()
    assert rows[-1].due > 0.8 * space
    assert max(row.injected for row in rows[:4]) < 0.5 * rows[0].due, "nothing is known of how long rules stay"
    assert [row.cycle for row in rows[4:] if row.injected < 0.95 * row.due] == []
    assert max(there) <= 0.98 * space
