"""Short ways to say a flow, a dataset and a situation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from dc_inject.model import Cycle, Dataset, DatasetFilter, Flow, Item, Limits, Link, PoolKey
from dc_inject.model.services import SERVICES
from dc_inject.planning.plan import Account, Demand, Situation

START = datetime(2027, 2, 8, 10, 0, tzinfo=UTC)
LENGTH = timedelta(minutes=15)
CYCLE = Cycle.at(START, LENGTH)
GB, TB = 10**9, 10**12
ALL = DatasetFilter(("*:*",), files=(1, 10**6), mean_file=(1, 10**15))
NO_LIMITS = Limits(total=1e15, per_site=1e15, rules_per_hour=10**9, files_in_flight=10**9)


def gbps(value: float) -> float:
    """Gb/s as bytes per second."""
    return value * 1e9 / 8


def flow(source: str = "A", destination: str = "B", rate: float = 10, **more: Any) -> Flow:
    """A flow of `rate` Gb/s for a day from START, in scenario `test` unless told otherwise."""
    values: dict[str, Any] = {
        "scenario": "test",
        "start": START,
        "end": START + timedelta(days=1),
        "datasets": ALL,
        **more,
    }
    return Flow(link=Link(source, destination, values.pop("through", "rucio")), rate=gbps(rate), **values)


def items(*sizes: int, name: str = "cms:/data") -> list[Item]:
    """Datasets of these bytes, in files of 5 GB or so."""
    return [Dataset(f"{name}#{i:04}", size, max(1, size // (5 * GB))) for i, size in enumerate(sizes)]


def demand(what: Flow, due: int, **more: Any) -> Demand:
    """The demand of a first cycle: the account holds just its due."""
    values: dict[str, Any] = {"recent_due": due, "account": Account(due=due), **more}
    return Demand(what, due, **values)


def situation(demands: Sequence[Demand], pool: Sequence[Item], **more: Any) -> Situation:
    """A situation in which every link chooses from the same pool, and nothing is limited.

    Rules can be ended early, but it is not known yet how soon: so the pool is not paced.
    """
    values: dict[str, Any] = {"now": CYCLE.start, "limits": NO_LIMITS, "may_end": set(SERVICES), **more}
    pools = {PoolKey(d.flow.link.source, d.flow.datasets): pool for d in demands}
    return Situation("camp", "me@example.org", CYCLE, demands=tuple(demands), pools=pools, **values)
