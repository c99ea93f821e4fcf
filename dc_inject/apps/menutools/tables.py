"""Tables of links, in text or in a workbook: the rows and columns that count, after what a person leaves out.

Nothing is dropped silently: what a person names and is not there, and what is hidden, is an error; the rest of
what is not read is in `remarks`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from dc_inject.apps.menutools import workbooks
from dc_inject.apps.menutools.workbooks import Sheet
from dc_inject.menu import cells, values
from dc_inject.menu.cells import Cell, TableRow
from dc_inject.menu.nodes import FirstComplaints, Place
from dc_inject.menu.values import WrongError
from dc_inject.model import units
from dc_inject.model.errors import UsageError, column_letters


@dataclass(frozen=True, slots=True)
class Layout:
    """A person's description of a table that has more than links and rates."""

    sheet: str = ""
    one_of: tuple[str, ...] = ()  # all sheets, if several are read
    header_row: int = 0  # the row of the head; those above it do not count
    header_rows: tuple[tuple[str, int], ...] = ()  # the same of single sheets
    ignore_columns: tuple[str, ...] = ()  # heads, or letters or numbers of columns
    ignore_rows: tuple[str, ...] = ()  # first cells, or numbers of rows
    hidden: Literal["", "read", "ignore"] = ""  # rows and columns

    def of(self, sheet: str, sheets: Collection[str]) -> Layout:
        """Return what is given for one of several sheets: for all, or for it alone, as in `SHEET!C`.

        What is meant for it alone begins with `!` then.
        """

        def own(names: tuple[str, ...]) -> tuple[str, ...]:
            parts = [(name, name.rpartition("!")[0], name.rpartition("!")[2]) for name in names]
            return tuple(
                f"!{rest}" if of == sheet else name for name, of, rest in parts if of == sheet or of not in sheets
            )

        columns, rows = own(self.ignore_columns), own(self.ignore_rows)
        first, one_of = dict(self.header_rows).get(sheet, self.header_row), tuple(sheets)
        return replace(
            self, sheet=sheet, ignore_columns=columns, ignore_rows=rows, header_row=first, one_of=one_of
        )


@dataclass(slots=True)
class Table:
    """The rows of a table; cells that are left out are in none of them."""

    separator: str
    rows: list[TableRow]
    sheet: str = ""  # of a workbook
    of_several: bool = False
    remarks: list[str] = field(default_factory=list)
    unmatched: set[str] = field(default_factory=set)  # what is to be ignored in any sheet, and is not in this one

    def where(self, cell: Cell) -> str:
        """Return how a sentence calls the place of a cell in the same table."""
        row, column = cell.place.line, cell.place.column
        return f"{column_letters(column)}{row}" if self.sheet else f"line {row}"

    def leave_out(self, cell: Cell, index: int) -> str:
        """Return the option that leaves out the column of a cell, by its head if that is the cell."""
        if cell and self.rows[0].cell(index) is cell:
            return option("--ignore-column", cell)
        return self.option("--ignore-column", column_letters(cell.place.column) if self.sheet else str(index + 1))

    def leave_out_row(self, row: TableRow) -> str:
        """Return the option that leaves out a row."""
        return self.option("--ignore-row", str(row.place.line))

    def option(self, name: str, value: str) -> str:
        """Return an option about a row or a column, with the sheet where there are several."""
        return option(name, f"{self.sheet}!{value}" if self.of_several else value)


def read(data: bytes, file: str, layout: Layout, complain: FirstComplaints) -> Table:
    """Return a table without what a person leaves out; complains of what is not there, and of what is hidden."""
    if workbooks.is_one(data):
        try:
            return cut_sheet(workbooks.read(data, file, layout.sheet), file, layout, complain)
        except WrongError as error:
            complain(Place(file, 0), error.message, error.hint)
            return Table("", [])
    if layout.sheet:
        raise UsageError(f"--sheet is only for spreadsheets, but {file} is not one", "leave it out")
    table = Table(*cells.rows(data, file, complain, first=layout.header_row))
    return table if complain else _reduced(table, None, file, layout, complain)


def _reduced(table: Table, sheet: Sheet | None, file: str, layout: Layout, complain: FirstComplaints) -> Table:
    if layout.header_row and (not table.rows or table.rows[0].place.line != layout.header_row):
        row = Place(file, layout.header_row, 1)
        complain(row, f"row {row.line} is empty, and --header-row names it", "name the row of the column heads")
    while table.of_several and not layout.header_row and _is_title(table.rows):
        title = next(filter(None, table.rows.pop(0).cells))
        table.remarks.append(f"{table.where(title)} is a title and left out: {values.shown(title)}")
    _ignore_columns(table, layout.ignore_columns, complain)
    _ignore_rows(table, layout.ignore_rows, complain)
    if sheet is not None and layout.hidden != "read":
        _check_hidden(table, sheet, complain)
    if not complain:
        _check_head(table, complain)
    return table


def option(name: str, value: str) -> str:
    """Return an option with its value as a shell takes it."""
    return f"{name} {shlex.quote(values.shown(value))}"


def cut_sheet(sheet: Sheet, file: str, layout: Layout, complain: FirstComplaints) -> Table:
    """Return the rows of a sheet that count, from the head on, as wide as the widest of them."""
    by_row: dict[int, dict[int, Cell]] = {}
    for (row, column), cell in sorted(sheet.cells.items()):
        hidden = row in sheet.hidden_rows or column in sheet.hidden_columns
        if row >= layout.header_row and not (hidden and layout.hidden == "ignore"):
            by_row.setdefault(row, {})[column] = cell
    columns = range(1, 1 + max((max(of) for of in by_row.values()), default=0))
    rows = [
        TableRow(
            Place(file, row), tuple(of.get(column) or Cell("", Place(file, row, column)) for column in columns)
        )
        for row, of in by_row.items()
    ]
    table = Table("\t", rows, sheet.name, bool(layout.one_of))
    if sheet.others and not layout.sheet:
        names = units.some(map(repr, sheet.others))
        table.remarks.append(
            f"only the sheet {sheet.name!r} is read, not {names} (--sheet; for all: --sheets or --schedule)"
        )
    if sheet.notes:
        table.remarks.append(f"notes of cells are not read: {units.some(sheet.notes)}")
    return _reduced(table, sheet, file, layout, complain)


def _ignore_columns(table: Table, names: tuple[str, ...], complain: FirstComplaints) -> None:
    """Leave out columns by their heads, or else by their letters or numbers."""
    if not table.rows:
        return
    head = table.rows[0]
    width = max(len(row.cells) for row in table.rows)
    ignored: set[int] = set()
    for name, alone in _named(names, table):
        found = {index for index, cell in enumerate(head.cells) if _same(cell, name)}
        at = _index(name, in_sheet=bool(table.sheet))
        if not found and at < width and alone:
            found = {at}
        if not found and not alone:
            table.unmatched.add(name)
        elif not found:
            hint = units.did_you_mean(name, (cell for cell in head.cells if cell))
            complain(head.cells[0].place, f"there is no column {values.shown(name)!r} for --ignore-column", hint)
        ignored |= found
    table.rows = [
        row._replace(cells=kept)
        for row in table.rows
        if (kept := tuple(cell for index, cell in enumerate(row.cells) if index not in ignored)) and any(kept)
    ]


def _named(names: tuple[str, ...], table: Table) -> Iterator[tuple[str, bool]]:
    """Yield names of what to ignore, with whether it must be in this table; only then it may be its place."""
    yield from ((name.removeprefix("!"), name.startswith("!") or not table.of_several) for name in names)


def _index(name: str, *, in_sheet: bool) -> int:
    """Return the index of a column that is named by its letters or its number; a huge one for another name."""
    if in_sheet and re.fullmatch("[A-Za-z]{1,3}", name):
        return workbooks.column_number(name) - 1
    return int(name) - 1 if re.fullmatch("[1-9][0-9]{0,6}", name) else workbooks.LAST_COLUMN


def _ignore_rows(table: Table, names: tuple[str, ...], complain: FirstComplaints) -> None:
    """Leave out rows by their first cells, or else by their numbers."""
    ignored: set[int] = set()
    for name, alone in _named(names, table):
        firsts = ((row.place.line, next(filter(None, row.cells))) for row in table.rows)
        found = {line for line, first in firsts if _same(first, name)}
        if not found and alone:
            found = {row.place.line for row in table.rows if str(row.place.line) == name}
        if not found and not alone:
            table.unmatched.add(name)
        elif not found and table.rows:
            message = f"there is no row {values.shown(name)!r} for --ignore-row"
            complain(table.rows[0].cells[0].place, message, "name a row by its first cell, or by its number")
        ignored |= found
    table.rows = [row for row in table.rows if row.place.line not in ignored]


def _same(cell: Cell, name: str) -> bool:
    return " ".join(cell.split()).casefold() == " ".join(name.split()).casefold() != ""


def _check_hidden(table: Table, sheet: Sheet, complain: FirstComplaints) -> None:
    """Complain of each hidden row and column that has something in it."""
    first: dict[str, Cell] = {}
    for row in table.rows:
        for cell in filter(None, row.cells):
            if row.place.line in sheet.hidden_rows:
                first.setdefault(f"row {row.place.line}", cell)
            elif cell.place.column in sheet.hidden_columns:
                first.setdefault(f"column {column_letters(cell.place.column)}", cell)
    for name, cell in first.items():
        complain(cell.place, f"{name} is hidden", "--hidden read, --hidden ignore, or show it")


def _check_head(table: Table, complain: FirstComplaints) -> None:
    """Complain of a first row that is a title, or a head of several columns together."""
    trouble = table.rows and _not_a_head(table.rows, 0)
    if not trouble:
        return
    title, message = trouble
    better = next((at for at in range(1, len(table.rows)) if _not_a_head(table.rows, at) is None), None)
    hint = f"leave it out: {table.leave_out_row(table.rows[0])}"
    if better is not None:
        first = table.option("--header-row", str(table.rows[better].place.line))
        hint = f"name the row of the column heads: {first}"
        named = units.rate_units(" ".join(table.rows[0].cells))
        if len(named) == 1 and not units.rate_units(table.rows[better].cells[0]):
            hint += f" --unit {named[0]}"
    complain(title.place, message, hint)


def _is_title(rows: list[TableRow]) -> bool:
    """Return whether the first row has one value only, be it in merged cells, above others that have more."""
    one = len(set(filter(None, rows[0].cells))) == 1 if rows else False
    return one and any(len(list(filter(None, row.cells))) > 1 for row in rows[1:])


def _not_a_head(rows: list[TableRow], at: int) -> tuple[Cell, str] | None:
    """Return the cell that shows that a row cannot be the head of what follows, and why."""
    row, body = rows[at], rows[at + 1 :]
    if row.cells[0] and _is_title(rows[at:]):
        return row.cells[0], f"the first row has one cell, {values.shown(row.cells[0])!r}: it looks like a title"
    for index, cell in enumerate(row.cells):
        first, _, last = cell.merged.partition(":")
        wide = first.rstrip("0123456789") != last.rstrip("0123456789")
        if cell and wide and any(other.cell(index) for other in body):
            return cell, f"{values.shown(cell)!r} is above several columns ({cell.merged})"
    return None
