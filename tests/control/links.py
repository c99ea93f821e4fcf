"""Links and storages for tests of the law: a link is due 100 files of a GB a cycle."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import Any

import pytest

from dc_inject.control.law import (
    ROUNDS,
    Arrival,
    Flight,
    LinkState,
    Place,
    StorageState,
    renew_link,
    renew_storage,
    yield_to_fast,
)

GB = 10**9
CYCLE = 900.0
ROUND = CYCLE / ROUNDS
START = 1e6
TARGET = 100  # files a cycle
BASE = 600.0  # seconds that a file takes here, unless told otherwise
PLACES = count()  # links of their own, each
near = partial(pytest.approx, rel=0.05)  # how long files take is forgotten slowly


def link(base: float | None = BASE, **more: Any) -> LinkState:
    """A link that is due 100 files of a GB a cycle, of which it is known how long they take; None: it is not."""
    known = {} if base is None else {"slow": base / GB}
    usual = {"acts": True, "target": TARGET * GB / CYCLE, "lifetime": 1e5, "size": float(GB), "least": ROUND}
    own = str(next(PLACES))
    return LinkState(**{**usual, **known, "name": own, "place": own, "began": START, **more})


def renew(storage: StorageState, links: Sequence[LinkState], now: float) -> None:
    """Renew a storage just after its links were observed, and let its links yield."""
    for one in links:
        one.renewed = now
    renew_storage(storage, links, now, CYCLE)
    for one in links:
        yield_to_fast(one, [at(storage, links)], now, CYCLE)


def at(storage: StorageState, links: Sequence[LinkState]) -> Place:
    return storage, links, [one for one in links if one.waits]


def flights(count: float, age: float = ROUND) -> list[Flight]:
    return [Flight(count, age, GB)] if count else []


def look(one: LinkState, seen: Sequence[Flight], now: float) -> None:
    """Renew a link after a look at it."""
    renew_link(one, seen, now, CYCLE)


def carry(one: LinkState, now: float, rounds: int, files: float, took: float, waiting: float = 0.0) -> float:
    """Let so many files arrive in each of some rounds, each after the same time; return when that ends."""
    slow = one.slow
    for _ in range(rounds):
        now += ROUND
        one.slow = slow  # seen again and again
        one.arrived.append(Arrival(now, files, took, GB))
        look(one, flights(files, ROUND) + flights(waiting, took), now)
    return now
