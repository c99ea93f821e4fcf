"""A simulated machine: a clock with appointments, an environment of its own, and commands that run in it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

from . import adapter, compare
from .wire import HttpTransport

START = datetime(2027, 2, 8, 10, tzinfo=UTC)
_KEPT = ("PATH", "LANG", "TMPDIR", "COVERAGE_PROCESS_START", compare.RENEW)  # of the environment
_PROCESS = re.compile(r"process \d+")
_REAL_TIME = re.compile(r"20(?!27-02-)\d\d-\d\d-\d\dT[\d:]{8}Z")  # as of files that were just written


@dataclass
class World:
    """The time, what happens at which, and where files are. Every command's outcome is kept."""

    folder: Path
    time: datetime = START
    appointments: list[tuple[datetime, Callable[[], object]]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def now(self) -> datetime:
        """Return the simulated time."""
        return self.time

    def advance(self, moment: datetime) -> None:
        """Let time pass until a moment, or until the first appointment before it."""
        assert moment < START + timedelta(days=3), "a campaign has no end"
        if self.appointments and self.appointments[0][0] <= moment:
            when, what = self.appointments.pop(0)
            self.time = max(self.time, when)
            what()
        else:
            self.time = max(self.time, moment)

    def at(self, clock: str, what: Callable[[], object]) -> None:
        """Make an appointment for a time of the first day, such as 10:20."""
        hour, minute = map(int, clock.split(":"))
        self.appointments.append((START.replace(hour=hour, minute=minute), what))
        self.appointments.sort(key=lambda one: one[0])

    def stamp(self) -> str:
        """Return the time for a line of a file."""
        return f"{self.time:%d-%H:%M:%S}.{self.time.microsecond // 1000:03}"

    def run(self, *arguments: object, code: int = 0) -> adapter.Done:
        """Run a command that ends with this exit code; keep what it was, its exit code, and what it printed."""
        done = adapter.command(*arguments)
        assert done.code == code, done.err
        line = shlex.join(map(str, arguments))
        self.said.append(self.plain(f"# {self.stamp()} dc-inject {line}\n# exit code {done.code}\n{done.out}"))
        return done

    def plain(self, text: str) -> str:
        """Leave out of a text what only this machine and this version have."""
        text = text.replace(str(self.folder), "<folder>").replace(adapter.VERSION, "<version>")
        return _REAL_TIME.sub("<real time>", _PROCESS.sub("process <id>", text))


@contextlib.contextmanager
def here(world: World, wire: HttpTransport, **environment: str) -> Iterator[None]:
    """Let the tool live in a world inside the block, and know nothing else of this machine."""
    clean = {name: value for name, value in os.environ.items() if name in _KEPT}
    clean |= {
        "HOME": str(world.folder), "XDG_STATE_HOME": str(world.folder / "state"),
        "LOGNAME": "tester", "USER": "tester",
        "XDG_CONFIG_HOME": str(world.folder / "none"), "TZ": "Asia/Kathmandu", "COLUMNS": "200", **environment,
    }  # fmt: skip
    with mock.patch.dict(os.environ, clean, clear=True), wire.plugged_in(), adapter.simulated(world):
        yield


def rows(path: Path) -> str:
    """Return all rows of all tables of a ledger, sorted, as `table: column=value ...`; empty ones are left out.

    Order of columns, numbers of rows, NULL and defaults do not show, so that a table that was made in another way
    and holds the same reads the same.
    """
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        names = [
            row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")
        ]
        names = [name for name in names if not name.startswith("sqlite_")]
        accounts = dict(map(tuple, connection.execute(adapter.ACCOUNTS)))
        lines = []
        for name in names:
            found = connection.execute(f'SELECT * FROM "{name}"').fetchall()
            shown = adapter.RENAMED.get(name, name)
            lines += [f"{shown}: {_shown(row, accounts)}" for row in found]
    return "\n".join(sorted(lines))


def _shown(row: sqlite3.Row, accounts: dict[int, str]) -> str:
    words = []
    columns = {adapter.RENAMED.get(name, name): row[name] for name in row.keys()}  # noqa: SIM118  a row gives values
    for column, value in sorted(columns.items()):
        if column == "id" or value is None or value in {0, ""}:
            continue
        if column == "account" and value in accounts:
            shown = accounts[value]
        elif isinstance(value, bytes):  # how it is compressed depends on the library
            shown = repr(zlib.decompress(value))
        elif isinstance(value, int) and value > 10**15:
            shown = _moment(value)
        elif column == "text" and "\n" in str(value):
            shown = f"({len(str(value).splitlines())} lines)"
        elif isinstance(value, str) and value.startswith(("{", "[")):
            shown = json.dumps(json.loads(value), sort_keys=True)
        else:
            shown = str(value)
        words.append(f"{column}={shown}")
    return " ".join(words).replace(adapter.VERSION, "<version>")


def _moment(value: int) -> str:
    """Return microseconds since 1970, if that is what they are, as a time."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}" if abs(moment - START) < timedelta(days=30) else str(value)
