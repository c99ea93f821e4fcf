"""Clocks that jump: summer time in a menu's zone, and a machine's clock that is put off and back while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from dc_inject.backends.sim import SimClock
from dc_inject.engine.context import Settings
from dc_inject.engine.menus import Menus
from dc_inject.ledger.check import check
from dc_inject.model import State
from dc_inject.model.events import Observed
from dc_inject.system.executor import ThreadExecutor
from tests.engine.world import CYCLE, GB, START, World, campaign, flow, items, opened, world
from tests.sim import SimBackend

HOUR = timedelta(hours=1)
GBPS = 10**9 // 8  # bytes a second
DUE = GBPS * 900  # of a cycle of a link of 1 Gb/s

SPARING = Settings(drain=True, poll=CYCLE, observations_per_cycle=2)

# ------------------------------------------------------------------------------------------ summer time

DAY = """\
menu: 1
campaign: test
contact: dc-ops@example.org
timezone: Europe/Zurich
start: {first}
end: {last}
limits: {{total: 1 Tb/s, per_site: 1 Tb/s, rules_per_hour: 1000000, files_in_flight: 1000000}}
defaults:
  cycle: 30 min
  datasets: {{did: "*:*", files: 1..1000, mean_file: 1 B..1 PB}}
  lifetime: {{min: 1 h, max: 2 h}}
sites: {{C: {{rses: {{C: {{}}}}}}}}
exclude:
  - {{site: C, from: {first} 01:30, to: {first} 04:30, reason: downtime}}
scenarios:
  all-day: {{from: A, to: [B, C], rate: 2 Gb/s}}
  night: {{from: A, to: D, rate: 1 Gb/s, start: {first} 01:00, end: {first} 04:00}}
"""


@pytest.mark.parametrize(
    ("days", "hours"),
    [
        (("2027-03-27", "2027-03-28", "2027-03-29"), {"B": 47, "C": 47 - 5, "D": 5}),
        (("2027-10-30", "2027-10-31", "2027-11-01"), {"B": 49, "C": 49 - 7, "D": 7}),
    ],
    ids=["the hour that spring skips", "the hour that autumn shows twice"],
)
def test_menus_of_local_days_are_due_every_hour_that_passes_once_across_summer_time(
    tmp_path: Path, days: tuple[str, ...], hours: dict[str, int]
) -> None:
    """Two menus from midnight to midnight, windows and downtimes by the clock on the wall: no cycle is lost or
    comes twice, and what is due is the rate times the seconds that really passed."""
    folder = tmp_path / "menus"
    folder.mkdir()
    for first, last in pairwise(days):
        (folder / f"{first}.yaml").write_text(DAY.format(first=first, last=last))
    start = datetime.fromisoformat(f"{days[0]}T00:00+0{1 if '03' in days[0] else 2}:00").astimezone(UTC)
    clock, ledger = SimClock(start), opened(tmp_path)
    backend = SimBackend(clock, {"A": items("A", 100, 100 * GB)})
    ledger.bind("test", 2 * CYCLE, (backend.check(),), start)
    made = Menus([folder], ledger=ledger, backends={"rucio": backend}, clock=clock)()
    one = World(tmp_path, lambda: made, clock, backend, ledger, settings=SPARING)
    one.run()
    for destination, due in hours.items():
        rows = [row for row in ledger.rows() if row.key.link.destination == destination and row.due]
        starts = [row.cycle.start for row in rows]
        assert (len(set(starts)), sum(row.due for row in rows)) == (2 * due, 2 * due * 2 * DUE)
        assert len(starts) == len(set(starts))
    every = sorted({row.cycle.start for row in ledger.rows() if row.due})
    assert every == [start + number * 2 * CYCLE for number in range(2 * hours["B"])]
    for account in ledger.accounts().values():
        assert abs(account.injected - account.due) <= 100 * GB
    _whole(one)


# ------------------------------------------------------------------------------------------ a clock that steps


class Stepping:
    """A clock that steps when it has been looked at once, and that nobody looks at for ever."""

    def __init__(self, step: timedelta) -> None:
        self.shown = [START, *[START + step] * 9]

    def now(self) -> datetime:
        return self.shown.pop(0)


@pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forward", "back"])
def test_a_wait_for_answers_takes_no_longer_than_it_was_to_take_when_the_clock_steps_meanwhile(
    step: timedelta,
) -> None:
    executor = ThreadExecutor(Stepping(step), 1)
    try:
        assert executor.wait(START + timedelta(milliseconds=20)) == []
    finally:
        executor.close()


@dataclass
class Wrong(SimClock):
    """A machine's clock that is off by so much between moments of the true one, which the services have."""

    true: SimClock
    steps: Sequence[tuple[datetime, timedelta]]  # from when on, by how much

    def now(self) -> datetime:
        true = self.true.now()
        return true + next((off for since, off in reversed(self.steps) if since <= true), timedelta(0))

    def advance(self, moment: datetime) -> None:
        """Wait, in slices as the executor does, until this clock shows a moment, or as long as it was away."""
        last = self.true.now() + (moment - self.now())
        while self.now() < moment and self.true.now() < last:
            slice_ = min(moment - self.now(), last - self.true.now(), timedelta(seconds=30))
            self.true.advance(self.true.now() + slice_)


def _alive(one: World, since: datetime, until: datetime) -> list[str]:
    """Tell which rules the service had all that time: where there are none, there is nothing to look at."""
    return [
        rule.injection.item.name
        for rule in one.backend.rules.values()
        if rule.created <= since and (rule.ended is None or rule.ended >= until)
    ]


def _whole(one: World) -> None:
    """Ledger and service agree to the byte, nothing is there twice or forgotten, and no row contradicts itself."""
    entries = {entry.injection.key: entry for entry in one.ledger.entries()}
    assert set(one.backend.rules) == {key for key, entry in entries.items() if entry.accepted_at is not None}
    assert {entries[key].state for key in one.backend.rules} <= {State.GONE, State.ENDED}
    until: dict[tuple[str, str], datetime] = {}
    for rule in sorted(one.backend.rules.values(), key=lambda rule: rule.created):
        place = one.backend._place(rule.injection)
        assert place not in until or until[place] <= rule.created, f"{place} was given twice at a time"
        assert rule.deleted, f"{place} is left"
        until[place] = rule.deleted
    for key, account in one.ledger.accounts().items():
        mine = [rule.injection.item.bytes for rule in one.backend.rules.values() if rule.injection.flow == key]
        assert account.injected == sum(mine)
    one.ledger.close()
    assert not [found for found in check(one.ledger.path) if not found.note]


@pytest.mark.parametrize(
    ("off", "minute", "stays"),
    [
        pytest.param(HOUR, 22, timedelta(minutes=40), id="forward for a while"),
        pytest.param(HOUR, 0, None, id="forward for good"),
        pytest.param(-HOUR, 22, timedelta(minutes=40), id="back for a while"),
        pytest.param(-HOUR, 1, None, id="back for good"),
    ],
)
def test_a_clock_that_steps_an_hour_loses_no_bytes_and_gives_nothing_twice(
    tmp_path: Path, off: timedelta, minute: int, stays: timedelta | None
) -> None:
    """In the middle of a cycle, at its turn, taken back or not."""
    made = campaign([flow("A", to, 1.0, end=START + 5 * HOUR) for to in "BC"])
    # Rules that may not be ended are there to be looked at all the time, also when none is made for an hour.
    one = world(tmp_path, made, {"A": items("A", 80, 50 * GB)}, speed=lambda _link: GB, may_end=False)
    steps = [(START + 2 * HOUR + timedelta(minutes=minute), off)]
    steps += [(steps[0][0] + stays, timedelta(0))] if stays else []
    true = one.clock
    looks: list[datetime] = []
    one.heard.at[Observed] = lambda: looks.append(true.now())
    one.clock = Wrong(true, steps)
    one.settings = replace(one.settings, drain=True)
    one.run()
    for earlier, later in pairwise(looks):
        assert later - earlier < CYCLE or not _alive(one, earlier, earlier + CYCLE), "nobody looked for long"
    rows = [row for row in one.ledger.rows() if row.due]
    assert len({(row.key, row.cycle.start) for row in rows}) == len(rows)
    assert sorted({row.cycle.start for row in rows}) == [START + number * CYCLE for number in range(20)]
    assert sum(row.due for row in rows) == 2 * 20 * DUE
    for account in one.ledger.accounts().values():
        assert abs(account.injected + account.forgiven - account.due) <= 50 * GB
        assert account.injected >= 0.7 * account.due
    _whole(one)
