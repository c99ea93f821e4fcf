"""What the log says of trouble: at once, and not again and again while it lasts."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.engine import context
from dc_inject.model.overrides import Kind
from tests.engine.world import CYCLE, START, campaign, file_flow, flow, items, source_files, world

LINK = file_flow("A", "B", 0.8)
FTS = {"name": "fts"}


def test_trouble_that_lasts_is_said_every_few_minutes_with_how_often_it_was(tmp_path, caplog) -> None:
    one = world(tmp_path, campaign([LINK]), source_files("A", 90), **FTS)
    told = one.engine()._context
    for minute in range(11):
        one.clock.advance(START + timedelta(minutes=minute))
        told.warn("B", f"B is down {minute}")
        told.warn("C", "C is down")
    again = " (and 4 more times since the last message)"
    assert [line for line in caplog.messages if line.startswith("B")] == [
        "B is down 0",
        f"B is down 5{again}",
        f"B is down 10{again}",
    ]
    assert caplog.messages[:2] == ["B is down 0", "C is down"]


@pytest.mark.parametrize(("kinds", "times"), [(("connection",), 1), (("connection", "checksum"), 2)])
def test_of_files_that_fail_each_kind_is_said_once(tmp_path, caplog, monkeypatch, kinds, times) -> None:
    """A storage that is down fails every job of its links, each with a URL of its own in the reason."""
    monkeypatch.setattr(context, "LOG_AGAIN", timedelta(days=1))
    one = world(tmp_path, campaign([LINK]), source_files("A", 90), failing=lambda _file: True, **FTS)
    real, count = one.backend._observation, iter(range(10**6))

    def observation(entry):
        seen = real(entry)
        if not seen.failed:
            return seen
        number = next(count)
        reasons = {kinds[number % len(kinds)]: seen.files_stuck}
        return seen._replace(reasons=reasons, error=f"it fails with {number}")

    one.backend._observation = observation
    one.run(cycles=3)
    told = [line for line in caplog.messages if "it fails with" in line]
    assert next(count) > 5
    assert len(told) == times


def test_a_wait_for_the_first_window_is_counted_down(tmp_path, caplog) -> None:
    """At first, and whenever half of it is over; nothing is said once the window is open."""
    caplog.set_level("INFO", "dc_inject")
    later = flow("A", "B", 1, start=START + 8 * CYCLE, end=START + 9 * CYCLE)
    one = world(tmp_path, campaign([later]), {"A": items("A", 10)})
    one.run(cycles=10)
    said = [record.message for record in caplog.records if "window" in record.message]
    assert "2027-02-08 12:00:00Z" in said[0]
    assert [line.partition(" in ")[2].partition(",")[0] for line in said] == ["2 h", "1 h", "30 min", "15 min"]


def test_a_ledger_tells_that_its_injector_turns_also_while_nothing_is_due(tmp_path) -> None:
    """Before the first window, and after the last: an alert of no cycle is not to wake anybody up then."""
    later = flow("A", "B", 1, start=START + 8 * CYCLE, end=START + 9 * CYCLE)
    one = world(tmp_path, campaign([later]), {"A": items("A", 10)})
    one.run(cycles=6)
    assert one.ledger.last_cycle() is None
    assert one.ledger.last_turn() == START + 5 * CYCLE


def test_what_is_set_is_said_again_when_the_next_day_begins(tmp_path, caplog, wording) -> None:
    """A rate of the first day rules the second one, too."""
    caplog.set_level("INFO", "dc_inject")
    days = [
        replace(menu, name=f"day{number}.yaml", start=start, end=start + 2 * CYCLE)
        for number, start in enumerate((START, START + 2 * CYCLE), start=1)
        for menu in campaign([flow("A", "B", 1, start=start, end=start + 2 * CYCLE)]).menus
    ]
    both = replace(campaign([flow("A", "B", 1)]), menus=tuple(days))
    one = world(tmp_path, both, {"A": items("A", 100)})
    one.ledger.override("test", Kind.RATE, 5e9, "me", "more", one.clock.now())
    one.run(cycles=4)
    said = [record.message for record in caplog.records if "still set" in record.message]
    wording(said)
