"""The two tables that are shown of a challenge: each day by type of link (or scenario), and by site.

They have the shape of Tables 3.4.7a and b in the final report of DC24 (zenodo 11444180): moved by due, in percent,
with the sign of its colour; DEST and SRC are what went into a site and out of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dc_inject.apps.report.tables import NONE, Cell, Report, Section, Table, day_of
from dc_inject.summary.figures import OTHERS, grade

MOST = 8  # types or sites with columns of their own, so that a table fits on a page
ALL = "all"


def sections(report: Report, most: int = MOST) -> Iterator[Section]:
    """Yield both tables; of more names than `most`, those that were due least share a column."""
    words = ("Moved / due in %; a dash where nothing was due.",)
    noun = "type" if report["types"] else "scenario"
    kinds = {row["name"]: row for row in sorted(report[f"{noun}s"], key=_first_day)}
    by_kind = {title: _cells(report, [kinds[name] for name in names]) for title, names in _columns(kinds, most)}
    yield Section("day-types", f"Days by {noun}", words, _table(report, by_kind))

    suffix = "_site" if report["source_sites"] else ""
    ways = {"DEST": report[f"destination{suffix}s"], "SRC": report[f"source{suffix}s"]}
    due: Counter[str] = Counter()
    for row in (*ways["DEST"], *ways["SRC"]):
        due[row["name"]] += row["due"]
    by_site = {
        f"{title} {way}": _cells(report, [row for row in rows if row["name"] in names])
        for title, names in _columns([name for name, _ in due.most_common()], most)
        for way, rows in ways.items()
    }
    by_site = {head: cells for head, cells in by_site.items() if cells[-1].value is not None}
    of_days = [
        ", ".join(name for name, row in kinds.items() if row["days"][number]["due"])
        for number, _ in enumerate(report["days"])
    ]
    table = _table(report, by_site, f"{noun}s of the day", *of_days, "")
    yield Section("day-sites", "Days by site, as destination and source", words, table)


def _first_day(row: Report) -> int:
    """Return on which day anything was due first: types are in the order in which a challenge has them."""
    return next((number for number, day in enumerate(row["days"]) if day["due"]), len(row["days"]))


def _columns(names: Iterable[str], most: int) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the title of each column and the names in it, the largest first; one that is left has its own."""
    ordered = list(names)
    own = ordered if len(ordered) <= most + 1 else ordered[:most]
    yield from ((name, [name]) for name in own)
    if rest := ordered[len(own) :]:
        yield f"{OTHERS} ({len(rest)})", rest


def _cells(report: Report, rows: Sequence[Report]) -> list[Cell]:
    """Return a cell for each day, and one for all, of rows together."""
    cells = []
    for number in range(len(report["days"]) + 1):
        parts = [[*row["days"], row][number] for row in rows]
        due = sum(part["due"] for part in parts)
        cells.append(_cell(sum(part["moved"] for part in parts) / due if due else None))
    return cells


def _cell(ratio: float | None) -> Cell:
    colour, sign = grade(ratio)
    digits = 1 if ratio is not None and ratio < 0.9995 else 0  # so that eighteen columns fit on a page
    return Cell(NONE) if ratio is None else Cell(f"{100 * ratio:.{digits}f} {sign}", colour, ratio)


def _table(report: Report, columns: Mapping[str, Sequence[Cell]], *texts: str) -> Table:
    """Return a table with a row for each day and one for all; `texts` is a column of words, its head first."""
    total = [_cell(row["ratio"]) for row in (*report["days"], report["counted"])]
    rows = tuple(
        (
            Cell(day),
            *map(Cell, texts[number : number + 1]),
            *(column[number - 1] for column in (*columns.values(), total)),
        )
        for number, day in enumerate([*map(day_of, report["days"]), ALL], start=1)
    )
    return Table(("day", *texts[:1], *columns, ALL), 1 + bool(texts), rows)
