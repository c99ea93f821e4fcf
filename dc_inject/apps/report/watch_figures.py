"""What `watch`, and `run` on a terminal, show of a campaign: read from its ledger at one moment.

Nothing is computed anew. How it stands is what `status` says, and totals are those of the closing table. The rows
of the last hours are added up by the ledger, as for a report, and their figures are those of `summary/figures.py`.
They are of cycles that are over, so that a ratio is what stands beside it, moved by due; a cycle that is not over
is due in full from its beginning, and has sums of its own. Before the first cycle is over there is only that.

A link is *short* when it is held in the current cycle, or was in the one before, for a reason that somebody may
have to do something about.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from dc_inject.ledger import LedgerView, MenuInForce, ledger_files
from dc_inject.ledger.reading import Reader
from dc_inject.ledger.records import NOTE
from dc_inject.ledger.series import CycleKind, Period
from dc_inject.model import EPOCH, Cycle, units
from dc_inject.model.holds import format_numbers
from dc_inject.model.redaction import visible
from dc_inject.summary import active_overrides, closing, figures, why
from dc_inject.summary import standing as standings
from dc_inject.summary.adding import Added, add_up, together

STEPS = 24  # of a trend, at most
NAMES = ("scenario", "source", "destination", "service")
SHORT = "short"  # the order in which those that are short come first
RISING = (*NAMES, "held", "ratio")  # columns that begin with A, or with the least: nobody looks for the best ratio
Key = tuple[str, ...]  # the values of NAMES
Line = Mapping[str, Any]  # of one link, or of all that have a name in common


@dataclass(frozen=True, slots=True)
class Standing:
    """How a campaign stands at a moment.

    `status` is what `status --format json` prints, and `total` the last line of its summary. The last hours are
    from `since` to `until`; `lately` has their sums, and `open` those of a cycle that is not over. `windows` are
    those of the menus in force.
    """

    campaign: str
    at: datetime
    status: Mapping[str, Any]
    total: Mapping[str, Any]
    cycle: Cycle | None
    windows: Sequence[tuple[datetime, datetime]]
    since: datetime | None
    until: datetime | None
    lately: Line
    open: Line | None
    links: Sequence[Line]

    @property
    def short(self) -> list[Line]:
        """The links that are short, those that miss most first."""
        return [line for line in ordered(self.links, SHORT) if line[SHORT]]

    @property
    def shortfalls(self) -> Counter[str]:
        """How many links are short, by their hold."""
        return Counter(line["held"] for line in self.links if line[SHORT])

    def is_in_force(self, now: datetime) -> bool:
        """Return whether a menu is in force, so that an injector should be running."""
        return any(start <= now < end for start, end in self.windows)

    def events(self, most: int) -> list[str]:
        """Return what people changed and noted last, and errors that nobody expected, the newest first."""
        changes = [(change["at"], _changed(change)) for change in self.status["changes"]]
        traces = [
            (note["at"], f"dc_inject: {note['text'].strip().rpartition(chr(10))[2]}")
            for note in self.status["notes"]
        ]
        latest = sorted((*changes, *traces), reverse=True)[:most]
        return [f"{at[5:10]} {at[11:19]}Z {one_line(text)}" for at, text in latest]


def current_window(
    windows: Sequence[tuple[datetime, datetime]], now: datetime
) -> tuple[datetime, datetime] | None:
    """Return the time of the menus that are in force now, else of the next ones, else of the last ones."""
    if open_ := [window for window in windows if window[0] <= now < window[1]]:
        return min(start for start, _ in open_), max(end for _, end in open_)
    later = [window for window in windows if window[0] > now]
    return min(later) if later else max(windows, key=lambda window: window[1], default=None)


def one_line(text: str) -> str:
    """Return a text that is one line of a terminal and moves no cursor, whoever wrote it."""
    return " ".join(visible(text).split())


def _changed(change: Mapping[str, str]) -> str:
    if change["what"] == NOTE:
        return f"{change['who']}: {change['why']}"
    return f"{change['who']}: {change['what']}" + (f" ({change['why']})" if change["why"] else "")


def read(path: Path, campaign: str, now: datetime, last: timedelta) -> Standing:
    """Return the status of a campaign, with the sums over `last` up to the end of its last cycle.

    Raises LedgerError.
    """
    with LedgerView.open(path) as view, view.snapshot():
        name = ledger_files.campaign_in(view, campaign, path)
        standing = standings.standing(name, view, now)
        total = closing.totals(name, view)["total"]
        menus, first, cycle = view.menus_in_force(), view.first_cycle(), view.last_cycle()
        since, until, steps = None, None, 0
        sums: dict[Key, Added] = {}
        if first is not None and cycle is not None:
            until = cycle.end if standing["cycle"]["closed"] else cycle.start
            period, step = _lately(first, cycle, until, last)
            since = max(period.since, view.since or period.since)
            sums, steps = _added(view, period, step)
    rows = {_key(row): row for row in standing["rows"]}
    held = {_key(row): row for row in why.holding_rows(standing["rows"], standing["held_before"])}
    links = [
        {
            **dict(zip(NAMES, map(one_line, key), strict=True)),
            **_figures(sums.get(key, Added(0)), steps),
            "target": rows[key]["target"] if key in rows else 0.0,
            **_reason(held.get(key)),
        }
        for key in sorted(rows.keys() | sums.keys())
    ]
    everything = together(sums.values())
    return Standing(
        campaign=name,
        at=now,
        status=standing,
        total=total,
        cycle=cycle,
        windows=_windows(menus),
        since=since,
        until=until,
        lately=_figures(everything, steps),
        open=_open(everything),
        links=links,
    )


@lru_cache(maxsize=4)
def _windows(menus: tuple[MenuInForce, ...]) -> list[tuple[datetime, datetime]]:
    return active_overrides.windows(menus)


def _key(row: Mapping[str, Any]) -> Key:
    return tuple(row[name] for name in NAMES)


def _reason(row: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return why a link is held, in words, and whether somebody may have to do something."""
    if row is None:
        return {"held": "", "why": "", SHORT: False}
    return {"held": row["held"], "why": one_line(format_numbers(row["numbers"])), SHORT: not row["harmless"]}


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


def _open(added: Added) -> Line | None:
    """Return the sums of what is not over, if there is such a cycle."""
    sums = added.total(CycleKind.OPEN)
    fields = {**sums._asdict(), "moved": closing.about(sums.moved, sums.estimated)}
    return fields if added.has(CycleKind.OPEN) else None


def _lately(first: Cycle, last: Cycle, until: datetime, hours: timedelta) -> tuple[Period, timedelta]:
    """Return the last hours before `until` and what is not over, in whole steps, and the length of a step."""
    begin = max(first.start, until - hours)
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


def filtered(lines: Iterable[Line], text: str) -> list[Line]:
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

    def place(line: Line) -> tuple[Any, ...]:
        if column == SHORT:
            return not line[SHORT], line["injected"] - line["due"]
        if column == "ratio":
            return line["ratio"] is None, line["ratio"]
        if column in (*NAMES, "held"):
            return not line[column], line[column]
        return (-line[column],)

    return sorted(sorted(lines, key=names), key=place, reverse=reverse)
