"""Printing of what was read: a table for people, JSON or CSV with plain numbers for programs."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

WIDTH = 10_000  # characters: wider than any row


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its key in a row, its head, and how a person reads it; `quiet` ones are for programs only."""

    key: str
    head: str
    show: Callable[[Any], str] = str
    right: bool = False
    quiet: bool = False


def moment(when: datetime | None) -> str | None:
    """Return a time as programs and people read it, `2027-02-08T10:00:00Z`; None stays None."""
    return None if when is None else when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def yes_no(answer: bool) -> str:
    """Return the word for a truth value."""
    return "yes" if answer else "no"


def percent(ratio: float) -> str:
    """Return a ratio in percent with one decimal: `99.7 %`."""
    return f"{100 * ratio:.1f} %"


def console(*, err: bool = False) -> Console:
    """Return a console that colours only a terminal, and never with NO_COLOR.

    Nothing is cut off or folded: a terminal that is too narrow breaks the lines itself, and names stay whole.
    """
    return Console(file=sys.stderr if err else sys.stdout, width=WIDTH, highlight=False, markup=False, emoji=False)


def table(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], title: str = "") -> Table:
    """Return a table of the rows for a terminal."""
    columns = [column for column in columns if not column.quiet]
    made = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column.head, justify="right" if column.right else "left", no_wrap=True)
    for row in rows:
        values = (row.get(column.key) for column in columns)
        made.add_row(*("-" if v is None else _shown(c.show(v)) for c, v in zip(columns, values, strict=True)))
    return made


def emit(fmt: str, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], title: str = "") -> None:
    """Print rows to stdout as a table, as a JSON list, or as CSV with the keys as heads."""
    if fmt == "json":
        emit_json([dict(row) for row in rows])
    elif fmt == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow([column.key for column in columns])
        writer.writerows([_cell(row.get(column.key)) for column in columns] for row in rows)
    else:
        console().print(table(columns, rows, title))


def emit_json(value: Any) -> None:  # noqa: ANN401  whatever JSON can say
    """Print a value to stdout as JSON."""
    json.dump(value, sys.stdout, indent=2, default=str)
    sys.stdout.write("\n")


def _shown(text: str) -> str:
    """Return a text that cannot move the cursor: names and messages come from services."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _cell(value: Any) -> Any:  # noqa: ANN401  any value of a row
    """Return what stands in a CSV for a value: the same as in JSON, but nothing for null."""
    return json.dumps(value) if isinstance(value, bool | Mapping | list | tuple) else value
