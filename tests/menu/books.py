"""Makes small workbooks (.xlsx), with what programs and people leave in them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from dc_inject.apps.menutools.workbooks import position

FORMATS = {
    "": "General",
    "percent": "0%",
    "date": "yyyy-mm-dd",
    "thousands": "0.0,",
    "unit": '0.0" GB/s"',
    "euro": '0" EUR"',
}
STRUCK = "struck"
HIDDEN = ' state="hidden"'
STYLES = [*FORMATS, STRUCK]
_NAMESPACE = (
    'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
)
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


@dataclass(frozen=True)
class Formula:
    """A formula with the value that was saved with it, None for none."""

    text: str
    value: str | float | None = None


Value = str | float | Formula


def book(
    cells: Mapping[str, Value],
    *,
    styles: Mapping[str, str] = {},
    merged: Collection[str] = (),
    hidden_rows: Collection[int] = (),
    hidden_columns: Collection[int] = (),
    others: Collection[str] = (),
    computed: bool = True,
    notes: Collection[str] = (),
    name: str = "Rates",
    parts: Mapping[str, str] = {},
    more: Mapping[str, Mapping[str, Value]] = {},
    hidden: Collection[str] = (),
    since_1904: bool = False,
) -> bytes:
    """Return a workbook with a sheet of these cells, whose keys are such as C4, and `others` with one cell each.

    `more` are sheets, too, whose styles have keys such as Days!C4; `hidden` are sheets. `parts` are put in the
    place of its own.
    """
    rows = _rows(cells, styles, hidden_rows)
    columns = "".join(f'<col min="{n}" max="{n}" width="9" hidden="1"/>' for n in hidden_columns)
    ranges = "".join(f'<mergeCell ref="{each}"/>' for each in merged)
    sheet = (f"<cols>{columns}</cols>" if columns else "") + f"<sheetData>{rows}</sheetData>"
    sheet += f"<mergeCells>{ranges}</mergeCells>" if ranges else ""
    inner = {}
    for title, content in more.items():
        own_styles = {at.removeprefix(f"{title}!"): style for at, style in styles.items()}
        inner[title] = f"<sheetData>{_rows(content, own_styles)}</sheetData>"
    sheets = {name: sheet} | inner | dict.fromkeys(others, "<sheetData><row><c><v>1</v></c></row></sheetData>")
    listed = "".join(
        f'<sheet name={quoteattr(each)} sheetId="{n}" r:id="s{n}"{HIDDEN if each in hidden else ""}/>'
        for n, each in enumerate(sheets, start=1)
    )
    own = {
        "_rels/.rels": _relations({"w": ("officeDocument", "xl/workbook.xml")}),
        "xl/workbook.xml": f'<workbook {_NAMESPACE}><workbookPr date1904="{int(since_1904)}"/>'
        f"<sheets>{listed}</sheets>"
        f'<calcPr fullCalcOnLoad="{int(not computed)}"/></workbook>',
        "xl/_rels/workbook.xml.rels": _relations(
            {"styles": ("styles", "styles.xml")}
            | {f"s{n}": ("worksheet", f"worksheets/sheet{n}.xml") for n in range(1, len(sheets) + 1)}
        ),
        "xl/styles.xml": _styles(),
        "xl/worksheets/_rels/sheet1.xml.rels": _relations(
            {"c": ("comments", "../comments1.xml")} if notes else {}
        ),
        "xl/comments1.xml": f"<comments {_NAMESPACE}><commentList>"
        + "".join(f'<comment ref="{each}"><text><t>if agreed</t></text></comment>' for each in notes)
        + "</commentList></comments>",
    }
    for n, content in enumerate(sheets.values(), start=1):
        own[f"xl/worksheets/sheet{n}.xml"] = f"<worksheet {_NAMESPACE}>{content}</worksheet>"
    return packed(own | dict(parts))


def _rows(cells: Mapping[str, Value], styles: Mapping[str, str], hidden: Collection[int] = ()) -> str:
    by_row: dict[int, list[str]] = {}
    for reference, value in sorted(cells.items(), key=lambda cell: position(cell[0])):
        style = STYLES.index(styles.get(reference, ""))
        by_row.setdefault(position(reference)[0], []).append(_cell(reference, value, style))
    return "".join(
        f'<row r="{row}" hidden="{int(row in hidden)}">{"".join(of)}</row>' for row, of in by_row.items()
    )


def packed(parts: Mapping[str, str]) -> bytes:
    """Return the parts of a workbook as a file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in parts.items():
            archive.writestr(path, text)
    return file.getvalue()


def _cell(reference: str, value: Value, style: int) -> str:
    formula = ""
    saved: str | float | None = value if not isinstance(value, Formula) else value.value
    if isinstance(value, Formula):
        formula = f"<f>{escape(value.text)}</f>"
    kind = "" if not isinstance(saved, str) else ' t="str"' if formula else ' t="inlineStr"'
    if isinstance(saved, str) and not formula:
        inner = f"<is><t>{escape(saved)}</t></is>"
    else:
        inner = formula + ("<v/>" if saved is None else f"<v>{escape(str(saved))}</v>")
    if isinstance(saved, str) and saved.startswith("#"):
        kind, inner = ' t="e"', f"{formula}<v>{saved}</v>"
    return f'<c r="{reference}" s="{style}"{kind}>{inner}</c>'


def _styles() -> str:
    codes = "".join(
        f'<numFmt numFmtId="{n}" formatCode={quoteattr(code)}/>'
        for n, code in enumerate(FORMATS.values(), start=164)
    )
    styles = "".join(f'<xf numFmtId="{n}" fontId="0"/>' for n in range(164, 164 + len(FORMATS)))
    return (
        f"<styleSheet {_NAMESPACE}><numFmts>{codes}</numFmts><fonts><font/><font><strike/></font></fonts>"
        f'<cellXfs>{styles}<xf numFmtId="0" fontId="1"/></cellXfs></styleSheet>'
    )


def _relations(of: Mapping[str, tuple[str, str]]) -> str:
    inner = "".join(
        f'<Relationship Id="{key}" Type="{_RELATIONS}/{kind}" Target="{target}"/>'
        for key, (kind, target) in of.items()
    )
    return f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{inner}</Relationships>'
