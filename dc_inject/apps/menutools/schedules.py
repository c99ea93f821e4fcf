"""Workbooks of several sheets: days with their scenarios, each the links of a sheet times a factor.

A schedule is a sheet that names other sheets in its first row or column, and days in the other: dates, numbers or
both. A cell shows whether, or at what part of its rates, or at what rate, the scenario runs on the day. Without a
schedule, each sheet is a scenario of one day, or a day.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from fractions import Fraction
from typing import TypeVar

from dc_inject.apps.menutools import importing, tables, workbooks
from dc_inject.apps.menutools.importing import Imported, Options
from dc_inject.apps.menutools.tables import Table
from dc_inject.apps.menutools.workbooks import Sheet
from dc_inject.menu import cells, values
from dc_inject.menu.cells import Amount, Cell
from dc_inject.menu.includes import MenuReader
from dc_inject.menu.nodes import FirstComplaints, Place
from dc_inject.menu.values import WrongError
from dc_inject.model import units
from dc_inject.model.errors import MenuError, Problem, UsageError, column_letters

RUNS = frozenset({"x", "yes", "y", "on", "true", "\N{CHECK MARK}", "\N{HEAVY CHECK MARK}"})
RESTS = cells.BLANK | {"no", "n", "off", "false"}
MOST_DAYS = 366
ALIKE = 0.93  # of 1: one letter more or less in a name of an RSE, but not another digit
DIGITS = 6  # behind the point, of a rate that was multiplied
LARGEST_FACTOR = 10  # a larger number is a percentage or a rate without its unit
MARKS = "write x, a factor such as 0.5, a percentage, or a rate with its unit"

T = TypeVar("T")
_COPY = re.compile(r"(.*\S)\s*\([0-9]+\)")  # a sheet that is a variant of another one
_DATE = re.compile("20[0-9]{2}-[0-9]{2}-[0-9]{2}")
# `Day-3`, not `Day -3`
_DAY = re.compile(r"(?:(?:day|d|tag)(?:\s*-(?=\s)|-)?)?[^\w-]*(-?[0-9]{1,4})", re.IGNORECASE)
_WEEKDAY = re.compile(r"(mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?", re.IGNORECASE)
_KEY = re.compile("|".join((_DATE.pattern, _DAY.pattern, _WEEKDAY.pattern)), re.IGNORECASE)
_BRACKETS = re.compile(r"[\[(][^\[(]*[\])]$")


@dataclass(frozen=True, slots=True)
class Part:
    """A scenario on a day: the links of a sheet, whose rates are multiplied by a factor."""

    scenario: str
    sheet: str
    links: Imported
    factor: Fraction = Fraction(1)

    @property
    def amounts(self) -> list[Amount]:
        """The rate of each link on the day."""
        whole = self.factor == 1
        return [
            amount if whole else Amount(round(amount.number * self.factor, DIGITS), amount.unit)
            for _, _, amount in self.links.links
        ]


@dataclass(frozen=True, slots=True)
class Day:
    """A day with its scenarios; its date is None where the workbook has only its number."""

    number: int
    date: date | None
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Book:
    """The days of a workbook, in order, and what a person should know about the reading."""

    days: tuple[Day, ...]
    remarks: tuple[str, ...]


def scenario_of(sheet: str) -> str:
    """Return the scenario of a sheet: that of a copy, which spreadsheets name `T0 export (2)`, is the same."""
    copy = _COPY.fullmatch(sheet)
    return importing.scenario_name(copy[1] if copy else sheet)


def read(
    data: bytes, file: str, options: Options, schedule: str, ignored: Collection[str], day_scenario: str = ""
) -> Book:
    """Read a workbook with a schedule; without one, sheets are the scenarios of a day, or days of `day_scenario`.

    Raises MenuError with what is wrong in all sheets, each with its cell, and UsageError for unknown names.
    """
    try:
        sheets = workbooks.read_all(data, file)
    except WrongError as error:
        raise MenuError([Problem(file, 0, error.message, error.hint)]) from None
    names = [sheet.name for sheet in sheets]
    for name in filter(None, (schedule, *ignored)):
        if name not in names:
            raise UsageError(f"there is no sheet {values.shown(name)!r}", units.did_you_mean(name, names))
    left_out = {*ignored, *(sheet.name for sheet in sheets if sheet.hidden and options.layout.hidden == "ignore")}
    reader = _Reader(file, options, {sheet.name: sheet for sheet in sheets if sheet.name not in left_out}, names)
    days = reader.read_days_of_schedule(schedule) if schedule else reader.read_days_of_sheets(day_scenario)
    if reader.problems or not days:
        raise MenuError(reader.problems or [Problem(file, 0, "no sheet is left", "leave out fewer")])
    if reader.unmatched:
        name = min(reader.unmatched)
        raise UsageError(f"no sheet has the head {values.shown(name)!r}", f"a place is such as 'SHEET!{name}'")
    days.sort(key=lambda day: day.number)
    likely = [] if options.names else _misspelt({part.sheet: part.links for day in days for part in day.parts})
    return Book(tuple(days), (*likely, *(f"{', '.join(of)}: {remark}" for remark, of in reader.remarks.items())))


class _Reader:
    """Reads sheets one by one, and keeps what is wrong in each."""

    def __init__(self, file: str, options: Options, sheets: Mapping[str, Sheet], names: Sequence[str]) -> None:
        self._file, self._options, self._sheets, self._names = file, options, sheets, names
        self.problems: list[Problem] = []
        self.remarks: dict[str, list[str]] = {}  # with the sheets that have each
        ignored = (*options.layout.ignore_columns, *options.layout.ignore_rows)
        self.unmatched = {name for name in ignored if name.rpartition("!")[0] not in names}

    def read_days_of_sheets(self, day_scenario: str) -> list[Day]:
        """Return a day whose scenarios are the sheets, or one for each sheet, numbered by its name or place."""
        read = {name: self._links(name) for name in self._sheets}
        parts = [Part(day_scenario or scenario_of(name), name, links) for name, links in read.items() if links]
        if not day_scenario:
            for part in _repeated(parts):
                self._complain(part.sheet, f"another sheet is the scenario {part.scenario}, too", "rename one")
            return [Day(1, None, tuple(parts))] if parts else []
        days: dict[int, Day] = {}
        for part in parts:
            match = _DAY.fullmatch(part.sheet)
            number = int(match[1]) if match else len(days) + 1
            if not 0 < number <= MOST_DAYS:
                self._complain(part.sheet, f"day {number} is not from 1 to {MOST_DAYS}", "name sheets as `Day 3`")
            elif number in days:
                self._complain(part.sheet, f"another sheet is day {number}, too", "name all sheets as `Day 3`")
            days[number] = Day(number, None, (part,))
        return list(days.values())

    def read_days_of_schedule(self, name: str) -> list[Day]:
        """Return the days of a schedule, whose scenarios are the other sheets."""
        others = {_folded(other): other for other in self._sheets if other != name}

        def read_schedule(table: Table, complain: FirstComplaints) -> list[Day]:
            schedule = _Schedule(table, complain, self._options.decimal, others)
            for key in others.keys() - schedule.columns.keys():
                out = f"add it there, or leave it out: {tables.option('--ignore-sheet', others[key])}"
                self._complain(others[key], f"the sheet {name!r} does not name this one", out)
            links = {key: self._links(others[key]) for key in schedule.columns}
            return [] if self.problems or complain else schedule.days(links)

        return self._each(name, read_schedule) or [] if name in self._sheets else []

    def _complain(self, sheet: str, message: str, hint: str) -> None:
        self.problems.append(Problem(self._file, 0, message, hint, sheet=sheet))

    def _links(self, sheet: str) -> Imported | None:
        return self._each(sheet, lambda table, complain: importing.read_table(table, self._options, complain))

    def _each(self, name: str, use: Callable[[Table, FirstComplaints], T]) -> T | None:
        """Return what is made of a sheet; None after complaints."""
        notes, sheet, layout = MenuReader(self._file, None), self._sheets[name], self._options.layout
        complain, result = FirstComplaints(notes.complain), None
        table = tables.cut_sheet(sheet, self._file, layout.of(name, self._names), complain)
        self.unmatched &= table.unmatched
        if sheet.hidden and layout.hidden != "read":
            complain(Place(self._file, 0), "the sheet is hidden", "--hidden read, --hidden ignore, or show it")
        elif not complain and not any(len(list(filter(None, row.cells))) > 1 for row in table.rows):
            out = f"leave it out: {tables.option('--ignore-sheet', name)}"
            complain(Place(self._file, 0), "the sheet has no table", out)
        if not complain:
            result = use(table, complain)
        for remark in table.remarks:
            self.remarks.setdefault(remark, []).append(name)
        complain.close()
        self.problems += [replace(problem, sheet=name) for problem in notes.problems]
        return None if complain else result


class _Schedule:
    """Reads a schedule, with its days as rows: one with days as columns is turned first."""

    def __init__(self, table: Table, complain: FirstComplaints, decimal: str, sheets: Mapping[str, str]) -> None:
        """Take a table, and the names of the other sheets by what they are without case."""
        self._table, self._complain, self._decimal, self._sheets = table, complain, decimal, sheets
        width = max(len(row.cells) for row in table.rows)
        grid = [[row.cell(index) for index in range(width)] for row in table.rows]
        turned = [list(column) for column in zip(*grid, strict=True)]
        first, other = (sum(self._name(cell) in sheets for cell in cells[0]) for cells in (grid, turned))
        self._turned = other > first
        chosen = turned if self._turned else grid
        self._head, self._body = chosen[0], chosen[1:]
        self.columns: dict[str, int] = {}  # of sheets
        self._keys: list[int] = []
        self._sums: list[int] = []
        for index, cell in enumerate(self._head):
            name = self._name(cell)
            if not any(row[index] for row in self._body) and (not cell or cell.merged):
                continue  # a column that only looks like one
            if name in self.columns:
                self._refuse(cell, f"{values.shown(cell)!r} appears twice", "keep one of them")
            elif name in sheets:
                self.columns[name] = index
            elif cell and importing.SUMS.fullmatch(cell.lower()):
                self._sums.append(index)
            elif not self.columns and any(_KEY.fullmatch(row[index].meant or row[index]) for row in self._body):
                self._keys.append(index)
            else:
                hint = units.did_you_mean(cell, sheets.values())
                self._refuse(cell, f"there is no sheet {values.shown(cell)!r}", hint, or_out=True)
        if not self.columns or not self._keys:
            hint = "rows are days and columns the names of sheets, or the other way round; days come first"
            self._refuse(self._head[0], f"it names no {'days' if self.columns else 'other sheets'}", hint)

    def days(self, links: Mapping[str, Imported | None]) -> list[Day]:
        """Return the days, with the links of each sheet."""
        rows = [(row, *self._day(row)) for row in self._body if any(row)]
        starts = [at - timedelta(days=number - 1) for _, number, at in rows if number and at]
        begin = starts[0] if starts else min((at for *_, at in rows if at), default=None)
        days: dict[int, Day] = {}
        for row, given, at in rows:
            name = next(filter(None, row))
            number = given if at is None or begin is None else (at - begin).days + 1
            if number is None or not 0 < number <= MOST_DAYS:
                self._refuse(name, "the row has no day, or one out of order", "write a date or a number from 1 on")
                continue
            if given not in {None, number}:
                self._refuse(name, f"{at} is day {number}, not {given}", "correct the number or the date")
            elif number in days:
                self._refuse(name, f"day {number} appears twice", "keep one of them")
            parts = tuple(
                Part(scenario_of(self._sheets[key]), self._sheets[key], of, factor)
                for key, index in self.columns.items()
                if (of := links[key]) and (factor := self._factor(row[index], self._head[index], of))
            )
            for part in _repeated(parts):
                self._refuse(name, f"{part.sheet} is {part.scenario}, which runs already", "keep one of them")
            if not self._complain:
                self._check_sums(row, parts)
            days[number] = Day(number, begin and begin + timedelta(days=number - 1), parts)
        for key, index in self.columns.items():
            if not any(part.sheet == self._sheets[key] for day in days.values() for part in day.parts):
                self._refuse(self._head[index], f"no day runs {self._sheets[key]}", MARKS, or_out=True)
        return list(days.values())

    def _day(self, row: list[Cell]) -> tuple[int | None, date | None]:
        """Return number and date of a row, as far as they are there."""
        number, at, weekday = None, None, None
        for cell in (row[index] for index in self._keys if row[index]):
            text = cell.meant or cell
            try:
                if not cell.meant:
                    cell.check()
                if _DATE.fullmatch(text):
                    at = date.fromisoformat(text)
                elif (match := _DAY.fullmatch(text)) and number in {None, int(match[1])}:
                    number = int(match[1])
                elif _WEEKDAY.fullmatch(text):
                    weekday = cell
                else:
                    hint = "write 2027-02-08, or a number such as 3"
                    self._refuse(cell, f"{values.shown(text)!r} is not a day", hint, or_out=True)
            except ValueError as error:
                self._refuse(cell, *values.explain(error))
        if at and weekday and not weekday.lower().startswith(f"{at:%a}".lower()):
            self._refuse(weekday, f"{at} is a {at:%A}", "correct the date or the day of the week")
        return number, at

    def _factor(self, cell: Cell, head: Cell, links: Imported) -> Fraction | None:
        """Return what rates are multiplied with; None if the scenario does not run."""
        text = cell.meant or cell
        if text.lower() in RUNS | RESTS:
            return Fraction(1) if text.lower() in RUNS else None
        try:
            if not cell.meant:
                cell.check()
            plain = Cell(text.removesuffix("%").rstrip(), cell.place)
            plain.exact = cell.exact or bool(cell.meant)
            unit = "" if text.endswith("%") else next(iter(units.rate_units(head)), "")
            amount = cells.amount(plain, unit or "Gb/s", self._decimal, "\t")
            if amount is None or not amount.number:
                return None
            if unit or units.rate_units(text):
                return Fraction(amount.rate) / sum(Fraction(each.rate) for _, _, each in links.links)
        except WrongError as error:
            self._refuse(cell, error.message, MARKS)
            return None
        factor = amount.number / (100 if text.endswith("%") else 1)
        if factor > LARGEST_FACTOR:
            self._refuse(cell, f"{values.shown(cell)!r} would be a factor", MARKS)
        return factor

    def _check_sums(self, row: list[Cell], parts: Sequence[Part]) -> None:
        """Compare what a schedule sums with the rates of the day."""
        amounts = [amount for part in parts for amount in part.amounts]
        real = sum(Fraction(amount.rate) for amount in amounts)
        for cell, head in ((row[index], self._head[index]) for index in self._sums):
            unit = next(iter(units.rate_units(head)), "")
            try:
                stated = cells.amount(cell, unit, self._decimal, "\t")
            except WrongError as error:
                self._refuse(cell, error.message, error.hint, or_out=True)
                continue
            if stated is not None and abs(Fraction(stated.rate) - real) > importing.SUM_TOLERANCE * real:
                sums = importing.total(amounts) if amounts else "0"
                self._refuse(cell, f"{stated}, but the sheets sum to {sums}", "correct one of them", or_out=True)

    def _name(self, head: str) -> str:
        """Return the sheet that a head names, without its unit."""
        name = _folded(head)
        return name if name in self._sheets else _folded(_BRACKETS.sub("", head).rstrip())

    def _refuse(self, cell: Cell, message: str, hint: str, *, or_out: bool = False) -> None:
        """Complain of a cell; `or_out` names the option that leaves out its column."""
        at = cell.place
        out = ("--ignore-row", str(at.line)) if self._turned else ("--ignore-column", column_letters(at.column))
        hint = importing.add_ignore_hint(hint, self._table.option(*out)) if or_out else hint
        self._complain(at, message, hint)


def _repeated(parts: Sequence[Part]) -> list[Part]:
    """Return the parts whose scenario another one before them is."""
    names = [part.scenario for part in parts]
    return [part for index, part in enumerate(parts) if part.scenario in names[:index]]


def _misspelt(sheets: Mapping[str, Imported]) -> list[str]:
    """Remark names that are in one sheet only, and nearly those of ends in several sheets."""
    places: dict[str, set[str]] = {}
    for sheet, links in sheets.items():
        for name in {end for link in links.links for end in link[:2]}:
            places.setdefault(name, set()).add(sheet)
    usual = [name for name, of in places.items() if len(of) > 1]
    near = (
        (name, of, difflib.get_close_matches(name, usual, 1, ALIKE)) for name, of in places.items() if len(of) == 1
    )
    return [f"{', '.join(of)}: {name} is in no other sheet; is it {like[0]}?" for name, of, like in near if like]


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()
