"""The life of an injection: every answer and every look leads to the right state and the right bytes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.ledger.check import check
from dc_inject.model import Dataset, State, losses
from dc_inject.model.errors import LedgerError, NeedsOperator, Permanent, ServiceError, Temporary, TryOtherItem
from dc_inject.model.ports import Outcome, Status
from tests.ledger.world import (
    AB,
    AC,
    CYCLE,
    DB,
    GB,
    LENGTH,
    MINUTE,
    START,
    accepted,
    injection,
    opened,
    plan,
    seen,
    started,
)

from .world import totals_from_rows

ONE = injection()
LATER = START + 5 * MINUTE


@pytest.fixture
def ledger(tmp_path):
    with opened(tmp_path) as made:
        started(made, ONE)
        yield made


def state(ledger):
    return ledger.entry(ONE.key).state


def account(ledger, key=AB):
    found = ledger.accounts()[key]
    assert found == totals_from_rows(ledger)[key]
    return found


def test_an_intent_is_kept_whole(ledger):
    assert ledger.entries() == [replace(ledger.entry(ONE.key))]
    entry = ledger.entry(ONE.key)
    assert entry.injection == ONE
    assert (entry.state, entry.attempt, entry.injected) == (State.INTENDED, 0, 0)
    assert account(ledger).resident == 100 * GB, "intents count for what may come to be there"


def test_a_call_is_in_doubt_until_its_answer(ledger):
    assert ledger.call([ONE.key, "unknown"], START) == (ONE.key,)
    assert account(ledger).in_doubt == 100 * GB
    assert ledger.call([ONE.key], LATER) == (), "only an intent is called: not twice"
    ledger.answer([Outcome(ONE.key, "r1", present=GB)], LATER, {})
    entry = ledger.entry(ONE.key)
    assert (entry.state, entry.external_id, entry.accepted_at) == (State.LIVE, "r1", LATER)
    assert entry.expires_at == LATER + timedelta(hours=1)
    told = account(ledger)
    assert (told.in_doubt, told.injected, told.rules) == (0, 99 * GB, 1)
    assert (told.coming, told.files_in_flight) == (99 * GB, 50)


@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (Temporary("timed out", lost=True), State.CALLED),
        (ServiceError("something odd"), State.CALLED),
        (Temporary("503"), State.INTENDED),
        (NeedsOperator("token refused"), State.INTENDED),
        (TryOtherItem("being deleted"), State.REFUSED),
        (Permanent("no such dataset"), State.REFUSED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value,
)
def test_each_class_of_error_leads_to_its_state(ledger, error, becomes):
    ledger.call([ONE.key], START)
    ledger.answer([Outcome(ONE.key, error=error)], LATER, {ONE.key: LATER + MINUTE})
    entry = ledger.entry(ONE.key)
    assert (entry.state, entry.error, entry.attempt) == (becomes, error.message, 1)
    assert entry.not_before == (LATER + MINUTE if becomes is State.INTENDED else None)
    assert account(ledger).in_doubt == (100 * GB if becomes is State.CALLED else 0)
    assert account(ledger).injected == 0


def test_a_later_answer_wins_over_what_we_had_given_up(ledger):
    """The rule exists, so it counts: also when its intent was given up, withdrawn or refused meanwhile."""
    ledger.call([ONE.key], START)
    ledger.withdraw([ONE.key], "looked up, not there", LATER)
    assert state(ledger) is State.WITHDRAWN
    ledger.answer([Outcome(ONE.key, "r1")], LATER + MINUTE, {})
    assert state(ledger) is State.LIVE
    assert account(ledger).injected == 100 * GB


def test_an_error_that_comes_late_changes_nothing(ledger):
    ledger.call([ONE.key], START)
    ledger.observe([seen(ONE.key, Status.MOVING, external_id="r1")], LATER)
    before = ledger.entry(ONE.key)
    ledger.answer([Outcome(ONE.key, error=Temporary("timed out", lost=True))], LATER, {})
    ledger.answer([Outcome(ONE.key, error=Permanent("refused"))], LATER, {})
    assert ledger.entry(ONE.key) == before


def test_what_was_in_doubt_and_is_found_counts_from_its_call(ledger):
    ledger.call([ONE.key], START)
    ledger.observe([seen(ONE.key, Status.STUCK, external_id="r9", files_stuck=3)], LATER)
    entry = ledger.entry(ONE.key)
    assert (entry.state, entry.accepted_at, entry.external_id) == (State.LIVE, START, "r9")
    assert (entry.files_stuck, entry.observed_at) == (3, LATER)
    assert (account(ledger).in_doubt, account(ledger).injected) == (0, 100 * GB)


def test_what_was_in_doubt_and_is_not_found_is_left_to_the_engine(ledger):
    ledger.call([ONE.key], START)
    before = ledger.entry(ONE.key)
    ledger.observe([seen(ONE.key, Status.ABSENT)], LATER)
    assert ledger.entry(ONE.key) == replace(before, observed_at=LATER)


def test_an_estimate_never_takes_the_place_of_an_exact_number(ledger):
    accepted(ledger, ONE)
    for moved, exact, expected in [
        (30 * GB, False, (30 * GB, False)),
        (20 * GB, False, (20 * GB, False)),
        (25 * GB, True, (25 * GB, True)),
        (60 * GB, False, (25 * GB, True)),
        (None, False, (25 * GB, True)),
        (70 * GB, True, (70 * GB, True)),
    ]:
        ledger.observe([seen(ONE.key, Status.MOVING, moved=moved, exact=exact, files_done=9)], LATER)
        entry = ledger.entry(ONE.key)
        assert (entry.moved, entry.moved_exact) == expected
        assert account(ledger).moved == entry.moved
        assert account(ledger).estimated == (0 if entry.moved_exact else entry.moved)


def test_what_is_complete_has_moved_all_but_what_was_there(ledger):
    accepted(ledger, ONE)
    ledger.observe([seen(ONE.key, Status.MOVING, moved=50 * GB, present=10 * GB, files_done=20)], LATER)
    assert ledger.entry(ONE.key).moved == 40 * GB, "what is seen there includes what was there before"
    ledger.observe([seen(ONE.key, Status.COMPLETE)], LATER + MINUTE)
    entry = ledger.entry(ONE.key)
    assert (entry.state, entry.completed_at, entry.files_done) == (State.COMPLETE, LATER + MINUTE, 50)
    told = account(ledger)
    assert (told.injected, told.moved, told.estimated) == (90 * GB, 90 * GB, 0)
    assert (told.coming, told.files_in_flight) == (0, 0)
    ledger.observe([seen(ONE.key, Status.STUCK, moved=0)], LATER + 2 * MINUTE)
    assert state(ledger) is State.COMPLETE, "a file that is lost later was moved all the same"
    assert account(ledger).moved == 90 * GB


def test_true_sizes_take_the_place_of_the_listed_ones(ledger):
    """FTS copies a file of another size than was listed, and tells the true one: all accounts follow it."""
    accepted(ledger, ONE)
    for size, moved in ((100 * GB, 0), (130 * GB, 65 * GB), (60 * GB, 30 * GB)):
        ledger.observe([seen(ONE.key, Status.MOVING, size=size, moved=moved, exact=True)], LATER)
        told = account(ledger)
        assert (told.injected, told.moved, told.resident) == (size, moved, size)
        assert told.coming == size - moved
        assert ledger.state_counts()[State.LIVE] == (1, size)
    last = seen(ONE.key, Status.COMPLETE, size=150 * GB, moved=120 * GB, failed=30 * GB, exact=True)
    for _ in range(2):
        ledger.observe([last], LATER)
        told = account(ledger)
        assert (told.injected, told.moved, told.failed, told.coming) == (120 * GB, 120 * GB, 30 * GB, 0)
    assert not [one for one in check(ledger.path) if not one.note]


def test_a_true_size_is_never_less_than_what_is_known_of_it(ledger):
    accepted(ledger, ONE, present=10 * GB)
    ledger.observe([seen(ONE.key, Status.COMPLETE, moved=70 * GB, failed=30 * GB, exact=True)], LATER)
    ledger.observe([seen(ONE.key, Status.COMPLETE, size=GB, failed=30 * GB)], LATER)
    entry = ledger.entry(ONE.key)
    assert (entry.injection.item.bytes, entry.present, entry.failed, entry.moved) == (40 * GB, 10 * GB, 30 * GB, 0)


def test_numbers_out_of_range_are_kept_within_it(ledger):
    """A service may count more locks or bytes than a dataset had when it was chosen."""
    accepted(ledger, ONE, present=300 * GB)
    assert account(ledger).injected == 0
    ledger.observe(
        [seen(ONE.key, Status.MOVING, moved=10**15, present=-5, files_done=1000, files_stuck=-1)], LATER
    )
    entry = ledger.entry(ONE.key)
    assert (entry.present, entry.moved, entry.files_done, entry.files_stuck) == (0, 100 * GB, 50, 0)


@pytest.mark.parametrize("complete", [False, True])
def test_absent_is_ended_and_then_gone(ledger, complete):
    accepted(ledger, ONE)
    if complete:
        ledger.observe([seen(ONE.key, Status.COMPLETE)], LATER)
    ledger.end_asked([ONE.key], LATER)
    ledger.gone([ONE.key], LATER)
    assert state(ledger) in {State.LIVE, State.COMPLETE}, "only what has ended can be gone"
    ledger.observe([seen(ONE.key, Status.ABSENT)], LATER + MINUTE)
    entry = ledger.entry(ONE.key)
    assert (entry.state, entry.end_asked_at, entry.ended_at) == (State.ENDED, LATER, LATER + MINUTE)
    assert account(ledger).resident == 100 * GB
    ledger.observe([seen(ONE.key, Status.MOVING)], LATER + MINUTE)
    assert state(ledger) is State.ENDED, "a look from before its end does not bring it back"
    ledger.gone([ONE.key], LATER + 2 * MINUTE)
    assert ledger.entry(ONE.key).gone_at == LATER + 2 * MINUTE
    told = account(ledger)
    assert (told.resident, told.injected, told.moved) == (0, 100 * GB, 100 * GB if complete else 0)


def test_every_step_done_twice_is_done_once(ledger):
    steps = [
        lambda: ledger.add_injections([ONE], START),
        lambda: ledger.call([ONE.key], START),
        lambda: ledger.answer([Outcome(ONE.key, "r1")], LATER, {}),
        lambda: ledger.observe([seen(ONE.key, Status.COMPLETE)], LATER),
        lambda: ledger.ended([ONE.key], LATER),
        lambda: ledger.gone([ONE.key], LATER),
    ]
    for step in steps:
        step()
        before = ledger.entry(ONE.key), ledger.accounts()
        step()
        assert (ledger.entry(ONE.key), ledger.accounts()) == before


def test_a_dropped_intent_can_be_intended_again(ledger):
    """Stopped and resumed within a cycle, the same dataset may be chosen again, at another time."""
    ledger.withdraw([ONE.key], "paused", LATER)
    assert ledger.entry(ONE.key).error == "paused"
    again = replace(ONE, release=START + 10 * MINUTE, item=Dataset(ONE.item.name, 90 * GB, 45))
    ledger.add_injections([again], LATER)
    entry = ledger.entry(ONE.key)
    assert (entry.state, entry.injection, entry.error) == (State.INTENDED, again, "")
    assert account(ledger).resident == 90 * GB


def test_what_is_accepted_cannot_be_withdrawn_nor_intended_again(ledger):
    accepted(ledger, ONE)
    before = ledger.entry(ONE.key)
    ledger.withdraw([ONE.key], "paused", LATER)
    ledger.add_injections([replace(ONE, release=LATER)], LATER)
    assert ledger.entry(ONE.key) == before


def test_entries_are_found_by_state_and_cycle_in_the_order_of_release(ledger):
    late, early = injection("cms:/b#1", AC, release=LATER), injection("cms:/c#1", DB, release=START)
    following = injection("cms:/d#1", cycle=CYCLE.next)
    ledger.open_cycle(CYCLE.next, {}, LATER)
    ledger.add_injections([late, following, early], START)
    assert [e.injection for e in ledger.entries()] == [early, ONE, late, following]
    assert [e.injection for e in ledger.entries(cycle=CYCLE.next)] == [following]
    assert [e.injection for e in ledger.entries(since=CYCLE.next.start)] == [following]
    assert len(ledger.entries(State.INTENDED, since=START)) == 4
    ledger.call([late.key], START)
    assert [e.injection for e in ledger.entries(State.CALLED)] == [late]
    assert [e.injection for e in ledger.entries(State.CALLED, State.INTENDED, cycle=CYCLE)] == [early, ONE, late]
    assert ledger.entries(State.GONE) == []


def test_an_unknown_key_is_said(ledger, wording):
    with pytest.raises(LedgerError) as refused:
        ledger.entry("nokey")
    wording(refused.value)
    ledger.observe([seen("nokey", Status.COMPLETE)], LATER)
    ledger.answer([Outcome("nokey", "r1")], LATER, {})
    assert len(ledger.entries()) == 1


# --------------------------------------------------------------------------- what planning asks


def test_taken_is_all_that_is_or_may_be_there_and_what_is_set_aside(ledger):
    ended, gone, refused = (injection(f"cms:/{name}#1", AC) for name in ("ended", "gone", "refused"))
    other = injection("root://file", AC._replace(link=AC.link._replace(through="fts")))
    ledger.add_injections([ended, gone, refused, other], START)
    keys = accepted(ledger, ended, gone)
    ledger.ended(keys, LATER)
    ledger.gone([gone.key], LATER)
    ledger.withdraw([refused.key], "stop", LATER)
    ledger.quarantine("cms:/bad#1", "B", "broken", START)
    ledger.quarantine("cms:/wait#1", "B", "being deleted", START, until=LATER)
    there = {("cms:/a#1", "B"), ("cms:/ended#1", "C"), ("cms:/bad#1", "B")}
    assert ledger.taken(START) == there | {("cms:/wait#1", "B")}
    assert ledger.taken(LATER) == there
    assert ledger.leaving() == {("cms:/a#1", "A"), ("root://file", "A")}


def test_bytes_at_and_on_their_way_to_each_destination(ledger):
    two, three = injection("cms:/b#1", AC), injection("cms:/c#1", DB)
    ledger.add_injections([two, three], START)
    accepted(ledger, ONE, two)
    ledger.observe([seen(ONE.key, Status.MOVING, moved=40 * GB, files_done=20)], LATER)
    assert ledger.resident() == {"B": 200 * GB, "C": 100 * GB}
    assert ledger.on_its_way() == {"B": 60 * GB, "C": 100 * GB}
    assert ledger.files_in_flight() == 80


def test_completion_times_are_medians_of_what_was_completed_since(ledger):
    some = [injection(f"cms:/{number}#1", AC) for number in range(3)]
    ledger.add_injections(some, START)
    accepted(ledger, ONE, *some)
    for minutes, one in zip((3, 10, 5), some, strict=True):
        ledger.observe([seen(one.key, Status.COMPLETE)], START + (2 + minutes) * MINUTE)
    assert ledger.completion_times(START) == {AC: 5 * MINUTE}
    assert ledger.completion_times(START + 7 * MINUTE) == {AC: timedelta(minutes=7, seconds=30)}
    assert ledger.completion_times(START + LENGTH) == {}


def test_a_batch_larger_than_one_statement_can_take(ledger):
    many = [injection(f"cms:/{number}#1") for number in range(1203)]
    ledger.open_cycle(CYCLE.next, {}, START)
    ledger.record_plan(plan(many, CYCLE.next), START)
    keys = [one.key for one in many]
    assert set(ledger.call(keys, START)) == set(keys)
    assert account(ledger).in_doubt == 1203 * 100 * GB


def test_what_was_ended_with_failures_counts_among_what_failed(tmp_path):
    """A link whose jobs all run into their lifetime is failing too; what we cancelled has come to no end."""
    with opened(tmp_path) as ledger:
        some = [injection(f"cms:/{name}#1") for name in "abc"]
        started(ledger, *some)
        keys = accepted(ledger, *some)
        ledger.end_asked(keys[:2], START + 4 * MINUTE)
        ledger.observe([seen(keys[0], Status.COMPLETE)], START + 5 * MINUTE)
        over = seen(keys[1], Status.ABSENT, moved=10 * GB, exact=True, failed=60 * GB)
        ledger.observe([over], START + 6 * MINUTE)
        assert ledger.failed_parts(START) == {AB: 60 / 170}
        assert ledger.failed_parts(START + 6 * MINUTE) == {AB: 60 / 70}
        assert ledger.failed_parts(START + 7 * MINUTE) == {}


def test_an_entry_is_changed_as_dataclasses_do(ledger, wording):
    started(ledger, ONE)
    entry = ledger.entry(ONE.key)
    later = entry.changed(state=State.CALLED, attempt=3, called_at=LATER)
    assert later == replace(entry, state=State.CALLED, attempt=3, called_at=LATER)
    assert later.changed(attempt=4) == replace(later, attempt=4)
    assert entry == ledger.entry(ONE.key)
    with pytest.raises(TypeError) as refused:
        entry.changed(atempt=3)
    wording(refused.value)


def test_deletions_tell_how_long_they_took_and_what_went_lately(ledger):
    (key,) = accepted(ledger, ONE)
    ledger.observe([seen(key, Status.ABSENT)], LATER)
    assert ledger.deletions(START, START) == {}
    ledger.gone([key], LATER + LENGTH)
    assert ledger.deletions(START, START) == {AB.link.destination: (LENGTH, ONE.item.bytes)}
    assert ledger.deletions(START, LATER + 2 * LENGTH) == {AB.link.destination: (LENGTH, 0)}
    assert ledger.deletions(LATER + 2 * LENGTH, LATER + 2 * LENGTH) == {}


def test_what_ended_without_having_arrived_has_expired(ledger):
    (key,) = accepted(ledger, ONE)
    ledger.observe([seen(key, Status.MOVING, moved=30 * GB)], START + 2 * MINUTE)
    assert ledger.expired(START, START) == {}
    ledger.observe([seen(key, Status.ABSENT)], LATER)
    assert ledger.expired(START, START) == {AB: [(LATER, ONE.item.bytes - 30 * GB)]}
    assert ledger.expired(LATER + MINUTE, START) == {}
    assert ledger.expired(START, START + LENGTH) == {}


@pytest.mark.parametrize(("asked", "expired"), [(MINUTE, False), (None, True)])
def test_what_was_asked_to_end_before_its_lifetime_was_over_has_not_expired(ledger, asked, expired):
    (key,) = accepted(ledger, ONE)
    if asked is not None:
        ledger.end_asked([key], START + asked)
    ledger.observe([seen(key, Status.ABSENT)], LATER)
    assert (AB in ledger.expired(START, START)) == expired


@pytest.mark.parametrize(("moved", "stuck"), [(40, 60), (50, 50)])
def test_what_was_stuck_until_its_rule_ended_is_told_with_its_end(ledger, moved, stuck):
    """Of 100 GB in 50 files 30 were stuck: 60 GB, or what is left, since they may be small ones."""
    (key,) = accepted(ledger, ONE)
    ledger.observe([seen(key, Status.STUCK, files_done=20, files_stuck=30, moved=moved * GB)], START + MINUTE)
    assert ledger.stuck_until_ended(START, START) == {}
    ledger.observe([seen(key, Status.ABSENT)], LATER)
    assert ledger.stuck_until_ended(START, START) == {AB: [(LATER, stuck * GB)]}
    assert ledger.stuck_until_ended(LATER + MINUTE, START) == {}
    assert ledger.stuck_until_ended(START, START + LENGTH) == {}


def test_no_byte_between_what_moved_and_what_was_stuck_has_expired(tmp_path):
    """Two of three files of 10 bytes are stuck: 7 bytes, live and in what is read of its end."""
    one = injection(item=Dataset("cms:/a#1", 10, 3))
    with opened(tmp_path) as ledger:
        started(ledger, one)
        (key,) = accepted(ledger, one)
        ledger.observe([seen(key, Status.STUCK, files_done=1, files_stuck=2, moved=3)], START + MINUTE)
        assert losses.count_stuck(ledger.entry(key)) == 7
        ledger.observe([seen(key, Status.ABSENT)], LATER)
        assert ledger.stuck_until_ended(START, START) == {AB: [(LATER, 7)]}
        assert ledger.not_moved_failed() == {AB: 7}
        assert ledger.expired(START, START) == {}
