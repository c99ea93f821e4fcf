"""Killed at any step, a volume is still given once, second hops still follow, and pulses pause."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.ledger.check import check
from dc_inject.model import DatasetFilter, FileFilter, State
from dc_inject.model.goals import SecondHop, Volume
from dc_inject.model.shape import Point, Shape
from tests.engine.test_crashes import STEPS, Killed
from tests.engine.world import CYCLE, GB, START, campaign, file_flow, flow, items, opened, source_files, url, world


def killed_at(one, step, times):
    """Run to the end, but for deaths at each of some occurrences of a step."""
    count = [0]

    def kill():
        count[0] += 1
        if count[0] in times:
            raise Killed

    one.heard.at[step] = kill
    one.settings = replace(one.settings, drain=True)
    for _ in range(len(times) + 1):
        with contextlib.suppress(Killed):
            one.run()
        one.ledger.close()
        one.ledger = opened(one.path)
    assert count[0] >= min(times)
    assert {entry.state for entry in one.ledger.entries()} <= {State.GONE, State.WITHDRAWN, State.REFUSED}
    assert set(one.backend.rules) == {e.injection.key for e in one.ledger.entries() if e.accepted_at}
    one.ledger.close()
    assert not [found for found in check(one.ledger.path) if not found.note]
    one.ledger = opened(one.path)


@pytest.mark.parametrize("step", STEPS)
def test_a_volume_with_a_second_hop(tmp_path, step):
    first = flow("A", "B", 4, goal=Volume(600 * GB), lifetime_max=timedelta(hours=6))
    then = flow("B", "T", 4, datasets=DatasetFilter((), landed="test"), goal=SecondHop())
    one = world(tmp_path, campaign([first, then]), {"A": items("A", 20, 50 * GB)}, speed=lambda _link: 0.4e9)
    killed_at(one, step, {1, 3})
    moved = {key.link.destination: account.moved for key, account in one.ledger.accounts().items()}
    assert moved == {"B": 600 * GB, "T": 600 * GB}
    times = Counter((r.injection.item.name, r.injection.link) for r in one.backend.rules.values())
    assert set(times.values()) == {1}


@pytest.mark.parametrize("step", STEPS)
def test_a_volume_of_files(tmp_path, step):
    links = [file_flow("A", to, 0.8, goal=Volume(60 * GB)) for to in "BC"]
    one = world(tmp_path, campaign(links), source_files("A", 120), name="fts")
    killed_at(one, step, {1, 3})
    assert {account.moved for account in one.ledger.accounts().values()} == {60 * GB}
    times = Counter(file.name for r in one.backend.rules.values() for file in r.injection.item.members)
    assert (len(times), set(times.values())) == (120, {1})


@pytest.mark.parametrize("step", STEPS)
def test_files_with_a_second_hop(tmp_path, step):
    first = file_flow("A", "B", 0.8, goal=Volume(60 * GB), lifetime_max=timedelta(hours=6))
    then = file_flow("B", "T", 0.8, datasets=FileFilter(landed="test"), goal=SecondHop())
    made = campaign([first, then])
    one = world(tmp_path, made, source_files("A", 70), speed=lambda _link: 0.08e9, name="fts")
    killed_at(one, step, {1, 3})
    moved = {key.link.destination: account.moved for key, account in one.ledger.accounts().items()}
    assert moved == {url("B"): 60 * GB, url("T"): 60 * GB}
    times = Counter(
        (f.name, r.injection.link) for r in one.backend.rules.values() for f in r.injection.item.members
    )
    assert (len(times), set(times.values())) == (120, {1})


def test_a_pause_between_pulses_is_no_debt_and_no_hold(tmp_path):
    """The rate is what is due, cycle by cycle; nothing is made up for a pause, by nobody."""
    ends = (Point(timedelta(0), 1.0), Point(2 * CYCLE, 1.0), Point(2 * CYCLE, 0.0), Point(4 * CYCLE, 0.0))
    link = flow("A", "B", 4, shape=Shape(START, ends, 4 * CYCLE))
    one = world(tmp_path, campaign([link]), {"A": items("A", 200, 50 * GB)})
    one.run(cycles=8)
    rows = one.ledger.rows()
    assert [row.due // GB for row in rows] == [450, 450, 0, 0] * 2
    assert [row.injected // GB for row in rows] == [450, 450, 0, 0] * 2
    assert not any(row.held for row in rows)


def test_an_edited_shape_changes_no_past(tmp_path):
    """What was due stays, and the rest of the new shape follows from its own begin."""
    link, later = flow("A", "B", 4), 4 * CYCLE
    ramp = Shape(START, (Point(timedelta(0), 0.0), Point(later, 1.0)))
    shape = [None]
    one = world(tmp_path, lambda: campaign([replace(link, shape=shape[0])]), {"A": items("A", 200, 50 * GB)})
    one.run(cycles=2)
    shape[0] = ramp
    one.run(cycles=3)
    assert [round(row.due / GB, 2) for row in one.ledger.rows()] == [450, 450, 281.25, 393.75, 450]
