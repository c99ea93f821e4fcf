"""Ending on demand: what is complete at once, what is not at a pace, and everything can be done twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from dc_inject.backends.sim import InlineExecutor, SimBackend, SimClock
from dc_inject.engine.ending import ManualEnd, files_left
from dc_inject.engine.reconciler import IN_SERVICE
from dc_inject.ledger.reading import Reader
from dc_inject.model import Cycle, Dataset, Entry, Injection, Link, State, naming
from dc_inject.model.errors import NeedsOperator, ServiceError, Temporary
from dc_inject.model.ports import Observation, Status
from dc_inject.planning.reconcile import next_cancel

START = datetime(2027, 2, 8, 10, tzinfo=UTC)
CYCLE = Cycle(START, timedelta(minutes=15))
LINK = Link("A", "B")
JOBS = Link("davs://a.example.org/dc", "davs://b.example.org/dc", "fts")
GB = 10**9
HOUR = timedelta(hours=1)


@dataclass
class Book:
    """A record that keeps what is written."""

    asked: list[tuple[datetime, str]] = field(default_factory=list)
    seen: dict[str, Observation] = field(default_factory=dict)
    withdrawn: list[str] = field(default_factory=list)

    def end_asked(self, keys: Sequence[str], now: datetime) -> None:
        self.asked += [(now, key) for key in keys]

    def observe(self, observations: Sequence[Observation], now: datetime) -> None:
        self.seen |= {observation.key: observation for observation in observations}

    def withdraw(self, keys: Sequence[str], why: str, now: datetime) -> None:
        self.withdrawn += keys


@dataclass
class World:
    """Rules in a simulated service, and an ending of them."""

    clock: SimClock
    backend: SimBackend
    book: Book
    entries: list[Entry]
    ending: ManualEnd


def world(count: int, *, moved: float = 0.0) -> World:
    """`count` rules of 100 GB and 50 files each, each of which has moved this part of its bytes."""
    clock, book = SimClock(START), Book()
    items = [Dataset(f"cms:/data#{number:04}", 100 * GB, 50) for number in range(count)]
    backend = SimBackend(clock, {"A": items})
    injections = [
        Injection(
            key=naming.key("test", "export", START, LINK, item.name),
            campaign="test",
            cycle=CYCLE,
            scenario="export",
            link=LINK,
            item=item,
            release=START,
            lifetime=timedelta(days=2),
            activity="Data Challenge",
            service_priority=3,
            contact="test@example.org",
        )
        for item in items
    ]
    outcomes = backend.submit(injections)
    backend.speed = lambda _link: 0.0
    for rule in backend.rules.values():
        rule.moved = moved * 100 * GB
        rule.completed = START if moved == 1 else None
    entries = [
        Entry(injection, State.LIVE, outcome.external_id, accepted_at=START)
        for injection, outcome in zip(injections, outcomes, strict=True)
    ]
    ending = ManualEnd(backends={"rucio": backend}, clock=clock, executor=InlineExecutor(clock), record=book)
    return World(clock, backend, book, entries, ending)


@pytest.mark.parametrize(
    ("last", "now", "per_hour", "moment"),
    [
        (None, START, 600, START),  # the first one goes at once
        (START, START, 600, START + timedelta(seconds=6)),
        (START, START + timedelta(seconds=2), 600, START + timedelta(seconds=6)),
        (START, START + timedelta(seconds=6), 600, START + timedelta(seconds=6)),
        (START, START + HOUR, 600, START + HOUR),  # time lost is not made up
        (START + HOUR, START, 600, START + timedelta(seconds=6)),  # a clock that stepped back
        (START, START, 1, START + HOUR),
        (START, START, 0.5, START + 2 * HOUR),
    ],
)
def test_the_pace(last: datetime | None, now: datetime, per_hour: float, moment: datetime) -> None:
    """An hour / rate after the last one, never before now, and no burst after a delay."""
    assert next_cancel(last, now, per_hour) == moment


class SteppingClock(SimClock):
    """A clock that is put back by some hours in the middle of a wait."""

    hours = 5

    def advance(self, moment: datetime) -> None:
        self._now = self._now + (moment - self._now) / 2 - HOUR if self.hours else moment
        self.hours = max(self.hours - 1, 0)


def test_a_clock_that_is_put_back_while_we_wait_does_not_make_the_wait_longer() -> None:
    """But for what of it had passed."""
    clock = SteppingClock(START)
    ending = ManualEnd(backends={}, clock=clock, executor=InlineExecutor(clock), record=Book())
    ending.wait(START + timedelta(minutes=2))
    assert START - 5 * HOUR <= clock.now() <= START - 5 * HOUR + timedelta(minutes=12)


def test_complete_rules_end_at_once_and_in_one_go() -> None:
    """50 complete rules end without any time passing, each written down before it is asked for."""
    w = world(50, moved=1.0)
    standing = w.ending.observe(w.entries)
    assert (len(standing.complete), len(standing.unfinished), files_left(standing.unfinished)) == (50, 0, 0)
    outcomes = list(w.ending.end(standing.complete))
    assert len(outcomes) == 50
    assert all(outcome.error is None for outcome in outcomes)
    assert w.clock.now() == START
    assert {key for _, key in w.book.asked} == {entry.injection.key for entry in w.entries}
    assert w.ending.observe(w.entries).gone == 50


def test_unfinished_rules_are_counted_with_the_files_that_would_be_cancelled() -> None:
    """Of 50 files 20 have arrived: 30 are left for each rule."""
    w = world(3, moved=0.4)
    standing = w.ending.observe(w.entries)
    assert (len(standing.complete), len(standing.unfinished), files_left(standing.unfinished)) == (0, 3, 90)


def test_cancelling_keeps_the_pace() -> None:
    """At 600 an hour the rules go 6 seconds apart, the first one at once."""
    w = world(10, moved=0.4)
    list(w.ending.cancel(w.ending.observe(w.entries).unfinished, 600))
    assert [moment for moment, _ in w.book.asked] == [START + timedelta(seconds=6 * n) for n in range(10)]


def test_a_second_process_keeps_the_pace_of_the_first() -> None:
    """What was cancelled a second ago counts, whoever did it."""
    w = world(1)
    before = START - timedelta(seconds=1)
    list(w.ending.cancel(w.ending.observe(w.entries).unfinished, 600, last=before))
    assert w.book.asked[0][0] == START + timedelta(seconds=5)


@pytest.mark.parametrize(
    ("state", "asked_ago", "first"),
    [(State.LIVE, 2, 4), (State.LIVE, 60, 0), (State.LIVE, None, 0), (State.COMPLETE, 2, 0)],
)
def test_a_plan_keeps_the_pace_of_an_earlier_process(state: State, asked_ago: int | None, first: int) -> None:
    """Ends of complete rules, which cancel nothing, do not count."""
    w = world(2)
    ago = None if asked_ago is None else START - timedelta(seconds=asked_ago)
    asked = replace(w.entries[0], state=state, end_asked_at=ago)
    ledger = cast("Reader", SimpleNamespace(goals=dict, entries=lambda *_: w.entries))
    plan = w.ending.plan([asked, w.entries[1]], ledger, cancel=True)
    list(w.ending.carry_out(plan, 600))
    cancelled = {entry.injection.key for entry in plan.doomed}
    moment = next(moment for moment, key in w.book.asked if key in cancelled)
    assert moment == START + timedelta(seconds=first)


A_MINUTE = tuple(range(61))  # of jobs
DOUBLING = (0, 1, 3, 7, 15, 31, 63, 90)  # of rules


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize(
    ("link", "patience", "waited"),
    [
        (LINK, 180, dict.fromkeys(IN_SERVICE, DOUBLING)),
        (LINK, 10, dict.fromkeys(IN_SERVICE, (0, 1, 3, 7, 10))),
        (JOBS, 180, {State.LIVE: A_MINUTE, State.COMPLETE: A_MINUTE}),
    ],
)
def test_the_last_look_waits_for_what_was_asked_to_end(
    monkeypatch: pytest.MonkeyPatch,
    link: Link,
    patience: int,
    waited: dict[State, tuple[int, ...]],
    state: State,
    asked: bool,
) -> None:
    """Rules with ever longer pauses, also those whose call has no answer; jobs that FTS is known to have."""
    w = world(1)
    injection = replace(w.entries[0].injection, link=link)
    entry = replace(w.entries[0], injection=injection, state=state, end_asked_at=START if asked else None)
    looks = []

    def observe(entries: Sequence[Entry]) -> None:
        assert state not in IN_SERVICE or list(entries) == [entry]
        looks.append((w.clock.now() - START).total_seconds())

    monkeypatch.setattr(w.ending, "observe", observe)
    left = w.ending.look_again(lambda *states: [entry] if state in states else [], timedelta(seconds=patience))
    assert tuple(looks) == (waited.get(state, (0,)) if asked else (0,))
    assert left == ([entry] if asked and link is LINK and state in IN_SERVICE else [])


def test_what_has_moved_is_settled_before_the_end() -> None:
    """The last look, an exact one, comes between the estimate and the end: no byte is lost for the account."""
    w = world(1, moved=0.2)
    observe = w.backend.observe

    def estimating(entries: Sequence[Entry], *, exact: bool = False) -> list[Observation]:
        """As Rucio: only a look at the locks is exact."""
        seen = observe(entries, exact=exact)
        return seen if exact else [one._replace(exact=False, moved=1) for one in seen]

    w.backend.observe = estimating  # type: ignore[method-assign]
    standing = w.ending.observe(w.entries)
    w.backend.rules[w.entries[0].injection.key].moved = 70 * GB
    list(w.ending.cancel(standing.unfinished, 600))
    seen = w.book.seen[w.entries[0].injection.key]
    assert (seen.moved, seen.exact) == (70 * GB, True)


def test_a_rule_that_is_gone_meanwhile_is_a_success() -> None:
    """Between the look and the end a rule expired: nothing is asked for, and it is no error."""
    w = world(2)
    standing = w.ending.observe(w.entries)
    for rule in w.backend.rules.values():
        rule.ended = START
    outcomes = list(w.ending.cancel(standing.unfinished, 600))
    assert [outcome.error for outcome in outcomes] == [None, None]
    assert not w.book.asked


def test_ending_twice_is_the_same_as_once() -> None:
    """The second time everything is gone already."""
    w = world(5, moved=1.0)
    list(w.ending.end(w.ending.observe(w.entries).complete))
    again = w.ending.observe(w.entries)
    assert (again.complete, again.unfinished, again.gone) == ((), (), 5)
    assert all(outcome.error is None for outcome in w.ending.end(w.entries))


def test_in_doubt_is_neither_ended_nor_called_gone() -> None:
    """A rule whose answer was lost and that the service does not know is left for the injector to find out."""
    w = world(1)
    w.backend.rules.clear()
    (entry,) = w.entries
    doubt = Entry(entry.injection, State.CALLED, called_at=START)
    standing = w.ending.observe([doubt])
    assert (standing.in_doubt, standing.gone) == (1, 0)


def test_what_a_service_does_not_tell_of_stays_in_doubt_however_old_its_call_is() -> None:
    """Only a service that says that it does not know a rule can settle that it was never made."""
    w = world(1)
    doubt = Entry(w.entries[0].injection, State.CALLED, called_at=START - HOUR)
    w.backend.observe = lambda entries, *, exact=False: [  # type: ignore[method-assign]
        Observation(entry.injection.key, Status.UNKNOWN) for entry in entries
    ]
    assert (w.ending.observe([doubt]).in_doubt, w.book.withdrawn) == (1, [])
    w.backend.observe = lambda entries, *, exact=False: [  # type: ignore[method-assign]
        Observation(entry.injection.key, Status.ABSENT) for entry in entries
    ]
    assert (w.ending.observe([doubt]).in_doubt, w.book.withdrawn) == (0, [doubt.injection.key])


def test_a_stalled_rule_gives_back_what_it_has_not_moved_also_when_a_person_ends_it() -> None:
    """What it failed to move is told with its end, as in a run: another dataset can make it up."""
    w = world(1)
    why = "suspended: the rule does nothing 10 minutes after it was accepted"
    stalled = replace(w.entries[0], error=why, files_done=20, moved=40 * GB)
    w.backend.rules[stalled.injection.key].ended = START
    assert w.ending.observe([stalled]).gone == 1
    seen = w.book.seen[stalled.injection.key]
    assert (seen.failed, seen.reasons, seen.error) == (60 * GB, {"suspended": 30}, why)


def test_one_failure_does_not_stop_the_others() -> None:
    """A call that fails is an outcome with its error; the next rule is cancelled all the same."""
    w = world(3)
    standing = w.ending.observe(w.entries)
    failing = iter([Temporary("busy")])

    def fault(method: str, _subject: object) -> None:
        if method == "end" and (error := next(failing, None)):
            raise error

    w.backend.fault = fault
    outcomes = list(w.ending.cancel(standing.unfinished, 600))
    assert [outcome.error is None for outcome in outcomes] == [False, True, True]


@pytest.mark.parametrize(("error", "tried"), [(Temporary("busy"), 5), (NeedsOperator("refused"), 1)])
def test_a_service_that_does_not_work_is_left_alone(error: ServiceError, tried: int) -> None:
    """After five failures in a row, or one that a person has to repair, nothing more is asked."""
    w = world(20)
    standing = w.ending.observe(w.entries)

    def fault(method: str, _subject: object) -> None:
        if method == "end":
            raise error

    w.backend.fault = fault
    assert len(list(w.ending.cancel(standing.unfinished, 600))) == tried


def test_a_service_that_does_not_tell_ends_nothing() -> None:
    """Without knowing how rules stand, none is touched."""
    w = world(3)

    def fault(_method: str, _subject: object) -> None:
        raise Temporary("unreachable")

    w.backend.fault = fault
    with pytest.raises(Temporary, match="unreachable"):
        w.ending.observe(w.entries)
    assert not w.book.asked


def test_what_becomes_complete_while_others_are_cancelled_ends_at_once() -> None:
    """Of 60 rules 5 go at their pace until the first look after 30 s; 40 that are complete by then go there."""
    w = world(60)
    unfinished = w.ending.observe(w.entries).unfinished
    for rule in list(w.backend.rules.values())[20:]:
        rule.completed = START
    outcomes = list(w.ending.cancel(unfinished, 600))
    assert sorted(outcome.key for outcome in outcomes) == sorted(entry.injection.key for entry in w.entries)
    assert not any(outcome.error for outcome in outcomes)
    at = [(moment - START).total_seconds() for moment, _ in w.book.asked]
    assert at == [0, 6, 12, 18, 24, 30, *[30] * 40, *range(36, 36 + 14 * 6, 6)]


def test_what_has_gone_while_others_are_cancelled_is_not_waited_for() -> None:
    """Rules that somebody else ended, or that expired, take none of the pace."""
    w = world(60)
    unfinished = w.ending.observe(w.entries).unfinished
    for rule in list(w.backend.rules.values())[10:]:
        rule.ended = START
    outcomes = list(w.ending.cancel(unfinished, 600))
    assert len(outcomes) == 60
    assert len(w.book.asked) == 10
    assert w.clock.now() == START + timedelta(seconds=54)


def test_the_record_learns_meanwhile_what_has_ended() -> None:
    """Complete ones, ended before, are seen to be gone while the others are cancelled, not only afterwards."""
    w = world(60)
    for rule in list(w.backend.rules.values())[:50]:
        rule.completed = START
    standing = w.ending.observe(w.entries)
    list(w.ending.end(standing.complete))
    outcomes = w.ending.cancel(standing.unfinished, 600)
    for _ in range(7):
        next(outcomes)
    assert sum(seen.status is Status.ABSENT for seen in w.book.seen.values()) == 56
    w.ending.settle(HOUR)
    assert sum(seen.status is Status.ABSENT for seen in w.book.seen.values()) == 57


def test_looking_on_the_way_is_bounded() -> None:
    """At one an hour: a look every 30 seconds, at 200 rules at most, and others the next time."""
    w = world(450)
    unfinished = w.ending.observe(w.entries).unfinished
    looks: list[tuple[datetime, set[str]]] = []
    observe = w.backend.observe

    def counted(entries: Sequence[Entry], *, exact: bool = False) -> list[Observation]:
        if not exact:
            looks.append((w.clock.now(), {entry.injection.key for entry in entries}))
        return observe(entries, exact=exact)

    w.backend.observe = counted  # type: ignore[method-assign]
    outcomes = w.ending.cancel(unfinished, 1)
    next(outcomes)
    next(outcomes)
    of_those_left = [(moment, keys) for moment, keys in looks if len(keys) > 1]
    assert [moment for moment, _ in of_those_left] == [START + timedelta(seconds=30 * n) for n in range(1, 120)]
    assert all(len(keys) == 200 for _, keys in of_those_left)
    assert len(set.union(*(keys for _, keys in of_those_left[:3]))) == 449
    assert [moment for moment, _ in w.book.asked] == [START, START + HOUR]


def test_a_clock_that_was_ahead_does_not_stop_the_cancelling() -> None:
    """The last one was written by a clock that showed tomorrow: one interval is waited, looks or not."""
    w = world(2)
    unfinished = w.ending.observe(w.entries).unfinished
    list(w.ending.cancel(unfinished, 30, last=START + 24 * HOUR))
    assert [moment for moment, _ in w.book.asked] == [START + timedelta(minutes=2), START + timedelta(minutes=4)]


def test_a_look_that_fails_on_the_way_stops_nothing() -> None:
    """The pace goes on; whether the service works the next cancel finds out."""
    w = world(10)
    unfinished = w.ending.observe(w.entries).unfinished
    busy = iter([Temporary("busy")])

    def fault(method: str, subject: object) -> None:
        if method == "observe" and len(subject) > 1 and (error := next(busy, None)):  # type: ignore[arg-type]
            raise error

    w.backend.fault = fault
    assert [outcome.error for outcome in w.ending.cancel(unfinished, 600)] == [None] * 10
    assert w.clock.now() == START + timedelta(seconds=54)
