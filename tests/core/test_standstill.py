"""What control makes of cycles in which nothing arrived, or in which nobody saw what did."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dc_inject.model import Hold
from dc_inject.planning.control import LEAST, Memory, Past, Signals, decide
from dc_inject.planning.plan import Account, plan
from tests.core.builders import demand, flow, items, situation
from tests.core.test_control import GB, SEEN, WORTH, T


def after(memory: Memory, *signals: Signals) -> Memory:
    for seen in signals:
        memory = decide(memory, seen).memory
    return memory


def test_what_nobody_has_seen_for_long_is_not_late():
    """The service told of nothing for two hours: the link seems to have stood still, and its rules to expire."""
    blind = replace(
        SEEN, past=(Past(WORTH, 0, WORTH, expired=WORTH),) * 4, in_flight=WORTH, age=8 * T, oldest=8 * T
    )
    assert decide(Memory(completion=T), blind).allowed == 1.5 * WORTH
    known = after(Memory(completion=T), blind)
    late = Past(WORTH, WORTH, WORTH, expired=WORTH)
    again = replace(SEEN, past=(*blind.past[1:], late))
    assert decide(known, again).allowed > WORTH, "the cycles before say nothing either"
    settled = after(known, *[replace(SEEN, past=(late,) * 4)] * 4)
    assert decide(settled, replace(SEEN, past=blind.past)).delivered == LEAST * GB


@pytest.mark.parametrize("age", [T / 5, 8 * T])
def test_a_standstill_is_no_latency_after_it_either(age):
    """The link, or what the service tells, stands still; what was under way then is late for eight cycles."""
    stands = replace(SEEN, past=(SEEN.past[0], SEEN.past[0], *(Past(WORTH, 0, WORTH),) * 2), age=age)
    late = replace(SEEN, completion=8 * T)
    known = after(Memory(completion=T), stands, *[late] * 8)
    assert known.completion == T
    assert after(known, late).completion == 8 * T


def test_files_that_arrive_together_do_not_make_a_link_stand_still():
    """With a latency of three cycles, two of three may be empty."""
    lumps = replace(
        SEEN, past=(Past(WORTH, 0, WORTH), Past(WORTH, 4 * WORTH, WORTH), *(Past(WORTH, 0, WORTH),) * 2)
    )
    assert after(Memory(completion=3 * T), lumps, replace(SEEN, completion=4 * T)).completion == 4 * T


@pytest.mark.parametrize(("made_up", "hold"), [(False, Hold.API_ERRORS), (True, Hold.BACKLOG)])
def test_an_outage_is_blamed_in_the_first_cycle_after_it_only(made_up, hold):
    """What the window does not let through then is forgiven as well, for as long as the link is slow."""
    slow = replace(SEEN, past=(Past(WORTH, WORTH // 10, WORTH),) * 4, in_flight=WORTH)
    decision = decide(Memory(completion=T, delivered=WORTH / T.total_seconds() / 10), slow)
    books = {"account": Account(9 * WORTH), "coming": slow.in_flight, "decision": decision}
    owes = demand(flow(), WORTH, before=Hold.API_ERRORS, made_up=made_up, **books)
    (row,) = plan(situation([owes], items(*[WORTH // 10] * 20))).decisions
    assert row.forgiven > WORTH
    assert row.held is not None
    assert row.held.hold is hold
