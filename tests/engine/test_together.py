"""What is overdue goes out together: one call for a link, however many moments have passed."""

from __future__ import annotations

from datetime import timedelta
from itertools import permutations

import pytest

from dc_inject.engine.intents import IntentQueue, moment
from dc_inject.engine.submitting import first_batch
from dc_inject.model import Cycle, Dataset, Entry, Injection, Link, State
from dc_inject.model.errors import Temporary
from dc_inject.model.ports import FILES_AT_ONCE, INJECTIONS_AT_ONCE
from dc_inject.planning import pace
from tests.engine.world import CYCLE, GB, START, campaign, flow, items, world


def entry(number: int, minutes: float = 0, *, files: int = 1, destination: str = "B") -> Entry:
    """An intent that goes out some minutes into the cycle."""
    item = Dataset(f"cms:/data#{number:03}", GB * files, files)
    release = START + timedelta(minutes=minutes)
    return Entry(
        Injection(
            f"{number:03}",
            "test",
            Cycle(START, CYCLE),
            "test",
            Link("A", destination),
            item,
            release,
            timedelta(hours=1),
            "",
            3,
            "",
        ),
        State.INTENDED,
    )


def test_what_waited_for_a_service_goes_out_in_one_call_for_a_link(tmp_path):
    stock = {"A": items("A", 100, size=20 * GB, files=4)}
    one = world(tmp_path, campaign([flow("A", "B", 4)]), stock)  # 450 GB a cycle: 22 datasets, at 22 moments
    asked: list[int] = []

    def fault(method, subject):
        if method == "submit":
            if one.clock.now() < START + 0.9 * CYCLE:
                raise Temporary("503")
            asked.append(len(subject))

    one.backend.fault = fault
    one.run(1)
    made = sum(account.rules for account in one.ledger.accounts().values())
    assert made >= 18
    assert sum(asked) == made
    assert max(asked) >= 12  # all that waited, and then tick by tick


def test_no_more_is_planned_than_there_was_time_for(tmp_path):
    """A service bears eight calls a cycle, of 40 links with three rules each: less is planned, and more done."""
    links = [flow("A", f"B{n:02}", 4) for n in range(40)]
    one = world(tmp_path, campaign(links), {"A": items("A", 400, size=150 * GB)})  # three for each link

    def fault(method, _subject):
        if method == "submit":
            one.clock.advance(one.clock.now() + CYCLE / 8)

    one.backend.fault = fault
    planned, made = [], []
    for number in range(5):
        before = sum(account.rules for account in one.ledger.accounts().values())
        one.engine().run(until=START + (number + 1) * CYCLE)
        made.append(sum(account.rules for account in one.ledger.accounts().values()) - before)
        last = max(row.cycle for row in one.ledger.rows())
        planned.append(len(one.ledger.entries(cycle=last)))
    assert planned[0] > 2 * made[0], (planned, made)
    assert all(some <= 2 * max(made[:n]) for n, some in enumerate(planned) if n), (planned, made)
    assert all(some >= 1.5 * made[0] for some in made[2:]), (planned, made)  # links have their turns as a whole
    held = [row for row in one.ledger.rows() if row.held and "time_for" in row.held.numbers]
    assert held
    assert all(row.held.numbers["time_for"] < row.held.numbers["wanted"] for row in held if row.held)


@pytest.mark.parametrize(
    ("counts", "most"),
    [
        ([], None),
        ([(100, 0), (120, 0)], None),  # there was time for all
        ([(100, 900)], 125),
        ([(100, 900), (125, 10), (80, 400)], 157),
        ([(100, 900), (60, 0)], 200),  # the last one was given all: it may be faster now
        ([(0, 1000)], None),  # an outage tells nothing of how fast a service is
    ],
)
def test_there_is_time_for_what_there_was_time_for_and_a_little_more(counts, most):
    assert pace.time_for(counts) == most


def test_calls_are_bounded_by_files_and_by_rules():
    few = {f"{n:03}": entry(n, files=FILES_AT_ONCE // 4 + 1) for n in range(10)}
    assert [one.injection.key for one in first_batch(few)] == ["000", "001", "002"]
    assert len(first_batch({f"{n:03}": entry(n) for n in range(2 * INJECTIONS_AT_ONCE)})) == INJECTIONS_AT_ONCE
    assert len(first_batch({"large": entry(0, files=10 * FILES_AT_ONCE)})) == 1


def test_they_come_when_their_moment_has_come_and_the_longest_waiting_first():
    some = [entry(n, n, destination=f"B{n % 3}") for n in range(9)]
    for order in list(permutations(range(9), 9))[::40321]:
        waiting = IntentQueue()
        for number in order:
            waiting.put(some[number])
        assert waiting.next_moment() == START
        ready = waiting.ready(START + timedelta(minutes=4))
        assert [flow.link.destination for flow in ready] == ["B0", "B1", "B2"]
        assert [list(entries) for entries in ready.values()] == [["000", "003"], ["001", "004"], ["002"]]
        assert waiting.next_moment() == START + timedelta(minutes=5)
        assert len(waiting) == 9


def test_one_that_is_put_off_or_taken_is_not_ready():
    waiting = IntentQueue()
    for number in range(4):
        waiting.put(entry(number))
    assert len(waiting.ready(START)) == 1
    later = Entry(entry(0).injection, State.INTENDED, not_before=START + timedelta(minutes=5))
    waiting.put(later)
    assert waiting.take("001") is not None
    assert waiting.take("001") is None
    (ready,) = waiting.ready(START).values()
    assert list(ready) == ["002", "003"]
    assert waiting.next_moment() == moment(later) == START + timedelta(minutes=5)
    waiting.take("000")
    assert waiting.next_moment() is None
    waiting.take("002")
    waiting.take("003")
    assert not waiting.ready(START + CYCLE)
    assert not list(waiting)
