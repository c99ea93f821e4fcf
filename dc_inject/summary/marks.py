"""What happened in a campaign, in order of time: notes, changes, pauses, outages, and traces of unexpected errors.

They become marks on the axis of a report, and a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from dc_inject.ledger import Reader
from dc_inject.ledger.records import BEGIN, END, INJECTOR, NOTE, RESUME, STOP
from dc_inject.model import overrides, units

MOST = 1000  # changes that become marks, the newest
LASTING = frozenset({"pause", "outage"})  # kinds that have an end
TROUBLES = {  # signals of the engine itself, and how a person reads them
    "arrivals": "nothing arrives {of}",
    "service": "{of} does not work",
    "observation": "{of} does not report how what was injected stands",
    "deletion": "{of} does not delete",
    "credentials": "the credentials for {of} end soon",
    "plan": "the {of} is not planned",
    "menus": "changed menus are not taken up",
    "clock": "the clock of {of} is not followed",
    "clocks": "the clock of this machine differs from that of {of}",
}
_CLOSED = {"readable": "{of} is unavailable for reading", "writable": "{of} is unavailable for writing"}
TRACE = 200  # characters of a note of the program's own

_Mark = tuple[datetime, datetime | None, str, str, str, str]  # since, until, kind, who, what, why


def marks(view: Reader, since: datetime, until: datetime) -> list[dict[str, Any]]:
    """Return what happened in a time; pauses and outages have an end, which is None while they last."""
    chosen = [mark for mark in (*_written(view), *_outages(view)) if since <= mark[0] < until]
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
        elif not change.what.startswith((STOP, RESUME)):  # pauses have their ends
            yield change.at, None, "change", change.who, change.what, change.why
    for at, text in view.notes(MOST):
        lines = text.strip().splitlines()
        yield at, None, "trace", "dc_inject", lines[-1][:TRACE] if lines else "", ""


def _outages(view: Reader) -> Iterator[_Mark]:
    begun: dict[str, tuple[datetime, str]] = {}
    for change in reversed(view.changes(MOST, outages=True)):
        outage = change.what.removeprefix(BEGIN).removeprefix(END)
        if change.what.startswith(BEGIN):
            begun[outage] = change.at, change.why
        elif outage in begun:
            yield _outage(outage, *begun.pop(outage), change.at)
    yield from (_outage(outage, at, why, None) for outage, (at, why) in begun.items())


def _outage(outage: str, at: datetime, why: str, until: datetime | None) -> _Mark:
    name, _, of = outage.partition(" ")
    return at, until, "outage", INJECTOR, {**TROUBLES, **_CLOSED}.get(name, f"{name} {{of}}").format(of=of), why


def _paused(view: Reader, since: datetime, until: datetime) -> Iterator[_Mark]:
    for pause, end in view.pauses_between(since, until):
        shown = overrides.shown(pause.subject, "everything")
        yield pause.since, end, "pause", pause.who, f"paused: {shown}", pause.why
