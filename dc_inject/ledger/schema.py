"""The schema of a ledger: the statements of schema.sql, and the version by which a file is known.

A ledger of version 1 is converted when it is opened to write (`convert`), and read as it is; a later version is
refused.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from importlib import resources

APPLICATION_ID = 0x64634A31  # "dcJ1": what `file` and we know a ledger by
VERSION = 2
READABLE = frozenset({1, VERSION})
_SINCE = {"start": 2}  # tables that version 1 lacks
ENDS = "('gone', 'refused', 'withdrawn')"  # final states, as the partial index of active injections has them


def version(connection: sqlite3.Connection) -> int | None:
    """Return the version of a ledger's tables, 0 for an empty database, None for somebody else's."""
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


def _since(statement: str) -> int:
    """Return the version that brought a statement."""
    return next((number for table, number in _SINCE.items() if f"CREATE TABLE {table} (" in statement), 1)


def _statements() -> Iterator[str]:
    """Yield the statements of schema.sql one by one: `executescript` would commit the caller's transaction."""
    statement = ""
    for line in resources.files(__package__).joinpath("schema.sql").read_text("utf-8").splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
