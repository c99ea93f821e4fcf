"""Workbooks (.xlsx): the rows of their sheets, each cell with what makes it differ from what a person sees.

The format is SpreadsheetML, ECMA-376 part 1. Only what matters for a table of rates is read: values, formulas,
number formats, merged cells, what is hidden or struck through, and notes. Cells are not judged here: a cell with
`trouble` is an error for the reader who uses it.
"""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cached_property
from xml.etree import ElementTree

from dc_inject.menu.cells import MOST_CELLS, MOST_COLUMNS, Cell
from dc_inject.menu.nodes import Place
from dc_inject.menu.values import WrongError
from dc_inject.model import units
from dc_inject.model.errors import column_letters

LARGEST = 50_000_000  # bytes of one part, unpacked
MOST_SHEETS = 50
MAGIC = b"PK\x03\x04"
OLD = b"\xd0\xcf\x11\xe0"  # .xls
AS_CSV = "or save the sheet as CSV (UTF-8)"
LAST_DATE = 2_958_466  # the day after 9999-12-31
LAST_ROW, LAST_COLUMN = 1_048_576, MOST_COLUMNS  # of any sheet

_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, ElementTree.ParseError, KeyError, OSError, ValueError, RuntimeError, EOFError,
    IndexError,
)  # fmt: skip
_PLAIN_FORMATS = {0, 1, 2, 3, 4, 11, 12, 13, 37, 38, 39, 40, 41, 43, 48, 49}  # of those without a code
_PERCENT_FORMATS = {9, 10}
_DATE_FORMATS = {*range(14, 18), 22, *range(27, 37), *range(50, 59)}
_TOKEN = re.compile(r'"(?P<quoted>[^"]*)"|\\(?P<escaped>.)|_.|\*.|\[(?:[A-Za-z]+\s?\d*|\$-[0-9A-Fa-f,]+)\]|;|.')
_PLAIN_CODE = re.compile(r"[-+( ]*(?:General|[#0?]+(?:,[#0?]+)*(?:\.[#0?]*)?(?:E[+-]0+)?)[) ]*", re.IGNORECASE)
_REFERENCE = re.compile(r"\$?([A-Z]{1,3})\$?([0-9]{1,7})")


@dataclass(frozen=True, slots=True)
class Sheet:
    """The cells of a sheet, by row and column, both from 1 on, and what hides some of them."""

    name: str
    cells: dict[tuple[int, int], Cell]
    hidden_rows: frozenset[int] = frozenset()
    hidden_columns: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()  # the cells that have one
    others: tuple[str, ...] = ()  # the other sheets with content
    hidden: bool = False


@dataclass(slots=True)
class _Format:
    """How a cell shows its number: with a unit of rates, or so that it is not the number that is kept."""

    unit: str = ""
    code: str = ""  # where it shows something else
    kind: str = ""  # `date` or `percent`, where it does
    struck: bool = False


def is_one(data: bytes) -> bool:
    """Return whether a file is a workbook, of a form that is read here or not."""
    return data.startswith((MAGIC, OLD))


def column_number(column: str) -> int:
    """Return the number of a column, 1 for A."""
    total = 0
    for letter in column.upper():
        total = total * 26 + ord(letter) - 64
    return total


def read(data: bytes, file: str, sheet: str = "") -> Sheet:
    """Return a sheet: the one that is named, or the one that was open when the workbook was saved.

    Raises WrongError for a workbook that cannot be read, and a sheet that it does not have.
    """
    return _read(data, file, lambda book: [book.sheet(sheet)])[0]


def read_all(data: bytes, file: str) -> list[Sheet]:
    """Return all sheets with content in their order; raises WrongError for a workbook that cannot be read."""
    return _read(data, file, lambda book: book.sheets())


def _read(data: bytes, file: str, choose: Callable[[_Workbook], list[Sheet]]) -> list[Sheet]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return choose(_Workbook(archive, file))
    except WrongError:
        raise
    except _UNREADABLE:
        raise WrongError("the file is not a readable .xlsx file", f"save it as .xlsx, {AS_CSV}") from None


class _Workbook:
    """Reads one workbook."""

    def __init__(self, archive: zipfile.ZipFile, file: str) -> None:
        self._archive = archive
        self._file = file
        self._elements_left = 9 * MOST_CELLS  # of all parts, as often as they are read
        self._bytes_left = 6 * LARGEST
        top = next((path for kind, path in self._relations("").values() if kind == "officeDocument"), "")
        root = ElementTree.fromstring(self._part(top))  # noqa: S314  without a DOCTYPE, which _part refuses
        self._parts = self._relations(top)
        self._names: dict[str, str] = {}  # sheet -> its part
        self._hidden: set[str] = set()
        listed = [_attributes(each) for each in root.iter() if _tag(each) == "sheet"]
        for sheet in listed:
            kind, path = self._parts[sheet["id"]]
            if kind == "worksheet":  # a chart sheet has no cells
                self._names[sheet["name"]] = path
                self._hidden |= {sheet["name"]} if sheet.get("state", "visible") != "visible" else set()
        views = [_attributes(each) for each in root.iter() if _tag(each) == "workbookView"]
        active = listed[int(views[0].get("activeTab", "0")) if views else 0]["name"]
        self._active = active if active in self._names else next(iter(self._names), "")
        settings = [_attributes(each) for each in root.iter() if _tag(each) == "calcPr"]
        self._computed = not any(_is_on(each.get("fullCalcOnLoad", "0")) for each in settings)
        epochs = [_attributes(each).get("date1904", "0") for each in root.iter() if _tag(each) == "workbookPr"]
        self._epoch = datetime(1904, 1, 1) if any(map(_is_on, epochs)) else datetime(1899, 12, 30)  # noqa: DTZ001  a date

    def sheets(self) -> list[Sheet]:
        most = f"the workbook holds more than {MOST_SHEETS} sheets or {MOST_CELLS:,} cells"
        too_many, left, read = WrongError(most, "split it into several workbooks"), MOST_CELLS, list[Sheet]()
        if len(self._names) > MOST_SHEETS:
            raise too_many
        for name in filter(self._has_content, self._names):
            read.append(self.sheet(name, others=False))
            left -= len(read[-1].cells)
            if left < 0:
                raise too_many
        return read

    def sheet(self, name: str, *, others: bool = True) -> Sheet:
        name = name or self._active
        if name not in self._names:
            raise WrongError(f"there is no sheet {name!r}", f"known: {', '.join(self._names)}")
        named = tuple(other for other in self._names if others and other != name and self._has_content(other))
        reader = _SheetReader(self._strings, self._formats, self._epoch, computed=self._computed, file=self._file)
        for element in self._elements(self._names[name], ("col", "row", "mergeCell")):
            reader.take(element)
        notes = tuple(
            _attributes(element)["ref"]
            for kind, path in self._relations(self._names[name]).values()
            if kind == "comments"
            for element in self._elements(path, ("comment",))
        )
        reader.merge()
        hidden = frozenset(reader.rows), frozenset(reader.columns)
        return Sheet(name, reader.cells, *hidden, notes, named, name in self._hidden)

    def _has_content(self, name: str) -> bool:
        elements = self._elements(self._names[name], ("row",))
        return any(_tag(part) in {"v", "t", "f"} for row in elements for part in row.iter())

    @cached_property
    def _strings(self) -> list[str]:
        path = next((path for kind, path in self._parts.values() if kind == "sharedStrings"), None)
        return [] if path is None else [_words(element) for element in self._elements(path, ("si",))]

    @cached_property
    def _formats(self) -> list[_Format]:
        path = next((path for kind, path in self._parts.values() if kind == "styles"), None)
        if path is None:
            return []
        codes: dict[int, str] = {}
        struck: list[bool] = []
        formats: list[_Format] = []
        for element in self._elements(path, ("numFmts", "fonts", "cellXfs")):
            for child in element:
                of = _attributes(child)
                if _tag(child) == "numFmt":
                    codes[int(of["numFmtId"])] = of["formatCode"]
                elif _tag(child) == "font":
                    marks = [_attributes(each) for each in child if _tag(each) == "strike"]
                    struck.append(any(_is_on(mark.get("val", "1")) for mark in marks))
                elif _tag(child) == "xf":
                    font = int(of.get("fontId", "0"))
                    style = _format(int(of.get("numFmtId", "0")), codes)
                    style.struck = font < len(struck) and struck[font]
                    formats.append(style)
        return formats

    def _relations(self, part: str) -> dict[str, tuple[str, str]]:
        """Return what a part refers to: id -> kind, path."""
        folder, name = posixpath.split(part)
        path = posixpath.join(folder, "_rels", f"{name}.rels")
        if part and path not in self._archive.namelist():
            return {}
        return {
            of["Id"]: (
                posixpath.basename(of["Type"]),
                posixpath.normpath(posixpath.join("/", folder, of["Target"]))[1:],
            )
            for of in map(_attributes, self._elements(path, ("Relationship",)))
            if of.get("TargetMode") != "External"
        }

    def _elements(self, path: str, tags: tuple[str, ...]) -> Iterator[ElementTree.Element]:
        """Yield the elements of a part that have one of these names, and forget each."""
        parsed = ElementTree.iterparse(io.BytesIO(self._part(path)))  # noqa: S314  as above
        for number, (_, element) in enumerate(parsed):
            self._elements_left -= 1
            if number > 3 * MOST_CELLS or self._elements_left < 0:
                raise WrongError(
                    f"the workbook holds more than {MOST_CELLS:,} cells", f"use a smaller one, {AS_CSV}"
                )
            if _tag(element) in tags:
                yield element
                element.clear()

    def _part(self, path: str) -> bytes:
        info = self._archive.getinfo(path)
        self._bytes_left -= info.file_size
        if info.file_size > LARGEST or self._bytes_left < 0:
            hint = f"use a smaller one, {AS_CSV}"
            raise WrongError(f"the workbook holds more than {LARGEST // 10**6} MB", hint)
        data = self._archive.read(info)
        if b"<!DOCTYPE" in data:
            raise ValueError("no workbook has one")
        return data


@dataclass(slots=True)
class _SheetReader:
    """Takes the elements of one sheet."""

    strings: list[str]
    formats: list[_Format]
    epoch: datetime  # day 0 of dates
    computed: bool
    file: str
    cells: dict[tuple[int, int], Cell] = field(default_factory=dict)
    rows: set[int] = field(default_factory=set)  # that are hidden, as the columns
    columns: set[int] = field(default_factory=set)
    ranges: list[str] = field(default_factory=list)
    _row: int = 0
    _left: int = LAST_COLUMN

    def take(self, element: ElementTree.Element) -> None:
        of, kind = _attributes(element), _tag(element)
        if kind == "mergeCell":
            self.ranges.append(of["ref"])
        elif kind == "col" and (_is_on(of.get("hidden", "0")) or float(of.get("width", "1")) == 0):
            hidden = range(int(of["min"]), min(int(of["max"]), LAST_COLUMN) + 1)
            self._left -= len(hidden)
            if self._left < 0:
                raise ValueError("columns overlap")
            self.columns.update(hidden)
        elif kind == "row":
            self._row = int(of.get("r", self._row + 1))
            if _is_on(of.get("hidden", "0")) or float(of.get("ht", "1")) == 0:
                self.rows.add(self._row)
            column = 0
            for child in element:
                if _tag(child) == "c":
                    reference = _attributes(child).get("r")
                    column = column + 1 if reference is None else position(reference)[1]
                    self._take_cell(child, column)

    def merge(self) -> None:
        """Let each cell of a range have the value of its first one, as it is seen."""
        last_row, last_column = (max((key[i] for key in self.cells), default=0) for i in (0, 1))
        if last_row * last_column > MOST_CELLS:
            message = f"the cells reach to {column_letters(last_column)}{last_row}"
            raise WrongError(message, f"clear the cells that are far from the table, {AS_CSV}")
        left = MOST_CELLS
        for name in self.ranges:
            first, _, last = name.partition(":")
            (top, start), (bottom, end) = position(first), position(last or first)
            bottom, end = min(bottom, last_row), min(end, last_column)
            left -= max(0, bottom - top + 1) * max(0, end - start + 1)
            if left < 0:
                raise ValueError("ranges overlap")
            value = self.cells.get((top, start))
            for key in ((row, column) for row in range(top, bottom + 1) for column in range(start, end + 1)):
                if value is not None and key != (top, start):
                    copy = self.cells[key] = Cell(value, Place(self.file, *key))
                    copy.__dict__.update(value.__dict__ | {"place": copy.place, "merged": name})

    def _take_cell(self, element: ElementTree.Element, column: int) -> None:
        of = _attributes(element)
        parts = {_tag(child): child for child in element}
        value, formula = (parts[key].text or "" if key in parts else None for key in ("v", "f"))
        kind, style = of.get("t", "n"), int(of.get("s", "0"))
        shown = self.formats[style] if style < len(self.formats) else _Format()
        text = self._text(kind, value or "", parts)
        cell = Cell(text, Place(self.file, self._row, column))
        if formula is not None and not (self.computed and (text or kind == "str")):
            cell = Cell(f"={formula}", cell.place)
            cell.trouble = "the value of a formula is not saved"
            cell.hint = "open the workbook in a spreadsheet program, let it compute, and save it"
        elif kind == "e":
            cell.trouble, cell.hint = f"{text} is an error, not a value", "correct the formula"
        elif shown.struck and text:
            cell.trouble, cell.hint = "the cell is struck through", "clear it, or remove the line through it"
        elif kind == "n" and text:
            if shown.code:
                cell.meant = self._meant(shown.kind, Fraction(text))
                cell.trouble = f"the cell shows its value {text} as {shown.code}"
                cell.hint = "give it a plain number format, and the number that is meant"
            elif shown.unit:
                cell = Cell(f"{text} {shown.unit}", cell.place)
            cell.exact = True
        if cell:
            self.cells[self._row, column] = cell

    def _meant(self, kind: str, number: Fraction) -> str:
        """Return what a number means in its format; nothing for what is no date or percentage."""
        if kind == "date" and 0 < number < LAST_DATE:
            return (self.epoch + timedelta(days=float(number))).isoformat(" ", "minutes").removesuffix(" 00:00")
        return f"{units.decimal(number * 100)} %" if kind == "percent" else ""

    def _text(self, kind: str, value: str, parts: dict[str, ElementTree.Element]) -> str:
        if kind == "s":
            return self.strings[int(value)]
        if kind == "inlineStr":
            return _words(parts["is"]) if "is" in parts else ""
        if kind == "b":
            return "TRUE" if _is_on(value) else "FALSE"
        if kind == "n" and value:
            return f"{float(value):.15g}"  # as spreadsheets show it: 0.1 + 0.2 is 0.3
        return " ".join(value.split())


def _format(code_id: int, codes: dict[int, str]) -> _Format:
    """Read a number format."""
    if code_id not in codes:
        if code_id in _PLAIN_FORMATS:
            return _Format()
        if code_id in _PERCENT_FORMATS:
            return _Format(code="a percentage", kind="percent")
        return _Format(code="a date, a time or a currency", kind="date" if code_id in _DATE_FORMATS else "")
    code = codes[code_id]
    bare = words = ""
    for token in _TOKEN.finditer(code):
        if token[0] == ";":
            break  # what follows is for numbers below 0, for 0, and for text
        words += token["quoted"] or token["escaped"] or ""
        bare += token[0] if len(token[0]) == 1 else " "
    named = units.rate_units(words)
    if "%" in bare:
        return _Format(code="a percentage", kind="percent")
    if not _PLAIN_CODE.fullmatch(bare) or len(named) > 1 or (not named and re.search(r"\w", words)):
        return _Format(code=repr(code[:60]), kind="date" if re.search("[dy]", bare, re.IGNORECASE) else "")
    return _Format(unit=named[0] if named else "")


def _words(element: ElementTree.Element) -> str:
    """Return the text of a string, without the phonetic hints of East Asian ones."""
    runs = [part for run in element for part in ((run,) if _tag(run) == "t" else run if _tag(run) == "r" else ())]
    return " ".join("".join(part.text or "" for part in runs if _tag(part) == "t").split())


def position(reference: str) -> tuple[int, int]:
    """Return row and column of a reference such as C4."""
    match = _REFERENCE.fullmatch(reference)
    row, column = (0, 0) if match is None else (int(match[2]), column_number(match[1]))
    if not (0 < row <= LAST_ROW and 0 < column <= LAST_COLUMN):
        raise ValueError("no reference to a cell")
    return row, column


def _is_on(value: str) -> bool:
    return value in {"1", "true"}


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _attributes(element: ElementTree.Element) -> dict[str, str]:
    return {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
