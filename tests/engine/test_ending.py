"""Ending on demand: what is complete at once, what is not at a pace, and everything can be done twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dc_inject.backends.sim import InlineExecutor, SimClock
from dc_inject.engine.ending import Drain, ToEnd, files_left
from dc_inject.engine.reconciler import IN_SERVICE
from dc_inject.ledger import Ledger
from dc_inject.model import Cycle, Dataset, Entry, FlowKey, Injection, Link, State, naming
from dc_inject.model.errors import NeedsOperator, ServiceError, Temporary
from dc_inject.model.ports import Observation, Outcome, Status
from dc_inject.planning.reconcile import compute_next_cancel
from tests.sim import SimBackend

START = datetime(2027, 2, 8, 10, tzinfo=UTC)
CYCLE = Cycle(START, timedelta(minutes=15))
LINK = Link("A", "B")
JOBS = Link("davs://a.example.org/dc", "davs://b.example.org/dc", "fts")
GB = 10**9
HOUR = timedelta(hours=1)


class Book(Ledger):
    """A ledger that remembers when ends were asked for, and the last look at each rule."""

    asked: list[tuple[datetime, str]]
    seen: dict[str, Observation]

    def end_asked(self, keys: Sequence[str], now: datetime) -> None:
        self.asked += [(now, key) for key in keys]
        super().end_asked(keys, now)

    def observe(self, observations: Sequence[Observation], now: datetime) -> None:
        self.seen |= {observation.key: observation for observation in observations}
        super().observe(observations, now)


@dataclass
class World:
    """Rules in a simulated service, and a drain of them."""

    clock: SimClock
    backend: SimBackend
    book: Book
    entries: list[Entry]
    drain: Drain

    def plan(self, *, cancel: bool = True) -> ToEnd:
        return self.drain.plan(lambda _entries, _again_at: None, cancel=cancel)

    def end(self, per_hour: float = 600) -> list[Outcome]:
        return list(self.drain.carry_out(self.plan(), per_hour))


MakeWorld = Callable[..., World]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[MakeWorld]:
    """Makes a world of `count` rules of 100 GB and 50 files, each of which has moved this part of its bytes."""
    with Book.open(tmp_path / "ledger.sqlite", synchronous="OFF") as book:
        book.asked, book.seen = [], {}
        clock = SimClock(START)

        def make(count: int, *, moved: float = 0.0, lost: bool = False) -> World:
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
            book.bind("test", CYCLE.length, [backend.check()], START)
            book.open_cycle(CYCLE, {FlowKey("export", LINK): (count * 100 * GB, None)}, START)
            book.add_injections(injections, START)
            book.call([injection.key for injection in injections], START)
            if not lost:
                book.answer(outcomes, START, {})
            drain = Drain(ledger=book, backends={"rucio": backend}, clock=clock, executor=InlineExecutor(clock))
            return World(clock, backend, book, drain.ours(), drain)

        yield make


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
    assert compute_next_cancel(last, now, per_hour) == moment


class SteppingClock(SimClock):
    """A clock that is put back by some hours in the middle of a wait."""

    hours = 5

    def advance(self, moment: datetime) -> None:
        self._now = self._now + (moment - self._now) / 2 - HOUR if self.hours else moment
        self.hours = max(self.hours - 1, 0)


def test_a_clock_that_is_put_back_while_we_wait_does_not_make_the_wait_longer(world: MakeWorld) -> None:
    """But for what of it had passed."""
    clock = SteppingClock(START)
    w = world(0)
    drain = Drain(ledger=w.book, backends={}, clock=clock, executor=InlineExecutor(clock))
    drain.wait(START + timedelta(minutes=2))
    assert START - 5 * HOUR <= clock.now() <= START - 5 * HOUR + timedelta(minutes=12)


def test_complete_rules_end_at_once_and_in_one_go(world: MakeWorld) -> None:
    """50 complete rules end without any time passing, each written down before it is asked for."""
    w = world(50, moved=1.0)
    plan = w.plan()
    assert (len(plan.complete), len(plan.unfinished), files_left(plan.unfinished)) == (50, 0, 0)
    outcomes = list(w.drain.carry_out(plan, 600))
    assert len(outcomes) == 50
    assert all(outcome.error is None for outcome in outcomes)
    assert w.clock.now() == START
    assert {key for _, key in w.book.asked} == {entry.injection.key for entry in w.entries}
    assert w.plan().gone == 50


def test_unfinished_rules_are_counted_with_the_files_that_would_be_cancelled(world: MakeWorld) -> None:
    """Of 50 files 20 have arrived: 30 are left for each rule."""
    w = world(3, moved=0.4)
    plan = w.plan()
    assert (len(plan.complete), len(plan.unfinished), files_left(plan.unfinished)) == (0, 3, 90)


def test_cancelling_keeps_the_pace(world: MakeWorld) -> None:
    """At 600 an hour the rules go 6 seconds apart, the first one at once."""
    w = world(10, moved=0.4)
    w.end()
    assert [moment for moment, _ in w.book.asked] == [START + timedelta(seconds=6 * n) for n in range(10)]


@pytest.mark.parametrize(
    ("state", "asked_ago", "first"),
    [(State.LIVE, 2, 4), (State.LIVE, 60, 0), (State.LIVE, None, 0), (State.COMPLETE, 2, 0)],
)
def test_a_second_process_keeps_the_pace_of_the_first(
    world: MakeWorld, state: State, asked_ago: int | None, first: int
) -> None:
    """What was cancelled a moment ago counts, whoever did it; ends of complete rules do not."""
    w = world(2)
    asked = w.entries[0].injection.key
    if state is State.COMPLETE:
        w.backend.rules[asked].completed = START
        w.plan()
    if asked_ago is not None:
        w.book.end_asked([asked], START - timedelta(seconds=asked_ago))
        w.book.asked.clear()
    plan = w.plan()
    assert [one.injection.key for one in plan.complete] == ([asked] if state is State.COMPLETE else [])
    list(w.drain.carry_out(plan, 600))
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
    world: MakeWorld,
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

    def look(entries: Sequence[Entry]) -> None:
        assert state not in IN_SERVICE or list(entries) == [entry]
        looks.append((w.clock.now() - START).total_seconds())

    monkeypatch.setattr(w.drain, "look", look)
    monkeypatch.setattr(w.drain, "ours", lambda *states: [entry] if state in states else [])
    left = w.drain.look_again(timedelta(seconds=patience))
    assert tuple(looks) == (waited.get(state, (0,)) if asked else (0,))
    assert left == ([entry] if asked and link is LINK and state in IN_SERVICE else [])


def test_what_has_moved_is_settled_before_the_end(world: MakeWorld) -> None:
    """The last look, an exact one, comes between the estimate and the end: no byte is lost for the account."""
    w = world(1, moved=0.2)
    observe = w.backend.observe

    def estimating(entries: Sequence[Entry], *, exact: bool = False) -> list[Observation]:
        """As Rucio: only a look at the locks is exact."""
        seen = observe(entries, exact=exact)
        return seen if exact else [one._replace(exact=False, moved=1) for one in seen]

    w.backend.observe = estimating  # type: ignore[method-assign]
    plan = w.plan()
    w.backend.rules[w.entries[0].injection.key].moved = 70 * GB
    list(w.drain.carry_out(plan, 600))
    seen = w.book.seen[w.entries[0].injection.key]
    assert (seen.moved, seen.exact) == (70 * GB, True)


def test_a_rule_that_is_gone_meanwhile_is_a_success(world: MakeWorld) -> None:
    """Between the look and the end a rule expired: nothing is asked for, and it is no error."""
    w = world(2)
    plan = w.plan()
    for rule in w.backend.rules.values():
        rule.ended = START
    outcomes = list(w.drain.carry_out(plan, 600))
    assert [outcome.error for outcome in outcomes] == [None, None]
    assert not w.book.asked


def test_ending_twice_is_the_same_as_once(world: MakeWorld) -> None:
    """The second time everything is gone already."""
    w = world(5, moved=1.0)
    plan = w.plan()
    assert len(list(w.drain.carry_out(plan, 600))) == 5
    assert all(outcome.error is None for outcome in w.drain.carry_out(plan, 600))
    assert w.plan().gone == 5
    again = w.plan()
    assert (again.work, again.gone) == ([], 0)


def test_in_doubt_is_neither_ended_nor_called_gone(world: MakeWorld) -> None:
    """A rule whose answer was lost and that the service does not know is left for the injector to find out."""
    w = world(1, lost=True)
    w.backend.rules.clear()
    plan = w.plan()
    assert (plan.in_doubt, plan.gone, plan.work) == (1, 0, [])


def test_what_a_service_does_not_tell_of_stays_in_doubt_however_old_its_call_is(world: MakeWorld) -> None:
    """Only a service that says that it does not know a rule can settle that it was never made."""
    w = world(1, lost=True)
    (key,) = w.backend.rules
    w.clock.advance(START + HOUR)
    w.backend.observe = lambda *_, **__: [Observation(key, Status.UNKNOWN)]  # type: ignore[method-assign]
    assert (w.plan().in_doubt, w.book.states([key])[key]) == (1, State.CALLED)
    w.backend.observe = lambda *_, **__: [Observation(key, Status.ABSENT)]  # type: ignore[method-assign]
    plan = w.plan()
    assert (plan.in_doubt, plan.gone, w.book.states([key])[key]) == (0, 1, State.WITHDRAWN)


def test_a_stalled_rule_gives_back_what_it_has_not_moved_also_when_a_person_ends_it(world: MakeWorld) -> None:
    """What it failed to move is told with its end, as in a run: another dataset can make it up."""
    w = world(1)
    why = "suspended: the rule does nothing 10 minutes after it was accepted"
    (key,) = w.backend.rules
    w.book.observe([Observation(key, Status.MOVING, files_done=20, moved=40 * GB, error=why)], START)
    w.backend.rules[key].ended = START
    assert w.plan().gone == 1
    seen = w.book.seen[key]
    assert (seen.failed, seen.reasons, seen.error) == (60 * GB, {"suspended": 30}, why)


def test_one_failure_does_not_stop_the_others(world: MakeWorld) -> None:
    """A call that fails is an outcome with its error; the next rule is cancelled all the same."""
    w = world(3)
    failing = iter([Temporary("busy")])

    def fault(method: str, _subject: object) -> None:
        if method == "end" and (error := next(failing, None)):
            raise error

    w.backend.fault = fault
    outcomes = w.end()
    assert [outcome.error is None for outcome in outcomes] == [False, True, True]


@pytest.mark.parametrize(("error", "tried"), [(Temporary("busy"), 5), (NeedsOperator("refused"), 1)])
def test_a_service_that_does_not_work_is_left_alone(world: MakeWorld, error: ServiceError, tried: int) -> None:
    """After five failures in a row, or one that a person has to repair, nothing more is asked."""
    w = world(20)

    def fault(method: str, _subject: object) -> None:
        if method == "end":
            raise error

    w.backend.fault = fault
    assert len(w.end()) == tried


def test_a_service_that_does_not_tell_ends_nothing(world: MakeWorld) -> None:
    """Without knowing how rules stand, none is touched."""
    w = world(3)

    def fault(_method: str, _subject: object) -> None:
        raise Temporary("unreachable")

    w.backend.fault = fault
    with pytest.raises(Temporary, match="unreachable"):
        w.plan()
    assert not w.book.asked


def test_what_becomes_complete_while_others_are_cancelled_ends_at_once(world: MakeWorld) -> None:
    """Of 60 rules 5 go at their pace until the first look after 30 s; 40 that are complete by then go there."""
    w = world(60)
    plan = w.plan()
    for entry in w.entries[20:]:
        w.backend.rules[entry.injection.key].completed = START
    outcomes = list(w.drain.carry_out(plan, 600))
    assert sorted(outcome.key for outcome in outcomes) == sorted(entry.injection.key for entry in w.entries)
    assert not any(outcome.error for outcome in outcomes)
    at = [(moment - START).total_seconds() for moment, _ in w.book.asked]
    assert at == [0, 6, 12, 18, 24, 30, *[30] * 40, *range(36, 36 + 14 * 6, 6)]


def test_what_has_gone_while_others_are_cancelled_is_not_waited_for(world: MakeWorld) -> None:
    """Rules that somebody else ended, or that expired, take none of the pace."""
    w = world(60)
    plan = w.plan()
    for entry in w.entries[10:]:
        w.backend.rules[entry.injection.key].ended = START
    outcomes = list(w.drain.carry_out(plan, 600))
    assert len(outcomes) == 60
    assert len(w.book.asked) == 10
    assert w.clock.now() == START + timedelta(seconds=54)


def test_the_record_learns_meanwhile_what_has_ended(world: MakeWorld) -> None:
    """Complete ones, ended before, are seen to be gone while the others are cancelled, not only afterwards."""
    w = world(60)
    for rule in list(w.backend.rules.values())[:50]:
        rule.completed = START
    outcomes = w.drain.carry_out(w.plan(), 600)
    for _ in range(57):
        next(outcomes)
    assert sum(seen.status is Status.ABSENT for seen in w.book.seen.values()) == 56
    w.drain.settle(HOUR)
    assert sum(seen.status is Status.ABSENT for seen in w.book.seen.values()) == 57


def test_looking_on_the_way_is_bounded(world: MakeWorld) -> None:
    """At one an hour: a look every 30 seconds, at 200 rules at most, and others the next time."""
    w = world(450)
    plan = w.plan()
    looks: list[tuple[datetime, set[str]]] = []
    observe = w.backend.observe

    def counted(entries: Sequence[Entry], *, exact: bool = False) -> list[Observation]:
        if not exact:
            looks.append((w.clock.now(), {entry.injection.key for entry in entries}))
        return observe(entries, exact=exact)

    w.backend.observe = counted  # type: ignore[method-assign]
    outcomes = w.drain.carry_out(plan, 1)
    next(outcomes)
    next(outcomes)
    of_those_left = [(moment, keys) for moment, keys in looks if len(keys) > 1]
    assert [moment for moment, _ in of_those_left] == [START + timedelta(seconds=30 * n) for n in range(1, 120)]
    assert all(len(keys) == 200 for _, keys in of_those_left)
    assert len(set.union(*(keys for _, keys in of_those_left[:3]))) == 449
    assert [moment for moment, _ in w.book.asked] == [START, START + HOUR]


def test_a_clock_that_was_ahead_does_not_stop_the_cancelling(world: MakeWorld) -> None:
    """The last one was written by a clock that showed tomorrow: one interval is waited, looks or not."""
    w = world(2)
    list(w.drain.carry_out(replace(w.plan(), last=START + 24 * HOUR), 30))
    assert [moment for moment, _ in w.book.asked] == [START + timedelta(minutes=2), START + timedelta(minutes=4)]


def test_a_look_that_fails_on_the_way_stops_nothing(world: MakeWorld) -> None:
    """The pace goes on; whether the service works the next cancel finds out."""
    w = world(10)
    plan = w.plan()
    busy = iter([Temporary("busy")])

    def fault(method: str, subject: object) -> None:
        if method == "observe" and len(subject) > 1 and (error := next(busy, None)):  # type: ignore[arg-type]
            raise error

    w.backend.fault = fault
    assert [outcome.error for outcome in w.drain.carry_out(plan, 600)] == [None] * 10
    assert w.clock.now() == START + timedelta(seconds=54)


def test_rules_that_have_gone_take_no_turn_while_another_service_fails(world: MakeWorld) -> None:
    """Such a look is left half way: what it has shown of the rules stays true."""
    w, jobs = world(3), SimBackend(SimClock(START), {}, name="fts")
    ours = [one.injection for one in w.entries]
    made = [replace(one, link=JOBS, key=naming.key("test", "export", START, JOBS, one.item.name)) for one in ours]
    w.book.add_injections(made, START)
    w.book.call([one.key for one in made], START)
    w.book.answer(jobs.submit(made), START, {})
    both = {"rucio": w.backend, "fts": jobs}
    w.drain = Drain(ledger=w.book, backends=both, clock=w.clock, executor=InlineExecutor(w.clock))
    plan = w.plan()

    def fault(method: str, _subject: object) -> None:
        if method == "observe":
            raise Temporary("busy")

    jobs.fault = fault
    w.backend.rules.clear()
    failed = {outcome.key for outcome in w.drain.carry_out(plan, 60) if outcome.error is not None}
    assert (failed, w.book.asked) == ({one.key for one in made}, [])
