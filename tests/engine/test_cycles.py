"""What a cycle does: dues, plan, releases, rows; twice is once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from unittest import mock

import pytest

from dc_inject.ledger import Ledger
from dc_inject.model import Cycle, Hold, State, events
from dc_inject.model.errors import MenuError, NeedsOperator, Permanent, Problem, Temporary, TryOtherItem
from dc_inject.model.ports import Observation, Status
from tests.engine.world import CYCLE, GB, START, TB, campaign, flow, items, world

LINK = flow("A", "B", 1.0)  # 112.5 GB a cycle
DUE = 112_500_000_000


def test_every_cycle_gets_its_due_within_a_dataset_and_its_row_is_closed(tmp_path):
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 200, 10 * GB)})
    one.run(cycles=4)
    rows = one.ledger.rows()
    assert [row.due for row in rows] == [DUE] * 4
    assert [row.cycle.start for row in rows] == [START + n * CYCLE for n in range(4)]
    assert abs(sum(row.injected for row in rows) - 4 * DUE) <= 10 * GB
    assert one.ledger.unclosed() == ()
    assert sum(row.injected for row in rows) == sum(r.injection.item.bytes for r in one.backend.rules.values())


def test_the_same_cycle_run_again_changes_nothing(tmp_path):
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 200, 10 * GB)})
    heard: list[str] = []
    one.heard.at[events.Intended] = lambda: heard.append("planned")
    one.engine()._turn(one.engine()._cycle or _cycle(one), injecting=True)
    for _ in range(2):
        engine = one.engine()
        engine._step(one.clock.now(), None)
        engine._calls.wait(one.clock.now())
    assert heard == ["planned"]
    assert len(one.ledger.rows()) == 1
    keys = [e.injection.key for e in one.ledger.entries()]
    assert len(keys) == len(set(keys))


def _cycle(one):
    return Cycle.at(one.clock.now(), CYCLE)


def test_releases_are_spread_over_the_cycle(tmp_path):
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 200, 5 * GB)})
    one.run(cycles=1)
    created = sorted(rule.created for rule in one.backend.rules.values())
    assert created[0] < START + CYCLE / 5
    assert created[-1] > START + CYCLE * 0.75
    gaps = [later - earlier for earlier, later in pairwise(created)]
    assert max(gaps) < CYCLE / 5


def test_once_does_the_current_cycle_and_stays_to_its_end(tmp_path):
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 200, 10 * GB)})
    one.run(once=True)
    assert one.clock.now() == START + CYCLE
    assert len(one.ledger.rows()) == 1
    assert one.ledger.unclosed() == ()


def test_a_run_drains_until_nothing_of_ours_is_live_and_its_bytes_are_gone(tmp_path):
    short = replace(LINK, end=START + 2 * CYCLE)
    one = world(tmp_path, campaign([short]), {"A": items("A", 200, 10 * GB)}, deletion_lag=timedelta(minutes=3))
    one.settings = replace(one.settings, drain=True)
    one.run()
    assert {entry.state for entry in one.ledger.entries()} == {State.GONE}
    assert all(rule.deleted for rule in one.backend.rules.values())
    account = next(iter(one.ledger.accounts().values()))
    assert account.moved == account.injected
    assert sum(row.moved for row in one.ledger.rows()) == account.moved, "what arrives in the drain has a row too"


def test_without_the_right_to_end_rules_the_drain_waits_for_their_lifetime(tmp_path):
    short = replace(LINK, end=START + CYCLE)
    one = world(tmp_path, campaign([short]), {"A": items("A", 200, 10 * GB)}, may_end=False)
    one.settings = replace(one.settings, drain=True)
    one.run()
    assert "end" not in one.backend.calls
    assert all(rule.ended == rule.expires for rule in one.backend.rules.values())


def test_an_answer_that_is_lost_is_in_doubt_until_it_is_looked_up_and_counts_once(tmp_path):
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 200, 10 * GB)})
    lost = iter([True, False, True])

    def lose(method, subject):
        if method == "submit" and next(lost, False):
            raise Temporary("timed out", lost=True)

    one.backend.answer = lose
    one.run(cycles=2)
    account = next(iter(one.ledger.accounts().values()))
    assert account.in_doubt == 0
    assert account.injected == sum(rule.injection.item.bytes for rule in one.backend.rules.values())
    assert set(one.backend.rules) == {e.injection.key for e in one.ledger.entries() if e.accepted_at}


def test_a_request_that_was_lost_on_its_way_is_asked_again_in_the_same_cycle(tmp_path):
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 200, 50 * GB)})
    fail = iter([True])

    def lose(method, subject):
        if method == "submit" and next(fail, False):
            raise Temporary("connection reset", lost=True)

    one.backend.fault = lose
    one.run(cycles=1)
    assert set(one.backend.rules) == {e.injection.key for e in one.ledger.entries()}
    assert abs(one.ledger.rows()[0].injected - DUE) <= 50 * GB


@pytest.mark.parametrize("error", [TryOtherItem("still being deleted"), Permanent("no such dataset")])
def test_a_refused_dataset_is_replaced_by_another_one_in_the_same_cycle(tmp_path, error):
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 50, 20 * GB)})
    refused: list[str] = []

    def refuse(method, subject):
        if method == "submit" and len(refused) < 3:
            refused.append(subject[0].item.name)
            raise error

    one.backend.fault = refuse
    one.run(cycles=1)
    row = one.ledger.rows()[0]
    assert len(refused) == 3
    assert abs(row.injected - DUE) <= 20 * GB
    given = {rule.injection.item.name for rule in one.backend.rules.values()}
    assert not given & set(refused)


def test_temporary_errors_are_tried_again_within_the_cycle(tmp_path):
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 50, 20 * GB)})
    count = iter(range(1000))

    def flaky(method, subject):
        if next(count) % 3 == 0:
            raise Temporary("503")

    one.backend.fault = flaky
    engine = None
    for _ in range(5):  # the first call of all, check, may be the one that fails
        try:
            engine = one.engine()
            break
        except Temporary:
            continue
    engine.run(until=START + 4 * CYCLE)
    assert abs(sum(row.injected for row in one.ledger.rows()) - 4 * DUE) <= 20 * GB


def test_a_service_that_is_down_for_part_of_a_cycle_costs_no_cycle(tmp_path):
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 50, 20 * GB)})
    engine = one.engine()

    def down(method, subject):
        if one.clock.now() < START + CYCLE * 0.6:
            raise Temporary("connection refused")

    one.backend.fault = down
    engine.run(until=START + CYCLE)
    assert abs(one.ledger.rows()[0].injected - DUE) <= 20 * GB


def test_a_long_outage_is_held_for_api_errors_and_made_up_only_up_to_the_cap(tmp_path):
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 100, 5 * GB)})
    engine = one.engine()

    def down(method, subject):
        if START + CYCLE <= one.clock.now() < START + 7 * CYCLE:
            raise Temporary("connection refused")

    one.backend.fault = down
    engine.run(until=START + 10 * CYCLE)
    rows = one.ledger.rows()
    assert {row.held.hold for row in rows[1:7]} == {Hold.API_ERRORS}
    assert all(row.injected == 0 for row in rows[1:7])
    assert all(row.injected <= 2.3 * DUE for row in rows)
    account = next(iter(one.ledger.accounts().values()))
    assert account.forgiven > 0
    assert abs(account.injected + account.forgiven - account.due) <= 0.25 * DUE


def test_credentials_refused_in_the_middle_are_a_hold_and_it_goes_on_when_they_work_again(tmp_path):
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 100, 5 * GB)})
    engine = one.engine()

    def refuse(method, subject):
        if START + CYCLE <= one.clock.now() < START + 3 * CYCLE:
            raise NeedsOperator("the token is refused", hold="credentials")

    one.backend.fault = refuse
    engine.run(until=START + 5 * CYCLE)
    rows = one.ledger.rows()
    assert [row.held.hold if row.held else None for row in rows][1:3] == [Hold.CREDENTIALS] * 2
    assert rows[4].injected > 0


def test_a_pause_adds_no_due_and_is_followed_by_no_burst(tmp_path):
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 100, 5 * GB)})
    one.run(cycles=2)
    one.ledger.pause("*", "somebody", "too much", one.clock.now())
    one.run(cycles=4)
    one.ledger.resume("*", "somebody", "go on", one.clock.now())
    one.run(cycles=2)
    rows = one.ledger.rows()
    assert [row.due for row in rows] == [DUE] * 2 + [0] * 4 + [DUE] * 2
    assert {row.held.hold for row in rows[2:6]} == {Hold.PAUSED}
    assert all(row.injected == 0 for row in rows[2:6])
    assert all(row.injected <= 1.2 * DUE for row in rows[6:])


def test_a_pause_in_the_middle_of_a_cycle_drops_what_waits(tmp_path):
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 100, 5 * GB)})
    halfway = START + CYCLE / 2
    one.heard.at[events.Called] = lambda: (
        one.ledger.pause("test", "somebody", "stop it", one.clock.now()) if one.clock.now() > halfway else None
    )
    one.run(cycles=1)
    (row,) = one.ledger.rows()
    assert 0.3 * DUE < row.injected < 0.8 * DUE
    assert row.forgiven + row.injected >= DUE - 5 * GB, "what a person stopped is not made up later"
    assert row.held.hold is Hold.PAUSED


def test_cycles_in_which_nobody_ran_are_due_and_said_and_made_up_only_up_to_the_cap(tmp_path):
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 400, 5 * GB)})
    one.run(cycles=1)
    one.clock.advance(START + 6 * CYCLE)
    one.run(cycles=2)
    rows = one.ledger.rows()
    assert len(rows) == 8
    assert {row.held.hold for row in rows[1:6]} == {Hold.NOT_RUNNING}
    assert rows[6].injected <= 2.3 * DUE
    assert rows[6].forgiven > 0


def test_menus_that_go_wrong_while_running_leave_the_last_good_ones_in_force(tmp_path):
    good = campaign([LINK])
    answers = {"wrong": False}

    def menus():
        if answers["wrong"]:
            raise MenuError([Problem("day2.yaml", 3, "no such key")])
        return good

    one = world(tmp_path, menus, {"A": items("A", 400, 5 * GB)})
    engine = one.engine()
    answers["wrong"] = True
    engine.run(until=START + 2 * CYCLE)
    assert [row.due for row in one.ledger.rows()] == [DUE] * 2
    assert one.heard.of(events.MenusRefused)


def test_a_changed_menu_is_taken_up_at_the_next_cycle_and_changes_the_future_only(tmp_path):
    now = {"menus": campaign([LINK])}
    one = world(tmp_path, lambda: now["menus"], {"A": items("A", 400, 5 * GB)})
    engine = one.engine()
    one.heard.at[events.Intended] = lambda: now.update(menus=campaign([flow("A", "B", 2.0)]))
    engine.run(until=START + 3 * CYCLE)
    assert [row.due for row in one.ledger.rows()] == [DUE, 2 * DUE, 2 * DUE]


@pytest.mark.parametrize("step", [events.Observed, events.Intended, events.Answered, events.CycleOpened])
def test_an_unexpected_error_ends_no_run_and_its_trace_is_logged(tmp_path, caplog, step):
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 400, 5 * GB)})
    one.heard.forgiving = True
    count = iter(range(10**6))

    def fail():
        if next(count) == 1:
            raise ZeroDivisionError

    one.heard.at[step] = fail
    one.run(cycles=4)
    assert abs(sum(row.injected for row in one.ledger.rows()) - sum(r.due for r in one.ledger.rows())) < DUE
    assert one.heard.of(events.UnexpectedError)
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


def test_menus_that_raise_an_unexpected_error_are_refused_and_its_trace_is_logged(tmp_path, caplog):
    now = {"menus": campaign([LINK])}
    one = world(tmp_path, lambda: now["menus"], {"A": items("A", 400, 5 * GB)})
    engine = one.engine()
    now.clear()
    engine.run(until=START + CYCLE)
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [KeyError]
    assert one.heard.of(events.MenusRefused)


def test_a_blocked_destination_is_held_and_other_links_go_on(tmp_path):
    made = campaign([LINK, flow("A", "C", 1.0)])
    one = world(tmp_path, made, {"A": items("A", 400, 5 * GB)}, unwritable={"B"})
    one.run(cycles=2)
    rows = {row.key.link.destination: row for row in one.ledger.rows()}
    assert rows["B"].held.hold is Hold.DESTINATION_UNAVAILABLE
    assert rows["B"].held.numbers == {"rse": "B", "signal": "availability_write", "message": "closed by its site"}
    assert rows["B"].injected == 0
    assert abs(rows["C"].injected - DUE) <= 10 * GB


def test_a_source_without_fresh_data_is_held_as_pool_dry_with_numbers(tmp_path):
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 2, 5 * GB)}, may_end=False)
    one.run(cycles=3)
    last = one.ledger.rows()[-1]
    assert last.held.hold is Hold.POOL_DRY
    assert last.held.numbers


def test_a_full_destination_is_never_overfilled(tmp_path):
    stock = {"A": items("A", 400, 5 * GB)}
    made = campaign([LINK])
    one = world(tmp_path, made, stock, may_end=False, space={"B": 200 * GB, "A": TB})
    most = 0

    def watch():
        nonlocal most
        there = sum(r.injection.item.bytes for r in one.backend.rules.values() if r.deleted is None)
        most = max(most, there)

    one.heard.at[events.Answered] = watch
    one.run(cycles=20)
    assert 100 * GB < most <= 200 * GB
    assert Hold.DESTINATION_FULL in {row.held.hold for row in one.ledger.rows() if row.held}


def test_stop_leaves_rules_live_and_the_next_start_goes_on(tmp_path):
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 400, 5 * GB)}, speed=lambda _link: 1e6)
    engine = one.engine()
    one.heard.at[events.Answered] = lambda: engine.stop() if one.clock.now() > START + CYCLE / 3 else None
    engine.run(until=START + 2 * CYCLE)
    first = set(one.backend.rules)
    assert first
    assert all(rule.ended is None for rule in one.backend.rules.values())
    one.heard.at.clear()
    one.engine().run(until=START + 2 * CYCLE)
    assert first < set(one.backend.rules)
    assert abs(sum(row.injected for row in one.ledger.rows()) - 2 * DUE) <= 10 * GB


def test_end_on_stop_ends_what_is_complete_and_cancels_nothing(tmp_path):
    """Also what nobody has seen complete yet; ending the others would cancel their transfers."""
    links = [replace(LINK, dwell=CYCLE), replace(flow("A", "C", 1.0), dwell=CYCLE)]
    fast = links[0].link
    stock = {"A": items("A", 400, 5 * GB)}
    one = world(tmp_path, campaign(links), stock, speed=lambda link: 1e12 if link == fast else 1e6)
    one.settings = replace(one.settings, end_on_stop=True)
    engine = one.engine()
    one.heard.at[events.Answered] = lambda: engine.stop() if one.clock.now() > START + CYCLE / 3 else None
    engine.run(until=START + 2 * CYCLE)
    rules = one.backend.rules.values()
    assert {rule.injection.link for rule in rules} == {link.link for link in links}
    complete = [rule for rule in rules if rule.completed]
    assert len(complete) > 1
    assert all((rule.ended is not None) == (rule.completed is not None) for rule in rules)


def test_a_look_that_was_older_than_the_answer_ends_nothing(tmp_path, monkeypatch):
    """A rule that did not exist when it was looked for may exist by the time that we hear of it."""
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 200, 10 * GB)}, speed=lambda _link: 1e6)
    observe = one.backend.observe

    def early(entries, *, exact=False):
        new = {entry.injection.key for entry in entries if not entry.external_id}
        return [Observation(s.key, Status.ABSENT) if s.key in new else s for s in observe(entries, exact=exact)]

    monkeypatch.setattr(one.backend, "observe", early)
    one.settings = replace(one.settings, observations_per_cycle=60)
    one.run(cycles=1)
    assert {entry.state for entry in one.ledger.entries()} == {State.LIVE}


def test_what_an_outage_has_kept_back_does_not_leave_in_one_burst(tmp_path):
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 200, 5 * GB)})
    engine = one.engine()

    def refuse(method, subject):
        if START + CYCLE * 0.1 < one.clock.now() < START + CYCLE * 0.6:
            raise NeedsOperator("the token is refused", hold="credentials")

    one.backend.fault = refuse
    engine.run(until=START + CYCLE)
    late = sorted(r.created for r in one.backend.rules.values() if r.created > START + CYCLE / 2)
    assert len(late) > 10
    assert max(late.count(moment) for moment in late) <= 4
    assert abs(one.ledger.rows()[0].injected - DUE) <= 5 * GB


def test_a_service_that_falls_silent_at_the_last_look_is_the_reason_and_not_too_coarse(tmp_path):
    """Also where planning itself had a smaller reason: two datasets of 50 GB are less than 112.5 GB."""
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 50, 50 * GB)})
    engine = one.engine()

    def silent(method, subject):
        if method == "check_replicas":
            raise Temporary("no answer")

    one.backend.fault = silent
    engine.run(until=START + CYCLE)
    (row,) = one.ledger.rows()
    assert row.injected == 0
    assert row.held.hold is Hold.API_ERRORS


def test_the_reasons_of_all_links_of_a_cycle_are_found_in_one_reading_of_the_ledger(tmp_path):
    """What closing a cycle reads grows with its links, and not with their square."""
    reads = []
    for links in (2, 6):
        flows = [flow("A", f"B{number}", 1.0) for number in range(links)]
        one = world(tmp_path / str(links), campaign(flows), {"A": items("A", 4, 10 * GB)})
        with mock.patch.object(Ledger, "entries", autospec=True, side_effect=Ledger.entries) as asked:
            one.run(cycles=2)
        reads.append(asked.call_count)
    assert reads[0] == reads[1]
