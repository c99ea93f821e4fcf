"""The engine: a time line of cycles, releases and observations on a clock, with calls in other threads.

It runs unchanged on the system's clock with threads, and on a simulated clock whose waiting advances the world.
Only this thread writes the ledger. The process can die at any instruction: every step is on disk before the
next, and the next start goes on from there.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta

from dc_inject.control import Windows
from dc_inject.engine import second_hops
from dc_inject.engine.another_injector import Alone, AnotherInjector
from dc_inject.engine.calls import Calls
from dc_inject.engine.clock_watch import ClockWatch
from dc_inject.engine.closing import END_OF_RUN, Closing
from dc_inject.engine.context import EngineContext, Planner, Settings
from dc_inject.engine.deleting import choose_files_to_delete, report_files_left
from dc_inject.engine.health_checks import Checking
from dc_inject.engine.opening import Opening, paused
from dc_inject.engine.rate_changes import Overriding
from dc_inject.engine.reconciler import IN_SERVICE, Rounds
from dc_inject.engine.submitting import Submitting
from dc_inject.ledger import Ledger
from dc_inject.model import Campaign, Cycle, Held, Hold, State, overrides, redaction, units
from dc_inject.model.errors import DcInjectError, LedgerError, ServiceError
from dc_inject.model.events import CycleOpened, MenusRefused, Observer, Planned, Silent, UnexpectedError
from dc_inject.model.goals import SecondHop, Volume
from dc_inject.model.ports import Backend, Clock, Closable, Executor, Identity, MachineClock
from dc_inject.model.services import SERVICES, injections
from dc_inject.planning import plan
from dc_inject.planning.reconcile import backoff
from dc_inject.planning.second_hops import select_second_hops

log = logging.getLogger(__name__)

PLAN_AT_MOST = 0.1  # of a cycle: the longest wait before a plan that could not be made is tried again
DELETED_WITHIN = timedelta(hours=24)  # how long the drain goes on deleting files that no service deletes
COLLECTIONS = 100_000, 20, 20  # objects until Python's collector looks at the new ones, at older ones, at all
GRACE = timedelta(seconds=30)  # how long a stop waits for answers that are under way


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Let Python look for cyclic garbage rarely: there is little, and each time it walks all pools and entries."""
    before = gc.get_threshold()
    gc.set_threshold(*COLLECTIONS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class Engine:
    """Injects one campaign until its menus end, or until it is stopped."""

    def __init__(
        self,
        *,
        menus: Callable[[], Campaign],
        ledger: Ledger,
        backends: Mapping[str, Backend],
        identities: Mapping[str, Identity],
        clock: Clock,
        executor: Executor,
        observer: Observer = Silent(),
        settings: Settings = Settings(),
        alone: Alone | None = None,
        machine: MachineClock | None = None,
        in_force: Campaign | None = None,
        planner: Planner | None = None,
    ) -> None:
        """Put the parts together; `menus` is read again in each cycle and may raise MenuError.

        `in_force` is the campaign that they made at the start, if it is known; the files may be wrong by now.
        `alone` looks for other injectors of the campaign; without it there is no check. `machine` is the clock
        where it is that of a machine, which may leap. `planner` decides on each cycle, else `planning.plan`.
        """
        self._menus = menus
        self._in_menus = self._campaign = in_force or menus()
        self._clock = clock
        self._executor = executor
        self._calls = Calls(executor, clock)
        self._context = EngineContext(
            campaign_name=self._campaign.name,
            ledger=ledger,
            backends=backends,
            identities=dict(identities),
            clock=clock,
            calls=self._calls,
            observer=observer,
            settings=settings,
            alone=alone,
            planner=planner or plan,
            governor=Windows(ledger),
        )
        self._opening = Opening(self._context)
        self._submitting = Submitting(self._context)
        self._closing = Closing(self._context, self._submitting)
        self._rounds = Rounds(self._context, self._submitting.not_carried_out, self._submitting.under_way)
        self._clock_watch = ClockWatch(self._context, machine)
        self._checking = Checking(self._context, self._works_again)
        self._overriding = Overriding(self._context, self._submitting)
        self._since = ledger.begin(clock.now())
        if alone:
            ledger.started(alone.origin.start, alone.origin.who, clock.now())
        self._cycle: Cycle | None = None
        self._plan_at: datetime | None = None  # when to try (again) to plan the current cycle
        self._tries = 0
        self._observe_at = clock.now()
        self._ended_at: datetime | None = None  # when the drain saw that nothing of ours is live
        self.stopping = False
        self.menus_refused = False  # at the last turn: the last good ones are in force
        self._lost = ""  # why the drain has given up
        self._paused = {pause.subject for pause in ledger.pauses()}
        self._logged_left: timedelta | None = None  # how long until the next window, as it was last logged
        for service in backends:
            ledger.signal("service", service, "answers", clock.now())

    def stop(self) -> None:
        """Stop injecting as soon as possible; rules stay live. May be called from a signal handler."""
        self.stopping = self._calls.stopping = True
        self._executor.wake()

    def run(self, *, until: datetime | None = None, once: bool = False) -> None:
        """Inject until the menus end (or `until`), then drain; with `once`, exactly the current cycle."""
        end = Cycle.at(self._clock.now(), self._campaign.cycle).end if once else until
        with _rare_collections():
            try:
                done = self._go_on(end, once=once)
            except AnotherInjector:
                self._hear(self._clock.now() + GRACE)  # what it has asked for is in the ledger then
                raise
            self._leave(done=done)
        if self._lost:
            raise ServiceError(self._lost, "they are in the ledger: run it again when their service answers")

    def _go_on(self, end: datetime | None, *, once: bool) -> bool:
        """Take one step after the other until it is done, or stopped; returns whether it is done."""
        while not self.stopping:
            now = self._clock.now()
            if self._done(now, end, once=once):
                return True
            try:
                self._step(now, end)
                self._calls.wait(self._next(now, end))
            except LedgerError:
                raise
            except Exception as error:  # noqa: BLE001  one bug in one cycle must not end twelve days
                self._survive(error, now)
        return False

    def _survive(self, error: Exception, now: datetime) -> None:
        """Log, count and keep the trace of an unexpected error; then go on."""
        log.error(
            "unexpected %s; injection continues, and the trace is in the ledger's notes",
            type(error).__name__, exc_info=error,
        )  # fmt: skip
        self._context.ledger.note(redaction.trace(error), now)
        self._context.report(UnexpectedError(type(error).__name__))
        if self._cycle is not None and not self._context.ledger.is_planned(self._cycle):
            self._tries += 1
            self._plan_at = now + self._plan_wait(self._cycle)
        self._calls.wait(now + max(self._context.settings.poll, timedelta(seconds=1)))

    # ------------------------------------------------------------------ one step of the time line

    def _step(self, now: datetime, end: datetime | None) -> None:
        self._context.ledger.require_in_place()
        if self._clock_watch.look():
            self._checking.soon()
        cycle = Cycle.at(now, self._campaign.cycle)
        if self._cycle is None or cycle.start > self._cycle.start:  # a clock that stepped back changes nothing
            self._turn(cycle, injecting=end is None or cycle.start < end)
        if self._plan_at is not None and now >= self._plan_at:
            self._plan(self._cycle or cycle, now)
        if self.stopping:
            return
        every = self._campaign.cycle / self._context.settings.observations_per_cycle
        # A clock that went forward and back leaves moments behind that would not come for hours.
        self._observe_at = min(self._observe_at, now + every)
        self._checking.round(now)
        self._brake()
        if end is not None and now >= end:
            self._submitting.withdraw(None, END_OF_RUN)
        self._submitting.send(self._clock.now())
        if now >= self._observe_at:
            self._rounds.round(now, every)
            self._observe_at = now + every

    def _works_again(self) -> None:
        """Go on at once when a service has been repaired."""
        self._submitting.spread_overdue()
        self._plan_at = self._plan_at and self._clock.now()

    def _next(self, now: datetime, end: datetime | None) -> datetime:
        """When there is something to do again, unless an answer or a signal comes first."""
        moments = [now + max(self._context.settings.poll, timedelta(milliseconds=1)), self._observe_at]
        if self._cycle is not None:
            moments.append(self._cycle.end)
        moments += self._checking.moments()
        moments += [m for m in (self._plan_at, self._submitting.next_release(), end) if m is not None]
        return max(min(m for m in moments if m > now), now)

    def _done(self, now: datetime, end: datetime | None, *, once: bool) -> bool:
        if once:
            return end is not None and now >= end
        if now < (end or self._campaign.end) and not self._reached(now):
            self._ended_at = None  # a menu may have been given more
            return False
        return not self._context.settings.drain or self._drained(now)

    def _reached(self, now: datetime) -> bool:
        """Whether all that is still to come are volumes, each of which has arrived, to within half a dataset."""
        if not all(isinstance(flow.goal, Volume | SecondHop) for flow in self._campaign.left(now)):
            return False  # asked at every step: mostly, the first flow decides
        flows, cycle = list(self._campaign.left(now)), self._cycle
        if cycle is None or not flows:
            return False
        rows = {row.key: row for row in self._context.ledger.rows(cycle=cycle)}
        at_rest = {key for key, row in rows.items() if not (row.due or row.forgiven or row.held)}
        if not {flow.key for flow in flows} <= at_rest or not self._context.ledger.is_planned(cycle):
            return False
        aims = self._context.ledger.goals()  # as the cycle was opened with; a menu may have been edited since
        if any(aims.get(flow.key) != (flow.goal.kind, flow.goal.bytes) for flow in flows if flow.goal):
            return False
        onward = select_second_hops(flows)
        waiting = second_hops.going_on(self._context, self._context.ledger.entries(*IN_SERVICE), onward).waiting
        if any(waiting[hop] for hop in onward):
            return False
        return not self._context.ledger.entries(State.INTENDED, State.CALLED, State.LIVE)

    def _drained(self, now: datetime) -> bool:
        """Whether nothing of ours is live, and its bytes are gone or were waited for long enough."""
        live = self._context.ledger.entries(*IN_SERVICE)
        if live and all((e.expires_at or e.called_at or now) + DELETED_WITHIN <= now for e in live):
            message = units.counted(len(live), injections(self._context.backends))
            self._lost = f"no service reports how {message} stand, long after the end of their lifetime"
            return True
        if self._calls.under_way or live:
            return False
        ended = self._context.ledger.entries(State.ENDED)
        if self._ended_at is None or self._ended_at > now:  # the clock may have been ahead for a while
            self._ended_at = now
            staying = sum(not entry.injection.link.service.reads for entry in ended)
            left = f"; not yet known to be gone from their destinations: {staying}" if staying else ""
            log.info("all rules and jobs have ended%s", left)
        wait = self._context.settings.wait_deleted_cycles * self._campaign.cycle
        if choose_files_to_delete(self._context, ended):
            wait = DELETED_WITHIN  # no service will delete those
        return now >= self._ended_at + wait or not ended

    def _leave(self, *, done: bool) -> None:
        """Hear the answers that are under way; the rest is in the ledger and goes on at the next start."""
        deadline = self._clock.now() + GRACE
        if self.stopping and self._calls.under_way:
            log.info("waiting at most %d s for %s", GRACE.seconds, units.counted(self._calls.under_way, "answers"))
        ends = {name: one.close for name, one in self._context.backends.items() if isinstance(one, Closable)}
        self._hear(deadline - GRACE / 2 if ends else deadline)  # the other half is for what ends with this process
        for name, close in ends.items():
            self._calls.start(close, self._look_once_more, f"end of {name}")  # calls of its lane may hang
        if self._context.settings.end_on_stop and self.stopping:
            self._submitting.withdraw(None, "stopped")
            if not ends:
                self._look_once_more()  # at what has become complete meanwhile
            self._hear(deadline)
            live = self._context.ledger.entries(*IN_SERVICE)
            read = second_hops.going_on(self._context, live, ()).read
            ready = [e for e in live if e.state is State.COMPLETE and e.injection.key not in read]
            self._rounds.end(ready)
            self._hear(deadline)
            while self._rounds.ends_are_open() and self._clock.now() < deadline:  # their files are deleted then
                self._rounds.round(self._clock.now(), timedelta(0))
                self._calls.wait(min(self._clock.now() + timedelta(seconds=1), deadline))
        self._hear(deadline)
        if not self._context.settings.ends_afterwards:
            report_files_left(self._context)
        if self._cycle in self._context.ledger.unclosed() and (done or self._clock.now() >= self._cycle.end):
            self._closing.close(self._cycle, self._cycle, self._tries)

    def _look_once_more(self, _: object = None, error: ServiceError | None = None) -> None:
        """Observe all that is in a service, after what was to end with this process has ended, or has not."""
        if error is not None:
            log.warning("%s", error.message)
        self._rounds.round(self._clock.now(), timedelta(0))

    def _hear(self, deadline: datetime) -> None:
        """Wait for the calls that are under way."""
        while self._calls.under_way and self._clock.now() < deadline:
            self._calls.wait(deadline)

    # ------------------------------------------------------------------ the turn of a cycle

    def _turn(self, cycle: Cycle, *, injecting: bool) -> None:
        """Close what is over, open what was missed, and open this cycle."""
        self._context.ledger.turned(self._clock.now())
        self._take_up_menus()
        if self._cycle is not None and self._campaign.in_force(self._cycle.start, self._cycle.end):
            # Open one in which we only drained: it is not one without a run. One that is open stays as it is.
            self._context.ledger.open_cycle(self._cycle, {}, self._clock.now())
        missed = self._missed(cycle)
        for old in self._context.ledger.unclosed():
            if old < cycle:
                self._closing.close(old, self._cycle, self._tries)
        gone = Held(Hold.NOT_RUNNING, {"cycles": len(missed)})
        for number, slot in enumerate(missed):
            if self.stopping:
                missed = missed[:number]  # the next start goes on from there
                break
            self._opening.dues(self._overriding.missed(self._in_menus, slot), slot, self._since, gone)
        self._closing.absent(missed, lambda: self.stopping)
        if self.stopping:
            return
        self._campaign = self._overriding.over(self._in_menus)
        self._cycle, self._plan_at, self._tries = cycle, None, 0
        self._overriding.report_standing([menu.name for menu in self._campaign.in_force(cycle.start, cycle.end)])
        self._context.troubles.clear()
        self._rounds.take_up(self._campaign.flows)
        self._submitting.load(cycle)
        self._rounds.once_a_cycle(self._clock.now())
        if injecting and self._campaign.in_force(cycle.start, cycle.end):
            self._opening.dues(self._campaign, cycle, self._since)
            if not self._context.ledger.is_planned(cycle):
                self._plan_at = self._clock.now()
        else:
            self._opening.drain(cycle)
        if injecting:
            self._log_wait(cycle)
        if injecting and self._context.alone:
            context = self._context
            self._context.alone.ask(context.ledger, context.backends, self._calls, cycle, self._campaign.start)
        self._context.report(CycleOpened(cycle))

    def _log_wait(self, cycle: Cycle) -> None:
        """Log when the next window starts while none is open: at first, and whenever half of the wait is over.

        When there is none any more, log in each cycle what is left.
        """
        later = [menu.start for menu in self._campaign.menus if menu.start >= cycle.end]
        if not later or self._campaign.in_force(cycle.start, cycle.end):
            self._logged_left = None
            if cycle.start >= self._campaign.end:
                counts = self._context.ledger.state_counts()
                live, ended = (
                    sum(counts.get(state, (0, 0))[0] for state in states) for states in (IN_SERVICE, [State.ENDED])
                )
                left = units.counted(live + ended, injections(self._context.backends))
                log.info("the menus are over; left: %s, %d to be deleted", left, ended)
            return
        start = min(later)
        remaining = start - self._clock.now()
        if self._logged_left is None or remaining <= self._logged_left / 2:
            self._logged_left = remaining
            which = "first" if start == self._campaign.start else "next"
            log.info(
                "the %s window starts in %s, at %s", which, units.format_duration(remaining), f"{start:%F %TZ}"
            )

    def _missed(self, cycle: Cycle) -> list[Cycle]:
        """Return the cycles between the last one in the ledger and this one, while no injector was running."""
        last = self._context.ledger.last_cycle()
        slot, missed = (last.next if last else cycle), []
        slot = max(slot, Cycle.at(self._campaign.start, cycle.length))
        while slot < cycle and slot.start < self._campaign.end and not self.stopping:
            if self._campaign.in_force(slot.start, slot.end):
                missed.append(slot)
            slot = slot.next
        return missed

    def _take_up_menus(self) -> None:
        try:
            self._in_menus = self._menus()
            self.menus_refused = False
            self._context.ledger.signal("menus", "files", "in force", self._clock.now())
        except LedgerError:
            raise
        except DcInjectError as error:
            self._refuse_menus(str(error))
        except Exception as error:  # noqa: BLE001  a menu must not be able to stop what is in force
            self._context.ledger.note(redaction.trace(error), self._clock.now())
            self._refuse_menus(f"unexpected {type(error).__name__}, its trace is in the ledger's notes", error)

    def _refuse_menus(self, why: str, unexpected: Exception | None = None) -> None:
        self.menus_refused = True
        log.warning(
            "the menus are not taken up, the last good ones stay in force:\n%s", why, exc_info=unexpected,
            extra={"event": "menus-refused", "fields": {"why": why}},
        )  # fmt: skip
        self._context.ledger.signal("menus", "files", None, self._clock.now(), why)
        self._context.report(MenusRefused(why))

    def _plan(self, cycle: Cycle, now: datetime) -> None:
        """Plan a cycle, the current one, or return when to try again."""
        self._plan_at = None
        patience = cycle.start + cycle.length * self._context.settings.planning_part
        try:
            opened = self._opening.decide(self._campaign, cycle, last_try=now >= patience and self._tries > 0)
        except ServiceError as error:
            self._tries += 1
            retry_at = self._clock.now() + self._plan_wait(cycle)
            if retry_at < cycle.end:
                self._plan_at = retry_at
            if self._tries == 1:
                self._context.warn("plan", f"cycle {cycle} is not planned yet: {error.message}")
            self._context.ledger.signal("plan", "cycle", None, self._clock.now(), error.message)
            return
        self._context.ledger.signal("plan", "cycle", "made", self._clock.now())
        self._submitting.load(cycle)
        self._submitting.planned(opened.situation, opened.budgets, opened.unseen)
        self._context.report(Planned(cycle, (self._clock.now() - now).total_seconds()))

    def _plan_wait(self, cycle: Cycle) -> timedelta:
        shortest = self._context.settings.first_retry
        return backoff(self._tries, cycle.name, shortest, max(PLAN_AT_MOST * cycle.length, shortest))

    def _brake(self) -> None:
        """Drop intents of what a person has paused since planning."""
        pauses = self._context.ledger.pauses()
        for pause in pauses:
            if pause.subject not in self._paused:
                subject = overrides.shown(pause.subject, "the campaign")
                values = {"subject": pause.subject, "who": pause.who, "why": pause.why}
                log.info(
                    "%s is stopped by %s (%s)",
                    subject, pause.who, pause.why or "no reason given",
                    extra={"event": "stopped", "fields": values},
                )  # fmt: skip
        for subject in sorted(self._paused - {pause.subject for pause in pauses}):
            shown = overrides.shown(subject, "the campaign")
            values = {"subject": subject}
            log.info("%s resumes with the next cycle", shown, extra={"event": "resumed", "fields": values})
        self._paused = {pause.subject for pause in pauses}
        if self._cycle is not None and self._plan_at is None:  # a plan that is still to be made is heeded then
            self._overriding.apply_lower_rates(self._in_menus, self._cycle, self._clock.now())
        if pauses and any(SERVICES[name].reads for name in self._context.backends):
            live = [entry for entry in self._context.ledger.entries(State.LIVE) if entry.end_asked_at is None]
            readers = (entry for entry in live if entry.injection.link.service.reads)
            self._rounds.end(entry for entry in readers if paused(pauses, entry.injection.flow))
        if pauses and self._cycle is not None:
            flows = {flow.key for flow in self._campaign.flows if paused(pauses, flow.key)}
            dropped = self._submitting.withdraw(flows, "paused")
            self._context.ledger.forgive(self._cycle, dropped)  # a stop is not followed by a burst
            for flow in dropped:
                self._context.trouble(flow, Hold.PAUSED, "in the middle of the cycle")
