"""The fixed rate that a controller is compared with: what it takes, and that it learns nothing."""

from __future__ import annotations

import pytest

from dc_inject.apps.twin.grid.fixed_rate import DELAY, FixedRate, Lack
from dc_inject.model import Dataset

HOUR = 3600.0


def link(*sizes: int) -> FixedRate:
    return FixedRate([Dataset(f"set{number}", size, 10) for number, size in enumerate(sizes)], 2 * HOUR)


def sizes(chosen) -> list[int]:
    return [dataset.bytes for dataset in chosen.datasets]


@pytest.mark.parametrize(
    ("amount", "taken"),
    [
        (100, [60, 50]),  # in their order, until the sum is reached: 10 % too much is not too much
        (60, [60]),
        (110, [60, 50]),
        (70, [60, 20]),  # 110 would be more than 20 % above 70, so that one is left out
        (40, [20]),  # and so it may be too little
        (10, []),  # the smallest is too large: nothing goes out, and nothing is carried over
        (0, []),
        (1000, [60, 50, 20, 30]),
    ],
)
def test_datasets_go_out_in_their_order_until_the_sum_is_reached(amount, taken):
    assert sizes(link(60, 50, 20, 30).choose(amount, 0.0)) == taken


def test_a_used_dataset_is_fresh_again_after_its_lifetime_and_a_delay():
    one = link(60, 50)
    assert sizes(one.choose(60, 0.0)) == [60]
    assert sizes(one.choose(60, 900.0)) == [50]
    assert sizes(one.choose(60, 1800.0)) == []
    assert sizes(one.choose(60, 2 * HOUR + DELAY - 1)) == []
    assert sizes(one.choose(60, 2 * HOUR + DELAY)) == [60]


def test_what_was_short_is_not_made_up():
    one = link(60, 60, 60)
    assert sizes(one.choose(50, 0.0)) == [60]
    assert sizes(one.choose(45, 900.0)) == []
    assert sizes(one.choose(50, 1800.0)) == [60]


def test_what_was_short_is_told_with_its_reason():
    one = link(60, 50)
    assert one.choose(55, 0.0)[1:] == (0.0, None)  # a little too much
    assert one.choose(40, 900.0)[1:] == (40, Lack.TOO_LARGE)
    assert one.choose(110, 900.0)[1:] == (60, Lack.USED_UP)
    assert one.choose(60, 1800.0)[1:] == (60, Lack.USED_UP)
    assert link().choose(60, 0.0)[1:] == (60, Lack.NOTHING)
