"""The reason in a row is the true one: late failures, calls for which there was no time, and what is harmless."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dc_inject.model import Cycle, Held, Hold
from dc_inject.model.errors import Temporary
from tests.engine.test_files import FTS
from tests.engine.world import CYCLE, GB, START, World, campaign, file_flow, flow, items, source_files, world

LINK = file_flow("A", "B", 0.8)  # 90 GB a cycle


def test_failures_that_become_known_after_the_window_are_failures(tmp_path: Path) -> None:
    """Nothing is planned any more then, which is nobody's fault."""
    last = replace(LINK, end=START + CYCLE)
    one = world(
        tmp_path,
        campaign([last]),
        source_files("A", 400),
        speed=lambda _link: 0.05e9,
        failing=lambda _file: True,
        **FTS,
    )
    one.settings = replace(one.settings, drain=True)
    one.run()
    late = [row for row in one.ledger.rows() if row.cycle.start >= last.end and row.injected]
    assert late
    assert sum(row.injected for row in late) < -30 * GB
    assert [row.held for row in late] == [
        Held(Hold.FAILING, {"failed_bytes": -row.injected, "injected": row.injected}) for row in late
    ]


def test_failures_of_the_cycle_before_are_failures_too(tmp_path: Path) -> None:
    one = world(tmp_path, campaign([LINK]), source_files("A", 400), speed=lambda _link: 0.1e9, **FTS)
    one.run(cycles=1)
    one.backend.failing = lambda file: file.name.endswith("3")
    one.run(cycles=1)
    row = one.ledger.rows()[-1]
    assert row.injected < row.due
    assert row.held is not None
    assert row.held.hold is Hold.FAILING
    assert row.held.numbers["failed_bytes"] == one.ledger.accounts()[LINK.key].failed > 0


def busy(tmp_path: Path, seconds: int = 100) -> World:
    """A service that takes so long for each rule, one after the other, and is asked for 20 a cycle."""
    one = world(tmp_path, campaign([flow("A", "B", 8)]), {"A": items("A", 400, 45 * GB)})

    def fault(method: str, subject: Any) -> None:
        if method == "submit":
            one.clock.advance(one.clock.now() + timedelta(seconds=seconds * len(subject)))

    one.backend.fault = fault
    return one


def test_what_there_was_no_time_to_ask_for_is_told_as_that_with_its_bytes(tmp_path: Path) -> None:
    one = busy(tmp_path)
    one.run(cycles=1)
    (row,) = [row for row in one.ledger.rows() if row.cycle == Cycle(START, CYCLE)]
    assert 0 < row.injected < row.due == 900 * GB
    withdrawn = row.due - row.injected
    numbers = {"withdrawn": withdrawn, "not_sent": withdrawn // (45 * GB), "injected": row.injected}
    assert row.held == Held(Hold.OVERLOAD, numbers)


def test_calls_that_are_refused_are_not_told_as_too_many(tmp_path: Path) -> None:
    one = busy(tmp_path, 0)

    def fault(method: str, _subject: object) -> None:
        if method == "submit":
            raise Temporary("the database is locked")

    one.backend.fault = fault
    one.run(cycles=1)
    (row,) = one.ledger.rows()
    assert row.held is not None
    assert row.held.hold is Hold.API_ERRORS


@pytest.mark.parametrize("hold", Hold)
def test_what_is_harmless_needs_nobody(hold: Hold) -> None:
    assert hold.harmless is (hold.value in {"outside-window", "excluded", "too-coarse"})


def test_a_cycle_is_summed_up_with_what_is_harmless_apart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dc_inject")
    small = flow("C", "D", 0.01, scenario="small")
    one = world(tmp_path, campaign([flow("A", "B", 4), small]), {"A": [], "C": items("C", 10, 50 * GB)})
    one.run(cycles=1)
    told = next(line for line in caplog.messages if line.startswith("cycle "))
    assert told.endswith("; held: 1 pool-dry; harmless: 1 too-coarse")
