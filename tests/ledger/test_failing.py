"""What fails through Rucio is told by what becomes stuck; it holds links with control or without."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.ledger import failing
from dc_inject.model import Control, Hold, Mode, losses
from dc_inject.model.ports import Status
from tests.apps.rebuild.test_rebuilding import rebuild
from tests.engine.world import CYCLE, GB, START, campaign, flow, items, world

DUE = 112_500_000_000  # a cycle's at 1 Gb/s
ACT = Control(Mode.ACT)


def stuck(one, fails: dict[str, bool], of_ten: int = 10) -> None:
    """Let Rucio give up what it is given while it `fails`, for good: so many of ten datasets."""
    look, given_up = one.backend.observe, {}

    def given(entry, seen):
        if seen.status is Status.ABSENT:
            return seen
        if not given_up.setdefault(entry.injection.key, fails["now"] and len(given_up) % 10 < of_ten):
            return seen
        files = entry.injection.item.files
        return seen._replace(status=Status.STUCK, files_stuck=files, files_done=0, moved=0, exact=False)

    def observe(entries, **more):
        known = {entry.injection.key: entry for entry in entries}
        return [given(known[seen.key], seen) for seen in look(entries, **more)]

    one.backend.observe = observe


@pytest.mark.parametrize("moved", [5 * GB // 3, 4 * GB])
def test_of_a_rule_that_is_partly_stuck_no_byte_stays_in_flight(tmp_path, moved):
    """It would be late until the rule ends, and let nothing out meanwhile; the stuck files may be small ones."""
    link, idle = flow("A", "B", 1.0, control=ACT), flow("C", "D", 1.0, control=ACT)
    one = world(tmp_path, campaign([link, idle]), {"A": items("A", 9, 5 * GB, files=3)})
    look = one.backend.observe

    def observe(entries, **more):
        part = {"status": Status.STUCK, "files_stuck": 2, "files_done": 1, "moved": moved, "exact": False}
        return [seen._replace(**part) for seen in look(entries, **more)]

    one.backend.observe = observe
    one.run(cycles=2)
    assert failing.stuck_bytes(one.ledger) == {link.key: one.ledger.accounts()[link.key].coming}
    assert one.ledger.accounts()[link.key].coming > 0


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.ACT])
def test_a_link_through_rucio_fails_by_what_became_stuck_of_late_and_lets_go_while_it_still_is(tmp_path, mode):
    """Rucio tries again after hours, or never before the rule expires: what is stuck tells of the past."""
    link = flow("A", "B", 1.0, control=Control(mode), lifetime_min=40 * CYCLE, lifetime_max=40 * CYCLE)
    part = {"now": True}
    one = world(tmp_path, campaign([link]), {"A": items("A", 450, 10 * GB)})
    stuck(one, part)
    one.run(cycles=4)
    rows = one.ledger.rows()
    (held, *_) = [row.held for row in rows if row.held and row.held.hold is Hold.FAILING]
    assert held.numbers["failed"] == 1.0
    assert rows[-1].budget <= 0.15 * DUE
    part["now"] = False
    one.run(cycles=6)
    last = one.ledger.rows()[-1]
    assert failing.stuck_bytes(one.ledger)[link.key] > DUE
    assert last.held is None or last.held.hold not in {Hold.FAILING, Hold.BACKLOG}
    assert last.injected >= 0.8 * DUE


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.ACT])
def test_a_link_that_works_again_is_let_go_by_what_its_probe_brought(tmp_path, mode):
    """What failed two cycles ago would hold it for two cycles more."""
    link = flow("A", "B", 1.0, control=Control(mode), lifetime_min=40 * CYCLE, lifetime_max=40 * CYCLE)
    part = {"now": False}
    one = world(tmp_path, campaign([link]), {"A": items("A", 450, 10 * GB)})
    stuck(one, part)
    one.run(cycles=6)
    part["now"] = True
    one.run(cycles=4)
    part["now"] = False
    one.run(cycles=4)
    held = [row.held is not None and row.held.hold is Hold.FAILING for row in one.ledger.rows()]
    assert held[:10] == [False] * 8 + [True] * 2
    assert held[12:] == [False] * 2


@pytest.mark.parametrize(
    ("mode", "stops"), [(Mode.OFF, False), (Mode.ACT, True)], ids=["off-rebuilt", "act-stopped"]
)
def test_what_is_stuck_since_long_ago_has_not_failed_while_nobody_looked(tmp_path, mode, stops):
    """The ledger is lost, or no injector runs for five cycles."""
    link = flow("A", "B", 1.0, control=Control(mode), lifetime_min=60 * CYCLE, lifetime_max=60 * CYCLE)
    part = {"now": True}
    one = world(tmp_path, campaign([link]), {"A": items("A", 450, 10 * GB)})
    stuck(one, part)
    one.run(cycles=3)
    part["now"] = False
    one.run(cycles=9)
    if stops:
        one.clock.advance(one.clock.now() + 5 * CYCLE)
    else:
        rebuild(one)
    again = len(one.ledger.rows())
    one.run(cycles=3)
    assert failing.stuck_bytes(one.ledger)[link.key] > 0
    rows = one.ledger.rows()[again:]
    assert not [row for row in rows if row.held is not None and row.held.hold is Hold.FAILING]
    assert min(row.injected for row in rows[-3:]) > 0.9 * DUE


@pytest.mark.parametrize(("mode", "slow"), [(Mode.OFF, 0), (Mode.ACT, 10)])
def test_a_link_goes_on_failing_when_what_is_stuck_expires(tmp_path, mode, slow):
    """Seven of ten datasets fail; a plan is made some seconds after the observations that it rests on."""
    link = flow("A", "B", 1.0, control=Control(mode), lifetime_min=8 * CYCLE, lifetime_max=8 * CYCLE)
    one = world(tmp_path, campaign([link]), {"A": items("A", 1000, 2 * GB)})
    stuck(one, {"now": True}, of_ten=7)
    sites = one.backend.sites

    def slowly(rses):
        one.clock.advance(one.clock.now() + timedelta(seconds=slow))
        return sites(rses)

    one.backend.sites = slowly
    one.run(cycles=20)
    held = [row.held is not None and row.held.hold is Hold.FAILING for row in one.ledger.rows()]
    assert held == [False, *[True] * 19]


@pytest.mark.parametrize(("files", "held"), [(9, True), (10, False)])
def test_a_probe_shows_that_a_link_works_only_with_ten_files(tmp_path, files, held):
    """The cycle after four in which all fails gives one dataset, which arrives."""
    link = flow("A", "B", 1.0, control=ACT, lifetime_min=40 * CYCLE, lifetime_max=40 * CYCLE)
    part = {"now": True}
    one = world(tmp_path, campaign([link]), {"A": items("A", 60, 10 * GB, files=files)})
    stuck(one, part)
    one.run(cycles=4)
    part["now"] = False
    one.run(cycles=2)
    probe, after = one.ledger.rows()[-2:]
    assert probe.injected == 10 * GB
    assert (after.held is not None and after.held.hold is Hold.FAILING) == held


def test_bytes_of_many_stuck_files_are_counted_exactly(tmp_path):
    """50 TB in 400,000 files: their product is more than SQLite counts in whole numbers."""
    link = flow("A", "B", 100.0, control=ACT, lifetime_min=4 * CYCLE, lifetime_max=4 * CYCLE)
    large = items("A", 3, 50 * 10**12 + 7, files=400_000)
    one = world(tmp_path, campaign([link]), {"A": large})
    look = one.backend.observe
    part = {"status": Status.STUCK, "files_stuck": 399_999, "files_done": 0, "moved": 0, "exact": False}

    def observe(entries, **more):
        return [s if s.status is Status.ABSENT else s._replace(**part) for s in look(entries, **more)]

    one.backend.observe = observe
    one.run(cycles=9)
    expected = sum(losses.sum_losses(entry).not_moved_failed for entry in one.ledger.entries())
    assert one.ledger.not_moved_failed() == {link.key: expected}
    assert {type(size) for ended in one.ledger.expired(START, START).values() for _, size in ended} == {int}


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.ACT])
def test_what_became_stuck_in_the_night_does_not_hold_a_link_in_the_morning(tmp_path, mode):
    """One file of many, given up while nothing was planned: that was not in the cycles that count."""
    more = {"control": Control(mode), "lifetime_min": 60 * CYCLE, "lifetime_max": 60 * CYCLE}
    first = flow("A", "B", 1.0, end=START + 8 * CYCLE, **more)
    second = replace(first, start=START + 56 * CYCLE, end=START + 64 * CYCLE)
    days = [campaign([day]).menus[0] for day in (first, second)]
    whole = replace(campaign([first]), menus=(days[0], replace(days[1], name="day2.yaml")))
    one = world(tmp_path, whole, {"A": items("A", 200, 10 * GB)})
    look, chosen = one.backend.observe, dict[int, str]()

    def observe(entries, **more):
        """Of one dataset of the second cycle a file is stuck soon, of one of the eighth cycle at night."""
        for entry in entries:
            chosen.setdefault((entry.injection.cycle.start - START) // CYCLE, entry.injection.key)
        late = one.clock.now() >= START + 10 * CYCLE
        part = {"files_done": 49, "moved": 49 * 10 * GB // 50, "exact": False}
        states = {chosen.get(1): Status.STUCK, chosen.get(7): Status.STUCK if late else Status.MOVING}
        return [
            seen
            if (status := states.get(seen.key)) is None or seen.status is Status.ABSENT
            else seen._replace(status=status, files_stuck=status is Status.STUCK, **part)
            for seen in look(entries, **more)
        ]

    one.backend.observe = observe
    one.run(cycles=60)
    assert failing.stuck_bytes(one.ledger)[first.key] > 0
    morning = [row for row in one.ledger.rows() if row.cycle.start >= second.start]
    assert len(morning) == 4
    assert not [row for row in morning if row.held is not None and row.held.hold is Hold.FAILING]
