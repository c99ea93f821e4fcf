"""Printing of what was read: a table for people, JSON or CSV with plain numbers for programs.

On a terminal a table has lines of the terminal's width. Columns without content are left out first, and then those
that can be spared, which are named below. If that is not enough, values that many rows share become headings
above these rows, and names are cut in the middle, since ends matter as much as beginnings. Sentences are
folded between words, or stand below their rows where whole lines would be too wide. Numbers and times are never
cut or folded. `--wide`, JSON and CSV have everything.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TextIO

import click
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dc_inject.model import units
from dc_inject.model.redaction import no_formula

WIDTH = 10_000  # characters: wider than any row
WIDE = "dc_inject.wide"  # in click's context: whether --wide was given
# Characters of a text that stand in one line at least. Columns that can be spared are left out before a name is
# cut; only where that is not enough are texts cut and folded to less.
_TEXTS = range(20, 9, -1)
_WORD = 25  # characters of a word that is not broken: a hold, and how many cycles it had
_TIME = re.compile(r"(-|[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:]+Z?)?")  # or nothing
_INDENT = 4  # characters before what stands below a row


def plain(value: Any) -> str:  # noqa: ANN401  any value of a row
    """Return a value as it is; a whole number is a count, and has separators of thousands."""
    return units.grouped(value) if isinstance(value, int) and not isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its key in a row, its head, and how a person reads it.

    `quiet` ones are for programs only; `rare` ones are for people only where a row has more than 0 or nothing.

    On a terminal that is too narrow, columns with the highest `spare` are left out first; 0 is never left out.
    Numbers (`right`) and `whole` texts are never cut or folded, `name`s are cut, other texts are folded. The first
    column may be a `heading` above the rows that share it. The last one may stand `below` each row, a line for
    each of its parts, which `; ` divides.
    """

    key: str
    head: str
    show: Callable[[Any], str] = plain
    right: bool = False
    quiet: bool = False
    spare: int = 0
    whole: bool = False
    name: bool = False
    heading: bool = False
    below: bool = False
    rare: bool = False


def yes_no(answer: bool) -> str:
    """Return the word for a truth value."""
    return "yes" if answer else "no"


def width() -> int:
    """Return how many characters a line may have: those of the terminal, or any without one or with --wide."""
    context = click.get_current_context(silent=True)
    if context is not None and context.find_root().meta.get(WIDE):
        return WIDTH
    return shutil.get_terminal_size().columns if _is_terminal(sys.stdout) else WIDTH


def height() -> int:
    """Return how many lines the terminal has; 0 without one."""
    return shutil.get_terminal_size().lines if _is_terminal(sys.stdout) else 0


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty()


class _Console(Console):
    """A console that leaves a closed pipe to whoever gives exit codes; rich would end the process with 1."""

    def on_broken_pipe(self) -> None:
        """Raise the BrokenPipeError that is handled again."""
        raise  # noqa: PLE0704  rich calls this where it has caught one


def console() -> Console:
    """Return a console that colours only a terminal, and never with NO_COLOR; off a terminal no line is folded."""
    return _Console(file=sys.stdout, width=width(), highlight=False, markup=False, emoji=False)


def table(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], title: str = "", most: int = WIDTH
) -> RenderableType:
    """Return a table of the rows for a terminal, with lines of `most` characters."""
    columns = [
        column
        for column in columns
        if not column.quiet and not (column.rare and not any(row.get(column.key) for row in rows))
    ]
    cells: Mapping[str, Sequence[str]] = {
        column.key: ["-" if (value := row.get(column.key)) is None else _shown(column.show(value)) for row in rows]
        for column in columns
    }
    times = {key for key, texts in cells.items() if all(map(_TIME.fullmatch, texts))}
    columns = [replace(column, whole=column.whole or column.key in times) for column in columns]  # never folded
    filled = {column.key for column in columns if set(cells[column.key]) - {"-", ""}}
    whole_width = _line_width(size.natural for size in _sizes(columns, cells).values())
    below = columns[-1] if columns[-1].below and whole_width > most else None
    in_line = columns if below is None else columns[:-1]
    room = fitted(in_line, cells, most, _TEXTS[:1])
    if _line_width(room.values()) > most:
        if columns[0].heading:
            columns, cells = _under_headings(columns, cells)
            in_line = columns if below is None else columns[:-1]
        room = fitted(in_line, cells, most)
    left_out = [column.head for column in in_line if column not in room and column.key in filled]
    caption = f"(--wide shows also: {', '.join(left_out)})" if left_out else None
    dots = ".." if console().options.ascii_only else "…"
    texts = (
        [cut(text, width, dots=dots) if column.name else text for text in (column.head, *cells[column.key])]
        for column, width in room.items()
    )
    heads, *lines = zip(*texts, strict=True)
    # The title and the caption are lines of their own: within a table they would be as narrow as it is.
    parts: list[RenderableType] = [Text(title, "table.title")] if title else []
    if below is None:
        parts.append(_grid(dict.fromkeys(room), heads, lines, most=most))
    for number, (line, text) in enumerate(zip(lines, cells[below.key], strict=True) if below else ()):
        parts.append(_grid(room, heads, [line], most=most, head=number == 0))
        parts += [Padding(Text(part), (0, 0, 0, _INDENT)) for part in text.split("; ") if part]
    if caption is not None:
        parts.append(Text(caption, "table.caption"))
    return Group(*parts)


def _grid(
    room: Mapping[Column, int | None],
    heads: Sequence[str],
    lines: Iterable[Sequence[str]],
    *,
    most: int,
    head: bool = True,
) -> Table:
    """Return some lines of a table, with the width of each column; None is as wide as it needs to be."""
    grid = Table(box=None, pad_edge=False, header_style="bold", show_header=head)
    for (column, width), name in zip(room.items(), heads, strict=True):
        grid.add_column(
            name,
            justify="right" if column.right else "left",
            no_wrap=column.right or column.whole or column.name or most >= WIDTH,
            overflow="fold",
            width=width,
        )
    for line in lines:
        grid.add_row(*line)
    return grid


def _under_headings(
    columns: Sequence[Column], cells: Mapping[str, Sequence[str]]
) -> tuple[list[Column], dict[str, list[str]]]:
    """Return columns and cells in which the first column stands in rows of its own, above those that share it.

    A row without a name, such as that of totals, has it in place of the name.
    """
    first, second, *rest = columns
    under: dict[str, list[str]] = {column.key: [] for column in (second, *rest)}
    above = None
    for number, (heading, name) in enumerate(zip(cells[first.key], cells[second.key], strict=True)):
        if name and heading != above:
            for column in rest:
                under[column.key].append("")
            under[second.key].append(heading)
        above = heading
        under[second.key].append(f" {name}" if name else heading)
        for column in rest:
            under[column.key].append(cells[column.key][number])
    return [replace(second, head=f"{first.head}, {second.head}"), *rest], under


def fitted(
    columns: Sequence[Column], cells: Mapping[str, Sequence[str]], most: int, texts: Sequence[int] = _TEXTS
) -> dict[Column, int]:
    """Return the columns that stand in lines of `most` characters, with their widths.

    Columns without content go first, and then those that can be spared. Texts are folded or cut to the first of
    the lengths `texts` with which some columns fit, or else to the last one. What is left of a line is for names
    first, then for sentences.
    """
    sizes = _sizes(columns, cells)
    given: dict[Column, int] = {}
    for length in texts:
        given = {column: _least(column, sizes[column.key], length) for column in columns}
        if _line_width(given.values()) > most:
            given = {column: width for column, width in given.items() if sizes[column.key].is_filled}
        while _line_width(given.values()) > most and any(column.spare for column in given):
            del given[max(given, key=lambda column: column.spare)]
        if _line_width(given.values()) <= most:
            break
    left = most - _line_width(given.values())
    for group in ([column for column in given if column.name], [*given]):
        while left > 0 and (growing := [one for one in group if given[one] < sizes[one.key].natural]):
            for column in growing[:left]:
                given[column] += 1
                left -= 1
    return given


def _line_width(widths: Iterable[int]) -> int:
    return sum(width + 2 for width in widths) - 2


class _Size(NamedTuple):
    """How wide a column is if whole, how long its longest word is, and whether it has any value."""

    natural: int
    word: int
    is_filled: bool


def _sizes(columns: Sequence[Column], cells: Mapping[str, Sequence[str]]) -> Mapping[str, _Size]:
    sizes = {}
    for column in columns:
        texts = {column.head, *cells[column.key]}
        word = max((len(word) for text in texts for word in text.split()), default=0)
        is_filled = not cells[column.key] or bool(set(cells[column.key]) - {"-", ""})
        sizes[column.key] = _Size(max(map(len, texts)), word, is_filled)
    return sizes


def _least(column: Column, size: _Size, text: int) -> int:
    if column.right or column.whole:
        return size.natural
    return min(size.natural, text if column.name else max(text, min(size.word, _WORD)))


def cut(text: str, width: int, *, dots: str = "…", end: bool = False) -> str:
    """Return a text cut to at most `width` characters: in the middle, as of names, or at its end."""
    if len(text) <= width:
        return text
    room = max(width - len(dots), 0)
    tail = 0 if end else room // 2
    return text[: room - tail] + dots + (text[-tail:] if tail else "")


def emit(fmt: str, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], title: str = "") -> None:
    """Print rows to stdout as a table, as a JSON list, or as CSV with the keys as heads."""
    if fmt == "json":
        emit_json([dict(row) for row in rows])
    elif fmt == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow([column.key for column in columns])
        writer.writerows([_cell(row.get(column.key)) for column in columns] for row in rows)
    else:
        write(table(columns, rows, title, width()))


def emit_first(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], most: int, noun: str) -> None:
    """Print the first rows to stdout as a table, and how many of these `noun` (plural) are left out."""
    emit("table", columns, rows[:most])
    if len(rows) > most:
        click.echo(f"and {units.counted(len(rows) - most, f'more {noun}')}; --format json has all")


def write(shown: RenderableType) -> None:
    """Print a table to stdout; off a terminal without the blanks that fill up its lines."""
    stdout = console()
    if _is_terminal(sys.stdout):
        stdout.print(shown)
        return
    with stdout.capture() as captured:
        stdout.print(shown)
    click.echo("\n".join(line.rstrip(" ") for line in captured.get().split("\n")), nl=False)


def emit_json(value: Any) -> None:  # noqa: ANN401  any value of JSON
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
    return no_formula(_shown(value)) if isinstance(value, str) else value
