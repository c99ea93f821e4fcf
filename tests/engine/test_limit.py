"""How many calls at once: the limit finds what a service bears, whatever its latencies, and lets go of trouble."""

from __future__ import annotations

import heapq
import random

import pytest

from dc_inject.engine.call_limits import Limit


def served(workers: int, seconds: float, answers: int, *, work: int = 1, seed: int = 3) -> tuple[Limit, float]:
    """Keep a service with some workers as busy as the limit allows; return the limit, and answers a second.

    Each call takes `seconds` for each piece of work and one piece more, give or take a tenth, once a worker is
    free for it.
    """
    draw, limit, now = random.Random(seed), Limit(64), 0.0
    free = [0.0] * workers
    under_way: list[tuple[float, float]] = []  # when it ends, when it began
    for _ in range(answers):
        while len(under_way) < limit.whole:
            begin = max(heapq.heappop(free), now)
            end = begin + seconds * (work + 1) * draw.uniform(0.9, 1.1)
            heapq.heappush(free, end)
            heapq.heappush(under_way, (end, now))
        at_once = len(under_way)
        now, began = heapq.heappop(under_way)
        limit = limit.answered(now - began, work, at_once)
    return limit, answers / now


@pytest.mark.parametrize("workers", [1, 2, 8])
@pytest.mark.parametrize("seconds", [0.01, 1.0])
def test_a_service_is_kept_busy_without_a_long_queue(workers: int, seconds: float) -> None:
    limit, rate = served(workers, seconds, 3000)
    assert rate > 0.85 * workers / (2 * seconds)
    assert limit.whole <= workers + 8


def test_the_size_of_a_batch_is_no_sign_of_a_queue() -> None:
    small, large = (served(4, 0.02, 2000, work=work)[0] for work in (1, 50))
    assert abs(small.whole - large.whole) <= 4


def test_trouble_halves_the_limit_and_one_call_is_always_left() -> None:
    limit = Limit(16, calls=8)
    assert limit.failed().whole == 4
    for _ in range(10):
        limit = limit.failed()
    assert limit.whole == 1
    for _ in range(50):
        limit = limit.answered(0.1, 1, limit.whole)
    assert limit.whole > 4


def test_it_never_exceeds_what_it_may_and_answers_in_no_time_are_no_trouble() -> None:
    limit = Limit(16)
    for _ in range(500):
        limit = limit.answered(0.0, 1, limit.whole)
        assert 1 <= limit.whole <= 16


def test_what_is_not_used_does_not_grow() -> None:
    limit = Limit(16)
    for _ in range(50):
        limit = limit.answered(0.1, 1, 1)
    assert limit.whole <= 4


def test_a_service_that_becomes_slower_is_given_less() -> None:
    limit = Limit(64, calls=20, least=0.01)
    for _ in range(60):
        limit = limit.answered(0.4, 1, limit.whole)  # twenty times what it was, for each piece of work
    assert limit.whole <= 6
