"""Half a day on services that break all the time: everything is delivered and accounted for, and nothing grows."""

from __future__ import annotations

import pytest

from dc_inject.ledger.check import check
from tests.engine.soak import soak

EVERY = 12  # cycles in a part; four of them are half a day


def _delivered(made):
    return sum(part.injected for part in made.parts) / sum(part.due for part in made.parts)


@pytest.fixture(scope="module")
def half_a_day(tmp_path_factory):
    """Half a day of 12 links, one call in twenty faulty."""
    return soak(tmp_path_factory.mktemp("soak"), days=0.5, links=12, share=0.05, every=EVERY, seed=24)


def test_with_one_call_in_twenty_faulty_all_but_half_a_percent_is_delivered(half_a_day):
    assert {"refused", "dropped", "lost"} <= set(half_a_day.faults.counts)
    assert 0.04 < half_a_day.faults.faulty / half_a_day.faults.counts["calls"] < 0.06
    assert 0.995 <= _delivered(half_a_day) <= 1.005


def test_ledger_and_services_agree_after_each_part(half_a_day):
    assert len(half_a_day.parts) == 4
    assert half_a_day.violations == []
    assert not half_a_day.unexpected
    assert half_a_day.there_already == 0


def test_neither_memory_nor_work_nor_open_files_grow(half_a_day):
    """The third part is the first whose six hours of completion times lie behind it."""
    *_, before, last = half_a_day.parts
    # Until each dataset of the pool was used once, one piece more is kept of each: when that was.
    assert last.blocks - before.blocks < 5 * last.rules, "one injection is a dozen pieces of memory"
    assert last.statements < 1.1 * before.statements
    assert last.steps < 1.15 * before.steps
    assert last.files <= before.files


def test_with_three_calls_in_ten_faulty_all_but_two_percent_is_delivered_and_the_ledger_is_whole(tmp_path):
    made = soak(tmp_path, days=32 / 96, links=6, share=0.3, every=8, seed=5)
    assert 0.98 <= _delivered(made) <= 1.02
    assert made.violations == []
    made.one.ledger.close()
    assert not [one for one in check(made.one.ledger.path) if not one.note]
