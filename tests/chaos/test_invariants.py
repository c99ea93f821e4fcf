"""The invariants see what is wrong: each one is violated by what it is there for, and by nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dc_inject.model import Cycle, Dataset, Entry, Injection, Link, State
from tests.chaos import invariants
from tests.chaos.truth import Rule, Truth

START = datetime(2027, 2, 8, 10, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LINK = Link("A", "B")


def _entry(number, **more):
    injection = Injection(
        key=f"key-{number}", campaign="chaos", cycle=Cycle(START, 4 * SECOND), scenario="test", link=LINK,
        item=Dataset(f"cms:/data#{number}", 100, 2), release=START, lifetime=600 * SECOND,
        activity="Data Challenge", service_priority=3, contact="chaos@example.org",
    )  # fmt: skip
    times = {
        "called_at": START,
        "accepted_at": START + SECOND,
        "completed_at": START + 2 * SECOND,
        "ended_at": START + 4 * SECOND,
    }
    return Entry(injection, State.GONE, f"rule-{number}", moved=100, moved_exact=True, **(times | more))


def _rule(number, **more):
    known = Rule(
        f"rule-{number}", f"cms:/data#{number}", "B", "A", START, [START + 600 * SECOND], START + 4 * SECOND
    )
    return replace(known, **{"bytes": 100, "arrived": 100, **more})


def _violated(entries, rules):
    truth = Truth(Path("none.db"), "dcops")
    told = {rule.id: rule for rule in rules}
    found = [
        *invariants._known(entries, told),
        *invariants._existing(entries, told),
        *invariants._once(entries, told, truth),
        *invariants._untouched(entries, told),
        *invariants._over(entries, told),
        *invariants._lifetimes(told),
    ]
    return {violation.promise for violation in found}


def test_what_is_as_it_should_be_violates_nothing():
    assert _violated([_entry(1), _entry(2)], [_rule(1), _rule(2)]) == set()


@pytest.mark.parametrize(
    ("promise", "entries", "rules"),
    [
        ("known", [], [_rule(1)]),
        ("known", [_entry(1)], []),
        ("known", [_entry(1, accepted_at=None)], [_rule(1)]),
        ("known", [_entry(1)], [_rule(1, destination="C")]),
        ("known", [_entry(1)], [_rule(1, item="cms:/data#2")]),
        ("drained", [_entry(1)], [_rule(1, ended=None)]),
        ("drained", [replace(_entry(1), state=State.LIVE)], [_rule(1)]),
        ("lifetime", [_entry(1)], [_rule(1, expiries=[START + 600 * SECOND, START + 601 * SECOND])]),
        ("lifetime", [_entry(1)], [_rule(1, ended=START + 600 * SECOND + 2 * invariants.CLEANING)]),
        ("others", [_entry(1)], [_rule(1, expiries=[START + 600 * SECOND, START + 5 * SECOND])]),
        ("once", [_entry(1), replace(_entry(1), external_id="rule-2")], [_rule(1), _rule(2, item="cms:/data#1")]),
    ],
)
def test_each_promise_is_seen_to_be_broken(promise, entries, rules):
    assert promise in _violated(entries, rules)


def test_an_end_that_was_asked_for_twice_is_no_prolongation():
    expiries = [START + 600 * SECOND, START + 5 * SECOND, START + 7 * SECOND]
    asked = _entry(1, end_asked_at=START + 4 * SECOND)
    assert _violated([asked], [_rule(1, expiries=expiries)]) == set()
