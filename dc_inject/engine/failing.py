"""What failed of late on each link, whether its service tells of it as failed or as stuck.

FTS tells of each file that failed. Rucio tells of no failures before a rule is over, only of files that are stuck:
given up for now, perhaps until the rule expires, long after the link works again. So the bytes that became stuck
in the last cycles are set against those that arrived, and count as failed; what is stuck waits in no queue. What
was stuck in those cycles is kept as a signal in the ledger. The hold `failing` rests on it, with control or
without (`planning/link_plan.py`, `guarding.py`).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime

from dc_inject.engine import control_records
from dc_inject.ledger import Ledger, Row
from dc_inject.ledger.reading import Reader
from dc_inject.model import Cycle, Flow, FlowKey, State

CYCLES = 3  # over which it is measured
WORKS = 0.05  # of what came to an end in the last cycle: with no more failures a link works again
STUCK = "stuck"  # of the signal that keeps what was stuck in them


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


def failed_parts(
    ledger: Ledger,
    cycle: Cycle,
    rows: Iterable[Row],
    flows: Mapping[FlowKey, Flow],
    stuck: Mapping[FlowKey, int],
    now: datetime,
) -> dict[FlowKey, float | None]:
    """Return the fraction of each flow's bytes that failed, of those that came to an end in the last cycles.

    That is what the hold `failing` rests on. Where hardly any failed in the last cycle, and half of what it gave
    arrived, only that cycle counts: a link that works again is let go. Files that are tried again fail later than
    others arrive, so that a few that arrived show nothing. 0 where nothing came to an end; None where that says
    nothing, since some is stuck. `rows` are those of these cycles, and more. What is `stuck` now is kept.
    """
    starts = [cycle.start - back * cycle.length for back in (CYCLES, 1)]
    names = [Cycle(since, cycle.length).name for since in starts]
    reported = [ledger.failed_parts(since) for since in starts]
    moved = [_moved(rows, since) for since in starts]
    given = {row.key: row.injected for row in rows if row.cycle.start == starts[-1]}
    became_stuck = _became_stuck(ledger, cycle, flows, stuck, now)
    parts: dict[FlowKey, float | None] = {}
    for key in flows:
        became = became_stuck.get(key, {})
        fractions = [
            _part(sum(size for when, size in became.items() if when > since), arrived.get(key, 0), told.get(key))
            for since, arrived, told in zip(names, moved, reported, strict=True)
        ]
        lately, last = fractions
        if last is not None and last <= WORKS and 2 * moved[-1].get(key, 0) >= given.get(key, 0):
            lately = last
        parts[key] = 0.0 if lately is None and not stuck.get(key) else lately
    return parts


def _moved(rows: Iterable[Row], since: datetime) -> dict[FlowKey, int]:
    moved: dict[FlowKey, int] = defaultdict(int)
    for row in rows:
        if row.cycle.start >= since:
            moved[row.key] += max(row.moved, 0)
    return moved


def _part(became_stuck: int, moved: int, reported: float | None) -> float | None:
    """Return which part failed, the larger of what is stuck and what the service reported; None: nothing ended."""
    ended = became_stuck + moved
    told = [part for part in (became_stuck / ended if ended else None, reported) if part is not None]
    return max(told, default=None)


def _became_stuck(
    ledger: Ledger, cycle: Cycle, flows: Mapping[FlowKey, Flow], stuck: Mapping[FlowKey, int], now: datetime
) -> dict[FlowKey, dict[str, int]]:
    """Return how many bytes of flows became stuck before each of the last plans, by their cycles; keep it.

    What was stuck until its rule ended is not stuck any more: it counts, or new bytes would seem to be old ones.
    """
    kept = {signal.subject: signal for signal in ledger.signals(STUCK) if signal.value is not None}
    oldest = Cycle(cycle.start - CYCLES * cycle.length, cycle.length).name
    befores = {key: kept[name] for key in flows if (name := control_records.subject(key)) in kept}
    since = min((signal.at for signal in befores.values()), default=now)
    longest = max((flow.lifetime_max for flow in flows.values()), default=cycle.length)
    ended = ledger.stuck_until_ended(since, since - longest) if befores else {}
    became, keeping = {}, []
    for key in flows:
        signal = befores.get(key)
        before = {} if signal is None else json.loads(str(signal.value))
        was, own = before.get("stuck", 0), stuck.get(key, 0)
        sizes = {when: size for when, size in before.get("became", {}).items() if when > oldest}
        if not (was or own or sizes):
            continue
        gone = sum(size for at, size in ended.get(key, ()) if signal is not None and at > signal.at)
        sizes[cycle.name] = sizes.get(cycle.name, 0) + max(own + gone - was, 0)
        became[key] = sizes
        value = json.dumps({"stuck": own, "became": sizes})
        keeping.append((STUCK, control_records.subject(key), value, ""))
    ledger.record_signals(keeping, now)
    return became
