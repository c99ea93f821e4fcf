"""How many cases a property gets: few and always the same in the tests, many and seeded in `make fuzz`."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

TIMES = float(os.environ.get("DC_INJECT_FUZZ", "0.5"))  # the cases that each property names
SEED = int(os.environ.get("DC_INJECT_FUZZ_SEED", "0"))

ran: Counter[str] = Counter()  # cases, by property
properties: dict[str, Callable[[], None]] = {}


def fuzz(count: int, **what: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Make a test of `count` cases (in `make fuzz` many times that) of a function of what is drawn."""

    def decorate(test: Callable[..., None]) -> Callable[[], None]:
        name = f"{test.__module__.removeprefix('tests.')}.{test.__name__}"

        @functools.wraps(test)
        def counted(**drawn: Any) -> None:
            ran[name] += 1
            test(**drawn)

        many = TIMES > 1
        properties[name] = made = settings(
            max_examples=max(1, round(count * TIMES)),
            deadline=None,
            derandomize=not many,
            database=None,
            suppress_health_check=list(HealthCheck),
        )(given(**what)(counted))
        return seed(SEED)(made) if many else made

    return decorate
