"""A rate set while running: what a person sets is taken up, and the past does not change.

`dc-inject set` and `unset` write an override into the ledger (`ledger/records.py`), also while no run is active.
A run looks for them every few seconds. What they make of the menus is in `planning/overrides.py`:

- The next cycle is due what is set when it begins (`over`), and a missed one what was set then (`missed`).
- What was booked as due in the open cycle stays. A higher rate waits for the next cycle. A lower one is heeded
  at once (`apply_lower_rates`): intents that still wait are dropped to what the rest of the cycle is now due, and
  the difference is forgiven. So due less forgiven is the integral of the rates as they were in force, to a byte.
  The exception is a rate that is lowered and raised again in one cycle: what was dropped does not come back, and
  the lowest of it counts to the end of the cycle (`_held`).
- A flow with a goal is forgiven only what was dropped, since its due is not the integral of a rate alone: what it
  is short of its goal is due again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime

from dc_inject.engine.context import EngineContext
from dc_inject.engine.situation import booked
from dc_inject.engine.submitting import Submitting
from dc_inject.model import Campaign, Cycle, FlowKey, Hold
from dc_inject.model.overrides import Override, covers, shown
from dc_inject.planning import overrides

log = logging.getLogger(__name__)


class Overriding:
    """The overrides that the open cycle was booked with, and those that are set since."""

    def __init__(self, context: EngineContext, submitting: Submitting) -> None:
        """Take what the engine's parts share; what is set at the start is no news."""
        self._context = context
        self._submitting = submitting
        self._seen = context.ledger.overrides()
        self._menus: tuple[str, ...] | None = None  # those in force in the last cycle
        self._held = [self._seen]  # all that was set at some time of the open cycle: the lowest is heeded

    def over(self, menus: Campaign) -> Campaign:
        """Return the campaign as a new cycle has it: its menus with what is set over them."""
        now = self._context.ledger.overrides()
        _log_changes(self._seen, now)
        self._seen, self._held = now, [now]
        return overrides.apply_overrides(menus, now)

    def report_standing(self, menus: Sequence[str]) -> None:
        """Log what is still set when other menus come into force: a rate of the first day rules the second one."""
        if self._menus not in {None, tuple(menus)} and menus:
            for override in self._seen:
                log.info("%s", sentence(override, f"is still set, since {override.since:%F %TZ}"))
        self._menus = tuple(menus)

    def missed(self, menus: Campaign, cycle: Cycle) -> Campaign:
        """Return the campaign as it was at the start of a cycle in which no injector ran."""
        return overrides.apply_overrides(menus, self._context.ledger.overrides(cycle.start))

    def apply_lower_rates(self, menus: Campaign, cycle: Cycle, now: datetime) -> None:
        """Heed in the open cycle what was lowered since it was planned."""
        after = self._context.ledger.overrides()
        if self._seen == after:
            return
        _log_changes(self._seen, after)
        before = [overrides.apply_overrides(menus, earlier) for earlier in self._held]
        less = lowered(before, overrides.apply_overrides(menus, after), max(now, cycle.start), cycle.end)
        self._seen, self._held = after, [*self._held, after]
        # Where nothing was due, for example since it is paused, there is nothing to forgive.
        rows = self._context.ledger.rows(cycle=cycle)
        was_due = {row.key: row.due - row.forgiven for row in rows}
        less = {flow: min(size, was_due[flow]) for flow, size in less.items() if was_due.get(flow, 0) > 0}
        why = {flow: next((o for o in after if covers(o.subject, flow)), None) for flow in less}
        goals = {flow.key for flow in menus.flows if flow.goal is not None}
        dropped = self._submitting.trim(less, "the rate was lowered")
        self._context.ledger.forgive(
            cycle, {flow: dropped.get(flow, 0) if flow in goals else size for flow, size in less.items()}
        )
        for flow, override in why.items():
            self._context.trouble(
                flow, Hold.PAUSED, "lowered in the cycle" + (f" by {override.who}" if override else "")
            )


def lowered(before: Sequence[Campaign], after: Campaign, start: datetime, end: datetime) -> dict[FlowKey, int]:
    """Return how much less flows are due in [start, end) than the least before, overhead included; bytes."""
    was, now = [booked(campaign, start, end) for campaign in before], booked(after, start, end)
    extra = {flow.key: flow.overhead for flow in after.flows}
    less = {key: min(due[key].bytes for due in was) - part.bytes for key, part in now.items()}
    return {key: size + round(size * extra[key]) for key, size in less.items() if size > 0}


def _log_changes(before: Iterable[Override], after: Iterable[Override]) -> None:
    """Log what is set, and what is no longer set, each in a line."""
    old, new = {(o.subject, o.kind): o for o in before}, {(o.subject, o.kind): o for o in after}
    for key in sorted(old.keys() | new.keys()):
        if key not in new:
            log.info("%s", sentence(old[key], "is no longer set"), extra=_fields("unset", old[key]))
        elif old.get(key) != new[key]:
            log.info("%s", sentence(new[key], "is set"), extra=_fields("set", new[key]))


def sentence(override: Override, verb: str) -> str:
    """Return in a line what is set, by whom and why."""
    subject, value = shown(override.subject, "the campaign"), override.words
    return f"{subject}: {value} {verb} ({override.who}{': ' if override.why else ''}{override.why})"


def _fields(event: str, override: Override) -> dict[str, object]:
    """Return the same for programs that read the log; a rate is in bytes per second."""
    names = ("subject", "value", "who", "why")
    values = {"kind": override.kind.value, **{name: getattr(override, name) for name in names}}
    return {"event": event, "fields": values}
