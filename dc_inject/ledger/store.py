"""What the parts of a ledger share: its database."""

from __future__ import annotations

import json
import sqlite3

from dc_inject.ledger.database import Database
from dc_inject.model import FlowKey, Held, Hold, Link


class Store:
    """Some of a ledger's methods; all parts of one ledger work on one connection."""

    def __init__(self, database: Database) -> None:
        self._db = database


def flow_key(row: sqlite3.Row) -> FlowKey:
    """Return the flow key of an account."""
    return FlowKey(row["scenario"], Link(row["source"], row["destination"], row["through"]))


def hold_columns(held: Held | None) -> tuple[str | None, str | None]:
    """Return a hold and its numbers as they are stored."""
    return (None, None) if held is None else (str(held.hold), json.dumps(dict(held.numbers)))


def held(hold: str | None, numbers: str | None) -> Held | None:
    """Return a stored hold."""
    return None if hold is None else Held(Hold(hold), json.loads(numbers or "{}"))
