"""A report as text: Markdown for people, and CSV with a line for each step and link for programs."""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby
from operator import attrgetter, itemgetter

from dc_inject.apps.report.sections import heading, sections, title
from dc_inject.apps.report.tables import NONE, Report, Section, Table
from dc_inject.ledger import Reader
from dc_inject.ledger.series import CycleKind, Period, Sums
from dc_inject.model import FlowKey, units
from dc_inject.model.errors import UsageError
from dc_inject.model.losses import Lost
from dc_inject.model.redaction import no_formula, visible
from dc_inject.summary import figures
from dc_inject.summary.adding import move_made_up_bytes
from dc_inject.summary.criteria import LIGHT
from dc_inject.system import spreadsheets
from dc_inject.system.spreadsheets import Value

HEADS = (
    *("start", "seconds", "scenario", "source", "destination", "service", "due", "injected", "moved"),
    *("moved_estimated", "forgiven", "rules", *Lost._fields, "kind"),
)


def markdown(report: Report, part: str = "") -> str:
    """Return a report, or one part of it, as Markdown, with tables as GitHub has them. Raises UsageError."""
    parts = [f"# {_escaped(title(report))}", _escaped(heading(report))]
    for section in _chosen(sections(report, part=part), part):
        parts += _section(section)
    return "\n\n".join(parts) + "\n"


def table(report: Report, part: str) -> str:
    """Return the table of a part as CSV, with a column for each name. Raises UsageError."""
    (section,) = _chosen(tables(report), part)
    return "".join(
        _row([no_formula(visible(str(value.content))) for value in row]) for row in _values(section.table)
    )


def workbook(report: Report, part: str = "") -> bytes:
    """Return all tables as a spreadsheet, each on its sheet, or that of one part. Raises UsageError."""
    return spreadsheets.workbook({one.name: _values(one.table) for one in _chosen(tables(report), part)}, LIGHT)


def tables(report: Report) -> list[Section]:
    """Return the sections that have a table, with all of its columns."""
    return [section for section in sections(report, whole=True) if section.table is not None]


def _chosen(every: Iterable[Section], part: str) -> list[Section]:
    by_name = {section.name: section for section in every}
    if part and part not in by_name:
        raise UsageError(f"the report has no part {part!r}", f"--part takes one of {', '.join(by_name)}")
    return [by_name[part]] if part else list(by_name.values())


def _values(table: Table | None) -> Iterator[list[Value]]:
    """Yield the heads of a table and its rows: numbers without units, bytes and bytes per second."""
    if table is not None:
        yield [Value(head) for head in table.heads]
        for row in table.rows:
            yield [
                Value(cell.text.removeprefix(NONE) if cell.value is None else cell.value, cell.grade)
                for cell in row
            ]


def lines(view: Reader, chosen: Period, by: str) -> Iterator[str]:
    """Yield the lines of the CSV: what each link got in each step, the cycles of each kind apart.

    Those of a simulation have a column more, with its grid.
    """
    times, _ = figures.cut_time(view, [cycle for cycle, _ in view.cycles(chosen)], by, exact=bool(chosen.excluded))
    grid = [] if view.simulated_in is None else [no_formula(visible(view.simulated_in))]
    yield _row([*HEADS, *("simulated_in" for _ in grid)])
    steps = (chosen, times.fine, times.phase)
    spans = merge(move_made_up_bytes(view.spans(*steps)), view.lost(*steps), key=attrgetter("start"))
    ends = [*times.starts[1:], times.end]
    parts = (
        (number, kind, flow, part)
        for _, of_cycle in groupby(spans, key=attrgetter("start"))
        for number, kind, flow, part in sorted(
            (
                (number, kind, flow, part)
                for start, kind, flow, more in of_cycle
                for number, part in times.divided(start, more)
            ),
            key=itemgetter(0),
        )
    )
    for number, of_step in groupby(parts, key=itemgetter(0)):
        start, seconds = times.starts[number], round((ends[number] - times.starts[number]).total_seconds())
        sums: dict[tuple[CycleKind, FlowKey], Sums] = defaultdict(Sums)
        for _, kind, flow, more in of_step:
            sums[kind, flow] = sums[kind, flow].plus(more)
        for (kind, flow), total in sums.items():
            key = [no_formula(visible(name)) for name in flow.names().values()]
            yield _row([units.format_time(start), seconds, *key, *total, kind.name.lower(), *grid])


def _row(cells: Sequence[object]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()


def _section(section: Section) -> Iterator[str]:
    yield f"## {_escaped(section.title)}"
    if section.name == "method":
        yield "\n".join(f"- {_escaped(words)}" for words in section.words)
    else:
        yield from (_escaped(words) for words in section.words)
    if section.table is not None:
        yield _table(section.table)


def _table(table: Table) -> str:
    line = ("---" if number < table.texts else "---:" for number in range(len(table.heads)))
    rows = ((_escaped(cell.text) for cell in row) for row in table.rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (map(_escaped, table.heads), line, *rows))


def _escaped(text: str) -> str:
    """Return a text that is nothing but text in Markdown: names, reasons and notes come from others."""
    words = " ".join(visible(text).split()).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\|\[\]_*`])", r"\\\1", words)
