"""Closing a cycle: its rows are written for good, each with its reason; and what is said when we leave."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from dc_inject import units
from dc_inject.engine.desk import Desk
from dc_inject.engine.releasing import Releasing
from dc_inject.ledger import Row
from dc_inject.model import Cycle, Entry, FlowKey, Held, Hold, State

log = logging.getLogger(__name__)

NOUNS = {"rucio": "rules", "fts": "jobs"}  # what a service makes of an injection


class Closing:
    """What happens once per cycle, when it is over."""

    def __init__(self, desk: Desk, releasing: Releasing) -> None:
        """Take what the engine's parts share, and what still waits for its release."""
        self._desk = desk
        self._releasing = releasing

    def close(self, cycle: Cycle, current: Cycle | None, tries: int) -> None:
        """Write the cycle's rows for good, each with the reason why it got less than its due.

        `current` is the cycle that this process works on, `tries` how often it tried in vain to plan it.
        """
        ledger = self._desk.ledger
        rows = ledger.rows(cycle=cycle)
        if cycle == current:
            entries = ledger.entries(cycle=cycle)
            holds = self._why_short(cycle, rows, entries, tries)
            troubled = self._troubled(rows, entries)
        else:
            holds, troubled = {row.key: Held(Hold.NOT_RUNNING, {"since": cycle.name}) for row in rows}, {}
        if cycle == current:
            self._releasing.withdraw(None, "its cycle is over")
        log.info("%s", sentence(cycle, self._write(cycle, holds, troubled)))

    def absent(self, cycles: Sequence[Cycle]) -> None:
        """Write the rows of cycles in which no injector ran, which are open by now, and say so in one line."""
        rows: list[Row] = []
        for cycle in cycles:
            gone = Held(Hold.NOT_RUNNING, {"since": cycle.name})
            known = self._desk.ledger.rows(cycle=cycle)
            rows += self._write(cycle, {row.key: gone for row in known}, {})
        if cycles:
            due = units.format_size(sum(row.due for row in rows))
            span = f"{cycles[0]}" + (f" to {cycles[-1]}" if len(cycles) > 1 else "")
            log.info(
                "no injector ran in %s, %s: due %s (not-running)", units.counted(len(cycles), "cycles"), span, due
            )

    def _write(
        self, cycle: Cycle, holds: Mapping[FlowKey, Held], troubled: Mapping[FlowKey, Held]
    ) -> tuple[Row, ...]:
        """Write the rows of a cycle for good; return them as they are then."""
        ledger, now = self._desk.ledger, self._desk.clock.now()
        ledger.close_cycle(cycle, now, holds, troubled)
        rows = ledger.rows(cycle=cycle)
        self._desk.tell("cycle-closed", cycle=cycle, rows=rows, seconds=(now - cycle.end).total_seconds())
        return rows

    def _why_short(
        self, cycle: Cycle, rows: Sequence[Row], entries: Iterable[Entry], tries: int
    ) -> dict[FlowKey, Held]:
        """Return a reason for each row, if it got less than its due and was not held when it was planned."""
        planned = self._desk.ledger.is_planned(cycle)
        waiting: dict[FlowKey, int] = defaultdict(int)
        failed: dict[FlowKey, int] = defaultdict(int)
        for entry in entries:
            failed[entry.injection.flow] += entry.failed
            if entry.state is State.CALLED:
                waiting[entry.injection.flow] += entry.injection.item.bytes
        reasons = {}
        for row in rows:
            key, broken = row.key, self._desk.broken.get(row.key.link.through)
            if broken is not None:
                reasons[key] = Held(Hold(broken.hold), {"message": broken.message[:200]})
            elif not planned:
                reasons[key] = Held(Hold.API_ERRORS, {"planned": "no", "tries": tries})
            elif known := self._desk.troubles.get(key):
                reasons[key] = known
            elif waiting[key]:
                reasons[key] = Held(Hold.API_ERRORS, {"unanswered": waiting[key]})
            elif failed[key]:
                reasons[key] = Held(Hold.FAILING, {"failed_bytes": failed[key], "injected": row.injected})
            else:
                reasons[key] = Held(Hold.GRAIN, {"budget": row.budget, "injected": row.injected})
        return reasons

    def _troubled(self, rows: Iterable[Row], entries: Iterable[Entry]) -> dict[FlowKey, Held]:
        """Return the troubles that cost a flow more than what planning held back: those lead in its row."""
        lost: dict[FlowKey, int] = defaultdict(int)
        for entry in entries:
            if entry.accepted_at is None and entry.state is not State.REFUSED:
                lost[entry.injection.flow] += entry.injection.item.bytes
        return {
            row.key: held
            for row in rows
            if (held := self._desk.troubles.get(row.key))
            # What was never intended, since nobody answered the last look, is missing from the budget.
            and 2 * max(lost[row.key], row.budget - row.injected) >= row.due - row.injected
        }


def sentence(cycle: Cycle, rows: Sequence[Row]) -> str:
    """Say in one sentence what a cycle did."""
    due, injected = sum(row.due for row in rows), sum(row.injected for row in rows)
    moved = sum(row.moved for row in rows)
    made = {noun: sum(row.rules for row in rows if row.key.link.through == s) for s, noun in NOUNS.items()}
    what = " and ".join(units.counted(count, noun) for noun, count in made.items() if count) or "nothing"
    held: dict[str, int] = {}
    for row in rows:
        if row.held is not None:
            held[row.held.hold] = held.get(row.held.hold, 0) + 1
    reasons = ", ".join(f"{count} {hold}" for hold, count in sorted(held.items()))
    return (
        f"cycle {cycle}: {units.counted(len(rows), 'links')}, due {units.format_size(due)}, "
        f"injected {units.format_size(injected)} in {what}, moved {units.format_size(moved)}"
        + (f"; held: {reasons}" if reasons else "")
    )


def ours_to_delete(desk: Desk, entries: Iterable[Entry]) -> list[Entry]:
    """Return those whose bytes no service deletes."""
    backends = desk.backends
    return [e for e in entries if (s := e.injection.link.through) in backends and not backends[s].cleans_up]


def say_what_stays(desk: Desk) -> None:
    """Say which files of ours nobody will delete now that we leave."""
    left = [entry.injection for entry in ours_to_delete(desk, desk.ledger.entries(State.ENDED))]
    if not left:
        return
    places = sorted({injection.link.destination for injection in left})
    log.warning(
        "files of %s are not known to be gone from %s%s: the next run, or `dc-inject end %s`, deletes them",
        units.counted(len(left), "jobs"),
        ", ".join(places[:3]),
        f" and {len(places) - 3} more" if len(places) > 3 else "",
        desk.campaign_name,
    )
