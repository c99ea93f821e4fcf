"""A Rucio on PostgreSQL whose rows somebody else holds, and what its database remembers: the same invariants.

`held` keeps locking the rows of a campaign in a connection of its own; who wants them waits for half a second, and
gets the error that production databases give: "canceling statement due to lock timeout".
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from dc_inject.model.errors import ServiceError
from dc_inject.sandbox import environment, postgres
from dc_inject.sandbox.environment import python_of
from dc_inject.sandbox.state import State
from tests.chaos.crashes import Aim
from tests.chaos.lab import Ground, TimeIsUpError
from tests.chaos.parts import AFTER, Size
from tests.chaos.proxy import Weather
from tests.chaos.truth import Truth

TABLES = ("rules", "rules_hist_recent", "rules_history", "dids", "requests_history", "replicas", "locks", "tokens")
CYCLES = 8  # of a campaign without kills
KILLS = 8  # of the one with them
_DUMP = """
import datetime, decimal, json, psycopg, sys, uuid

def plain(value):
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    if isinstance(value, decimal.Decimal):
        return int(value)
    return value.hex if isinstance(value, uuid.UUID) else value

with psycopg.connect("service=rucio") as db:
    db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    found = {}
    for table in sys.argv[1:]:
        rows = db.execute("SELECT * FROM " + table)
        found[table] = [one.name for one in rows.description], [[plain(value) for value in row] for row in rows]
json.dump(found, sys.stdout, default=str)
"""
_HOLD = """
import psycopg, random, select, sys
seed, label = sys.argv[1:]
dice, db = random.Random(seed), psycopg.connect("service=rucio", autocommit=True)
db.execute("ALTER SYSTEM SET lock_timeout = '500ms'")
db.execute("SELECT pg_reload_conf()")
rows = {
    "rules": f"name LIKE '%{label}%'", "locks": f"name LIKE '%{label}%'", "dids": f"name LIKE '%{label}%'",
    "account_usage": "account = 'dcops'",
}
ended = False
while not ended:
    table = dice.choice(sorted(rows))
    try:
        with db.transaction():
            db.execute(f"SELECT 1 FROM {table} WHERE {rows[table]} FOR UPDATE")
            print(table, flush=True)
            ended = bool(select.select([sys.stdin], [], [], dice.uniform(0.6, 2.0))[0])
    except psycopg.OperationalError:  # somebody else was first, or both waited for each other
        pass
    ended = ended or bool(select.select([sys.stdin], [], [], dice.uniform(0.3, 1.5))[0])
db.execute("ALTER SYSTEM RESET lock_timeout")
db.execute("SELECT pg_reload_conf()")
"""


class PostgresTruth(Truth):
    """A Rucio's catalogue in PostgreSQL; `database` is its sandbox's folder."""

    def _open(self) -> sqlite3.Connection:
        """Return one state of it as a copy in memory, with its values as SQLite would have them."""
        done = subprocess.run(_words(self.database, _DUMP, *TABLES), env=_environ(self.database), timeout=120,
                              stdout=subprocess.PIPE, check=True)  # fmt: skip
        db = sqlite3.connect(":memory:")
        for table, (columns, rows) in json.loads(done.stdout).items():
            db.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
            db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", rows)
        db.row_factory = sqlite3.Row
        return db


@contextmanager
def held(folder: Path, seed: object, label: str) -> Iterator[Counter[str]]:
    """Hold rows of a world now and then inside the block; gives how often, by table."""
    counts: Counter[str] = Counter()
    with subprocess.Popen(
        _words(folder, _HOLD, str(seed), label), env=_environ(folder), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        out = process.stdout
        assert out is not None
        reader = Thread(target=lambda: counts.update(line.strip() for line in out), daemon=True)
        reader.start()
        try:
            yield counts
        finally:
            assert process.stdin is not None
            process.stdin.close()
            reader.join(60)


def lock_errors(folder: Path) -> int:
    """Return how often somebody did not get a row."""
    log = (folder / "log" / "postgres.log").read_text(errors="replace")
    return log.count("due to lock timeout") + log.count("could not obtain lock") + log.count("deadlock detected")


def to_be_had(env: Path) -> bool:
    """Put PostgreSQL into the server's environment; without any, which CI does not allow, say so."""
    try:
        postgres.account()
        environment.ensure_postgres(env, lambda _line: None)
    except ServiceError as error:
        if os.environ.get("CI"):
            raise
        print(f"nothing is done on PostgreSQL: {error.message}", file=sys.stderr, flush=True)
        return False
    return True


def locked(ground: Ground, size: Size) -> None:
    """Run a campaign while its rows are held by somebody else, and one whose lives are killed as well."""
    world, dice = ground.world, random.Random(f"{ground.seed} locked {ground.world.label}")
    row = ground.row("PostgreSQL, held rows")
    aim = Aim(world.folder / "locked", dice, after=AFTER)
    folder = world.sandbox.folder
    for number in range(size.each):
        before = lock_errors(folder)
        with held(folder, f"{ground.seed} {number}", world.label) as counts, contextlib.suppress(TimeIsUpError):
            ground.campaign(row, Weather(), cycles=CYCLES)
            ground.deaths(row, Weather(), aim, KILLS)
        errors = lock_errors(folder) - before
        row.remarks.append(f"rows were held {counts.total()} times, {errors} lock errors")
        if not errors:
            row.violations.append("nobody met a row that was held: nothing was tested")


def _words(folder: Path, script: str, *arguments: str) -> list[str]:
    return [str(python_of(Path(State.read(folder).env))), "-c", script, *arguments]


def _environ(folder: Path) -> dict[str, str]:
    return {**os.environ, **postgres.environment(folder)}
