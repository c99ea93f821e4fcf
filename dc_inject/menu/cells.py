"""Tables of plain text, as spreadsheets save them: cells with their places, and the numbers that stand in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple, NoReturn

from dc_inject.menu import nodes, values
from dc_inject.menu.nodes import Complain, Place, Text
from dc_inject.menu.values import WrongError
from dc_inject.model import units

BLANK = frozenset({"", "-", "\N{EN DASH}", "\N{EM DASH}", "n.a.", "n.a", "n/a", "na"})
SEPARATORS = ("\t", ";", ",")
MOST_COLUMNS = 16_384  # of a line, as of a sheet
MOST_CELLS = 200_000  # of a table

_DIGITS = re.compile(r"\+?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?")
_WITH_UNIT = re.compile(r"(?P<number>[^A-Za-z]*[0-9.](?:[eE][+-]?[0-9]+)?)\s*(?P<unit>[A-Za-z]{2}.*|[bB]/.+)")
_GAP = r"[ ,.'_\N{RIGHT SINGLE QUOTATION MARK}\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}]"
_THOUSANDS = re.compile(
    rf"(?P<whole>[0-9]{{1,3}}(?P<gap>{_GAP})[0-9]{{3}}(?:(?P=gap)[0-9]{{3}})*)(?:[.,](?P<rest>[0-9]+))?"
)
_DOUBTFUL = re.compile(r"[1-9][0-9]{0,2}(?:\.[0-9]{3})+")  # 50.000: fifty, or fifty thousand
_GAPS = re.compile(_GAP)
_COMMENT = re.compile(r"\s*#(?:\s|$)")
_ERROR_VALUE = re.compile(r"#(?:N/A|REF!|VALUE!|DIV/0!|NAME\?|NUM!|NULL!)", re.IGNORECASE)  # not a comment


class Cell(Text):
    """A cell of a table; of those in text all but the text and its place are as here."""

    exact = False  # a number of a workbook, whose decimal sign is the point
    merged = ""  # the range of cells that it is a part of, but for the cell that holds their value
    meant = ""  # a date or a percentage as its format shows it: `2027-02-08`, `50 %`
    trouble = ""  # why its text is not what is meant, or not what a person sees
    hint = ""

    def check(self) -> None:
        """Raise WrongError where its text must not be used."""
        if self.trouble:
            raise WrongError(self.trouble, self.hint)


class TableRow(NamedTuple):
    """A line of a table with its cells."""

    place: Place
    cells: tuple[Cell, ...]

    def cell(self, index: int) -> Cell:
        """Return a cell; one that the line is too short for is empty."""
        if index < len(self.cells):
            return self.cells[index]
        last = self.cells[-1]
        return Cell("", last.place._replace(column=last.place.column + len(last)))


class Amount(NamedTuple):
    """A rate as it was written: a number, and its unit such as `Mb/s`."""

    number: Fraction
    unit: str

    def __str__(self) -> str:
        return f"{units.decimal(self.number)} {self.unit}"

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return units.parse_rate(str(self))


def rows(
    data: bytes, file: str, complain: Complain, *, titled: bool = False, first: int = 0
) -> tuple[str, list[TableRow]]:
    """Return the separator and the rows of a table, but for empty lines, comments (`#`) and what is wrong.

    The first line of one that is `titled` names its columns, and shows the separator: a comma, if there is one.
    Lines before the number `first` do not count.
    """
    text = nodes.decode(data, file, complain)
    if text is None:
        return ",", []
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    numbered = enumerate(lines[max(0, first - 1) :], start=max(1, first))
    content = [(Place(file, number), line) for number, line in numbered if _has_content(line)]
    if not content:
        return ",", []
    top, separators = (content[:1], SEPARATORS[::-1]) if titled else (content[:2], SEPARATORS)
    separator = next((candidate for candidate in separators if any(candidate in line for _, line in top)), "")
    if not separator:
        complain(content[0][0], "the line has one cell", "separate cells by comma, semicolon or tab")
        return ",", []
    rows, left = [], MOST_CELLS
    for place, line in content:
        try:
            rows.append(TableRow(place, tuple(_cells(line, separator, place))))
            left -= len(rows[-1].cells)
            if left < 0:
                complain(place, f"the table has more than {MOST_CELLS:,} cells", "split it into several files")
                return separator, []
        except WrongError as error:
            complain(place, error.message, error.hint)
    return separator, [row for row in rows if any(row.cells)]


def too_wide(number: int, columns: int) -> str:
    """Complain that a line has more cells than the table has columns."""
    return f"{units.counted(number, 'cells')}, but {units.counted(columns, 'columns')}"


def amount(text: Cell, unit: str, decimal: str, separator: str) -> Amount | None:
    """Read a rate, with the unit of the table unless the cell names one; None if the cell is blank.

    `decimal` is `,` or `.`, the decimal sign of the table, or empty if it is not known. Raises WrongError.
    """
    text.check()
    if text.merged:
        raise WrongError(f"one value stands in the merged cells {text.merged}", "unmerge them, each with its rate")
    if text.lower() in BLANK:
        return None
    named = _WITH_UNIT.fullmatch(text)
    number: str = text
    if named is not None:
        number, unit = named["number"].strip(), units.rate_unit(named["unit"])
        if not unit:
            raise WrongError(
                f"{values.shown(named['unit'])!r} is not a unit of a rate", "write Gb/s, GB/s or MiB/s"
            )
    rate = Amount(_number(number, "." if text.exact else decimal, separator), unit)
    if not unit:
        raise WrongError(f"{values.shown(text)!r} has no unit", "give it with --unit Gb/s")
    if rate.number:
        try:
            values.rate(str(rate))
        except ValueError as error:
            raise WrongError(*values.explain(error)) from None
    return rate


def _number(text: str, decimal: str, separator: str) -> Fraction:
    """Read a number from 0 on; one with separate thousands is refused as ambiguous."""
    point = text.replace(",", ".") if decimal == "," and "." not in text else text
    if text[:1] in {"-", "\N{MINUS SIGN}"}:
        raise WrongError(f"{values.shown(text)!r} is negative", "a rate is above 0; an empty cell is no link")
    apart = _THOUSANDS.fullmatch(text)
    whole = "" if apart is None else _GAPS.sub("", apart["whole"]) + (f".{apart['rest']}" if apart["rest"] else "")
    if point is text and whole and not _DIGITS.fullmatch(text):
        _refuse(text, f"without thousands separators: {whole}")
    if point is text and _DOUBTFUL.fullmatch(text) and (decimal == "," or (separator == ";" and not decimal)):
        _refuse(text, f"{whole}, or give `--decimal .` if the point is the decimal sign")
    if not _DIGITS.fullmatch(point):
        if re.fullmatch(r"[0-9]+,[0-9]+", text):
            _refuse(text, "`--decimal ,` if the comma is the decimal sign")
        _refuse(text, "a number such as 7800 or 12.5; an empty cell is no link")
    if len(point) > 30:
        _refuse(text, "at most 30 digits")
    return Fraction(point)


def _refuse(text: str, right: str) -> NoReturn:
    raise WrongError(f"{values.shown(text, 30)!r} is not a plain number", f"write {right}")


def _has_content(line: str) -> bool:
    stripped = line.strip(" \t;,\N{NO-BREAK SPACE}")
    return bool(stripped) and not (stripped[0] == "#" and not _ERROR_VALUE.match(stripped))


def _cells(line: str, separator: str, place: Place) -> Iterator[Cell]:
    """Split a line, whose cells may be quoted as CSV has it; a comment (` #`) ends it."""
    sep = re.escape(separator)
    pattern = re.compile(rf'[^\S\t]*(?:"(?P<quoted>(?:[^"]|"")*)"\s*?|(?P<plain>(?:(?!\s\#\s)[^{sep}])*))')
    at = 0
    for _ in range(MOST_COLUMNS):
        match = pattern.match(line, at)
        assert match is not None  # the plain cell may be empty
        name = "plain" if match["quoted"] is None else "quoted"
        text = match[name].strip() if name == "plain" else match[name].replace('""', '"').strip()
        if text.startswith('"') and name == "plain":
            raise WrongError("a quotation mark opens a cell and is not closed", "close it, or remove it")
        yield Cell(text, place._replace(column=match.start(name) + 1))
        at = match.end()
        while line[at : at + 1] == " ":
            at += 1
        if at == len(line) or _COMMENT.match(line, at):
            return
        if not line.startswith(separator, at):
            raise WrongError("text follows a cell in quotation marks", f"put {separator!r} between cells")
        at += 1
    raise WrongError(f"the line has more than {MOST_COLUMNS:,} cells", "leave out those that are no links")
