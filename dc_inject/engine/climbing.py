"""Climbing a link while it is injected: readings at each turn of a cycle, and rates that are set over its menu."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from dc_inject import climb, units
from dc_inject.climb import Decision, Ladder, Next, Reading, Step, Verdict
from dc_inject.ledger import Ledger, Row, Totals
from dc_inject.model import Campaign, Cycle, FlowKey, State
from dc_inject.overrides import Kind
from dc_inject.ports import Clock

log = logging.getLogger(__name__)

FINER = "better a longer --every (or --for), a higher --rate, or smaller ones"
CUT = "files through FTS (two URL prefixes), or a menu with slices"
LATELY = timedelta(hours=1)  # how far back the time to completion is measured, at most


class Climbing:
    """Stands before the menus of one link: the engine asks at each turn, and gets the menus, or their end.

    The rate of a step is set as a person would set it, and taken back in the end. Once the last step is over
    nothing more is due; what is on its way has `patience` cycles to arrive.
    """

    def __init__(
        self,
        menus: Callable[[], Campaign],
        *,
        ledger: Ledger,
        clock: Clock,
        ladder: Ladder,
        who: str,
        until: datetime,
        heard: Callable[[], None] = lambda: None,
        patience: int = 2,
    ) -> None:
        """Take the menus of one link, the end of the last step, and whom to tell that a cycle has turned."""
        self._menus = menus
        self._ledger = ledger
        self._clock = clock
        self._ladder = ladder
        self._who = who
        self._until = until
        self._heard = heard
        self._patience = patience
        self._step: Step | None = None
        self._over: datetime | None = None
        self._weighed = False
        self.verdicts: list[Verdict] = []
        self.decisions: list[Decision] = []

    def __call__(self) -> Campaign:
        """Return the campaign for the cycle that begins now."""
        made, now = self._menus(), self._clock.now()
        (key,) = {flow.key for flow in made.flows}
        reading = self._read(key, now)
        if self._step is None:
            self._step = Step(made.flows[0].rate, (reading,))
            return made
        # A turn is read as of its slot: the milliseconds that it is late would cost a step another cycle.
        reading = replace(reading, at=Cycle.at(now, made.cycle).start)
        if self._over is None and reading.at > self._step.readings[-1].at:
            self._step = replace(self._step, readings=(*self._step.readings, reading))
            self._weigh(key)
            if now >= self._until or self._step.over(self._ladder) or self._step.idle:
                self._judge(key, reading)
            self._heard()
        return made if self._over is None else self._ended(made, now)

    def finish(self, ledger: Ledger, key: FlowKey) -> None:
        """Judge the step that was under way, if somebody ended it early, and take back what was set.

        The ledger is given anew: that of the engine is closed by then.
        """
        self._ledger = ledger
        step = self._step
        if step is not None and self._over is None:
            reading = self._read(key, self._clock.now())
            if reading.at > step.readings[-1].at:
                step = replace(step, readings=(*step.readings, reading))
            if len(step.readings) > 1:
                self.verdicts.append(replace(climb.verdict(step), early=not step.over(self._ladder)))
                self.decisions.append(Decision(Next.STOP))
        self._over = self._over or self._clock.now()
        self._ledger.unset(str(key.link), Kind.RATE, self._who, "the mini-challenge is over", self._clock.now())

    def _weigh(self, key: FlowKey) -> None:
        """Warn, once, when the source's datasets are so large that steps of a few of them say little."""
        row = next((row for row in self._rows() if row.key == key), None)
        if row is None or not row.pool_items or not row.pool_bytes or self._weighed:
            return
        self._weighed = True
        few = climb.in_a_step(self._ladder, row.pool_items, row.pool_bytes)
        if few is not None:
            what, way = ("files", FINER) if key.link.through == "fts" else ("datasets", f"{FINER}, {CUT}")
            log.warning(
                "a step of %s at %s holds only %.1f %s of %s, the mean of what the source has: "
                "one more or less looks like a link that does not follow; %s",
                units.format_duration(self._ladder.every),
                units.format_rate(self._ladder.first),
                few,
                what,
                units.format_size(round(row.pool_bytes / row.pool_items)),
                way,
            )

    def _judge(self, key: FlowKey, reading: Reading) -> None:
        """End a step: say what it has shown, and set what comes after it."""
        assert self._step is not None
        idle = self._step.idle
        self.verdicts.append(replace(climb.verdict(self._step), early=idle and not self._step.over(self._ladder)))
        last = self.verdicts[-1]
        decision = climb.after(self._ladder, self.verdicts)
        if idle or reading.at >= self._until:
            decision = Decision(Next.STOP)
        self.decisions.append(decision)
        log.info("%s", sentence(len(self.verdicts), last, decision))
        if decision.what is Next.STOP:
            self._over = reading.at
            return
        self._step = Step(decision.rate, (reading,))
        if decision.rate != last.rate:
            why = f"{decision.what}, after {units.format_rate(last.rate)}"
            self._ledger.override(str(key.link), Kind.RATE, decision.rate, self._who, why, reading.at)

    def _ended(self, made: Campaign, now: datetime) -> Campaign:
        """Return the campaign with nothing more due, and at its end when nothing is on its way or for too long."""
        assert self._over is not None
        cycle = Cycle.at(self._over, made.cycle)
        waiting = self._ledger.entries(State.CALLED, State.LIVE)
        end = cycle.start + self._patience * made.cycle if waiting else now
        menus = tuple(
            replace(
                menu,
                end=min(menu.end, max(end, menu.start)),
                flows=tuple(replace(flow, end=max(min(flow.end, cycle.start), flow.start)) for flow in menu.flows),
            )
            for menu in made.menus
        )
        return replace(made, menus=menus)

    def _read(self, key: FlowKey, now: datetime) -> Reading:
        """Read the link's account; files that Rucio has given up count as failed before their rule does."""
        account = self._ledger.accounts().get(key, Totals())
        stuck = sum(
            entry.injection.item.bytes * entry.files_stuck // max(entry.injection.item.files, 1)
            for entry in self._ledger.entries(State.LIVE)
        )
        hold = next((row.held.hold for row in self._rows() if row.key == key and row.held), None)
        since = max(now - LATELY, self._step.readings[0].at if self._step else now)
        completion = self._ledger.completion_times(since).get(key)
        return Reading(now, account.moved, account.accepted, account.failed + stuck, completion, hold)

    def _rows(self) -> Sequence[Row]:
        cycle = self._ledger.last_cycle()
        return () if cycle is None else self._ledger.rows(cycle=cycle)


def sentence(number: int, verdict: Verdict, decision: Decision) -> str:
    """Say in one line what a step has shown, and what comes next."""
    what = f"step {number}: {units.format_rate(verdict.moved_rate)} of {units.format_rate(verdict.rate)} moved"
    why = f" ({verdict.why})" if verdict.why else ""
    then = f", {units.format_rate(decision.rate)}" if decision.rate else ""
    return f"{what}{why}; {decision.what}{then}"
