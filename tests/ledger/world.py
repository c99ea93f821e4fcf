"""What the ledger's tests write about: one campaign of three links, cycles of a quarter of an hour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dc_inject.ledger import Ledger, Reader, Totals
from dc_inject.ledger.accounts import recomputed
from dc_inject.ledger.database import flow_key
from dc_inject.model import Cycle, Dataset, DatasetFilter, FlowKey, Held, Injection, Link, PoolKey, naming
from dc_inject.model.plan import FlowDecision, Plan
from dc_inject.model.ports import Identity, Observation, Outcome, Status

START = datetime(2027, 2, 8, 10, 0, tzinfo=UTC)
LENGTH = timedelta(minutes=15)
CYCLE = Cycle(START, LENGTH)
MINUTE = timedelta(minutes=1)
GB = 10**9
AB = FlowKey("day", Link("A", "B"))
AC = FlowKey("day", Link("A", "C"))
DB = FlowKey("night", Link("D", "B"))
FLOWS = (AB, AC, DB)
ME = Identity("rucio", "https://rucio.example.org:443", "41.5.1", "def", "dcops", admin=False, may_end=True)
POOL = PoolKey("A", DatasetFilter(("cms:*",), exclude=("cms:/x*",)))


def opened(folder: Path, **more: Any) -> Ledger:
    """A fresh ledger in a folder; without fsync, which no test here depends on."""
    return Ledger.open(folder / "dc27.sqlite", synchronous="OFF", **more)


def injection(name: str = "cms:/a#1", key: FlowKey = AB, cycle: Cycle = CYCLE, **more: Any) -> Injection:
    """The intent to give a dataset (100 GB, 50 files) to a link in a cycle."""
    values: dict[str, Any] = {
        "item": Dataset(name, 100 * GB, 50),
        "release": cycle.start + MINUTE,
        "lifetime": timedelta(hours=1),
        "activity": "Data Challenge",
        "service_priority": 3,
        "contact": "me@example.org",
        **more,
    }
    made = naming.key("dc27", key.scenario, cycle.start, key.link, name)
    return Injection(made, "dc27", cycle, key.scenario, key.link, **values)


def plan(injections: Sequence[Injection] = (), cycle: Cycle = CYCLE, **decided: Any) -> Plan:
    """A plan of a cycle that decides the same for every flow."""
    values: dict[str, Any] = {
        "due": 450 * GB,
        "want": 500 * GB,
        "cap": 900 * GB,
        "budget": 400 * GB,
        "forgiven": 0,
        "held": None,
        "lifetime": timedelta(hours=1),
        "items": (),
        "pool_items": 7,
        "pool_bytes": 700 * GB,
        **decided,
    }
    return Plan(cycle, tuple(FlowDecision(key=key, **values) for key in FLOWS), tuple(injections))


def dues(due: int = 450 * GB, held: Held | None = None) -> dict[FlowKey, tuple[int, Held | None]]:
    return dict.fromkeys(FLOWS, (due, held))


def started(ledger: Ledger, *injections: Injection) -> None:
    """Open and plan the first cycle with these intents."""
    ledger.bind("dc27", LENGTH, (ME,), START)
    ledger.open_cycle(CYCLE, dues(), START)
    ledger.record_plan(plan(injections), START)


def accepted(ledger: Ledger, *injections: Injection, present: int = 0) -> list[str]:
    """Ask for intents that the service accepts; returns their keys."""
    keys = [one.key for one in injections]
    ledger.call(keys, START + MINUTE)
    outcomes = [Outcome(key, f"rule-{key[:8]}", present=present) for key in keys]
    ledger.answer(outcomes, START + 2 * MINUTE, {})
    return keys


def seen(key: str, status: Status, **more: Any) -> Observation:
    return Observation(key, status, **more)


def totals_from_rows(ledger: Reader) -> Mapping[FlowKey, Totals]:
    """Return the accounts as they follow from rows and injections, read one by one: to check `accounts` by."""
    with ledger.snapshot():
        rows = ledger._db.rows(
            "SELECT scenario, source, destination, through, sum(r.due) AS due, sum(r.forgiven) AS forgiven "
            "FROM cycle_row AS r JOIN account ON id = account GROUP BY id"
        )
        return recomputed({flow_key(row): (row["due"], row["forgiven"]) for row in rows}, ledger._entries())
