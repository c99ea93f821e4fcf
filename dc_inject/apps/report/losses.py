"""What did not move although its rule or job is over, as people read it: a sentence, tables by link and day."""

from __future__ import annotations

from collections.abc import Iterator

from dc_inject.apps.report.tables import NONE, Cell, Report, Section, Table, day_of, percent, size
from dc_inject.model.units import format_size

TITLE = "Not moved when its rule ended"
WORST = 20  # links in the table of those that lost most
ENDS = {
    "not_moved_failed": "failed",
    "expired": "expired",
    "cancelled": "cancelled",
    "ended_otherwise": "ended otherwise",
}
HEADS = ("injected", "not moved", "of injected", *ENDS.values(), "failed, due again")


def sentence(report: Report) -> str:
    """Return how much of what was injected did not move, and how it ended; empty if nothing is known lost."""
    total = report["totals"]
    if not total["not_moved"]:
        return ""
    words = ENDS | {"not_moved_failed": "failed in all attempts"}
    how = ", ".join(f"{format_size(total[name])} {how}" for name, how in words.items() if total[name])
    lost = size(total["not_moved"], total["not_moved_estimated"]).text
    return f"{lost} ({_part(total)} of what was injected) had not moved when their rules or jobs ended: {how}."


def sections(report: Report) -> Iterator[Section]:
    """Yield the tables of what was lost; nothing if nothing was."""
    if not _is_lost(report["totals"]):
        return
    words = [sentence(report) or "All that was injected has moved or is on its way."]
    if failed := report["totals"]["failed"]:
        words.append(
            f"{format_size(failed)} failed for good: these no longer count as injected, and are due again."
        )
    counted = report["counted"]
    if any(counted[name] != report["totals"][name] for name in ("not_moved", "failed")):
        left_out = f"{format_size(counted['not_moved'])} not moved, {format_size(counted['failed'])} failed"
        words.append(f"Links and scenarios are listed with what counts in averages: {left_out}.")
    links = sorted(filter(_is_lost, report["links"]), key=lambda row: -(row["not_moved"] + row["failed"]))[:WORST]
    names = ("scenario", "source", "destination")
    rows = tuple((*(Cell(row[name]) for name in names), *_amounts(row)) for row in links)
    table = Table((*names, *HEADS), 3, rows) if rows else None
    yield Section("not-moved", TITLE, tuple(words), table)
    for noun, name in (("day", day_of), ("scenario", lambda row: row["name"])):
        every = report[f"{noun}s"]
        lost = tuple((Cell(name(row)), *_amounts(row)) for row in every if _is_lost(row))
        if lost and len(every) > 1:
            yield Section(f"not-moved-{noun}s", f"{TITLE}, by {noun}", (), Table((noun, *HEADS), 1, lost))


def _is_lost(row: Report) -> bool:
    return bool(row["not_moved"] or row["failed"])


def _part(row: Report) -> str:
    return percent(row["not_moved"] / row["injected"] if row["injected"] > 0 else None)


def _amounts(row: Report) -> tuple[Cell, ...]:
    return (
        size(row["injected"]),
        size(row["not_moved"], row["not_moved_estimated"]),
        Cell(_part(row)),
        *(size(row[name]) if row[name] else Cell(NONE, value=0) for name in (*ENDS, "failed")),
    )
