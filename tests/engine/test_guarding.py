"""Guards of controlled links act, say why, and let go without flapping; advice only says it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from dc_inject.engine import control_records
from dc_inject.model import Control, Hold, Limits, Mode, RseSpec, Site
from dc_inject.model.errors import Temporary
from dc_inject.model.ports import LinkQueue
from dc_inject.planning import plan
from tests.engine.world import CYCLE, GB, START, TB, campaign, file_flow, flow, items, source_files, world

DUE = 112_500_000_000  # a cycle's at 1 Gb/s
ACT, ADVISE, OFF = Control(Mode.ACT), Control(Mode.ADVISE), Control()


def holds(one) -> list[str]:
    """The hold of each cycle in which nothing was given."""
    return [row.held.hold.value if row.held and not row.budget else "-" for row in one.ledger.rows()]


def kept(one) -> dict[str, Any]:
    """What is kept of the only controlled link."""
    (signal,) = [signal for signal in one.ledger.signals() if signal.name == control_records.NAME]
    return json.loads(signal.value)


def queue(one, waiting: int, rate: float = 1e8, at: datetime | None = None) -> None:
    """Let FTS tell of a queue, as of now unless told otherwise; nothing else has to change for that."""
    one.backend.queues = lambda links: {
        link: LinkQueue(waiting, 20, rate, GB, at or one.clock.now()) for link in links
    }


def flapping(tmp_path, control: Control):
    """A destination that its site closes in every other cycle."""
    one = world(tmp_path, campaign([flow("A", "B", 1.0, control=control)]), {"A": items("A", 900, 5 * GB)})
    look = one.backend.sites

    def sites(rses):
        closed = int((one.clock.now() - START) / CYCLE) in {2, 4, 6}
        (one.backend.unwritable.add if closed else one.backend.unwritable.discard)("B")
        return look(rses)

    one.backend.sites = sites
    one.run(cycles=12)
    return one


def test_a_brake_that_flaps_holds_until_it_was_off_for_two_cycles(tmp_path):
    closed = "destination-unavailable"
    one = flapping(tmp_path, ACT)
    assert holds(one)[:9] == ["-", "-", *[closed] * 6, "-"]
    held = one.ledger.rows()[3].held
    assert held is not None
    assert dict(held.numbers) == {
        "rse": "B", "signal": "availability_write", "reading": 0.0, "until": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize("control", [OFF, ADVISE])
def test_without_acting_it_holds_as_it_is_read(tmp_path, control):
    closed = "destination-unavailable"
    assert holds(flapping(tmp_path, control))[:8] == ["-", "-", closed, "-", closed, "-", closed, "-"]


def test_advice_says_which_guard_would_hold(tmp_path):
    one = world(tmp_path, campaign([flow("A", "B", 1.0, control=ADVISE)]), {"A": items("A", 900, 5 * GB)})
    one.backend.unwritable.add("B")
    one.run(cycles=2)
    one.backend.unwritable.clear()
    one.run(cycles=1)
    (advice,) = control_records.last_decisions(one.ledger)
    assert (advice["mode"], advice["hold"]) == ("advise", "destination-unavailable")
    assert one.ledger.rows()[-1].injected > 0


def test_a_link_that_fails_gets_its_rate_back_when_much_less_fails_or_less_for_long(tmp_path):
    """Between half and a quarter it stays as it was for an hour; then it is taken as it is."""
    part = {"failing": 0.0}
    link = file_flow("A", "B", 1.0, control=ACT)
    one = world(
        tmp_path, campaign([link]), source_files("A", 6000), name="fts",
        failing=lambda file: int(file.name[-4:]) % 5 < 5 * part["failing"],
    )  # fmt: skip
    for failing, cycles in ((0.0, 3), (0.8, 4), (0.4, 12), (0.8, 3), (0.0, 4)):
        part["failing"] = failing
        one.run(cycles=cycles)
    rows = one.ledger.rows()
    probes = [row.held is not None and row.held.hold is Hold.FAILING for row in rows]
    assert probes[5:13] == [True] * 8  # at 80 %, then an hour below half
    assert max(row.budget for row in rows[5:13]) <= 0.11 * DUE
    assert not any(probes[13:20])  # although 40 % goes on failing
    assert min(row.budget for row in rows[13:20]) >= DUE
    assert any(probes[20:23])
    assert not any(probes[23:])


def filling(tmp_path, control: Control, lag: timedelta):
    """A destination of 1 TB at which everything stays for a while after its end."""
    link = flow("A", "B", 2.0, control=control, lifetime_min=2 * CYCLE, lifetime_max=2 * CYCLE)
    sites = (Site("S", rses={"B": RseSpec(space=TB)}),)
    one = world(
        tmp_path, campaign([link], sites=sites), {"A": items("A", 1500, 5 * GB)}, deletion_lag=lag,
        space={"B": 2 * TB},
    )  # fmt: skip
    most = []
    for _ in range(24):
        one.run(cycles=1)
        most.append(one.ledger.resident().get("B", 0))
    return one, max(most)


def test_a_space_is_never_filled_to_its_last_percent(tmp_path):
    (tmp_path / "off").mkdir()
    (tmp_path / "act").mkdir()
    _, without = filling(tmp_path / "off", OFF, timedelta(hours=1))
    one, most = filling(tmp_path / "act", ACT, timedelta(hours=1))
    assert without > 0.98 * TB
    assert most <= 0.98 * TB
    kept_out = [row.held for row in one.ledger.rows() if row.due and not row.injected]
    assert [held.hold for held in kept_out if held] == [Hold.DELETION_LAG]  # lets none of the rest out


def test_a_destination_that_does_not_delete_gets_what_it_deletes(tmp_path):
    """A quarter of what is there should be gone: more would only fill it."""
    link = flow("A", "B", 1.0, control=ACT, lifetime_min=2 * CYCLE, lifetime_max=2 * CYCLE)
    one = world(
        tmp_path, campaign([link]), {"A": items("A", 1500, 5 * GB)}, deletion_lag=timedelta(hours=4),
    )  # fmt: skip
    one.run(cycles=40)
    held = [row for row in one.ledger.rows() if row.held and row.held.hold is Hold.DELETION_LAG]
    assert held
    assert held[0].held.numbers["reading"] >= 0.25
    assert {"bytes", "resident", "until", "deleted"} <= set(held[0].held.numbers)
    assert [r for r in held if r.budget > r.held.numbers["deleted"] + DUE / 20] == []
    assert any(row.injected for row in one.ledger.rows() if row.cycle > held[0].cycle), "it lets go"


def test_late_deletions_hold_nothing_back_where_there_is_room(tmp_path):
    """A disk of 5 TB is nearly full when 4 TB of ours are there; then it gets what it deletes."""
    link = flow("A", "B", 1.0, control=ACT, lifetime_min=2 * CYCLE, lifetime_max=2 * CYCLE)
    there, held = [], []
    one = world(
        tmp_path, campaign([link], sites=(Site("S", rses={"B": RseSpec(space=5 * TB)}),)),
        {"A": items("A", 1500, 5 * GB)}, deletion_lag=timedelta(days=2), space={"B": 99 * TB},
    )  # fmt: skip
    for _ in range(48):
        one.run(cycles=1)
        there.append(one.ledger.resident()["B"])
        last = one.ledger.rows()[-1].held
        held.append(last is not None and last.hold is Hold.DELETION_LAG)
    assert not any(held[: sum(size < 3.8 * TB for size in there)])
    assert all(held[-8:])
    assert 3.9 * TB < max(there) <= 4.2 * TB


def test_a_destination_that_deletes_nothing_gets_nothing_however_coarse_its_datasets_are(tmp_path):
    """Each is what a cycle gives: the half that waits for it to go out must not let it out again and again."""
    link = flow("A", "B", 1.0, control=ACT, lifetime_min=2 * CYCLE, lifetime_max=2 * CYCLE)
    one = world(
        tmp_path, campaign([link]), {"A": items("A", 200, DUE)}, deletion_lag=timedelta(days=2),
    )  # fmt: skip
    one.run(cycles=20)
    rows = one.ledger.rows()
    held = [row for row in rows if row.held and row.held.hold is Hold.DELETION_LAG]
    assert len(held) >= 8
    assert sum(row.injected for row in rows if row.cycle > held[0].cycle) == 0


def test_guards_leave_links_alone_that_are_not_controlled(tmp_path):
    """They share a destination with one that is, and get what they got without control."""

    def given(folder: str, control: Control) -> list[int]:
        (tmp_path / folder).mkdir()
        times = {"lifetime_min": 2 * CYCLE, "lifetime_max": 2 * CYCLE}
        links = [flow("A", "B", 0.2, control=control, **times), flow("C", "B", 0.8, **times)]
        one = world(
            tmp_path / folder, campaign(links), {name: items(name, 1500, 5 * GB) for name in "AC"},
            deletion_lag=timedelta(hours=4),
        )  # fmt: skip
        one.run(cycles=24)
        assert (control is ACT) == any(
            row.held and row.held.hold is Hold.DELETION_LAG
            for row in one.ledger.rows()
            if row.key.link.source == "A"
        )
        return [row.injected for row in one.ledger.rows() if row.key.link.source == "C"]

    assert given("act", ACT) == given("off", OFF)


def test_the_least_space_is_that_of_the_last_cycles_however_often_they_were_planned(tmp_path, monkeypatch):
    """A cycle in which planning is tried again and again forgets nothing of those before."""
    link = flow("A", "B", 0.1, control=ACT)
    one = world(tmp_path, campaign([link]), {"A": items("A", 900, 5 * GB)}, space={"B": 10 * TB})
    one.run(cycles=1)
    one.backend.space = {"B": 20 * TB}

    tries, decide = [], plan.plan

    def fragile(situation):
        tries.append(situation)
        if len(tries) < 5:
            raise RuntimeError("a bug")
        return decide(situation)

    one.heard.forgiving = True
    monkeypatch.setattr(plan, "plan", fragile)
    one.run(cycles=1)
    assert len(tries) == 5
    (least,) = [json.loads(signal.value) for signal in one.ledger.signals() if signal.name == "spaces"]
    assert [round(space / TB) for space in least["seen"].values()] == [10, 20]


def test_deletions_that_nobody_can_have_seen_are_a_missing_signal(tmp_path, wording):
    """Rules of six hours: for as long nothing says how they are deleted."""
    link = flow("A", "B", 1.0, control=ACT, lifetime_min=6 * CYCLE, lifetime_max=6 * CYCLE)
    one = world(tmp_path, campaign([link]), {"A": items("A", 1500, 5 * GB)}, deletion_lag=CYCLE, may_end=False)
    known = {}
    for cycle in range(10):
        one.run(cycles=1)
        known[cycle] = next(s for s in one.ledger.signals() if s.name == "deletions")
    assert (known[3].value, known[3].subject) == (None, "B")
    wording(known[3].why)
    assert known[9].value == "known"
    assert known[0].value == "known", "nothing is there"


@pytest.mark.parametrize("control", [ACT, ADVISE])
def test_every_cycle_has_its_decisions_in_the_ledger(tmp_path, control):
    """What was done or advised, on which signals; also of guards that do not lead."""
    one = world(tmp_path, campaign([flow("A", "B", 1.0, control=control)]), {"A": items("A", 900, 5 * GB)})
    one.run(cycles=2)
    one.backend.unwritable.add("B")
    one.run(cycles=1)
    first, *_, last = one.ledger.decisions()
    assert [decision.cycle for decision in one.ledger.decisions()] == [row.cycle for row in one.ledger.rows()]
    assert (first.mode, first.hold, first.guards) == (control.mode.value, None, {})
    assert first.numbers["missing"] == "completion delivered"
    assert (last.hold, set(last.guards)) == (Hold.DESTINATION_UNAVAILABLE, {Hold.DESTINATION_UNAVAILABLE})
    assert {"in_flight", "window", "allowed", "delivered"} <= set(last.numbers)
    assert one.ledger.decisions(last.cycle.start) == (last,)


def test_a_decision_names_the_hold_of_its_row_and_so_does_status(tmp_path):
    """The plan may find a tighter limit than a guard, such as a space that is too small before it is full."""
    link = flow("A", "B", 2.0, control=ACT, lifetime_min=2 * CYCLE, lifetime_max=2 * CYCLE)
    one = world(
        tmp_path, campaign([link]), {"A": items("A", 1500, 5 * GB)}, deletion_lag=timedelta(hours=2),
        space={"B": TB // 2},
    )  # fmt: skip
    for cycles in (2, 8):
        one.run(cycles=cycles)
        (told,) = control_records.last_decisions(one.ledger)
        last = one.ledger.rows()[-1].held
        assert last is not None
        assert told["hold"] == last.hold.value
        assert ("until" in told["numbers"]) == (cycles == 8), "the numbers are those of its hold"
    rows = {row.cycle: row.held for row in one.ledger.rows()}
    named = [(made.hold, rows[made.cycle].hold) for made in one.ledger.decisions() if rows[made.cycle]]
    assert {Hold.DESTINATION_FULL, Hold.DELETION_LAG} == {hold for _, hold in named}
    assert [hold for hold, of_row in named if hold is not of_row] == []


def test_a_hold_that_is_not_controls_leaves_a_decision_as_it_is(tmp_path):
    one = world(
        tmp_path,
        campaign([flow("A", "B", 1.0, control=ACT)], limits=Limits(total=1e6)),
        {"A": items("A", 900, 5 * GB)},
    )
    one.run(cycles=2)
    assert {row.held.hold for row in one.ledger.rows() if row.held} == {Hold.CAMPAIGN_LIMIT}
    assert [made.hold for made in one.ledger.decisions()] == [None, None]


def test_what_is_engaged_is_known_after_a_restart(tmp_path):
    one = world(tmp_path, campaign([flow("A", "B", 1.0, control=ACT)]), {"A": items("A", 900, 5 * GB)})
    one.run(cycles=1)
    one.backend.unwritable.add("B")
    one.run(cycles=1)
    one.backend.unwritable.clear()
    one.run(cycles=1)
    one.run(cycles=1)
    assert holds(one) == ["-", "destination-unavailable", "destination-unavailable", "-"]


def test_a_restart_in_the_middle_of_a_planned_cycle_forgets_no_guard_and_no_floor(tmp_path):
    link = file_flow("A", "B", 1.0, control=ACT)
    one = world(tmp_path, campaign([link]), source_files("A", 3000), name="fts", speed=lambda _l: 1e9 / 8)
    queue(one, 400)  # 4000 of 7200 s
    one.run(cycles=3)
    before = kept(one)
    assert (set(before["guards"]), before["hold"], before["floor"]) == ({"fts-queue"}, "fts-queue", 22 * GB)
    queue(one, 220)  # between the bounds: only who was held stays so
    for _ in range(2):
        one.run(cycles=0.4)
        assert len(one.ledger.rows()) == 4
        assert (kept(one)["guards"], kept(one)["hold"]) == (before["guards"], "fts-queue")
    one.run(cycles=1)
    assert holds(one)[-2:] == ["fts-queue"] * 2


def test_a_cycle_without_a_plan_forgets_no_guard(tmp_path):
    link = file_flow("A", "B", 1.0, control=ACT)
    one = world(tmp_path, campaign([link]), source_files("A", 3000), name="fts", speed=lambda _l: 1e9 / 8)
    queue(one, 400)
    one.run(cycles=3)

    def fault(method, _subject):
        if method == "sites":
            raise Temporary("504")

    one.backend.fault = fault
    one.run(cycles=1)
    one.backend.fault = lambda _method, _subject: None
    queue(one, 220)
    one.run(cycles=1)
    assert holds(one)[2:] == ["fts-queue", "api-errors", "fts-queue"]


def test_links_that_are_not_controlled_are_left_as_they_are(tmp_path):
    both = [flow("A", "B", 1.0, control=ACT), replace(flow("A", "B", 1.0), scenario="other")]
    one = world(tmp_path, campaign(both), {"A": items("A", 900, 5 * GB)})
    one.run(cycles=3)
    assert [decision["scenario"] for decision in control_records.last_decisions(one.ledger)] == ["test"]


def test_a_word_of_free_space_that_is_old_does_not_fill_a_disk(tmp_path):
    """Rucio tells it once an hour: what has arrived since is still free in its words."""
    link = flow("A", "B", 2.0, control=ACT, lifetime_min=3 * CYCLE, lifetime_max=3 * CYCLE)
    one = world(
        tmp_path, campaign([link]), {"A": items("A", 1500, 5 * GB)}, deletion_lag=2 * CYCLE, space={"B": TB},
    )  # fmt: skip
    look, told = one.backend.sites, {}

    def sites(rses):
        hour = int((one.clock.now() - START) / timedelta(hours=1))
        told.setdefault(hour, look(rses)["B"].free)
        return {name: replace(fact, free=told[hour] if name == "B" else None) for name, fact in look(rses).items()}

    one.backend.sites = sites
    most = []
    for _ in range(24):
        one.run(cycles=1)
        there = sum(rule.moved for rule in one.backend.rules.values() if rule.deleted is None)
        most.append(there)
    assert max(most[6:]) <= 0.99 * TB


def test_a_word_of_free_space_that_is_old_does_not_make_a_space_look_small(tmp_path):
    """What was deleted since is neither ours any more nor free in it: the space is that of when it was told."""
    link = flow("A", "B", 2.0, control=ACT, lifetime_min=3 * CYCLE, lifetime_max=3 * CYCLE)
    one = world(tmp_path, campaign([link]), {"A": items("A", 1500, 5 * GB)}, space={"B": TB})
    one.run(cycles=7)
    look = one.backend.sites
    told = look(["B"])["B"].free
    one.backend.sites = lambda rses: {
        name: replace(fact, free=told if name == "B" else None) for name, fact in look(rses).items()
    }
    one.backend.unwritable.add("B")
    one.run(cycles=6)
    assert one.ledger.resident().get("B", 0) < 0.1 * TB
    (kept,) = [json.loads(signal.value) for signal in one.ledger.signals() if signal.name == "spaces"]
    assert min(kept["seen"].values()) >= 0.95 * TB


def test_bytes_are_late_after_a_lifetime_where_that_is_shorter_than_an_hour(tmp_path):
    """An hour is four lifetimes of these rules: nobody planned the space for that."""
    first = {}
    for name, lifetime in (("short", CYCLE), ("long", 12 * CYCLE)):
        (tmp_path / name).mkdir()
        link = flow("A", "B", 1.0, control=ACT, lifetime_min=lifetime, lifetime_max=lifetime)
        one = world(
            tmp_path / name, campaign([link]), {"A": items("A", 1500, 5 * GB)}, deletion_lag=timedelta(hours=9),
        )  # fmt: skip
        one.run(cycles=12)
        held = [int((row.cycle.start - START) / CYCLE) for row in one.ledger.rows()
                if row.held and row.held.hold is Hold.DELETION_LAG]  # fmt: skip
        first[name] = held[0]
    assert first["short"] + 2 <= first["long"] <= 8
