"""What is left of a campaign after a stop, for every command that reports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from dc_inject.model import Bundle, Cycle, Entry, Injection, Link, State
from dc_inject.model.errors import LedgerBroken, Temporary
from dc_inject.summary import left
from dc_inject.summary.left import EndState, Left

NOW = datetime(2027, 2, 8, 10, tzinfo=UTC)
RULES, JOBS = Link("A", "B"), Link("davs://a.example.org/dc", "davs://b.example.org/dc", "fts")


def entry(link: Link, state: State, *, asked: bool = False, hours: float = 1) -> Entry:
    injection = Injection(
        key=f"{link} {state} {asked}",
        campaign="dc27",
        cycle=Cycle(NOW, timedelta(minutes=15)),
        scenario="export",
        link=link,
        item=Bundle("", 9, 3),
        release=NOW,
        lifetime=timedelta(hours=hours),
        activity="",
        service_priority=0,
        contact="",
    )
    end = injection.release + injection.lifetime
    return Entry(injection, state, accepted_at=NOW, expires_at=end, end_asked_at=NOW if asked else None)


def found(*entries: Entry) -> Left:
    def of(*states: State) -> Sequence[Entry]:
        return [one for one in entries if one.state in states]

    return left.find(of)


def test_all_but_what_is_gone_and_ended_rules_is_left():
    everything = [
        entry(link, state, asked=asked) for link in (RULES, JOBS) for state in State for asked in (True, False)
    ]
    one = found(*everything)
    in_service = {State.CALLED, State.LIVE, State.COMPLETE}
    assert {(e.injection.link, e.state) for e in one.live} == {(x, s) for x in (RULES, JOBS) for s in in_service}
    assert len(one.asked) == len(one.live)
    assert {(e.injection.link, e.state) for e in one.ended} == {(JOBS, State.ENDED)}
    assert one.fields("dc27") == {"campaign": "dc27", "live": 6, "asked": 6, "ended": 2}


def test_ended_reads_have_left_nothing():
    reads = Link("root://a.example.org//dc", "T2_DE_DESY", "reads")
    one = found(entry(reads, State.ENDED))
    assert (len(one.ended), one.files, bool(one)) == (1, 0, False)
    assert found(entry(JOBS, State.ENDED)).files == 3


def test_asked_rules_need_no_action_after_a_complete_end():
    one = found(entry(RULES, State.LIVE, asked=True))
    assert one.after(EndState.INTERRUPTED)
    assert not one.after(EndState.COMPLETE)
    assert found(entry(JOBS, State.LIVE, asked=True)).after(EndState.COMPLETE)


@pytest.mark.parametrize(
    ("refusing", "end_state", "entries", "named"),
    [
        ("", EndState.FAILED, [entry(RULES, State.LIVE)], "`dc-inject end dc27 --cancel`"),
        ("root", EndState.FAILED, [entry(RULES, State.LIVE)], "root"),
        ("", EndState.INTERRUPTED, [], "nothing"),
    ],
)
def test_the_last_line_names_the_command_or_who_may_not_end_it(refusing, end_state, entries, named):
    lines = replace(found(*entries), refusing=refusing).lines("dc27", end_state)
    assert len(lines) == len(entries) + 1
    assert named in lines[-1]
    assert found().lines("dc27", EndState.COMPLETE) == []


def test_jobs_can_be_ended_without_cancelling_once_the_last_lifetime_is_over():
    jobs = found(entry(JOBS, State.LIVE, hours=1), entry(JOBS, State.COMPLETE, hours=2), entry(RULES, State.LIVE))
    assert jobs.active_jobs(NOW) == (2, NOW + timedelta(hours=2))
    assert jobs.active_jobs(NOW + timedelta(hours=3)) == (2, None)
    assert found(entry(JOBS, State.LIVE, asked=True)).active_jobs(NOW) == (1, None)


def test_the_hint_of_a_broken_ledger_or_of_a_service_does_not_suffice():
    assert not left.hint_suffices(LedgerBroken("the disk is full", "free some space"))
    assert not left.hint_suffices(Temporary("FTS did not answer"))
    assert left.add_ways_on("dc27", None, "") == "`dc-inject end dc27 --cancel` ends what is left"
