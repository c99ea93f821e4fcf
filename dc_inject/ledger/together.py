"""The ledgers of a campaign in shards, read as one: views over all of them, with the names of the tables.

    account  =  SELECT ... FROM shard0.account  UNION ALL  SELECT ... FROM shard1.account  UNION ALL ...

So every reader (`Reader`) works as with one ledger. Shards have no destination in common (`planning/shards.py`),
and so no account, row, injection or quarantine: those stand beside each other, with numbers that are made unique.
Of what all shards have (cycles, signals, menus, what people set) one is shown. A cycle is as the first shard has
it, so one that died does not keep it open for all; of the rest the newest counts.

Nothing can be written here. The views are temporary, and the files are open read-only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

_UNIQUE = 16  # times a number of one ledger, and the number of its shard: a number of all
_NUMBERED = {  # tables of which each shard has its own rows, and their columns that refer to rows
    "account": ("id",),
    "account_hold": ("account",),
    "failure": ("account",),
    "cycle_row": ("account",),
    "decision": ("account",),
    "injection": ("account",),
    "once_only": (),
    "quarantine": (),
    "note": ("id",),
    "challenge": ("id",),
    "pool_item": ("pool",),
}
_MERGED = {  # of the rows of all shards (`every`): what is one
    "campaign": "SELECT 1 AS id, name, cycle_length, min(bound_at) AS bound_at, min(since) AS since FROM every",
    "identity": "SELECT service, address, vo, account, version, may_end, credentials_until, "
    "max(seen_at) AS seen_at FROM every GROUP BY service",
    "menu": "SELECT max(id) AS id, name, digest, text, min(since) AS since, "
    "iif(count(*) > count(until), NULL, max(until)) AS until FROM every GROUP BY name, digest, text",
    "resolution": "SELECT service, expression, names, min(at) AS at FROM every GROUP BY service, expression",
    "change": "SELECT min(id) AS id, at, who, what, why FROM every GROUP BY at, who, what, why",
    "pause": "SELECT min(id) AS id, subject, who, why, since, "
    "iif(count(*) > count(until), NULL, max(until)) AS until FROM every GROUP BY subject, who, why, since",
    "override": "SELECT min(id) AS id, subject, kind, value, who, why, since, "
    "iif(count(*) > count(until), NULL, max(until)) AS until FROM every "
    "GROUP BY subject, kind, value, who, why, since",
    "signal": "SELECT name, subject, value, max(at) AS at, why FROM every GROUP BY name, subject",
    "pool": "SELECT id, service, source, datasets, max(read_at) AS read_at FROM every "
    "GROUP BY service, source, datasets",
    "state_count": "SELECT state, sum(entries) AS entries, sum(bytes) AS bytes FROM every GROUP BY state",
    "cycle": "SELECT start, max(length) AS length, min(opened_at) AS opened_at, min(planned_at) AS planned_at, "
    "min(closed_at) AS closed_at FROM every GROUP BY start",
}
_IDS = {"menu", "change", "pause", "override", "pool"}  # those of the merged that have numbers


def attach(connection: sqlite3.Connection, uris: Sequence[str]) -> None:
    """Let a connection to an empty database read these ledgers as one."""
    for number, uri in enumerate(uris):
        connection.execute(f"ATTACH ? AS shard{number}", (uri,))
    for statement in _views(connection, len(uris)):
        connection.execute(statement)


def _views(connection: sqlite3.Connection, count: int) -> Iterator[str]:
    for table, numbers in _NUMBERED.items():
        yield f"CREATE TEMP VIEW {table} AS {_every(connection, table, numbers, count)}"
    for table, merged in _MERGED.items():
        every = _every(connection, table, ("id",) if table in _IDS else (), count)
        yield f"CREATE TEMP VIEW {table} AS WITH every AS ({every}) {merged}"


def _every(connection: sqlite3.Connection, table: str, numbers: Sequence[str], count: int) -> str:
    """Return the query for the rows of a table in all shards."""
    columns = [row[1] for row in connection.execute(f"PRAGMA shard0.table_info({table})")]
    return " UNION ALL ".join(
        f"SELECT {', '.join(_column(name, shard) if name in numbers else name for name in columns)} "  # noqa: S608  our own words
        f"FROM shard{shard}.{table}"
        for shard in range(count)
    )


def _column(name: str, shard: int) -> str:
    return f"{name} * {_UNIQUE} + {shard} AS {name}"
