"""Spreadsheets (.xlsx) that are written: sheets of texts, numbers, and formulas of our own.

The format is SpreadsheetML, ECMA-376 part 1, in its least form. Texts are inline strings, which no program takes
for formulas. Nothing in a file depends on when it is made.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from dc_inject.model.redaction import visible

_MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_PLACE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = 'xmlns="http://schemas.openxmlformats.org/package/2006/{}"'
_KIND = "application/vnd.openxmlformats-{}+xml"
_PART = f'<Override PartName="/xl/{{}}.xml" ContentType="{_KIND.format("officedocument.spreadsheetml.{}")}"/>'
_RELATED = f'<Relationship Id="{{0}}" Type="{_PLACE}/{{1}}" Target="{{2}}.xml"/>'
_STYLES = (
    "<fonts><font/><font><b/></font></fonts><fills>{0}{0}{1}</fills><borders><border/></borders>"
    '<cellStyleXfs><xf/></cellStyleXfs><cellXfs><xf/><xf fontId="1" applyFont="1"/>{2}</cellXfs>'
    '<cellStyles><cellStyle name="Normal" xfId="0"/></cellStyles>'
)
_NO_FILL = "<fill><patternFill/></fill>"
_FILL = '<fill><patternFill patternType="solid"><fgColor rgb="FF{}"/></patternFill></fill>'
_PERCENT = '<xf numFmtId="10" fillId="{}" applyFill="1" applyNumberFormat="1"/>'


class Value(NamedTuple):
    """What stands in a cell: a text, or a number; one with a fill is a part that is shown in percent.

    A `formula` has the number as its value.
    """

    content: str | float
    fill: str | None = None
    formula: str = ""


def workbook(sheets: Mapping[str, Iterable[Sequence[Value]]], fills: Mapping[str, str]) -> bytes:
    """Return the file; the first row of a sheet has its heads, and `fills` are the RGB of fills by their names."""
    kinds = {"workbook": "sheet.main", "styles": "styles"} | {f"s{n}": "worksheet" for n, _ in enumerate(sheets)}
    types = "".join(_PART.format(*part) for part in kinds.items())
    rels = f'<Default Extension="rels" ContentType="{_KIND.format("package.relationships")}"/>'
    related = "".join(_RELATED.format(name, kind, name) for name, kind in kinds.items() if name != "workbook")
    names = (
        f'<sheet name={quoteattr(name[:31])} sheetId="{n + 1}" r:id="s{n}"/>' for n, name in enumerate(sheets)
    )
    percents = "".join(_PERCENT.format(n) for n, _ in enumerate(fills, start=2))
    styles = _STYLES.format(_NO_FILL, "".join(map(_FILL.format, fills.values())), percents)
    relations = f"Relationships {_PACKAGE.format('relationships')}"
    parts = {
        "[Content_Types].xml": (f"Types {_PACKAGE.format('content-types')}", rels + types),
        "_rels/.rels": (relations, _RELATED.format("w", "officeDocument", "xl/workbook")),
        "xl/_rels/workbook.xml.rels": (relations, related),
        "xl/workbook.xml": (f'workbook {_MAIN} xmlns:r="{_PLACE}"', f"<sheets>{''.join(names)}</sheets>"),
        "xl/styles.xml": (f"styleSheet {_MAIN}", styles),
    }
    for number, rows in enumerate(sheets.values()):
        lines = (f"<row>{''.join(_cell(value, fills, n) for value in row)}</row>" for n, row in enumerate(rows))
        parts[f"xl/s{number}.xml"] = (f"worksheet {_MAIN}", f"<sheetData>{''.join(lines)}</sheetData>")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        for path, (tag, content) in parts.items():
            text = f'<?xml version="1.0" encoding="UTF-8"?>\n<{tag}>{content}</{tag.partition(" ")[0]}>'
            packed.writestr(zipfile.ZipInfo(path), text, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def _cell(value: Value, fills: Iterable[str], row: int) -> str:
    style = f' s="{2 + [*fills].index(value.fill)}"' if value.fill else "" if row else ' s="1"'
    if isinstance(value.content, str):
        text = escape(visible(value.content))
        if not text:
            return f"<c{style}/>"
        return f'<c t="inlineStr"{style}><is><t xml:space="preserve">{text}</t></is></c>'
    formula = f"<f>{escape(value.formula)}</f>" if value.formula else ""
    return f"<c{style}>{formula}<v>{value.content:.12g}</v></c>"
