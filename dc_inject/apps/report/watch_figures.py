"""What `watch`, and `run` on a terminal, show of a campaign: read from its ledger at one moment.

Nothing is computed again. The first lines, which links are short and what happened are what `status` shows. The
rows since the menus last changed, or of the last hours, are added up by the ledger, as for a report, and their
figures are those of `summary/figures.py`. They are of cycles that are over, so that a ratio is what stands next to
it, moved by due; before the first of them is over, they are of the open one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from dc_inject.ledger import LedgerView, Reader, ledger_files
from dc_inject.ledger.series import CycleKind, Period
from dc_inject.model import EPOCH, Cycle, units
from dc_inject.model.held import format_numbers
from dc_inject.summary import closing, figures, first_lines, why
from dc_inject.summary import standing as standings
from dc_inject.summary.adding import Added, add_up, together
from dc_inject.summary.first_lines import one_line

STEPS = 24  # of a trend, at most
NAMES = ("scenario", "source", "destination", "service")
SHORT = "short"  # the order in which those that are short come first
RISING = (*NAMES, "held", "ratio")  # columns that begin with A, or with the least: the best ratio matters least
Key = tuple[str, ...]  # the values of NAMES
Line = Mapping[str, Any]  # of one link, or of all that have a name in common


@dataclass(frozen=True, slots=True)
class Standing:
    """How a campaign stands at a moment: `status` is what `status --format json` prints.

    Figures of links are of the time from `since` to `until`.
    """

    campaign: str
    at: datetime
    status: Mapping[str, Any]
    since: datetime | None
    until: datetime | None
    links: Sequence[Line]


def read(path: Path, campaign: str, now: datetime, last: timedelta | None = None) -> Standing:
    """Return the status of a campaign, with the sums since its menus changed, or over `last` up to its last cycle.

    Raises LedgerError.
    """
    with LedgerView.open(path) as view, view.snapshot():
        name = ledger_files.campaign_in(view, campaign, path)
        now = standings.shown_moment(view, now)
        standing = standings.standing(name, view, now)
        first, cycle = view.first_cycle(), view.last_cycle()
        since, until, steps = None, None, 0
        sums: dict[Key, Added] = {}
        if first is not None and cycle is not None:
            until = cycle.end if standing["cycle"]["closed"] else cycle.start
            begin = until - last if last else first_lines.changed_at(view, now) or first.start
            period, step = _lately(first, cycle, begin)
            since = max(period.since, view.since or period.since)
            sums, steps = _added(view, period, step)
    rows = {_key(row): row for row in standing["rows"]}
    held = {_key(row): row for row in why.holding_rows(standing["rows"], standing["held_before"])}
    causes = {_key(link): group["cause"] for group in standing["short"] for link in group["links"]}
    links = [
        {
            **dict(zip(NAMES, map(one_line, key), strict=True)),
            **_figures(sums.get(key, Added(0)), steps),
            "target": rows[key]["target"] if key in rows else 0.0,
            **_reason(held.get(key), causes.get(key, "")),
        }
        for key in sorted(rows.keys() | sums.keys())
    ]
    return Standing(campaign=name, at=now, status=standing, since=since, until=until, links=links)


def _key(row: Mapping[str, Any]) -> Key:
    return tuple(row[name] for name in NAMES)


def _reason(row: Mapping[str, Any] | None, cause: str) -> dict[str, Any]:
    """Return why a link is held or short, in words, and whether it is short."""
    why = "" if row is None else one_line(format_numbers(row["numbers"]))
    return {"held": cause or (row["held"] if row else ""), "why": why, SHORT: bool(cause)}


# --------------------------------------------------------------------------- sums of the last hours


def _figures(added: Added, steps: int) -> dict[str, Any]:
    """Return what counts of it, as a report has it, and its trend; what is not over only while nothing else is."""
    is_over = added.has(CycleKind.COUNTED)
    sums = added.total(CycleKind.COUNTED if is_over else CycleKind.OPEN)
    unknown = {} if is_over else {"injected_ratio": None, "ratio": None, "grade": None, "sign": ""}
    moved, due = (added.series(name, CycleKind.COUNTED)[:steps] for name in ("moved", "due"))
    return {
        **figures.figures(sums),
        **unknown,
        "moved": closing.about(sums.moved, sums.estimated),
        "trend": list(zip(moved, due, strict=True)),
        "added": added,
    }


def _lately(first: Cycle, last: Cycle, begin: datetime) -> tuple[Period, timedelta]:
    """Return the time from `begin` on and what is not over, in whole steps, and the length of a step."""
    begin = max(first.start, begin)
    cycles = -(-(last.end - begin) // last.length)
    step = last.length * max(-(-cycles // STEPS), 1)
    return Period(EPOCH + (begin - EPOCH) // step * step, last.end), step


def _added(view: Reader, period: Period, step: timedelta) -> tuple[dict[Key, Added], int]:
    """Return what each link got by step, and how many steps there are up to the last cycle that is over."""
    spans = list(view.spans(period, step))
    over = [span.start for span in spans if span.kind is CycleKind.COUNTED]
    count = -(-(period.until - period.since) // step)
    added = add_up(spans, lambda key: tuple(key.names().values()), count, lambda at: (at - period.since) // step)
    return added, (max(over) - period.since) // step + 1 if over else 0


# --------------------------------------------------------------------------- what a person asks of it


def grouped(links: Iterable[Line], name: str) -> list[Line]:
    """Return a line for each scenario, source or destination (`name`): the sums of its links, and their holds."""
    groups: dict[str, list[Line]] = defaultdict(list)
    for line in links:
        groups[line[name]].append(line)
    lines: list[Line] = []
    for value, members in groups.items():
        holds = Counter(line["held"] for line in members if line[SHORT])
        steps = max(len(line["trend"]) for line in members)
        lines.append(
            {
                **dict.fromkeys(NAMES, ""),
                name: value,
                "links": len(members),
                **_figures(together([line["added"] for line in members]), steps),
                "target": sum(line["target"] for line in members),
                "held": ", ".join(f"{units.grouped(count)} {hold}" for hold, count in holds.most_common()),
                "why": "",
                SHORT: bool(holds),
            }
        )
    return lines


def filter_lines(lines: Iterable[Line], text: str) -> list[Line]:
    """Return the lines whose names or holds contain all words of a text, ignoring case."""
    words = text.lower().split()
    matching = []
    for line in lines:
        shown = " ".join(str(line[name]) for name in (*NAMES, "held")).lower()
        if all(word in shown for word in words):
            matching.append(line)
    return matching


def ordered(lines: Iterable[Line], column: str, *, reverse: bool = False) -> list[Line]:
    """Return lines by a column, numbers from the largest and texts from A on; equal ones by name.

    By `short`, those that are short come first, and among them those that got least of what they were due.
    """

    def names(line: Line) -> Key:
        return tuple(line[name] for name in NAMES)

    def rank(line: Line) -> tuple[Any, ...]:
        if column == SHORT:
            return not line[SHORT], line["injected"] - line["due"]
        if column == "ratio":
            return line["ratio"] is None, line["ratio"]
        if column in (*NAMES, "held"):
            return not line[column], line[column]
        return (-line[column],)

    return sorted(sorted(lines, key=names), key=rank, reverse=reverse)
