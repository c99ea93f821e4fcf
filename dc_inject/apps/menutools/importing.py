"""Import links from other forms: the old tool's lines `src, dst, Mbps`, and matrices as kept in spreadsheets.

Rates are kept as they were written, number and unit, so that their sum is exact.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from dc_inject.apps.menutools import tables
from dc_inject.apps.menutools.tables import Layout, Table
from dc_inject.menu import addresses, cells, values
from dc_inject.menu.cells import Amount, Cell, TableRow
from dc_inject.menu.includes import MenuReader
from dc_inject.menu.nodes import FirstComplaints, Place
from dc_inject.menu.shares_and_meshes import MOST_LINKS
from dc_inject.menu.values import WrongError
from dc_inject.model import units
from dc_inject.model.errors import MenuError

OLD_UNIT = "Mb/s"  # of the old tool's lines
SUM_TOLERANCE = Fraction(1, 100)  # of what a spreadsheet sums, which may show rounded numbers

SUMS = re.compile(
    "|\\W*(?:sums?|totals?|all|summe|gesamt)\\b.*|[\N{GREEK SMALL LETTER SIGMA}\N{N-ARY SUMMATION}].*"
    "|(?:egress|ingress|outgoing|incoming|out|in)\\s*(?:[\\[(].*)?"
)
_UNIT_LIKE = re.compile(r"bit|byte|[kmgtp]i?b|/s\b|bps", re.IGNORECASE)
_DESTINATION = re.compile(r"\W*(?:dst|dest|to\b)", re.IGNORECASE)
_SOURCE = re.compile(r"\W*(?:src|source|from\b)", re.IGNORECASE)
_FROM = re.compile(r"\b(?:src|sources?|from)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Options:
    """What is known of a table besides its text: empty where it is in the table itself."""

    unit: str = ""  # of numbers without one
    decimal: str = ""  # the decimal sign, `.` or `,`
    form: str = ""  # `lines` or `matrix`
    names: Collection[str] = ()  # the only names that may be ends; empty: any
    layout: Layout = field(default_factory=Layout)


@dataclass(frozen=True, slots=True)
class Imported:
    """Links with their rates, in the order of the table, and what a person should know about the reading."""

    form: str
    links: tuple[tuple[str, str, Amount], ...]
    remarks: tuple[str, ...]
    cells: tuple[Cell, ...] = ()  # of the links

    @property
    def total(self) -> str:
        """The sum of all rates, exact where all have one unit."""
        return total([amount for _, _, amount in self.links])


def total(amounts: Sequence[Amount]) -> str:
    """Write the sum of rates, exactly: in their unit where all have one, else (and for decimal bits) in Gb/s."""
    named = {amount.unit for amount in amounts}
    unit = "Gb/s" if len(named) > 1 or named <= _BITS else amounts[0].unit
    number = sum((amount.number * units.ratio(amount.unit, unit) for amount in amounts), Fraction(0))
    return str(Amount(number, unit))


def read(data: bytes, file: str, options: Options) -> Imported:
    """Read a table of links, in text or a workbook; raises MenuError with what is wrong, each with its place."""
    menu_reader = MenuReader(file, None)
    complain = FirstComplaints(menu_reader.complain)
    table = tables.read(data, file, options.layout, complain)
    if not table.rows and not complain:
        complain(Place(file, 1), "the file has no lines", "a line is such as `source,destination,rate`")
    if not complain:
        imported = read_table(table, options, complain)
        if not complain:
            return imported
    complain.close()
    raise MenuError([replace(problem, sheet=table.sheet) for problem in menu_reader.problems])


def read_table(table: Table, options: Options, complain: FirstComplaints) -> Imported:
    """Read the rows of a table; they are right if there is no complaint."""
    reader = _Reader(options, table, complain)
    lines = options.form == "lines" or (not options.form and _are_lines(table.rows))
    imported = reader.lines(table.rows) if lines else reader.matrix(table.rows)
    if not imported.links and not complain:
        complain(table.rows[0].cells[0].place, "there is no link with a rate above 0", "give one a rate")
    return imported


class _Reader:
    """Reads the rows of one table."""

    def __init__(self, options: Options, table: Table, complain: FirstComplaints) -> None:
        self._options = options
        self._table = table
        self._separator = table.separator
        self._complain = complain
        self._default = "" if table.of_several else OLD_UNIT  # a sheet of several has its unit
        self._links: dict[tuple[str, str], tuple[Amount, Cell]] = {}
        self._remarks = table.remarks

    def lines(self, rows: list[TableRow]) -> Imported:
        unit, columns, zeros = self._options.unit, 3, 0
        for row in rows:
            if row is rows[0] and self._is_head(row):
                unit, columns = self._head(row), len(row.cells)
                continue
            extra = next((cell for cell in row.cells[columns:] if cell), None)
            if extra is not None or len(row.cells) < 3:
                self._complain((extra or row.cells[-1]).place, *self._count(row))
                continue
            amount = self._amount(row.cells[2], unit or self._default)
            ends = [self._end(cell) for cell in row.cells[:2]]
            if amount is None or not amount.number:
                zeros += 1
            else:
                self._add(row.cells[0], ends[0], ends[1], amount)
        if zeros and not self._complain:
            self._remarks.append(f"{zeros} of the lines have no rate above 0 and are left out")
        return self._done("lines")

    def matrix(self, rows: list[TableRow]) -> Imported:
        head, body = rows[0], rows[1:]
        unit = self._unit(head.cells[0], needed=True) or OLD_UNIT  # one that is missing is one problem
        if _DESTINATION.match(head.cells[0]) and _FROM.search(head.cells[0]):
            message = f"{values.shown(head.cells[0])!r} names the destinations first, but sources are the rows"
            self._complain(head.cells[0].place, message, "transpose the table, or correct the cell")
        columns = self._heads(head, body)
        sources: dict[str, Cell] = {}
        rates: dict[tuple[int, int], Amount] = {}  # (line, column) -> rate
        sums_row: TableRow | None = None
        for row in body:
            name = row.cells[0]
            if sums_row is not None:
                hint = f"put the sums last, or leave it out: {self._table.leave_out_row(row)}"
                self._complain(name.place, "a row follows the sums", hint)
                break
            if SUMS.fullmatch(name.lower()):
                self._check(name)
                sums_row = row
                continue
            source = self._end(name, self._table.leave_out_row(row))
            if source and source in sources:
                message = f"{source} appears twice, first in {self._table.where(sources[source])}"
                self._complain(name.place, message, "add up the two rows, and keep one")
            sources.setdefault(source, name)
            self._too_wide(head, row)
            for index in columns:
                out = self._table.leave_out(head.cells[index], index) if columns[index] is None else ""
                amount = self._amount(row.cell(index), unit, out)
                if amount is not None and amount.number:
                    rates[row.place.line, index] = amount
                    if columns[index] is not None:
                        self._add(row.cell(index), source, str(columns[index]), amount)
        if sums_row is not None:
            self._too_wide(head, sums_row)
        self._check_sums(head, body, columns, rates, sums_row, unit)
        self._name_unlinked([*sources, *filter(None, columns.values())])
        return self._done("matrix")

    def _heads(self, head: TableRow, body: list[TableRow]) -> dict[int, str | None]:
        """Return the destination of each column; None for the sums, which are the last."""
        columns: dict[int, str | None] = {}
        first: dict[str, Cell] = {}
        for index, cell in enumerate(head.cells[1:], start=1):
            below = [row.cell(index) for row in body if row.cell(index)]
            if not below and (not cell or cell.merged):
                continue  # a column that only looks like one
            leave_out = self._table.leave_out(cell, index)
            if None in columns.values():
                hint = f"put the sums last, or leave it out: {leave_out}"
                self._complain(cell.place, "a column follows the sums", hint)
                break
            if SUMS.fullmatch(cell.lower()):
                self._check(cell)
                columns[index] = None
                continue
            if below and not any(_is_number(other) or other[0] in "#=" for other in below):
                message = f"the column {_named(cell)} holds no rates"
                self._complain(cell.place, message, f"leave it out: {leave_out}")
                continue
            name = columns[index] = self._end(cell, leave_out)
            if name and name in first:
                message = f"{name} appears twice, first in {self._column(first[name], list(head.cells))}"
                self._complain(cell.place, message, "add up the two columns, and keep one")
            first.setdefault(name, cell)
        return columns

    def _column(self, cell: Cell, cells: list[Cell]) -> str:
        where = self._table.where(cell)
        return where if self._table.sheet else f"column {cells.index(cell) + 1}"

    def _name_unlinked(self, names: list[str]) -> None:
        """Remark what a table names and has no rate for."""
        linked = {end for link in self._links for end in link}
        if without := [name for name in dict.fromkeys(names) if name and name not in linked]:
            self._remarks.append(f"no link of {units.some(without)}: no rate is above 0")

    def _too_wide(self, head: TableRow, row: TableRow) -> None:
        extra = next((cell for cell in row.cells[len(head.cells) :] if cell), None)
        if extra is not None:
            self._complain(
                extra.place, cells.too_wide(len(row.cells), len(head.cells)), _apart_hint(self._separator)
            )

    def _check_sums(
        self,
        head: TableRow,
        body: list[TableRow],
        columns: dict[int, str | None],
        rates: dict[tuple[int, int], Amount],
        sums_row: TableRow | None,
        unit: str,
    ) -> None:
        """Leave sums out; complain of those that are none: then it is a site of an odd name, or cells miss."""
        if self._complain:
            return
        own = [index for index, name in columns.items() if name is not None]
        last = next((index for index, name in columns.items() if name is None), None)
        rows = [row for row in body if row is not sums_row]
        if last is not None:
            out = self._table.leave_out(head.cells[last], last)
            for row in rows:
                parts = [rates.get((row.place.line, index)) for index in own]
                self._compare(row, row.cell(last), parts, unit, out)
            self._remarks.append(f"the last column, {_named(head.cells[last])}, holds sums and is left out")
        if sums_row is not None:
            for index in own:
                parts = [rates.get((row.place.line, index)) for row in rows]
                self._compare(sums_row, sums_row.cell(index), parts, unit, self._table.leave_out_row(sums_row))
            self._remarks.append(f"the last row, {_named(sums_row.cells[0])}, holds sums and is left out")

    def _compare(self, row: TableRow, cell: Cell, parts: list[Amount | None], unit: str, leave_out: str) -> None:
        stated = self._amount(cell, unit, leave_out)
        if stated is None:
            return
        amounts = [part for part in parts if part is not None]
        real = sum((Fraction(part.rate) for part in amounts), Fraction(0))
        if abs(Fraction(stated.rate if stated.number else 0) - real) > SUM_TOLERANCE * real:
            is_ = total(amounts) if amounts else "0"
            message = f"{_named(row.cells[0])}: {stated} does not match the cells, which sum to {is_}"
            self._complain(cell.place, message, f"correct the cells or the sum, or leave it out: {leave_out}")

    def _is_head(self, row: TableRow) -> bool:
        """Return whether the first row names columns: a person named it, or it has words that heads have."""
        if len(row.cells) < 3 or _is_number(row.cells[2]):
            return False
        if self._options.layout.header_row or _SOURCE.match(row.cells[0]) or _DESTINATION.match(row.cells[1]):
            return True
        return bool(_DESTINATION.match(row.cells[0]) or units.rate_unit(row.cells[2]))

    def _head(self, row: TableRow) -> str:
        """Read the heads of lines; return the unit."""
        if _DESTINATION.match(row.cells[0]) and _SOURCE.match(row.cells[1]):
            self._complain(row.cells[0].place, "the destination comes first", "make the source the first column")
        for cell in row.cells[:2]:
            self._check(cell)
        for index, cell in enumerate(row.cells[3:], start=3):
            if cell:
                message = f"a line has three cells, and {_named(cell)} is one more"
                self._complain(cell.place, message, f"leave it out: {self._table.leave_out(cell, index)}")
        return self._unit(row.cells[2], needed=self._table.of_several) or OLD_UNIT

    def _count(self, row: TableRow) -> tuple[str, str]:
        """Return what is wrong with a line that has not three cells."""
        count, last = len(row.cells), row.cells[2:]
        parts = all(re.fullmatch(r"[0-9]{1,3}(\.[0-9]+)?", text) for text in last)
        if self._separator == "," and len(last) > 1 and parts:
            return f"{','.join(last)} has thousands separators", f"write {''.join(last)}"
        hint = "a line is `source, destination, rate`"
        if count > 3:
            no_head = Cell("", row.cells[3].place)
            hint += f"; leave others out: {self._table.leave_out(no_head, 3)}"
        return f"{units.counted(count, 'cells')} where 3 are expected", hint

    def _unit(self, cell: Cell, *, needed: bool) -> str:
        """Return the unit that a head names, or that of the option."""
        self._check(cell)
        named, of_option = units.rate_units(cell), self._options.unit
        if len(named) > 1 or (named and of_option and named[0] != of_option):
            message = f"the head names {' and '.join(named)}" + (f", the option {of_option}" if of_option else "")
            self._complain(cell.place, message, "keep one of them")
        elif not named and not of_option and _UNIT_LIKE.search(cell):
            message = f"{values.shown(cell)!r} names no known unit"
            self._complain(cell.place, message, "write Gb/s, GB/s or MiB/s there, or give --unit Gb/s")
        elif needed and not named and not of_option:
            message = (
                "the matrix has no unit" if cell is self._table.rows[0].cells[0] else "the rates have no unit"
            )
            self._complain(cell.place, message, "write it into this cell, or give --unit Gb/s")
        return named[0] if named else of_option

    def _check(self, cell: Cell) -> None:
        """Complain of a cell that is not what a person sees."""
        if cell.trouble:
            self._complain(cell.place, cell.trouble, cell.hint)

    def _amount(self, cell: Cell, unit: str, leave_out: str = "") -> Amount | None:
        try:
            return cells.amount(cell, unit or self._default, self._options.decimal, self._separator)
        except WrongError as error:
            self._complain(cell.place, error.message, add_ignore_hint(error.hint, leave_out))
        return None

    def _end(self, cell: Cell, leave_out: str = "") -> str:
        """Read a name, or complain and return nothing; `leave_out` is the option that is rid of a wrong one."""
        try:
            cell.check()
            return _name(cell, self._options.names)
        except WrongError as error:
            self._complain(cell.place, error.message, add_ignore_hint(error.hint, leave_out))
        return ""

    def _add(self, cell: Cell, source: str, destination: str, amount: Amount) -> None:
        link = source, destination
        if not source or not destination:
            return  # complained of
        if source == destination:
            message = f"{source} is both source and destination"
            self._complain(cell.place, message, "leave it empty: source and destination must differ")
        elif link in self._links:
            message = (
                f"{source} to {destination} appears twice, first in {self._table.where(self._links[link][1])}"
            )
            self._complain(cell.place, message, "add up their rates, and keep one")
        elif len(self._links) == MOST_LINKS:
            self._complain(cell.place, f"there are more than {MOST_LINKS} links", "split it into several menus")
        self._links.setdefault(link, (amount, cell))

    def _done(self, form: str) -> Imported:
        links = tuple((*ends, amount) for ends, (amount, _) in self._links.items())
        return Imported(form, links, tuple(self._remarks), tuple(cell for _, cell in self._links.values()))


_BITS = {"b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s"}


def _name(text: str, names: Collection[str]) -> str:
    if not text:
        raise WrongError("a name is missing", "name an RSE, a site or a URL prefix")
    name = addresses.end_name(text)
    if names and name not in names:
        raise WrongError(f"there is no site or RSE {name}", units.did_you_mean(name, names))
    return name


def add_ignore_hint(hint: str, option: str) -> str:
    """Return a hint with the option that leaves out what it is about."""
    return f"{hint}; or leave it out: {option}" if option else hint


def _is_number(text: str) -> bool:
    return text[:1].isdigit() or text[:1] in {"", "+", "-", "."} or text.lower() in cells.BLANK


def _are_lines(rows: list[TableRow]) -> bool:
    """Whether these are lines: most rows but the head have a name in the second cell, not a number or nothing."""
    body = rows[1:10] or rows
    named = sum(1 for row in body if len(row.cells) >= 2 and not _is_number(row.cells[1]))
    return 2 * named > len(body)


def _named(cell: Cell) -> str:
    return repr(values.shown(cell)) if cell else "which has no name"


def _apart_hint(separator: str) -> str:
    apart = (
        "write 50000 for 50,000, or put it in quotation marks" if separator == "," else "remove the extra cells"
    )
    return f"{apart}; a cell that holds {separator!r} needs quotation marks" if separator != "," else apart


def scenario_name(stem: str) -> str:
    """Return a name for a scenario, after a file without its suffix."""
    name = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in stem)
    return name.strip("._-")[:64] or "imported"
