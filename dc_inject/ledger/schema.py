"""The tables of a ledger, and the steps from one version of them to the next.

Times and durations are integers: microseconds since 1970-01-01T00:00Z. They compare, add and subtract in SQL as
they do in Python, without any text that a time zone or a rounding could get into; `datetime(t / 1e6, 'unixepoch')`
shows one to a person. Sizes are bytes. No SQL is newer than SQLite 3.34, so types are held by CHECK.

Totals are kept by triggers, in the transaction of the event itself: whatever changes an injection or a row, with
whatever statement, the account follows. Closed rows are kept from change by triggers too.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

APPLICATION_ID = 0x64634A31  # "dcJ1": what `file` and we know a ledger by

ENDS = "('gone', 'refused', 'withdrawn')"  # nothing follows after these: no cycle looks at them again
_STATES = f"('intended', 'called', 'live', 'complete', 'ended', {ENDS[1:]}"
_ACCEPTED = "('live', 'complete', 'ended', 'gone')"


def _measures(counting: str) -> dict[str, str]:
    """Return what one injection adds to each running total of its account, @ standing for the row.

    `counting` are the bytes of it that count as injected once it is accepted.
    """
    return {
        "injected": f"iif(@.accepted_at IS NULL, 0, {counting})",
        "in_doubt": "iif(@.state = 'called', @.bytes, 0)",
        "moved": "@.moved",
        "estimated": "iif(@.moved_exact, 0, @.moved)",
        "resident": f"iif(@.state IN {ENDS}, 0, {counting})",
        "coming": f"iif(@.state IN ('called', 'live'), {counting} - @.moved, 0)",
        "files_in_flight": "iif(@.state IN ('called', 'live'), @.files - @.files_done, 0)",
        "rules": "(@.accepted_at IS NOT NULL)",
    }


_MEASURES = _measures("@.bytes - @.present")
_TOLD = ("injected", "moved", "estimated", "rules")  # what closed rows have told of each account


def _int(name: str, *, null: bool = False, least: int | None = 0, default: int | None = None) -> str:
    """Return a column of integers, held to it."""
    kind = "('integer', 'null')" if null else "('integer')"
    bound = "" if least is None else f" AND {name} >= {least}"
    value = "" if default is None else f" NOT NULL DEFAULT {default}"
    return f"{name} INTEGER{value} CHECK (typeof({name}) IN {kind}{bound})"


def _text(name: str, *, null: bool = False, filled: bool = False) -> str:
    """Return a column of text, held to it; `filled` forbids the empty one."""
    kind = "('text', 'null')" if null else "('text')"
    return f"{name} TEXT CHECK (typeof({name}) IN {kind}{f' AND length({name}) > 0' if filled else ''})"


def _time(name: str, *, null: bool = False) -> str:
    return _int(name, null=null, least=None)


def _table(name: str, *parts: str, tail: str = "") -> str:
    return f"CREATE TABLE {name} (\n  " + ",\n  ".join(parts) + f"\n){tail}"


def _trigger(name: str, event: str, *statements: str) -> str:
    return f"CREATE TRIGGER {name} {event} BEGIN {' '.join(f'{statement};' for statement in statements)} END"


def _refused(name: str, event: str, why: str) -> str:
    return _trigger(name, f"BEFORE {event}", f"SELECT RAISE(ABORT, '{why}')")


_COUNTED_OUT = "UPDATE state_count SET entries = entries - 1, bytes = bytes - OLD.bytes WHERE state = OLD.state"
_COUNTED_IN = (
    "INSERT INTO state_count VALUES (NEW.state, 1, NEW.bytes) ON CONFLICT (state) "
    "DO UPDATE SET entries = entries + 1, bytes = bytes + NEW.bytes"
)


def _shared(measures: Mapping[str, str], *signs: tuple[str, str]) -> str:
    """Return the statement that adds an injection's share to its account's totals, and takes an old one out."""
    steps = (
        f"{name} = {name}" + "".join(f" {sign} {share.replace('@', row)}" for sign, row in signs)
        for name, share in measures.items()
    )
    return f"UPDATE account SET {', '.join(steps)} WHERE id = NEW.account"  # noqa: S608  our own words


_MEASURED = ("state", "bytes", "files", "accepted_at", "present", "moved", "moved_exact", "files_done")


def _following(measures: Mapping[str, str], measured: Sequence[str]) -> tuple[str, str]:
    """Return the triggers by which totals follow injections; `measured` are the columns that measures read."""
    changed = " OR ".join(f"NEW.{name} IS NOT OLD.{name}" for name in measured)
    return (
        _trigger("injection_new", "AFTER INSERT ON injection", _shared(measures, ("+", "NEW")), _COUNTED_IN),
        _trigger(
            "injection_moved_on",
            f"AFTER UPDATE OF {', '.join(measured)} ON injection WHEN {changed}",
            _shared(measures, ("+", "NEW"), ("-", "OLD")),
            _COUNTED_OUT,
            _COUNTED_IN,
        ),
    )


_IS_CLOSED = "(SELECT closed_at FROM cycle WHERE start = {row}.cycle) IS NOT NULL"
_FOR_GOOD = "a closed cycle never changes"

_VERSION_1 = (
    _table(
        "campaign",  # one row: what the ledger is bound to
        "id INTEGER PRIMARY KEY CHECK (id = 1)",
        _text("name", null=True, filled=True),
        _int("cycle_length", null=True, least=1),
        _time("bound_at", null=True),
        _time("since", null=True),
    ),
    "INSERT INTO campaign (id) VALUES (1)",
    _table(
        "identity",
        "service TEXT PRIMARY KEY NOT NULL",
        *(_text(name) for name in ("address", "vo", "account", "version")),
        "may_end INTEGER CHECK (may_end IN (0, 1))",
        _time("credentials_until", null=True),
        _time("seen_at"),
    ),
    _table(
        "menu",
        "id INTEGER PRIMARY KEY",
        *(_text(name) for name in ("name", "digest", "text")),
        _time("since"),
        _time("until", null=True),
    ),
    "CREATE UNIQUE INDEX menu_in_force ON menu (name) WHERE until IS NULL",
    _table(
        "resolution",
        _text("service"),
        _text("expression"),
        _text("names"),  # a JSON list
        _time("at"),
        "PRIMARY KEY (service, expression)",
        tail=" WITHOUT ROWID",
    ),
    _table("change", "id INTEGER PRIMARY KEY", _time("at"), *(_text(name) for name in ("who", "what", "why"))),
    _table(
        "pause",
        "id INTEGER PRIMARY KEY",
        *(_text(name) for name in ("subject", "who", "why")),
        _time("since"),
        _time("until", null=True),
    ),
    "CREATE UNIQUE INDEX pause_in_force ON pause (subject) WHERE until IS NULL",
    _table("note", "id INTEGER PRIMARY KEY", _time("at"), _text("text")),
    _table(
        "quarantine",
        _text("item", filled=True),
        _text("destination", filled=True),
        _text("why"),
        _time("since"),
        _time("until", null=True),
        _int("times", least=1),
        "PRIMARY KEY (item, destination)",
        tail=" WITHOUT ROWID",
    ),
    "CREATE INDEX quarantine_until ON quarantine (until)",
    _table(
        "signal",
        _text("name"),
        _text("subject"),
        "value CHECK (typeof(value) IN ('integer', 'real', 'text', 'null'))",
        _time("at"),
        _text("why"),
        "PRIMARY KEY (name, subject)",
        tail=" WITHOUT ROWID",
    ),
    _table(
        "account",
        "id INTEGER PRIMARY KEY",
        *(_text(name, filled=True) for name in ("scenario", "source", "destination", "through")),
        *(_int(name, default=0) for name in ("due", "extra", "forgiven", "cycles", *_MEASURES)),
        *(_int(f"told_{name}", default=0) for name in _TOLD),
        "UNIQUE (scenario, source, destination, through)",
    ),
    _table(
        "account_hold",  # how many closed cycles each hold led, so that nobody has to count rows
        "account INTEGER NOT NULL REFERENCES account (id)",
        _text("hold", filled=True),
        _int("cycles", least=1),
        "PRIMARY KEY (account, hold)",
        tail=" WITHOUT ROWID",
    ),
    _table(
        "cycle",
        "start INTEGER PRIMARY KEY NOT NULL",
        _int("length", least=1),
        _time("opened_at"),
        _time("planned_at", null=True),
        _time("closed_at", null=True),
    ),
    "CREATE INDEX cycle_unclosed ON cycle (start) WHERE closed_at IS NULL",
    _table(
        "cycle_row",
        "cycle INTEGER NOT NULL REFERENCES cycle (start)",
        "account INTEGER NOT NULL REFERENCES account (id)",
        _int("due"),
        _int("extra", default=0),  # what the overhead adds to the due
        *(_int(name, null=True, least=None) for name in ("want", "cap", "budget")),
        _int("forgiven", default=0),
        *(_int(name, default=0, least=None) for name in _TOLD),
        _text("hold", null=True, filled=True),
        _text("numbers", null=True),  # a JSON object
        *(_int(name, null=True) for name in ("lifetime", "pool_items", "pool_bytes")),
        "PRIMARY KEY (cycle, account)",
        "CHECK ((hold IS NULL) = (numbers IS NULL))",
        tail=" WITHOUT ROWID",
    ),
    _table(
        "injection",
        "key TEXT PRIMARY KEY NOT NULL",
        "account INTEGER NOT NULL REFERENCES account (id)",
        "cycle INTEGER NOT NULL REFERENCES cycle (start)",
        _text("campaign", filled=True),
        _text("item", filled=True),
        _int("bytes"),
        _int("files"),
        _time("release"),
        _int("lifetime"),
        _text("activity"),
        _int("service_priority"),
        _text("contact"),
        f"state TEXT NOT NULL CHECK (state IN {_STATES})",
        _text("external_id"),
        _int("attempt"),
        _time("intended_at"),
        *(
            _time(name, null=True)
            for name in (
                "not_before",
                "called_at",
                "accepted_at",
                "expires_at",
                "completed_at",
                "end_asked_at",
                "ended_at",
                "gone_at",
                "dropped_at",  # refused or withdrawn
                "observed_at",
            )
        ),
        _int("present", default=0),
        _int("moved", default=0),
        "moved_exact INTEGER NOT NULL DEFAULT 0 CHECK (moved_exact IN (0, 1))",
        _int("files_done", default=0),
        _int("files_stuck", default=0),
        _text("error"),
        f"CHECK ((state IN {_ACCEPTED}) = (accepted_at IS NOT NULL))",
        "CHECK (state <> 'called' OR called_at IS NOT NULL)",
        "CHECK (accepted_at IS NOT NULL OR (moved = 0 AND present = 0))",
        "CHECK (moved + present <= bytes AND files_done <= files)",
    ),
    f"CREATE INDEX injection_active ON injection (state) WHERE state NOT IN {ENDS}",
    "CREATE INDEX injection_cycle ON injection (cycle)",
    "CREATE INDEX injection_completed ON injection (completed_at) WHERE completed_at IS NOT NULL",
    _table(
        "state_count", "state TEXT PRIMARY KEY NOT NULL", *(_int(name, default=0) for name in ("entries", "bytes"))
    ),
    _table(
        "pool",
        "id INTEGER PRIMARY KEY",
        _text("service"),
        _text("source"),
        _text("datasets"),  # the filter as JSON
        _time("read_at"),
        "UNIQUE (service, source, datasets)",
    ),
    _table(
        "pool_item",
        "pool INTEGER NOT NULL REFERENCES pool (id)",
        _text("item", filled=True),
        _int("bytes"),
        _int("files"),
        "PRIMARY KEY (pool, item)",
        tail=" WITHOUT ROWID",
    ),
    # ---- totals follow what happens
    *_following(_MEASURES, _MEASURED),
    _trigger(
        "row_new",
        "AFTER INSERT ON cycle_row",
        "UPDATE account SET due = due + NEW.due, extra = extra + NEW.extra, cycles = cycles + (NEW.due > 0) "
        "WHERE id = NEW.account",
        "UPDATE account SET forgiven = forgiven + NEW.forgiven WHERE id = NEW.account",
    ),
    _trigger(
        "row_forgiven",
        "AFTER UPDATE OF forgiven ON cycle_row",
        "UPDATE account SET forgiven = forgiven + NEW.forgiven - OLD.forgiven WHERE id = NEW.account",
    ),
    # ---- what was written once stays
    _refused("injection_stays", "DELETE ON injection", "an injection is never forgotten"),
    _refused(
        "injection_is_one", "UPDATE OF key, account, cycle, item ON injection", "an injection stays what it is"
    ),
    _refused("row_due", "UPDATE OF due, extra, cycle, account ON cycle_row", "what was due does not change"),
    _refused("row_insert", f"INSERT ON cycle_row WHEN {_IS_CLOSED.format(row='NEW')}", _FOR_GOOD),
    _refused("row_update", f"UPDATE ON cycle_row WHEN {_IS_CLOSED.format(row='OLD')}", _FOR_GOOD),
    _refused("row_delete", "DELETE ON cycle_row", _FOR_GOOD),
    _refused("cycle_update", "UPDATE ON cycle WHEN OLD.closed_at IS NOT NULL", _FOR_GOOD),
    _refused("cycle_delete", "DELETE ON cycle", _FOR_GOOD),
)

_VERSION_2 = (  # bundles of files through FTS, and bytes of them that will not arrive
    f"ALTER TABLE injection ADD COLUMN {_int('failed', default=0)} CHECK (moved + present + failed <= bytes)",
    f"ALTER TABLE injection ADD COLUMN {_text('members', null=True)}",  # JSON, until they are gone
    f"ALTER TABLE injection ADD COLUMN {_text('job', null=True)}",  # JSON
    f"ALTER TABLE pool_item ADD COLUMN {_text('checksum', null=True)}",
    "DROP TRIGGER injection_new",
    "DROP TRIGGER injection_moved_on",
    *_following(_measures("@.bytes - @.present - @.failed"), (*_MEASURED, "failed")),
    _table(
        "failure",  # files that failed, by the class of the reason
        "account INTEGER NOT NULL REFERENCES account (id)",
        _text("reason", filled=True),
        _int("files", least=1),
        "PRIMARY KEY (account, reason)",
        tail=" WITHOUT ROWID",
    ),
)

_VERSION_3 = (  # what a link is to reach beside its rate, what goes out once only, and bytes that failed
    f"ALTER TABLE account ADD COLUMN {_text('goal', null=True, filled=True)}",
    f"ALTER TABLE account ADD COLUMN {_int('goal_bytes', null=True)}",
    _table(
        "given",  # the datasets or files of injections whose scenario gives each of them once
        "key TEXT NOT NULL REFERENCES injection (key)",
        _text("item", filled=True),
        "PRIMARY KEY (key, item)",
        tail=" WITHOUT ROWID",
    ),
    f"ALTER TABLE account ADD COLUMN {_int('failed', default=0)}",
    # One scan for all accounts: injections have no index by account.
    "CREATE TEMP TABLE lost AS SELECT account, sum(failed) AS bytes FROM injection WHERE failed > 0 GROUP BY 1",
    "UPDATE account SET failed = coalesce((SELECT bytes FROM temp.lost WHERE lost.account = account.id), 0)",
    "DROP TABLE temp.lost",
    "DROP TRIGGER injection_new",
    "DROP TRIGGER injection_moved_on",
    *_following({**_measures("@.bytes - @.present - @.failed"), "failed": "@.failed"}, (*_MEASURED, "failed")),
)

_VERSION_4 = (  # what a person sets over the menus while they run
    _table(
        "override",
        "id INTEGER PRIMARY KEY",
        _text("subject", filled=True),
        "kind TEXT NOT NULL CHECK (kind IN ('rate', 'scale'))",
        "value REAL NOT NULL CHECK (typeof(value) = 'real' AND value > 0)",  # bytes per second, or a factor
        *(_text(name) for name in ("who", "why")),
        _time("since"),
        _time("until", null=True),
    ),
    "CREATE UNIQUE INDEX override_in_force ON override (subject, kind) WHERE until IS NULL",
)

_VERSION_5 = (  # files of jobs that a second hop takes on
    "ALTER TABLE injection ADD COLUMN keeps_files INTEGER NOT NULL DEFAULT 0 CHECK (keeps_files IN (0, 1))",
    f"ALTER TABLE injection ADD COLUMN {_text('undone', null=True)}",  # JSON: members that did not arrive
)

_VERSION_6 = (  # a mini-challenge: what it was asked, and its readings, from which its verdict follows
    _table(
        "challenge",
        "id INTEGER PRIMARY KEY",
        _time("at"),
        "kind TEXT NOT NULL CHECK (kind IN ('asked', 'reading', 'stopped'))",
        _text("text"),  # JSON
    ),
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    _VERSION_1,
    _VERSION_2,
    _VERSION_3,
    _VERSION_4,
    _VERSION_5,
    _VERSION_6,
)  # each brings a ledger to the version of its place, from 1
VERSION = len(MIGRATIONS)


def version(connection: sqlite3.Connection) -> int | None:
    """Return the version of a ledger's tables, 0 for an empty database, None for somebody else's."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    number = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if application == APPLICATION_ID:
        return number
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return 0 if (application, number, tables) == (0, 0, 0) else None


def migrate(connection: sqlite3.Connection, number: int) -> None:
    """Take the tables from version `number` to VERSION; the caller has a transaction open."""
    for statements in MIGRATIONS[number:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
