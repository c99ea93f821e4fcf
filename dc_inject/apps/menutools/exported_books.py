"""Menus as a workbook: a matrix with sums for each scenario, and a schedule; `menu import --schedule` reads it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TypeAlias

from dc_inject.apps.menutools.schedules import LARGEST_FACTOR
from dc_inject.menu import values
from dc_inject.model import Campaign, Menu, units
from dc_inject.model.errors import UsageError, column_letters
from dc_inject.system import spreadsheets
from dc_inject.system.spreadsheets import Value

Rates: TypeAlias = dict[tuple[str, str], float]  # source and destination -> Gb/s

SCHEDULE = "Schedule"
LONGEST_NAME = 31  # characters of a sheet


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
    rows = [_values("Day", "Date", *sheets, "Total [Gb/s]")]
    for day, menu in sorted(days.items()):
        factors = [parts.get(day, {}).get(name, "") for name in sheets]
        cells = [f"{column_letters(3 + at)}{len(rows) + 1}*'{name}'!{_corner(sheets[name])}"
                 for at, name in enumerate(sheets) if factors[at] != ""]  # fmt: skip
        total = sum(sum(own.values()) for own in _by_scenario(menu).values())
        number = round((menu.start - first) / timedelta(days=1)) + 1
        rows.append([*_values(number, day, *factors), Value(total, formula="+".join(cells))])
    return spreadsheets.workbook({SCHEDULE: rows} | sheets, {}), _left_out(campaign)


def _values(*contents: str | float) -> list[Value]:
    return [Value(content) for content in contents]


def _by_scenario(menu: Menu) -> dict[str, Rates]:
    links: dict[str, Rates] = {}
    for flow in menu.flows:
        own = links.setdefault(flow.scenario, {})
        own[flow.link.ends] = max(own.get(flow.link.ends, 0.0), flow.rate * 8e-9)
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
    rows = [_values("from\\to [Gb/s]", *destinations, "Sum")]
    last = column_letters(1 + len(destinations))
    for source in sources:
        line = [own.get((source, to), "") for to in destinations]
        total = sum(rate for (start, _), rate in own.items() if start == source)
        formula = f"SUM(B{len(rows) + 1}:{last}{len(rows) + 1})"
        rows.append([*_values(source, *line), Value(total, formula=formula)])
    sums = [sum(rate for (_, end), rate in own.items() if end == to) for to in destinations]
    columns = enumerate([*sums, sum(sums)], start=2)
    cells = [(f"{column_letters(n)}2:{column_letters(n)}{len(rows)}", total) for n, total in columns]
    rows.append([Value("Sum"), *(Value(total, formula=f"SUM({span})") for span, total in cells)])
    return rows


def _corner(rows: Sequence[Sequence[Value]]) -> str:
    return f"{column_letters(len(rows[0]))}{len(rows)}"


def _left_out(campaign: Campaign) -> list[str]:
    notes = ["a workbook has links and rates: limits, datasets, sites and all other keys are not in it"]
    other = {
        f.key for m in campaign.menus for f in m.flows if f.shape or f.goal or (f.start, f.end) != (m.start, m.end)
    }
    if other:
        notes.append(f"shapes, goals and windows of {units.counted(len(other), 'links')} are left out, too")
    return notes
