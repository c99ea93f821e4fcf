"""What happened in a campaign, in order of time: notes, changes, pauses, and traces of unexpected errors.

They become marks on the axis of a report, and a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from dc_inject.ledger.reading import Reader
from dc_inject.ledger.records import NOTE
from dc_inject.model import overrides, units

MOST = 1000  # changes that become marks, the newest
TRACE = 200  # characters of a note of the program's own

_Mark = tuple[datetime, datetime | None, str, str, str, str]  # since, until, kind, who, what, why


def marks(view: Reader, since: datetime, until: datetime) -> list[dict[str, Any]]:
    """Return what happened in a time; only pauses have an end, which is None while they last."""
    chosen = [mark for mark in _written(view) if since <= mark[0] < until]
    chosen += _paused(view, since, until)
    names = ("at", "until", "kind", "who", "what", "why")
    return [dict(zip(names, mark, strict=True)) for mark in sorted(chosen, key=lambda mark: mark[0])]


def scales(view: Reader, since: datetime, until: datetime) -> list[dict[str, Any]]:
    """Return the factors by which runs multiplied all rates in a period, and since when; none if always 1."""
    changes = view.scales()
    in_force = [(at, scale) for at, scale in changes if at <= since][-1:]
    in_force += [(at, scale) for at, scale in changes if since < at < until]
    if all(scale == 1 for _, scale in in_force):
        return []
    return [{"at": units.format_time(at), "scale": scale} for at, scale in in_force]


def _written(view: Reader) -> Iterator[_Mark]:
    for change in view.changes(MOST):
        if change.what == NOTE:
            yield change.at, None, "note", change.who, change.why, ""
        elif not change.what.startswith(("stop ", "resume ")):  # pauses have their ends
            yield change.at, None, "change", change.who, change.what, change.why
    for at, text in view.notes(MOST):
        lines = text.strip().splitlines()
        yield at, None, "trace", "dc_inject", lines[-1][:TRACE] if lines else "", ""


def _paused(view: Reader, since: datetime, until: datetime) -> Iterator[_Mark]:
    for pause, end in view.pauses_between(since, until):
        shown = overrides.shown(pause.subject, "everything")
        yield pause.since, end, "pause", pause.who, f"paused: {shown}", pause.why
