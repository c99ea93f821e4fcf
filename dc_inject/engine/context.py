"""What the parts of the engine share: the ledger, the services, the time, and what is known to be broken."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

from dc_inject.control import Governor
from dc_inject.engine.another_injector import Alone
from dc_inject.engine.call_limits import Breaker, Limit, LinkWaits
from dc_inject.engine.calls import Calls
from dc_inject.engine.spaces import Looks
from dc_inject.ledger import Ledger
from dc_inject.ledger.types import BLAMED
from dc_inject.model import FlowKey, Held, Hold, Injection, Numbers
from dc_inject.model.errors import LinkRefused, NeedsOperator, ServiceError, Temporary
from dc_inject.model.events import BreakerSwitched, Event, LinkTroubled, ObservationLost, Observer, ServiceFailed
from dc_inject.model.plan import Plan
from dc_inject.model.ports import Backend, Clock, Identity
from dc_inject.model.services import SERVICES
from dc_inject.planning import plan
from dc_inject.planning.plan import Demand, Destination, Situation

log = logging.getLogger(__name__)

SLICES_AGAIN = timedelta(hours=1)  # after which slices are tried again that the service has refused
_WHY = 200  # characters of a message that a row has
LOG_AGAIN = timedelta(minutes=5)  # trouble that lasts is not logged more often


@dataclass(frozen=True, slots=True)
class Settings:
    """How the engine works; none of these changes what is due.

    `call_grace` has to be longer than a call can take on its way and in the service: only after it a lost
    request counts as not carried out. `poll` is how long a pause from another terminal may go unseen.
    """

    inventory_age: timedelta = timedelta(hours=12)
    call_grace: timedelta = timedelta(minutes=3)
    first_retry: timedelta = timedelta(seconds=2)
    poll: timedelta = timedelta(seconds=2)
    submits_at_once: int = 16  # handed to the executor; more would go out after a stop
    observations_per_cycle: int = 5  # how often in a cycle our rules are observed
    planning_part: float = 0.25  # of a cycle, in which reads that fail are tried again before planning without
    drain: bool = True
    end_on_stop: bool = False
    ends_afterwards: bool = False  # whoever runs the engine ends what is left, and deletes its files
    wait_deleted_cycles: int = 3  # after the last rule has ended, how long the drain watches its bytes go


class Planner(Protocol):
    """What decides what a cycle injects: `planning/plan.py`, unless a run is given another one."""

    def plan(self, situation: Situation) -> Plan:
        """Return what each demand gets in this cycle."""

    def refill(
        self, situation: Situation, room: Mapping[FlowKey, int], standing: Sequence[Injection] = ()
    ) -> tuple[Injection, ...]:
        """Return injections in place of those that could not be used; `room` are the bytes left, by flow."""


@dataclass(frozen=True, slots=True)
class Room:
    """How many bytes of ours a destination may have, those on their way included, and on what that rests."""

    bytes: int
    numbers: Numbers
    destination: Destination

    def lacks(self, missing: int, resident: int) -> Held:
        """Return why there is no room for so many bytes in addition to ours that are there."""
        lack = self.destination.explain_lack_now(missing)
        return Held(lack.hold, {**self.numbers, "resident": resident, **lack.numbers})


@dataclass(slots=True)
class EngineContext:
    """The engine's constructor arguments, and its memory of troubles within the cycle."""

    campaign_name: str
    ledger: Ledger
    backends: Mapping[str, Backend]
    identities: dict[str, Identity]
    clock: Clock
    calls: Calls
    observer: Observer
    settings: Settings
    planner: Planner = plan
    governor: Governor = field(default_factory=Governor)
    alone: Alone | None = None
    undeletable: dict[tuple[str, str], str] = field(default_factory=dict)  # destination of a service -> why
    breakers: dict[str, Breaker] = field(default_factory=dict)
    limits: dict[str, Limit] = field(default_factory=dict)  # of calls at once that make rules or jobs
    refused: LinkWaits = field(default_factory=LinkWaits)  # links of which their service takes nothing
    broken: dict[str, NeedsOperator] = field(default_factory=dict)  # service -> what a person has to repair
    blamed: dict[str, Hold] = field(default_factory=dict)  # service -> hold of its last error
    unseen: dict[str, Temporary] = field(default_factory=dict)  # service -> since when nothing is seen of it
    troubles: dict[FlowKey, Held] = field(default_factory=dict)  # this cycle's, for its rows
    claimed: dict[str, frozenset[int]] = field(default_factory=dict)  # files of intents that have no rule yet
    looks: Looks = field(default_factory=Looks)  # what was left of ended injections at their destinations
    rooms: dict[FlowKey, Room] = field(default_factory=dict)  # of flows that wait for room at their destination
    whole_until: dict[FlowKey, datetime] = field(default_factory=dict)  # no slices of its datasets till then
    warned: dict[Hashable, tuple[datetime, int]] = field(default_factory=dict)  # when, and how often not since

    def no_slices(self, flow: FlowKey, error: ServiceError) -> None:
        """Let a flow take whole datasets for a while, since parts of them cannot be made, and log why."""
        hint = f" ({error.hint})" if error.hint else ""
        self.warn(("slices", error.message), f"{flow}: use whole datasets: {error.message}{hint}")
        self.whole_until[flow] = self.clock.now() + SLICES_AGAIN
        self.trouble(flow, Hold.TOO_COARSE, f"{error.message}{hint}")

    def with_slices(self, demands: Iterable[Demand]) -> tuple[Demand, ...]:
        """Return demands of which those that cannot have slices now do not ask for them."""
        now = self.clock.now()
        whole = {flow for flow, until in self.whole_until.items() if now < until}
        return tuple(
            replace(demand, flow=replace(demand.flow, slices=None)) if demand.flow.key in whole else demand
            for demand in demands
        )

    def report(self, event: Event) -> None:
        """Pass an event to the observer."""
        self.observer.event(event)

    def fail(self, service: str, error: ServiceError, flows: Iterable[FlowKey] = ()) -> None:
        """Remember an error: for the rows of its flows, and for the whole service when it is fatal."""
        if isinstance(error, NeedsOperator) and service not in self.broken:
            hint = f" ({error.hint})" if error.hint else ""
            log.error("%s: %s%s", service, error.message, hint, extra=_of_service("service-failed", service))
            self.broken[service] = error
            self.ledger.signal("service", service, None, self.clock.now(), error.message)
        hold = Hold(error.hold) if isinstance(error, NeedsOperator | Temporary) else Hold.API_ERRORS
        if self.blamed.get(service) is not hold:
            self.blamed[service] = hold
            self.ledger.signal(BLAMED, service, hold.value, self.clock.now())
        # Once a cycle, for each reason of a refusal: the rows count how often.
        why = error.message[:_WHY] if isinstance(error, LinkRefused) else ""
        reported = {
            (held.hold, held.numbers["message"] if why else "")
            for flow, held in self.troubles.items()
            if flow.link.through == service
        }
        for flow in flows:
            if (hold, why) not in reported and service not in self.broken:
                reported.add((hold, why))
                self.warn((service, hold, why), f"{service}: {hold} for {flow}: {error.message}")
            self.trouble(flow, hold, error.message)
        self.report(ServiceFailed(service, error.kind, error.message))

    def outage(self, service: str) -> Hold:
        """Return the hold for what a service could not be asked: whose fault its last error was decides."""
        blamed = self.blamed.get(service, Hold.API_ERRORS)
        return blamed if blamed in {Hold.CREDENTIALS, Hold.LOCAL} else Hold.API_ERRORS

    def stands_still(self, service: str) -> NeedsOperator | Temporary | None:
        """Return why nothing is given to a service now: a person has to repair it, or nothing is seen of it."""
        return self.broken.get(service) or self.unseen.get(service)

    def unobserved(self, service: str, error: Temporary) -> None:
        """Remember that nothing has been seen of a service for a while."""
        if service not in self.unseen:
            log.warning("%s", error.message, extra=_of_service("service-unobserved", service))
            self.report(ObservationLost(service, lost=True))
        self.unseen[service] = error
        self.ledger.signal("observation", service, None, self.clock.now(), error.message)

    def observed(self, service: str) -> None:
        """Note that a service reports again how what was injected stands."""
        was_silent = self.unseen.pop(service, None) is not None
        self.ledger.signal("observation", service, "seen", self.clock.now())
        if was_silent and service not in self.broken:
            log.info(
                "%s reports again how %s stand",
                SERVICES[service].title, SERVICES[service].injections,
                extra=_of_service("service-observed", service),
            )  # fmt: skip
        if was_silent:
            self.report(ObservationLost(service, lost=False))

    def warn(self, subject: Hashable, message: str) -> bool:
        """Log what is wrong, of one subject at most every few minutes; return whether it was logged."""
        now = self.clock.now()
        at, times = self.warned.get(subject, (None, 0))
        if at is not None and at <= now < at + LOG_AGAIN:
            self.warned[subject] = at, times + 1
            return False
        self.warned[subject] = now, 0
        log.warning("%s%s", message, f" (and {times} more times since the last message)" if times else "")
        return True

    def answered(self, service: str, error: ServiceError | None) -> bool:
        """Note whether a call that makes something was answered; returns whether the service is back just now."""
        breaker, now = self.breaker(service), self.clock.now()
        if isinstance(error, Temporary) and error.outage:
            if breaker.failed(now):
                log.warning(
                    "%s does not answer; calls are made one at a time: %s",
                    service, error.message,
                    extra=_of_service("service-silent", service),
                )  # fmt: skip
                self.ledger.signal("service", service, None, now, error.message)
                self.report(BreakerSwitched(service, open=True))
            return False
        if (isinstance(error, Temporary) and error.hold == Hold.LOCAL) or not breaker.worked():
            return False
        log.info("%s answers again", service, extra=_of_service("service-answers", service))
        self.ledger.signal("service", service, "answers", now)
        self.report(BreakerSwitched(service, open=False))
        return True

    def answers(self, service: str) -> None:
        """Note that a service answered a question: if calls are held back, the next one may try soon."""
        self.breaker(service).answered_other(self.clock.now())

    def breaker(self, service: str) -> Breaker:
        """Return the breaker of a service."""
        if service not in self.breakers:
            self.breakers[service] = Breaker(service)
        return self.breakers[service]

    def limit(self, service: str) -> Limit:
        """Return how many calls that make rules or jobs a service is given at once."""
        return self.limits.setdefault(service, Limit(self.settings.submits_at_once))

    def paced(
        self, service: str, took: timedelta, count: int, under_way: int, errors: Sequence[ServiceError | None]
    ) -> None:
        """Adapt the limit of a service to how long a call for `count` rules or jobs took."""
        limit = self.limit(service)
        if any(isinstance(error, Temporary) and error.outage for error in errors):
            self.limits[service] = limit.failed()
        elif not any(errors):  # a refusal takes another time than the work
            self.limits[service] = limit.answered(took.total_seconds(), count, under_way)

    def trouble(self, flow: FlowKey, hold: Hold, message: str) -> None:
        """Count a trouble of a flow; the first kind of a cycle is the one that leads in its row."""
        self.report(LinkTroubled(flow, hold))
        leading = self.troubles.get(flow)
        if leading is None:
            self.troubles[flow] = Held(hold, {"times": 1, "message": message[:_WHY]})
        elif leading.hold is hold:
            times = int(leading.numbers["times"]) + 1
            self.troubles[flow] = Held(hold, {**leading.numbers, "times": times})


def _of_service(event: str, service: str) -> dict[str, object]:
    """Return what a line of the log has for programs that is about a service."""
    return {"event": event, "fields": {"service": service}}
