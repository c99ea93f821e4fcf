"""Second hops and first copies: none is deleted while it is read, or about to be; none goes on twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.ledger.check import check as contradictions
from dc_inject.model import Campaign, naming
from dc_inject.model.errors import Permanent, Temporary
from dc_inject.model.events import Answered
from dc_inject.model.goals import Volume
from tests.apps.rebuild.test_rebuilding import rebuild
from tests.engine.test_second_hops import FTS, file_hop, hop, jobs_of
from tests.engine.world import CYCLE, GB, START, campaign, file_flow, flow, items, source_files, url, world

END = START + 4 * CYCLE
LONG = {"lifetime_max": timedelta(hours=6)}


def slow(rate):
    """Speeds of links: what lands in B lands at once, what goes on from there at this rate."""
    return lambda link: 1e15 if link.source in {"A", url("A")} else rate


def read_in_vain(one, first):
    """Second copies whose first copy was ended before they were complete or ended, with the two moments."""
    ends = {copy: rule.ended for rule in jobs_of(one, first) for copy in _copies(rule.injection)}
    assert one.backend.rules.keys() - {rule.injection.key for rule in jobs_of(one, first)}, "something goes on"
    return [
        (name, ends[name], rule.completed or rule.ended)
        for rule in one.backend.rules.values()
        if rule.injection.link != first.link
        for name in _sources(rule.injection)
        if ends[name] and not any(done and done <= ends[name] for done in (rule.completed, rule.ended))
    ]


def times_gone_on(one, first):
    """How often each copy went on."""
    seconds = (rule.injection for rule in one.backend.rules.values() if rule.injection.link != first.link)
    return Counter(name for injection in seconds for name in _sources(injection))


def _copies(injection):
    return naming.copies(injection) if injection.job else [injection.item.name]


def _sources(injection):
    return [file.name for file in injection.item.members] if injection.job else [injection.item.name]


@pytest.mark.parametrize("service", ["rucio", "fts"])
def test_after_the_window_what_is_on_its_way_further_still_has_its_first_copy(tmp_path, service):
    if service == "fts":
        first, then = file_flow("A", "B", 0.8, end=END, **LONG), file_hop("B", "T", 0.8, end=END)
        one = world(tmp_path, campaign([first, then]), source_files("A", 400), speed=slow(0.05e9), **FTS)
    else:
        first, then = flow("A", "B", 4, end=END, **LONG), hop("B", "T", 4, end=END)
        one = world(tmp_path, campaign([first, then]), {"A": items("A", 100, 50 * GB)}, speed=slow(0.2e9))
    one.settings = replace(one.settings, drain=True)
    one.run()
    assert not read_in_vain(one, first)
    assert END + CYCLE < one.clock.now() < END + timedelta(hours=3), (
        "they were slow, and nothing else was waited for"
    )


@pytest.mark.parametrize("after", ["without", "elsewhere"])
def test_an_edited_menu_leaves_the_first_copies_of_what_is_on_its_way_further(tmp_path, after):
    """Without `then` nothing more goes on; with another end what has gone on does not go there, too."""
    first, then = file_flow("A", "B", 0.8, end=START + 8 * CYCLE, **LONG), file_hop("B", "T", 0.8)
    flows = [[first, then]]
    one = world(tmp_path, lambda: campaign(flows[0]), source_files("A", 400), speed=slow(0.05e9), **FTS)
    one.run(cycles=4)
    before = times_gone_on(one, first)
    other = file_hop("B", "U", 0.8)
    flows[0] = [first] if after == "without" else [first, other]
    one.run(cycles=12)
    assert not read_in_vain(one, first)
    assert set(times_gone_on(one, first).values()) == {1}
    assert len(before) == len(times_gone_on(one, first)) or after == "elsewhere"
    assert bool(jobs_of(one, other)) == (after == "elsewhere")


def test_jobs_from_before_an_edit_that_brings_second_hops_do_not_go_on_and_do_not_stay(tmp_path):
    first, then = file_flow("A", "B", 0.8, **LONG), file_hop("B", "T", 0.8)
    flows = [[first]]
    one = world(tmp_path, lambda: campaign(flows[0]), source_files("A", 400), speed=lambda _link: 0.1e9, **FTS)
    one.run(cycles=2)
    before = {name for rule in jobs_of(one, first) for name in _copies(rule.injection)}
    flows[0] = [first, then]
    one.run(cycles=4)
    assert times_gone_on(one, first)
    assert before.isdisjoint(times_gone_on(one, first))
    assert all(rule.ended for rule in jobs_of(one, first) if before.intersection(_copies(rule.injection)))


def test_what_landed_on_one_day_goes_on_on_the_next(tmp_path):
    """Whatever the order of their menus."""
    days = [(START, END), (END, START + 12 * CYCLE)]
    made = [
        campaign([file_flow("A", "B", 0.8, start=a, end=b, **LONG), file_hop("B", "T", 0.8, start=a, end=b)])
        for a, b in days
    ]
    two = Campaign("test", made[0].contact, CYCLE, (replace(made[1].menus[0], name="first.yaml"), *made[0].menus))
    one = world(tmp_path, two, source_files("A", 1000), speed=lambda _link: 0.12e9, **FTS)
    one.settings = replace(one.settings, drain=True)
    one.run()
    first, then = made[0].flows
    accounts = one.ledger.accounts()
    assert not read_in_vain(one, first)
    assert accounts[then.key].moved > 0.8 * accounts[first.key].moved


def test_what_is_about_to_go_on_keeps_its_first_copy_and_ends_before_it(tmp_path):
    """Also where the least lifetime is over between the plan and the release."""
    first = file_flow("A", "B", 0.8, end=START + CYCLE, lifetime_max=timedelta(hours=2))
    then = file_hop("B", "T", 0.4, end=START + 12 * CYCLE, lifetime_min=timedelta(minutes=100))
    one = world(tmp_path, campaign([first, then]), source_files("A", 400), speed=slow(0.01e9), **FTS)
    one.run(cycles=12)
    assert not read_in_vain(one, first)
    ends = {copy: rule.expires for rule in jobs_of(one, first) for copy in naming.copies(rule.injection)}
    for rule in jobs_of(one, then):
        assert rule.expires < ends[rule.injection.item.members[0].name]


def test_what_waits_to_be_asked_for_again_keeps_its_first_copy(tmp_path):
    """Also when by then nothing more of that age would go on."""
    first = file_flow("A", "B", 4, end=START + CYCLE, lifetime_max=timedelta(hours=2))
    then = file_hop("B", "T", 4, end=START + 12 * CYCLE, lifetime_min=timedelta(minutes=100))
    one = world(tmp_path, campaign([first, then]), source_files("A", 400), speed=slow(0.1e9), **FTS)

    def fault(method, subject):
        if method == "submit" and subject[0].link == then.link and one.clock.now() < START + 1.6 * CYCLE:
            raise Temporary("try again later")

    one.backend.fault = fault
    one.run(cycles=12)
    assert min(rule.created for rule in jobs_of(one, then)) >= START + 1.6 * CYCLE
    assert not read_in_vain(one, first)


def test_a_second_copy_ends_with_its_own_lifetime_where_that_is_shorter(tmp_path):
    """As after an edit of the menu; one of its files fails each time, for which the first copies stay."""
    first = file_flow("A", "B", 0.8, end=START + CYCLE, **LONG)
    then = file_hop("B", "T", 0.8, end=START + 20 * CYCLE, lifetime_max=timedelta(hours=1))
    bad = {f"{url('B')}/"}

    def failing(file):
        return any(file.name.startswith(place) and "/0000-" in file.name for place in bad)

    one = world(tmp_path, campaign([first, then]), source_files("A", 400), failing=failing, **FTS)
    one.run(cycles=12)
    assert jobs_of(one, then)
    for rule in jobs_of(one, then):
        assert rule.expires + CYCLE > one.clock.now() or rule.ended <= rule.expires + timedelta(minutes=10)


def test_nothing_is_chosen_of_what_is_set_aside_or_too_old(tmp_path):
    first = flow("A", "B", 4, end=START + CYCLE, lifetime_max=timedelta(hours=3), dwell=timedelta(hours=3))
    then = hop("B", "T", 4, end=START + timedelta(hours=6))
    one = world(tmp_path, campaign([first, then]), {"A": items("A", 100, 50 * GB)})
    names = [item.name for item in items("A", 100)]

    def aside():
        for name in names:
            one.ledger.quarantine(name, "T", "it is bad", START, until=START + 9.5 * CYCLE)

    aside()
    one.run(cycles=11)
    rows = [row for row in one.ledger.rows() if row.key == then.key]
    assert {row.due for row in rows} == {0}, "too old when it could have gone on"
    assert {row.pool_items for row in rows[1:]} == {0}
    assert not jobs_of(one, then)


def test_a_run_does_not_end_before_what_has_just_landed_has_gone_on(tmp_path):
    """Also when nothing is on its way, and nothing was due in this cycle."""
    first, then = file_flow("A", "B", 0.8, goal=Volume(10 * GB), **LONG), file_hop("B", "T", 0.8)
    one = world(tmp_path, campaign([first, then]), source_files("A", 400), speed=lambda _link: 1e7, **FTS)
    one.settings = replace(one.settings, drain=True)
    one.run()
    assert one.ledger.accounts()[then.key].moved == 10 * GB
    assert one.clock.now() < START + timedelta(hours=3)


def test_whatever_happens_to_jobs_of_a_second_hop_all_goes_on_once_and_the_account_is_exact(tmp_path):
    """Refused for good, lost before and after they were carried out: what was due is what was moved."""
    first, then = file_flow("A", "B", 0.8, goal=Volume(90 * GB), **LONG), file_hop("B", "T", 0.4)
    one = world(tmp_path, campaign([first, then]), source_files("A", 120), speed=lambda _link: 0.1e9, **FTS)
    calls = Counter()

    def trouble(when, faults):
        def happens(method, subject):
            if method == "submit" and subject[0].link == then.link:
                calls[when] += 1
                if calls[when] in faults:
                    raise faults[calls[when]]

        return happens

    lost, refused = Temporary("no answer", lost=True), Permanent("such jobs are not taken")
    one.backend.fault = trouble("before", {1: refused, 2: lost, 4: refused})
    one.backend.answer = trouble("after", {1: lost, 3: lost})
    one.settings = replace(one.settings, drain=True)
    one.run()
    accounts = one.ledger.accounts()
    assert accounts[then.key].moved == accounts[first.key].moved == 90 * GB
    assert accounts[then.key].due - accounts[then.key].forgiven == 90 * GB
    assert set(times_gone_on(one, first).values()) == {1}
    assert not read_in_vain(one, first)
    assert not [found for found in contradictions(one.ledger.path) if not found.note]


def test_of_more_than_a_cycle_can_have_goes_on_what_will_be_deleted_first(tmp_path, monkeypatch):
    """No more files are looked up than that; all that waits is due all the same."""
    first = file_flow("A", "B", 0.8, end=START + 3 * CYCLE, **LONG)
    then = file_hop("B", "T", 8, start=START + 3 * CYCLE)
    monkeypatch.setattr("dc_inject.engine.second_hops.MOST_FILES", 40)
    one = world(tmp_path, campaign([first, then]), source_files("A", 400), **FTS)
    one.run(cycles=4)
    (row,) = (row for row in one.ledger.rows() if row.key == then.key and row.cycle.start == START + 3 * CYCLE)
    assert row.due > 4 * row.injected == 4 * 50 * GB
    gone_on = times_gone_on(one, first)
    jobs = sorted(jobs_of(one, first), key=lambda rule: (rule.expires, rule.injection.key))
    assert {name for rule in jobs[:5] for name in _copies(rule.injection)} == gone_on.keys()
    one.run(cycles=6)
    assert len(times_gone_on(one, first)) == 270


def test_end_on_stop_leaves_what_a_second_hop_reads_from(tmp_path):
    first, then = file_flow("A", "B", 0.8, **LONG), file_hop("B", "T", 0.4)
    one = world(tmp_path, campaign([first, then]), source_files("A", 400), speed=slow(0.02e9), **FTS)
    one.settings = replace(one.settings, end_on_stop=True)
    engine = one.engine()
    one.heard.at[Answered] = lambda: engine.stop() if one.clock.now() > START + 3 * CYCLE else None
    engine.run(until=START + 5 * CYCLE)
    unfinished = {n for rule in jobs_of(one, then) if not rule.completed for n in _sources(rule.injection)}
    for rule in jobs_of(one, first):
        assert (rule.ended is None) == (
            rule.completed is None or not unfinished.isdisjoint(_copies(rule.injection))
        )
    assert {rule.ended is None for rule in jobs_of(one, first)} == {True, False}


def test_after_a_rebuild_what_is_on_its_way_further_keeps_its_first_copy(tmp_path):
    """Nothing more of what is there goes on; what is injected from then on does."""
    first, then = file_flow("A", "B", 0.8, **LONG), file_hop("B", "T", 0.8)
    one = world(tmp_path, campaign([first, then]), source_files("A", 400), speed=slow(0.05e9), **FTS)
    one.run(cycles=3)
    before = times_gone_on(one, first)
    rebuild(one)
    one.run(cycles=8)
    assert not read_in_vain(one, first)
    after = times_gone_on(one, first)
    assert set(after.values()) == {1}
    assert len(after) > len(before)


def test_a_second_copy_that_cannot_be_cancelled_yet_is_waited_for(tmp_path):
    """Both have to go at the end of their lifetimes; what is read goes last."""
    first = file_flow("A", "B", 4, end=START + CYCLE, lifetime_max=timedelta(hours=2))
    one = world(
        tmp_path,
        campaign([first, file_hop("B", "T", 4, end=START + 12 * CYCLE)]),
        source_files("A", 800),
        speed=slow(0.001e9),
        **FTS,
    )

    def fault(method, subject):
        seconds = method == "end" and any(entry.injection.link != first.link for entry in subject)
        if seconds and one.clock.now() < START + 10 * CYCLE:
            raise Temporary("it cannot be cancelled now", lost=False)

    one.backend.fault = fault
    one.run(cycles=16)
    assert not read_in_vain(one, first)
    assert all(rule.ended and rule.ended < START + 11 * CYCLE for rule in one.backend.rules.values())
