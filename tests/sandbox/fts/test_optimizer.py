"""The optimizer of the sandbox's FTS decides and reports as that of a real FTS3 (3.14.4) does."""

from __future__ import annotations

import pytest

from dc_inject.sandbox.server.fts.optimizer import Optimizer, Over

AB = ("davs://a", "davs://b")
RANGE = (2, 130)
MB = 10**6
MINUTE = 60.0


def look(optimizer: Optimizer, minute: int, *, waiting: int = 0, active: int = 0, scale: float = 1.0) -> None:
    counts = [{AB: count} if count else {} for count in (active, waiting)]
    optimizer.look(minute * MINUTE * scale, *counts, {AB: RANGE}, scale)


def grown(minutes: int, *, waiting: int = 500, failed: int = 0, speed: float = 1.0) -> Optimizer:
    """A link on which in each minute ten files arrive and some fail, after one look at it."""
    optimizer = Optimizer()
    optimizer.slots(AB, *RANGE)
    for minute in range(minutes + 1):
        for _ in range(10):
            optimizer.note(AB, Over(minute * MINUTE, int(3 * MB * speed**minute), 20))
        for _ in range(failed):
            optimizer.note(AB, Over(minute * MINUTE, None, 20))
        look(optimizer, minute, waiting=waiting, active=10)
    return optimizer


def newest(optimizer: Optimizer) -> dict[str, object]:
    return optimizer.evolution(*AB)[0]


def test_a_link_begins_with_half_of_its_range_and_grows_by_two_a_minute() -> None:
    optimizer = grown(5, speed=1.1)
    assert [row["active"] for row in optimizer.evolution(*AB)] == [76, 74, 72, 70, 68, 66]
    assert optimizer.slots(AB, *RANGE) == 76


def test_it_stops_at_its_limit_and_names_it() -> None:
    row = newest(grown(40, speed=1.1))
    assert (row["active"], row["diff"]) == (130, 0)
    assert "Hit upper range limit" in str(row["rationale"])


@pytest.mark.parametrize(("waiting", "failed", "active"), [(60, 0, 66), (500, 1, 61), (5, 1, 66)])
def test_it_does_not_grow_for_few_files_and_shrinks_where_files_fail(waiting, failed, active) -> None:
    """One of eleven fails; while hardly any file waits nothing is taken away either."""
    assert newest(grown(5, waiting=waiting, failed=failed, speed=1.1))["active"] == active


def test_throughput_is_divided_by_the_whole_window_however_young_the_link_is() -> None:
    assert newest(grown(0))["throughput"] == 10 * 3 * MB / (5 * MINUTE)
    optimizer = Optimizer()
    optimizer.slots(AB, *RANGE)
    optimizer.note(AB, Over(0.0, 3 * MB, 0.5))  # files under a second have the longest one
    look(optimizer, 1, waiting=1)
    assert newest(optimizer)["throughput"] == 3 * MB / (30 * MINUTE)


def test_success_counts_files_that_are_over_and_not_attempts() -> None:
    optimizer = Optimizer()
    optimizer.slots(AB, *RANGE)
    for _ in range(9):
        optimizer.note(AB, Over(1.0, None, 5, again=True))
    optimizer.note(AB, Over(2.0, MB, 5))
    look(optimizer, 1, active=1)
    assert newest(optimizer)["success"] == 100.0
    optimizer.note(AB, Over(61.0, None, 5))
    look(optimizer, 2, active=1)
    assert newest(optimizer)["success"] == 50.0


def test_a_link_without_files_gets_no_rows() -> None:
    """So its last row never shows that it is empty."""
    optimizer = grown(1)
    before = len(optimizer.evolution(*AB))
    look(optimizer, 9)
    assert len(optimizer.evolution(*AB)) == before
    assert newest(optimizer)["queue_size"] == 500


def test_one_factor_shortens_all_times() -> None:
    optimizer = Optimizer()
    optimizer.slots(AB, *RANGE)
    optimizer.note(AB, Over(0.0, 3 * MB, 0.2))  # 20 s at a hundredth
    look(optimizer, 1, waiting=500, scale=0.01)
    assert newest(optimizer)["throughput"] == pytest.approx(3 * MB / 3.0)
