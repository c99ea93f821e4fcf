"""What the parts of a ledger share: its database."""

from __future__ import annotations

import json
import sqlite3
from functools import lru_cache
from typing import Any

from dc_inject.ledger.database import Database, duration, moment
from dc_inject.model import Cycle, FlowKey, Held, Hold, Link
from dc_inject.model.errors import LedgerError

_DAMAGED = "see what else is damaged with `dc-inject ledger check CAMPAIGN`, and continue with a backup"


class Store:
    """Some of a ledger's methods; all parts of one ledger work on one connection."""

    def __init__(self, database: Database) -> None:
        self._db = database


@lru_cache(maxsize=256)
def cycle_of(start: int, length: int) -> Cycle:
    """Return a stored cycle; thousands of rows have the same."""
    return Cycle(moment(start), duration(length))


FLOW = "scenario, source, destination, through"  # columns of an account, as `flow_of` takes them


def flow_key(row: sqlite3.Row) -> FlowKey:
    """Return the flow key of an account."""
    return FlowKey(row["scenario"], Link(row["source"], row["destination"], row["through"]))


@lru_cache(maxsize=1 << 14)  # a campaign has few of them, and each is in thousands of rows
def flow_of(scenario: str, source: str, destination: str, through: str) -> FlowKey:
    """Return the flow key of the columns `FLOW`: taken by their place, since a look-up by name costs much more."""
    return FlowKey(scenario, Link(source, destination, through))


def hold_columns(held: Held | None) -> tuple[str | None, str | None]:
    """Return a hold and its numbers as they are stored."""
    return (None, None) if held is None else (str(held.hold), json.dumps(dict(held.numbers)))


def held(hold: str | None, numbers: str | None) -> Held | None:
    """Return a stored hold."""
    return None if hold is None else Held(Hold(hold), read_object(numbers or "{}"))


def read_json(text: str, *, kind: type = object) -> Any:  # noqa: ANN401  whatever was stored
    """Return a stored JSON value; raises LedgerError for a text that is none, or not of this kind."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, kind) or value is None:
        raise LedgerError(f"the ledger is damaged: it contains {text[:60]!r} instead of JSON", _DAMAGED)
    return value


def read_object(text: str) -> dict[str, Any]:
    """Return a stored JSON object; raises LedgerError for a text that is none."""
    value: dict[str, Any] = read_json(text, kind=dict)
    return value
