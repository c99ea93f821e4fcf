"""The fixed rate that a controller is compared with: what it takes, and that it learns nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dc_inject.apps.twin.simulation import DELAY, MOST, WORK, FixedRate
from dc_inject.model import Dataset, Held, Hold
from tests.core.builders import CYCLE, demand, flow, situation

LIFETIME = timedelta(hours=2)
LINK = flow(lifetime_max=LIFETIME)


def datasets(*sizes: int) -> list[Dataset]:
    return [Dataset(f"set{number}", size, 10) for number, size in enumerate(sizes)]


def planned(one: FixedRate, pool: list[Dataset], due: int, after: timedelta = timedelta(0), **more):
    """What a link is given that is due so many bytes, some time after the first cycle began."""
    return one.plan(situation([demand(LINK, due, **more)], pool, now=CYCLE.start + after))


def taken(made) -> list[int]:
    return [item.bytes for item in made.decisions[0].items]


@pytest.mark.parametrize(
    ("due", "expected"),
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
def test_datasets_go_out_in_their_order_until_the_sum_is_reached(due, expected):
    made = planned(FixedRate(), datasets(60, 50, 20, 30)[::-1], due)
    assert taken(made) == [injection.item.bytes for injection in made.injections] == expected
    assert sum(expected) <= max(MOST * due, 0)


def test_rules_are_made_one_after_the_other_and_live_as_long_as_they_may():
    one, two = planned(FixedRate(), datasets(60, 50), 110, timedelta(minutes=1)).injections
    assert (one.release, one.lifetime) == (CYCLE.start + timedelta(minutes=1) + WORK, LIFETIME)
    assert (two.release, two.lifetime) == (one.release + WORK, LIFETIME)


def test_a_used_dataset_is_fresh_again_after_its_lifetime_and_a_delay():
    one, pool = FixedRate(), datasets(60, 50)
    assert taken(planned(one, pool, 60)) == [60]
    assert taken(planned(one, pool, 60, timedelta(minutes=15))) == [50]
    assert taken(planned(one, pool, 60, timedelta(minutes=30))) == []
    assert taken(planned(one, pool, 60, LIFETIME + DELAY - timedelta(seconds=1))) == []
    assert taken(planned(one, pool, 60, LIFETIME + DELAY)) == [60]


def test_what_was_short_is_not_made_up():
    one, pool = FixedRate(), datasets(60, 60, 60)
    assert taken(planned(one, pool, 50)) == [60]
    assert taken(planned(one, pool, 45, timedelta(minutes=15))) == []
    assert taken(planned(one, pool, 50, timedelta(minutes=30))) == [60]


def test_what_could_not_be_used_is_not_replaced():
    one, pool = FixedRate(), datasets(60, 50)
    assert one.refill(situation([demand(LINK, 50)], pool), {LINK.key: 50}) == ()


def test_what_is_short_is_held_with_its_reason():
    def why(*of: object) -> Held | None:
        return planned(one, pool, *of).decisions[0].held

    one, pool = FixedRate(), datasets(60, 50)
    assert why(55) is None  # a little too much
    assert why(40) == Held(Hold.TOO_COARSE, {"left": 40, "smallest": 50})
    assert why(110) == Held(Hold.POOL_DRY, {"pool_items": 1, "pool_bytes": 50, "resident": 60})
    assert why(60) == Held(Hold.POOL_DRY, {"pool_items": 0, "pool_bytes": 0, "resident": 110})
    pool = []
    assert why(60) == Held(Hold.POOL_DRY, {"pool_items": 0, "pool_bytes": 0, "resident": 0})


def test_a_link_that_is_held_takes_nothing():
    paused = Held(Hold.PAUSED, {})
    made = planned(FixedRate(), datasets(60), 60, held=paused)
    assert (made.injections, made.decisions[0].held) == ((), paused)
