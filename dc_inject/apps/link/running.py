"""A mini-challenge while it runs: its menu is written, its link injects, and each cycle is shown in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from dc_inject.apps.link import mini_challenge, records, verdicts
from dc_inject.apps.link.judging.progress import Progress
from dc_inject.apps.link.judging.reading import Reading
from dc_inject.apps.link.judging.steps import Next, NextStep
from dc_inject.apps.link.judging.verdict import Verdict
from dc_inject.apps.link.mini_challenge import MiniChallenge
from dc_inject.apps.link.reachability import Reachability
from dc_inject.apps.link.records import LinkReader
from dc_inject.assembly.starting import WrapMenus
from dc_inject.credentials import trust
from dc_inject.ledger import Ledger, Row, ledger_files
from dc_inject.ledger.paths import link_menu, make_folder
from dc_inject.model import Campaign, Cycle, FlowKey, State, units
from dc_inject.model.errors import LedgerError
from dc_inject.model.held import format_numbers
from dc_inject.model.overrides import Kind
from dc_inject.model.ports import Clock
from dc_inject.summary import standing
from dc_inject.system import account, files

log = logging.getLogger(__name__)

# A step is judged by at least one cycle: who stops for longer than two of these can cost it what it may lack.
LOOKS = 10  # in a cycle, whether storages accept connections
OFTEN = timedelta(seconds=1)  # between two of them, at least


def write_menu(challenge: MiniChallenge, *, force: bool) -> Path:
    """Write the menu into the state folder."""
    path = link_menu(ledger_files.file_of(None, challenge.campaign))
    try:
        make_folder(path.parent)
    except OSError as error:
        raise LedgerError(
            f"{path.parent} cannot be created: {error.strerror or error}", "check XDG_STATE_HOME"
        ) from None
    # One without a ledger is left from a start that failed.
    files.write_whole(path, challenge.text(), force=force or path.exists())
    return path


def carry_out(
    challenge: MiniChallenge,
    progress: Progress,
    storages: Reachability,
    inject: Callable[[WrapMenus], bool],
) -> bool:
    """Inject, and judge the step that was cut short; `inject` gets what changes the menus.

    Returns what `inject` returns: False if it was stopped.
    """
    climbs: list[Climbing] = []
    named = (
        [*challenge.link.ends, challenge.options.endpoint or ""] if challenge.link.service.ends_are_urls else []
    )

    def wrap_menus(menus: Callable[[], Campaign], ledger: Ledger, clock: Clock) -> Callable[[], Campaign]:
        ledger.keep_challenge("asked", challenge.serialize_challenge(), clock.now())
        ledger.trust(trust.hosts(named), account.who(), clock.now())  # for `end`, if it has to be called for it
        climbs.append(
            Climbing(
                menus,
                ledger=ledger,
                clock=clock,
                progress=progress,
                who=f"dc-inject link of {account.who()}",
                on_cycle=lambda: _show(ledger, challenge),
                patience=mini_challenge.PATIENCE,
                down=storages.down,
            )
        )
        return climbs[0]

    with storages.watched(max(challenge.cycle / LOOKS, OFTEN)):
        finished = inject(wrap_menus)
    with Ledger.open(ledger_files.file_of(None, challenge.campaign)) as ledger:
        climbs[0].finish(ledger, challenge.key)
    return finished


def _show(ledger: Ledger, challenge: MiniChallenge) -> None:
    """Log what the line about a cycle lacks: the numbers of a hold, and how much of our data is there."""
    if rows := standing.rows(ledger):
        cycle = ledger.last_cycle()
        if cycle is not None and (since := standing.joined(ledger, cycle)):
            log.info("%s", standing.explain_late_start(units.format_time(since)))
        for row in rows:
            if row["numbers"]:
                log.info("held by %s: %s", row["held"], format_numbers(row["numbers"]))
        ours = verdicts.resident(ledger)
        here, most = units.format_size(ours), units.format_size(challenge.space)
        values = {"destination": challenge.link.destination, "bytes": ours, "most": challenge.space}
        log.info(
            "our data at or on the way to %s: %s of %s",
            challenge.link.destination, here, most,
            extra={"event": "resident", "fields": values},
        )  # fmt: skip


log = logging.getLogger(__name__)


class Climbing:
    """Stands before the menus of one link: the engine asks at each turn, and gets the menus, or their end.

    The rate of a step is set as a person would set it, and taken back in the end. Once the last step is over
    nothing more is due; what is on its way has `patience` cycles to arrive. What is read is kept in the ledger, so
    that another process can go on, or give the verdict.
    """

    def __init__(
        self,
        menus: Callable[[], Campaign],
        *,
        ledger: Ledger,
        clock: Clock,
        progress: Progress,
        who: str,
        on_cycle: Callable[[], None] = lambda: None,
        patience: int = 2,
        down: Callable[[], str] = lambda: "",
    ) -> None:
        """Take the menus of one link and its progress; `on_cycle` is called after each cycle.

        `classify` returns the class of a service's reason for failed files, `down` the name of a storage that
        does not answer now.
        """
        self._menus = menus
        self._ledger = ledger
        self._clock = clock
        self._progress = progress
        self._who = who
        self._on_cycle = on_cycle
        self._patience = patience
        self._down = down
        self._last: Reading | None = None

    @property
    def verdicts(self) -> list[Verdict]:
        """What the steps so far have shown."""
        return self._progress.verdicts

    @property
    def decisions(self) -> list[NextStep]:
        """What came after each of them."""
        return self._progress.decisions

    def __call__(self) -> Campaign:
        """Return the campaign for the cycle that begins now."""
        campaign, now = self._menus(), self._clock.now()
        (key,) = {flow.key for flow in campaign.flows}
        if self._last is None:
            self._begin(key, campaign, now)
            return campaign
        if self._progress.over is None:
            # A turn is read as of its slot: the milliseconds that it is late would cost a step another cycle.
            reading = replace(self._read(key, now), at=Cycle.at(now, campaign.cycle).start)
            if reading.at > self._last.at:
                self._take(key, reading)
                self._on_cycle()
        over = self._progress.over
        if over is not None:
            return self._ended(campaign, over, now)
        return _without_dues(campaign, Cycle.at(now, campaign.cycle).start) if self._progress.paused else campaign

    def finish(self, ledger: Ledger, key: FlowKey) -> None:
        """Judge the current step, if it was ended early, and take back what was set.

        The ledger is a new connection: that of the engine is closed by then.
        """
        self._ledger = ledger
        now = self._clock.now()
        if self._last is not None and self._progress.over is None:
            # The cycle is not over: that nothing was seen since its begin does not mean that a service is silent.
            reading = replace(self._read(key, now), silent=False)
            self._keep("stopped", reading)
            self._progress.stopped(reading)
        ledger.unset(str(key.link), Kind.RATE, self._who, "the mini-challenge is over", now)

    def _begin(self, key: FlowKey, campaign: Campaign, now: datetime) -> None:
        """Take the first reading of this process; set the rate again of one that goes on."""
        reading = replace(self._read(key, now), fresh=True)
        self._take(key, reading)
        rate = self._progress.rate
        if rate != campaign.flows[0].rate:
            self._ledger.override(str(key.link), Kind.RATE, rate, self._who, "going on", now)

    def _take(self, key: FlowKey, reading: Reading) -> None:
        """Keep a reading; where a step ends with it, log its verdict, and set the next rate."""
        self._last = reading
        self._keep("reading", reading)
        decision = self._progress.take(reading)
        if decision is None:
            return
        last = self.verdicts[-1]
        values = {
            "step": len(self.verdicts),
            "rate": last.rate,
            "moved_rate": last.moved_rate,
            "outcome": last.outcome.value,
            "why": last.why,
            "next": decision.kind.value,
        }
        log.info(
            "%s", sentence(len(self.verdicts), last, decision), extra={"event": "step-ended", "fields": values}
        )
        if decision.kind is not Next.STOP and decision.rate != last.rate:
            why = f"{decision.kind}, after {units.format_rate(last.rate)}"
            self._ledger.override(str(key.link), Kind.RATE, decision.rate, self._who, why, reading.at)

    def _keep(self, kind: str, reading: Reading) -> None:
        self._ledger.keep_challenge(kind, records.written(reading), reading.at)

    def _ended(self, campaign: Campaign, over: datetime, now: datetime) -> Campaign:
        """Return the campaign with nothing more due after its last step.

        It is at its end when nothing is on its way, or has been for too long.
        """
        cycle = Cycle.at(over, campaign.cycle)
        waiting = self._ledger.entries(State.CALLED, State.LIVE)
        end = cycle.start + self._patience * campaign.cycle if waiting else now
        campaign = _without_dues(campaign, cycle.start)
        menus = tuple(replace(menu, end=min(menu.end, max(end, menu.start))) for menu in campaign.menus)
        return replace(campaign, menus=menus)

    def _read(self, key: FlowKey, now: datetime) -> Reading:
        step = self._progress.step
        since = step.readings[0].at if step and step.readings else None
        reading = LinkReader(key).now(self._ledger, now, self._last, since)
        return replace(reading, down=self._down())

    def _rows(self) -> Sequence[Row]:
        cycle = self._ledger.last_cycle()
        return () if cycle is None else self._ledger.rows(cycle=cycle)


def _without_dues(campaign: Campaign, since: datetime) -> Campaign:
    """Return the campaign with nothing due from a moment on."""
    menus = tuple(
        replace(menu, flows=tuple(replace(flow, end=max(min(flow.end, since), flow.start)) for flow in menu.flows))
        for menu in campaign.menus
    )
    return replace(campaign, menus=menus)


def sentence(number: int, verdict: Verdict, decision: NextStep) -> str:
    """Return in one line what a step has shown, and what comes next."""
    moved, rate = units.format_rate(verdict.moved_rate), units.format_rate(verdict.rate)
    why = f" ({verdict.why})" if verdict.why else ""
    then = f", {units.format_rate(decision.rate)}" if decision.rate else ""
    then += ", when what waits has arrived" if decision.pause else ""
    since = f" ({decision.why})" if decision.why else ""
    return f"step {number}: {moved} of {rate} moved, {verdict.outcome}{why}; {decision.kind}{then}{since}"
