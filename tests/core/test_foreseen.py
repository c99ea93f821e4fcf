"""What the law foresees of links from which FTS takes transfers away, since too many attempts fail."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.planning.control import Memory, Past, Transfers, decide, foreseen
from tests.core.test_control import DAY, GB, SEEN, WORTH, T
from tests.core.toy import Toy

NEEDED = 30  # transfers for the target of the toy
SPEED = 20 * GB / T.total_seconds() / NEEDED


def taken_away(cycles: float) -> float:
    """Transfers of a link from which FTS takes one a minute after a day: 66, and at last 2."""
    return max(66 - max(cycles - 20, 0) * 15, 2)


@pytest.mark.parametrize("late", [0.0, 0.5])
def test_a_link_from_which_fts_takes_transfers_is_given_what_those_that_are_left_will_carry(late):
    """Also where FTS told of them half a cycle ago."""

    def told(cycles: float) -> Transfers:
        return Transfers(int(taken_away(cycles - late)), SPEED, GB, 0.82, late * T)

    unknown = Toy(lambda t: taken_away(t) / NEEDED).run(DAY)
    known = Toy(lambda t: taken_away(t) / NEEDED, transfers=told).run(DAY)
    assert unknown.expired > 0.6, "of a cycle's worth"
    assert known.expired < 0.1
    assert sum(known.injected[:20]) == pytest.approx(sum(unknown.injected[:20]), abs=0.1), (
        "as long as all are there"
    )
    assert sum(known.moved) > 0.97 * sum(unknown.moved)


def transfers(limit: int, **more) -> Transfers:
    """Transfers of 25 MB/s: 40 of them carry the target of SEEN."""
    return Transfers(limit, GB / 40, 2 * GB, 0.9, timedelta(0), **more)


def test_what_transfers_are_left_carry_bounds_the_delivered_rate_and_is_remembered():
    falling = decide(Memory(completion=T), replace(SEEN, transfers=transfers(40)))
    minutes = 15 * (7 + 0.2)
    carried = (38**2 / 2 + 2 * minutes) * 60 * GB / 40
    assert falling.delivered == pytest.approx(carried / (60 * minutes))
    assert falling.memory.delivered == falling.delivered
    lasting = decide(Memory(completion=T), replace(SEEN, transfers=transfers(40, least=40)))
    assert lasting.delivered == GB
    assert decide(Memory(completion=T), replace(SEEN, transfers=transfers(130))).delivered == GB
    old = replace(transfers(40), age=timedelta(minutes=10))
    assert decide(Memory(), replace(SEEN, transfers=old)).delivered < 0.7 * falling.delivered


def test_hardly_anything_waits_in_fts_where_it_takes_transfers_away_from_links_with_a_queue():
    few = decide(Memory(completion=T), replace(SEEN, transfers=transfers(40, least=40)))
    assert few.window == pytest.approx(0.6 * 40 * (2 * GB + GB / 40 * 1.2 * T.total_seconds()), rel=1e-6)
    half = decide(Memory(completion=T), replace(SEEN, transfers=transfers(40, least=40).part(0.5)))
    assert half.window == pytest.approx(few.window / 2, rel=1e-6), "two flows of a link share its transfers"
    many = decide(Memory(completion=T), replace(SEEN, transfers=transfers(130)))
    assert many.window == decide(Memory(completion=T), SEEN).window


def test_what_fts_tells_after_the_cycle_has_begun_changes_all_but_its_bias():
    before = Memory(0.1, T)
    first = decide(before, replace(SEEN, past=(Past(WORTH, WORTH // 2, 0),) * 4))
    again = foreseen(first, before, transfers(10))
    assert (first.limits, again.limits) == (False, True)
    assert again.memory.bias == first.memory.bias > 0.1
    assert again.memory.delivered == again.delivered < first.delivered
    assert (again.numbers["transfers"], again.numbers["transfers_age"], again.numbers["success"]) == (10, 0, 0.9)
