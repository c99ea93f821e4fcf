"""Room at disks where control acts: nothing fills one to its last percent, and links without it are left alone."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

from dc_inject.model import Control, Hold, Mode, RseSpec, Site
from dc_inject.planning import plan
from tests.engine.world import CYCLE, GB, START, TB, campaign, flow, items, world

DUE = 112_500_000_000  # a cycle's at 1 Gb/s
ACT, ADVISE, OFF = Control(Mode.ACT), Control(Mode.ADVISE), Control()


def filling(tmp_path, control: Control, lag: timedelta):
    """A destination of 1 TB at which everything stays for a while after its end."""
    link = flow("A", "B", 2.0, control=control, lifetime_min=2 * CYCLE, lifetime_max=2 * CYCLE)
    sites = (Site("S", rses={"B": RseSpec(space=TB)}),)
    one = world(
        tmp_path, campaign([link], sites=sites), {"A": items("A", 500, 10 * GB)}, deletion_lag=lag,
        space={"B": 2 * TB},
    )  # fmt: skip
    most = []
    for _ in range(14):
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
    kept_out = [row.held for row in one.ledger.rows() if row.injected < 0.9 * row.due]
    assert {held.hold for held in kept_out if held} == {Hold.DELETION_LAG}
    assert None not in kept_out


def test_a_plan_may_use_98_percent_of_a_space_where_control_acts(tmp_path, monkeypatch):
    links = [flow("A", "B", 0.1, control=ACT), flow("A", "C", 0.1, control=ADVISE), flow("A", "D", 0.1)]
    one = world(
        tmp_path, campaign(links), {"A": items("A", 9, 10 * GB)}, space={"B": TB, "C": TB, "D": TB},
    )  # fmt: skip
    planned, decide = [], plan.plan
    monkeypatch.setattr(plan, "plan", lambda situation: planned.append(situation) or decide(situation))
    one.run(cycles=1)
    guarded = {name: place.guarded for name, place in planned[0].destinations.items()}
    assert (guarded["B"].space, guarded["B"].free) == (0.98 * TB, 0.98 * TB)
    assert (guarded["C"], guarded["D"]) == (None, None)


def test_rooms_leave_links_alone_that_are_not_controlled(tmp_path):
    """They share a full destination with one that is, and get at least what they got without control."""

    def given(folder: str, control: Control) -> list[list[int]]:
        (tmp_path / folder).mkdir()
        times = {"lifetime_min": 2 * CYCLE, "lifetime_max": 2 * CYCLE}
        links = [flow("A", "B", 0.2, control=control, **times), flow("C", "B", 0.8, **times)]
        sites = (Site("S", rses={"B": RseSpec(space=TB)}),)
        one = world(
            tmp_path / folder, campaign(links, sites=sites), {name: items(name, 250, 10 * GB) for name in "AC"},
            deletion_lag=timedelta(hours=4), space={"B": 2 * TB},
        )  # fmt: skip
        one.run(cycles=24)
        return [[row.injected for row in one.ledger.rows() if row.key.link.source == source] for source in "AC"]

    (acting, beside), (free, without) = given("act", ACT), given("off", OFF)
    assert 0 in without
    assert [more >= less for more, less in zip(beside, without, strict=True)] == [True] * 24
    filled = without.index(0)
    assert sum(acting[:filled]) < sum(free[:filled])


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


def test_a_word_of_free_space_that_is_old_does_not_fill_a_disk(tmp_path):
    """Rucio tells it once an hour: what has arrived since is still free in its words."""
    link = flow("A", "B", 2.0, control=ACT, lifetime_min=3 * CYCLE, lifetime_max=3 * CYCLE)
    one = world(
        tmp_path, campaign([link]), {"A": items("A", 200, 10 * GB)}, deletion_lag=8 * CYCLE, space={"B": TB},
    )  # fmt: skip
    look, told = one.backend.sites, {}

    def sites(rses):
        hour = int((one.clock.now() - START) / timedelta(hours=1))
        told.setdefault(hour, look(rses)["B"].free)
        return {name: replace(fact, free=told[hour] if name == "B" else None) for name, fact in look(rses).items()}

    one.backend.sites = sites
    most = []
    for _ in range(8):
        one.run(cycles=1)
        there = sum(rule.moved for rule in one.backend.rules.values() if rule.deleted is None)
        most.append(there)
    assert 0.9 * TB <= max(most) <= 0.98 * TB


def test_a_word_of_free_space_that_is_old_does_not_make_a_space_look_small(tmp_path):
    """What was deleted since is neither ours any more nor free in it: the space is that of when it was told."""
    link = flow("A", "B", 2.0, control=ACT, lifetime_min=3 * CYCLE, lifetime_max=3 * CYCLE)
    one = world(tmp_path, campaign([link]), {"A": items("A", 500, 10 * GB)}, space={"B": TB})
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
