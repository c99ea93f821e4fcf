"""Controlling: what the controller decides of the links in a new cycle, from what the ledger says of them.

The law is `planning/control.py`. Here its signals are read, all from our own ledger, so that they are there for
every account and service; and what it keeps from cycle to cycle is written beside the other signals, with what
it decided and on what that rests. So `status` shows it, also where it only advises.

- Acting, it bounds the budget of a link (hold `backlog`), and its bias adds to what the link is due.
- With `redistribute`, what a link left because it was held in the cycle before goes to the scenario's other
  links that were not: the due is forgiven there and added here, so that the sum is kept.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from dc_inject.engine import failing
from dc_inject.engine.context import EngineContext
from dc_inject.engine.control_records import (
    Before,
    Records,
    decided_anew,
    kept_records,
    known_before,
    new_record,
    reading,
    subject,
)
from dc_inject.ledger import ControlDecision, Ledger, Row, Totals
from dc_inject.ledger.inventory import Reading
from dc_inject.ledger.reading import Reader
from dc_inject.model import Cycle, Flow, FlowKey, Held, Hold, Mode, State, units
from dc_inject.model.holds import Trait
from dc_inject.planning import control, guards
from dc_inject.planning.control import Decision, LinkShare, Past, Signals, Transfers
from dc_inject.planning.guards import GuardReading

log = logging.getLogger(__name__)

TAIL = 0.05  # of what is in flight: how old so many bytes are says nothing of the others
BACK = 8  # cycles of which completions are looked at
MOST_NAMED = 5  # links that are named in the log, a cycle


@dataclass(frozen=True, slots=True)
class Controlled:
    """What the controller says of a cycle.

    `added` are bytes that links are due in it for others that were held; `forgiven` what those are not any more.
    `records` is what is stored of each link, by its subject; `engage` keeps it up to date.
    """

    decisions: Mapping[FlowKey, Decision] = field(default_factory=dict)
    added: Mapping[FlowKey, int] = field(default_factory=dict)
    forgiven: Mapping[FlowKey, int] = field(default_factory=dict)
    records: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def acting(self, flow: Flow) -> Decision | None:
        """Return what bounds a link in this cycle; None where nothing does."""
        return self.decisions.get(flow.key) if flow.control.mode is Mode.ACT else None

    def overhead(self, flow: Flow) -> float:
        """Return the part that is added to what a link is due: that of the menu, and the bias.

        A goal is what is to arrive: it is due again by itself when it does not.
        """
        decision = self.acting(flow)
        bias = 0.0 if decision is None or flow.goal is not None else decision.memory.bias
        return flow.overhead + bias if flow.overhead + bias > 0 else 0.0

    def on_top(self, flow: Flow, due: int) -> int:
        """Return the bytes that come on top of what a link is due in the cycle."""
        return round(due * self.overhead(flow)) + self.added.get(flow.key, 0)


def decide(
    context: EngineContext, cycle: Cycle, flows: Mapping[FlowKey, Flow], dues: Mapping[FlowKey, int]
) -> Controlled:
    """Decide for the links of a cycle that is about to be opened, and store the decisions; this is idempotent."""
    wanted = {key: flows[key] for key in dues if flows[key].control.mode is not Mode.OFF}
    if not wanted:
        return Controlled()
    now, records, decisions = context.clock.now(), kept_records(context.ledger), {}
    made: dict[str, dict[str, Any]] = {}
    planned = context.ledger.is_planned(cycle)
    memories = {key: known_before(records.get(subject(key), {}), cycle) for key in wanted}
    added, left, forgiven = _redistributed(context.ledger, cycle, wanted, dues, records)
    due_now = {key: _with_overhead(dues[key], flow) + added.get(key, 0) for key, flow in wanted.items()}
    for key, signals in _signals(context.ledger, cycle, wanted, due_now, memories, now).items():
        before = memories[key]
        decision = decisions[key] = control.decide(before.memory, signals)
        if not planned:  # a plan stands, and with it what was engaged and decided then
            moved = {"added": added.get(key, 0), "left": left.get(key, 0), "moved_over": forgiven.get(key, 0)}
            made[subject(key)] = new_record(flows[key], cycle, before, decision, **moved)
    context.ledger.record_signals((reading(name, record) for name, record in made.items()), now)
    _say({key: decision for key, decision in decisions.items() if flows[key].control.mode is Mode.ADVISE})
    return Controlled(decisions, added, forgiven, {**records, **made})


def _say(advice: Mapping[FlowKey, Decision]) -> None:
    """Say in one line which links would be held where the controller only advises."""
    would = {key: (decision.allowed, decision.worth) for key, decision in advice.items() if decision.limits}
    if would:
        named = (f"{key} to {' of '.join(map(units.format_size, sizes))}" for key, sizes in would.items())
        log.info("control would hold %s", units.some(named, MOST_NAMED))


def _signals(
    ledger: Reader,
    cycle: Cycle,
    flows: Mapping[FlowKey, Flow],
    due_now: Mapping[FlowKey, int],
    memories: Mapping[FlowKey, Before],
    now: datetime,
) -> dict[FlowKey, Signals]:
    """Return what is known of links; `due_now` is what they are due in the cycle, with all that is due on top."""
    accounts, seen_since = ledger.accounts(), ledger.on_their_way_since()
    stuck, oldest = failing.stuck_bytes(ledger), oldest_since(ledger)
    completion = ledger.completion_times(now - BACK * cycle.length, 0.9)
    rows: dict[FlowKey, list[Row]] = defaultdict(list)
    since = cycle.start - control.CYCLES * cycle.length
    longest = max(flow.lifetime_max for flow in flows.values())
    expired = ledger.expired(since, since - longest)
    for row in ledger.rows(since=since, before=cycle.start):
        rows[row.key].append(row)
    signals = {}
    for key, flow in flows.items():
        # What the service has given up for now waits in no queue, and may not move again before it expires.
        coming = max(accounts.get(key, Totals()).coming - stuck.get(key, 0), 0)
        before, of_link = memories[key], rows[key]
        asked = [_asked(row, flow, before.added) for row in of_link]
        most = max([due_now[key], *asked[-2:]])
        if most == 0:
            continue
        first, (_, seen) = oldest.get(key), seen_since.get(key, (None, None))
        signals[key] = Signals(
            target=most / cycle.length.total_seconds(),
            length=cycle.length,
            lifetime=flow.lifetime_max,
            in_flight=coming,
            past=_past(of_link, asked, coming, expired.get(key, ())),
            completion=completion.get(key),
            age=timedelta(0) if seen is None else max(now - seen, timedelta(0)),
            oldest=None if first is None else max(now - first, timedelta(0)),
            floor=before.floor,
            limited=bool(of_link) and _is_limited(of_link[-1]),
            catches_up=bool(of_link) and of_link[-1].want >= control.MOST * asked[-1],
        )
    return signals


def _redistributed(
    ledger: Reader,
    cycle: Cycle,
    flows: Mapping[FlowKey, Flow],
    dues: Mapping[FlowKey, int],
    records: Records,
) -> tuple[dict[FlowKey, int], dict[FlowKey, int], dict[FlowKey, int]]:
    """Return the bytes that others left to each link in this cycle, that it left to others, and forgiven of those.

    Once the cycle is open they stay as they are: the accounts include them by then.
    """
    made = {key: record for key in flows if (record := records.get(subject(key), {})).get("cycle") == cycle.name}
    if made:
        again = {key: record["added"].get(cycle.name, 0) for key, record in made.items()}
        to_others = {key: record["law"][1].get("to_others", 0) for key, record in made.items()}
        return again, to_others, {key: record["moved_over"] for key, record in made.items()}
    scenarios = _sharing(flows)
    if not scenarios:
        return {}, {}, {}
    last = {row.key: row for row in ledger.rows(cycle=Cycle(cycle.start - cycle.length, cycle.length))}
    accounts, extras = ledger.accounts(), ledger.extras()
    added: dict[FlowKey, int] = {}
    left: dict[FlowKey, int] = {}
    forgiven: dict[FlowKey, int] = {}
    for scenario in scenarios:
        parts = {}
        for key in scenario:
            row, record = last.get(key), records.get(subject(key), {})
            bias = known_before(record, cycle).memory.bias
            parts[key] = LinkShare(
                due=_with_overhead(dues[key], flows[key]),
                asked=_with_overhead(dues[key], flows[key]) + max(round(bias * dues[key]), 0),
                debt=_debt(accounts.get(key, Totals()), extras.get(key, 0)),
                priority=flows[key].priority,
                left=min(row.due - row.injected, row.due) if row is not None and _leaves(row) else 0,
                written_off=_written_off(row, record) if row is not None else 0,
                held=row is not None and _is_limited(row),
            )
        given, taken = control.redistributed(parts)
        added |= given
        left |= taken
        forgiven |= {key: parts[key].forgiven_of(size) for key, size in taken.items()}
    return added, left, forgiven


def foreseen(
    controlled: Controlled, cycle: Cycle, transfers: Mapping[FlowKey, Transfers]
) -> dict[FlowKey, Decision]:
    """Return the decisions about links from which FTS takes transfers away, made anew with what it told."""
    records = {key: controlled.records.get(subject(key), {}) for key in transfers}
    anew = {
        key: control.foreseen(decision, known_before(records[key], cycle).memory, transfers[key])
        for key, decision in controlled.decisions.items()
        if key in transfers
    }
    said = {key for key, decision in controlled.decisions.items() if decision.limits}
    advised = (key for key in anew if records[key].get("mode") == Mode.ADVISE.value)
    _say({key: anew[key] for key in advised if key not in said})
    return anew


def engage(
    ledger: Ledger,
    records: dict[str, Mapping[str, Any]],
    cycle: Cycle,
    foreseen: Mapping[FlowKey, Decision],
    readings: Mapping[FlowKey, Mapping[Hold, GuardReading]],
    floors: Mapping[FlowKey, int],
    leading: Callable[[FlowKey, guards.Engaged], Held | None],
    now: datetime,
) -> dict[FlowKey, dict[Hold, int]]:
    """Return which guards hold links in a cycle, and store that with the decisions about these links.

    `leading` chooses, of the guards that hold a link, the one to record; the plan may name a tighter limit.

    Links that are due nothing have no guards. `records` are those stored, and those that change are renewed in it;
    `foreseen` is what was decided anew since, and `floors` are the bytes that links need to have in flight in the
    next cycle.
    """
    held_by: dict[FlowKey, dict[Hold, int]] = {}
    made: list[ControlDecision] = []
    readings_kept: list[Reading] = []
    for key, seen in readings.items():
        name = subject(key)
        stored = records.get(name, {})
        if stored.get("cycle") != cycle.name:
            continue
        record = decided_anew(stored, foreseen[key]) if key in foreseen else dict(stored)
        before = {Hold(hold): calm for hold, calm in record["guards_before"].items()}
        engaged = held_by[key] = guards.engaged(before, seen)
        held = leading(key, engaged) if engaged else None
        record["hold"], record["numbers"] = record["law"]
        if held is not None:
            record |= {"hold": held.hold.value, "numbers": dict(held.numbers)}
        record["floor"] = floors.get(key, 0)
        record["guards"] = {hold.value: calm for hold, calm in engaged.items()}
        if record != stored:
            records[name] = record
            readings_kept.append(reading(name, record))
        made.append(
            ControlDecision(
                cycle,
                key,
                record["mode"],
                None if record["hold"] is None else Hold(record["hold"]),
                record["target"],
                float(record["bias"]),
                record["law"][1],
                guards.holding(engaged, seen),
            )
        )
    ledger.record_signals(readings_kept, now)
    ledger.record_decisions(made)
    return held_by


# --------------------------------------------------------------------------- what the ledger tells


def oldest_since(ledger: Reader) -> dict[FlowKey, datetime]:
    """Return since when the oldest of what each flow has in flight is on its way, less a small part of its bytes.

    A dataset stays on its way for one file that is tried again: it is old, but few of its bytes are.
    """
    left: dict[FlowKey, list[tuple[datetime, int]]] = defaultdict(list)
    for entry in ledger.entries(State.LIVE):
        item = entry.injection.item
        size = item.bytes - entry.present - entry.failed - entry.moved
        size -= item.bytes * entry.files_stuck // max(item.files, 1)
        if entry.accepted_at is not None and size > 0:
            left[entry.injection.flow].append((entry.accepted_at, size))
    oldest = {}
    for key, parts in left.items():
        rest = TAIL * sum(size for _, size in parts)
        for since, size in sorted(parts):
            rest -= size
            if rest < 0:
                oldest[key] = since
                break
    return oldest


def _with_overhead(due: int, flow: Flow) -> int:
    return due + round(due * flow.overhead)


def _asked(row: Row, flow: Flow, added: Mapping[str, int]) -> int:
    """Return what a link was due in a cycle with what was due on top, but for the bias."""
    return _with_overhead(row.due, flow) + (added.get(row.cycle.name, 0) if added else 0)


def _past(
    rows: Sequence[Row], asked: Sequence[int], coming: int, expired: Sequence[tuple[datetime, int]]
) -> tuple[Past, ...]:
    """Return the last cycles without a gap of due; what was in flight follows backwards from what is now.

    `asked` has the bytes that were due in each row with what was due on top.
    """
    past: list[Past] = []
    for row, due in zip(reversed(rows), reversed(asked), strict=True):
        # What was seen when a cycle was closed had ended in it.
        gone = sum(size for at, size in expired if row.cycle.start < at <= row.cycle.end) if expired else 0
        coming = max(coming + row.moved + gone - row.injected, 0)
        if row.due == 0:
            break
        past.append(Past(due, max(row.moved, 0), coming, gone))
    return tuple(reversed(past))


def _is_limited(row: Row) -> bool:
    return row.held is not None and Trait.NO_LIMIT not in row.held.hold.traits


def _leaves(row: Row) -> bool:
    return row.held is not None and Trait.LEAVES in row.held.hold.traits and row.injected < row.due


def _written_off(row: Row, record: Mapping[str, Any]) -> int:
    """Return what was forgiven in a cycle, but for what others were given when it began."""
    over = record["moved_over"] if record.get("cycle") == row.cycle.name else 0
    return max(row.forgiven - over, 0)


def _debt(totals: Totals, extra: int) -> int:
    return totals.due + extra - totals.forgiven - totals.injected - totals.in_doubt


def _sharing(flows: Mapping[FlowKey, Flow]) -> list[list[FlowKey]]:
    """Return the links of each scenario that share what held ones leave."""
    scenarios: dict[str, list[FlowKey]] = defaultdict(list)
    for key, flow in sorted(flows.items()):
        if flow.control.redistribute and flow.control.mode is Mode.ACT and flow.goal is None:
            scenarios[key.scenario].append(key)
    return [keys for keys in scenarios.values() if len(keys) > 1]
