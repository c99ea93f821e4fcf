"""Shapes are drawn once each, as their links ask for them together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dc_inject.apps.preview import plots
from dc_inject.model import DatasetFilter, Flow, Link
from dc_inject.model.shape import Point, Shape

START = datetime(2027, 2, 8, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)
RAMP = Shape(START, (Point(0 * HOUR, 0.0), Point(32 * HOUR, 1.0)), kind="ramp")


def flow(number: int, shape: Shape | None, hours: float = 32) -> Flow:
    """A link of 10 Gb/s in a shape."""
    link = Link("A", f"B{number}")
    return Flow("one", link, 10e9 / 8, START, START + hours * HOUR, DatasetFilter(("*:*",)), shape)


def test_bars() -> None:
    """Eighths of a row, from the bottom up."""
    assert plots.bars([0, 1, 4, 8, 9, 16], 16, height=2) == ["    ▁█", " ▁▄███"]
    assert plots.bars([0, 0], 0, height=1) == ["  "]


def test_a_ramp_is_drawn_once_for_all_its_links() -> None:
    """A straight line up to the sum of its links."""
    title, *rows, window = plots.shapes([flow(1, RAMP), flow(2, RAMP), flow(3, None)])
    assert title == "ramp of one, 2 links, at most 20 Gb/s:"
    assert window == "  2027-02-08 09:00Z to 2027-02-09 17:00Z"
    assert len(rows) == 4
    assert rows[-1].startswith("  | ▁▁▂▂▃▃▄▄▅▅▆▆▇▇█████")
    assert rows[0].endswith("▁▁▂▂▃▃▄▄▅▅▆▆▇▇█|")
    assert [row.count("█") for row in rows] == sorted(row.count("█") for row in rows)


def test_a_constant_is_not_drawn_and_many_are_counted() -> None:
    """A terminal has an end."""
    assert not list(plots.shapes([flow(1, None)]))
    lines = list(plots.shapes(flow(hours, RAMP, hours=40 + hours) for hours in range(15)))
    assert lines[-1] == "and 3 more shapes"
    assert len(lines) == 12 * 6 + 1
