"""One SQLite connection: opening, transactions, and how times, flow keys, holds and JSON are stored."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from dc_inject.ledger import in_place, paths, schema
from dc_inject.ledger.errors import translated
from dc_inject.model import EPOCH, Cycle, FlowKey, Held, Hold, Link
from dc_inject.model.errors import LedgerError
from dc_inject.system import disk

PATIENCE = timedelta(seconds=30)  # how long a writer waits for another process's transaction
MAKING_TRIES, MAKING_PAUSE = 20, 0.1  # looks at an empty ledger, and seconds between them
SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")
AT_ONCE = 500  # values in one statement
CACHE = 32_000  # KiB of pages that a writer keeps in memory: keys are random, so each may be on any page
NEVER = 2**63 - 1  # later than any time that is kept
_MICROSECOND = timedelta(microseconds=1)

T = TypeVar("T")
# What this process has open. Closing any other handle of such a file would drop SQLite's locks on it (POSIX locks
# belong to the process), and then another process that closes the ledger would remove its log under us.
OPEN_HERE: Counter[Path] = Counter()
_DAMAGED = "see what else is damaged with `dc-inject ledger check CAMPAIGN`, and continue with a backup"
FLOW = "scenario, source, destination, through"  # columns of an account, as `flow_of` takes them


@lru_cache(maxsize=1 << 12)  # what happens at once has the same time in thousands of rows
def stored(moment: datetime | timedelta) -> int:
    """Return an aware time, or a duration, as the integer that the ledger keeps."""
    return (moment - EPOCH if isinstance(moment, datetime) else moment) // _MICROSECOND


def stored_or_none(moment: datetime | timedelta | None) -> int | None:
    """Return what `stored` returns; None stays None."""
    return None if moment is None else stored(moment)


def stored_or_never(moment: datetime | None) -> int:
    """Return what `stored` returns; for None a time later than any that is kept."""
    return NEVER if moment is None else stored(moment)


@lru_cache(maxsize=1 << 12)
def moment(number: int) -> datetime:
    """Return a stored time."""
    return EPOCH + timedelta(microseconds=number)


def moment_or_none(number: int | None) -> datetime | None:
    """Return a stored time; None stays None."""
    return None if number is None else moment(number)


@lru_cache(maxsize=1 << 10)
def duration(number: int) -> timedelta:
    """Return a stored duration."""
    return timedelta(microseconds=number)


class Database:
    """A connection to one ledger file; no error of SQLite leaves it untranslated."""

    def __init__(self, path: Path, connection: sqlite3.Connection, files: Sequence[Path] = ()) -> None:
        """Take an open connection, and its files if they are several; use `writable` or `readable` to get one."""
        self.path = path
        self.files = list(files) or [path]
        self._connection = connection
        self._connection.row_factory = sqlite3.Row
        self._writing = False
        self._broken: BaseException | None = None  # of a part of this transaction
        self._undone = 0  # transactions of ours that were rolled back
        self._version: int | None = None  # what others have written, as this transaction sees it
        self._open = [disk.real(file) for file in self.files]
        OPEN_HERE.update(self._open)

    @classmethod
    def writable(cls, path: Path, *, synchronous: str, patience: timedelta) -> Self:
        """Open a ledger to write, and make it when there is none; raises LedgerError with a hint."""
        if synchronous.upper() not in SYNCHRONOUS:
            raise LedgerError(
                f"{synchronous!r} is not a value of SQLite's `synchronous`",
                f"take one of {', '.join(SYNCHRONOUS)}",
            )
        paths.refuse_place(path)
        if paths.files(path) not in ([], [path]):
            raise LedgerError(f"{path} stands for the ledgers of shards", "name one of them to change it")
        if not OPEN_HERE[disk.real(path)]:
            in_place.make_file(path)
        in_place.make_log_ours(path)
        with translated(path):
            connection = sqlite3.connect(path, timeout=patience.total_seconds(), isolation_level=None)
        database = cls(path, connection)
        try:
            database._set_up(synchronous.upper())
        except BaseException:
            database.close()
            raise
        return database

    @classmethod
    def readable(cls, path: Path) -> Database:
        """Open a ledger that exists to read it, whatever others write; raises LedgerError with a hint.

        A campaign in shards is read as one by the place of its ledger.
        """
        files = paths.files(path)
        if files not in ([], [path]):
            return cls._together(path, files)
        if not path.exists():
            raise LedgerError(
                f"there is no ledger at {path}", "check the campaign's name, or name the file with --ledger"
            )
        if not OPEN_HERE[disk.real(path)]:
            in_place.refuse_foreign(path)
        with translated(path):
            uri = f"{path.absolute().as_uri()}?mode=ro"
            connection = sqlite3.connect(uri, uri=True, timeout=PATIENCE.total_seconds(), isolation_level=None)
        try:
            with translated(path):
                connection.execute("PRAGMA query_only = ON")
                for _ in range(MAKING_TRIES):
                    if schema.version(connection) != 0:
                        break
                    time.sleep(MAKING_PAUSE)  # another process is just making it
                schema.refuse_other(path, connection, created=True)
            return cls(path, connection)
        except BaseException:
            connection.close()
            raise

    @classmethod
    def _together(cls, path: Path, files: Sequence[Path]) -> Database:
        for file in files:
            cls.readable(file).close()  # which raises LedgerError for what is no ledger of ours
        with translated(path):
            connection = sqlite3.connect(
                ":memory:", uri=True, timeout=PATIENCE.total_seconds(), isolation_level=None
            )
            try:
                schema.attach(connection, [f"{file.absolute().as_uri()}?mode=ro" for file in files])
                connection.execute("PRAGMA query_only = ON")
            except BaseException:
                connection.close()
                raise
        return cls(path, connection, files)

    def _set_up(self, synchronous: str) -> None:
        with translated(self.path):
            run = self._connection.execute
            schema.refuse_other(self.path, self._connection)
            run(f"PRAGMA synchronous = {synchronous}")  # first: it is also how the change to a log is written
            mode = run("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise LedgerError(
                    f"{self.path} does not support a write-ahead log ({mode})", "move it to a local disk"
                )
            run("PRAGMA foreign_keys = ON")
            run(f"PRAGMA cache_size = -{CACHE}")
            run("PRAGMA temp_store = MEMORY")  # or each statement with a trigger takes 64 KiB, and gives them back
        with self.write():
            number = schema.version(self._connection)  # asked once more: another process may have been first
            if number == 0:
                schema.create(self._connection)
            elif number != schema.VERSION:
                schema.convert(self._connection)

    def close(self) -> None:
        """Close the connection; twice is once."""
        with translated(self.path):
            self._connection.close()
        self._version = None
        OPEN_HERE.subtract(self._open)
        self._open = []

    # ------------------------------------------------------------------ statements

    @contextlib.contextmanager
    def write(self) -> Iterator[None]:
        """Make all that is done inside one transaction: everything of it is on disk afterwards, or nothing.

        Inside another one it is part of that, and an error in a part undoes the whole. A writer waits for other
        processes' writers before it reads, so what it reads inside is what it changes.
        """
        if self._writing:
            self._refuse_broken()
            try:
                yield  # without a savepoint, for which SQLite copies each page that the part changes
            except BaseException as error:
                self._broken = self._broken or error
                raise
            return
        with translated(self.path):
            self._writing = True
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                self._version = None
                yield
                self._before_commit()
                self._connection.execute("COMMIT")
            except BaseException:
                self._undo()
                raise
            finally:
                self._writing, self._broken = False, None

    def _before_commit(self) -> None:
        self._refuse_broken()

    def _refuse_broken(self) -> None:
        if self._broken is not None:
            what = type(self._broken).__name__
            message = f"a part of this change of the ledger failed ({what}), so nothing of it is written"
            raise LedgerError(message, "see the error in the log") from self._broken

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let several queries see one state, whatever others write meanwhile; may be nested."""
        with translated(self.path):
            if self._connection.in_transaction:
                yield
                return
            try:
                self._connection.execute("BEGIN")
                yield
            finally:
                self._roll_back()

    def _undo(self) -> None:
        """Leave a transaction that was not committed: an error came before or in the commit, perhaps Ctrl-C."""
        if self._connection.in_transaction:
            self._undone += 1
            self._roll_back()

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def version(self) -> tuple[int, int]:
        """Return what differs when others have written, or a transaction of ours was rolled back.

        While we write no other process does, so that it is asked once in a transaction.
        """
        if self._version is None or not self._connection.in_transaction:
            with translated(self.path):
                self._version = int(self._connection.execute("PRAGMA data_version").fetchone()[0])
        return self._version, self._undone

    def run(self, sql: str, *values: object) -> int:
        """Run one statement; returns how many rows it changed."""
        with translated(self.path):
            return self._connection.execute(sql, values).rowcount

    def insert(self, table: str, otherwise: str = "", /, **columns: object) -> int:
        """Write a row, or do something else where it is there; returns how many rows were written."""
        places = ", ".join("?" * len(columns))
        with self.write():
            sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places}) {otherwise}"  # noqa: S608  our own words
            return self.run(sql, *columns.values())

    def run_many(self, sql: str, values: Iterable[Sequence[object]]) -> None:
        """Run one statement for each of many values."""
        with translated(self.path):
            self._connection.executemany(sql, values)

    def rows(self, sql: str, *values: object) -> list[Any]:
        """Return all rows of a query."""
        with translated(self.path):
            return self._connection.execute(sql, values).fetchall()

    def row(self, sql: str, *values: object) -> Any:  # noqa: ANN401  what a query gives
        """Return the first row of a query, or None."""
        with translated(self.path):
            return self._connection.execute(sql, values).fetchone()

    def stream(self, sql: str, *values: object) -> Iterator[Any]:
        """Yield the rows of a query one by one, for results too large to hold."""
        with translated(self.path):
            yield from self._connection.execute(sql, values)

    def rows_among(self, sql: str, values: Sequence[object]) -> Iterator[Any]:
        """Yield the rows of a query that asks for some values in `IN ({})`, in parts that SQLite can take."""
        for start in range(0, len(values), AT_ONCE):
            part = values[start : start + AT_ONCE]
            yield from self.rows(sql.format(", ".join("?" * len(part))), *part)

    def copy_to(self, path: Path) -> None:
        """Write a copy of the database as it is now; works while others write."""
        if self.files != [self.path]:
            raise LedgerError(f"{self.path} stands for the ledgers of shards", "name one of them to copy it")
        in_place.make_file(path)
        with translated(path), contextlib.closing(sqlite3.connect(path)) as copy:
            self._connection.backup(copy)


class Kept(Generic[T]):
    """What is read once and kept, until another process has written, a transaction was undone, or we change it."""

    def __init__(self, database: Database, read: Callable[[], T]) -> None:
        """Take the database, and what reads it."""
        self._db = database
        self._read = read
        self._value: tuple[object, T] | None = None

    def __call__(self) -> T:
        """Return it as it is now."""
        version = self._db.version()  # as it was before the reading: what came between is seen the next time
        if self._value is None or self._value[0] != version:
            self._value = version, self._read()
        return self._value[1]

    def forget(self) -> None:
        """Read it again the next time, since we change it."""
        self._value = None

    @contextlib.contextmanager
    def changing(self) -> Iterator[T]:
        """Give it to be changed with what is written inside; after an error it is read again."""
        value = self()
        kept, self._value = self._value, None
        yield value
        self._value = kept


class Store:
    """Some of a ledger's methods; all parts of one ledger work on one connection."""

    def __init__(self, database: Database) -> None:
        self._db = database


@lru_cache(maxsize=256)
def cycle_of(start: int, length: int) -> Cycle:
    """Return a stored cycle; thousands of rows have the same."""
    return Cycle(moment(start), duration(length))


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
