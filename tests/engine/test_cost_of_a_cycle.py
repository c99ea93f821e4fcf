"""What a cycle costs, counted and not timed: what is known already is not read again, nor written one by one."""

from __future__ import annotations

import re
from collections import Counter
from datetime import timedelta

from dc_inject.ledger.database import stored
from dc_inject.model import State
from dc_inject.model.events import Answered, Called, CycleOpened
from tests.engine.world import CYCLE, GB, START, campaign, flow, items, world

LINKS = 12


def running(tmp_path, cycles=4):
    """A campaign whose rules end early, while their files stay for an hour; and what SQLite is given to do."""
    links = [flow("A", f"B{n:02}", 1) for n in range(LINKS)]
    one = world(tmp_path, campaign(links), {"A": items("A", 200, 40 * GB)}, deletion_lag=timedelta(hours=1))
    one.run(cycles)
    assert len(one.ledger.entries(State.ENDED)) > LINKS
    said: list[str] = []
    one.ledger._db._connection.set_trace_callback(said.append)
    return one, said


def reads(said, pattern):
    return [one for one in said if one.startswith("SELECT") and re.search(pattern, one)]


def test_what_is_there_is_read_once_in_a_life(tmp_path):
    one, said = running(tmp_path)
    one.run(3)
    once = reads(
        said, r"FROM injection .*WHERE .*state IN"
    )  # a new engine reads nothing either: it has the ledger
    assert [statement for statement in once if "'ended'" in statement or "'live'" in statement] == []


def test_rows_are_read_for_the_plan_and_for_the_close(tmp_path):
    one, said = running(tmp_path)
    one.run(5)
    assert len([event for event in one.heard.of(CycleOpened) if event.cycle.start >= START + 4 * CYCLE]) == 5
    of_rows = reads(said, r"^SELECT cycle, length, closed_at IS NOT NULL")
    assert len(of_rows) <= 4 * 6  # for the plan; before the close, and for the sentence about it


def test_rows_of_closed_cycles_are_kept_from_plan_to_plan(tmp_path):
    one, said = running(tmp_path)
    one.run(5)
    read = Counter(
        int(match[1]) for sql in said if (match := re.search(r"^SELECT cycle, length,.* AND cycle = (\d+)", sql))
    )
    # The cycle that was open before and those that came since: for their plan, and before and after their close.
    assert sorted(read) == [stored(START + n * CYCLE) for n in range(3, 9)]
    assert max(read.values()) == 3


def test_answers_that_come_together_are_written_together(tmp_path):
    one, said = running(tmp_path)
    before = len(one.heard.of(Called))
    one.heard.at[Called] = lambda: said.append("heard")
    one.heard.at[Answered] = lambda: said.append("written")
    one.run(2)
    calls = len(one.heard.of(Called)) - before
    assert calls > LINKS
    story = [statement for statement in said if statement in {"heard", "written", "BEGIN IMMEDIATE"}]
    # Several calls are heard, then one transaction is made, then each is told of as written.
    together = re.findall(r"(h+)B(w+)", "".join(statement[0] for statement in story))
    assert together
    assert all(len(heard) == len(written) for heard, written in together)
    assert max(len(heard) for heard, _ in together) > 1
