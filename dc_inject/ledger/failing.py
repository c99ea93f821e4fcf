"""What failed of late on each link, whether its service reports it as failed or as stuck.

FTS reports each file that failed. Rucio reports no failures before a rule is over, only of files that are stuck:
given up for now, perhaps until the rule expires, long after the link works again. So the bytes that became stuck
in the last cycles are set against those that arrived, and count as failed; what is stuck waits in no queue. What
was stuck in those cycles is kept as a signal in the ledger. The hold `failing` rests on it, with control or
without (`planning/link_plan.py`, `engine/rooms.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dc_inject.ledger.ledger import Ledger, Reader
from dc_inject.ledger.types import Row, Signal
from dc_inject.model import Cycle, Flow, FlowKey, State
from dc_inject.model.groups import summed
from dc_inject.model.losses import count_stuck

CYCLES = 3  # over which it is measured
WORKS = 0.05  # of what came to an end in the last cycle: with no more failures a link works again
PROBED = 10  # files that a cycle gave at least, for it to show that: one of them that arrives may be chance
STUCK = "stuck"  # of the signal that keeps what was stuck in them


def stuck_bytes(ledger: Reader) -> dict[FlowKey, int]:
    """Return the bytes of each flow that its service has given up for now."""
    living = ledger.entries(State.LIVE)
    return summed((entry.injection.flow, count_stuck(entry)) for entry in living if entry.files_stuck)


@dataclass(frozen=True, slots=True)
class Failing:
    """What failures of late are computed from when a cycle is planned.

    `rows` are those of the last cycles, and more; `flows` are those of the plan, and `stuck` are the bytes of each
    that its service has given up for now.
    """

    ledger: Ledger
    cycle: Cycle
    rows: Sequence[Row]
    flows: Mapping[FlowKey, Flow]
    stuck: Mapping[FlowKey, int]
    now: datetime

    def compute_parts(self) -> dict[FlowKey, float | None]:
        """Return the fraction of each flow's bytes that failed, of those that came to an end in the last cycles.

        That is what the hold `failing` rests on. Where hardly any failed in the last cycle, and half of the files
        that it gave arrived, only that cycle counts: a link that works again is let go. Files that are tried again
        fail later than others arrive, so that a few that arrived show nothing. 0 where nothing came to an end;
        None where that shows nothing, since some is stuck. What is stuck is kept.
        """
        ledger, length, became = self.ledger, self.cycle.length, self._became_stuck()
        lately = _parts_since(ledger, self.cycle.start - CYCLES * length, self.rows, self.flows, became)
        parts = {key: 0.0 if part is None and not self.stuck.get(key) else part for key, part in lately.items()}
        if any(part is not None and part > WORKS for part in parts.values()):
            last = Cycle(self.cycle.start - length, length)
            given = {row.key: row.injected for row in self.rows if row.cycle == last}
            moved = _moved(self.rows, last.start)
            works = {
                key: part
                for key, part in _parts_since(ledger, last.start, self.rows, self.flows, became).items()
                if part is not None and part <= WORKS and 2 * moved.get(key, 0) >= given.get(key, 0)
            }
            entries = ledger.entries(cycle=last) if works else ()
            files = summed((entry.injection.flow, entry.injection.item.files) for entry in entries)
            parts |= {key: part for key, part in works.items() if files[key] >= PROBED}
        return parts

    def _became_stuck(self) -> dict[FlowKey, dict[datetime, int]]:
        """Return how many bytes of flows had become stuck at the plan of each of the last cycles; keep it.

        What was stuck until its rule ended is not stuck any more: it counts, or new bytes would seem to be old
        ones. What became stuck while a flow was not planned, for a night or a day, does not: it is unknown when
        that was.
        """
        ledger, cycle, stuck, now = self.ledger, self.cycle, self.stuck, self.now
        oldest = cycle.start - CYCLES * cycle.length
        lately = [row for row in self.rows if row.due and oldest <= row.cycle.start < cycle.start]
        cycles = {one for one in {row.cycle for row in lately} if ledger.is_planned(one)}
        planned = {row.key for row in lately if row.cycle in cycles}
        kept = {
            signal.subject: signal
            for signal in ledger.signals(STUCK)
            if signal.value is not None and signal.at >= oldest
        }
        if not kept and not stuck:
            return {}
        before = {
            key: _Before.read(kept.get(_subject(key))) or _Before(now, 0 if key in planned else stuck.get(key, 0))
            for key in self.flows
        }
        since = min((one.at for one in before.values()), default=now)
        longest = max((flow.lifetime_max for flow in self.flows.values()), default=cycle.length)
        # What ended is seen later: after an outage of the service, up to a lifetime later.
        ended = ledger.stuck_until_ended(since, since - 2 * longest - cycle.length)
        became, keeping = {}, []
        for key, one in before.items():
            sizes, own = {at: size for at, size in one.became.items() if at > oldest and size}, stuck.get(key, 0)
            if one.stuck or own or sizes:
                gone = sum(size for at, size in ended.get(key, ()) if at >= one.at) - one.ended
                sizes[cycle.start] = sizes.get(cycle.start, 0) + max(own + gone - one.stuck, 0)
                became[key] = sizes
                just_ended = sum(size for at, size in ended.get(key, ()) if at == now)
                keeping.append((STUCK, _subject(key), _Before(now, own, just_ended, sizes).text, ""))
        ledger.record_signals(keeping, now)
        return became


def recent_parts(
    ledger: Reader, last: Cycle, rows: Iterable[Row], keys: Iterable[FlowKey]
) -> dict[FlowKey, float]:
    """Return the part that failed on each flow since its last closed cycle began, or the one before: the larger.

    For views: what became stuck since the last plan counts, too.
    """
    kept, stuck, became = {signal.subject: signal for signal in ledger.signals(STUCK)}, stuck_bytes(ledger), {}
    for key in keys:
        before = _Before.read(kept.get(_subject(key))) or _Before(last.start)
        became[key] = {**before.became, last.end + timedelta.resolution: max(stuck.get(key, 0) - before.stuck, 0)}
    windows = [_parts_since(ledger, last.start - n * last.length, rows, became, became) for n in (0, 1)]
    return {key: max(parts[key] or 0.0 for parts in windows) for key in became}


def remember(ledger: Ledger, now: datetime) -> None:
    """Keep what is stuck in a ledger that was rebuilt: it is unknown when it became so."""
    ledger.record_signals(
        [(STUCK, _subject(key), _Before(now, size).text, "") for key, size in stuck_bytes(ledger).items()],
        now,
    )


def _parts_since(
    ledger: Reader,
    since: datetime,
    rows: Iterable[Row],
    keys: Iterable[FlowKey],
    became_stuck: Mapping[FlowKey, Mapping[datetime, int]],
) -> dict[FlowKey, float | None]:
    """Return the part that failed of what came to an end since a moment, of each flow: the larger of two.

    What became stuck, and what moved; and what the service reported. None: nothing came to an end.
    """
    reported, moved = ledger.failed_parts(since), _moved(rows, since)
    parts: dict[FlowKey, float | None] = {}
    for key in keys:
        became = sum(size for at, size in became_stuck.get(key, {}).items() if at > since)
        ended = became + moved.get(key, 0)
        known = [part for part in (became / ended if ended else None, reported.get(key)) if part is not None]
        parts[key] = max(known, default=None)
    return parts


def _moved(rows: Iterable[Row], since: datetime) -> dict[FlowKey, int]:
    return summed((row.key, max(row.moved, 0)) for row in rows if row.cycle.start >= since)


def _subject(key: FlowKey) -> str:
    return f"{key.scenario} {key.link} {key.link.through}"


@dataclass(frozen=True, slots=True)
class _Before:
    """What was kept of a flow at its last plan: when that was, what was stuck, and what had become so by cycle.

    `ended` is what was stuck until its rule ended at the moment of that plan, before it.
    """

    at: datetime
    stuck: int = 0
    ended: int = 0
    became: Mapping[datetime, int] = field(default_factory=dict)

    @classmethod
    def read(cls, signal: Signal | None) -> _Before | None:
        """Read it from its signal, if there is one."""
        if signal is None:
            return None
        kept = json.loads(str(signal.value))
        became = {datetime.fromisoformat(at): size for at, size in kept.get("became", {}).items()}
        return cls(signal.at, kept.get("stuck", 0), kept.get("ended", 0), became)

    @property
    def text(self) -> str:
        """What its signal keeps."""
        became = {at.isoformat(): size for at, size in self.became.items()}
        return json.dumps({"stuck": self.stuck, "ended": self.ended, "became": became})
