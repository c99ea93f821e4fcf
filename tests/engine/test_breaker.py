"""A service that fails is asked by one call at a time, and gets everything as soon as it answers."""

from __future__ import annotations

import random
from datetime import timedelta

from dc_inject.engine.call_limits import LINK_FIRST, LONGEST, OPENS_AFTER, SOON, Breaker, LinkWaits
from dc_inject.model import Cycle, Held, Hold
from dc_inject.model.errors import LinkRefused, Permanent, Temporary
from dc_inject.model.events import BreakerSwitched
from tests.engine.world import CYCLE, GB, START, campaign, flow, items, world

LINKS = [flow("A", f"B{n:03}", 0.5) for n in range(40)]


def test_it_opens_after_some_failures_in_a_row_and_lets_one_call_through_at_a_time():
    breaker, now = Breaker("rucio"), START
    for _ in range(OPENS_AFTER - 1):
        assert not breaker.failed(now)
    assert breaker.room(now, 16) == 16
    assert breaker.failed(now)
    assert breaker.room(now, 16) == 0
    now += LONGEST
    assert breaker.room(now, 16) == 1
    breaker.called()
    assert breaker.room(now, 16) == 0
    assert not breaker.failed(now)
    assert breaker.room(now, 16) == 0
    assert breaker.room(now + LONGEST, 16) == 1
    assert breaker.worked()
    assert breaker.room(now, 16) == 16
    assert not breaker.worked()


def test_an_answer_to_a_question_lets_the_next_call_try_soon_and_no_more_than_one():
    breaker, now = Breaker("rucio"), START
    breaker.answered_other(now)
    assert not breaker.open
    for _ in range(4 * OPENS_AFTER):
        breaker.failed(now)
    assert breaker.room(now + SOON, 16) == 0
    breaker.answered_other(now)
    assert breaker.room(now, 16) == 0  # a service that can only be read is not asked all the time
    assert breaker.room(now + SOON, 16) == 1
    breaker.called()
    breaker.answered_other(now + SOON)
    assert breaker.room(now + SOON, 16) == 0


def test_a_link_that_is_refused_waits_longer_each_time_and_at_most_a_cycle():
    waits, cycle, link = LinkWaits(), Cycle(START, CYCLE), LINKS[0].key
    lengths = []
    for _ in range(10):
        waits.called(link, cycle, START)
        waits.refused(link, cycle, START)
        lengths.append(waits.left(link, START))
    assert lengths[0] <= LINK_FIRST < lengths[2] < lengths[-1] <= CYCLE
    assert waits.waits(link, START)
    assert not waits.waits(LINKS[1].key, START)
    waits.begin_cycle()
    assert not waits.waits(link, START)
    waits.called(link, cycle, START)
    assert waits.waits(link, START)  # until it is answered
    assert waits.accepted(link)
    assert (waits.waits(link, START), waits.flows, waits.accepted(link)) == (False, set(), False)


def test_success_in_between_starts_the_count_anew():
    breaker = Breaker("rucio")
    for _ in range(10 * OPENS_AFTER):
        assert not breaker.failed(START)
        breaker.failed(START) if breaker.failures < OPENS_AFTER - 1 else None
        breaker.worked()
    assert not breaker.open


def test_an_outage_is_not_hammered_by_every_link_and_costs_nothing_that_the_cycle_has_time_for(tmp_path):
    one = world(tmp_path, campaign(LINKS), {"A": items("A", 400, 5 * GB)})
    down = [START + CYCLE * 0.2, START + CYCLE * 0.5]
    asked = []

    def fault(method, _subject):
        if method == "submit" and down[0] <= one.clock.now() < down[1]:
            asked.append(one.clock.now())
            raise Temporary("503 Service Unavailable")

    one.backend.fault = fault
    one.run(cycles=1)
    minutes = (down[1] - down[0]) / timedelta(minutes=1)
    assert OPENS_AFTER <= len(asked) <= 16 + 2 * minutes + 4
    due = sum(row.due for row in one.ledger.rows())
    assert sum(row.injected for row in one.ledger.rows()) >= 0.97 * due
    assert [switched.open for switched in one.heard.of(BreakerSwitched)] == [True, False]
    harmless = {Hold.API_ERRORS, Hold.TOO_COARSE}
    assert one.ledger.rows()[0].held is None or one.ledger.rows()[0].held.hold in harmless


def test_after_an_outage_a_good_answer_to_any_question_ends_the_wait(tmp_path):
    cycle = timedelta(minutes=1)
    one = world(tmp_path, campaign(LINKS[:4], cycle=cycle), {"A": items("A", 400, GB // 2)})
    down = [START + 3.1 * cycle, START + 4.1 * cycle]
    asked, seen = [], []

    def fault(method, _subject):
        now = one.clock.now()
        if method in {"submit", "observe"} and down[0] <= now < down[1]:
            raise Temporary("500 database")
        if now >= down[1]:
            {"submit": asked, "observe": seen}.get(method, []).append(now)

    one.backend.fault = fault
    one.run(cycles=1)
    assert [switched.open for switched in one.heard.of(BreakerSwitched)] == [True, False]
    assert asked[0] <= seen[0] + SOON


def test_what_is_refused_for_a_banned_storage_waits(tmp_path):
    """Twenty links to it: each tries a few times in the first cycle, and then hardly more than once."""
    one = world(tmp_path, campaign(LINKS[:20]), {"A": items("A", 400, 5 * GB)})
    lifted = START + 4.5 * CYCLE
    asked = []

    def fault(method, _subject):
        if method == "submit":
            asked.append(one.clock.now())
            if one.clock.now() < lifted:
                raise LinkRefused("403 banned", hold="destination-unavailable")

    one.backend.fault = fault
    one.run(cycles=6)
    tries = [sum(START + n * CYCLE <= at < START + (n + 1) * CYCLE for at in asked) / 20 for n in range(4)]
    assert tries[0] <= 5
    assert max(tries[1:]) <= 3
    rows = {row.cycle.start: row for row in one.ledger.rows() if row.key == LINKS[0].key}
    held = [rows[START + n * CYCLE].held for n in range(4)]
    assert [found and found.hold for found in held] == [Hold.DESTINATION_UNAVAILABLE] * 4
    assert {found.numbers["message"] for found in held if found} == {"403 banned"}
    assert rows[START + 4 * CYCLE].injected > 0  # in the cycle in which the ban is lifted, and evenly
    assert rows[START + 5 * CYCLE].injected >= rows[START + 5 * CYCLE].due - 5 * GB


def test_trouble_with_one_storage_does_not_open_it(tmp_path):
    one = world(tmp_path, campaign(LINKS), {"A": items("A", 400, 5 * GB)})

    def fault(method, subject):
        if method == "submit" and subject[0].link.destination < "B020":
            raise LinkRefused("the storage is banned", hold="destination-unavailable")

    one.backend.fault = fault
    one.run(cycles=1)
    rows = {row.key.link.destination: row for row in one.ledger.rows()}
    assert {row.held.hold for name, row in rows.items() if name < "B020"} == {Hold.DESTINATION_UNAVAILABLE}
    assert all(row.injected >= row.budget - 5 * GB for name, row in rows.items() if name >= "B020")
    assert not one.heard.of(BreakerSwitched)


def test_a_source_whose_inventory_is_refused_is_held_alone_and_not_as_an_outage(tmp_path):
    others = flow("X", "C", 1.0)
    one = world(
        tmp_path,
        campaign([flow("A", "B", 1.0), others]),
        {"A": items("A", 50, 10 * GB), "X": items("X", 50, 10 * GB)},
    )

    def refuses(method, subject):
        if (method, subject) == ("inventory", "X"):
            raise Permanent("this account may not list X")

    one.backend.fault = refuses
    one.engine().run(until=START + CYCLE)
    rows = {row.key.link.source: row for row in one.ledger.rows()}
    assert rows["X"].held == Held(Hold.QUARANTINED, {"inventory": "X", "message": "this account may not list X"})
    assert rows["A"].injected > 0


def test_looks_that_fail_are_tried_again_in_the_same_cycle_and_anew_in_the_next(tmp_path):
    """However often they failed before: the wait does not outgrow a cycle."""
    one = world(tmp_path, campaign(LINKS[:4]), {"A": items("A", 400, 5 * GB)})
    dice = random.Random(5)

    def fault(method, _subject):
        if method == "check_replicas" and dice.random() < 0.92:
            raise Temporary("504")

    one.backend.fault = fault
    one.run(cycles=8)
    due, injected = (sum(getattr(row, name) for row in one.ledger.rows()) for name in ("due", "injected"))
    assert injected >= 0.9 * due, injected / due
