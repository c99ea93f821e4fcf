"""The one sentence of a cycle is said in plain words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from dc_inject.engine.closing import sentence
from dc_inject.ledger import Row
from dc_inject.model import Cycle, FlowKey, Link

CYCLE = Cycle.at(datetime(2027, 2, 8, tzinfo=UTC), timedelta(minutes=15))


def _row(through: str, injected: int, rules: int) -> Row:
    link = Link("A", "B", through)
    numbers = {"due": 0, "want": 0, "cap": 0, "budget": 0, "forgiven": 0, "moved": 0, "estimated": 0}
    rest = {"held": None, "lifetime": None, "pool_items": None, "pool_bytes": None, "closed": True}
    return Row(CYCLE, FlowKey("s", link), **numbers, injected=injected, rules=rules, **rest)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "injected 0 B (no rules), moved"),
        ([("rucio", 0, 0)], "injected 0 B (no rules), moved"),
        ([("fts", 0, 0)], "injected 0 B (no jobs), moved"),
        ([("rucio", 0, 0), ("fts", 0, 0)], "injected 0 B (no rules or jobs), moved"),
        ([("rucio", 3 * 10**9, 1), ("fts", 10**9, 2)], "injected 4 GB (1 rule and 2 jobs), moved"),
        ([("rucio", -70_000_000, 0)], "injected 0 B (no rules), took back 70 MB counted before, moved"),
    ],
)
def test_what_was_injected_is_said_in_plain_words(rows, said):
    assert said in sentence(CYCLE, [_row(*row) for row in rows])


def test_what_moved_has_its_rate_in_bits_per_second():
    row = _row("rucio", 0, 0)._replace(moved=round(CYCLE.length.total_seconds() * 10**9))
    assert "(8 Gb/s)" in sentence(CYCLE, [row])
