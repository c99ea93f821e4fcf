"""What the log says of trouble: at once, and not again and again while it lasts."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.engine import desk
from tests.engine.world import START, campaign, file_flow, source_files, world

LINK = file_flow("A", "B", 0.8)
FTS = {"name": "fts", "cleans_up": False}


def test_trouble_that_lasts_is_said_every_few_minutes_with_how_often_it_was(tmp_path, caplog) -> None:
    one = world(tmp_path, campaign([LINK]), source_files("A", 90), **FTS)
    told = one.engine()._desk
    for minute in range(11):
        one.clock.advance(START + timedelta(minutes=minute))
        told.warn("B", f"B is down {minute}")
        told.warn("C", "C is down")
    again = " (and 4 times more since it was said last)"
    assert [line for line in caplog.messages if line.startswith("B")] == [
        "B is down 0",
        f"B is down 5{again}",
        f"B is down 10{again}",
    ]
    assert caplog.messages[:2] == ["B is down 0", "C is down"]


@pytest.mark.parametrize(("kinds", "times"), [(("connection",), 1), (("connection", "checksum"), 2)])
def test_of_files_that_fail_each_kind_is_said_once(tmp_path, caplog, monkeypatch, kinds, times) -> None:
    """A storage that is down fails every job of its links, each with a URL of its own in the reason."""
    monkeypatch.setattr(desk, "SAY_AGAIN", timedelta(days=1))
    one = world(tmp_path, campaign([LINK]), source_files("A", 90), failing=lambda _file: True, **FTS)
    real, count = one.backend._observation, iter(range(10**6))

    def observation(entry):
        seen = real(entry)
        if not seen.failed:
            return seen
        number = next(count)
        reasons = {kinds[number % len(kinds)]: seen.files_stuck}
        return replace(seen, reasons=reasons, error=f"it fails with {number}")

    one.backend._observation = observation
    one.run(cycles=3)
    told = [line for line in caplog.messages if "it fails with" in line]
    assert next(count) > 5
    assert len(told) == times
