"""Series over time: rows added up into steps, the whole of it the accounts, to the byte, at any moment."""

from __future__ import annotations

from datetime import timedelta
from itertools import chain
from operator import add

import pytest

from dc_inject.ledger.series import CycleKind, Period, Sums, Window
from dc_inject.model import Cycle, Held, Hold
from dc_inject.model.ports import Status
from tests.ledger.world import (
    AB,
    AC,
    CYCLE,
    GB,
    LENGTH,
    MINUTE,
    START,
    accepted,
    dues,
    injection,
    opened,
    seen,
    started,
)

HOUR = timedelta(hours=1)
DAY = Period(START, START + timedelta(days=1))


@pytest.fixture
def ledger(tmp_path):
    with opened(tmp_path) as made:
        yield made


def nth(number):
    return Cycle(START + number * LENGTH, LENGTH)


def agree(ledger):
    """Compare all steps with the accounts, which triggers keep."""
    sums = {key: Sums() for key in ledger.accounts()}
    for span in chain(ledger.spans(DAY, HOUR), ledger.lost(DAY, HOUR)):
        sums[span.key] = Sums(*map(add, sums[span.key], span.sums))
    accounts = ledger.accounts()
    for key, one in accounts.items():
        amounts = (one.due, one.injected, one.moved, one.estimated, one.forgiven, one.rules)
        assert sums[key][: len(amounts)] == amounts
        assert (sums[key].not_moved, sums[key].failed) == (one.not_moved, one.failed)
    return accounts


def test_the_sums_of_all_steps_are_the_accounts_at_any_moment(ledger):
    made = [injection("cms:1", AB), injection("cms:2", AC)]
    started(ledger, *made)
    agree(ledger)
    keys = accepted(ledger, *made)
    assert sum(one.injected for one in agree(ledger).values()) > 0
    ledger.observe([seen(keys[0], Status.MOVING, files_done=3, moved=30 * GB)], START + MINUTE)
    assert sum(one.estimated for one in agree(ledger).values()) > 0
    ledger.close_cycle(CYCLE, CYCLE.end)
    agree(ledger)
    # known after the close, and no other cycle is open: it counts in the last one
    ledger.observe([seen(keys[0], Status.COMPLETE, files_done=50, moved=100 * GB, exact=True)], CYCLE.end)
    assert sum(one.moved for one in agree(ledger).values()) == 100 * GB
    # or in the open one, also where its link has no row there
    ledger.open_cycle(nth(1), {}, nth(1).start)
    agree(ledger)
    assert [span.sums.moved for span in ledger.spans(DAY, LENGTH) if span.kind is CycleKind.OPEN] == [70 * GB]


def test_what_had_not_moved_counts_in_the_cycle_in_which_its_rule_ended_by_how_it_ended(ledger):
    """Each dataset of 100 GB has moved 30 GB; the numbers are those of the injections' own rows."""
    names = ("complete", "expired", "cancelled", "gone", "stalled", "live", "doubt", "part")
    made = {name: injection(f"cms:{name}", AC if name in {"gone", "part"} else AB) for name in names}
    started(ledger, *made.values())
    accepted(ledger, *(one for name, one in made.items() if name != "doubt"))
    ledger.call([made["doubt"].key], START + MINUTE)
    for number in range(1, 6):
        ledger.open_cycle(nth(number), {}, nth(number).start)
    keys = {name: one.key for name, one in made.items()}
    some = {"files_done": 15, "moved": 30 * GB}
    ledger.observe(
        [
            seen(key, Status.MOVING, exact=name != "expired", **some)
            for name, key in keys.items()
            if name != "doubt"
        ],
        START + 3 * MINUTE,
    )
    assert sum(one.not_moved for one in agree(ledger).values()) == 0
    ledger.observe([seen(keys["complete"], Status.COMPLETE)], START + 4 * MINUTE)
    ledger.observe([seen(keys["part"], Status.COMPLETE, exact=True, **some)], START + 4 * MINUTE)  # so it says
    ledger.end_asked([keys["cancelled"], keys["complete"]], nth(1).start)
    absent = [seen(keys[name], Status.ABSENT) for name in ("complete", "cancelled", "gone")]
    ledger.observe(absent, nth(1).start + MINUTE)
    ledger.observe([seen(keys["stalled"], Status.ABSENT, failed=70 * GB)], nth(2).start)
    ledger.observe([seen(keys["expired"], Status.ABSENT)], nth(4).start + 2 * MINUTE)
    ledger.gone([keys["cancelled"]], nth(5).start)
    accounts = agree(ledger)
    assert accounts[AB].not_moved == 140 * GB
    assert accounts[AB].injected == accounts[AB].moved + accounts[AB].on_its_way + accounts[AB].not_moved
    assert (accounts[AB].on_its_way, accounts[AB].in_doubt) == (70 * GB, 100 * GB)
    lost = {(span.start, span.key): span.sums for span in ledger.lost(DAY, LENGTH)}
    assert lost == {
        (START, AC): Sums(ended_otherwise=70 * GB),
        (nth(1).start, AB): Sums(cancelled=70 * GB),
        (nth(1).start, AC): Sums(ended_otherwise=70 * GB),
        (nth(2).start, AB): Sums(failed=70 * GB),
        (nth(4).start, AB): Sums(expired=70 * GB, not_moved_estimated=70 * GB),
    }
    assert [span.start for span in ledger.lost(Period(nth(2).start, nth(4).start), HOUR)] == [START]
    rows = ledger._db.rows("SELECT state, bytes - present - failed - moved AS rest FROM injection")
    over = sum(row["rest"] for row in rows if row["state"] in {"complete", "ended", "gone"})
    assert over == sum(one.not_moved for one in accounts.values()) == 280 * GB
    around = Window(nth(4).start, nth(4).end)
    kinds = {span.kind for span in ledger.lost(Period(START, DAY.until, (around,)), LENGTH)}
    assert kinds == {CycleKind.OPEN, CycleKind.EXCLUDED}


def test_what_ends_when_no_cycle_is_open_counts_in_the_one_before(ledger):
    made = injection("cms:1", AB)
    started(ledger, made)
    (key,) = accepted(ledger, made)
    ledger.close_cycle(CYCLE, CYCLE.end)
    ledger.observe([seen(key, Status.ABSENT)], START + 5 * HOUR)
    assert [(span.start, span.sums.expired) for span in ledger.lost(DAY, LENGTH)] == [(START, 100 * GB)]
    ledger.open_cycle(nth(40), {}, nth(40).start)
    assert [span.start for span in ledger.lost(DAY, LENGTH)] == [START]
    assert list(ledger.lost(Period(nth(1).start, DAY.until), LENGTH)) == []


def test_cycles_are_kept_apart_that_are_open_or_excluded(ledger):
    for number in range(6):
        ledger.open_cycle(nth(number), dues(), nth(number).start)
    for number in range(5):
        ledger.close_cycle(nth(number), nth(number + 1).start)
    around = Window(nth(1).start + MINUTE, nth(3).start)  # one that it only touches counts
    period = Period(START, DAY.until, (around,))
    kinds = [kind for _, kind in ledger.cycles(period)]
    counted, excluded = CycleKind.COUNTED, CycleKind.EXCLUDED
    assert kinds == [counted, excluded, excluded, counted, counted, CycleKind.OPEN]
    due = {}
    for span in ledger.spans(period, HOUR):
        due[span.kind] = due.get(span.kind, 0) + span.sums.due
    assert due == {CycleKind.COUNTED: 9 * 450 * GB, CycleKind.EXCLUDED: 6 * 450 * GB, CycleKind.OPEN: 3 * 450 * GB}
    assert {span.start for span in ledger.spans(period, HOUR)} == {START, START + HOUR}


def test_a_period_has_the_cycles_that_start_in_it(ledger):
    for number in range(4):
        ledger.open_cycle(nth(number), dues(), nth(number).start)
    part = Period(nth(1).start, nth(3).start)
    assert [cycle for cycle, _ in ledger.cycles(part)] == [nth(1), nth(2)]
    assert {span.start for span in ledger.spans(part, LENGTH)} == {nth(1).start, nth(2).start}
    assert ledger.first_cycle() == nth(0)


def test_holds_are_counted_by_step_and_link_with_what_was_missing(ledger):
    dry = Held(Hold.POOL_DRY, {"free": 0})
    for number in range(5):
        ledger.open_cycle(nth(number), dues(held=dry if number != 2 else None), nth(number).start)
    found = ledger.holds_over_time(DAY, HOUR)
    assert [(one.start, one.hold, one.cycles, one.missing) for one in found] == [
        (START, Hold.POOL_DRY, 9, 9 * 450 * GB),
        (START + HOUR, Hold.POOL_DRY, 3, 3 * 450 * GB),
    ]
    assert ledger.holds_of_links(DAY)[AB] == {Hold.POOL_DRY: 4}


def test_pauses_are_told_with_their_ends(ledger):
    ledger.pause("a", "me", "lunch", START)
    ledger.resume("a", "me", "", START + HOUR)
    ledger.pause("b", "me", "", START + 2 * HOUR)
    told = ledger.pauses_between(START, START + 3 * HOUR)
    assert [(one.subject, until) for one, until in told] == [("a", START + HOUR), ("b", None)]
    assert [one.subject for one, _ in ledger.pauses_between(START + HOUR, START + 3 * HOUR)] == ["b"]
    assert [one.subject for one, _ in ledger.pauses_between(START, START + HOUR)] == ["a"]


def test_dues_and_releases_of_all_flows(ledger):
    made = [injection("cms:1", AB), injection("cms:2", AC), injection("cms:3", AB)]
    started(ledger, *made)
    accepted(ledger, *made[:2])
    ledger.open_cycle(CYCLE.next, {AB: (7, None), AC: (8, None)}, CYCLE.end)
    first = sum(row.due for row in ledger.rows(cycle=CYCLE))
    assert [row[:2] for row in ledger.sums_of_cycles()] == [(CYCLE.start, first), (CYCLE.next.start, 15)]
    released = [(one.flow, one.release, one.item.bytes) for one in made[:2]]
    assert sorted(ledger.releases(CYCLE.end)) == sorted(released)
    assert list(ledger.releases(made[0].release)) == []


def test_of_each_hold_of_a_link_the_last_reason_is_told_and_what_was_missing(ledger):
    for number, message in enumerate(("early", "early", "late")):
        dry = Held(Hold.POOL_DRY, {"message": message})
        ledger.open_cycle(nth(number), dues(held=dry), nth(number).start)
    ledger.open_cycle(nth(3), dues(held=Held(Hold.PAUSED, {"by": "me"})), nth(3).start)
    told = [line for line in ledger.held_flows() if line.key == AB]
    assert told == [
        (AB, Held(Hold.PAUSED, {"by": "me"}), 1, 450 * GB),
        (AB, Held(Hold.POOL_DRY, {"message": "late"}), 3, 3 * 450 * GB),
    ]
    assert len(ledger.held_flows()) == 2 * len(dues())
