"""How a campaign stands, from its ledger alone: what `status` prints, and `watch` and `link` show of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from dc_inject.ledger import LedgerView, Reader
from dc_inject.ledger.lock import lock_file
from dc_inject.model import Cycle, State, units
from dc_inject.summary import first_lines, tape, why
from dc_inject.summary.closing import about, list_goals
from dc_inject.summary.days import list_days
from dc_inject.summary.marks import TROUBLES

SIGNAL, TROUBLE = ("signal", "subject", "since", "why"), ("what", "of", "since", "why")  # keys
CHANGES = 10  # how many of the last ones are shown
NOTES = 5


def decided(view: LedgerView, cycles: int) -> list[dict[str, Any]]:
    """Return what control decided or advised in the last cycles; the keys are an interface, as in `standing`."""
    # Cycles of draining and after the menus are not planned, so the last cycles may have no decision.
    planned = view.last_planned()
    return [] if planned is None else [
        {
            "cycle": units.format_time(decision.cycle.start),
            **decision.key.names(),
            "mode": decision.mode,
            "hold": decision.hold,
            "target": decision.target,
            "held": dict(decision.held),
            "numbers": dict(decision.numbers),
        }
        for decision in view.decisions(planned.start - (cycles - 1) * planned.length)
    ]  # fmt: skip


def shown_moment(view: LedgerView, now: datetime) -> datetime:
    """Return the moment of which views show how it stands: now, or of a simulation the end of its last cycle."""
    last = view.last_closed() if view.simulated_in is not None else None
    return now if last is None else last.end


def standing(campaign: str, view: LedgerView, now: datetime) -> dict[str, Any]:
    """Return how a campaign stands now; the keys are an interface, described in docs/reference/status.md."""
    cycle = view.last_cycle()
    missing = [(s.name, s.subject, units.format_time(s.at), s.why) for s in view.signals() if s.value is None]
    values = {
        "campaign": campaign,
        "simulated_in": view.simulated_in,
        "ledger": str(view.path),
        "at": units.format_time(now),
        "injector": _injector(view),
        "cycle": None if cycle is None else {
            "start": units.format_time(cycle.start),
            "end": units.format_time(cycle.end),
            "planned": view.is_planned(cycle),
            "closed": cycle not in view.unclosed(),
            "joined": units.format_time_or_none(joined(view, cycle)),
        },
        "day": list_days(view).current(now),
        "over_since": units.format_time_or_none(list_days(view).ended_at(now)),
        "scale": scales[-1][1] if (scales := view.scales()) else 1.0,
        "rows": rows(view),
        "tape": tape.rows(view),
        "held_before": [] if cycle is None else [
            row for row in _rows(view, Cycle(cycle.start - cycle.length, cycle.length)) if row["held"]
        ],
        "control": decided(view, 1),
        "rules": {state.value: view.state_counts().get(state, (0, 0))[0] for state in State},
        "pauses": [_timed(asdict(pause)) for pause in view.pauses()],
        "overrides": [
            _timed({**asdict(override), "what": override.words}) for override in view.overrides()
        ],
        "signals_missing": [dict(zip(SIGNAL, s, strict=True)) for s in missing if s[0] not in TROUBLES],
        "troubles": [dict(zip(TROUBLE, s, strict=True)) for s in missing if s[0] in TROUBLES],
        "set_aside": len(view.quarantined(now)),
        "rights": [
            _timed({**asdict(identity), "credentials_left": until and round((until - now).total_seconds())})
            for identity in view.identities()
            for until in [identity.credentials_until]
        ],
        "changes": [_timed(asdict(change)) for change in view.changes(CHANGES)],
        "notes": [{"at": units.format_time(at), "text": text} for at, text in view.notes(NOTES)],
    }  # fmt: skip
    return {**values, **first_lines.lines(view, values, now)}


def group_missing(signals: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return missing signals as a row for each reason, with the first subject, and how many more there are."""
    ordered = sorted(signals, key=itemgetter("signal", "why", "since"))
    groups = [list(some) for _, some in groupby(ordered, itemgetter("signal", "why"))]
    return [{**some[0], "subject": units.some((one["subject"] for one in some), 1)} for some in groups]


def rows(view: Reader) -> list[dict[str, Any]]:
    """Return the rows of the last cycle, a link each."""
    cycle = view.last_cycle()
    return [] if cycle is None else _rows(view, cycle)


def _rows(view: Reader, cycle: Cycle) -> list[dict[str, Any]]:
    goals, days = list_goals(view), list_days(view)
    begin = max(joined(view, cycle) or cycle.start, days.begun)
    end = min(cycle.end, max((end for *_, end in days.menus), default=cycle.end))
    seconds = (end - begin if begin < end else cycle.length).total_seconds()
    return [
        {
            **row.key.names(),
            "target": row.due / seconds,
            **{name: getattr(row, name) for name in ("due", "budget", "injected")},
            "moved": about(row.moved, row.estimated),
            "moved_estimated": row.estimated,
            **{name: getattr(row, name) for name in ("forgiven", "rules", "pool_items", "pool_bytes")},
            **why.of_cycle(row.held),
            "goal": goals.get(row.key, {}),
        }
        for row in view.rows(cycle=cycle)
    ]


def joined(view: Reader, cycle: Cycle) -> datetime | None:
    """Return since when a cycle is due anything, where the campaign began in the middle of it."""
    return view.since if view.since is not None and cycle.start < view.since < cycle.end else None


def explain_late_start(since: str) -> str:
    """Return for the first cycle why less is due than its rate times its length."""
    return f"begun late: due counts from {since} on"


def _injector(view: LedgerView) -> dict[str, Any] | None:
    who = view.holder()
    if who is None:
        return None
    # A lock is written once, by whoever takes it; of shards the last one counts.
    since = max(lock_file(file).stat().st_mtime for file in view.files if lock_file(file).exists())
    return {"who": who, "since": units.format_time(datetime.fromtimestamp(since, UTC))}


def _timed(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: units.format_time(v) if isinstance(v, datetime) else v for k, v in values.items()}
