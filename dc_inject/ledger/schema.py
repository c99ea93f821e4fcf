"""The schema of a ledger: the statements of schema.sql, and the version by which a file is known.

A ledger of version 1 is converted when it is opened to write (`convert`), and read as it is; a later version is
refused. So is a file that has other tables, views or triggers than its version: a view can calculate for ever.

The ledgers of a campaign in shards are read as one (`attach`): views over all have the names of the tables.

    account  =  SELECT ... FROM shard0.account  UNION ALL  SELECT ... FROM shard1.account  UNION ALL ...

So every reader (`Reader`) works as with one ledger. Shards have no destination in common (`planning/shards.py`),
and so no account, row, injection or quarantine: those stand next to each other, with numbers that are made unique.
Of what all shards have (cycles, signals, menus, what people set) one is shown. A cycle is as the first shard has
it, so one that died does not keep it open for all; of the rest the newest counts.

Nothing can be written here. The views are temporary, and the files are open read-only.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from dc_inject.model.errors import LedgerError

APPLICATION_ID = 0x64634A31  # "dcJ1": what `file` and we know a ledger by
VERSION = 2
ANOTHER = "name another file"
READABLE = frozenset({1, VERSION})
_SINCE = {"start": 2, "menu_part": 2}  # tables that version 1 lacks
_OBJECTS = """
  SELECT type || ' ' || name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'
  UNION SELECT 'column ' || c.name || ' (' || c.type || ') of ' || t.name || iif(c.hidden, ' (computed)', '')
  FROM sqlite_master t, pragma_table_xinfo(t.name) c WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'
"""
ENDS = "('gone', 'refused', 'withdrawn')"  # final states, as the partial index of active injections has them
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


def version(connection: sqlite3.Connection) -> int | None:
    """Return the version of a ledger's tables, 0 for an empty database, None for one of another program."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    number = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if application == APPLICATION_ID:
        return number
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return 0 if (application, number, tables) == (0, 0, 0) else None


def create(connection: sqlite3.Connection, number: int = VERSION) -> None:
    """Make all tables, indexes and triggers in an empty database; the caller has a transaction open."""
    for statement in _statements():
        if _since(statement) <= number:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {number}")


def convert(connection: sqlite3.Connection) -> None:
    """Add what an older version lacks; the caller has a transaction open."""
    was = version(connection) or 0
    for statement in _statements():
        if _since(statement) > was:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def refuse_other(path: Path, connection: sqlite3.Connection, *, created: bool = False) -> None:
    """Raise LedgerError for what is no ledger of ours in each table, or not `created` yet; it reads no table."""
    number = version(connection)
    refuse_version(path, number, created=created)
    if number and (found := differences(connection)):
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        raise LedgerError(
            f"{path} has not the tables of a ledger: {found[0]}{more}", f"go on with a backup, or {ANOTHER}"
        )


def refuse_version(path: Path, number: int | None, *, created: bool = False) -> None:
    """Raise LedgerError for a database of another program, or a ledger of another version or not `created` yet."""
    if number is None:
        raise LedgerError(f"{path} is a database, but not a ledger of dc_inject", ANOTHER)
    if number == 0 and created:
        raise LedgerError(f"{path} is empty: it is not a ledger yet", "`dc-inject run MENUS` makes it one")
    if number not in {0, *READABLE}:
        raise LedgerError(
            f"{path} is a ledger of version {number}, and this dc_inject reads versions up to {VERSION}",
            "use the dc_inject that wrote it; nothing was changed",
        )


def differences(connection: sqlite3.Connection) -> list[str]:
    """Return the tables, columns, indexes, triggers and views that a ledger lacks, or has without need."""
    texts, wanted = _fresh(version(connection) or VERSION)
    if _texts(connection) == texts:
        return []  # as almost always, in a tenth of the time
    existing = _objects(connection)
    return [f"{name} is missing" for name in sorted(wanted - existing)] + [
        f"{name} is unknown" for name in sorted(existing - wanted)
    ]


@cache
def _fresh(number: int) -> tuple[frozenset[tuple[str, ...]], frozenset[str]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as fresh:
        create(fresh, number)
        return _texts(fresh), _objects(fresh)


def _texts(connection: sqlite3.Connection) -> frozenset[tuple[str, ...]]:
    """Return the names of everything in a database, and the statements that made it."""
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
    return frozenset(map(tuple, rows))


def _objects(connection: sqlite3.Connection) -> frozenset[str]:
    """Return everything that a database has, in words; of a table with its columns, but for those of SQLite."""
    return frozenset(text for (text,) in connection.execute(_OBJECTS))


def _since(statement: str) -> int:
    """Return the version that brought a statement."""
    return next((number for table, number in _SINCE.items() if f"CREATE TABLE {table} (" in statement), 1)


@cache
def _statements() -> list[str]:
    """Return the statements of schema.sql one by one: `executescript` would commit the caller's transaction."""
    found, statement = [], ""
    for line in resources.files(__package__).joinpath("schema.sql").read_text("utf-8").splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            found.append(statement)
            statement = ""
    return found


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
