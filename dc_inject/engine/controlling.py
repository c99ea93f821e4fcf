"""Controlling: what the controller decides of the links in a new cycle, from what the ledger says of them.

The law is `planning/control.py`. Here its signals are read, all from our own ledger, so that they are there for
every account and service; and what it keeps from cycle to cycle is written beside the other signals, with what
it decided and on what that rests. So `status` shows it, also where it only advises.

- Acting, it bounds the budget of a link (hold `backlog`), and its bias adds to what the link is due.
- With `redistribute`, what a link left because it was held in the cycle before goes to the scenario's other
  links that were not: the due is forgiven there and added here, so that the sum is kept.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from dc_inject.engine.context import EngineContext
from dc_inject.ledger import ControlDecision, Ledger, Row, Totals
from dc_inject.ledger.inventory import Reading
from dc_inject.ledger.reading import Reader
from dc_inject.model import Cycle, Flow, FlowKey, Held, Hold, Link, Mode, State, units
from dc_inject.model.holds import Trait, of_control
from dc_inject.planning import control, guards
from dc_inject.planning.control import Decision, LinkShare, Memory, Past, Signals
from dc_inject.planning.guards import GuardReading

log = logging.getLogger(__name__)

NAME = "control"  # of the signal that keeps what was decided
Records = Mapping[str, Mapping[str, Any]]  # what is kept of each link, by its subject
_OWN = frozenset(  # of what is kept: what nobody else needs
    {"kept", "before", "guards", "guards_before", "floor", "floor_before", "added", "moved_over", "law"}
    | {"others", "others_before"}
)
BACK = 8  # cycles of which completions are looked at
MOST_NAMED = 5  # links that are named in the log, a cycle


@dataclass(frozen=True, slots=True)
class Controlled:
    """What the controller says of a cycle.

    `added` are bytes that links are due in it for others that were held; `forgiven` what those are not any more.
    """

    decisions: Mapping[FlowKey, Decision] = field(default_factory=dict)
    added: Mapping[FlowKey, int] = field(default_factory=dict)
    forgiven: Mapping[FlowKey, int] = field(default_factory=dict)

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
    readings: list[Reading] = []
    planned = context.ledger.is_planned(cycle)
    memories = {key: _before(records.get(subject(key), {}), cycle) for key in wanted}
    added, left, forgiven = _redistributed(context.ledger, cycle, wanted, dues, records)
    due_now = {key: _with_overhead(dues[key], flow) + added.get(key, 0) for key, flow in wanted.items()}
    for key, signals in _signals(context.ledger, cycle, wanted, due_now, memories, now).items():
        before = memories[key]
        decision = decisions[key] = control.decide(before.memory, replace(signals, floor=before.floor))
        if not planned:  # a plan stands, and with it what was engaged and decided then
            moved = {"added": added.get(key, 0), "left": left.get(key, 0), "moved_over": forgiven.get(key, 0)}
            readings.append(reading(flows[key], cycle, before, decision, **moved))
    context.ledger.record_signals(readings, now)
    _say({key: made for key, made in decisions.items() if flows[key].control.mode is Mode.ADVISE})
    return Controlled(decisions, added, forgiven)


def _say(advice: Mapping[FlowKey, Decision]) -> None:
    """Say in one line which links would be held where the controller only advises."""
    would = {key: made for key, made in advice.items() if made.limits}
    if would:
        named = (f"{key} (at most {units.format_size(made.allowed)})" for key, made in would.items())
        log.info("control would hold back %s", units.some(named, MOST_NAMED))


def _signals(
    ledger: Reader,
    cycle: Cycle,
    flows: Mapping[FlowKey, Flow],
    due_now: Mapping[FlowKey, int],
    memories: Mapping[FlowKey, Before],
    now: datetime,
) -> dict[FlowKey, Signals]:
    """Return what is known of links; `due_now` is what they are due in the cycle, with all that is due on top."""
    accounts, oldest = ledger.accounts(), ledger.on_their_way_since()
    stuck = stuck_bytes(ledger)
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
        added = memories[key].added
        most = max([due_now[key], *(_asked(row, flow, added) for row in rows[key][-2:])])
        if most == 0:
            continue
        first, seen = oldest.get(key, (None, None))
        signals[key] = Signals(
            target=most / cycle.length.total_seconds(),
            length=cycle.length,
            lifetime=flow.lifetime_max,
            in_flight=coming,
            past=_past(rows[key], coming, flow, added, expired.get(key, ())),
            completion=completion.get(key),
            age=timedelta(0) if seen is None else max(now - seen, timedelta(0)),
            oldest=None if first is None else max(now - first, timedelta(0)),
            limited=bool(rows[key]) and _is_limited(rows[key][-1]),
            catches_up=bool(rows[key]) and rows[key][-1].want >= control.MOST * _asked(rows[key][-1], flow, added),
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
            bias = _before(record, cycle).memory.bias
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


class ForOthers(NamedTuple):
    """Bytes that a link was due for others that were held, and bytes that others were due for it."""

    received: int = 0
    left: int = 0


def redistributed(view: Reader) -> dict[FlowKey, ForOthers]:
    """Return what links were due for others since the campaign began, and left to them; others are left out."""
    totals = {
        FlowKey(record["scenario"], Link(record["source"], record["destination"], record["service"])): ForOthers(
            *record.get("others", ())
        )
        for record in kept_records(view).values()
    }
    return {key: total for key, total in totals.items() if any(total)}


def moved_over(ledger: Reader, cycle: Cycle, flows: Iterable[FlowKey]) -> dict[FlowKey, int]:
    """Return what was forgiven of links' older debts when a cycle was opened, since others are due it."""
    records = kept_records(ledger)
    by_flow = {key: records.get(subject(key), {}) for key in flows}
    return {key: record["moved_over"] for key, record in by_flow.items() if record.get("cycle") == cycle.name}


def last_decisions(view: Reader) -> list[dict[str, Any]]:
    """Return what the controller said of each link when the last cycle began; bytes, seconds, bytes per second."""
    cycle = view.last_cycle()
    if cycle is None:
        return []
    rows, made = {subject(row.key): row.held for row in view.rows(cycle=cycle)}, []
    for key, decision in kept_records(view).items():
        if decision["cycle"] == cycle.name:
            row, acts = rows.get(key), decision["mode"] == Mode.ACT.value
            if row is not None and of_control(decision["hold"], row.hold, acts=acts) != decision["hold"]:
                decision |= {"hold": row.hold.value, "numbers": dict(row.numbers)}
            made.append({name: value for name, value in decision.items() if name not in _OWN})
    return made


# --------------------------------------------------------------------------- what is kept


def subject(key: FlowKey) -> str:
    """Return under which name signals of a flow are kept."""
    return f"{key.scenario} {key.link} {key.link.through}"


def kept_records(ledger: Reader) -> dict[str, dict[str, Any]]:
    """Return what was kept last of each link, by its subject."""
    return {
        signal.subject: json.loads(str(signal.value))
        for signal in ledger.signals(NAME)
        if signal.value is not None
    }


@dataclass(frozen=True, slots=True)
class Before:
    """What is known of a link before a cycle: the law's memory, the guards that held it, its floor in bytes.

    `added` are the bytes that it was due in earlier cycles (by their names) for others that were held; `others`
    has the sums of these since the campaign began, and of what it left to others.
    """

    memory: Memory = field(default_factory=Memory)
    guards: Mapping[str, int] = field(default_factory=dict)
    floor: int = 0
    added: Mapping[str, int] = field(default_factory=dict)
    others: ForOthers = field(default_factory=ForOthers)


def _before(record: Mapping[str, Any], cycle: Cycle) -> Before:
    """Return what was known before a cycle, out of the record of this cycle or of an earlier one."""
    if not record:
        return Before()
    which, rest = ("before", "_before") if record["cycle"] == cycle.name else ("kept", "")
    bias, completion, delivered = record[which]
    memory = Memory(bias, None if completion is None else timedelta(seconds=completion), delivered)
    others = ForOthers(*record.get("others" + rest, ()))
    return Before(memory, record[f"guards{rest}"], record[f"floor{rest}"], record["added"], others)


def _written(memory: Memory) -> list[float | None]:
    completion = None if memory.completion is None else memory.completion.total_seconds()
    return [memory.bias, completion, memory.delivered]


def engaged_before(records: Records, cycle: Cycle, flows: Iterable[FlowKey]) -> dict[FlowKey, frozenset[Hold]]:
    """Return which guards held links before a cycle, as the `records` of them say."""
    before = {key: _before(records.get(subject(key), {}), cycle).guards for key in flows}
    return {key: frozenset(map(Hold, guards)) for key, guards in before.items()}


def engage(
    ledger: Ledger,
    records: Records,
    cycle: Cycle,
    readings: Mapping[FlowKey, Mapping[Hold, GuardReading]],
    floors: Mapping[FlowKey, int],
    leading: Callable[[FlowKey, guards.Engaged], Held | None],
    now: datetime,
) -> dict[FlowKey, dict[Hold, int]]:
    """Return which guards hold links in a cycle, and store that with the decisions about these links.

    `leading` chooses, of the guards that hold a link, the one to record; the plan may name a tighter limit.

    Links that are due nothing have no guards. `records` are those stored when the cycle was opened, `floors` the
    bytes that links need to have in flight in the next cycle.
    """
    held_by: dict[FlowKey, dict[Hold, int]] = {}
    made: list[ControlDecision] = []
    readings_kept: list[Reading] = []
    for key, seen in readings.items():
        record = dict(records.get(subject(key), {}))
        if record.get("cycle") != cycle.name:
            continue
        before = {Hold(hold): calm for hold, calm in record["guards_before"].items()}
        engaged = held_by[key] = guards.engaged(before, seen)
        held = leading(key, engaged)
        record["hold"], record["numbers"] = record["law"]
        if held is not None:
            record |= {"hold": held.hold.value, "numbers": dict(held.numbers)}
        record["floor"] = floors.get(key, 0)
        record["guards"] = {hold.value: calm for hold, calm in engaged.items()}
        readings_kept.append((NAME, subject(key), json.dumps(record), ""))
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


def reading(
    flow: Flow,
    cycle: Cycle,
    before: Before,
    decision: Decision,
    *,
    added: int = 0,
    left: int = 0,
    moved_over: int = 0,
) -> Reading:
    """Return what is kept of what was decided for a link in a cycle, from what was known `before` it.

    `added` are the bytes that it is due for others that were held, `left` those that others are due for it, and
    `moved_over` what it is forgiven of these.
    Its guards and its floor stay as they were until the cycle is planned, also if it never is.
    """
    shared = {name: size for name, size in (("for_others", added), ("to_others", left)) if size}
    law = Hold.BACKLOG.value if decision.limits else None, {**decision.numbers, **shared}
    key, old = flow.key, Cycle(cycle.start - control.CYCLES * cycle.length, cycle.length).name
    values = {
        **key.names(),
        "cycle": cycle.name,
        "mode": flow.control.mode.value,
        "hold": law[0],
        "target": decision.signals.target,
        "bias": decision.memory.bias,
        "numbers": law[1],
        "law": law,
        "kept": _written(decision.memory),
        "before": _written(before.memory),
        "guards": dict(before.guards),
        "guards_before": dict(before.guards),
        "floor": before.floor,
        "floor_before": before.floor,
        "added": {
            name: size for name, size in {**before.added, cycle.name: added}.items() if size and name >= old
        },
        "moved_over": moved_over,
        "others": (before.others.received + added, before.others.left + left),
        "others_before": before.others,
    }
    return NAME, subject(key), json.dumps(values), ""


# --------------------------------------------------------------------------- what the ledger tells


def stuck_bytes(ledger: Reader) -> dict[FlowKey, int]:
    """Return the bytes of each flow that its service has given up for now.

    Rounded up, as what moved is rounded down: a byte between them would be late until the rule ends.
    """
    stuck: dict[FlowKey, int] = defaultdict(int)
    for entry in ledger.entries(State.LIVE):
        if entry.files_stuck:
            item = entry.injection.item
            stuck[entry.injection.flow] += -(-item.bytes * entry.files_stuck // max(item.files, 1))
    return stuck


def _with_overhead(due: int, flow: Flow) -> int:
    return due + round(due * flow.overhead)


def _asked(row: Row, flow: Flow, added: Mapping[str, int]) -> int:
    """Return what a link was due in a cycle with what was due on top, but for the bias."""
    return _with_overhead(row.due, flow) + added.get(row.cycle.name, 0)


def _past(
    rows: Iterable[Row],
    coming: int,
    flow: Flow,
    added: Mapping[str, int],
    expired: Sequence[tuple[datetime, int]],
) -> tuple[Past, ...]:
    """Return the last cycles without a gap of due; what was in flight follows backwards from what is now."""
    past: list[Past] = []
    for row in reversed(list(rows)):
        # What was seen when a cycle was closed had ended in it.
        gone = sum(size for at, size in expired if row.cycle.start < at <= row.cycle.end)
        coming = max(coming + row.moved + gone - row.injected, 0)
        if row.due == 0:
            break
        past.append(Past(_asked(row, flow, added), max(row.moved, 0), coming, gone))
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
