"""Printing of what was read: a table for people, JSON or CSV with plain numbers for programs."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its key in a row, its head with the unit, and how a person wants to read it."""

    key: str
    head: str
    show: Callable[[Any], str] = str
    right: bool = False


def console(*, err: bool = False) -> Console:
    """Return a console that colours only a terminal, and never with NO_COLOR; a pipe gets wide lines."""
    file = sys.stderr if err else sys.stdout
    width = None if file.isatty() else int(os.environ.get("COLUMNS", "160"))
    return Console(file=file, width=width, highlight=False, soft_wrap=not file.isatty())


def table(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], title: str = "") -> Table:
    """Return a table of the rows for a terminal."""
    made = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column.head, justify="right" if column.right else "left", no_wrap=True)
    for row in rows:
        values = (row.get(column.key) for column in columns)
        made.add_row(*("-" if v is None else c.show(v) for c, v in zip(columns, values, strict=True)))
    return made


def emit(fmt: str, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], title: str = "") -> None:
    """Print rows to stdout as a table, as a JSON list, or as CSV with the keys as heads."""
    if fmt == "json":
        json.dump([dict(row) for row in rows], sys.stdout, indent=2, default=str)
        sys.stdout.write("\n")
    elif fmt == "csv":
        writer = csv.DictWriter(sys.stdout, [c.key for c in columns], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    else:
        console().print(table(columns, rows, title))
