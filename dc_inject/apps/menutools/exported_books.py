"""Menus as a workbook: a matrix with sums for each scenario, and a schedule; `menu import --schedule` reads it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TypeAlias
from xml.sax.saxutils import escape, quoteattr

from dc_inject.apps.menutools.schedules import LARGEST_FACTOR
from dc_inject.menu import values
from dc_inject.model import Campaign, Menu, units
from dc_inject.model.errors import UsageError, column_letters

Value: TypeAlias = str | float | tuple[str, float]  # a text, a number, or a formula with its value
Rates: TypeAlias = dict[tuple[str, str], float]  # source and destination -> Gb/s

SCHEDULE = "Schedule"
LONGEST_NAME = 31  # characters of a sheet
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"


def workbook(campaign: Campaign) -> tuple[bytes, list[str]]:
    """Return a workbook with a row of its schedule for each menu, and what is not in it.

    A scenario whose rates are not those of another day times a factor has one more sheet. Raises UsageError for
    menus that begin on the same day, and names that are too long for a sheet.
    """
    days: dict[str, Menu] = {}
    for menu in campaign.menus:
        day = f"{menu.start.astimezone(values.zone(menu.timezone)):%Y-%m-%d}"
        if day in days:
            raise UsageError(f"{days[day].name} and {menu.name} both begin on {day}", "give one menu for each day")
        days[day] = menu
    patterns: dict[str, Rates] = {}
    parts: dict[str, dict[str, float]] = {}  # day -> sheet -> factor
    for day in sorted(days):
        for scenario, own in _by_scenario(days[day]).items():
            sheet, factor = _pattern(scenario, own, patterns)
            parts.setdefault(day, {})[sheet] = factor
    sheets = {name: _matrix(pattern) for name, pattern in sorted(patterns.items())}
    if long := next((name for name in sheets if len(name) > LONGEST_NAME or name == SCHEDULE), None):
        raise UsageError(
            f"no sheet can have the name {long}", f"rename the scenario; {LONGEST_NAME} characters at most"
        )
    first = min(menu.start for menu in campaign.menus)
    rows: list[list[Value]] = [["Day", "Date", *sheets, "Total [Gb/s]"]]
    for day, menu in sorted(days.items()):
        factors = [parts.get(day, {}).get(name, "") for name in sheets]
        cells = [f"{column_letters(3 + at)}{len(rows) + 1}*'{name}'!{_corner(sheets[name])}"
                 for at, name in enumerate(sheets) if factors[at] != ""]  # fmt: skip
        total = sum(sum(own.values()) for own in _by_scenario(menu).values())
        number = round((menu.start - first) / timedelta(days=1)) + 1
        rows.append([float(number), day, *factors, ("+".join(cells), total)])
    return _packed({SCHEDULE: rows} | sheets), _left_out(campaign)


def _by_scenario(menu: Menu) -> dict[str, Rates]:
    links: dict[str, Rates] = {}
    for flow in menu.flows:
        own = links.setdefault(flow.scenario, {})
        own[flow.link[:2]] = max(own.get(flow.link[:2], 0.0), flow.rate * 8e-9)
    return links


def _pattern(scenario: str, own: Rates, patterns: dict[str, Rates]) -> tuple[str, float]:
    """Return the sheet whose rates times a factor are these; a new one if there is none."""
    number, name = 1, scenario
    while name in patterns:
        factor = sum(own.values()) / sum(patterns[name].values())
        known = patterns[name]
        if (
            factor <= LARGEST_FACTOR
            and own.keys() == known.keys()
            and all(abs(own[key] - factor * known[key]) < 1e-6 for key in own)
        ):
            return name, float(f"{factor:.12g}")
        number += 1
        name = f"{scenario} ({number})"
    patterns[name] = own
    return name, 1.0


def _matrix(own: Rates) -> list[list[Value]]:
    sources, destinations = (list(dict.fromkeys(link[end] for link in own)) for end in (0, 1))
    rows: list[list[Value]] = [["from\\to [Gb/s]", *destinations, "Sum"]]
    last = column_letters(1 + len(destinations))
    for source in sources:
        line = [own.get((source, to), "") for to in destinations]
        total = sum(rate for (start, _), rate in own.items() if start == source)
        rows.append([source, *line, (f"SUM(B{len(rows) + 1}:{last}{len(rows) + 1})", total)])
    sums = [sum(rate for (_, end), rate in own.items() if end == to) for to in destinations]
    columns = enumerate([*sums, sum(sums)], start=2)
    rows.append(
        ["Sum", *((f"SUM({column_letters(n)}2:{column_letters(n)}{len(rows)})", total) for n, total in columns)]
    )
    return rows


def _corner(rows: Sequence[Sequence[Value]]) -> str:
    return f"{column_letters(len(rows[0]))}{len(rows)}"


def _left_out(campaign: Campaign) -> list[str]:
    said = ["a workbook has links and rates: limits, datasets, sites and all other keys are not in it"]
    other = {
        f.key for m in campaign.menus for f in m.flows if f.shape or f.goal or (f.start, f.end) != (m.start, m.end)
    }
    if other:
        said.append(f"shapes, goals and windows of {units.counted(len(other), 'links')} are left out, too")
    return said


def _packed(sheets: Mapping[str, Sequence[Sequence[Value]]]) -> bytes:
    """Return the file, with as few parts as programs read."""
    ids = range(1, len(sheets) + 1)
    listed = "".join(
        f'<sheet name={quoteattr(s)} sheetId="{n}" r:id="s{n}"/>' for n, s in zip(ids, sheets, strict=True)
    )
    targets = "".join(_relation(f"s{n}", "worksheet", f"sheet{n}.xml") for n in ids)
    types = "".join(f'<Override PartName="/xl/sheet{n}.xml" ContentType="{_TYPE}.worksheet+xml"/>' for n in ids)
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" ContentType='
        '"application/vnd.openxmlformats-package.relationships+xml"/><Override PartName="/xl/workbook.xml" '
        f'ContentType="{_TYPE}.sheet.main+xml"/>{types}</Types>',
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
        f"{_relation('w', 'officeDocument', 'xl/workbook.xml')}</Relationships>",
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_RELATIONS}">'
        f"<sheets>{listed}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">{targets}</Relationships>',
    }
    for n, rows in zip(ids, sheets.values(), strict=True):
        lines = (f"<row>{''.join(map(_cell, row))}</row>" for row in rows)
        parts[f"xl/sheet{n}.xml"] = (
            f'<worksheet xmlns="{_MAIN}"><sheetData>{"".join(lines)}</sheetData></worksheet>'
        )
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in parts.items():
            archive.writestr(zipfile.ZipInfo(path), f'<?xml version="1.0" encoding="UTF-8"?>{text}')
    return file.getvalue()


def _relation(key: str, kind: str, target: str) -> str:
    return f'<Relationship Id="{key}" Type="{_RELATIONS}/{kind}" Target="{target}"/>'


def _cell(value: Value) -> str:
    if isinstance(value, str):
        return f'<c t="inlineStr"><is><t>{escape(value)}</t></is></c>' if value else "<c/>"
    formula, number = value if isinstance(value, tuple) else ("", value)
    return f"<c>{f'<f>{escape(formula)}</f>' if formula else ''}<v>{number:.12g}</v></c>"
