"""Records of control: what is kept of each link from cycle to cycle, and what others read of it.

A record is a signal of the ledger, as JSON: the law's memory and the guards before and after the cycle, what was
decided and on what it rests, and what links are due for others that were held. It is written when a cycle is
opened, and again when guards change it in planning. It keeps what was known before the cycle as well, so that a
restart in the middle of one decides the same again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from dc_inject.ledger.inventory import Reading
from dc_inject.ledger.reading import Reader
from dc_inject.model import Cycle, Flow, FlowKey, Hold, Link, Mode, Numbers
from dc_inject.model.holds import of_control
from dc_inject.planning import control
from dc_inject.planning.control import Decision, Memory

NAME = "control"  # of the signal that keeps what was decided
Records = Mapping[str, Mapping[str, Any]]  # what is kept of each link, by its subject
_OWN = frozenset(  # of what is kept: what nobody else needs
    {"kept", "before", "guards", "guards_before", "floor", "floor_before", "added", "moved_over", "law"}
    | {"others", "others_before"}
)


class ForOthers(NamedTuple):
    """Bytes that a link was due for others that were held, and bytes that others were due for it."""

    received: int = 0
    left: int = 0


def subject(key: FlowKey) -> str:
    """Return under which name signals of a flow are kept."""
    return f"{key.scenario} {key.link} {key.link.through}"


def reading(name: str, record: Mapping[str, Any]) -> Reading:
    """Return the signal that keeps the record of a link; `name` is its subject."""
    return NAME, name, json.dumps(record), ""


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


def known_before(record: Mapping[str, Any], cycle: Cycle) -> Before:
    """Return what was known before a cycle, out of the record of this cycle or of an earlier one."""
    if not record:
        return Before()
    which, rest = ("before", "_before") if record["cycle"] == cycle.name else ("kept", "")
    bias, completion, *counts = record[which]
    memory = Memory(bias, None if completion is None else timedelta(seconds=completion), *counts)
    for_others = ForOthers(*record.get("others" + rest, ()))
    return Before(memory, record[f"guards{rest}"], record[f"floor{rest}"], record["added"], for_others)


def _as_list(memory: Memory) -> list[float | None]:
    completion = None if memory.completion is None else memory.completion.total_seconds()
    return [memory.bias, completion, memory.delivered, memory.seen, memory.moving]


def new_record(
    flow: Flow,
    cycle: Cycle,
    before: Before,
    decision: Decision,
    *,
    added: int = 0,
    left: int = 0,
    moved_over: int = 0,
) -> dict[str, Any]:
    """Return what is kept of what was decided for a link in a cycle, from what was known `before` it.

    `added` are the bytes that it is due for others that were held, `left` those that others are due for it, and
    `moved_over` what it is forgiven of these.
    Its guards and its floor stay as they were until the cycle is planned, also if it never is.
    """
    shared = {name: size for name, size in (("for_others", added), ("to_others", left)) if size}
    law = _law(decision, shared)
    key, old = flow.key, Cycle(cycle.start - control.CYCLES * cycle.length, cycle.length).name
    return {
        **key.names(),
        "cycle": cycle.name,
        "mode": flow.control.mode.value,
        "hold": law[0],
        "target": decision.signals.target,
        "bias": decision.memory.bias,
        "numbers": law[1],
        "law": law,
        "kept": _as_list(decision.memory),
        "before": _as_list(before.memory),
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


def decided_anew(record: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
    """Return a record with what was decided anew since it was written, in the same cycle."""
    shared = {name: record["law"][1][name] for name in ("for_others", "to_others") if name in record["law"][1]}
    return {**record, "law": _law(decision, shared), "kept": _as_list(decision.memory)}


def _law(decision: Decision, shared: Numbers) -> tuple[str | None, Numbers]:
    """Return the hold that a decision is, and its numbers with those `shared` with other links."""
    return Hold.BACKLOG.value if decision.limits else None, {**decision.numbers, **shared}


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
            decided = None if decision["hold"] is None else Hold(decision["hold"])
            if row is not None and of_control(decided, row, acts=acts) != decided:
                decision |= {"hold": row.hold.value, "numbers": dict(row.numbers)}
            made.append({name: value for name, value in decision.items() if name not in _OWN})
    return made
