"""Printing of what was read: a table for people, JSON or CSV with plain numbers for programs."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TextIO

import click
from rich.console import Console, JustifyMethod
from rich.table import Table

WIDTH = 10_000  # characters: wider than any row
WIDE = "dc_inject.wide"  # in click's context: whether --wide was given
# Characters of a text that stand in one line, the rest below. Columns that can be spared are left out before a
# name is folded; only where that is not enough are texts folded to less.
_TEXTS = (20, 10)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its key in a row, its head, and how a person reads it; `quiet` ones are for programs only.

    On a terminal that is too narrow, columns with the highest `spare` are left out first; 0 is never left out.
    Numbers (`right`) and `whole` texts are never folded.
    """

    key: str
    head: str
    show: Callable[[Any], str] = str
    right: bool = False
    quiet: bool = False
    spare: int = 0
    whole: bool = False


def moment(when: datetime | None) -> str | None:
    """Return a time as programs and people read it, `2027-02-08T10:00:00Z`; None stays None."""
    return None if when is None else when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def yes_no(answer: bool) -> str:
    """Return the word for a truth value."""
    return "yes" if answer else "no"


def percent(ratio: float) -> str:
    """Return a ratio in percent with one decimal: `99.7 %`."""
    return f"{100 * ratio:.1f} %"


def width(*, err: bool = False) -> int:
    """Return how many characters a line may have: those of the terminal, or any without one or with --wide."""
    context = click.get_current_context(silent=True)
    if context is not None and context.find_root().meta.get(WIDE):
        return WIDTH
    return shutil.get_terminal_size().columns if _is_terminal(sys.stderr if err else sys.stdout) else WIDTH


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty()


def console(*, err: bool = False) -> Console:
    """Return a console that colours only a terminal, and never with NO_COLOR; off a terminal no line is folded."""
    return Console(
        file=sys.stderr if err else sys.stdout,
        width=width(err=err),
        highlight=False,
        markup=False,
        emoji=False,
    )


def table(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], title: str = "", most: int = WIDTH
) -> Table:
    """Return a table of the rows for a terminal, with lines of `most` characters.

    Where they are too short, columns without content are left out, then those that can be spared best; names and
    sentences are folded, numbers never.
    """
    columns = [column for column in columns if not column.quiet]
    cells = {column.key: [_text(column, row.get(column.key)) for row in rows] for column in columns}
    shown = fitting(columns, cells, most)
    left_out = [column.head for column in columns if column not in shown and set(cells[column.key]) - {"-", ""}]
    caption = f"(--wide shows also: {', '.join(left_out)})" if left_out else None
    grid = Table(
        title=title or None,
        title_justify="left",
        caption=caption,
        caption_justify="left",
        box=None,
        pad_edge=False,
        header_style="bold",
    )
    for column in shown:
        whole = column.right or column.whole or most >= WIDTH
        justify: JustifyMethod = "right" if column.right else "left"
        grid.add_column(column.head, justify=justify, no_wrap=whole, overflow="fold")
    for number in range(len(rows)):
        grid.add_row(*(cells[column.key][number] for column in shown))
    return grid


def _text(column: Column, value: Any) -> str:  # noqa: ANN401  any value of a row
    return "-" if value is None else _shown(column.show(value))


def fitting(
    columns: Sequence[Column], cells: Mapping[str, Sequence[str]], most: int, texts: Sequence[int] = _TEXTS
) -> list[Column]:
    """Return the columns that stand in lines of `most` characters, with texts folded or cut to one of `texts`.

    The first of these lengths counts with which some columns fit, or else the last one.
    """
    shown: list[Column] = []
    for length in texts:
        shown = _without_spare(columns, cells, most, length)
        if _width(shown, cells, length) <= most:
            break
    return shown


def _without_spare(
    columns: Sequence[Column], cells: Mapping[str, Sequence[str]], most: int, text: int
) -> list[Column]:
    """Return the columns that are left if those without content go, and then those that can be spared."""
    shown = list(columns)
    if _width(shown, cells, text) > most:
        shown = [column for column in shown if not cells[column.key] or set(cells[column.key]) - {"-", ""}]
    while _width(shown, cells, text) > most and any(column.spare for column in shown):
        shown.remove(max(shown, key=lambda column: column.spare))
    return shown


def _width(columns: Sequence[Column], cells: Mapping[str, Sequence[str]], text: int) -> int:
    """Return how many characters a line of these columns has at least."""

    def least(column: Column) -> int:
        natural = max(len(cell) for cell in (column.head, *cells[column.key]))
        return natural if column.right or column.whole else min(natural, text)

    return sum(least(column) + 2 for column in columns) - 2


def emit(fmt: str, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], title: str = "") -> None:
    """Print rows to stdout as a table, as a JSON list, or as CSV with the keys as heads."""
    if fmt == "json":
        emit_json([dict(row) for row in rows])
    elif fmt == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow([column.key for column in columns])
        writer.writerows([_cell(row.get(column.key)) for column in columns] for row in rows)
    else:
        console().print(table(columns, rows, title, width()))


def emit_json(value: Any) -> None:  # noqa: ANN401  whatever JSON can say
    """Print a value to stdout as JSON."""
    json.dump(value, sys.stdout, indent=2, default=str)
    sys.stdout.write("\n")


def _shown(text: str) -> str:
    """Return a text that cannot move the cursor: names and messages come from services."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _cell(value: Any) -> Any:  # noqa: ANN401  any value of a row
    """Return what stands in a CSV for a value: the same as in JSON, but nothing for null."""
    if isinstance(value, bool | Mapping | list | tuple):
        return json.dumps(value)
    return _shown(value) if isinstance(value, str) else value
