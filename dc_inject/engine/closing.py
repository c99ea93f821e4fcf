"""Closing a cycle: its rows are written for good, each with the reason why it got less than its due."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from dc_inject.engine.context import EngineContext
from dc_inject.engine.submitting import Submitting
from dc_inject.ledger import Row
from dc_inject.model import Cycle, Entry, FlowKey, Held, Hold, State, transitions, units
from dc_inject.model.events import CycleClosed
from dc_inject.model.groups import summed
from dc_inject.model.holds import Trait
from dc_inject.model.items import units_of
from dc_inject.model.services import DEFAULT, SERVICES, injections

log = logging.getLogger(__name__)

ARRIVALS = "arrivals"  # the signal that is missing while nothing arrives anywhere
END_OF_RUN = "the end of the run has come"  # why intents are withdrawn then


class Closing:
    """What happens once per cycle, when it is over."""

    def __init__(self, context: EngineContext, submitting: Submitting) -> None:
        """Take what the engine's parts share, and what still waits for its release."""
        self._context = context
        self._submitting = submitting

    def close(self, cycle: Cycle, current: Cycle | None, tries: int) -> None:
        """Write the cycle's rows for good, each with the reason why it got less than its due.

        `current` is the cycle that this process works on, `tries` how often it tried in vain to plan it.
        """
        ledger = self._context.ledger
        if cycle == current:
            self._submitting.withdraw(self._context.refused.flows, "its service refuses this link")
        rows = ledger.rows(cycle=cycle)
        if cycle == current:
            entries = ledger.entries(cycle=cycle)
            troubles = self._troubles(rows, entries)
            holds = self._why_short(cycle, rows, entries, troubles, tries)
            troubled = _leading(rows, entries, troubles)
        else:
            holds, troubled = {row.key: Held(Hold.NOT_RUNNING, {"since": cycle.name}) for row in rows}, {}
        if cycle == current:
            failed = {
                flow for flow, held in self._context.troubles.items() if held.hold in {Hold.API_ERRORS, Hold.LOCAL}
            }
            self._submitting.withdraw(failed, "its service did not answer until its cycle was over")
            waited = set(self._submitting.without_room)  # not for want of time, which planning would believe
            self._submitting.withdraw(waited, "there was no room at its destination until its cycle was over")
            self._submitting.withdraw(set(self._submitting.withheld), transitions.WITHHELD)
            self._submitting.withdraw(None, transitions.OVER)
        self._write(cycle, holds, troubled)
        if log.isEnabledFor(logging.INFO):  # a simulation does not log it
            written = ledger.rows(cycle=cycle)
            log.info(
                "%s", sentence(cycle, written), extra={"event": "cycle-closed", "fields": _fields(cycle, written)}
            )

    def absent(self, cycles: Sequence[Cycle], stopping: Callable[[], bool]) -> None:
        """Write the rows of cycles in which no injector ran, which are open by now, and log it in one line.

        Those that are left when it is `stopping` are closed at the next start, as others that were left open.
        """
        rows: list[Row] = []
        for number, cycle in enumerate(cycles):
            if stopping():
                cycles = cycles[:number]
                break
            gone = Held(Hold.NOT_RUNNING, {"since": cycle.name})
            opened = self._context.ledger.rows(cycle=cycle)
            self._write(cycle, {row.key: gone for row in opened}, {})
            rows += opened
        if cycles:
            due = sum(row.due for row in rows)
            span = f"{cycles[0]}" + (f" to {cycles[-1]}" if len(cycles) > 1 else "")
            values = {"since": cycles[0].name, "until": cycles[-1].next.name, "cycles": len(cycles), "due": due}
            log.info(
                "no injector ran in %s, %s: due %s (not-running)",
                units.counted(len(cycles), "cycles"), span, units.format_size(due),
                extra={"event": "not-running", "fields": values},
            )  # fmt: skip

    def _write(self, cycle: Cycle, holds: Mapping[FlowKey, Held], troubled: Mapping[FlowKey, Held]) -> None:
        """Write the rows of a cycle for good."""
        now, ledger = self._context.clock.now(), self._context.ledger
        ledger.close_cycle(cycle, now, holds, troubled)
        silent = ledger.silent_since()
        if silent is not None and all(signal.value is not None for signal in ledger.signals(ARRIVALS)):
            log.warning("nothing has arrived anywhere since %s", f"{silent:%Y-%m-%d %H:%MZ}")
        why = "" if silent is None else f"since {silent:%Y-%m-%d %H:%MZ}"
        ledger.signal(ARRIVALS, "anywhere", "arrive" if silent is None else None, now, why)
        self._context.report(CycleClosed(cycle, (now - cycle.end).total_seconds()))

    def _why_short(
        self,
        cycle: Cycle,
        rows: Sequence[Row],
        entries: Sequence[Entry],
        troubles: Mapping[FlowKey, Held],
        tries: int,
    ) -> dict[FlowKey, Held]:
        """Return a reason for each row, if it got less than its due and was not held when it was planned."""
        planned = self._context.ledger.is_planned(cycle)
        waiting = summed((e.injection.flow, e.injection.item.bytes) for e in entries if e.state is State.CALLED)
        lost = self._lost(rows, entries)
        reasons = {}
        for row in rows:
            key, broken = row.key, self._context.stands_still(row.key.link.through)
            failing = Held(Hold.FAILING, {"failed_bytes": lost.get(key, 0), "injected": row.injected})
            if not row.due and lost.get(key):  # nothing was asked of a service: it is news of earlier cycles
                reasons[key] = failing
            elif broken is not None:
                reasons[key] = Held(Hold(broken.hold), {"message": broken.message[:200]})
            elif row.due and not planned:
                reasons[key] = Held(self._context.outage(key.link.through), {"planned": "no", "tries": tries})
            elif trouble := troubles.get(key):
                reasons[key] = trouble
            elif waiting[key]:
                reasons[key] = Held(Hold.API_ERRORS, {"unanswered": waiting[key]})
            elif lost.get(key):
                reasons[key] = failing
            else:
                reasons[key] = Held(Hold.TOO_COARSE, {"budget": row.budget, "injected": row.injected})
        return reasons

    def _lost(self, rows: Sequence[Row], entries: Iterable[Entry]) -> dict[FlowKey, int]:
        """Return the bytes of each flow that became known in this cycle to have failed, whenever they were given.

        It is what the cycle gave less what its row has, and no more than what ever failed on the flow.
        """
        given = summed((entry.injection.flow, entry.injected + entry.failed) for entry in entries)
        less = {row.key: given[row.key] - row.injected for row in rows if given[row.key] > row.injected}
        if not less:
            return {}
        accounts = self._context.ledger.accounts()
        lost = {key: min(missing, accounts[key].failed) for key, missing in less.items()}
        return {key: size for key, size in lost.items() if size > 0}

    def _troubles(self, rows: Sequence[Row], entries: Sequence[Entry]) -> dict[FlowKey, Held]:
        """Return the troubles of the cycle, and as one of them what there was no time to ask for.

        That leads where it is most of what is missing, unless the service refused the calls that were made.
        """
        unsent: dict[FlowKey, list[int]] = defaultdict(list)
        refused = self._context.refused.flows
        for entry in entries:
            if entry.injection.flow in refused:
                continue
            dropped = entry.state is State.WITHDRAWN and entry.error == END_OF_RUN
            if entry.state is State.INTENDED or (dropped and entry.injection.release <= self._context.clock.now()):
                unsent[entry.injection.flow].append(entry.injection.item.bytes)
        troubles = dict(self._context.troubles)
        chosen = summed((entry.injection.flow, len(units_of(entry.injection.item))) for entry in entries)
        for row in rows:
            sizes, trouble = unsent[row.key], troubles.get(row.key)
            if trouble is not None and trouble.hold is Hold.POOL_DRY:
                left = (row.pool_items or 0) - chosen[row.key] - int(trouble.numbers["times"])
                if left > 0:  # single datasets cannot be used, and the pool has others
                    trouble = troubles[row.key] = Held(Hold.QUARANTINED, {**trouble.numbers, "pool_items": left})
            most = 2 * sum(sizes) >= row.due - row.injected
            if sizes and (trouble is None or (Trait.ITEMS in trouble.hold.traits and most)):
                numbers = {"withdrawn": sum(sizes), "not_sent": len(sizes), "injected": row.injected}
                waited = self._submitting.without_room.get(row.key)
                withheld = self._submitting.withheld.get(row.key, Held(Hold.OVERLOAD))
                lack = withheld if waited is None else waited[0].lacks(sum(sizes), waited[1])
                troubles[row.key] = Held(lack.hold, {**lack.numbers, **numbers})
        return troubles


def _leading(
    rows: Iterable[Row], entries: Iterable[Entry], troubles: Mapping[FlowKey, Held]
) -> dict[FlowKey, Held]:
    """Return the troubles that cost a flow more than what planning held back: those lead in its row.

    So does the wait for room, if nothing went out: to raise a limit would be no help.
    """
    never_made = (e for e in entries if e.accepted_at is None and e.state is not State.REFUSED)
    lost = summed((entry.injection.flow, entry.injection.item.bytes) for entry in never_made)
    return {
        row.key: held
        for row in rows
        if (held := troubles.get(row.key))
        and (
            # What was never intended, since the last check got no answer, is missing from the budget.
            2 * max(lost[row.key], row.budget - row.injected) >= row.due - row.injected
            or (held.hold in (Hold.DESTINATION_FULL, Hold.DELETION_LAG) and row.injected <= 0 < lost[row.key])
        )
    }


def sentence(cycle: Cycle, rows: Sequence[Row]) -> str:
    """Return in one sentence what a cycle did."""
    due, injected = sum(row.due for row in rows), sum(row.injected for row in rows)
    moved = sum(row.moved for row in rows)
    made_by_service = {name: sum(row.rules for row in rows if row.key.link.through == name) for name in SERVICES}
    counts = [units.counted(count, SERVICES[name].injections) for name, count in made_by_service.items() if count]
    named = {row.key.link.through for row in rows} or {DEFAULT.name}
    counts_text = " and ".join(counts) or f"no {injections(named).replace(' and ', ' or ')}"
    # What turned out to be there already, or smaller than listed, was counted in an earlier cycle.
    back = f", took back {units.format_size(-injected)} counted before" if injected < 0 else ""
    moved_text = f"{units.format_size(moved)} ({units.format_rate(moved / cycle.length.total_seconds())})"
    held = Counter(row.held.hold for row in rows if row.held is not None)
    return (
        f"cycle {cycle}: {units.counted(len(rows), 'links')}, due {units.format_size(due)}, "
        f"injected {units.format_size(max(injected, 0))} ({counts_text}){back}, moved {moved_text}"
        + _reasons("held", {hold: count for hold, count in held.items() if not hold.harmless})
        + _reasons("harmless", {hold: count for hold, count in held.items() if hold.harmless})
    )


def _fields(cycle: Cycle, rows: Sequence[Row]) -> dict[str, object]:
    """Return the same as numbers, for programs that read the log."""
    held = Counter(row.held.hold for row in rows if row.held is not None)
    return {
        "cycle": cycle.name,
        "links": len(rows),
        **{name: sum(getattr(row, name) for row in rows) for name in ("due", "injected", "moved", "rules")},
        "held": {hold.value: count for hold, count in sorted(held.items()) if not hold.harmless},
        "harmless": {hold.value: count for hold, count in sorted(held.items()) if hold.harmless},
    }


def _reasons(label: str, held: Mapping[Hold, int]) -> str:
    reasons = ", ".join(f"{count} {hold}" for hold, count in sorted(held.items()))
    return f"; {label}: {reasons}" if reasons else ""
