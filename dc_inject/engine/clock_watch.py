"""The clock of this machine while we run: a leap is followed only once a service shows the same time."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from dc_inject.engine.context import EngineContext
from dc_inject.model import units
from dc_inject.model.ports import MachineClock
from dc_inject.planning import clocks

log = logging.getLogger(__name__)

ASK_EVERY = timedelta(seconds=20)  # services that are to confirm a leap
WORDS = {
    "": "",
    "untold": "and no service has shown its time since; it is not followed until one does",
    "refuted": "and the services' clocks do not confirm it; it is not followed",
}
EVENT = {"event": "clock"}
LEAPT, DIFFERS = ("clock", "this machine"), ("clocks", "services")  # the signals
AGAIN = {LEAPT: "the time that has passed", DIFFERS: "the services' clocks"}


class ClockWatch:
    """Compares this machine's clock with the time that has passed, and with the services' clocks."""

    def __init__(self, context: EngineContext, machine: MachineClock | None) -> None:
        """Take the machine's clock; a simulated one has none, and never leaps."""
        self._context = context
        self._machine = machine
        left = {(signal.name, signal.subject) for signal in context.ledger.signals() if signal.value is None}
        # Of what is wrong, by signal; what an earlier run has left is written again.
        self._kinds = {signal: "left" for signal in (LEAPT, DIFFERS) if signal in left}
        self._asked_at: datetime | None = None
        if machine is not None:
            machine.guard()

    def look(self) -> bool:
        """Follow a leap that a service confirms, and report others; return whether to ask the services now."""
        if self._machine is None:
            return False
        machine, known = self._machine, self._context.identities
        shown = {name: machine.ahead(identity.address) for name, identity in known.items()}
        leap, ahead = machine.leap(), {name: ahead for name, ahead in shown.items() if ahead is not None}
        if leap and clocks.is_confirmed(leap, ahead):
            self._machine.follow()
            log.warning("this machine's clock leapt %s, as the services' clocks show: it is followed", _by(leap))
            leap = timedelta(0)
        farthest = self._machine.farthest()
        if farthest and not leap and not self._kinds.get(LEAPT):  # while we did something else
            log.error("this machine's clock leapt %s and back; it was not followed", _by(farthest), extra=EVENT)
        kind = ("refuted" if ahead else "untold") if leap else ""
        self._report(LEAPT, kind, f"this machine's clock leapt {_by(leap)}, {WORDS[kind]}", logging.ERROR)
        far = "" if leap else " ".join(sorted(name for name, one in ahead.items() if clocks.differ({name: one})))
        self._report(DIFFERS, far, clocks.sentence(ahead), logging.WARNING)
        return kind == "untold" and self._is_time_to_ask()

    def _is_time_to_ask(self) -> bool:
        now = self._context.clock.now()
        if self._asked_at is not None and self._asked_at <= now < self._asked_at + ASK_EVERY:
            return False
        self._asked_at = now
        return True

    def _report(self, signal: tuple[str, str], kind: str, why: str, level: int) -> None:
        """Write down and log what is wrong (of no kind: nothing), when its kind has changed."""
        before = self._kinds.get(signal, "")
        if kind == before:
            return
        self._kinds[signal] = kind
        self._context.ledger.signal(
            *signal, None if kind else "agrees", self._context.clock.now(), why if kind else ""
        )
        if kind:
            log.log(level, "%s", why, extra={"event": signal[0], "fields": {"why": why}})
        elif before:
            log.info("this machine's clock agrees again with %s", AGAIN[signal], extra={"event": signal[0]})


def _by(leap: timedelta) -> str:
    duration = units.format_duration(timedelta(seconds=round(abs(leap).total_seconds())))
    return f"{duration} {'ahead' if leap > timedelta(0) else 'back'}"
