"""Second hops follow from what exists: what waits, and what may not be ended yet."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject import reconcile
from dc_inject.model import Entry, FlowKey, Injection, Item, Link, State
from tests.core.builders import CYCLE, START

FIRST, OTHER = FlowKey("one", Link("A", "B")), FlowKey("two", Link("A", "B"))
HOP, ELSEWHERE = FlowKey("one", Link("B", "T")), FlowKey("one", Link("C", "T"))
OPEN = (State.INTENDED, State.CALLED, State.LIVE, State.COMPLETE)


def entry(flow: FlowKey, state: State, name: str = "cms:a") -> Entry:
    """A dataset on a link, in a state."""
    injection = Injection(
        f"{flow} {name}", "camp", CYCLE, flow.scenario, flow.link, Item(name, 5, 1), START,
        timedelta(hours=1), "Data Challenge", 3, "me",
    )  # fmt: skip
    return Entry(injection, state)


def test_what_is_complete_waits_and_is_kept_until_it_has_gone_on() -> None:
    """Then the first copy may be ended; the second one not before that is gone."""
    first = entry(FIRST, State.COMPLETE)
    for state in (None, *OPEN):
        second = [] if state is None else [entry(HOP, state)]
        hops = reconcile.second_hops([first, *second], [HOP])
        assert hops.waiting == {HOP: [first] if state is None else []}
        assert hops.bound == {second[0].injection.key if state is State.COMPLETE else first.injection.key}
    assert reconcile.second_hops([entry(HOP, State.COMPLETE)], [HOP]).bound == set()


def test_what_is_under_way_or_of_another_scenario_does_not_go_on() -> None:
    """Only what is whole there, in the scenario of the second hop."""
    some = [entry(FIRST, State.LIVE), entry(OTHER, State.COMPLETE, "cms:b")]
    assert reconcile.second_hops(some, [HOP, ELSEWHERE]) == reconcile.Hops({HOP: [], ELSEWHERE: []}, set())


@given(st.lists(st.tuples(st.sampled_from([FIRST, OTHER, HOP]), st.sampled_from(OPEN), st.sampled_from("abc"))))
@settings(deadline=None, derandomize=True)
def test_of_each_pair_one_is_kept(some: list[tuple[FlowKey, State, str]]) -> None:
    """So that what has gone on is never forgotten, and nothing is kept for ever."""
    entries = list({(flow, name): entry(flow, state, name) for flow, state, name in some}.values())
    hops = reconcile.second_hops(entries, [HOP])
    firsts = {e.injection.item.name for e in entries if e.injection.flow == FIRST and e.state is State.COMPLETE}
    assert len(hops.bound) == len(firsts)
    seconds = {e.injection.item.name: e for e in entries if e.injection.flow == HOP}
    assert {e.injection.item.name for e in hops.waiting[HOP]} == firsts - seconds.keys()
    assert hops == reconcile.second_hops(reversed(entries), [HOP]) or len(firsts) > 1
