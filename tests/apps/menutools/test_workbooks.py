"""Workbooks: each cell is read as a person sees it, or reported with sheet and cell."""

from __future__ import annotations

import string
import zipfile
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject.apps.menutools import importing, workbooks
from dc_inject.apps.menutools.importing import Imported, Options
from dc_inject.apps.menutools.tables import Layout
from dc_inject.menu.values import WrongError
from dc_inject.model.errors import MenuError, Problem
from tests.menu import books
from tests.menu.books import Formula, Value

SHEET = "xl/worksheets/sheet1.xml"
MATRIX: dict[str, Value] = {
    "A1": "from\\to [Gb/s]", "B1": "KIT", "C1": "FNAL", "D1": "PIC",
    "A2": "CERN", "B2": 12.5, "C2": 40, "D2": 10,
    "A3": "RAL", "B3": 2, "C3": 3,
}  # fmt: skip
MEANT = {"CERN:KIT": 12.5, "CERN:FNAL": 40, "CERN:PIC": 10, "RAL:KIT": 2, "RAL:FNAL": 3}
TITLED: dict[str, Value] = {
    "A1": "Rates of day 3 (Gb/s)",
    "A3": "from\\to", "B3": "KIT", "C3": "FNAL", "D3": "egress", "E3": "requested by",
    "A4": "CERN", "B4": 10, "C4": 40, "D4": Formula("SUM(B4:C4)", 50), "E4": "Ada",
    "A5": "ingress", "B5": 10, "C5": 40, "D5": 50,
    "A6": "as agreed on Monday",
}  # fmt: skip


def read(data: bytes, unit: str = "", **layout: object) -> Imported:
    return importing.read(data, "day.xlsx", Options(unit=unit, layout=Layout(**layout)))  # type: ignore[arg-type]


def outcome(data: bytes) -> tuple[Imported | None, list[Problem]]:
    """Return what a workbook holds, or what is wrong with it."""
    try:
        return read(data), []
    except MenuError as error:
        return None, list(error.problems)


def links(found: Imported) -> dict[str, float]:
    return {f"{source}:{destination}": amount.rate * 8 / 1e9 for source, destination, amount in found.links}


def problems(data: bytes, **options: object) -> list[Problem]:
    with pytest.raises(MenuError) as caught:
        read(data, **options)  # type: ignore[arg-type]
    assert all(problem.hint for problem in caught.value.problems)
    return list(caught.value.problems)


def cells_of(found: list[Problem]) -> set[str]:
    """Return where problems are, as a person reads it."""
    assert all(str(problem).startswith("day.xlsx:Rates!") for problem in found)
    return {str(problem).split("!")[1].split(":")[0] for problem in found}


def test_numbers_are_read_as_they_are_shown() -> None:
    """Formulas by their saved values, also empty ones; formats with a unit; what floats add to a number is not."""
    cells = MATRIX | {"B2": Formula("10+2.5", 12.5), "C2": 5, "D3": Formula('IF(1,"",2)', ""), "B3": 0.1 + 0.2}
    found = read(books.book(cells, styles={"C2": "unit"}))
    assert links(found) == MEANT | {"RAL:KIT": 0.3}
    assert not found.remarks


@pytest.mark.parametrize(
    ("value", "style"),
    [
        (Formula("B9*2"), ""),
        (Formula("VLOOKUP(1,A:B,2)", "#N/A"), ""),
        ("#REF!", ""),
        (0.25, "percent"),
        (46061, "date"),
        (7800000, "thousands"),
        (7, "euro"),
        (7, "struck"),
    ],
)
def test_a_cell_that_shows_something_else_is_reported(value: Value, style: str) -> None:
    """In a matrix and among lines, as a rate and as a name; not where its column is left out."""
    cells = MATRIX | {"C2": value}
    assert cells_of(problems(books.book(cells, styles={"C2": style}))) == {"C2"}
    assert links(read(books.book(cells, styles={"C2": style}), ignore_columns=("fnal",)))["CERN:PIC"] == 10
    lines: dict[str, Value] = {"A1": "src", "B1": "dst", "C1": "Gb/s", "A2": "CERN", "B2": "KIT", "C2": value}
    assert cells_of(problems(books.book(lines, styles={"C2": style}))) == {"C2"}
    if isinstance(value, Formula | str) or style == "struck":
        assert cells_of(problems(books.book(MATRIX | {"A2": value}, styles={"A2": style}))) == {"A2"}


def test_formulas_that_a_program_wrote_are_not_believed() -> None:
    """XlsxWriter saves 0 with each, and lets the workbook be computed when it is opened."""
    cells = MATRIX | {"C2": Formula("B2*2", 0)}
    assert cells_of(problems(books.book(cells, computed=False))) == {"C2"}
    assert "CERN:FNAL" not in links(read(books.book(cells)))


def test_merged_cells_are_names_but_not_rates() -> None:
    """A rate for several links is ambiguous; a source of several lines is not, nor a wide head."""
    cells = {key: value for key, value in MATRIX.items() if key != "C2"}
    assert cells_of(problems(books.book(cells, merged=["B2:C2"]))) == {"C2"}
    lines: dict[str, Value] = {
        "A1": "src", "B1": "dst", "C1": "Gb/s", "A2": "CERN", "B2": "KIT", "C2": 1, "B3": "PIC", "C3": 2,
    }  # fmt: skip
    assert links(read(books.book(lines, merged=["A2:A3"]))) == {"CERN:KIT": 1, "CERN:PIC": 2}
    assert links(read(books.book(MATRIX, merged=["D1:E1"]))) == MEANT
    assert cells_of(problems(books.book(MATRIX | {"E2": 1}, merged=["D1:E1"]))) == {"E1"}


@pytest.mark.parametrize("hide", [{"hidden_rows": [3]}, {"hidden_columns": [2]}])
def test_what_is_hidden_needs_an_option(hide: Mapping[str, list[int]]) -> None:
    data = books.book(MATRIX, **hide)  # type: ignore[arg-type]
    (problem,) = problems(data)
    assert cells_of([problem]) == {"A3" if "hidden_rows" in hide else "B1"}
    assert "--hidden" in problem.hint
    assert links(read(data, hidden="read")) == MEANT
    dropped = "RAL:" if "hidden_rows" in hide else ":KIT"
    kept = {link: rate for link, rate in MEANT.items() if dropped not in link}
    assert links(read(data, hidden="ignore")) == kept
    assert (
        links(read(data, ignore_rows=("ral",), ignore_columns=("B",) if dropped == ":KIT" else ())).items()
        <= kept.items()
    )


def test_a_workbook_of_people_imports_with_the_options_that_its_errors_name() -> None:
    """A title, sums, a column of names, and a sentence at the end: each error names the next option."""
    data, options = books.book(TITLED, merged=["A1:E1"]), dict[str, object]()
    (problem,) = problems(data)
    assert cells_of([problem]) == {"A1"}
    assert "--header-row 3 --unit Gb/s" in problem.hint
    options = {"unit": "Gb/s", "header_row": 3}
    (column, row) = problems(data, **options)
    assert cells_of([column]) == {"E3"}
    assert "--ignore-column 'requested by'" in column.hint
    assert cells_of([row]) == {"A6"}
    assert "--ignore-row 6" in row.hint
    found = read(data, **options, ignore_columns=("requested by",), ignore_rows=("6",))  # type: ignore[arg-type]
    assert links(found) == {"CERN:KIT": 10, "CERN:FNAL": 40}
    assert len(found.remarks) == 2  # both sums, which are compared
    for value in (51, Formula("SUM(B4:C4)")):
        wrong = books.book(TITLED | {"D4": value}, merged=["A1:E1"])
        (problem,) = problems(wrong, **options, ignore_columns=("E",), ignore_rows=("6",))
        assert cells_of([problem]) == {"D4"}
        assert "--ignore-column egress" in problem.hint


def test_other_sheets_notes_and_names_without_links_are_remarked() -> None:
    cells = MATRIX | {"A4": "IN2P3"}
    remarks = " ".join(read(books.book(cells, others=["Day 2", "Day 3"], notes=["C2"])).remarks)
    for name in ("'Day 2', 'Day 3'", "C2", "IN2P3"):
        assert name in remarks


@pytest.mark.parametrize(
    "layout", [{"ignore_columns": ("notes",)}, {"ignore_rows": ("9",)}, {"header_row": 9}, {"sheet": "Day 2"}]
)
def test_an_option_that_matches_nothing_is_an_error(layout: Mapping[str, object]) -> None:
    assert problems(books.book(MATRIX), **layout)


@pytest.mark.parametrize(
    "data",
    [
        workbooks.MAGIC + b" and nothing",
        workbooks.OLD,
        books.packed({"content.xml": "<a/>"}),
        books.book(MATRIX)[:400],
        books.book(MATRIX, parts={"xl/workbook.xml": "<workbook"}),
        books.book(MATRIX, parts={SHEET: "<!DOCTYPE x [<!ENTITY a 'b'>]><worksheet>&a;</worksheet>"}),
        books.book(
            MATRIX,
            parts={SHEET: '<worksheet><sheetData><row r="x"/></sheetData></worksheet>'},
        ),
        books.book({"A1": 1, "A1048576": 1, "XFD1": 1}),
        books.book(MATRIX, parts={SHEET: f"<worksheet>{'<row/>' * 610_000}</worksheet>"}),
        books.book(
            MATRIX, parts={SHEET: f"""<worksheet>{'<col min="1" max="16384" hidden="1"/>' * 2}</worksheet>"""}
        ),
    ],
    ids=range(10),
)
def test_what_is_no_workbook_is_one_problem(data: bytes) -> None:
    """Also one whose cells reach to the last row and column, or that wants entities."""
    (problem,) = problems(data)
    assert problem.line == 0


def test_many_sheets_cost_no_more_than_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the limit are refused unread, and the elements and bytes of all sheets together are bounded."""
    parts: list[str] = []
    unpack = zipfile.ZipFile.read

    def count(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> bytes:
        parts.append(part.filename)
        return unpack(archive, part)

    monkeypatch.setattr(zipfile.ZipFile, "read", count)
    with pytest.raises(WrongError):
        workbooks.read_all(books.book(MATRIX, others=[f"S{n}" for n in range(workbooks.MOST_SHEETS)]), "many.xlsx")
    assert not [part for part in parts if "worksheets" in part]
    empty = {f"xl/worksheets/sheet{n}.xml": f"<worksheet>{'<row/>' * 1000}</worksheet>" for n in range(2, 41)}
    data = books.book(MATRIX, others=[f"S{n}" for n in range(39)], parts=empty)
    assert len(workbooks.read_all(data, "empty.xlsx")) == 1
    for limit, value in (("MOST_CELLS", 400), ("LARGEST", 8000)):
        parts.clear()
        with monkeypatch.context() as limited:
            limited.setattr(workbooks, limit, value)
            with pytest.raises(WrongError):
                workbooks.read(data, "empty.xlsx")
        assert len([part for part in parts if "worksheets" in part]) < 30


# --------------------------------------------------------------------------- properties

NAMES = st.lists(st.text(string.ascii_uppercase, min_size=3, max_size=5), min_size=4, max_size=7, unique=True)
NUMBERS = st.integers(1, 400).map(lambda quarters: quarters / 4)


@st.composite
def matrices(draw: st.DrawFn) -> dict[str, Value]:
    """A matrix with a rate for each pair, sometimes with a column of sums."""
    names = draw(NAMES)
    sources, destinations = names[:2], names[2:]
    cells: dict[str, Value] = {"A1": "from\\to [Gb/s]"}
    sums = draw(st.booleans())
    for row, source in enumerate(sources, start=2):
        cells[f"A{row}"], total = source, 0.0
        for column, destination in zip("BCDEF", destinations, strict=False):
            cells[f"{column}1"], cells[f"{column}{row}"] = destination, (number := draw(NUMBERS))
            total += number
        if sums:
            cells["G1"], cells[f"G{row}"] = "Sum", Formula("SUM()", total)
    return cells


@pytest.mark.parametrize("place", ["A1", "D1", "A4"])
def test_heads_are_checked_as_rates_are(place: str) -> None:
    cells: dict[str, Value] = {
        "A1": "Gb/s",
        "B1": "B",
        "C1": "C",
        "D1": "Sum",
        "A2": "A",
        "B2": 1,
        "C2": 2,
        "D2": 3,
    }
    cells |= {"A4": "Sum", "B4": 1, "C4": 2}
    assert links(read(books.book(cells))) == {"A:B": 1, "A:C": 2}
    assert cells_of(problems(books.book(cells, styles={place: "struck"}))) == {place}


@settings(max_examples=60)
@given(matrices(), st.data())
def test_every_cell_of_a_workbook_counts_or_is_reported(cells: dict[str, Value], data: st.DataObject) -> None:
    """Change one cell, or how it is shown: the links differ, or a problem has its place."""
    before = read(books.book(cells))
    place = data.draw(st.sampled_from(sorted(cells)))
    right = f"{chr(ord(place[0]) + 1)}{place[1:]}"
    kinds = {
        "value": {"cells": cells | {place: 777.5}},
        "formula": {"cells": cells | {place: Formula("1+1")}},
        "percent": {"cells": cells, "styles": {place: "percent"}},
        "struck": {"cells": cells, "styles": {place: "struck"}},
        "row": {"cells": cells, "hidden_rows": [int(place[1:])]},
        "column": {"cells": cells, "hidden_columns": [workbooks.column_number(place[0])]},
        "merged": {"cells": {k: v for k, v in cells.items() if k != right}, "merged": [f"{place}:{right}"]},
    }
    kind = data.draw(st.sampled_from(sorted(kinds)))
    after, found = outcome(books.book(**kinds[kind]))  # type: ignore[arg-type]
    if after is None:
        near = {"row": place[1:], "column": place[0], "merged": right}.get(kind, place)
        assert kind == "value" or any(near in cell for cell in cells_of(found))
        return
    unchanged = (links(after), after.remarks) == (links(before), before.remarks)
    harmless = (kind == "percent" and isinstance(cells[place], str)) or (kind == "merged" and right not in cells)
    assert unchanged == harmless
    assert kind in {"value", "percent", "merged"}
