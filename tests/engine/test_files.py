"""Files through FTS: bundles with names of their own, failures back to the debt, nothing of ours left behind."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.model import File, Hold, JobOptions, Limits, State, events, naming
from dc_inject.model.errors import Permanent, ServiceError, Temporary
from dc_inject.model.ports import Outcome, Removal, Status
from tests.engine.test_crashes import Killed
from tests.engine.world import CYCLE, GB, START, campaign, file_flow, opened, source_files, url, world

LINK = file_flow("A", "B", 0.8)  # 90 GB a cycle
FTS = {"name": "fts"}
DUE = 90 * GB


def _drained(one):
    one.settings = replace(one.settings, drain=True)
    one.run()


def test_each_cycle_gets_its_due_in_bundles_of_files(tmp_path):
    one = world(tmp_path, campaign([LINK]), source_files("A", 400), **FTS)
    one.run(cycles=4)
    rows = one.ledger.rows()
    assert [row.due for row in rows] == [DUE] * 4
    assert all(abs(row.injected - DUE) <= GB for row in rows)
    jobs = [rule.injection for rule in one.backend.rules.values()]
    assert all(1 <= len(job.item.members) == job.item.files <= 10 for job in jobs)
    assert sum(job.item.bytes for job in jobs) == sum(m.bytes for job in jobs for m in job.item.members)
    assert len({job.item.name for job in jobs}) == len(jobs) == sum(row.rules for row in rows)
    assert len({copy for job in jobs for copy in naming.copies(job)}) == sum(job.item.files for job in jobs)


def test_jobs_are_spread_over_the_cycle(tmp_path):
    one = world(tmp_path, campaign([LINK]), source_files("A", 400), **FTS)
    one.run(cycles=1)
    halves = Counter(rule.created < START + CYCLE / 2 for rule in one.backend.rules.values())
    assert abs(halves[True] - halves[False]) <= 1


def test_a_few_files_are_enough_for_any_rate_since_every_copy_has_its_own_name(tmp_path):
    one = world(tmp_path, campaign([LINK]), source_files("A", 3), **FTS)
    one.run(cycles=2)
    jobs = [rule.injection for rule in one.backend.rules.values()]
    assert sum(job.item.bytes for job in jobs) == 2 * DUE
    assert not [row.held for row in one.ledger.rows() if row.held]
    used = Counter(member.name for job in jobs for member in job.item.members)
    assert max(used.values()) - min(used.values()) <= 2
    assert len({job.key for job in jobs}) == len(jobs)


def test_what_arrived_is_deleted_after_its_dwell_and_the_drain_waits_for_that(tmp_path):
    short = replace(LINK, end=START + 2 * CYCLE, dwell=timedelta(minutes=4))
    one = world(tmp_path, campaign([short]), source_files("A", 400), **FTS)
    _drained(one)
    entries = one.ledger.entries()
    assert {entry.state for entry in entries} == {State.GONE}
    assert all(entry.ended_at >= entry.completed_at + timedelta(minutes=4) for entry in entries)
    assert all(rule.deleted for rule in one.backend.rules.values())
    (account,) = one.ledger.accounts().values()
    assert account.due == account.injected == account.moved == 2 * DUE


def test_a_file_that_fails_is_given_back_to_the_debt_and_counted_by_its_reason(tmp_path):
    bad = f"{url('A')}/data/0007"
    made = campaign([replace(LINK, end=START + 6 * CYCLE)])
    one = world(tmp_path, made, source_files("A", 90), failing=lambda file: file.name == bad, **FTS)
    _drained(one)
    lost = sum(entry.failed for entry in one.ledger.entries())
    count = sum(entry.files_stuck for entry in one.ledger.entries() if entry.failed)
    assert lost == count * GB >= 4 * GB
    (account,) = one.ledger.accounts().values()
    accepted = sum(entry.injection.item.bytes for entry in one.ledger.entries() if entry.accepted_at)
    assert account.injected == accepted - lost
    assert abs(account.due - account.injected) <= 2 * GB  # what failed in the last cycle is made up in the next
    assert one.ledger.failures()[LINK.key] == {"source-missing": count}
    assert account.moved == sum(rule.moved for rule in one.backend.rules.values()) - lost
    assert sum(row.injected for row in one.ledger.rows()) == account.injected


def test_a_file_that_would_fail_again_is_named_and_not_chosen_again(tmp_path, caplog):
    bad = f"{url('A')}/data/0007"
    one = world(tmp_path, campaign([LINK]), source_files("A", 90), failing=lambda file: file.name == bad, **FTS)
    one.backend.tells_unfit = True
    one.run(cycles=6)
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told
    assert any(line.startswith(f"{LINK.key}: ") for line in told)
    assert {entry.failed for entry in one.ledger.entries()} == {0, GB}
    assert sum(entry.failed for entry in one.ledger.entries()) <= 2 * GB
    assert (bad, url("B")) in one.ledger.quarantined(one.clock.now())


def test_a_link_whose_transfers_fail_is_only_probed_until_they_do_not(tmp_path):
    broken = [True]
    made = campaign([LINK, file_flow("A", "C", 0.8)])
    one = world(tmp_path, made, source_files("A", 90), failing=lambda _file: broken[0], **FTS)
    one.backend.failing = lambda _file: False
    real = one.backend._observation

    def observation(entry):
        one.backend.failing = lambda _file: broken[0] and entry.injection.flow == LINK.key
        return real(entry)

    one.backend._observation = observation
    one.run(cycles=6)
    rows = [row for row in one.ledger.rows() if row.key == LINK.key]
    assert {row.held.hold for row in rows[2:]} == {Hold.FAILING}
    assert all(row.budget <= DUE / 5 for row in rows[2:])
    assert rows[-1].held.numbers["failed"] > 0.5
    others = [row for row in one.ledger.rows() if row.key != LINK.key]
    assert all(abs(row.injected - DUE) <= GB for row in others)
    broken[0] = False
    one.run(cycles=6)
    rows = [row for row in one.ledger.rows() if row.key == LINK.key]
    assert rows[-1].held is None
    assert rows[-1].injected >= DUE


def test_what_outlives_its_lifetime_is_cancelled_at_a_pace_and_its_files_are_deleted(tmp_path):
    slow = replace(LINK, end=START + 4 * CYCLE, lifetime_min=CYCLE, lifetime_max=CYCLE)
    one = world(tmp_path, campaign([slow]), source_files("A", 400), speed=lambda _link: 1e6, **FTS)
    _drained(one)
    entries = [entry for entry in one.ledger.entries() if entry.accepted_at]
    assert {entry.state for entry in entries} == {State.GONE}
    assert all(rule.ended >= rule.expires for rule in one.backend.rules.values())
    assert all(rule.deleted for rule in one.backend.rules.values())
    (account,) = one.ledger.accounts().values()
    assert account.moved == sum(int(rule.moved) for rule in one.backend.rules.values()) < account.injected


def test_files_are_deleted_until_they_are_known_to_be_gone(tmp_path):
    short = replace(LINK, end=START + CYCLE)
    one = world(tmp_path, campaign([short]), source_files("A", 400), **FTS)
    asked = Counter()
    real = one.backend.remove

    def remove(entries):
        asked.update(entry.injection.key for entry in entries)
        again = one.clock.now() + timedelta(minutes=2)
        late = {e.injection.key for e in entries if asked[e.injection.key] < 3}
        left = [Removal(key, gone=False, again_at=again, error=Temporary("no answer")) for key in sorted(late)]
        return left + real([e for e in entries if e.injection.key not in late])

    one.backend.remove = remove
    _drained(one)
    assert set(asked.values()) == {3}
    assert {entry.state for entry in one.ledger.entries()} == {State.GONE}


def test_the_drain_goes_on_until_transfers_that_were_cancelled_cannot_write_any_more(tmp_path):
    short = replace(LINK, end=START + CYCLE, lifetime_min=CYCLE, lifetime_max=CYCLE)
    one = world(tmp_path, campaign([short]), source_files("A", 400), speed=lambda _link: 1e6, **FTS)
    real, quiet = one.backend.remove, timedelta(hours=3)  # far beyond the cycles that Rucio's reaper is waited for

    def remove(entries):
        over = [e for e in entries if e.ended_at + quiet <= one.clock.now()]
        later = [
            Removal(e.injection.key, gone=False, again_at=e.ended_at + quiet) for e in entries if e not in over
        ]
        return later + real(over)

    one.backend.remove = remove
    _drained(one)
    assert {entry.state for entry in one.ledger.entries() if entry.accepted_at} == {State.GONE}


def test_leaving_with_files_that_cannot_be_deleted_is_told_with_the_way_to_delete_them(tmp_path, caplog):
    caplog.set_level("INFO", "dc_inject")
    short = replace(LINK, end=START + CYCLE)
    one = world(tmp_path, campaign([short]), source_files("A", 400), **FTS)
    one.backend.remove = lambda entries: [
        Removal(e.injection.key, gone=False, error=Temporary("403 for DELETE")) for e in entries
    ]
    _drained(one)
    assert one.clock.now() >= START + timedelta(hours=24)
    assert [line for line in caplog.messages if "`dc-inject end test`, deletes them" in line]
    assert sum("files of ours" in line for line in caplog.messages) == 1


def test_a_dead_destination_holds_up_nothing_else(tmp_path):
    made = campaign([LINK, file_flow("A", "C", 0.8)])
    one = world(tmp_path, made, source_files("A", 400), **FTS)
    asked = Counter()
    real = one.backend.remove

    def remove(entries):
        (destination,) = {entry.injection.link.destination for entry in entries}
        asked[destination] += 1
        if destination == url("B"):
            raise Temporary("no answer in 60 s")
        return real(entries)

    one.backend.remove = remove
    one.run(cycles=4)
    states = {(e.injection.link.destination, e.state) for e in one.ledger.entries()}
    assert (url("C"), State.GONE) in states
    assert (url("B"), State.GONE) not in states
    assert asked[url("B")] <= 5 * 4 + 1, "once a round"
    assert all(abs(row.injected - DUE) <= GB for row in one.ledger.rows())


def test_odd_small_files_beside_the_data_are_not_what_is_injected(tmp_path):
    """A README among files that are larger than a link's due of a cycle."""
    place = url("A")
    stock = source_files("A", 30, 120 * GB)
    stock[place] += [File(f"{place}/data/README", 3), File(f"{place}/data/sums.txt", 4000)]
    one = world(tmp_path, campaign([LINK]), stock, **FTS)
    one.run(cycles=8)
    used = {member.name for rule in one.backend.rules.values() for member in rule.injection.item.members}
    assert not used & {f"{place}/data/README", f"{place}/data/sums.txt"}
    assert abs(sum(row.injected for row in one.ledger.rows()) - 8 * DUE) <= 120 * GB
    assert len(one.backend.rules) <= 8


def test_small_files_do_not_fill_what_is_too_little_for_large_ones(tmp_path):
    place = url("A")
    stock = {place: [File(f"{place}/data/large{n}", 120 * GB) for n in range(5)]
             + [File(f"{place}/data/small", GB)]}  # fmt: skip
    one = world(tmp_path, campaign([LINK]), stock, **FTS)
    one.run(cycles=4)
    files = sum(rule.injection.item.files for rule in one.backend.rules.values())
    assert files <= 4 * 3
    assert abs(sum(row.injected for row in one.ledger.rows()) - 4 * DUE) <= 120 * GB


def test_a_job_that_is_refused_for_good_is_not_asked_for_again_and_again(tmp_path):
    made = campaign([LINK, file_flow("A", "C", 0.8)])
    one = world(tmp_path, made, source_files("A", 400), **FTS)
    real, asked = one.backend.submit, Counter()

    def submit(injections):
        asked[injections[0].link.destination] += 1
        if injections[0].link.destination == url("B"):
            return [Outcome(i.key, error=Permanent("413 Request Entity Too Large")) for i in injections]
        return real(injections)

    one.backend.submit = submit
    one.run(cycles=2)
    assert asked[url("B")] <= 2 * 3
    rows = {(row.key.link.destination, row.cycle.start): row for row in one.ledger.rows()}
    assert rows[url("B"), START].held.hold is Hold.QUARANTINED
    assert rows[url("C"), START].injected == DUE
    assert not one.ledger.quarantined(one.clock.now())


def test_what_does_not_arrive_is_a_backlog_and_not_fed_for_ever(tmp_path):
    slow = replace(LINK, lifetime_min=timedelta(hours=1), lifetime_max=timedelta(hours=1))
    stuck = [True]
    one = world(
        tmp_path, campaign([slow]), source_files("A", 400), speed=lambda _l: 1e3 if stuck[0] else 1e15, **FTS
    )
    one.run(cycles=12)
    rows = one.ledger.rows()
    assert {row.held.hold for row in rows[5:]} == {Hold.BACKLOG}
    assert one.ledger.accounts()[LINK.key].coming <= 6 * DUE
    stuck[0] = False
    one.run(cycles=6)
    assert one.ledger.rows()[-1].held is None


def test_a_link_that_had_nothing_to_move_is_no_link_that_cannot_move(tmp_path):
    """After a stop, and where its scenario begins late, as the steps of a staircase do."""
    late = replace(file_flow("A", "C", 0.8), start=START + 8 * CYCLE, lifetime_max=timedelta(hours=1))
    one = world(tmp_path, campaign([LINK, late]), source_files("A", 400), **FTS)
    one.run(cycles=5)
    one.ledger.pause("*", "me", "", one.clock.now())
    one.run(cycles=6)
    one.ledger.resume("*", "me", "", one.clock.now())
    one.run(cycles=3)
    assert Hold.BACKLOG not in {row.held.hold for row in one.ledger.rows() if row.held}
    assert all(abs(row.injected - DUE) <= 2 * GB for row in one.ledger.rows()[-4:])


def test_many_links_share_the_jobs_of_an_hour_in_larger_bundles(tmp_path):
    links = [replace(file_flow("A", f"B{n:02}", 0.8), job=JobOptions(files=200)) for n in range(40)]
    limits = Limits(total=1e15, per_site=1e15, rules_per_hour=320, files_in_flight=10**9)  # 80 a cycle, two a link
    one = world(tmp_path, campaign(links, limits=limits), source_files("A", 400), **FTS)
    one.run(cycles=4)
    due, injected = (sum(getattr(row, name) for row in one.ledger.rows()) for name in ("due", "injected"))
    assert injected >= 0.97 * due
    assert len(one.backend.rules) <= 4 * 80


def test_a_destination_from_which_nothing_can_be_deleted_is_not_filled(tmp_path):
    one = world(tmp_path, campaign([LINK, file_flow("A", "C", 0.8)]), source_files("A", 400), **FTS)
    real, refuses = one.backend.remove, [True]

    def remove(entries):
        bad = [e for e in entries if refuses[0] and e.injection.link.destination == url("B")]
        told = [Removal(e.injection.key, gone=False, error=Permanent("403 for DELETE")) for e in bad]
        return told + real([e for e in entries if e not in bad])

    one.backend.remove = remove
    one.run(cycles=12)
    rows = {link: [row for row in one.ledger.rows() if row.key.link.destination == url(link)] for link in "BC"}
    assert {row.held.hold for row in rows["B"][7:]} == {Hold.DELETION_LAG}
    assert sum(row.injected for row in rows["B"]) <= 7 * DUE
    assert not any(row.held for row in rows["C"])
    refuses[0] = False
    one.run(cycles=4)
    assert one.ledger.rows()[-2].held is None


def test_the_drain_gives_up_what_nobody_tells_of(tmp_path):
    short = replace(LINK, end=START + CYCLE)
    one = world(tmp_path, campaign([short]), source_files("A", 400), speed=lambda _link: 0.0, **FTS)

    def fault(method, _subject):
        if one.clock.now() > START + CYCLE and method != "check":
            raise Temporary("gone for good")

    one.backend.fault = fault
    with pytest.raises(ServiceError, match="9 jobs"):
        _drained(one)
    assert one.clock.now() <= START + timedelta(hours=30)


def test_no_answer_however_odd_breaks_the_ledger(tmp_path):
    one = world(tmp_path, campaign([LINK]), source_files("A", 400), **FTS)
    real = one.backend.observe
    one.backend.observe = lambda entries, exact=False: [
        seen._replace(files_stuck=10**6, failed=10**15, files_done=-7, moved=10**15, status=Status.COMPLETE)
        for seen in real(entries, exact=exact)
    ]
    one.run(cycles=2)
    (account,) = one.ledger.accounts().values()
    assert account.moved == 0


def test_two_prefixes_of_one_storage_share_what_a_site_may_have(tmp_path):
    other = replace(
        file_flow("C", "D", 0.8), link=LINK.link._replace(destination="davs://b.example.org:8443/more")
    )
    limits = Limits(total=1e15, per_site=0.8e9 / 8, rules_per_hour=10**9, files_in_flight=10**9)
    made = campaign([LINK, other], limits=limits)
    one = world(tmp_path, made, source_files("A", 400), **FTS)
    one.run(cycles=4)
    assert sum(row.injected for row in one.ledger.rows()) <= 4 * DUE + GB
    assert Hold.SITE_LIMIT in {row.held.hold for row in one.ledger.rows() if row.held}


def test_another_account_in_the_middle_holds_everything_until_it_is_ours_again(tmp_path):
    one = world(tmp_path, campaign([LINK]), source_files("A", 400), **FTS)
    real, other = one.backend.check, [False]

    def check():
        identity = real()
        return replace(identity, vo="another") if other[0] else identity

    one.backend.check = check
    engine = one.engine()
    one.heard.at[events.CycleOpened] = lambda: other.__setitem__(0, one.clock.now() >= START + 4 * CYCLE)
    engine.run(until=START + 8 * CYCLE)
    rows = one.ledger.rows()
    assert all(abs(row.injected - DUE) <= GB for row in rows[:4])
    assert {row.held.hold for row in rows[5:]} == {Hold.CREDENTIALS}
    assert sum(row.injected for row in rows[5:]) == 0


def test_a_service_that_does_not_answer_a_removal_is_asked_again(tmp_path):
    short = replace(LINK, end=START + CYCLE)
    one = world(tmp_path, campaign([short]), source_files("A", 400), **FTS)
    faults = [3]

    def fault(method, _subject):
        if method == "remove" and faults[0]:
            faults[0] -= 1
            raise Temporary("503")

    one.backend.fault = fault
    _drained(one)
    assert faults == [0]
    assert {entry.state for entry in one.ledger.entries()} == {State.GONE}


def test_a_service_that_refuses_every_call_is_told_once_in_a_cycle(tmp_path, caplog):
    """Somebody who looks at the log sees it at once, and is not buried in it."""
    one = world(tmp_path, campaign([LINK, file_flow("A", "C", 0.8)]), source_files("A", 90), **FTS)

    def refuses(method, _subject):
        if method == "submit":
            raise Temporary("503")

    one.backend.fault = refuses
    one.run(cycles=3)
    told = [line for line in caplog.messages if line.startswith("fts: api-errors for ")]
    assert 1 <= len(told) <= 3
    assert all(line.endswith(": 503") for line in told)


def test_a_file_set_aside_does_not_go_there_again(tmp_path):
    one = world(tmp_path, campaign([LINK]), source_files("A", 2), **FTS)
    bad, good = (f"{url('A')}/data/000{n}" for n in range(2))
    one.ledger.quarantine(bad, url("B"), "it is not there", START)
    one.run(cycles=1)
    assert {m.name for rule in one.backend.rules.values() for m in rule.injection.item.members} == {good}


def test_an_empty_source_is_a_dry_pool(tmp_path):
    one = world(tmp_path, campaign([LINK]), {}, **FTS)
    one.run(cycles=1)
    assert [row.held.hold for row in one.ledger.rows()] == [Hold.POOL_DRY]


STEPS = [events.Intended, events.Calling, events.Called, events.Answered]
STEPS += [
    events.EndRequested,
    events.EndCalled,
    events.Ended,
    events.Removing,
    events.RemoveCalled,
    events.Removed,
]


@pytest.mark.parametrize("time", [0, 1])
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step_no_file_is_submitted_twice_and_none_is_left(tmp_path, step, time):
    end = START + 2 * CYCLE
    made = campaign([replace(LINK, end=end), file_flow("A", "C", 0.4, end=end)])
    one = world(tmp_path, made, source_files("A", 50), **FTS)
    left = [time]

    def kill():
        if left[0] == 0:
            left[0] = -1
            raise Killed
        left[0] -= 1

    one.heard.at[step] = kill
    with contextlib.suppress(Killed):
        _drained(one)
    assert left == [-1]
    one.ledger.close()
    one.ledger = opened(one.path)
    one.heard.at.clear()
    _drained(one)
    for key, account in one.ledger.accounts().items():
        assert account.injected == account.due == account.moved, key
    assert set(one.backend.rules) == {e.injection.key for e in one.ledger.entries() if e.accepted_at}
    assert {e.state for e in one.ledger.entries()} <= {State.GONE, State.WITHDRAWN}
    assert all(rule.deleted for rule in one.backend.rules.values())
