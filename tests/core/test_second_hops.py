"""Second hops follow from what exists: what waits, and what may not be ended yet."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject.model import Bundle, Dataset, Entry, File, FlowKey, Injection, JobOptions, Link, State, naming
from dc_inject.model.items import bundled, label
from dc_inject.planning.second_hops import Hops, WaitingCopy, second_hops, sum_not_gone_on
from tests.core.builders import CYCLE, START

FIRST, OTHER = FlowKey("one", Link("A", "B")), FlowKey("two", Link("A", "B"))
HOP, ELSEWHERE = FlowKey("one", Link("B", "T")), FlowKey("one", Link("C", "T"))
OPEN = (State.INTENDED, State.CALLED, State.LIVE, State.COMPLETE)


def bound(hops: Hops) -> set[str]:
    """What may not be ended while all second hops go on."""
    return hops.bound(START, dict.fromkeys(hops.waiting, timedelta(hours=1)))


def entry(flow: FlowKey, state: State, name: str = "cms:a") -> Entry:
    """A dataset on a link, in a state."""
    injection = Injection(
        f"{flow} {name}", "camp", CYCLE, flow.scenario, flow.link, Dataset(name, 5, 1), START,
        timedelta(hours=1), "Data Challenge", 3, "me",
    )  # fmt: skip
    return Entry(injection, state)


def test_what_is_complete_waits_and_is_kept_until_it_has_gone_on() -> None:
    """Then the first copy may be ended; the second one not before that is gone."""
    first = entry(FIRST, State.COMPLETE)
    for state in (None, *OPEN):
        second = [] if state is None else [entry(HOP, state)]
        hops = second_hops([first, *second], [HOP])
        assert hops.waiting == {HOP: [WaitingCopy(first, 5)] if state is None else []}
        assert bound(hops) == {second[0].injection.key if state is State.COMPLETE else first.injection.key}
    assert bound(second_hops([entry(HOP, State.COMPLETE)], [HOP])) == set()


def test_what_is_under_way_or_of_another_scenario_does_not_go_on() -> None:
    """Only what is whole there, in the scenario of the second hop."""
    some = [entry(FIRST, State.LIVE), entry(OTHER, State.COMPLETE, "cms:b")]
    assert second_hops(some, [HOP, ELSEWHERE]) == Hops({HOP: [], ELSEWHERE: []}, set(), set())


@given(st.lists(st.tuples(st.sampled_from([FIRST, OTHER, HOP]), st.sampled_from(OPEN), st.sampled_from("abc"))))
@settings(deadline=None, derandomize=True)
def test_of_each_pair_one_is_kept(some: list[tuple[FlowKey, State, str]]) -> None:
    """So that what has gone on is never forgotten, and nothing is kept for ever."""
    entries = list({(flow, name): entry(flow, state, name) for flow, state, name in some}.values())
    hops = second_hops(entries, [HOP])
    firsts = {e.injection.item.name for e in entries if e.injection.flow == FIRST and e.state is State.COMPLETE}
    assert len(bound(hops)) == len(firsts)
    seconds = {e.injection.item.name: e for e in entries if e.injection.flow == HOP}
    assert {one.first.injection.item.name for one in hops.waiting[HOP]} == firsts - seconds.keys()
    assert hops == second_hops(reversed(entries), [HOP]) or len(firsts) > 1


# --------------------------------------------------------------------------- files, through FTS

HERE, THERE, LAST = "davs://a.example.org/dc", "davs://b.example.org/dc", "davs://t.example.org/dc"
JOB = FlowKey("one", Link(HERE, THERE, "fts"))
ON, FORMER = (FlowKey("one", Link(THERE, to, "fts")) for to in (LAST, "davs://u.example.org/dc"))


def job(flow: FlowKey, members: tuple[File, ...], state: State = State.COMPLETE, *, lost: int = 0) -> Entry:
    """A job whose last `lost` files did not arrive."""
    size, bad = sum(file.bytes for file in members), members[len(members) - lost :]
    copy = naming.read_copy(flow.link.source, members[0].name)
    item = replace(bundled(members, copy.key if copy else ""), label=label(members, START, 0))
    key = naming.key("camp", flow.scenario, CYCLE.start, flow.link, item.name)
    injection = Injection(
        key, "camp", CYCLE, flow.scenario, flow.link,
        item, START,
        timedelta(hours=1), "Data Challenge", 3, "me", JobOptions(), keeps_files=True,
    )  # fmt: skip
    arrived = size - sum(file.bytes for file in bad)
    return Entry(injection, state, moved=arrived, failed=size - arrived, undone=tuple(file.name for file in bad))


def sources(count: int) -> tuple[File, ...]:
    """Files at the source, the n-th one of n bytes."""
    return tuple(File(f"{HERE}/data/{n}", n, f"adler32:{n:08x}") for n in range(1, count + 1))


def unnamed(one: Entry) -> Entry:
    """The same without the names of its files."""
    item = one.injection.item
    return (
        replace(one, injection=replace(one.injection, item=replace(item, members=())))
        if isinstance(item, Bundle)
        else one
    )


def goes_on(*entries: Entry, unfit: frozenset[tuple[str, str]] = frozenset()) -> list[Bundle]:
    """What waits for a hop; the files are named for those alone that wait."""
    found = second_hops(map(unnamed, entries), {ON, FORMER}).waiting[ON]
    named = {entry.injection.key: entry for entry in entries}
    items = (sum_not_gone_on(one.named(named), LAST, unfit) for one in found)
    return [item for item in items if isinstance(item, Bundle)]


def waiting(*entries: Entry, unfit: frozenset[tuple[str, str]] = frozenset()) -> tuple[File, ...]:
    """The copies that wait, all together."""
    return tuple(file for item in goes_on(*entries, unfit=unfit) for file in item.members)


def test_the_files_of_a_job_that_arrived_go_on_as_the_copies_that_they_are() -> None:
    """With the size and checksum of what they are copies of; what failed does not go on."""
    first = job(JOB, sources(4), lost=1)
    (item,) = goes_on(first)
    assert [file.name for file in item.members] == naming.copies(first.injection)[:3]
    assert [file.bytes for file in item.members] == [1, 2, 3]
    assert [file.checksum for file in item.members] == [file.checksum for file in sources(3)]
    assert (item.files, item.bytes, item.copied_by) == (3, 6, first.injection.key)


def test_what_fails_on_its_way_further_waits_again_and_the_first_copy_stays_for_it() -> None:
    """And what has gone on does not go on again: the second copy stays, too, until the first one has ended."""
    first = job(JOB, sources(3))
    copies = waiting(first)
    for state in OPEN[:3]:
        under_way = job(ON, copies, state)
        assert waiting(first, under_way) == ()
        assert bound(second_hops([first, under_way], [ON])) == {first.injection.key}
    second = job(ON, copies, lost=1)
    assert waiting(first, second) == copies[2:]
    assert bound(second_hops([first, second], [ON])) == {first.injection.key, second.injection.key}
    third = job(ON, copies[2:])
    assert waiting(first, second, third) == ()
    assert bound(second_hops([first, second, third], [ON])) == {second.injection.key, third.injection.key}


def test_a_file_that_would_fail_again_keeps_nothing_waiting() -> None:
    """For that destination."""
    first = job(JOB, sources(2))
    copies = waiting(first)
    second = job(ON, copies, lost=1)
    unfit = frozenset({(copies[1].name, LAST)})
    assert waiting(first, second) == copies[1:]
    assert waiting(first, second, unfit=unfit) == ()


def test_files_that_nobody_can_name_do_not_go_on() -> None:
    """As after a rebuild, or where FTS does not say which files failed."""
    whole = job(JOB, sources(2))
    rebuilt = replace(whole, injection=replace(whole.injection, keeps_files=False))
    unsure = replace(job(JOB, sources(2), lost=1), undone=())
    for first in (rebuilt, unsure):
        assert second_hops([first], [ON]) == Hops({ON: []}, set(), set())
    assert goes_on(unnamed(whole)) == []
    assert goes_on(replace(job(JOB, sources(2), lost=1), undone=("another name",))) == []


def test_a_second_job_of_which_nothing_arrived_is_not_kept() -> None:
    """Only the first copy is: it goes on with another one."""
    first = job(JOB, sources(2))
    second = job(ON, waiting(first), lost=2)
    assert bound(second_hops([first, second], [ON])) == {first.injection.key}


def test_what_has_gone_on_with_a_hop_that_was_does_not_go_on_with_the_one_that_is() -> None:
    """And its first copy stays while it is read, although nothing goes on with that hop any more."""
    first, was = job(JOB, sources(3)), FORMER
    for state in OPEN[:3]:
        found = second_hops([first, job(was, waiting(first), state)], [ON, was])
        assert found == Hops({ON: [], was: []}, {first.injection.key}, set())
        assert found.bound(START, {ON: timedelta(hours=1)}) == {first.injection.key}
    assert waiting(first, job(was, waiting(first), lost=1)) == waiting(first)[2:]


def test_of_a_second_job_of_which_nobody_knows_what_failed_nothing_goes_on_twice() -> None:
    """Neither what arrived nor what failed, since that cannot be told apart."""
    first = job(JOB, sources(3))
    second = replace(job(ON, waiting(first), lost=1), undone=())
    assert waiting(first, second) == ()
    assert second_hops([first, second], [ON]) == Hops({ON: []}, set(), {second.injection.key})


def test_what_is_too_old_is_not_kept_for_a_hop_and_what_is_read_always() -> None:
    """`bound` are those that can still go on with a hop at which anything goes on."""
    first = replace(job(JOB, sources(3)), expires_at=START + timedelta(hours=1))
    key = first.injection.key
    found = second_hops([first], [ON])
    assert found.bound(START, {ON: timedelta(hours=1)}) == {key}
    assert found.bound(START, {ON: timedelta(hours=1, seconds=1)}) == set()
    assert found.bound(START, {}) == set()
    assert second_hops([first, job(ON, waiting(first), State.LIVE)], [ON]).bound(START, {}) == {key}
    asked = replace(first, end_asked_at=START)
    assert second_hops([asked], [ON]).bound(START, {ON: timedelta(hours=1)}) == set()


def test_files_of_a_link_that_was_no_second_hop_before_stand_for_no_copies() -> None:
    """A menu may have been edited."""
    first = job(JOB, sources(3))
    plain = job(ON, (File(f"{THERE}/data/1", 1),), State.LIVE)
    assert len(waiting(first, plain)) == 3
